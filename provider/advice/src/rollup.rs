//! What readings come to, hour by hour: for each node, each of its GPUs and MIG instances, and whoever held it.
//!
//! A reading stands for the time since the one before it, so that a histogram is of seconds, and two hours merge exactly. Time that no
//! reading stands for, and levels that a reading does not know, are unknown: they are left out, and never count as zero.
//!
//! One [`Cell`] is one GPU (or MIG instance) while one holder had it. A GPU's hour is the sum of its cells, a pod's hour the sum of
//! those that it held: nothing is stored twice.

mod attribute;
mod codec;
mod histogram;
mod hour;
mod labels;
mod levels;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

pub use attribute::{GpuPod, Holder, Owner, PodName, Unattributed};
pub use codec::Damaged;
pub use histogram::{Distribution, Histogram};
pub use hour::{Bought, Cell, HOUR, Latest, LatestUnit, NodeHour, Unit};
pub use labels::PodLabels;
pub use levels::{Levels, Occupancy};

use levels::Sample;
use stoker_core::base::ids::{GpuUuid, NodeName};
use stoker_core::facts::reading::{GpuReading, Measured, NodeReading, Why};
use stoker_core::policy::LONGEST_GAP;

/// Most cells of a node and hour. Sixteen GPUs of seven instances each are 112; beyond twice that, pods that come and go are no longer told
/// apart, so that a row stays small. What has no cell by then gets one for all its holders, up to as many again; beyond that, which no
/// hardware has, it is not counted.
pub const MOST_CELLS: usize = 256;

/// Most GPUs of a node that are counted and not read. The largest machines have 16.
const MOST_UNREAD: usize = 64;

/// What is known of a node beside its readings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeContext {
    /// What it is and costs; `None` where no record tells.
    pub bought: Option<Bought>,
    /// GPU pods that hold it; `None` without a Kubernetes feed.
    pub pods: Option<Vec<GpuPod>>,
}

/// What became of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tally {
    /// It counts.
    Counted,
    /// The first of its node, or the first after a silence: what was before it is unknown, and the next one counts.
    Begins,
    /// From before the last one that counted, or of the same second: it says nothing.
    Stale,
    /// Nobody knows the node.
    UnknownNode,
}

/// How long an hour stays open after its end, in seconds: a probe keeps what it read for ten minutes, and coarser for longer.
pub const OPEN_AFTER: i64 = 15 * 60;

/// Readings in the making: the open hour of each node, and what is not yet written of the hours before.
#[derive(Debug, Default)]
pub struct Rollup {
    nodes: BTreeMap<NodeName, Node>,
}

#[derive(Debug, Default)]
struct Node {
    context: Arc<NodeContext>,
    /// When the last reading was sampled, in Unix seconds.
    at: Option<i64>,
    /// Millijoules at the last reading, by GPU that was in it.
    energy: BTreeMap<GpuUuid, u64>,
    hours: BTreeMap<i64, OpenHour>,
    latest: Option<Latest>,
    /// Whether `latest` is not written yet.
    fresh: bool,
}

#[derive(Debug, Default)]
struct OpenHour {
    cells: BTreeMap<(Unit, Holder), Levels>,
    /// Counts up with every reading.
    version: u64,
    /// The version that is written.
    written: u64,
}

/// What is to be written down.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Hours that changed since they were last written; a row replaces the one of the same node and hour.
    pub hours: Vec<NodeHour>,
    /// The newest levels of each node that was heard of.
    pub latest: Vec<(NodeName, Latest)>,
    versions: Vec<u64>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.hours.is_empty() && self.latest.is_empty()
    }
}

impl Rollup {
    /// Takes over what is known of the nodes. One that is not among them any more stays until its last hour is over and written: should it
    /// come back, its hour goes on. What a node was stays known when its record is gone before it.
    pub fn follow(&mut self, contexts: BTreeMap<NodeName, Arc<NodeContext>>) {
        self.nodes.retain(|name, node| contexts.contains_key(name) || !node.hours.is_empty());
        for (name, context) in contexts {
            let node = self.nodes.entry(name).or_default();
            node.context = match (&context.bought, &node.context.bought) {
                (None, Some(bought)) => Arc::new(NodeContext { bought: Some(bought.clone()), pods: context.pods.clone() }),
                _ => context,
            };
        }
    }

