//! What the cluster's nodes and GPU pods are, followed by two watches and published as one value; and beside it the pods on these nodes
//! that want no GPU, which no decision looks at.

mod claims;
mod guests;
mod images;
mod rows;
mod standing;
mod table;
mod watch_health;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::Client;
use kube::runtime::watcher::Event;
use stoker_core::base::ids::{ClusterName, NodeName};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::images::ImageId;
use stoker_core::facts::snapshot::ClusterFacts;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use claims::Claims;
pub use claims::{BoundGpuPod, GpuPods};
use guests::Gathered;
pub use guests::{Guest, Guests};
use images::Images;
pub use images::ImagesOfNodes;
pub use rows::{config, follow};
pub use standing::Shaky;
use table::Table;
pub use watch_health::{Broken, WatchHealth, WatchedKind};

use super::thin::{NodeRow, PodRow};
use crate::clock::Clock;

/// How long changes are gathered before they are published together: a burst of bindings then makes one pass, and a pass waits no
/// longer than people notice.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// Pods that can hold a node. The server leaves the others out, and tells of one that ends as if it were deleted.
const BOUND_AND_ALIVE: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// The cluster's nodes and GPU pods.
///
/// # Guarantees
/// Nothing is published before both kinds were listed completely. After a gap in a watch the new list replaces the old one as a
/// whole, so no half list is ever seen. A broken watch leaves the last facts, and [`broken`](Self::broken) tells of it.
///
/// # Caveats
/// A pod with a resource claim (DRA) holds its node, whatever it claims: that may be a GPU.
#[derive(Debug, Clone)]
pub struct KubeFeed {
    facts: watch::Receiver<Option<Arc<ClusterFacts>>>,
    guests: watch::Receiver<Arc<Guests>>,
    gpu_pods: watch::Receiver<Arc<GpuPods>>,
    images: watch::Receiver<Arc<ImagesOfNodes>>,
    occupied: watch::Receiver<Option<Arc<BTreeSet<NodeName>>>>,
    nodes: Arc<WatchHealth>,
    pods: Arc<WatchHealth>,
    begun: Instant,
}

impl KubeFeed {
    /// Follows the nodes that carry this cluster's label and the GPU pods of every namespace; wakes the engine after each change.
    ///
    /// The feed lives while the future that comes with it runs. It never ends by itself; to stop, drop it.
    pub fn start(client: &Client, cluster: &ClusterName, wake: Arc<Notify>) -> (Self, impl Future<Output = ()> + Send + use<>) {
        Self::start_knowing(client, cluster, BTreeSet::new(), Clock::system(), wake)
    }

    /// The same, where images are remembered that GPU pods used before now: nodes tell whether they have those too.
    pub fn start_knowing(
        client: &Client,
        cluster: &ClusterName,
        remembered: BTreeSet<ImageId>,
        clock: Clock,
        wake: Arc<Notify>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (publish, facts) = watch::channel(None);
        let (publish_guests, guests) = watch::channel(Arc::default());
        let (publish_gpu_pods, gpu_pods) = watch::channel(Arc::default());
        let (publish_images, images) = watch::channel(Arc::default());
        let (publish_occupied, occupied) = watch::channel(None);
        let (of_nodes, of_pods) =
            (Arc::new(WatchHealth::new(WatchedKind::Nodes)), Arc::new(WatchHealth::new(WatchedKind::Pods)));
        let begun = Instant::now();
        let feed = Self { facts, guests, gpu_pods, images, occupied, nodes: of_nodes, pods: of_pods, begun };
        let publish = Publish {
            facts: publish,
            guests: publish_guests,
            gpu_pods: publish_gpu_pods,
            images: publish_images,
            occupied: publish_occupied,
        };
        let labels = format!("{CLUSTER_LABEL}={cluster}");
        let nodes = rows::follow::<NodeRow>(client, rows::config().labels(&labels), Arc::clone(&feed.nodes));
        let pods = rows::follow::<PodRow>(client, rows::config().fields(BOUND_AND_ALIVE), Arc::clone(&feed.pods));
        (feed, run((nodes, pods), (Table::new(clock), Images::new(remembered)), publish, wake))
    }

    /// The facts, now and whenever they change; `None` until both lists are complete.
    pub fn facts(&self) -> watch::Receiver<Option<Arc<ClusterFacts>>> {
        self.facts.clone()
    }

    /// The pods that sit on these nodes and want no GPU, now and whenever they change.
    pub fn guests(&self) -> watch::Receiver<Arc<Guests>> {
        self.guests.clone()
    }

