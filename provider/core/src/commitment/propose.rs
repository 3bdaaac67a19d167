//! What could be committed to and what would come of it, from the use of each hour of the past.
//!
//! What the policy's commitments cover already is taken off first, by the same rules as the bill. Spot is left out: no commitment covers
//! it, and most spot costs less than any.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use super::cover::{Used, left_due};
use super::size::enough;
use super::{Advice, Capacity, Commitment, Paid, Terms, TooLittleUse, Unit, advise, family_of};
use crate::group::OperatorPrices;
use crate::ids::{Cloud, GpuModel, InstanceType, Region};
use crate::offer::{CapacityType, Market, Place};
use crate::policy::{CommitmentKind, Policy};
use crate::price::{PriceBook, usable};
use crate::units::{Milli, UsdPerHour};

/// An hour counts as known from this many seconds on: a restart costs a minute, an upgrade some.
const KNOWN_FROM: u32 = 54 * 60;

/// Use is counted in node-minutes, so that commitments by count stay whole numbers of them.
const MINUTES: u32 = 60;

/// Plans are sized in steps of a cent an hour of on-demand value.
const CENT: UsdPerHour = UsdPerHour(10_000);

/// The kinds that lower a price; the others keep capacity, which is no matter of saving.
pub const SIZED: [CommitmentKind; 6] = [
    CommitmentKind::ReservedInstance,
    CommitmentKind::Ec2SavingsPlan,
    CommitmentKind::ComputeSavingsPlan,
    CommitmentKind::CommittedUse,
    CommitmentKind::Reservation,
    CommitmentKind::SavingsPlan,
];

/// What was held in one hour of the past.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsedHour {
    /// For so many of its seconds it is known.
    pub known: u32,
    /// Node-seconds held in them, by market.
    pub node_seconds: BTreeMap<Market, u64>,
}

/// How long one commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Term {
    /// For a year.
    #[serde(rename = "1y")]
    OneYear,
    /// For three years.
    #[serde(rename = "3y")]
    ThreeYears,
}

impl Term {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OneYear, Self::ThreeYears];

    /// `1y`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneYear => "1y",
            Self::ThreeYears => "3y",
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask {
    /// Of this kind alone; all when `None`.
    pub kind: Option<CommitmentKind>,
    /// For this term alone; both when `None`.
    pub term: Option<Term>,
    /// The operator's own offer, so far below on-demand; the price tables' rates when `None`.
    pub discount: Option<Milli>,
}

/// What a commitment would cover.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Scope {
    /// Nodes of one type in a region.
    Nodes {
        /// The region.
        region: Region,
        /// The type.
        instance_type: InstanceType,
    },
    /// GPUs of one model in a region.
    Gpus {
        /// The region.
        region: Region,
        /// The model.
        model: GpuModel,
    },
    /// Spend on one family in a region.
    Family {
        /// The region.
        region: Region,
        /// The family.
        family: String,
    },
    /// All on-demand spend in the cloud.
    Cloud,
}

/// One commitment that could be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The cloud.
    pub cloud: Cloud,
    /// What it is.
    pub kind: CommitmentKind,
    /// What it would cover.
    pub scope: Scope,
    /// For how long.
    pub term: Term,
    /// By whose word it costs that.
    pub source: String,
    /// What is counted: a node, a GPU, or a cent an hour of on-demand value.
    pub unit: Unit,
    /// How much of it to commit to, and what comes of it.
    pub advice: Advice,
}

impl Proposal {
    /// What it would cost per hour, used or not.
    pub fn rate(&self) -> UsdPerHour {
        let rate = i128::from(self.unit.committed.0) * i128::from(self.advice.commit);
        UsdPerHour(i64::try_from(rate).unwrap_or(i64::MAX))
    }
}

/// A commitment that nothing can be said of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Unsized {
    /// No source tells its rates.
    #[error("{cloud} {}: no price table tells its rates: give your own offer with --kind {} --term 1y --discount, such as 28%", .kind.as_str(), .kind.as_str())]
    NoRates {
        /// The cloud.
        cloud: Cloud,
        /// What it is.
        kind: CommitmentKind,
    },
    /// Some of its rates are not told.
    #[error("{cloud} {} of {what} for {}: no price table tells its rate", .kind.as_str(), .term.as_str())]
    NoRate {
        /// The cloud.
        cloud: Cloud,
        /// What it is.
        kind: CommitmentKind,
        /// For how long.
        term: Term,
        /// Of what.
        what: String,
    },
    /// What was used has no on-demand price.
    #[error("{place}: its on-demand price is not known, so its use is left out: give it under prices in the policy")]
    NoPrice {
        /// Where.
        place: String,
    },
}

/// All that could be committed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposals {
    /// Hours whose use is known.
    pub known_hours: usize,
    /// Mean value of the use that commitments can reach, at on-demand prices.
    pub used: UsdPerHour,
    /// How much of that the policy's commitments cover already.
    pub covered_already: UsdPerHour,
    /// One for each kind, scope and term: alternatives where they cover the same use.
    pub proposals: Vec<Proposal>,
    /// What nothing can be said of.
    pub left_out: BTreeSet<Unsized>,
}

