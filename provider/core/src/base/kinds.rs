//! Kinds: the words that a policy shares with every other part.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a pool runs; sets its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Long runs that can resume from a checkpoint: spot first.
    Training,
    /// Serving people: on-demand, no spot unless named.
    Inference,
    /// Work that can wait and be repeated: spot first.
    Batch,
    /// Notebooks and experiments: spot first.
    Dev,
}

impl Workload {
    /// The word used in policies and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Inference => "inference",
            Self::Batch => "batch",
            Self::Dev => "dev",
        }
    }
}

/// How Stoker decides that a node is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// GPU pods bound to the node, and the probe on it: it is free when it has no GPU pod and its
    /// GPUs are idle, unknown while its probe is silent, and unhealthy when its hardware is. If all
    /// probes of the pool fall silent together, its pods are the evidence.
    Probe,
    /// GPU pods bound to the node.
    Pods,
    /// Only what the autoscaler asks.
    None,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away if they can.
    PreferNoSchedule,
    /// Running pods leave too.
    NoExecute,
}

impl TaintEffect {
    /// The word that Kubernetes uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// The effect of that [word](Self::as_str).
    pub fn of(word: &str) -> Option<Self> {
        [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute].into_iter().find(|known| known.as_str() == word)
    }
}

/// A taint on every node of a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// Effect.
    pub effect: TaintEffect,
}

/// What a quota's numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QuotaUnit {
    /// Virtual CPUs.
    Vcpus,
    /// Advertised GPUs.
    Gpus,
}

impl std::fmt::Display for QuotaUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Vcpus => "vCPU",
            Self::Gpus => "GPU",
        })
    }
}

/// What a commitment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CommitmentKind {
    /// AWS: a discount on nodes of one type in a region, or in a zone.
    ReservedInstance,
    /// AWS: a discount on the on-demand spend of one family in a region.
    Ec2SavingsPlan,
    /// AWS: a discount on all on-demand spend.
    ComputeSavingsPlan,
    /// AWS and Azure: capacity of one type reserved in a zone, billed at the on-demand rate.
    CapacityReservation,
    /// AWS: capacity of one type reserved in a zone for a time, paid ahead.
    CapacityBlock,
    /// Google: a discount on GPUs of one model in a region.
    CommittedUse,
    /// Google: capacity of one type reserved in a zone, billed at the on-demand rate. Azure: a
    /// discount on nodes of one type in a region.
    Reservation,
    /// Google: capacity of one type reserved in a zone for a time, paid ahead.
    CalendarReservation,
    /// Azure: a discount on all on-demand spend.
    SavingsPlan,
}

impl CommitmentKind {
    /// Every kind, in declared order.
    pub const ALL: [Self; 9] = [
        Self::ReservedInstance,
        Self::Ec2SavingsPlan,
        Self::ComputeSavingsPlan,
        Self::CapacityReservation,
        Self::CapacityBlock,
        Self::CommittedUse,
        Self::Reservation,
        Self::CalendarReservation,
        Self::SavingsPlan,
    ];

    /// The word used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReservedInstance => "reserved-instance",
            Self::Ec2SavingsPlan => "ec2-savings-plan",
            Self::ComputeSavingsPlan => "compute-savings-plan",
            Self::CapacityReservation => "capacity-reservation",
            Self::CapacityBlock => "capacity-block",
            Self::CommittedUse => "committed-use",
            Self::Reservation => "reservation",
            Self::CalendarReservation => "calendar-reservation",
            Self::SavingsPlan => "savings-plan",
        }
    }

    /// The clouds that sell it.
    pub const fn clouds(self) -> &'static [&'static str] {
        match self {
            Self::ReservedInstance | Self::Ec2SavingsPlan | Self::ComputeSavingsPlan | Self::CapacityBlock => &["aws"],
            Self::CapacityReservation => &["aws", "azure"],
            Self::CommittedUse | Self::CalendarReservation => &["gcp"],
            Self::Reservation => &["gcp", "azure"],
            Self::SavingsPlan => &["azure"],
        }
    }
}

/// Which on-demand nodes are replaced when spot is available again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReturnToSpot {
    /// None.
    #[default]
    Never,
    /// Free ones: without GPU pods, whatever their windows say.
    Idle,
    /// Busy ones too, one at a time: their pods are evicted, and resume from their last checkpoint.
    Busy,
}
