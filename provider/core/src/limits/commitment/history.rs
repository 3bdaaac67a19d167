//! Hourly use, less what the policy's commitments cover of it.

use std::collections::{BTreeMap, BTreeSet};

use super::TooLittleUse;
use super::bill::{Used, left_due};
use super::size::enough;
use crate::base::engine_clock::Wall;
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region};
use crate::base::units::{MiB, UsdPerHour};
use crate::catalogue::derive::OperatorPrices;
use crate::market::offer::{CapacityType, Market, Place};
use crate::market::price::{Entry, PriceBook, usable};
use crate::policy::Policy;
use crate::policy::rules::commitment::{Capacity, Commitment, Paid, Terms};

/// An hour counts as known from this many seconds on: a restart costs a minute, an upgrade some.
const KNOWN_FROM: u32 = 54 * 60;

/// Use is counted in node-minutes, so that commitments by count stay whole numbers of them.
pub(super) const MINUTES: u32 = 60;

/// What was held in one hour of the past.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsedHour {
    /// For so many of its seconds it is known.
    pub known: u32,
    /// Node-seconds held in them, by market.
    pub node_seconds: BTreeMap<Market, u64>,
}

/// The known hours, and what the policy's commitments leave of their use.
pub(super) struct History<'a> {
    /// Hours whose use is known.
    pub(super) known_hours: usize,
    /// Mean value of the use that commitments can reach, at on-demand prices.
    pub(super) used: UsdPerHour,
    /// How much of that the policy's commitments cover.
    pub(super) covered: UsdPerHour,
    /// What they leave, by cloud, region and type.
    pub(super) left: BTreeMap<(&'a Cloud, &'a Region, &'a InstanceType), Left<'a>>,
    /// Places whose use has no on-demand price, and is left out.
    pub(super) unpriced: BTreeSet<&'a Place>,
}

/// One type in one region: what is left of its use, hour by hour.
pub(super) struct Left<'a> {
    /// A place that sells it.
    pub(super) place: &'a Place,
    /// The GPU model.
    pub(super) model: &'a GpuModel,
    /// Memory of one GPU.
    pub(super) memory: MiB,
    /// Advertised GPUs of one.
    pub(super) gpus: u32,
    /// What one costs on demand.
    pub(super) price: UsdPerHour,
    /// Node-minutes in each known hour.
    pub(super) hourly: Vec<u64>,
}

impl<'a> History<'a> {
    /// Takes off what the commitments that count at `wall` would have covered in each hour.
    pub(super) fn of(hours: &'a [UsedHour], prices: &'a PriceBook, policy: &Policy, wall: Wall) -> Result<Self, TooLittleUse> {
        let known: Vec<&UsedHour> = hours.iter().filter(|hour| hour.known >= KNOWN_FROM).collect();
        enough(known.len())?;
        let operator = OperatorPrices::new(policy);
        let discounts: Vec<Commitment> = policy.commitments.iter().filter_map(per_minute).collect();
        let (mut left, mut unpriced): (BTreeMap<_, Left<'_>>, _) = (BTreeMap::new(), BTreeSet::new());
        let (mut value, mut due) = (0_i128, 0_i128);
        for (at, hour) in known.iter().enumerate() {
            let mut used = Vec::with_capacity(hour.node_seconds.len());
            for (market, seconds) in hour.node_seconds.iter().filter(|(market, _)| coverable(policy, market)) {
                let place = &market.place;
                let on_demand = Market { capacity_type: CapacityType::OnDemand, ..market.clone() };
                let listed = prices.entry(&on_demand).cloned();
                let listed = listed.or_else(|| prices.unzoned_quote(place).cloned().map(Entry::Price));
                let entry = operator.over(&on_demand, listed);
                let spec = prices.spec(&place.cloud, &place.instance_type);
                let (Ok(quote), Some(spec)) = (usable(entry.as_ref(), wall), spec) else {
                    unpriced.insert(place);
                    continue;
                };
                // As if all of the hour were known.
                let minutes = seconds * u64::from(MINUTES) / u64::from(hour.known.max(1));
                used.push(Used {
                    place,
                    kept: market.capacity_type == CapacityType::Reserved,
                    spec,
                    gpus: spec.advertised_gpus().max(1),
                    price: quote.price,
                    nodes: u32::try_from(minutes).unwrap_or(u32::MAX),
                });
            }
            for (one, open) in used.iter().zip(left_due(&discounts, &used, wall)) {
                value += i128::from(one.price.times(one.nodes).0);
                due += i128::from(open);
                let Used { place, spec, gpus, price, .. } = *one;
                let of = left.entry((&place.cloud, &place.region, &place.instance_type)).or_insert_with(|| Left {
                    place,
                    model: &spec.gpu_model,
                    memory: spec.gpu_memory,
                    gpus,
                    price,
                    hourly: vec![0; known.len()],
                });
                if let Some(hourly) = of.hourly.get_mut(at) {
                    *hourly += u64::try_from(open / price.0.max(1)).unwrap_or(0);
                }
            }
        }
        let minutes = known.len().max(1) as i128 * i128::from(MINUTES);
        let mean = |sum: i128| UsdPerHour(i64::try_from(sum / minutes).unwrap_or(i64::MAX));
        Ok(Self { known_hours: known.len(), used: mean(value), covered: mean(value - due), left, unpriced })
    }
}

/// Whether discounts count for a node of this market: on demand, or in capacity that is billed so.
fn coverable(policy: &Policy, market: &Market) -> bool {
    let billed_on_demand = |commitment: &Commitment| {
        commitment.capacity_at(&market.place).is_some_and(|Capacity { paid, .. }| *paid == Paid::OnDemand)
    };
    match market.capacity_type {
        CapacityType::OnDemand => true,
        CapacityType::Spot => false,
        CapacityType::Reserved => policy.commitments.iter().any(billed_on_demand),
    }
}

/// A discount with every number of it sixty times as large, so that it fits use in node-minutes; `None` for kept capacity.
fn per_minute(commitment: &Commitment) -> Option<Commitment> {
    let mut commitment = commitment.clone();
    match &mut commitment.terms {
        Terms::Nodes(nodes) => nodes.nodes = nodes.nodes.saturating_mul(MINUTES),
        Terms::Gpus(gpus) => gpus.gpus = gpus.gpus.saturating_mul(MINUTES),
        Terms::Spend(spend) => spend.rate = spend.rate.times(MINUTES),
        Terms::Capacity(_) => return None,
    }
    Some(commitment)
}