/// One type in one region: what is left of its use, hour by hour.
struct Left<'a> {
    place: &'a Place,
    model: &'a GpuModel,
    gpus: u32,
    price: UsdPerHour,
    /// Node-minutes in each hour.
    hourly: Vec<u64>,
}

/// Works out what could be committed to.
///
/// # Errors
/// With less than a week of known hours.
pub fn propose(
    hours: &[UsedHour],
    prices: &PriceBook,
    policy: &Policy,
    ask: Ask,
    now: Timestamp,
) -> Result<Proposals, TooLittleUse> {
    let known: Vec<&UsedHour> = hours.iter().filter(|hour| hour.known >= KNOWN_FROM).collect();
    enough(known.len())?;
    let mut found = Proposals {
        known_hours: known.len(),
        used: UsdPerHour::ZERO,
        covered_already: UsdPerHour::ZERO,
        proposals: Vec::new(),
        left_out: BTreeSet::new(),
    };
    let left = left(&known, prices, policy, now, &mut found);
    for kind in SIZED.into_iter().filter(|kind| ask.kind.is_none_or(|asked| asked == *kind)) {
        let mut scopes: BTreeMap<(&Cloud, Scope), Vec<&Left<'_>>> = BTreeMap::new();
        for one in left.values() {
            if let Some(scope) = scope(kind, one) {
                scopes.entry((&one.place.cloud, scope)).or_default().push(one);
            }
        }
        for ((cloud, scope), of) in scopes {
            for term in Term::ALL.into_iter().filter(|term| ask.term.is_none_or(|asked| asked == *term)) {
                let Some((unit, hourly, source)) = unit(kind, term, &of, prices, ask.discount, &mut found.left_out) else {
                    continue;
                };
                let advice = advise(&hourly, unit)?;
                let (cloud, scope) = (cloud.clone(), scope.clone());
                found.proposals.push(Proposal { cloud, kind, scope, term, source, unit, advice });
            }
        }
    }
    Ok(found)
}

/// What a commitment of this kind would cover of that use; `None` where it would cover nothing, or is not for saving.
fn scope(kind: CommitmentKind, of: &Left<'_>) -> Option<Scope> {
    if !kind.clouds().contains(&of.place.cloud.as_str()) {
        return None;
    }
    let region = || of.place.region.clone();
    let nodes = || Scope::Nodes { region: region(), instance_type: of.place.instance_type.clone() };
    match kind {
        CommitmentKind::ReservedInstance => Some(nodes()),
        CommitmentKind::Reservation => (of.place.cloud.as_str() == "azure").then(nodes),
        CommitmentKind::CommittedUse => Some(Scope::Gpus { region: region(), model: of.model.clone() }),
        CommitmentKind::Ec2SavingsPlan => {
            Some(Scope::Family { region: region(), family: family_of(&of.place.instance_type).to_owned() })
        }
        CommitmentKind::ComputeSavingsPlan | CommitmentKind::SavingsPlan => Some(Scope::Cloud),
        CommitmentKind::CapacityReservation | CommitmentKind::CapacityBlock | CommitmentKind::CalendarReservation => None,
    }
}

