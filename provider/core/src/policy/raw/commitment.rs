//! What is paid for beforehand, as it is written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::kinds::CommitmentKind;

/// Capacity or spend already paid for. Which fields it needs follows from its kind; others are
/// rejected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawCommitment {
    /// What you call it, e.g. the id that the cloud gave it; shown where it covers a node. Unique.
    /// Nodes through Karpenter on AWS are made in the reservation whose id this is (`cr-…`), and plugins are told it.
    pub name: String,
    /// The cloud that sold it.
    pub cloud: String,
    /// What it is.
    pub kind: CommitmentKind,
    /// The region; not for plans that reach every region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The zone, by id: for reserved capacity (such as an ODCR) and a zonal reserved instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The instance type: for reserved instances and reserved capacity.
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
    /// Number of nodes: for reserved instances and reserved capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Number of GPUs: for a `committed-use`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// What all of it costs per hour, used or not, with upfront payments spread over the term; for
    /// a plan the committed spend. Not for capacity that is billed at the on-demand rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<serde_json::Number>,
    /// How far a plan's rates are below on-demand, e.g. `28%`; or by instance type, a name or a
    /// prefix ending in `*`.
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

/// One discount, or one for each instance type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawDiscount {
    /// The same for all.
    One(String),
    /// By instance type. A type that none matches is not covered.
    ByType(BTreeMap<String, String>),
}
