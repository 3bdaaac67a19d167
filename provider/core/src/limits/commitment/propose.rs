//! Proposals: what to commit to and what it would save, from the use of each past hour.
//!
//! The policy's own commitments are subtracted first, by the rules of the bill. Spot is left out:
//! no commitment covers it, and most spot costs less than any.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::history::{History, Left, MINUTES, UsedHour};
use super::{Advice, TooLittleUse, Unit, advise};
use crate::base::engine_clock::Wall;
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region};
use crate::base::kinds::CommitmentKind;
use crate::base::units::{MiB, Milli, UsdPerHour};
use crate::market::price::PriceBook;
use crate::policy::Policy;
use crate::policy::rules::commitment::family_of;

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
        /// Memory of one: the sizes of a model are sold apart.
        memory: MiB,
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
    #[error("{cloud} {}: no price table lists its rates: give your own offer with --kind {} --term 1y --discount, such as \
             28%", .kind.as_str(), .kind.as_str())]
    NoRates {
        /// The cloud.
        cloud: Cloud,
        /// What it is.
        kind: CommitmentKind,
    },
    /// Some of its rates are not told.
    #[error("{cloud} {} of {what} for {}: no price table lists its rate", .kind.as_str(), .term.as_str())]
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
    #[error("{place}: its on-demand price is unknown, so its use is excluded: add the price under prices in the policy")]
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

/// Works out what could be committed to.
///
/// # Errors
/// With less than a week of known hours.
pub fn propose(
    hours: &[UsedHour],
    prices: &PriceBook,
    policy: &Policy,
    ask: Ask,
    wall: Wall,
) -> Result<Proposals, TooLittleUse> {
    let History { known_hours, used, covered, left, unpriced } = History::of(hours, prices, policy, wall)?;
    let mut left_out: BTreeSet<_> = unpriced.into_iter().map(|place| Unsized::NoPrice { place: place.to_string() }).collect();
    let mut proposals = Vec::new();
    for kind in SIZED.into_iter().filter(|kind| ask.kind.is_none_or(|asked| asked == *kind)) {
        let mut scopes: BTreeMap<(&Cloud, Scope), Vec<&Left<'_>>> = BTreeMap::new();
        for one in left.values() {
            if let Some(scope) = scope(kind, one) {
                scopes.entry((&one.place.cloud, scope)).or_default().push(one);
            }
        }
        for ((cloud, scope), of) in scopes {
            for term in Term::ALL.into_iter().filter(|term| ask.term.is_none_or(|asked| asked == *term)) {
                let rated = rated(kind, term, &of, prices, ask.discount, &mut left_out);
                let Some((unit, hourly)) = unit(kind, &rated) else { continue };
                let sources: BTreeSet<&str> = rated.iter().map(|one| one.source).collect();
                let source = sources.into_iter().collect::<Vec<_>>().join(", ");
                let advice = advise(&hourly, unit)?;
                let (cloud, scope) = (cloud.clone(), scope.clone());
                proposals.push(Proposal { cloud, kind, scope, term, source, unit, advice });
            }
        }
    }
    Ok(Proposals { known_hours, used, covered_already: covered, proposals, left_out })
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
        CommitmentKind::CommittedUse => Some(Scope::Gpus { region: region(), model: of.model.clone(), memory: of.memory }),
        CommitmentKind::Ec2SavingsPlan => {
            Some(Scope::Family { region: region(), family: family_of(&of.place.instance_type).to_owned() })
        }
        CommitmentKind::ComputeSavingsPlan | CommitmentKind::SavingsPlan => Some(Scope::Cloud),
        CommitmentKind::CapacityReservation | CommitmentKind::CapacityBlock | CommitmentKind::CalendarReservation => None,
    }
}

/// A type whose rate under a commitment is known.
struct Rated<'a> {
    of: &'a Left<'a>,
    rate: UsdPerHour,
    source: &'a str,
}

/// The types whose rate is known; the others are noted as left out.
fn rated<'a>(
    kind: CommitmentKind,
    term: Term,
    of: &[&'a Left<'a>],
    prices: &'a PriceBook,
    discount: Option<Milli>,
    left_out: &mut BTreeSet<Unsized>,
) -> Vec<Rated<'a>> {
    let mut rated = Vec::with_capacity(of.len());
    for of in of.iter().copied() {
        let told = prices.terms(of.place).filter(|terms| terms.kind == kind);
        let told = told.and_then(|terms| {
            let rate = match term {
                Term::OneYear => terms.one_year,
                Term::ThreeYears => terms.three_years,
            };
            Some((rate?, terms.source.as_ref()))
        });
        let own = discount.map(|Milli(off)| UsdPerHour(of.price.0 * i64::from(1000 - off.min(1000)) / 1000));
        let cloud = || of.place.cloud.clone();
        match own.map(|rate| (rate, "your offer")).or(told) {
            Some((rate, source)) => rated.push(Rated { of, rate, source }),
            None if has_rates(kind) => {
                let what = format!("{} in {}", of.place.instance_type, of.place.region);
                left_out.insert(Unsized::NoRate { cloud: cloud(), kind, term, what });
            }
            None => {
                left_out.insert(Unsized::NoRates { cloud: cloud(), kind });
            }
        }
    }
    rated
}

/// What is counted, and how much of it was used in each hour; `None` where nothing was. Where a unit may be one of several types, its
/// prices are means, weighted by use.
fn unit(kind: CommitmentKind, rated: &[Rated<'_>]) -> Option<(Unit, Vec<u64>)> {
    let first = rated.first()?;
    // Over all hours, what every node-minute is worth by some measure.
    let sum = |worth: fn(&Rated<'_>) -> i64| -> i128 {
        let minutes = |one: &Rated<'_>| one.of.hourly.iter().map(|minutes| i128::from(*minutes)).sum::<i128>();
        rated.iter().map(|one| minutes(one) * i128::from(worth(one))).sum()
    };
    let hourly = |worth: fn(&Rated<'_>) -> i64| -> Vec<u64> {
        let of = |one: &Rated<'_>, at| one.of.hourly.get(at).copied().unwrap_or(0) * u64::try_from(worth(one)).unwrap_or(0);
        (0..first.of.hourly.len()).map(|at| rated.iter().map(|one| of(one, at)).sum()).collect()
    };
    let (value, committed) = (sum(|one| one.of.price.0), sum(|one| one.rate.0));
    if value == 0 {
        return None;
    }
    let over = |sum: i128, units: i128| UsdPerHour(i64::try_from(sum / units.max(1)).unwrap_or(i64::MAX));
    Some(match kind {
        CommitmentKind::ReservedInstance | CommitmentKind::Reservation => {
            (Unit { parts: MINUTES, on_demand: first.of.price, committed: first.rate }, hourly(|_| 1))
        }
        CommitmentKind::CommittedUse => {
            let gpus = sum(|one| i64::from(one.of.gpus));
            let unit = Unit { parts: MINUTES, on_demand: over(value, gpus), committed: over(committed, gpus) };
            (unit, hourly(|one| i64::from(one.of.gpus)))
        }
        _ => {
            let parts = u32::try_from(CENT.0).ok()?.saturating_mul(MINUTES);
            let unit = Unit { parts, on_demand: CENT, committed: over(committed * i128::from(CENT.0), value) };
            (unit, hourly(|one| one.of.price.0))
        }
    })
}

/// Whether the price tables tell rates of this kind.
const fn has_rates(kind: CommitmentKind) -> bool {
    matches!(kind, CommitmentKind::ReservedInstance | CommitmentKind::CommittedUse | CommitmentKind::SavingsPlan)
}
