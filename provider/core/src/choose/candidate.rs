//! Candidates: the outcome of every offer that was weighed, and why.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::parts::PriceParts;
use crate::base::ids::{NodeGroupId, Region};
use crate::base::units::{Milli, Percent, UsdPerHour};
use crate::catalogue::claims::Unlisted;
use crate::facts::supply::RefusedArea;
use crate::limits::commitment::NoSlot;
use crate::limits::usage::Bound;
use crate::market::hazard::percent;
use crate::market::offer::{CapacityType, Market};
use crate::market::price::Unpriced;
use crate::state::memory::Backoff;
use crate::state::spot_history::REGION_EVENTS;

/// Why an offer may not be bought now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Barred {
    /// It has no price.
    #[error("{0}")]
    Unpriced(Unpriced),
    /// The market, or all of an area that it is in, was refused and is left alone for a while.
    #[error(
        "{} returned {code} at {}; backing off until {}",
        .area.as_ref().map_or_else(|| "market".to_owned(), ToString::to_string), .since.strftime("%H:%M:%SZ"), .until.strftime("%H:%M:%SZ")
    )]
    BackedOff {
        /// Its code.
        code: String,
        /// What was refused; `None` where that is the market alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        area: Option<Box<RefusedArea>>,
        /// When it said so.
        since: Timestamp,
        /// Until then.
        until: Timestamp,
    },
    /// The market is being tried again by one launch.
    #[error("market is being retried with one launch after a refusal")]
    OnTrial,
    /// A node of this market was reclaimed just now.
    #[error("a node was reclaimed here at {}; backing off until {}", .since.strftime("%H:%M:%SZ"), .until.strftime("%H:%M:%SZ"))]
    Reclaimed {
        /// When.
        since: Timestamp,
        /// Until then.
        until: Timestamp,
    },
    /// The region's spot markets are being emptied.
    #[error("more than {REGION_EVENTS} reclaims within an hour in {region}: no spot is bought there until {}", .until.strftime("%H:%M:%SZ"))]
    RegionReclaims {
        /// The region.
        region: Region,
        /// Until then.
        until: Timestamp,
    },
    /// The pool accepts no market that is reclaimed so often.
    #[error("{}: capacity.spot.maxInterruption accepts {accepted}", published(*.per_month))]
    Interruption {
        /// The published share of nodes reclaimed per month; `None` where there is none.
        per_month: Option<Milli>,
        /// The highest that the pool accepts.
        accepted: Percent,
    },
    /// On-demand, which can be had in the same group, is cheaper.
    #[error("spot costs more than on-demand once reclaims are counted: {spot} against {on_demand}")]
    DearerThanOnDemand {
        /// The effective price of spot.
        spot: UsdPerHour,
        /// That of on-demand.
        on_demand: UsdPerHour,
    },
    /// A limit binds.
    #[error("{0}")]
    Bound(Bound),
    /// The capacity reserved is used, or not open now.
    #[error("{0}")]
    NoSlot(NoSlot),
    /// The group is suspended.
    #[error("group is suspended: no pod was scheduled on its last {nodes} nodes")]
    Suspended {
        /// So many nodes.
        nodes: u32,
    },
    /// The supplier's inventory is stale or incomplete.
    #[error("the supplier's inventory is stale or was never complete: its groups are suspended")]
    SupplierStale,
}

fn published(per_month: Option<Milli>) -> String {
    per_month.map_or_else(
        || "no monthly reclaim rate is published for this market".to_owned(),
        |share| format!("{} of nodes are reclaimed a month", percent(share)),
    )
}

/// An offer as weighed at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The group that it would grow.
    pub group: NodeGroupId,
    /// The market.
    pub market: Market,
    /// Advertised GPUs of one node; physical ones where the pool shares them.
    pub gpus: u32,
    /// Slices of one node, where the pool shares GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
    /// Place of its capacity type in the pool's `prefer`, from 0; not looked up for one that is barred.
    pub preference: usize,
    /// Its price, or why it has none.
    pub price: Result<PriceParts, Unpriced>,
    /// Quotas that it counts against, that the policy does not list and that are taken as unlimited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlimited: Vec<Unlisted>,
    /// What became of it.
    pub verdict: OfferVerdict,
    /// For a chosen one: the limit but for which there would have been more of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<Bound>,
    /// The other limits that leave no room for one more, where it is not one alone that barred it or ended its choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Bound>,
}

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OfferVerdict {
    /// So many nodes of it.
    Chosen {
        /// So many.
        nodes: u32,
    },
    /// May not be bought now.
    Barred(Barred),
    /// May be bought, but another capacity type is preferred by the pool.
    LessPreferred {
        /// The preferred one.
        than: CapacityType,
    },
    /// May be bought, but another offer is cheaper per node by so much. Journals of before tell of slices, too.
    #[serde(alias = "dearerSlice")]
    Dearer {
        /// So much per node and hour.
        by: UsdPerHour,
    },
    /// May be bought, but another offer is cheaper per unit of work by so much.
    DearerWork {
        /// So much per unit of work and hour.
        by: UsdPerHour,
    },
    /// May be bought at the same price per unit of work, but a node of it is a larger step.
    LargerStep,
    /// As good as the winner; the tie went by name.
    Tied,
}

impl Barred {
    /// What was refused is left alone: an area, or the market alone.
    pub fn backed_off(area: Option<&RefusedArea>, Backoff { kind, since, until, .. }: &Backoff) -> Self {
        let (code, area) = (kind.code().to_owned(), area.cloned().map(Box::new));
        Self::BackedOff { code, area, since: *since, until: *until }
    }
}

impl std::fmt::Display for OfferVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Chosen { nodes } => write!(f, "CHOSEN × {nodes}"),
            Self::Barred(why) => write!(f, "{why}"),
            Self::LessPreferred { than } => write!(f, "the pool prefers {than}"),
            Self::Dearer { by } => write!(f, "{} per node and hour", dearer(*by)),
            Self::DearerWork { by } => write!(f, "{} per unit of work and hour", dearer(*by)),
            Self::LargerStep => write!(f, "same price per unit of work, but a larger node"),
            Self::Tied => write!(f, "same price; chosen by name"),
        }
    }
}

/// A difference that is less than what prices are shown to is none to a reader, though it decided.
fn dearer(by: UsdPerHour) -> String {
    if by.to_string() == UsdPerHour::ZERO.to_string() {
        "more expensive by less than a hundredth of a cent".to_owned()
    } else {
        format!("more expensive by {by}")
    }
}
