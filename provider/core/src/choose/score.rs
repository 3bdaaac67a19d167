//! Score of expander options: which way to help pending pods costs least for what it brings.
//!
//! The cost of an option is what its nodes add to the bill, one after the other, as the group would
//! buy them now: what commitments cover first, then what the pool prefers, within every limit and
//! without closed markets. Its benefit is the GPUs that its pods request, in units of work where
//! the pool weighs work. The price includes the part of a node that stays empty. Pods without GPUs
//! are compared only with each other. An option with more nodes than the group may get is scored by
//! those that it may get.
//!
//! Pods may have a deadline. Among ways whose GPUs do their work in time the cheapest wins; where none is, the fastest.

#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::NodeGroupId;
use crate::base::index::LookupSet;
use crate::base::units::{UsdPerHour, Work};
use crate::catalogue::group::Group;
use crate::catalogue::template::{NodeTemplate, Resources};
use crate::choose::rank::Eligible;
use crate::market::sharing::Slices;
use crate::state::memory::Memory;
use crate::state::record::{Record, State};

/// The next nodes of a group that cost the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// So many; above zero.
    pub nodes: u32,
    /// The effective price of each.
    pub price: UsdPerHour,
}

/// What the next nodes of a group cost, in the order in which they would be bought: `most` of them at most. The eligible offers are those
/// of the group, in rank order.
///
/// A commitment that covers its last node in part is taken to cover it not at all.
pub fn supply(eligible: &[Eligible<'_>], most: u32) -> Vec<Step> {
    let mut lots = Vec::with_capacity(eligible.len() * 2);
    for (rank, e) in eligible.iter().enumerate() {
        let covered = if e.parts.covered.is_some() { e.alike.min(e.room) } else { 0 };
        lots.push(((e.rank.pays, e.rank.preference, rank, false), covered, e.parts.effective));
        lots.push(((true, e.rank.preference, rank, true), e.room - covered, e.parts.uncovered()));
    }
    lots.sort_unstable_by_key(|(order, ..)| *order);
    let mut left = most;
    let steps = lots.into_iter().filter_map(|(_, nodes, price)| {
        let nodes = nodes.min(left);
        left -= nodes;
        (nodes > 0).then_some(Step { nodes, price })
    });
    steps.collect()
}

/// What the pods that a way would help ask for, without those that nodes on their way will serve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// GPUs, or slices of them.
    pub gpus: u32,
    /// Pods.
    pub pods: u32,
    /// How fast each GPU or slice must be for the pod with the tightest deadline: the work that it does in an hour. Nothing without one.
    pub speed: Work,
}

impl Asked {
    /// What both ask for together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            gpus: self.gpus.saturating_add(other.gpus),
            pods: self.pods.saturating_add(other.pods),
            speed: self.speed.max(other.speed),
        }
    }
}

/// One way to help waiting pods: so many nodes of one group.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// The group.
    pub group: &'a Group,
    /// What its next nodes cost.
    pub supply: &'a [Step],
    /// Nodes that it takes; above zero.
    pub nodes: u32,
    /// What the pods ask for.
    pub asked: Asked,
}

/// What a way costs and brings. Less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score<'a> {
    /// What the nodes that the group may get cost together, in micro-dollars per hour, as if its GPUs did no more work than the pool's
    /// slowest.
    pub micros: u128,
    /// What is served with them.
    pub asked: Asked,
    /// Work that a GPU or slice does in an hour, where it is too slow for the pods' deadlines. A pool that weighs no work is never late:
    /// nobody knows how fast it is.
    pub late: Option<Work>,
    /// The group.
    pub group: &'a NodeGroupId,
}

impl<'a> Score<'a> {
    /// `None` where the group may get no node now, or one of its prices makes no sense.
    pub fn of(way: &Way<'a>) -> Option<Self> {
        let (mut left, mut micros) = (way.nodes, 0_u128);
        for step in way.supply {
            let nodes = step.nodes.min(left);
            left -= nodes;
            micros += u128::try_from(way.group.weighed(step.price).0).ok()? * u128::from(nodes);
            if left == 0 {
                break;
            }
        }
        let had = way.nodes - left;
        if had == 0 {
            return None;
        }
        // Rounded up: what is asked for is whole, and one node serves somebody.
        let part = |asked: u32| {
            let part = (u64::from(asked) * u64::from(had)).div_ceil(way.nodes.into());
            u32::try_from(part).unwrap_or(u32::MAX)
        };
        let asked = Asked { gpus: part(way.asked.gpus), pods: part(way.asked.pods), speed: way.asked.speed };
        let speed = way.group.work.map(|work| Work(work.0 / u64::from(way.group.units().max(1))));
        let late = speed.filter(|speed| *speed < asked.speed);
        Some(Self { micros, asked, late, group: &way.group.id })
    }

