//! `spec.limits` of steered `NodePools`: Karpenter may buy what was promised to it of each quota, and Stoker counts that as used.
//!
//! A limit is what the pool uses, and what it was promised, less its largest node. Karpenter leaves out the types that exceed what remains
//! when it chooses, and when it creates a claim it looks only whether the limit is exceeded already: so it may overshoot by a node.

use std::collections::BTreeMap;

use stoker_core::base::kinds::QuotaUnit;
use stoker_core::facts::foreign::{Promises, QuotaKey};
use stoker_core::policy::{Policy, Quota};

use super::reach::{Reach, resource};
use crate::objects::{Amounts, amount};

const UNITS: [QuotaUnit; 2] = [QuotaUnit::Vcpus, QuotaUnit::Gpus];

/// An amount of each resource that a quota is counted in.
pub(crate) type Units = BTreeMap<&'static str, u64>;

/// A steered `NodePool`.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) reach: Reach,
    /// What its nodes have, as Karpenter counts them: without those that it is about to end.
    pub(crate) used: Units,
    /// Its limits, where Stoker has set them and nobody else has changed them since.
    pub(crate) stands: BTreeMap<String, u64>,
    /// The limits that its owner has set: none is set above them.
    pub(crate) was: Option<Amounts>,
    /// The most that it could buy within the last seconds: its claims may still be on their way.
    pub(crate) lately: Units,
}

/// What a `NodePool` is to be limited to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Its limits.
    pub(crate) limits: BTreeMap<String, u64>,
    /// What it may buy under them.
    pub(crate) promised: Units,
    /// The quotas that they come from.
    pub(crate) why: String,
}

/// What a pool may buy under a limit, at most: nothing where it has reached it, else a node more than is left.
const fn may_buy(limit: u64, used: u64, largest: u64) -> u64 {
    if limit > used { limit - used + largest } else { 0 }
}

impl Pool {
    fn quotas<'a>(&'a self, policy: &'a Policy, unit: QuotaUnit) -> impl Iterator<Item = (usize, &'a Quota)> {
        let all = self.reach.quotas.iter().filter_map(|at| Some((*at, policy.quotas.get(*at)?)));
        all.filter(move |(_, quota)| quota.unit == unit)
    }

    fn used(&self, unit: QuotaUnit) -> u64 {
        self.used.get(resource(unit)).copied().unwrap_or(0)
    }

    /// What it may buy under the limits that stand.
    pub(crate) fn standing(&self) -> Units {
        let of = |unit: QuotaUnit| {
            let limit = self.stands.get(resource(unit))?;
            Some((resource(unit), may_buy(*limit, self.used(unit), self.reach.largest(unit))))
        };
        UNITS.into_iter().filter_map(of).collect()
    }
}

/// What pools may buy of a quota: by what they are to be limited to, where that is known, and no less than they could lately.
fn promised_of<'a>(at: usize, quota: &Quota, pools: impl Iterator<Item = (&'a Pool, Option<&'a Plan>)>) -> u64 {
    let of = |(pool, plan): (&Pool, Option<&Plan>)| {
        let most = |units: &Units| units.get(resource(quota.unit)).copied().unwrap_or(0);
        let reaches = pool.reach.quotas.contains(&at);
        if reaches { most(&pool.lately).max(plan.map_or(0, |plan| most(&plan.promised))) } else { 0 }
    };
    pools.map(of).fold(0, u64::saturating_add)
}

/// What each pool is to be limited to. `held`: what is used of each quota, by Stoker and by Karpenter's nodes, without promises.
pub(crate) fn plan(policy: &Policy, held: &[u64], pools: &[Pool]) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::with_capacity(pools.len());
    for (index, pool) in pools.iter().enumerate() {
        let mut plan = Plan { limits: BTreeMap::new(), promised: Units::new(), why: String::new() };
        for unit in UNITS {
            let (used, largest) = (pool.used(unit), pool.reach.largest(unit));
            let others = || pools.iter().enumerate().filter(|(at, _)| *at != index).map(|(at, pool)| (pool, plans.get(at)));
            let of_quota = |(at, quota): (usize, &Quota)| {
                let taken = held.get(at).copied().unwrap_or(0).saturating_add(promised_of(at, quota, others()));
                // Enough for the next node and one on its way, or for a tenth of the quota; the rest stays for whoever comes first.
                let fair = (2 * largest).max(quota.share() / 10 + largest);
                (quota.share().saturating_sub(taken), fair)
            };
            let Some((free, fair)) = pool.quotas(policy, unit).map(of_quota).reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))) else {
                continue;
            };
            let promise = free.min(fair);
            // Within a node of what it should be it stays: a write a node would be one too many.
            let stays = |limit: &u64| {
                let standing = may_buy(*limit, used, largest);
                standing <= free && promise < standing + largest && standing < promise + largest
            };
            let stands = pool.stands.get(resource(unit)).copied().filter(stays);
            let limit = stands.unwrap_or_else(|| used + promise.saturating_sub(largest));
            let owners = pool.was.as_ref().and_then(|was| was.get(resource(unit))).and_then(amount);
            let limit = owners.map_or(limit, |owners| limit.min(owners));
            plan.limits.insert(resource(unit).to_owned(), limit);
            plan.promised.insert(resource(unit), may_buy(limit, used, largest));
        }
        let name = |(_, quota): (usize, &Quota)| {
            quota.region.as_ref().map_or_else(|| quota.name.clone(), |region| format!("{} {region}", quota.name))
        };
        let names: Vec<String> = UNITS.iter().flat_map(|unit| pool.quotas(policy, *unit)).map(name).collect();
        plan.why = format!("what is left of {}", names.join(", "));
        plans.push(plan);
    }
    plans
}

