//! Commitments: capacity or spend already paid for, as the policy lists them.
//!
//! What a commitment is called differs between clouds; what it does is one of four things, and [`Terms`] has one variant for each.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use crate::base::kinds::CommitmentKind;
use crate::base::units::{MiB, Milli, UsdPerHour};
use crate::market::offer::Place;
use crate::policy::TypePattern;

/// How long before the end of a capacity block its nodes are drained: EC2 stops them 30 min before, and pods get ten minutes to leave.
/// Karpenter drains at the same moment.
pub const LEAVE_CAPACITY_BLOCK: SignedDuration = SignedDuration::from_mins(40);

/// How long before the end of a calendar reservation its nodes are drained: Compute Engine stops them at the end, and pods get as long
/// to leave as under a capacity block.
pub const LEAVE_CALENDAR_RESERVATION: SignedDuration = SignedDuration::from_mins(10);

/// Capacity or spend already paid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commitment {
    /// What the operator calls it; unique in the policy.
    pub name: String,
    /// The cloud that sold it.
    pub cloud: Cloud,
    /// Counts from then on; always when `None`.
    pub from: Option<Timestamp>,
    /// Counts until then, not included; forever when `None`.
    pub until: Option<Timestamp>,
    /// What it covers.
    pub terms: Terms,
}

/// What a commitment covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Terms {
    /// A discount on nodes of one type: AWS reserved instances, Azure reservations. It takes effect on the bill by itself; no capacity
    /// comes with it that Stoker could ask for.
    Nodes(CommittedNodes),
    /// A discount on GPUs of one model: Google committed use.
    Gpus(CommittedGpus),
    /// A discount on whatever spend it reaches: AWS and Azure savings plans.
    Spend(CommittedSpend),
    /// Capacity reserved: nodes of it are bought as `reserved`.
    Capacity(Capacity),
}

/// A discount on nodes of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedNodes {
    /// The instance type.
    pub instance_type: InstanceType,
    /// The region.
    pub region: Region,
    /// The zone of a zonal reserved instance; anywhere in the region when `None`.
    pub zone: Option<ZoneId>,
    /// So many nodes; above zero.
    pub nodes: u32,
    /// What all of it costs, used or not.
    pub rate: UsdPerHour,
}

/// A discount on GPUs of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedGpus {
    /// The model.
    pub model: GpuModel,
    /// Memory of one, where the model comes in several sizes; any when `None`.
    #[serde(default)]
    pub memory: Option<MiB>,
    /// The region.
    pub region: Region,
    /// So many GPUs; above zero.
    pub gpus: u32,
    /// What all of it costs, used or not.
    pub rate: UsdPerHour,
}

/// A discount on spend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedSpend {
    /// The one family and region it reaches (`g6` in `us-east-1`); all on-demand spend in the cloud when `None`.
    pub family: Option<(String, Region)>,
    /// Spend committed to, at the plan's own rates, used or not.
    pub rate: UsdPerHour,
    /// How far the plan's rates lie below on-demand, in thousandths below 1000, by instance type. A type that none fits is not covered.
    pub discounts: Vec<(TypePattern, Milli)>,
}

/// Capacity reserved in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Where, and which type.
    pub place: Place,
    /// So many nodes; above zero.
    pub nodes: u32,
    /// How it is paid.
    pub paid: Paid,
}

/// How kept capacity is paid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Paid {
    /// At the on-demand rate, used or not, so that discounts count for it as for running nodes: AWS on-demand capacity reservations,
    /// Google reservations, Azure capacity reservations.
    OnDemand,
    /// Ahead, for its window: AWS capacity blocks, Google calendar reservations.
    Ahead {
        /// What all of it costs, used or not.
        rate: UsdPerHour,
        /// From then on nothing new starts there and nodes should leave: the cloud takes them soon after.
        leave_at: Timestamp,
    },
}

impl Commitment {
    /// Whether it counts at `wall`.
    pub fn is_active(&self, wall: Wall) -> bool {
        self.from.is_none_or(|from| wall.shows(from)) && self.until.is_none_or(|until| !wall.shows(until))
    }

    /// What the policy calls it.
    pub fn kind(&self) -> CommitmentKind {
        match (&self.terms, self.cloud.as_str()) {
            (Terms::Nodes(_), "azure") => CommitmentKind::Reservation,
            (Terms::Nodes(_), _) => CommitmentKind::ReservedInstance,
            (Terms::Gpus(_), _) => CommitmentKind::CommittedUse,
            (Terms::Spend(_), "azure") => CommitmentKind::SavingsPlan,
            (Terms::Spend(plan), _) if plan.family.is_some() => CommitmentKind::Ec2SavingsPlan,
            (Terms::Spend(_), _) => CommitmentKind::ComputeSavingsPlan,
            (Terms::Capacity(capacity), cloud) => match (&capacity.paid, cloud) {
                (Paid::OnDemand, "gcp") => CommitmentKind::Reservation,
                (Paid::OnDemand, _) => CommitmentKind::CapacityReservation,
                (Paid::Ahead { .. }, "gcp") => CommitmentKind::CalendarReservation,
                (Paid::Ahead { .. }, _) => CommitmentKind::CapacityBlock,
            },
        }
    }

    /// The moments at which what it covers changes by itself.
    pub fn moments(&self) -> impl Iterator<Item = Timestamp> {
        let leave_at = match &self.terms {
            Terms::Capacity(Capacity { paid: Paid::Ahead { leave_at, .. }, .. }) => Some(*leave_at),
            _ => None,
        };
        [self.from, leave_at, self.until].into_iter().flatten()
    }

    /// The capacity that it keeps at `place`.
    pub fn capacity_at(&self, place: &Place) -> Option<&Capacity> {
        match &self.terms {
            Terms::Capacity(capacity) if capacity.place == *place => Some(capacity),
            _ => None,
        }
    }
}

impl CommittedSpend {
    /// How far below on-demand the plan's rate for this type lies, in thousandths; `None` where the plan does not reach it.
    pub fn discount(&self, place: &Place) -> Option<Milli> {
        let reaches =
            |(family, region): &(String, Region)| *region == place.region && family_of(&place.instance_type) == family;
        if !self.family.as_ref().is_none_or(reaches) {
            return None;
        }
        let fits = self.discounts.iter().filter(|(pattern, _)| pattern.matches(&place.instance_type));
        // A whole name says more than a prefix, a long prefix more than a short one.
        let (_, discount) = fits.max_by_key(|(pattern, _)| match pattern {
            TypePattern::Exact(_) => usize::MAX,
            TypePattern::Prefix(prefix) => prefix.len(),
        })?;
        Some(*discount)
    }
}

/// The family of an EC2 instance type: what stands before the dot.
pub fn family_of(instance_type: &InstanceType) -> &str {
    instance_type.as_str().split('.').next().unwrap_or_default()
}
