//! Ledger of limits: what is left after the autoscaler asks for all raised minimums. Two pools
//! cannot claim the same room.

use super::super::is_fresh;
use super::super::pass::Pass;
use crate::base::engine_clock::Times;
use crate::base::ids::NodeGroupId;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::choose::allocate::allocate;
use crate::choose::rank::Scales;
use crate::facts::snapshot::Snapshot;
use crate::limits::usage::{Bound, Usage};
use crate::state::memory::Memory;

/// What is used of every limit, with what minimums ask for.
pub(super) struct Ledger<'a> {
    usage: Usage,
    snapshot: &'a Snapshot,
    catalogue: &'a Catalogue,
    times: Times,
}

impl<'a> Ledger<'a> {
    /// With nothing asked for yet.
    pub(super) fn new(pass: &Pass<'a>, usage: &Usage) -> Self {
        Self { usage: usage.clone(), snapshot: pass.snapshot, catalogue: pass.catalogue, times: pass.times() }
    }

    /// Asks for up to so many nodes of a group, as they would be bought; for how many there is room.
    pub(super) fn take(&mut self, memory: &Memory, group: &NodeGroupId, nodes: u32) -> u32 {
        let Some(group) = self.catalogue.groups.get(group) else { return 0 };
        let mut left = nodes;
        while left > 0 {
            let fresh = |group: &Group| is_fresh(self.snapshot, group, self.times.now);
            let scales = Scales { catalogue: self.catalogue, memory, usage: &self.usage, fresh: &fresh, times: self.times };
            let Some(first) = scales.rank([group.as_ref()]).0.into_iter().next() else { break };
            let nodes = left.min(first.room).min(first.alike);
            if nodes == 0 {
                break;
            }
            let (market, price) = (first.offer.market.clone(), first.parts.quote.price);
            self.usage.add_bought(group, &market, price, nodes, self.catalogue);
            left -= nodes;
        }
        nodes - left
    }

    /// Asks for up to so many nodes of those groups, chosen as any purchase is: how many of which, in the order of the choice.
    pub(super) fn choose(&mut self, memory: &Memory, groups: &[&Group], nodes: u32) -> Vec<(NodeGroupId, u32)> {
        let fresh = |group: &Group| is_fresh(self.snapshot, group, self.times.now);
        let scales = Scales { catalogue: self.catalogue, memory, usage: &self.usage, fresh: &fresh, times: self.times };
        let chosen = allocate(&scales, groups, nodes);
        let runs = chosen.runs.iter().map(|run| (run.group.id.clone(), run.nodes)).collect();
        self.usage = chosen.usage;
        runs
    }

    /// The limit that leaves an open group no room for one more, in words. `used`: what is used without what is asked for.
    pub(super) fn binding(&self, memory: &Memory, group: &Group, used: &Usage) -> Option<String> {
        let fresh = |group: &Group| is_fresh(self.snapshot, group, self.times.now);
        let binds = |usage: &Usage| -> Option<Bound> {
            Scales { catalogue: self.catalogue, memory, usage, fresh: &fresh, times: self.times }.binding(group)
        };
        let bound = binds(&self.usage)?;
        let asked = binds(used).as_ref() != Some(&bound);
        Some(if asked { format!("{bound}, counting what is already on order") } else { bound.to_string() })
    }
}
