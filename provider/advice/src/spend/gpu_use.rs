//! GPU use: how busy the GPUs of nodes were in each hour, as far as readings tell, and what of a cost that leaves unused.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoker_core::base::ids::NodeName;

use super::{PodTime, Span};
use crate::rollup::{Cell, HOUR, Histogram, Holder, NodeHour, Owner};

/// A whole, in the parts that shares of it are counted in.
const WHOLE_SHARE: i128 = 1_000_000;

/// What readings of GPUs come to.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// GPU-seconds that readings stand for.
    seconds: u64,
    /// Those of which the level is known.
    known: u64,
    /// The levels of those, in thousandths × seconds.
    used: u64,
}

impl Level {
    fn add(&mut self, cell: &Cell) {
        // Of a MIG instance the driver tells no utilization, and the activity of its multiprocessors where it can.
        let levels = [&cell.levels.utilization, &cell.levels.sm];
        let level = levels.into_iter().find(|level| level.known() > 0);
        self.seconds += u64::from(cell.levels.seconds);
        self.known += level.map_or(0, Histogram::known);
        self.used += level.map_or(0, Histogram::level_seconds);
    }
}

/// What was read of a node in an hour.
#[derive(Debug, Clone, Default)]
struct Hour {
    /// Seconds that readings stand for: of its unit that was read the longest.
    read: u32,
    all: Level,
    nobody: Level,
    unattributed: Level,
    owners: BTreeMap<Owner, Level>,
}

/// How busy the GPUs of nodes were in each hour.
#[derive(Debug, Clone, Default)]
pub struct GpuUse(BTreeMap<NodeName, BTreeMap<i64, Hour>>);

/// Whose time it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose<'a> {
    Pod(&'a PodTime),
    Nobody,
    /// Nobody knows.
    Unknown,
}

/// Of some seconds, in millionths of a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// Those of which readings tell.
    pub(super) read: i128,
    /// Those among them that were not used.
    pub(super) wasted: i128,
}

impl Read {
    /// The same share of an amount as these are of so many seconds.
    pub(super) fn of(self, amount: i128, seconds: i64) -> (i128, i128) {
        let whole = (i128::from(seconds) * WHOLE_SHARE).max(1);
        (amount * self.read / whole, amount * self.wasted / whole)
    }
}

impl GpuUse {
    /// Adds an hour of a node.
    pub fn add(&mut self, row: &NodeHour) {
        let mut hour = Hour::default();
        let mut read: BTreeMap<_, u32> = BTreeMap::new();
        for cell in &row.cells {
            let of_unit = read.entry(&cell.unit).or_default();
            *of_unit = of_unit.saturating_add(cell.levels.seconds);
            hour.all.add(cell);
            match &cell.holder {
                Holder::Nobody => hour.nobody.add(cell),
                Holder::Unattributed(_) => hour.unattributed.add(cell),
                Holder::Pod { owner, .. } => hour.owners.entry(owner.clone()).or_default().add(cell),
            }
        }
        hour.read = read.into_values().max().unwrap_or(0);
        self.0.entry(row.node.clone()).or_default().insert(row.hour, hour);
    }

    /// The use of the nodes of these spans.
    pub(super) fn of<'a>(&'a self, spans: &'a [Span]) -> NodeUse<'a> {
        let mut present: BTreeMap<(&NodeName, i64), i64> = BTreeMap::new();
        for span in spans {
            let Some((node, hours)) = span.node.as_ref().and_then(|node| self.0.get_key_value(node)) else { continue };
            let within = span.since.div_euclid(HOUR)..=(span.until - 1).div_euclid(HOUR);
            for (hour, _) in hours.range(within) {
                let seconds = span.until.min((hour + 1) * HOUR) - span.since.max(hour * HOUR);
                *present.entry((node, *hour)).or_default() += seconds.max(0);
            }
        }
        NodeUse { hours: &self.0, present }
    }
}

/// The use of nodes, and how long each was there in each hour.
#[derive(Debug)]
pub(super) struct NodeUse<'a> {
    hours: &'a BTreeMap<NodeName, BTreeMap<i64, Hour>>,
    /// Seconds by node and hour.
    present: BTreeMap<(&'a NodeName, i64), i64>,
}

impl NodeUse<'_> {
    /// What readings tell of a node between two moments, while it was somebody's. Of an hour the mean counts; of a part of it that no
    /// reading stands for, nothing is known.
    pub(super) fn read(&self, node: Option<&NodeName>, whose: Whose<'_>, (from, until): (i64, i64)) -> Read {
        let mut sum = Read::default();
        let Some((node, hours)) = node.and_then(|node| self.hours.get_key_value(node)).filter(|_| from < until) else {
            return sum;
        };
        for (hour, of) in hours.range(from.div_euclid(HOUR)..=(until - 1).div_euclid(HOUR)) {
            let seconds = i128::from(until.min((hour + 1) * HOUR) - from.max(hour * HOUR));
            let present = i128::from(self.present.get(&(node, *hour)).copied().unwrap_or(0));
            let Level { seconds: counted, known, used } = of.level(whose);
            if counted == 0 || known == 0 || present == 0 {
                continue;
            }
            let (counted, known, used) = (i128::from(counted), i128::from(known), i128::from(used));
            let is_read = (i128::from(of.read) * WHOLE_SHARE / present).min(WHOLE_SHARE) * known / counted;
            sum.read += seconds * is_read;
            sum.wasted += seconds * (is_read * (known * 1_000 - used) / (known * 1_000));
        }
        sum
    }
}

impl Hour {
    /// What tells the most of whose it was: its own readings, else those of which nobody knows whose they are.
    fn level(&self, whose: Whose<'_>) -> Level {
        let own = match whose {
            Whose::Pod(pod) => {
                let owner = Owner { namespace: Arc::clone(&pod.namespace), name: Arc::clone(&pod.workload) };
                self.owners.get(&owner).copied()
            }
            Whose::Nobody => Some(self.nobody),
            Whose::Unknown => return self.all,
        };
        own.filter(|level| level.seconds > 0).unwrap_or(self.unattributed)
    }
}
