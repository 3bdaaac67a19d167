//! GPU nodes of the cluster that are not Stoker's: the same quotas and commitments count them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::{Cloud, InstanceType, Region, ZoneId};
use crate::base::units::UsdPerHour;
use crate::market::offer::{CapacityType, InstanceSpec, Place};
use crate::policy::{Quota, QuotaKey};

/// The GPU nodes of the cluster that others than Stoker bought, such as Karpenter, and what they may still buy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// How many of each kind; machines that are being launched are among them.
    #[serde(with = "crate::base::pairs")]
    pub nodes: BTreeMap<ForeignKind, u32>,
    /// How many of them Karpenter launched, by type: who knows of more of its claims knows what is not counted yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<InstanceType, u32>,
    /// What Karpenter may buy of quotas without asking.
    #[serde(default, with = "crate::base::pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub promised: Promises,
}

/// Parts of quotas, each in its quota's unit.
pub type Promises = BTreeMap<QuotaKey, u64>;

impl Foreign {
    /// What is promised of a quota, in its unit.
    pub fn promised_of(&self, quota: &Quota) -> u64 {
        self.promised.get(&QuotaKey::of(quota)).copied().unwrap_or(0)
    }
}

/// What nodes that were bought alike tell of their market. What is `None` may be anything: such a node counts wherever it might.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignKind {
    /// The cloud.
    pub cloud: Option<Cloud>,
    /// The region.
    pub region: Option<Region>,
    /// The zone, by id.
    pub zone: Option<ZoneId>,
    /// How they were bought.
    pub capacity_type: Option<CapacityType>,
    /// What one is made of; `None` where its type or its GPU model is not told.
    pub spec: Option<InstanceSpec>,
    /// Advertised GPUs of one.
    pub gpus: u32,
    /// Virtual CPUs of one.
    pub vcpus: u32,
    /// What one costs on demand; `None` where no table tells, and then no savings plan pays for it.
    pub price: Option<UsdPerHour>,
}

impl ForeignKind {
    /// Whether one may be in this cloud and region; in any region where none is given.
    pub fn may_be_in(&self, cloud: &Cloud, region: Option<&Region>) -> bool {
        let is_here = |own: &Region| region.is_none_or(|region| region == own);
        self.cloud.as_ref().is_none_or(|own| own == cloud) && self.region.as_ref().is_none_or(is_here)
    }

    /// Where one is, and what; `None` where that is not told. A zone that is not told is called like the region, as no zone of AWS's is.
    pub fn place(&self) -> Option<(Place, &InstanceSpec)> {
        let (cloud, region, spec) = (self.cloud.clone()?, self.region.clone()?, self.spec.as_ref()?);
        let zone = self.zone.clone().or_else(|| ZoneId::new(region.as_str()).ok())?;
        Some((Place { cloud, region, zone, instance_type: spec.instance_type.clone() }, spec))
    }

    /// How one may have been bought.
    pub fn capacity_types(&self) -> impl Iterator<Item = CapacityType> + use<> {
        let told = self.capacity_type;
        CapacityType::ALL.into_iter().filter(move |one| told.is_none_or(|told| told == *one))
    }
}