    /// The GPU pods of the whole cluster that hold nodes, now and whenever they change.
    pub fn gpu_pods(&self) -> watch::Receiver<Arc<GpuPods>> {
        self.gpu_pods.clone()
    }

    /// What is known of the images of each node, now and whenever it changes.
    pub fn images(&self) -> watch::Receiver<Arc<ImagesOfNodes>> {
        self.images.clone()
    }

    /// The nodes that GPU pods hold, Stoker's own and all others, now and whenever they change; `None` until the pods are listed.
    pub fn occupied(&self) -> watch::Receiver<Option<Arc<BTreeSet<NodeName>>>> {
        self.occupied.clone()
    }

    /// The facts now; `None` until both lists are complete.
    pub fn latest(&self) -> Option<Arc<ClusterFacts>> {
        self.facts.borrow().clone()
    }

    /// How long ago the API server last proved that both watches stand. Half a minute is usual in a quiet cluster.
    pub fn age(&self) -> Duration {
        self.nodes.age().max(self.pods.age())
    }

    /// The watch that has been broken longest; `None` while both stand.
    pub fn broken(&self) -> Option<Broken> {
        [self.nodes.broken(), self.pods.broken()].into_iter().flatten().min_by_key(|broken| broken.since)
    }

    /// Whether there are facts, no watch has been broken for more than half a minute, and both gave a sign of life lately.
    pub fn healthy(&self) -> bool {
        self.facts.borrow().is_some() && self.nodes.stands_well() && self.pods.stands_well()
    }
}

/// Where what is gathered is published.
struct Publish {
    facts: watch::Sender<Option<Arc<ClusterFacts>>>,
    guests: watch::Sender<Arc<Guests>>,
    gpu_pods: watch::Sender<Arc<GpuPods>>,
    images: watch::Sender<Arc<ImagesOfNodes>>,
    occupied: watch::Sender<Option<Arc<BTreeSet<NodeName>>>>,
}

/// Applies what the watches tell, until one of them ends.
async fn run(
    (nodes, pods): (impl Stream<Item = Event<NodeRow>> + Send, impl Stream<Item = Event<PodRow>> + Send),
    (mut table, mut images): (Table, Images),
    publish: Publish,
    wake: Arc<Notify>,
) {
    let (mut nodes, mut pods) = (pin!(nodes), pin!(pods));
    let mut guests = Gathered::default();
    let mut claims = Claims::default();
    let mut due: Option<Instant> = None;
    let (mut facts_changed, mut guests_changed, mut claims_changed) = (false, false, false);
    let (mut bears_changed, mut images_changed) = (false, false);
    loop {
        tokio::select! {
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                if std::mem::take(&mut guests_changed) {
                    publish.guests.send_replace(Arc::new(guests.known()));
                }
                // Before the facts: whoever reads a node's pods finds their owners here.
                if std::mem::take(&mut claims_changed) {
                    publish.gpu_pods.send_replace(Arc::new(claims.known()));
                }
                // Before them too: a pass takes both. By themselves they wake nobody, as an image is some minutes in coming.
                if std::mem::take(&mut images_changed) {
                    publish.images.send_replace(Arc::new(images.known()));
                }
                if let Some(occupied) = table.take_occupied() {
                    publish.occupied.send_replace(Some(Arc::new(occupied)));
                }
                let changed = std::mem::take(&mut facts_changed);
                if (std::mem::take(&mut bears_changed) || changed)
                    && let Some(facts) = table.facts()
                {
                    publish.facts.send_replace(Some(Arc::new(facts)));
                    if changed {
                        wake.notify_one();
                    }
                }
                continue;
            }
            event = nodes.next() => match event {
                Some(event) => {
                    let listed = matches!(event, Event::InitDone);
                    images_changed |= images.node(&event);
                    facts_changed |= table.node(event);
                    bears_changed |= table.take_bears();
                    guests_changed |= listed && guests.nodes_listed(|node| table.may_have(node));
                }
                None => return,
            },
            event = pods.next() => match event {
                Some(event) => {
                    guests_changed |= guests.pod(&event, |node| table.may_have(node));
                    claims_changed |= claims.pod(&event);
                    images_changed |= images.pod(&event);
                    facts_changed |= table.pod(event);
                }
                None => return,
            },
        }
        let changed = facts_changed || guests_changed || claims_changed || bears_changed || images_changed;
        let changed = changed || table.occupied_changed();
        if changed && due.is_none() && table.complete() {
            due = Some(Instant::now() + DEBOUNCE);
        }
    }
}

#[cfg(test)]
mod tests;
