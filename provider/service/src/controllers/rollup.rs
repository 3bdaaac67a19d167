//! Readings on their way into the journal: who hands one over, what nodes they are told of, and the task that writes them down.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use stoker_advice::rollup::{Bought, GpuPod, HOUR, Latest, NodeContext, NodeHour, OPEN_AFTER, Owner, PodLabels, Rollup, Tally};
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::catalogue::Catalogue;
use stoker_core::facts::reading::NodeReading;
use stoker_core::facts::snapshot::ClusterFacts;
use stoker_core::state::memory::Memory;
use stoker_core::state::record::{Record, State};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::kube::feed::GpuPods;
use crate::publish::view::View;
use stoker_journal::{JournalError, Reader, ReadingsWriter};

/// How often the nodes' records and pods are looked up anew: a pod that comes is told apart from the one before within so long.
const FOLLOW_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// How often readings are written down: what a crash may lose. At 5,000 nodes a write is some 6 MB, and so 2 GB a day.
pub const WRITE_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// The open hours, shared between those who hand readings over and the task that writes them down. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct SharedRollup(Arc<Mutex<Rollup>>);

impl SharedRollup {
    /// Counts a reading of a node that was sampled at `at`. Takes microseconds, and some tens of milliseconds at 5,000 nodes while a batch is copied.
    pub fn take(&self, node: &NodeName, at: Timestamp, reading: &NodeReading) -> Tally {
        self.lock().take(node, at, reading)
    }

    /// How busy the GPUs of each node were, in thousandths and in the driver's order, by readings from `from` on.
    pub fn activity(&self, from: Timestamp) -> HashMap<NodeName, Vec<Option<u16>>> {
        let busy = |latest: &Latest| {
            let mut units: Vec<_> = latest.units.iter().collect();
            units.sort_by_key(|of| (of.index, &of.unit));
            units.into_iter().map(|of| of.busy().known().map(|level| level.get())).collect()
        };
        let state = self.lock();
        state.latest().filter(|(_, latest)| latest.at >= from).map(|(node, latest)| (node.clone(), busy(latest))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Rollup> {
        // Whoever panicked with the lock held left sums behind that are whole: each is added to by one statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on from what was written of the hours that are open at `now`, before a restart.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn restore(&self, journal: &Reader, now: Timestamp) -> Result<(), JournalError> {
        let hour = |second: i64| second.div_euclid(HOUR);
        let mut rows: Vec<NodeHour> = Vec::new();
        journal.each_reading_hour(hour(now.as_second() - OPEN_AFTER), hour(now.as_second()) + 1, |row| rows.push(row)).await?;
        self.lock().restore(rows);
        Ok(())
    }

    /// Writes down what changed.
    ///
    /// # Errors
    /// When the journal cannot be written; nothing is lost, and the next write has it all.
    pub async fn write(&self, journal: &ReadingsWriter, now: Timestamp) -> Result<(), JournalError> {
        let batch = self.lock().flush();
        journal.write(&batch).await?;
        self.lock().written(&batch, now);
        Ok(())
    }

    /// Takes over what is known of the nodes.
    pub fn follow(&self, contexts: BTreeMap<NodeName, Arc<NodeContext>>) {
        self.lock().follow(contexts);
    }
}

/// What the writing task follows.
pub struct Followed {
    /// Where "now" comes from.
    pub clock: Clock,
    /// The published view.
    pub view: Box<dyn Fn() -> Arc<View> + Send + Sync>,
    /// The cluster's nodes, where there is a Kubernetes feed.
    pub cluster: Option<watch::Receiver<Option<Arc<ClusterFacts>>>>,
    /// Its GPU pods.
    pub pods: Option<watch::Receiver<Arc<GpuPods>>>,
}

/// Keeps the nodes of `readings` up to date and writes them down now and then, and once more when it is stopped.
pub async fn run(readings: SharedRollup, journal: ReadingsWriter, followed: Followed, stop: CancellationToken) {
    let Followed { clock, view, cluster, pods } = followed;
    let mut written_at = clock.now();
    loop {
        let stopping = stop.is_cancelled();
        let facts = cluster.as_ref().map(|cluster| cluster.borrow().clone());
        let claims = pods.as_ref().map(|pods| Arc::clone(&pods.borrow()));
        let shown = view();
        // Before the first list is whole nobody knows who holds what; what is read until then waits for its node to be known.
        if !matches!(facts, Some(None)) {
            readings.follow(contexts(&shown.memory, &shown.catalogue, facts.flatten().as_deref(), claims.as_deref()));
        }
        let now = clock.now();
        if stopping || now.duration_since(written_at) >= WRITE_EVERY {
            written_at = now;
            if let Err(error) = readings.write(&journal, now).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "writing readings failed; the next write includes them"
                )
            }
        }
        if stopping {
            return;
        }
        let until = now.saturating_add(FOLLOW_EVERY).unwrap_or(Timestamp::MAX);
        stop.run_until_cancelled(clock.sleep_until(until)).await;
    }
}