    /// Goes on from hours that were written before a restart, so that the next writing of an hour replaces none of its beginning.
    pub fn restore(&mut self, hours: Vec<NodeHour>) {
        for hour in hours {
            let NodeHour { hour, node, bought, cells } = hour;
            let of = self.nodes.entry(node).or_default();
            if of.context.bought.is_none() {
                of.context = Arc::new(NodeContext { bought, pods: None });
            }
            let cells = cells.into_iter().map(|Cell { unit, holder, levels }| ((unit, holder), levels)).collect();
            of.hours.insert(hour, OpenHour { cells, version: 0, written: 0 });
        }
    }

    /// Counts a reading that was sampled at `at` for the time since the node's last one. What a probe kept while it was cut off arrives
    /// late, and is counted where it belongs as long as its hour is open.
    pub fn take(&mut self, node: &NodeName, at: Timestamp, reading: &NodeReading) -> Tally {
        let Some(of) = self.nodes.get_mut(node) else { return Tally::UnknownNode };
        let now = at.as_second();
        if reading.arrived.as_second() - now > OPEN_AFTER {
            return Tally::Stale;
        }
        let from = match of.at {
            Some(at) if now <= at => return Tally::Stale,
            Some(at) if now - at <= LONGEST_GAP => at,
            Some(_) | None => now,
        };
        of.at = Some(now);
        let context = Arc::clone(&of.context);
        let mut latest = Latest { at, units: Vec::new() };
        of.energy.retain(|uuid, _| reading.gpus.contains_key(uuid));
        for (uuid, gpu) in &reading.gpus {
            let joules = of.joules(uuid, gpu);
            let instances = match &gpu.mig {
                Measured::Known(mig) if mig.enabled && !mig.devices.is_empty() => Some(&mig.devices),
                _ => None,
            };
            let samples: Vec<(Unit, Sample<'_>)> = match instances {
                // The parts are what pods get; of the whole the driver tells no utilization then.
                Some(devices) => devices
                    .iter()
                    .map(|(mig, device)| (Unit::instance(uuid, mig, device), Sample::of_instance(device)))
                    .collect(),
                None => vec![(Unit::whole(uuid), Sample::of_gpu(gpu, joules))],
            };
            for (unit, sample) in samples {
                let holder = attribute::holder(&context, sample.processes.known().map(Vec::as_slice));
                latest.units.push(LatestUnit::of(unit.clone(), gpu.index, &sample, holder.clone()));
                of.count(from, now, &unit, &holder, &sample);
            }
        }
        let dark = unread();
        for index in unread_indices(reading) {
            let Some(unit) = Unit::unread(index) else { continue };
            let sample = Sample::of_gpu(&dark, 0);
            let holder = attribute::holder(&context, None);
            latest.units.push(LatestUnit::of(unit.clone(), index, &sample, holder.clone()));
            of.count(from, now, &unit, &holder, &sample);
        }
        of.latest = Some(latest);
        of.fresh = true;
        if from == now { Tally::Begins } else { Tally::Counted }
    }

    /// What has changed since it was last written. Nothing is forgotten until [`written`](Self::written) says that it is safe.
    pub fn flush(&self) -> Batch {
        let mut batch = Batch::default();
        for (name, node) in &self.nodes {
            for (hour, open) in node.hours.iter().filter(|(_, open)| open.is_unwritten()) {
                let cells = open.cells.iter().map(|((unit, holder), levels)| Cell {
                    unit: unit.clone(),
                    holder: holder.clone(),
                    levels: levels.clone(),
                });
                let bought = node.context.bought.clone();
                batch.hours.push(NodeHour { hour: *hour, node: name.clone(), bought, cells: cells.collect() });
                batch.versions.push(open.version);
            }
            if let Some(latest) = node.latest.as_ref().filter(|_| node.fresh) {
                batch.latest.push((name.clone(), latest.clone()));
            }
        }
        batch
    }

