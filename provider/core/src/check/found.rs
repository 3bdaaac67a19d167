//! What the checker has found, and what of the plan belongs to it.

use std::collections::BTreeSet;

use super::{Finding, Violation};
use crate::base::ids::{NodeGroupId, PoolName, RecordId};
use crate::catalogue::Catalogue;
use crate::state::memory::Memory;
use crate::state::paused::Concern;

/// Every promise that a decision would break.
pub(super) struct Found<'a> {
    catalogue: &'a Catalogue,
    pub(super) findings: Vec<Finding>,
    /// Actions that would break one by themselves, by their places in the plan: they are left out whatever else goes on.
    pub(super) actions: BTreeSet<usize>,
    /// The records of those actions: how far they have come is as it was before.
    pub(super) records: BTreeSet<RecordId>,
}

impl<'a> Found<'a> {
    pub(super) const fn new(catalogue: &'a Catalogue) -> Self {
        Self { catalogue, findings: Vec::new(), actions: BTreeSet::new(), records: BTreeSet::new() }
    }

    /// The pool of a group; `None` where nobody knows the group.
    pub(super) fn pool_of<'b>(&self, group: &NodeGroupId, memory: &'b Memory) -> Option<&'b PoolName>
    where
        'a: 'b,
    {
        self.catalogue.group_or_remembered(group, memory).map(|group| &group.pool)
    }

    /// One that concerns every pool.
    pub(super) fn fleet(&mut self, violation: Violation) {
        self.findings.push(Finding { concern: Concern::Fleet, violation });
    }

    /// One that concerns a pool.
    pub(super) fn pool(&mut self, pool: &PoolName, violation: Violation) {
        self.findings.push(Finding { concern: Concern::Pool(pool.clone()), violation });
    }

    /// One that concerns a group's pool. A group that nobody knows could be of any pool.
    pub(super) fn group(&mut self, group: &NodeGroupId, memory: &Memory, violation: Violation) {
        let concern = self.pool_of(group, memory).map_or(Concern::Fleet, |pool| Concern::Pool(pool.clone()));
        self.findings.push(Finding { concern, violation });
    }

    /// One that the action at that place would break by itself, on a machine or a node of this record.
    pub(super) fn action(&mut self, at: usize, record: Option<RecordId>, memory: &Memory, violation: Violation) {
        self.actions.insert(at);
        self.records.extend(record);
        match record.and_then(|id| memory.records.get(&id)) {
            Some(record) => self.group(&record.group, memory, violation),
            None => self.fleet(violation),
        }
    }
}
