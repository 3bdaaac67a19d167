//! Prometheus as a part of the service.

use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::{NodeEvent, NodeReading, Source};
use stoker_core::policy::Policy;
use stoker_core::policy::rules::demand::Demand;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::feeds::probes::Readings;
use crate::feeds::prometheus::{Asker, Connection, GpuFeed, Metrics, NoAsker, People, Signals, Tell};
use crate::kube::feed::KubeFeed;
use crate::suppliers::Inventory;

/// What asks Prometheus, before it runs.
pub(super) struct Prometheus {
    asker: Option<Asker>,
    policy: watch::Receiver<Arc<Policy>>,
    signals: Signals,
    people: People,
    metrics: Metrics,
    clock: Clock,
}

impl Prometheus {
    /// Without a connection every signal is unknown, and nothing is asked.
    pub(super) fn new(
        connection: Option<&Connection>,
        policy: &watch::Receiver<Arc<Policy>>,
        registry: &mut Registry,
        clock: &Clock,
    ) -> Result<Self, NoAsker> {
        let asker = connection.map(Asker::new).transpose()?;
        let metrics = Metrics::register(registry);
        let signals = Signals::new(asker.clone(), policy.clone(), metrics.clone(), clock.clone());
        let people = People::new(asker.clone(), policy.clone(), metrics.clone(), clock.clone());
        Ok(Self { asker, policy: policy.clone(), signals, people, metrics, clock: clock.clone() })
    }

    /// What the demand signals say, followed.
    pub(super) fn demand(&self) -> watch::Receiver<Arc<Demand>> {
        self.signals.demand()
    }

    /// What people are shown.
    pub(super) fn people(&self) -> People {
        self.people.clone()
    }

    /// Says when readings were last taken; `None` where nobody is asked for any.
    pub(super) fn newest(&self) -> Option<impl Fn() -> Option<Timestamp> + Send + Sync + use<>> {
        let metrics = self.asker.as_ref().map(|_| self.metrics.clone())?;
        Some(move || metrics.last_round())
    }

    /// Runs it until `stop`.
    pub(super) fn spawn(
        self,
        tasks: &mut JoinSet<&'static str>,
        kube: Option<KubeFeed>,
        machines: Vec<Inventory>,
        readings: &Arc<Readings>,
        stop: &CancellationToken,
    ) {
        if let Some(asker) = self.asker {
            let nodes = Arc::new(move || nodes(kube.as_ref(), &machines));
            let tell = hear(Arc::clone(readings), self.policy.clone());
            let feed = GpuFeed::new(asker, self.policy, nodes, tell, self.metrics, self.clock);
            let stopped = stop.clone();
            tasks.spawn(async move {
                feed.run(stopped).await;
                "the readings from Prometheus"
            });
        }
        let (signals, stopped) = (self.signals, stop.clone());
        tasks.spawn(async move {
            signals.run(stopped).await;
            "the demand signals"
        });
    }
}

/// The nodes of this cluster: those that Kubernetes lists, or without a Kubernetes feed those that suppliers made machines for.
fn nodes(kube: Option<&KubeFeed>, machines: &[Inventory]) -> Vec<NodeName> {
    if let Some(kube) = kube {
        return kube.facts().borrow().as_ref().map(|facts| facts.nodes.keys().cloned().collect()).unwrap_or_default();
    }
    let inventories = machines.iter().filter_map(|latest| latest.borrow().clone());
    inventories.flat_map(|seen| seen.instances.values().map(|made| made.node_name.clone()).collect::<Vec<_>>()).collect()
}

/// Takes what Prometheus says of a node as what a probe says. A node is silent after three periods: they make up the time in which a
/// sample goes stale.
fn hear(readings: Arc<Readings>, policy: watch::Receiver<Arc<Policy>>) -> Tell {
    Arc::new(move |node: NodeName, reading: NodeReading, events: Vec<NodeEvent>| {
        let period = policy.borrow().prometheus.stale_after / 3;
        // A node that the cluster does not have is counted where it is refused.
        let _ = readings.expect(&node, Source::Prometheus, period, None).and_then(|()| readings.take(&node, reading, events));
    })
}
