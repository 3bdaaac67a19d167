//! What nodes are billed by: the commitments of a policy, and what is sold where.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::catalogue::rates::Rates;
use stoker_core::market::offer::Place;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_core::policy::rules::commitment::{Capacity, Commitment, Paid, Terms};

use super::{Bill, CommitmentCost, DayRow, GpuUse, KeptDay, Known, PodTime, Span, Use, grouped, roll_up};

/// What nodes are billed by.
#[derive(Debug, Clone)]
pub struct Tariff {
    /// The policy, whose commitments are counted.
    pub policy: Arc<Policy>,
    prices: Arc<PriceBook>,
    /// What a node costs on demand where commitments keep capacity.
    on_demand: BTreeMap<Place, UsdPerHour>,
}

impl Tariff {
    /// By the prices that count at `now`.
    pub fn new(policy: Arc<Policy>, prices: Arc<PriceBook>, now: Timestamp) -> Self {
        let suppliers = BTreeMap::new();
        let rates = Rates::new(&policy, &prices, &suppliers, Wall(now));
        let kept = policy.commitments.iter().filter_map(|commitment| match &commitment.terms {
            Terms::Capacity(capacity) => Some(&capacity.place),
            _ => None,
        });
        let on_demand = kept.filter_map(|place| Some((place.clone(), rates.on_demand(place)?))).collect();
        Self { policy, prices, on_demand }
    }

    /// The same with the commitments of an earlier policy that have ended since and were taken out of it: they count for
    /// the time before.
    #[must_use]
    pub fn with_ended(&self, earlier: &Policy, now: Timestamp) -> Self {
        let is_gone = |of: &&Commitment| {
            of.until.is_some_and(|end| end <= now) && self.policy.commitments.iter().all(|known| known.name != of.name)
        };
        let ended: Vec<Commitment> = earlier.commitments.iter().filter(is_gone).cloned().collect();
        if ended.is_empty() {
            return self.clone();
        }
        let mut policy = Policy::clone(&self.policy);
        policy.commitments.extend(ended);
        Self::new(Arc::new(policy), Arc::clone(&self.prices), now)
    }

    /// The commitments that reach into a time.
    pub fn reaching(&self, (from, until): (i64, i64)) -> impl Iterator<Item = &Commitment> {
        let is_within = move |of: &&Commitment| {
            of.from.is_none_or(|since| since.as_second() < until) && of.until.is_none_or(|end| end.as_second() > from)
        };
        self.policy.commitments.iter().filter(is_within)
    }

    /// A day, or a part of it between two moments, from its spans and pods.
    pub fn day(
        &self,
        day: i64,
        (from, until): (i64, i64),
        (spans, pods): (&[Span], &BTreeMap<Arc<str>, Vec<PodTime>>),
        (known, pods_known): (&Known, &Known),
        gpu_use: &GpuUse,
        by_instance: bool,
    ) -> KeptDay {
        let (commitments, prices, on_demand) = (&self.policy.commitments, &*self.prices, &self.on_demand);
        let bill = Bill { commitments, prices, on_demand, pods_known, known, gpu_use, by_instance };
        let rows = roll_up((from, until), spans, pods, &bill);
        KeptDay {
            day,
            known_seconds: known.seconds(from, until),
            pods_known_seconds: pods_known.seconds(from, until),
            billed_by: self.reaching((from, until)).cloned().collect(),
            commitments: self.commitments(&rows, known, (from, until)),
            rows,
        }
    }

    /// What the commitments cost in a time, as far as it is known what nodes did; `rows` are those of that time.
    fn commitments(&self, rows: &[DayRow], known: &Known, (from, until): (i64, i64)) -> Vec<CommitmentCost> {
        let unused = grouped(rows, |of| match of {
            Use::Unused { commitment } => Some(commitment.clone()),
            Use::Nodes { .. } => None,
        });
        let cost = |of: &Commitment| {
            let since = of.from.map_or(from, Timestamp::as_second).max(from);
            let end = of.until.map_or(until, Timestamp::as_second).min(until);
            let unused = unused.get(&Some(of.name.clone())).map_or(UsdMicros(0), |figures| figures.effective);
            // What is billed on demand costs nothing beside its use, and what stands empty of it.
            let cost = rate(of).map_or(unused, |rate| rate.over_seconds(known.seconds(since, end)));
            CommitmentCost { name: of.name.clone(), kind: of.kind(), cost, unused }
        };
        self.reaching((from, until)).map(cost).collect()
    }
}

/// What a commitment costs an hour, used or not; `None` of capacity that is billed on demand.
const fn rate(commitment: &Commitment) -> Option<UsdPerHour> {
    match &commitment.terms {
        Terms::Nodes(nodes) => Some(nodes.rate),
        Terms::Gpus(gpus) => Some(gpus.rate),
        Terms::Spend(spend) => Some(spend.rate),
        Terms::Capacity(Capacity { paid: Paid::Ahead { rate, .. }, .. }) => Some(*rate),
        Terms::Capacity(Capacity { paid: Paid::OnDemand, .. }) => None,
    }
}
