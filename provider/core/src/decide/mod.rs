//! The decision of one pass. The same inputs give the same plan, byte for byte.
//!
//! The order of the steps is the order of the calls in [`decide`]: what the world says goes in first, then nodes are let go,
//! then what is wanted is bought, then nodes are guarded and cleaned up, then the limits follow from what is left.

mod absorb;
mod budgets;
mod fill;
mod guard;
mod leave;
mod limits;
mod paid;
mod reclaims;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::group::{Group, Menu};
use crate::ids::{NodeGroupId, ProviderId, RecordId, SupplierName};
use crate::lookup::{Lookup, LookupSet};
use crate::memory::Memory;
use crate::plan::{Action, Decision, Explanation, Note, Plan};
use crate::policy::Evidence;
use crate::record::{Record, State};
use crate::snapshot::{NodeFacts, Snapshot};
use crate::supply::Observation;
use crate::usage::Usage;

pub use limits::BARREN_AFTER;

/// An inventory older than this says nothing any more: the feed asks every few seconds, so twenty answers in a row have failed.
pub const STALE_INVENTORY: SignedDuration = SignedDuration::from_mins(2);

/// Decides one pass.
///
/// `snapshot` is what is true, `memory` what the last pass remembered, `menu` the policy with its groups and prices.
pub fn decide(snapshot: &Snapshot, memory: &Memory, menu: &Menu, now: Timestamp) -> Decision {
    let mut draft = Draft::new(snapshot, memory.clone(), menu, now);
    absorb::outcomes(&mut draft);
    absorb::inventory(&mut draft);
    absorb::registrations(&mut draft);
    absorb::deadlines(&mut draft);
    reclaims::keep(&mut draft);
    // Before anything is bought: what goes in this pass must not widen the shares under which it buys.
    leave::nodes(&mut draft);
    fill::buy(&mut draft);
    fill::ask_again(&mut draft);
    guard::endings(&mut draft);
    // From here on nothing that a limit counts changes.
    let usage = draft.usage();
    let held = guard::holds(&mut draft, &usage);
    guard::gone_nodes(&mut draft);
    guard::barren_groups(&mut draft);
    let limits = limits::of_groups(&mut draft, &usage, &held);
    let accounts = budgets::accounts(&mut draft, &usage);
    draft.forget();
    let Draft { memory, actions, notes, explanations, next_change_at, .. } = draft;
    Decision { plan: Plan::new(actions, limits, accounts, notes, explanations), memory, next_change_at }
}

/// A decision in the making.
struct Draft<'a> {
    snapshot: &'a Snapshot,
    menu: &'a Menu,
    now: Timestamp,
    /// The cluster's nodes by machine.
    nodes: Lookup<&'a ProviderId, &'a Arc<NodeFacts>>,
    /// The machines that each supplier lists.
    listed: LookupSet<(&'a SupplierName, &'a ProviderId)>,
    /// The menu's groups.
    groups: Lookup<&'a NodeGroupId, &'a Arc<Group>>,
    /// Whether pods are the evidence of every pool, so that no record's pool need be looked up.
    pods_judge_all: bool,
    memory: Memory,
    actions: Vec<Action>,
    notes: Vec<Note>,
    explanations: Vec<Explanation>,
    next_change_at: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    fn new(snapshot: &'a Snapshot, memory: Memory, menu: &'a Menu, now: Timestamp) -> Self {
        let nodes = snapshot.cluster.as_ref().map(|cluster| cluster.by_machine()).unwrap_or_default();
        let inventories = snapshot.suppliers.iter().filter_map(|(supplier, inventory)| Some((supplier, inventory.as_ref()?)));
        let listed = inventories.flat_map(|(supplier, i)| i.instances.keys().map(move |id| (supplier, id))).collect();
        let groups = menu.groups.iter().collect();
        Self {
            snapshot,
            menu,
            now,
            nodes,
            listed,
            groups,
            pods_judge_all: menu.policy.pools.iter().all(|pool| pool.evidence == Evidence::Pods),
            memory,
            actions: Vec::new(),
            notes: Vec::new(),
            explanations: Vec::new(),
            next_change_at: None,
        }
    }

    /// Notes a moment at which something may differ.
    fn look_again_at(&mut self, at: Timestamp) {
        if at > self.now && self.next_change_at.is_none_or(|next| at < next) {
            self.next_change_at = Some(at);
        }
    }

    /// `life` after `start`; the end of time where that is further.
    fn after(start: Timestamp, life: SignedDuration) -> Timestamp {
        start.saturating_add(life).unwrap_or(Timestamp::MAX)
    }

    /// Changes a record's state.
    fn set_state(&mut self, id: RecordId, state: State) {
        if let Some(record) = self.memory.records.get_mut(&id) {
            Arc::make_mut(record).state = state;
        }
    }

    /// The group of a record, from the menu or as remembered.
    fn group_of(&self, record: &Record) -> Option<Arc<Group>> {
        self.group(&record.group).cloned()
    }

    /// A group from the menu or as remembered.
    fn group(&self, id: &NodeGroupId) -> Option<&Arc<Group>> {
        self.groups.get(id).copied().or_else(|| self.memory.groups.get(id).map(|remembered| &remembered.group))
    }

    /// The latest inventory of the supplier that makes this group's nodes; `None` while there is none.
    fn inventory_of(&self, group: &NodeGroupId) -> Option<&'a Arc<Observation>> {
        let group = self.group(group)?;
        self.snapshot.suppliers.get(&group.supplier)?.as_ref()
    }

    /// Whether that supplier lists the machine.
    fn lists(&self, supplier: &SupplierName, instance: &ProviderId) -> bool {
        self.listed.contains(&(supplier, instance))
    }

    /// Whether GPU pods tell if nodes of this record's pool are in use.
    fn judged_by_pods(&self, record: &Record) -> bool {
        let pool = |group: &Arc<Group>| self.menu.policy.pool(&group.pool);
        self.pods_judge_all || self.group(&record.group).and_then(pool).is_none_or(|pool| pool.evidence == Evidence::Pods)
    }

    /// What is used of every limit, counted afresh.
    fn usage(&self) -> Usage {
        Usage::count(&self.memory, self.menu, self.now)
    }

    /// Drops what no longer needs remembering.
    fn forget(&mut self) {
        let records = &self.memory.records;
        let used: LookupSet<&NodeGroupId> = records.values().map(|r| &r.group).collect();
        self.memory.groups.retain(|id, g| used.contains(id) || g.barren > 0 || g.frozen_since.is_some());
        let gone = |orphan: &ProviderId| !self.snapshot.suppliers.keys().any(|supplier| self.lists(supplier, orphan));
        let left: Vec<ProviderId> = self.memory.orphans.iter().filter(|orphan| gone(orphan)).cloned().collect();
        for orphan in left {
            self.memory.orphans.remove(&orphan);
        }
        // A market that has been quiet for longer than its longest wait starts afresh at the next refusal.
        let now = self.now;
        self.memory.refused.retain(|_, b| Self::after(b.until, crate::memory::LONGEST_BACKOFF) > now);
    }
}

/// Whether a supplier's inventory can be trusted for this group: complete and fresh.
pub fn is_fresh(snapshot: &Snapshot, group: &Group, now: Timestamp) -> bool {
    snapshot
        .suppliers
        .get(&group.supplier)
        .and_then(Option::as_ref)
        .is_some_and(|inventory| inventory.complete && now.duration_since(inventory.as_of) <= STALE_INVENTORY)
}
