//! Claims on quotas: which ones a node of each group counts against, worked out once when the catalogue is derived. Use of them is
//! counted in `limits/usage`.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::base::ids::Region;
use crate::base::kinds::{CommitmentKind, QuotaUnit};
use crate::catalogue::group::Group;
use crate::facts::foreign::Foreign;
use crate::market::offer::{CapacityType, InstanceSpec, Place};
use crate::market::quota_names::KnownQuota;
use crate::policy::rules::commitment::Commitment;
use crate::policy::{Counts, Policy, Quota, QuotaKey, UnknownQuota};

/// So much of one quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The quota's place in the policy.
    pub quota: usize,
    /// What one node takes of it, in its unit; never zero.
    pub units: u64,
}

/// A quota that the cloud has for a market and the policy does not list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unlisted {
    /// What the cloud calls it.
    pub name: String,
    /// What the cloud's quota page calls it, where the name tells nothing.
    pub title: Option<String>,
    /// The region; `None` for a quota of all regions together.
    pub region: Option<Region>,
}

/// Its name and region, as messages show it.
impl std::fmt::Display for Unlisted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "quota {}{}", self.name, in_region(self.region.as_ref()))?;
        self.title.as_ref().map_or(Ok(()), |title| write!(f, " ({title:?})"))
    }
}

/// The region of a quota as messages show it, after its name; nothing where it counts all of them.
pub fn in_region(region: Option<&Region>) -> String {
    region.map(|region| format!(" {region}")).unwrap_or_default()
}

/// What a node counts against when it is bought under one capacity type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// The quotas of the policy that count it, in the policy's order.
    pub listed: Vec<Claim>,
    /// The clouds' own quotas that count it, whether the policy lists them or not.
    known: Vec<KnownQuota>,
    /// Those that the policy does not list, and that are taken as unlimited.
    pub unlimited: Vec<Unlisted>,
    /// One that the policy does not list, for want of which nothing is bought.
    pub denied: Option<Unlisted>,
}

impl Claims {
    /// What a node of this type counts against in this place.
    pub fn of(policy: &Policy, place: &Place, spec: &InstanceSpec, capacity_type: CapacityType) -> Self {
        let mut claims = Self::default();
        let mut counted: Vec<KnownQuota> = Vec::new();
        let exempt = capacity_type == CapacityType::Reserved && only_capacity_blocks(policy, place);
        let find = |known: KnownQuota| {
            policy.quotas.iter().find(|quota| quota.counts == Counts::Known(known) && is_of(quota, place)).map(|_| known)
        };
        for known in KnownQuota::all().filter(|known| !exempt && known.counts(spec, capacity_type)) {
            let fallback = || known.fallback.and_then(KnownQuota::find).and_then(find);
            claims.known.push(known);
            if let Some(found) = find(known).or_else(fallback) {
                if found != known {
                    claims.known.push(found);
                }
                counted.push(found);
                continue;
            }
            let unlisted = Unlisted {
                name: known.name.to_owned(),
                title: known.title.map(str::to_owned),
                region: (!known.global).then(|| place.region.clone()),
            };
            let allowed = match policy.unknown_quota {
                Some(UnknownQuota::Allow) => true,
                Some(UnknownQuota::Deny) => false,
                None => !known.must_be_listed || capacity_type != CapacityType::OnDemand,
            };
            if allowed {
                claims.unlimited.push(unlisted);
            } else {
                claims.denied.get_or_insert(unlisted);
            }
        }
        for (at, quota) in policy.quotas.iter().enumerate().filter(|(_, quota)| is_of(quota, place)) {
            let counts = match &quota.counts {
                Counts::Known(known) => counted.contains(known),
                Counts::Own { models, capacity_types } => {
                    (models.is_empty() || models.contains(&spec.gpu_model))
                        && (capacity_types.is_empty() || capacity_types.contains(&capacity_type))
                }
            };
            if counts {
                claims.listed.push(Claim { quota: at, units: units(quota.unit, spec) });
            }
        }
        claims
    }

    /// The quota that a supplier calls `name`, in its usual spelling; `None` where nothing says that it counts nodes bought so. `place` is
    /// where they are bought.
    pub fn find_quota(&self, policy: &Policy, place: &Place, name: &str) -> Option<QuotaKey> {
        if let Some(own) = self.own(policy).find(|quota| quota.name == name) {
            return Some(QuotaKey::of(own));
        }
        let known = KnownQuota::find(name).filter(|known| self.known.contains(known))?;
        let region = (!known.global).then(|| place.region.clone());
        Some(QuotaKey { name: known.name.to_owned(), cloud: place.cloud.clone(), region })
    }

