//! What another than Stoker runs under the same quotas and commitments, and what it may still buy: a Karpenter whose limits are
//! steered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::{Cloud, Region};
use crate::market::offer::{InstanceSpec, Market};
use crate::policy::Quota;

/// What Karpenter runs, and what it was promised. The supplier's own claims are not in it: their machines have records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Foreign {
    /// Its nodes, those on their way out among them, by market.
    #[serde(with = "crate::base::pairs")]
    pub nodes: BTreeMap<Market, ForeignNodes>,
    /// What it may buy of each quota without asking, in the quota's unit.
    #[serde(with = "crate::base::pairs")]
    pub promised: BTreeMap<QuotaKey, u64>,
}

/// Nodes that were bought alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignNodes {
    /// What one is made of: not every type is in a pool of Stoker's. One without a GPU has none of `gpus`.
    pub spec: InstanceSpec,
    /// So many.
    pub nodes: u32,
}

/// A quota, whatever its place in the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaKey {
    /// What the cloud calls it.
    pub name: String,
    /// The cloud.
    pub cloud: Cloud,
    /// The region; all of the cloud's when `None`.
    pub region: Option<Region>,
}

impl QuotaKey {
    /// That of a quota.
    pub fn of(quota: &Quota) -> Self {
        Self { name: quota.name.clone(), cloud: quota.cloud.clone(), region: quota.region.clone() }
    }
}

impl Foreign {
    /// What is promised of a quota, in its unit.
    pub fn promised_of(&self, quota: &Quota) -> u64 {
        self.promised.get(&QuotaKey::of(quota)).copied().unwrap_or(0)
    }
}