    /// What its price is divided by: GPUs where its pods ask for any, else pods.
    const fn useful(&self) -> u32 {
        if self.asked.gpus > 0 { self.asked.gpus } else { self.asked.pods }
    }
}

impl Ord for Score<'_> {
    /// What serves pods that ask for GPUs comes first: dollars per GPU do not compare with dollars per pod. Then what is in time for their
    /// deadlines, and of what is late the fastest. Then the price of what is useful; of equal ones that which serves more, and then the group's id.
    fn cmp(&self, other: &Self) -> Ordering {
        // A price of 63 bits for 32 bits of nodes, times 32 bits: 127 bits at most.
        let price = |a: &Self, b: &Self| a.micros * u128::from(b.useful());
        (self.asked.gpus == 0, self.useful() == 0)
            .cmp(&(other.asked.gpus == 0, other.useful() == 0))
            .then_with(|| self.late.map(Reverse).cmp(&other.late.map(Reverse)))
            .then_with(|| price(self, other).cmp(&price(other, self)))
            .then_with(|| Reverse(self.useful()).cmp(&Reverse(other.useful())))
            .then_with(|| Reverse(self.asked.pods).cmp(&Reverse(other.asked.pods)))
            .then_with(|| self.group.cmp(other.group))
    }
}

impl PartialOrd for Score<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Nodes on their way that the autoscaler does not reckon with, as far as they are still empty: it asks for the pods that they will serve
/// as if nobody would. With those that it does reckon with it has placed pods already, and does not ask for those.
#[derive(Debug, Clone, Default)]
pub struct Soon<'a> {
    nodes: Vec<Coming<'a>>,
}

/// A node on its way, and what is not yet taken of it.
#[derive(Debug, Clone)]
struct Coming<'a> {
    template: &'a NodeTemplate,
    left: Resources,
    slices: Slices,
}

impl<'a> Soon<'a> {
    /// The nodes at `now`: those that its session before a restart asked for or nobody did, and those of a group with a node that failed,
    /// for which it forgets what else is on its way there.
    pub fn of(memory: &'a Memory, now: Timestamp) -> Self {
        let mut coming: Vec<&Record> = Vec::new();
        let mut failed: LookupSet<&NodeGroupId> = LookupSet::default();
        for record in memory.records.values() {
            if record.is_coming() {
                coming.push(record);
            } else if matches!(record.state, State::Failed { .. }) {
                failed.insert(&record.group);
            }
        }
        let nodes = coming.into_iter().filter_map(|record| {
            let session = memory.session.filter(|_| !failed.contains(&record.group));
            let template = &memory.groups.get(&record.group)?.group.template;
            let coming = || Coming { template, left: template.allocatable, slices: template.slices.clone() };
            record.is_uncredited(session, now).then(coming)
        });
        Self { nodes: nodes.collect() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether one of them has room for a pod that needs so much and that such nodes admit; the room is taken then.
    pub fn takes(&mut self, needs: &Needs, admits: impl Fn(&NodeTemplate) -> bool) -> bool {
        let found = self.nodes.iter_mut().find(|Coming { template, left, slices }| {
            left.gpus >= needs.gpus
                && needs.slices.within(slices)
                && left.milli_cpu >= needs.milli_cpu
                && left.memory.bytes() >= needs.memory_bytes
                && left.pods > 0
                && admits(template)
        });
        let Some(Coming { left, slices, .. }) = found else { return false };
        slices.take(&needs.slices);
        left.gpus -= needs.gpus;
        left.milli_cpu -= needs.milli_cpu;
        left.memory.0 -= needs.memory_bytes.div_ceil(1 << 20).min(left.memory.0);
        left.pods -= 1;
        true
    }
}

/// What a pod needs of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// GPUs by the name of `nvidia.com/gpu`.
    pub gpus: u32,
    /// GPUs, or slices of them, by other names.
    pub slices: Slices,
    /// CPU in thousandths of a core.
    pub milli_cpu: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
}