    /// Whether the quota of that name, in its usual spelling, counts nodes bought so.
    pub fn count_in(&self, policy: &Policy, name: &str) -> bool {
        self.known.iter().any(|known| known.name == name) || self.own(policy).any(|quota| quota.name == name)
    }

    /// The quotas that only the policy describes.
    fn own<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = &'a Quota> {
        let listed = self.listed.iter().filter_map(|claim| policy.quotas.get(claim.quota));
        listed.filter(|quota| matches!(quota.counts, Counts::Own { .. }))
    }
}

/// Whether all capacity kept at `place` is in EC2 capacity blocks, which no quota of AWS's counts. Where an on-demand
/// capacity reservation lies beside a block, a node may come to be of either, so all count.
fn only_capacity_blocks(policy: &Policy, place: &Place) -> bool {
    let mut kinds = policy.commitments.iter().filter(|c| c.capacity_at(place).is_some()).map(Commitment::kind).peekable();
    kinds.peek().is_some() && kinds.all(|kind| kind == CommitmentKind::CapacityBlock)
}

/// Whether a quota is one of this cloud and region.
fn is_of(quota: &Quota, place: &Place) -> bool {
    quota.cloud == place.cloud && quota.region.as_ref().is_none_or(|region| *region == place.region)
}

/// What one node takes of a quota. Unknown CPUs never get here: such a type has no template and so no group.
fn units(unit: QuotaUnit, spec: &InstanceSpec) -> u64 {
    let units = match unit {
        QuotaUnit::Vcpus => spec.vcpus.unwrap_or(u32::MAX),
        QuotaUnit::Gpus => spec.advertised_gpus(),
    };
    u64::from(units.max(1))
}

/// What others than Stoker take of each quota, nodes and promises, in the policy's order and the quota's unit.
pub fn taken_by(foreign: &Foreign, policy: &Policy) -> Vec<u64> {
    let mut taken: Vec<u64> = policy.quotas.iter().map(|quota| foreign.promised_of(quota)).collect();
    for (kind, nodes) in &foreign.nodes {
        let inside: BTreeSet<usize> = if let Some((place, spec)) = kind.place() {
            kind.capacity_types()
                .flat_map(|bought| Claims::of(policy, &place, spec, bought).listed)
                .map(|claim| claim.quota)
                .collect()
        } else {
            let all = policy.quotas.iter().enumerate();
            all.filter(|(_, quota)| kind.may_be_in(&quota.cloud, quota.region.as_ref())).map(|(at, _)| at).collect()
        };
        for at in inside {
            let (Some(taken), Some(quota)) = (taken.get_mut(at), policy.quotas.get(at)) else { continue };
            let units = match quota.unit {
                QuotaUnit::Vcpus => kind.vcpus,
                QuotaUnit::Gpus => kind.gpus,
            };
            *taken = taken.saturating_add(u64::from(units.max(1)) * u64::from(*nodes));
        }
    }
    taken
}

/// What the nodes of one group count against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupClaims {
    reserved: Claims,
    spot: Claims,
    on_demand: Claims,
    /// What a node that is only wanted counts against: all that it may come to count against.
    pub wanted: Vec<Claim>,
}

impl GroupClaims {
    /// What the nodes of `group` count against.
    pub fn of(policy: &Policy, group: &Group) -> Self {
        let of = |capacity_type| Claims::of(policy, &group.place, &group.spec, capacity_type);
        let mut claims = Self {
            reserved: of(CapacityType::Reserved),
            spot: of(CapacityType::Spot),
            on_demand: of(CapacityType::OnDemand),
            wanted: Vec::new(),
        };
        let mut wanted: Vec<Claim> =
            group.offers.iter().flat_map(|offer| &claims.under(offer.market.capacity_type).listed).copied().collect();
        wanted.sort_by_key(|claim| claim.quota);
        wanted.dedup();
        claims.wanted = wanted;
        claims
    }

    /// What a node bought so counts against.
    pub const fn under(&self, capacity_type: CapacityType) -> &Claims {
        match capacity_type {
            CapacityType::Reserved => &self.reserved,
            CapacityType::Spot => &self.spot,
            CapacityType::OnDemand => &self.on_demand,
        }
    }
}