/// What is known of each node: what its record says of its machine, and which GPU pods hold it.
pub fn contexts(
    memory: &Memory,
    catalogue: &Catalogue,
    cluster: Option<&ClusterFacts>,
    pods: Option<&GpuPods>,
) -> BTreeMap<NodeName, Arc<NodeContext>> {
    let machines: BTreeMap<&ProviderId, &Arc<Record>> =
        memory.records.values().filter_map(|record| Some((record.instance()?, record))).collect();
    let Some(cluster) = cluster else {
        // Without a cluster a record may know its node's name all the same, and nobody knows its pods.
        let named = memory.records.values().filter_map(|record| match &record.state {
            State::Registered { node: Some(node), .. } => {
                Some((node.clone(), Arc::new(NodeContext { bought: bought(record, memory, catalogue), pods: None })))
            }
            _ => None,
        });
        return named.collect();
    };
    let context = |node: &stoker_core::facts::snapshot::NodeFacts| {
        let record = node.provider_id.as_ref().and_then(|machine| machines.get(machine));
        let holding = node
            .gpu_pods
            .iter()
            .map(|name| pods.and_then(|pods| pods.get(name.as_str())).map_or_else(|| unknown(name), |bound| bound.pod.clone()));
        NodeContext { bought: record.and_then(|record| bought(record, memory, catalogue)), pods: Some(holding.collect()) }
    };
    cluster.nodes.values().map(|node| (node.name.clone(), Arc::new(context(node)))).collect()
}

/// A pod of which only `namespace/name` is known.
fn unknown(key: &str) -> GpuPod {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    GpuPod {
        name: Arc::from(key),
        uid: None,
        owner: Owner::of(namespace, name, None, None),
        labels: PodLabels::default(),
        units: None,
        started_after: None,
    }
}

