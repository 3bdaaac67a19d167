//! What is paid for beforehand, as it is written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Capacity or spend already paid for. Which fields it needs follows from its kind; one that it does not need is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawCommitment {
    /// What you call it, e.g. the id that the cloud gave it; shown where it covers a node. Unique.
    pub name: String,
    /// The cloud that sold it.
    pub cloud: String,
    /// What it is.
    pub kind: CommitmentKind,
    /// The region; not for plans that reach every region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The zone, by id: of kept capacity, and of a zonal reserved instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The instance type: of reserved nodes and of kept capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The instance family of an `ec2-savings-plan`, e.g. `g6`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The GPU model of a `committed-use`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Memory of one GPU of a `committed-use`, in GiB: must be named for a model that comes in several sizes, such as A100.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "memoryGiB")]
    pub memory_gib: Option<u32>,
    /// So many nodes: of reserved nodes and of kept capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// So many GPUs: of a `committed-use`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// What all of it costs per hour, used or not, with what was paid upfront spread over the term; the committed spend of a plan. Not for
    /// capacity that is billed at the on-demand rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<serde_json::Number>,
    /// How far a plan's rates lie below on-demand, e.g. `28%`; or by instance type, a name or a prefix ending in `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discount: Option<RawDiscount>,
    /// When it begins, e.g. `2026-12-01T11:30:00Z`. Must be named for capacity blocks and calendar reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// When it ends. Must be named for capacity blocks and calendar reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl RawCommitment {
    /// Whether it keeps capacity for us, which is bought as `reserved`.
    pub(in crate::policy) fn keeps_capacity(&self) -> bool {
        match self.kind {
            CommitmentKind::CapacityReservation | CommitmentKind::CapacityBlock | CommitmentKind::CalendarReservation => true,
            CommitmentKind::Reservation => self.cloud == "gcp",
            CommitmentKind::ReservedInstance
            | CommitmentKind::Ec2SavingsPlan
            | CommitmentKind::ComputeSavingsPlan
            | CommitmentKind::CommittedUse
            | CommitmentKind::SavingsPlan => false,
        }
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
    /// AWS and Azure: capacity of one type kept in a zone, billed at the on-demand rate.
    CapacityReservation,
    /// AWS: capacity of one type kept in a zone for a time, paid ahead.
    CapacityBlock,
    /// Google: a discount on GPUs of one model in a region.
    CommittedUse,
    /// Google: capacity of one type kept in a zone, billed at the on-demand rate. Azure: a discount on nodes of one type in a region.
    Reservation,
    /// Google: capacity of one type kept in a zone for a time, paid ahead.
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

/// One discount, or one for each instance type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawDiscount {
    /// The same for all.
    One(String),
    /// By instance type. What none fits is not covered.
    ByType(BTreeMap<String, String>),
}
