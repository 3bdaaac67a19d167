//! The catalogue: node groups and their templates, derived from the policy and the prices.

pub mod claims;
pub mod derive;
pub mod group;
pub mod isolation;
pub mod live;
pub mod rates;
pub(crate) mod reach;
mod refused;
pub mod template;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::ids::{NodeGroupId, PoolName};
use crate::base::index::Lookup;
use crate::catalogue::claims::{GroupClaims, Unlisted};
use crate::catalogue::derive::LeftOut;
use crate::catalogue::group::Group;
use crate::catalogue::live::LiveQuotas;
use crate::catalogue::reach::Reach;
use crate::market::offer::{CapacityType, Place};
use crate::policy::Policy;

/// What can be had: the policy's groups with their prices. Derived when policy, prices or market facts change; a pass only reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalogue {
    /// The policy it was derived from.
    pub policy: Arc<Policy>,
    /// The groups.
    pub groups: BTreeMap<NodeGroupId, Arc<Group>>,
    /// Places that the pools name but get no group for.
    pub left_out: Vec<LeftOut>,
    /// What the groups' nodes count against.
    claims: Lookup<NodeGroupId, GroupClaims>,
    /// The commitments that reach the groups' nodes.
    reach: Lookup<NodeGroupId, Reach>,
    /// What suppliers told of the policy's quotas.
    live: LiveQuotas,
}

impl Catalogue {
    pub(crate) fn of(policy: Arc<Policy>, groups: BTreeMap<NodeGroupId, Arc<Group>>, left_out: Vec<LeftOut>) -> Self {
        let claims = groups.values().map(|group| (group.id.clone(), GroupClaims::of(&policy, group))).collect();
        let reach = |group: &Group| Reach::of(&policy.commitments, &group.place, &group.spec);
        let reach = groups.values().map(|group| (group.id.clone(), reach(group))).collect();
        Self { policy, groups, left_out, claims, reach, live: LiveQuotas::default() }
    }

    /// The same groups under a policy that differs in limits, quotas, shares or the order of `prefer` only, and whose quotas
    /// are in the same order; without what was left out.
    #[must_use]
    pub fn under(&self, policy: Arc<Policy>) -> Self {
        Self { live: self.live.clone(), ..Self::of(policy, self.groups.clone(), Vec::new()) }
    }

    /// What the nodes of a group count against; worked out again for one that is only remembered.
    pub fn claims(&self, group: &Group) -> Cow<'_, GroupClaims> {
        self.claims.get(&group.id).map_or_else(|| Cow::Owned(GroupClaims::of(&self.policy, group)), Cow::Borrowed)
    }

    /// The commitments that reach nodes of a group bought at a place; worked out again where that is not the group's own.
    pub(crate) fn reach(&self, group: &Group, place: &Place) -> Reach {
        let known = self.reach.get(&group.id).filter(|_| group.place == *place);
        known.map_or_else(|| Reach::of(&self.policy.commitments, place, &group.spec), Clone::clone)
    }

    /// The quotas that an offer of a group counts against, that the policy does not list and that are taken as unlimited.
    pub fn unlimited(&self, group: &NodeGroupId, capacity_type: CapacityType) -> &[Unlisted] {
        self.claims.get(group).map_or(&[], |claims| &claims.under(capacity_type).unlimited)
    }

    /// The groups of a pool.
    pub fn pool_groups(&self, pool: &PoolName) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.values().filter(move |group| group.pool == *pool)
    }
}