fn bought(record: &Record, memory: &Memory, catalogue: &Catalogue) -> Option<Bought> {
    let purchase = record.purchase()?;
    let group = catalogue.group_or_remembered(&record.group, memory)?;
    Some(Bought {
        pool: group.pool.clone(),
        market: purchase.market.clone(),
        price: purchase.price,
        gpus: group.spec.advertised_gpus(),
        units: group.units(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stoker_advice::rollup::Holder;
    use stoker_core::base::ids::{LaunchKey, RecordId};
    use stoker_core::base::units::UsdPerHour;
    use stoker_core::facts::reading::{DriverState, GpuReading, Measured, Permille, Source};
    use stoker_core::facts::snapshot::{Cordon, Hold, NodeFacts};
    use stoker_core::market::offer::{CapacityType, Market};
    use stoker_core::state::record::{PodsSeen, Purchase};
    use tempfile::tempdir;

    use super::*;
    use crate::kube::feed::BoundGpuPod;
    use crate::price_tables::PriceTables;
    use stoker_journal::Journal;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn node(name: &str, machine: &str, pods: &[&str]) -> (NodeName, Arc<NodeFacts>) {
        let name = NodeName::new(name).unwrap();
        let facts = NodeFacts {
            name: name.clone(),
            provider_id: Some(ProviderId::new(machine).unwrap()),
            group: None,
            created_at: at(0),
            ready_since: Some(at(0)),
            gpu_pods: pods.iter().map(ToString::to_string).collect::<BTreeSet<_>>(),
            scale_down_disabled: Hold::None,
            cordon: Cordon::None,
            allocatable: None,
            shown: None,
        };
        (name, Arc::new(facts))
    }

    #[test]
    fn a_node_is_what_its_record_bought_and_its_pods_are_told_by_their_claims() {
        let price_tables = PriceTables::load(None, None, at(0)).unwrap();
        let catalogue = price_tables.catalogue(price_tables.policy(None).unwrap());
        let group = catalogue.groups.values().next().unwrap();
        let market = Market { place: group.place.clone(), capacity_type: CapacityType::OnDemand };
        let purchase = Purchase {
            key: LaunchKey::new("c/g/1/1").unwrap(),
            market: market.clone(),
            price: UsdPerHour(1_000_000),
            boot_within: SignedDuration::from_mins(10),
            reservation: None,
        };
        let record = Record {
            id: RecordId(1),
            group: group.id.clone(),
            order: None,
            ordered_at: at(0),
            credited_to: None,
            floor: false,
            attempts: 1,
            placeholder: ProviderId::new("p").unwrap(),
            pods: PodsSeen::Seen,
            judged: None,
            state: State::Booting { purchase, instance: ProviderId::new("sim://1").unwrap(), launched_at: at(0) },
        };
        let memory = Memory { records: BTreeMap::from([(RecordId(1), Arc::new(record))]), ..Memory::default() };
        let cluster = ClusterFacts {
            nodes: [node("a", "sim://1", &["ml/x", "ml/recs-7d4b9c5f6d-x2x7z"]), node("b", "sim://2", &[])].into(),
        };
        let claim = GpuPod {
            name: "ml/x".into(),
            uid: Some("u".into()),
            owner: Owner::of("ml", "x", Some(("Job", "train")), None),
            labels: PodLabels::default(),
            units: Some(1),
            started_after: None,
        };
        let bound = BoundGpuPod { pod: claim.clone(), asks: Arc::default() };
        let pods = GpuPods::from([(Arc::clone(&claim.name), bound)]);
        let known = contexts(&memory, &catalogue, Some(&cluster), Some(&pods));
        let a = &known[&NodeName::new("a").unwrap()];
        let bought = a.bought.as_ref().unwrap();
        assert_eq!((&bought.pool, &bought.market, bought.units), (&group.pool, &market, group.units()));
        let [recs, x] = a.pods.as_deref().unwrap() else { panic!("{a:?}") };
        assert_eq!((x, recs.owner.name.as_ref(), &recs.uid), (&claim, "recs", &None));
        assert_eq!(*known[&NodeName::new("b").unwrap()], NodeContext { bought: None, pods: Some(Vec::new()) });
        assert_eq!(contexts(&memory, &catalogue, None, None), BTreeMap::new(), "nothing names its node");
    }

    /// A process that ends in the middle of an hour writes it, and the next goes on from there.
    #[tokio::test]
    async fn an_hour_goes_on_after_a_restart() {
        let dir = tempdir().unwrap();
        let name = NodeName::new("a").unwrap();
        let reading = |second: i64| NodeReading {
            arrived: at(second),
            source: Source::Probe,
            driver: DriverState::Ready,
            counted: Measured::Known(1),
            gpus: BTreeMap::from([(
                "GPU-1".to_owned().try_into().unwrap(),
                GpuReading { utilization: Measured::Known(Permille::new(500).unwrap()), ..GpuReading::default() },
            )]),
            gates: BTreeMap::new(),
        };
        let context = || BTreeMap::from([(name.clone(), Arc::new(NodeContext { bought: None, pods: Some(Vec::new()) }))]);
        for begin in [0, 600] {
            let (journal, _) = Journal::open(dir.path()).await.unwrap();
            let readings = SharedRollup::default();
            readings.restore(&journal.reader(), at(begin)).await.unwrap();
            assert_eq!(readings.take(&NodeName::new("b").unwrap(), at(begin), &reading(begin)), Tally::UnknownNode);
            readings.follow(context());
            for second in [begin, begin + 60, begin + 120] {
                readings.take(&name, at(second), &reading(second));
            }
            readings.write(&journal.readings(), at(begin + 120)).await.unwrap();
            journal.close().await;
        }
        let mut rows = Vec::new();
        let reader = Journal::open_read_only(dir.path()).await.unwrap();
        reader.each_reading_hour(0, i64::MAX, |row| rows.push(row)).await.unwrap();
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        let [cell] = row.cells.as_slice() else { panic!("{rows:?}") };
        assert_eq!((cell.levels.seconds, cell.levels.samples, &cell.holder), (240, 6, &Holder::Nobody));
    }
}
