//! GPU pods, and pods without GPU on GPU nodes, on their way into the journal: every few seconds what came and what is gone, many at a time.
//!
//! The leader alone writes them, and no decision waits for it. A pod is known by its UID, so a restart, or another leader, goes on where the
//! one before ended: what the journal has as running and the cluster has not is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_advice::rollup::{Owner, PodLabels};
use stoker_core::base::ids::NodeName;
use stoker_core::facts::snapshot::ClusterFacts;
use stoker_core::market::price::PriceBook;
use stoker_core::market::sharing::Slices;
use stoker_journal::{JournalError, MOST_PODS, PodChanges, PodEnd, PodsWriter, Reader, RecordedPod};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::kube::feed::{BoundGpuPod, GpuPods, Guest, Guests, KubeFeed};
use crate::kube::gpu_labels::model_of;
use crate::publish::view::View;

/// How often pods are looked at, which is how exact an end is. A pod that comes and goes in between is not recorded.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// A pod that is gone ended at the last look or later; where that is longer ago, nobody knows when.
const SEEN_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// How often it is written down that pods are looked at, where none came and none ended.
const NOTE_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// What is followed.
pub struct Followed {
    /// Where "now" comes from.
    pub clock: Clock,
    /// The published view.
    pub view: Box<dyn Fn() -> Arc<View> + Send + Sync>,
    /// The cluster.
    pub feed: KubeFeed,
    /// The price tables, by which labels name GPU models.
    pub book: Arc<PriceBook>,
}

/// Writes pods down every few seconds, and once more when it is stopped.
pub async fn run(followed: Followed, reader: Reader, writer: PodsWriter, stop: CancellationToken) {
    let mut recorder: Option<Recorder> = None;
    let mut is_failing = false;
    loop {
        let stopping = stop.is_cancelled();
        let done = record(&followed, &reader, &writer, &mut recorder).await;
        if let Err(error) = &done
            && !is_failing
        {
            tracing::warn!(error = error as &dyn Error, "GPU pods cannot be written to the journal; retrying");
        }
        is_failing = done.is_err();
        if stopping {
            return;
        }
        stop.run_until_cancelled(followed.clock.sleep(LOOK_EVERY)).await;
    }
}

async fn record(
    followed: &Followed,
    reader: &Reader,
    writer: &PodsWriter,
    recorder: &mut Option<Recorder>,
) -> Result<(), JournalError> {
    // A cluster that is not seen whole says nothing of what is gone.
    let Some(cluster) = followed.feed.latest().filter(|_| followed.feed.healthy()) else { return Ok(()) };
    let pods = Arc::clone(&followed.feed.gpu_pods().borrow());
    let guests = Arc::clone(&followed.feed.guests().borrow());
    let there = there(&pods, &guests);
    let recorder = match recorder {
        Some(recorder) => recorder,
        None => recorder.insert(Recorder::new(reader.running_pods().await?)),
    };
    let now = followed.clock.now();
    let view = (followed.view)();
    loop {
        let changes = recorder.look(now, &there, |uid, pod| row_of(uid, pod, now, (&cluster, &view, &followed.book)));
        if changes.came.is_empty() && changes.ended.is_empty() && !recorder.is_due(now) {
            return Ok(());
        }
        writer.write((recorder.since.unwrap_or(now), now), &changes).await?;
        recorder.written(now, &changes);
    }
}

/// A pod that is there.
#[derive(Debug, Clone, Copy)]
enum Pod<'a> {
    /// It asks for GPUs.
    Gpu(&'a BoundGpuPod),
    /// It asks for none and is on a node of Stoker's, by its `namespace/name`.
    Guest(&'a str, &'a Guest),
}

/// The pods that are there, by UID.
fn there<'a>(pods: &'a GpuPods, guests: &'a Guests) -> BTreeMap<&'a str, Pod<'a>> {
    let gpu_pods = pods.values().filter_map(|bound| Some((bound.pod.uid.as_deref()?, Pod::Gpu(bound))));
    let guests = guests.iter().filter_map(|(name, guest)| Some((guest.meta.uid.as_deref()?, Pod::Guest(name, guest))));
    gpu_pods.chain(guests).collect()
}

/// Which pods the journal has.
#[derive(Debug)]
struct Recorder {
    /// Those that it has as running.
    running: BTreeSet<Arc<str>>,
    /// Those of them that are gone, until that is written.
    gone: BTreeMap<Arc<str>, PodEnd>,
    /// Since when they are looked at without a gap.
    since: Option<Timestamp>,
    looked: Option<Timestamp>,
    written: Option<Timestamp>,
}