    /// What [`flush`](Self::flush) gave is on the disk: hours that are over for [`OPEN_AFTER`] are let go where nothing came on top of
    /// them.
    pub fn written(&mut self, batch: &Batch, now: Timestamp) {
        for (row, version) in batch.hours.iter().zip(&batch.versions) {
            if let Some(open) = self.nodes.get_mut(&row.node).and_then(|node| node.hours.get_mut(&row.hour)) {
                open.written = *version;
            }
        }
        for (name, latest) in &batch.latest {
            if let Some(node) = self.nodes.get_mut(name) {
                node.fresh = node.latest.as_ref() != Some(latest);
            }
        }
        let current = (now.as_second() - OPEN_AFTER).div_euclid(HOUR);
        for node in self.nodes.values_mut() {
            node.hours.retain(|hour, open| *hour >= current || open.is_unwritten());
        }
    }

    /// What was last read of each node.
    pub fn latest(&self) -> impl Iterator<Item = (&NodeName, &Latest)> {
        self.nodes.iter().filter_map(|(name, node)| Some((name, node.latest.as_ref()?)))
    }

    /// Nodes that are followed.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no node is followed.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// What is known of a GPU that the driver counts and cannot tell the UUID of, as one that is off the bus: that it failed.
fn unread() -> GpuReading {
    let failed = Why::Failed;
    GpuReading {
        utilization: Measured::Unknown(failed),
        sm_activity: Measured::Unknown(failed),
        memory: Measured::Unknown(failed),
        processes: Measured::Unknown(failed),
        ..GpuReading::default()
    }
}

/// The places, in the driver's order, of GPUs that it counts and that the reading does not have.
fn unread_indices(reading: &NodeReading) -> impl Iterator<Item = u32> {
    let counted = reading.counted.known().copied().unwrap_or(0);
    let read: BTreeSet<u32> = reading.gpus.values().map(|gpu| gpu.index).collect();
    let missing = usize::try_from(counted).unwrap_or(usize::MAX).saturating_sub(reading.gpus.len());
    (0..counted).filter(move |index| !read.contains(index)).take(missing.min(MOST_UNREAD))
}

impl OpenHour {
    const fn is_unwritten(&self) -> bool {
        self.version != self.written
    }
}

impl Node {
    /// Joules since the last reading; zero at the first, and where the driver counts again.
    fn joules(&mut self, uuid: &GpuUuid, gpu: &GpuReading) -> u64 {
        let Some(&now) = gpu.energy_mj.known() else { return 0 };
        let before = if let Some(before) = self.energy.get_mut(uuid) {
            std::mem::replace(before, now)
        } else {
            self.energy.insert(uuid.clone(), now);
            now
        };
        // Cut to whole joules at both ends, so that the parts of a day add up to the day.
        (now / 1_000).saturating_sub(before / 1_000)
    }

    /// Counts a sample for the seconds from `from` to `now`, each in its hour. One that stands for no time leaves its peak in the hour.
    fn count(&mut self, from: i64, now: i64, unit: &Unit, holder: &Holder, sample: &Sample<'_>) {
        let (first, last) = (from.div_euclid(HOUR), now.div_euclid(HOUR));
        for hour in first..=last {
            let seconds = now.min((hour + 1) * HOUR) - from.max(hour * HOUR);
            if seconds <= 0 && hour != last {
                continue;
            }
            let open = self.hours.entry(hour).or_default();
            let Some(levels) = open.levels(unit, holder) else { continue };
            // The sample was taken in the last of the hours; those before it get its time.
            levels.add(sample, u32::try_from(seconds).unwrap_or(0), hour == last);
            open.version += 1;
        }
    }
}

impl OpenHour {
    /// Where a sample is counted; `None` where there is no room for another unit.
    fn levels(&mut self, unit: &Unit, holder: &Holder) -> Option<&mut Levels> {
        let known = (unit.clone(), holder.clone());
        let key = if self.cells.len() < MOST_CELLS || self.cells.contains_key(&known) {
            known
        } else {
            (known.0, Holder::Unattributed(Unattributed::TooMany))
        };
        let room = self.cells.len() < 2 * MOST_CELLS || self.cells.contains_key(&key);
        room.then(|| self.cells.entry(key).or_default())
    }
}
