//! Readings gathered by workload, and by who held what did nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::class::{Measure, Spread, Used};
use super::{KNOWN_DAY, MONTH_HOURS};
use crate::rollup::{Bought, Distribution, Holder, Levels, NodeHour, Owner, PodLabels, Unattributed, Unit};
use stoker_core::base::ids::{Cloud, InstanceType, PoolName};
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::market::offer::{CapacityType, Place};
use stoker_core::market::sharing::MigProfile;

/// Hours of a day.
const DAY_HOURS: i64 = 24;

/// What was read in some hours.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    hours: BTreeSet<i64>,
    workloads: BTreeMap<(Owner, PoolName), Workload>,
    held: BTreeMap<IdleKey, Held>,
}

/// Who held GPUs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdleKey {
    /// A workload, and the labels of its pods: one that has pods of several labels is there several times.
    Owner(Owner, PodLabels),
    /// Nobody, in this pool; `None` where no record told the pool.
    Nobody(Option<PoolName>),
    /// Somebody of whom cannot be told who.
    Unattributed(Unattributed, Option<PoolName>),
}

/// For how long GPUs were held, what they did, and what they cost while they did nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// GPU-seconds that readings stand for.
    pub seconds: u64,
    /// Those in which kernels ran.
    pub worked: u64,
    /// Those in which none ran and something lay in memory.
    pub resident: u64,
    /// Those in which nothing ran and nothing lay there. What is left of `seconds` is unknown.
    pub empty: u64,
    /// Price of the idle seconds, in micro-dollars × seconds an hour.
    cost: u128,
    /// GPU-seconds whose price no record told.
    pub unpriced: u64,
}

impl Held {
    fn add(&mut self, levels: &Levels, unit_price: Option<UsdPerHour>) {
        self.seconds += u64::from(levels.seconds);
        self.worked += u64::from(levels.worked);
        self.resident += u64::from(levels.resident);
        self.empty += u64::from(levels.empty);
        let idle = u64::from(levels.resident) + u64::from(levels.empty);
        match unit_price {
            Some(price) => self.cost += u128::from(idle) * u128::from(price.0.unsigned_abs()),
            None => self.unpriced += idle,
        }
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        let Self { seconds, worked, resident, empty, cost, unpriced } = other;
        self.seconds += seconds;
        self.worked += worked;
        self.resident += resident;
        self.empty += empty;
        self.cost += cost;
        self.unpriced += unpriced;
    }

    /// GPU-seconds of which nobody knows what ran in them.
    pub const fn unknown(&self) -> u64 {
        self.seconds.saturating_sub(self.worked + self.resident + self.empty)
    }

    /// GPU-seconds in which nothing ran.
    pub const fn idle(&self) -> u64 {
        self.resident + self.empty
    }

    /// What they cost in all.
    pub fn cost(&self) -> UsdMicros {
        UsdMicros(i64::try_from(self.cost / 3_600).unwrap_or(i64::MAX))
    }

    /// What they cost an hour, on average over so many hours.
    pub fn per_hour(&self, hours: usize) -> UsdPerHour {
        UsdPerHour(i64::try_from(self.cost / 3_600 / hours.max(1) as u128).unwrap_or(i64::MAX))
    }
}

/// GPUs that are alike: an instance type's, or the instances of one profile on them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) cloud: Cloud,
    pub(super) instance_type: InstanceType,
    pub(super) profile: Option<MigProfile>,
    /// Whether they are MIG instances, of whatever profile.
    pub(super) split: bool,
}

/// What a workload used of GPUs that are alike.
#[derive(Debug, Clone, Default)]
pub(super) struct OnKind {
    pub(super) seconds: u64,
    utilization: Distribution,
    sm: Distribution,
    bandwidth: Distribution,
    pub(super) memory_peak: u64,
}

impl OnKind {
    pub(super) fn by(&self, measure: Measure) -> Option<Spread> {
        Spread::of(match measure {
            Measure::SmActivity => &self.sm,
            Measure::Utilization => &self.utilization,
        })
    }

    pub(super) fn bandwidth(&self) -> Option<Spread> {
        Spread::of(&self.bandwidth)
    }
}

/// What a workload used.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// Known seconds by hour.
    hours: BTreeMap<i64, u64>,
    utilization: Distribution,
    memory: Distribution,
    sm: Distribution,
    bandwidth: Distribution,
    pub(super) on: BTreeMap<Kind, OnKind>,
    /// GPU-seconds of pods with so many GPUs.
    by_gpus: BTreeMap<u32, u64>,
    /// GPU-seconds, and micro-dollars × seconds an hour, by capacity type.
    pub(super) bought: BTreeMap<CapacityType, (u64, u128)>,
    /// GPU-seconds on spot, by place.
    pub(super) spot: BTreeMap<Place, u64>,
    held: Held,
}

impl Workload {
    /// Days with readings of at least an hour, each 24 hours long, counted from its first.
    pub fn known_days(&self) -> usize {
        let Some(first) = self.hours.keys().next() else { return 0 };
        let mut days: BTreeMap<i64, u64> = BTreeMap::new();
        for (hour, seconds) in &self.hours {
            *days.entry((hour - first) / DAY_HOURS).or_insert(0) += seconds;
        }
        days.values().filter(|seconds| **seconds >= KNOWN_DAY).count()
    }

    /// What it used; `None` where nothing tells of its arithmetic.
    pub fn levels(&self) -> Option<Used> {
        let (sm, utilization) = (Spread::of(&self.sm), Spread::of(&self.utilization));
        // Measured on most of the time, SM activity tells more; elsewhere utilization, which errs to the safe side.
        let by = match (sm, utilization) {
            (Some(_), Some(_)) if self.sm.known() * 2 >= self.held.seconds => Measure::SmActivity,
            (_, Some(_)) => Measure::Utilization,
            (Some(_), None) => Measure::SmActivity,
            (None, None) => return None,
        };
        Some(Used { utilization, memory: Spread::of(&self.memory), sm, bandwidth: Spread::of(&self.bandwidth), by })
    }