/// What is promised of each quota, by name.
pub(crate) fn promises(policy: &Policy, pools: &[Pool], plans: &[Plan]) -> Promises {
    let of = |(at, quota): (usize, &Quota)| {
        let promised = promised_of(at, quota, pools.iter().enumerate().map(|(at, pool)| (pool, plans.get(at))));
        (promised > 0).then(|| (QuotaKey::of(quota), promised))
    };
    policy.quotas.iter().enumerate().filter_map(of).collect()
}

/// Whether the decisions count at least so much as promised: only then may a limit be raised.
pub(crate) fn is_counted(promises: &Promises, counted: &Promises) -> bool {
    promises.iter().all(|(quota, units)| counted.get(quota).is_some_and(|by| by >= units))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::companion::tests::policy;

    /// A pool of the quota of 64 on-demand vCPUs whose largest node has 8.
    fn pool(name: &str, used: u64) -> Pool {
        Pool {
            name: name.to_owned(),
            reach: Reach { quotas: [0].into(), most_vcpus: 8, most_gpus: 1 },
            used: [("cpu", used)].into(),
            stands: BTreeMap::new(),
            was: None,
            lately: Units::new(),
        }
    }

    fn cpu(plan: &Plan) -> (u64, u64) {
        (plan.limits["cpu"], plan.promised["cpu"])
    }

    #[test]
    fn a_limit_is_what_is_used_and_promised_less_the_largest_node() {
        let plans = plan(&policy(), &[8, 0], &[pool("a", 8)]);
        // Two nodes are promised: one that is left under the limit, and one by which Karpenter may overshoot.
        assert_eq!(cpu(&plans[0]), (16, 16));
        assert_eq!(plans[0].why, "what is left of L-DB2E81BA us-east-1");
    }

    #[test]
    fn nothing_more_is_promised_than_is_left() {
        for (held, limit) in [(44, (12, 20)), (48, (16, 16)), (50, (14, 14)), (56, (8, 0)), (60, (8, 0)), (90, (8, 0))] {
            let (limit, promise) = (limit.0, limit.1);
            let plans = plan(&policy(), &[held, 0], &[pool("a", 8)]);
            let (is, promised) = cpu(&plans[0]);
            assert!(promised <= 64_u64.saturating_sub(held), "{held}: {promised}");
            if held >= 48 {
                assert_eq!((is, promised), (limit, promise), "{held}");
            }
        }
    }

    #[test]
    fn pools_do_not_share_a_promise_even_one_that_was_lowered_a_moment_ago() {
        let both = [pool("a", 0), pool("b", 0)];
        let promised = |pools: &[Pool], held| plan(&policy(), &[held, 0], pools).iter().map(|p| cpu(p).1).collect::<Vec<_>>();
        assert_eq!(promised(&both, 0), [16, 16]);
        assert_eq!(promised(&both, 40), [16, 0]);
        let lowered = [Pool { lately: [("cpu", 24)].into(), ..pool("a", 0) }, pool("b", 0)];
        assert_eq!(promised(&lowered, 40), [16, 0]);
        let lowered = [pool("a", 0), Pool { lately: [("cpu", 24)].into(), ..pool("b", 0) }];
        // What it could buy lately is its own to be promised again.
        assert_eq!(promised(&lowered, 40), [0, 16]);
        let plans = plan(&policy(), &[40, 0], &lowered);
        let published = promises(&policy(), &lowered, &plans);
        assert_eq!(published.values().copied().collect::<Vec<_>>(), [24]);
        let counted = |units: u64| published.keys().cloned().map(|key| (key, units)).collect();
        assert!(is_counted(&published, &counted(24)));
        assert!(!is_counted(&published, &counted(23)));
        assert!(!is_counted(&published, &Promises::new()));
    }

    #[test]
    fn a_limit_stays_while_it_is_right_to_within_a_node() {
        let standing = |limit: u64, used: u64, held| {
            let stands = [("cpu".to_owned(), limit)].into();
            plan(&policy(), &[held, 0], &[Pool { stands, ..pool("a", used) }])[0].limits["cpu"]
        };
        assert_eq!(standing(16, 8, 8), 16);
        assert_eq!(standing(14, 8, 8), 14);
        // A node was made under it: one more is promised.
        assert_eq!(standing(16, 16, 16), 24);
        // Nodes went: what they used is not Karpenter's alone.
        assert_eq!(standing(48, 8, 8), 16);
        // Nothing is left of the quota: it falls at once.
        assert_eq!(standing(16, 8, 60), 8);
    }

    #[test]
    fn no_limit_is_set_above_the_owners() {
        let was = |value| Some(serde_json::from_value(value).unwrap());
        let limited = |was| cpu(&plan(&policy(), &[8, 0], &[Pool { was, ..pool("a", 8) }])[0]);
        assert_eq!(limited(was(json!({ "cpu": "12" }))), (12, 12));
        assert_eq!(limited(was(json!({ "cpu": 8 }))), (8, 0));
        assert_eq!(limited(was(json!({ "cpu": "1k", "memory": "1Ti" }))), (16, 16));
    }

    #[test]
    fn a_pool_of_two_quotas_is_held_to_both() {
        let both = || Pool { reach: Reach { quotas: [0, 1].into(), ..pool("a", 8).reach }, ..pool("a", 8) };
        assert_eq!(cpu(&plan(&policy(), &[8, 20], &[both()])[0]), (12, 12));
        assert_eq!(promises(&policy(), &[both()], &plan(&policy(), &[8, 20], &[both()])).len(), 2);
    }
}