impl Recorder {
    fn new(running: BTreeSet<Arc<str>>) -> Self {
        Self { running, gone: BTreeMap::new(), since: None, looked: None, written: None }
    }

    /// What is to be written of the pods that there are now: at most so much as one write takes.
    fn look(
        &mut self,
        now: Timestamp,
        there: &BTreeMap<&str, Pod<'_>>,
        row_of: impl Fn(&str, Pod<'_>) -> RecordedPod,
    ) -> PodChanges {
        let is_seen = self.looked.is_some_and(|at| now.duration_since(at) <= SEEN_WITHIN);
        self.looked = Some(now);
        if !is_seen {
            self.since = Some(now);
        }
        for uid in self.running.iter().filter(|uid| !there.contains_key(&***uid)) {
            self.gone.entry(Arc::clone(uid)).or_insert(PodEnd { at: now, is_seen });
        }
        self.gone.retain(|uid, _| !there.contains_key(&**uid));
        let came = there.iter().filter(|(uid, _)| !self.running.contains(**uid)).map(|(uid, pod)| row_of(uid, *pod));
        PodChanges {
            came: came.take(MOST_PODS).collect(),
            ended: self.gone.iter().take(MOST_PODS).map(|(uid, end)| (Arc::clone(uid), *end)).collect(),
        }
    }

    fn written(&mut self, now: Timestamp, changes: &PodChanges) {
        self.written = Some(now);
        self.running.extend(changes.came.iter().map(|pod| Arc::clone(&pod.uid)));
        for uid in changes.ended.keys() {
            self.running.remove(uid);
            self.gone.remove(uid);
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.written.is_none_or(|at| now.duration_since(at) >= NOTE_EVERY)
    }
}

fn row_of(uid: &str, pod: Pod<'_>, now: Timestamp, (cluster, view, book): (&ClusterFacts, &View, &PriceBook)) -> RecordedPod {
    let pool_of = |node: &str| {
        let group = NodeName::find(&cluster.nodes, node)?.group.as_ref()?;
        Some(view.groups.get(group)?.group.pool.to_string())
    };
    let BoundGpuPod { pod, asks } = match pod {
        Pod::Gpu(bound) => bound,
        Pod::Guest(name, guest) => return row_of_guest(uid, (name, guest), pool_of(guest.node.as_str()), now),
    };
    let models = asks.gpus.iter().filter_map(|value| Some(model_of(book, value)?.0.to_string()));
    let models: BTreeSet<String> = models.collect();
    let requests = asks.requests.clone().unwrap_or_default();
    let fits = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
    let bound = asks.scheduled.map_or(now, |at| at.min(now));
    RecordedPod {
        uid: uid.into(),
        name: Arc::clone(&pod.name),
        owner_kind: asks.owner_kind.clone(),
        owner: pod.owner.clone(),
        labels: pod.labels.clone(),
        pool: asks.pool.clone().or_else(|| pool_of(&asks.node)),
        models: models.into_iter().collect(),
        // Of a resource claim, or an amount that cannot be read, nobody knows.
        gpus: pod.units.and(asks.requests.as_ref()).map(|requests| fits(requests.gpus)),
        slices: requests.slices,
        milli_cpu: fits(requests.milli_cpu),
        memory_mib: fits(requests.memory_bytes.div_ceil(1 << 20)),
        node: asks.node.clone(),
        created: asks.created.map_or(bound, |at| at.min(bound)),
        bound,
        end: None,
    }
}

/// What else it asks for does not matter: it holds no GPU, and nobody plays it again.
fn row_of_guest(uid: &str, (name, guest): (&str, &Guest), pool: Option<String>, now: Timestamp) -> RecordedPod {
    let (namespace, own_name) = name.split_once('/').unwrap_or((name, name));
    RecordedPod {
        uid: uid.into(),
        name: name.into(),
        owner_kind: None,
        owner: Owner { namespace: namespace.into(), name: own_name.into() },
        labels: PodLabels::default(),
        pool,
        models: Vec::new(),
        gpus: Some(0),
        slices: Slices::default(),
        milli_cpu: 0,
        memory_mib: 0,
        node: guest.node.to_string(),
        created: now,
        bound: now,
        end: None,
    }
}

#[cfg(test)]
mod tests;