    /// GPUs of one of its pods: the number that most of its time had.
    pub fn gpus_per_pod(&self) -> u32 {
        self.by_gpus.iter().max_by_key(|(gpus, seconds)| (**seconds, **gpus)).map_or(1, |(gpus, _)| *gpus)
    }

    /// Time and money in which its GPUs did nothing.
    pub const fn held(&self) -> &Held {
        &self.held
    }

    /// What it cost on average over so many hours, a month.
    pub(super) fn per_month(&self, of: impl Fn(CapacityType) -> bool, hours: usize) -> UsdMicros {
        let cost: u128 = self.bought.iter().filter(|(bought, _)| of(**bought)).map(|(_, (_, cost))| cost).sum();
        UsdMicros(i64::try_from(month(cost, hours)).unwrap_or(i64::MAX))
    }
}

/// Micro-dollars × seconds an hour, over so many hours, as micro-dollars a month.
pub(super) fn month(cost: u128, hours: usize) -> u128 {
    cost * u128::from(MONTH_HOURS.unsigned_abs()) / (3_600 * hours.max(1) as u128)
}

impl Observed {
    /// Adds an hour of a node.
    pub fn add(&mut self, row: &NodeHour) {
        let pool = row.bought.as_ref().map(|bought| bought.pool.clone());
        // GPUs that each pod had in this hour.
        let mut gpus: BTreeMap<&Arc<str>, BTreeSet<&Unit>> = BTreeMap::new();
        for cell in &row.cells {
            if let Holder::Pod { name, .. } = &cell.holder {
                // One whose labels were changed meanwhile has it twice.
                gpus.entry(name).or_default().insert(&cell.unit);
            }
        }
        for cell in &row.cells {
            let levels = &cell.levels;
            let unit_price = row.bought.as_ref().map(|bought| bought.price_of(&cell.unit));
            if levels.seconds > 0 {
                self.hours.insert(row.hour);
            }
            let key = match &cell.holder {
                Holder::Nobody => IdleKey::Nobody(pool.clone()),
                Holder::Unattributed(why) => IdleKey::Unattributed(*why, pool.clone()),
                Holder::Pod { name, owner, labels } => {
                    if let Some(bought) = &row.bought {
                        let of = self.workloads.entry((owner.clone(), bought.pool.clone())).or_default();
                        let had = gpus.get(name).and_then(|units| u32::try_from(units.len()).ok()).unwrap_or(1);
                        of.add(row.hour, bought, &cell.unit, levels, had, unit_price);
                    }
                    IdleKey::Owner(owner.clone(), labels.clone())
                }
            };
            self.held.entry(key).or_default().add(levels, unit_price);
        }
    }

    /// Hours with any reading.
    pub fn known_hours(&self) -> usize {
        self.hours.len()
    }

    /// Every workload, with its pool.
    pub fn workloads(&self) -> impl Iterator<Item = (&(Owner, PoolName), &Workload)> {
        self.workloads.iter()
    }

    /// Names of the labels that any pod had.
    pub fn label_names<'a>(&'a self) -> BTreeSet<&'a str> {
        let of = |key: &'a IdleKey| match key {
            IdleKey::Owner(_, labels) => Some(labels.iter().map(|(name, _)| name)),
            IdleKey::Nobody(_) | IdleKey::Unattributed(..) => None,
        };
        self.held.keys().filter_map(of).flatten().collect()
    }

    /// What was held and did nothing, the most money first.
    pub fn idle(&self) -> Vec<(&IdleKey, &Held)> {
        let mut idle: Vec<_> = self.held.iter().collect();
        idle.sort_by(|(a, x), (b, y)| (y.cost, y.idle(), *a).cmp(&(x.cost, x.idle(), *b)));
        idle
    }
}

impl Workload {
    fn add(&mut self, hour: i64, bought: &Bought, unit: &Unit, levels: &Levels, gpus: u32, unit_price: Option<UsdPerHour>) {
        let Bought { pool: _, market, .. } = bought;
        let seconds = u64::from(levels.seconds);
        let known = [levels.worked, levels.resident, levels.empty].into_iter().map(u64::from).sum::<u64>();
        *self.hours.entry(hour).or_insert(0) += known;
        self.utilization.add(&levels.utilization);
        self.memory.add(&levels.memory);
        self.sm.add(&levels.sm);
        self.bandwidth.add(&levels.bandwidth);
        let kind = Kind {
            cloud: market.place.cloud.clone(),
            instance_type: market.place.instance_type.clone(),
            profile: unit.profile,
            split: unit.mig.is_some(),
        };
        let on = self.on.entry(kind).or_default();
        on.seconds += seconds;
        on.utilization.add(&levels.utilization);
        on.sm.add(&levels.sm);
        on.bandwidth.add(&levels.bandwidth);
        on.memory_peak = on.memory_peak.max(levels.memory_peak);
        *self.by_gpus.entry(gpus).or_insert(0) += seconds;
        let (bought_seconds, cost) = self.bought.entry(market.capacity_type).or_default();
        *bought_seconds += seconds;
        *cost += u128::from(seconds) * u128::from(unit_price.unwrap_or_default().0.unsigned_abs());
        if market.capacity_type == CapacityType::Spot {
            *self.spot.entry(market.place.clone()).or_insert(0) += seconds;
        }
        self.held.add(levels, unit_price);
    }
}