/// Hourly use in node-minutes, after what the policy's commitments cover, by type and region.
fn left<'a>(
    known: &[&'a UsedHour],
    prices: &'a PriceBook,
    policy: &Policy,
    now: Timestamp,
    found: &mut Proposals,
) -> BTreeMap<(&'a Cloud, &'a Region, &'a InstanceType), Left<'a>> {
    let operator = OperatorPrices::new(policy);
    let discounts: Vec<Commitment> = policy.commitments.iter().filter_map(per_minute).collect();
    let mut left: BTreeMap<_, Left<'_>> = BTreeMap::new();
    let (mut value, mut due) = (0_i128, 0_i128);
    for (at, hour) in known.iter().enumerate() {
        let mut used = Vec::with_capacity(hour.node_seconds.len());
        for (market, seconds) in hour.node_seconds.iter().filter(|(market, _)| coverable(policy, market)) {
            let place = &market.place;
            let on_demand = Market { capacity_type: CapacityType::OnDemand, ..market.clone() };
            let entry = operator.entry(&on_demand).or_else(|| prices.entry(&on_demand).cloned());
            let (Ok(quote), Some(spec)) = (usable(entry.as_ref(), now), prices.spec(&place.cloud, &place.instance_type)) else {
                found.left_out.insert(Unsized::NoPrice { place: place.to_string() });
                continue;
            };
            // As if all of the hour were known.
            let minutes = seconds * 60 / u64::from(hour.known.max(1));
            used.push(Used {
                place,
                kept: market.capacity_type == CapacityType::Reserved,
                model: &spec.gpu_model,
                gpus: spec.advertised_gpus().max(1),
                price: quote.price,
                nodes: u32::try_from(minutes).unwrap_or(u32::MAX),
            });
        }
        for (one, open) in used.iter().zip(left_due(&discounts, &used, now)) {
            value += i128::from(one.price.times(one.nodes).0);
            due += i128::from(open);
            let key = (&one.place.cloud, &one.place.region, &one.place.instance_type);
            let of = left.entry(key).or_insert_with(|| Left {
                place: one.place,
                model: one.model,
                gpus: one.gpus,
                price: one.price,
                hourly: vec![0; known.len()],
            });
            if let Some(hourly) = of.hourly.get_mut(at) {
                *hourly += u64::try_from(open / one.price.0.max(1)).unwrap_or(0);
            }
        }
    }
    let mean =
        |sum: i128| UsdPerHour(i64::try_from(sum / (known.len().max(1) as i128 * i128::from(MINUTES))).unwrap_or(i64::MAX));
    found.used = mean(value);
    found.covered_already = mean(value - due);
    left
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

/// What is counted, how much of it was used in each hour, and by whose word it costs that; `None` where no rate is known. Types whose
/// rate is not known are left out; those of several rates are weighed by their use.
fn unit(
    kind: CommitmentKind,
    term: Term,
    of: &[&Left<'_>],
    prices: &PriceBook,
    discount: Option<Milli>,
    left_out: &mut BTreeSet<Unsized>,
) -> Option<(Unit, Vec<u64>, String)> {
    let cloud = || of.first().map(|one| one.place.cloud.clone());
    let mut rated = Vec::with_capacity(of.len());
    let mut sources: BTreeSet<String> = BTreeSet::new();
    for one in of {
        let told = prices.terms(one.place).filter(|terms| terms.kind == kind);
        let rate = match (discount, told) {
            (Some(Milli(off)), _) => {
                sources.insert("your offer".to_owned());
                Some(UsdPerHour(one.price.0 * i64::from(1000 - off.min(1000)) / 1000))
            }
            (None, Some(terms)) => {
                sources.insert(terms.source.to_string());
                match term {
                    Term::OneYear => terms.one_year,
                    Term::ThreeYears => terms.three_years,
                }
            }
            (None, None) => None,
        };
        match rate {
            Some(rate) => rated.push((*one, rate)),
            None if has_rates(kind) => {
                let what = format!("{} in {}", one.place.instance_type, one.place.region);
                left_out.insert(Unsized::NoRate { cloud: one.place.cloud.clone(), kind, term, what });
            }
            None => {
                left_out.extend(cloud().map(|cloud| Unsized::NoRates { cloud, kind }));
            }
        }
    }
    // What an hour's use is worth at on-demand prices and at the committed ones, and how many GPUs it is, all in minutes.
    let sum = |each: &dyn Fn(&Left<'_>, UsdPerHour) -> i128| -> i128 {
        let total = |one: &Left<'_>| one.hourly.iter().map(|minutes| i128::from(*minutes)).sum::<i128>();
        rated.iter().map(|(one, rate)| total(one) * each(one, *rate)).sum()
    };
    let (value, committed) = (sum(&|one, _| i128::from(one.price.0)), sum(&|_, rate| i128::from(rate.0)));
    let hourly = |each: &dyn Fn(&Left<'_>) -> u64| -> Vec<u64> {
        let hours = rated.first().map_or(0, |(one, _)| one.hourly.len());
        let at = |at: usize| rated.iter().map(|(one, _)| one.hourly.get(at).copied().unwrap_or(0) * each(one)).sum();
        (0..hours).map(at).collect()
    };
    let over = |sum: i128, units: i128| UsdPerHour(i64::try_from(sum / units.max(1)).unwrap_or(i64::MAX));
    let (unit, hourly) = match kind {
        CommitmentKind::ReservedInstance | CommitmentKind::Reservation => {
            let (one, rate) = rated.first()?;
            (Unit { parts: MINUTES, on_demand: one.price, committed: *rate }, one.hourly.clone())
        }
        CommitmentKind::CommittedUse => {
            let gpus = sum(&|one, _| i128::from(one.gpus));
            let unit = Unit { parts: MINUTES, on_demand: over(value, gpus), committed: over(committed, gpus) };
            (unit, hourly(&|one| u64::from(one.gpus)))
        }
        _ => {
            let parts = u32::try_from(CENT.0).ok()?.saturating_mul(MINUTES);
            let rate = over(committed * i128::from(CENT.0), value);
            (Unit { parts, on_demand: CENT, committed: rate }, hourly(&|one| u64::try_from(one.price.0).unwrap_or(0)))
        }
    };
    let sources: Vec<String> = sources.into_iter().collect();
    // Nothing used is nothing to say.
    (!rated.is_empty() && value > 0).then(|| (unit, hourly, sources.join(", ")))
}

/// Whether the price tables tell rates of this kind.
const fn has_rates(kind: CommitmentKind) -> bool {
    matches!(kind, CommitmentKind::ReservedInstance | CommitmentKind::CommittedUse | CommitmentKind::SavingsPlan)
}
