//! Price of an offer, in parts.

use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::units::{Ppm, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::limits::commitment::CoveredBy;
use crate::market::hazard::Hazard;
use crate::market::interruption::{notice, usable};
use crate::market::offer::Offer;
use crate::market::price::{Quote, Unpriced};
use crate::policy::rules::spot::effective;
use crate::state::memory::Memory;
use crate::state::spot_history::Risk;

/// What an offer costs, in parts. In micro-dollars per node-hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceParts {
    /// The quote, with its age and source: the cash price, which bills and budgets count.
    pub quote: Quote,
    /// What its reclaims cost; `None` for capacity that nobody takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<SpotParts>,
    /// What reading the pool's data from afar costs, spread over the hours between two readings; no part of the cash price, nor of budgets.
    /// `None` where none is moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<UsdPerHour>,
    /// What the choice ranks by, transfer included: for spot, what an hour of useful time costs.
    pub effective: UsdPerHour,
    /// What it adds to the bill: the quote less what commitments pay of it.
    pub cash: UsdPerHour,
    /// The commitment that covers it, in whole or in part.
    pub covered: Option<CoveredBy>,
    /// The effective price of one advertised GPU; of a physical one where the pool shares GPUs.
    pub per_gpu: UsdPerHour,
    /// The effective price of a slice; `None` where the pool shares no GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_slice: Option<UsdPerHour>,
    /// The effective price of a unit of work; `None` where the pool weighs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_work: Option<UsdPerHour>,
    /// Whether the quote is an old or undated list price, of which operators are warned.
    pub old: bool,
}

/// What a reclaim makes of a spot price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpotParts {
    /// How likely one is, and by whose word.
    pub risk: Risk,
    /// The share of the time paid for that is useful.
    pub useful: Ppm,
}

impl std::fmt::Display for SpotParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "effective {} at {}", self.useful, self.risk)
    }
}

impl PriceParts {
    /// What the choice compares: the price of a unit of work where the pool weighs work, else of a node.
    pub fn ranked(&self) -> UsdPerHour {
        self.per_work.unwrap_or(self.effective)
    }

    /// What is shown beside a node's price: that of a unit of work where the pool weighs work, else of a slice where it shares GPUs, else
    /// of a GPU.
    pub fn per_unit(&self) -> UsdPerHour {
        self.per_work.or(self.per_slice).unwrap_or(self.per_gpu)
    }

    /// What a node costs that no commitment covers: its price and its data's, over the share of the time in which it is useful.
    pub fn uncovered(&self) -> UsdPerHour {
        let running = self.quote.price.plus(self.transfer.unwrap_or_default());
        self.spot.as_ref().map_or(running, |spot| effective(running, spot.useful))
    }

    /// What one node of the group is ranked at.
    pub(super) fn rank_at(&mut self, group: &Group, effective: UsdPerHour, least: UsdPerHour) {
        self.effective = effective;
        self.per_gpu = effective.per(group.spec.advertised_gpus()).max(least);
        self.per_slice = group.slices.map(|slices| effective.per(slices).max(least));
        self.per_work = group.work.map(|work| effective.per_work(work).max(least));
    }
}

/// The price of an offer in parts, as if no commitment covered it.
///
/// # Errors
/// Says why it has none.
pub fn price_parts(
    catalogue: &Catalogue,
    memory: &Memory,
    group: &Group,
    offer: &Offer,
    wall: Wall,
) -> Result<PriceParts, Unpriced> {
    let quote = offer.quote(wall)?;
    let rules = || catalogue.policy.pool(&group.pool)?.spot.as_ref();
    let spot = offer.prior.and_then(|prior| {
        let risk = Risk::estimate(prior, memory.spot.get(&offer.market.place).map(AsRef::as_ref));
        let usable = usable(notice(&offer.market.place.cloud));
        Some(SpotParts { useful: rules()?.useful(risk.hazard, usable), risk })
    });
    let hazard = spot.as_ref().map_or(Hazard(0), |spot| spot.risk.hazard);
    let transfer = group.transfer.map(|transfer| transfer.per_hour(hazard));
    let mut parts = PriceParts {
        quote: quote.clone(),
        spot,
        transfer,
        effective: quote.price,
        cash: quote.price,
        covered: None,
        per_gpu: quote.price,
        per_slice: None,
        per_work: None,
        old: quote.is_old(wall),
    };
    parts.rank_at(group, parts.uncovered(), UsdPerHour::ZERO);
    Ok(parts)
}
