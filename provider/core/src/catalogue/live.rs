//! Live quotas: what suppliers say of the quotas that the policy lists. The lower limit holds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::SupplierName;
use crate::catalogue::Catalogue;
use crate::facts::supply::MarketFacts;
use crate::market::quota_names::KnownQuota;
use crate::policy::{Policy, Quota, QuotaKey};

/// How long a figure of an account counts after the moment at which it was true: clouds raise quotas within a day, and a supplier that says
/// nothing for longer must not hold back what the policy allows.
pub const ACCOUNT_FACTS_COUNT_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Whether a figure of an account that was true at `as_of` still counts.
pub fn still_counts(as_of: Timestamp, wall: Wall) -> bool {
    as_of.saturating_add(ACCOUNT_FACTS_COUNT_FOR).is_ok_and(|until| !wall.shows(until))
}

/// A limit that a supplier told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldLimit {
    /// Who told it.
    pub supplier: SupplierName,
    /// The limit.
    pub limit: u32,
    /// When it was true.
    pub as_of: Timestamp,
}

impl std::fmt::Display for ToldLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "supplier {} said {} at {}", self.supplier, self.limit, self.as_of.strftime("%Y-%m-%d %H:%MZ"))
    }
}

/// What suppliers told of the policy's quotas, by their places in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LiveQuotas(BTreeMap<usize, Vec<ToldLimit>>);

impl LiveQuotas {
    pub(crate) fn of(policy: &Policy, suppliers: &BTreeMap<SupplierName, MarketFacts>) -> Self {
        let mut told: BTreeMap<usize, Vec<ToldLimit>> = BTreeMap::new();
        for (supplier, facts) in suppliers {
            for (key, fact) in &facts.quotas {
                let Some(at) = policy.quotas.iter().position(|quota| is_same(quota, key)) else { continue };
                let limit = ToldLimit { supplier: supplier.clone(), limit: fact.limit, as_of: fact.as_of };
                told.entry(at).or_default().push(limit);
            }
        }
        Self(told)
    }
}

/// Whether a supplier means that quota of the policy, whichever way it spells its name.
pub fn is_same(quota: &Quota, QuotaKey { cloud, region, name }: &QuotaKey) -> bool {
    let is_place = quota.cloud == *cloud && quota.region == *region;
    is_place && (quota.name == *name || KnownQuota::find(name).is_some_and(|known| known.name == quota.name))
}

impl Catalogue {
    /// The limit of a quota by its place in the policy: the policy's, or a lower one that a supplier told within a day, and who did.
    pub fn quota_limit(&self, at: usize, wall: Wall) -> (u32, Option<&ToldLimit>) {
        let own = self.policy.quotas.get(at).map_or(0, |quota| quota.limit);
        let told = self.live.0.get(&at).into_iter().flatten().filter(|told| told.limit < own && still_counts(told.as_of, wall));
        told.min_by_key(|told| (told.limit, &told.supplier)).map_or((own, None), |told| (told.limit, Some(told)))
    }

    /// What this cluster may hold of a quota by its place in the policy.
    pub fn quota_share(&self, at: usize, wall: Wall) -> u64 {
        self.policy.quotas.get(at).map_or(0, |quota| quota.share_of(self.quota_limit(at, wall).0))
    }

    /// The policy with the limits that hold at `wall`.
    pub fn policy_at(&self, wall: Wall) -> Cow<'_, Policy> {
        let mut policy = Cow::Borrowed(self.policy.as_ref());
        for at in self.live.0.keys() {
            if let (limit, Some(_)) = self.quota_limit(*at, wall)
                && let Some(quota) = policy.to_mut().quotas.get_mut(*at)
            {
                quota.limit = limit;
            }
        }
        policy
    }

    /// The moments at which limits that suppliers told count no more.
    pub fn live_quotas_lapse(&self) -> impl Iterator<Item = Timestamp> {
        self.live.0.values().flatten().filter_map(|told| told.as_of.saturating_add(ACCOUNT_FACTS_COUNT_FOR).ok())
    }
}
