//! `spec.limits` of steered `NodePools`: Karpenter may buy what was promised to it of each quota, and Stoker counts that as used.
//!
//! A limit is what the pool uses, and what it was promised. Karpenter leaves out the types that exceed what remains when it chooses, and
//! chooses nothing while a claim has no machine: so it stays within its limit.

use std::collections::BTreeMap;
use std::fmt;

use stoker_core::base::kinds::QuotaUnit;
use stoker_core::facts::foreign::Promises;
use stoker_core::policy::{Policy, Quota, QuotaKey};

use super::reach::{Reach, Sizes, resource};
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
    /// What machines have of types that it may make and that the decisions do not count yet, whosever they are.
    pub(crate) uncounted: Units,
    /// Its limits, where Stoker has set them and nobody else has changed them since.
    pub(crate) stands: BTreeMap<String, u64>,
    /// The limits that its owner has set: none is set above them.
    pub(crate) was: Option<Amounts>,
    /// The most that it could buy within the last seconds: its claims may still be on their way.
    pub(crate) lately: Units,
    /// Why it is to make nothing more; `None` where it may.
    pub(crate) closed: Option<String>,
}

/// What a `NodePool` is to be limited to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Its limits.
    pub(crate) limits: BTreeMap<String, u64>,
    /// What it may buy under them.
    pub(crate) promised: Units,
    /// The quotas that they come from, and who else has them.
    pub(crate) why: String,
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
            Some((resource(unit), limit.saturating_sub(self.used(unit))))
        };
        UNITS.into_iter().filter_map(of).collect()
    }
}

/// What a pool may buy of a quota: by what it is to be limited to, where that is known, and no less than it could lately.
fn promised_to(pool: &Pool, plan: Option<&Plan>, at: usize, quota: &Quota) -> u64 {
    let most = |units: &Units| units.get(resource(quota.unit)).copied().unwrap_or(0);
    let reaches = pool.reach.quotas.contains(&at);
    if reaches { most(&pool.lately).max(plan.map_or(0, |plan| most(&plan.promised))) } else { 0 }
}

/// What is left of a quota for one pool.
struct Left<'a> {
    at: usize,
    quota: &'a Quota,
    /// What Stoker and Karpenter's nodes use.
    held: u64,
    /// What other pools may buy, by their names.
    others: Vec<(&'a str, u64)>,
}

impl Left<'_> {
    fn free(&self) -> u64 {
        let promised = self.others.iter().map(|(_, units)| units).fold(0_u64, |sum, units| sum.saturating_add(*units));
        self.quota.share().saturating_sub(self.held.saturating_add(promised))
    }
}

impl fmt::Display for Left<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, held, others, .. } = self;
        write!(f, "{}: {held} of {} used", QuotaKey::of(quota), quota.share())?;
        for (name, units) in others {
            write!(f, ", {units} promised to {name}")?;
        }
        Ok(())
    }
}

/// What each pool is to be limited to. `held`: what is used of each quota, by Stoker and by Karpenter's nodes, without promises.
pub(crate) fn plan<'a>(policy: &'a Policy, held: &[u64], pools: &'a [Pool]) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::with_capacity(pools.len());
    for (index, pool) in pools.iter().enumerate() {
        let others = |at, quota| {
            let others = pools.iter().enumerate().filter(|(other, _)| *other != index);
            let promised = others.map(|(other, pool)| (pool.name.as_str(), promised_to(pool, plans.get(other), at, quota)));
            promised.filter(|(_, units)| *units > 0).collect()
        };
        let left = |(at, quota): (usize, &'a Quota)| {
            let uncounted = pool.uncounted.get(resource(quota.unit)).copied().unwrap_or(0);
            let held = held.get(at).copied().unwrap_or(0).saturating_add(uncounted);
            Left { at, quota, held, others: others(at, quota) }
        };
        let left: Vec<Left<'_>> = UNITS.iter().flat_map(|unit| pool.quotas(policy, *unit)).map(left).collect();
        let mut plan = Plan { limits: BTreeMap::new(), promised: Units::new(), why: String::new() };
        for unit in UNITS {
            let (used, Sizes { least, most }) = (pool.used(unit), pool.reach.sizes(unit));
            let of_unit = || left.iter().filter(|left| left.quota.unit == unit);
            let Some(free) = of_unit().map(Left::free).min() else { continue };
            let free = if pool.closed.is_some() { 0 } else { free };
            // Two of its largest nodes, or a tenth of the quota, and no more than half of it, if that is enough for one; the rest stays for
            // whoever comes first.
            let fair = |share: u64| (2 * most).max(share / 10).min(share / 2).max(most);
            let fair = of_unit().map(|left| fair(left.quota.share())).min().unwrap_or(0);
            let promise = free.min(fair);
            // What is too small for any of its nodes is of use to others alone.
            let promise = if promise < least { 0 } else { promise };
            // It stays while it has room for its largest node: a write a node would be one too many.
            let stays = |limit: &u64| {
                let standing = limit.saturating_sub(used);
                standing <= free && standing < promise + most && standing >= promise.min(most)
            };
            let stands = pool.stands.get(resource(unit)).copied().filter(stays);
            let limit = stands.unwrap_or(used + promise);
            let owners = pool.was.as_ref().and_then(|was| was.get(resource(unit))).and_then(amount);
            let limit = owners.map_or(limit, |owners| limit.min(owners));
            plan.limits.insert(resource(unit).to_owned(), limit);
            plan.promised.insert(resource(unit), limit.saturating_sub(used));
        }
        let told = |left: &Left<'_>| {
            let too_large = pool.reach.too_large.iter().filter(|(at, _)| *at == left.at).map(|(_, name)| name.as_str());
            let too_large: Vec<&str> = too_large.collect();
            if too_large.is_empty() { left.to_string() } else { format!("{left}, too small for {}", too_large.join(" and ")) }
        };
        plan.why = pool.closed.iter().cloned().chain(left.iter().map(told)).collect::<Vec<_>>().join("; ");
        plans.push(plan);
    }
    plans
}

/// What is promised of each quota, by name.
pub(crate) fn promises(policy: &Policy, pools: &[Pool], plans: &[Plan]) -> Promises {
    let of = |(at, quota): (usize, &Quota)| {
        let each = pools.iter().enumerate().map(|(index, pool)| promised_to(pool, plans.get(index), at, quota));
        let promised = each.fold(0, u64::saturating_add);
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
    use std::collections::BTreeSet;

    use serde_json::json;
    use stoker_core::base::ids::InstanceType;

    use super::*;
    use crate::companion::tests::policy;

    /// A pool of the quota of 64 on-demand vCPUs whose nodes have 4 or 8.
    fn pool(name: &str, used: u64) -> Pool {
        let (vcpus, gpus) = (Sizes { least: 4, most: 8 }, Sizes { least: 1, most: 1 });
        Pool {
            name: name.to_owned(),
            reach: Reach { quotas: [0].into(), vcpus, gpus, too_large: BTreeSet::new() },
            used: [("cpu", used)].into(),
            uncounted: Units::new(),
            stands: BTreeMap::new(),
            was: None,
            lately: Units::new(),
            closed: None,
        }
    }

    fn cpu(plan: &Plan) -> (u64, u64) {
        (plan.limits["cpu"], plan.promised["cpu"])
    }

    #[test]
    fn a_limit_is_what_is_used_and_two_nodes_more() {
        let plans = plan(&policy(), &[8, 0], &[pool("a", 8)]);
        assert_eq!(cpu(&plans[0]), (24, 16));
        assert_eq!(plans[0].why, "L-DB2E81BA us-east-1: 8 of 64 used");
    }

    #[test]
    fn nothing_more_is_promised_than_is_left_and_nothing_that_no_node_fits() {
        for (held, promise) in [(44, 16), (48, 16), (50, 14), (56, 8), (60, 4), (61, 0), (64, 0), (90, 0)] {
            assert_eq!(cpu(&plan(&policy(), &[held, 0], &[pool("a", 8)])[0]), (8 + promise, promise), "{held}");
        }
    }

    #[test]
    fn what_the_decisions_do_not_count_yet_is_used_all_the_same() {
        // Two nodes of 8 were launched a moment ago, and the decisions go by what was before.
        let grown = Pool { uncounted: [("cpu", 16)].into(), ..pool("a", 24) };
        assert_eq!(cpu(&plan(&policy(), &[48, 0], &[grown])[0]), (24, 0));
    }

    #[test]
    fn large_nodes_leave_others_half_of_a_quota_if_one_fits_it() {
        let sized = |most| Pool { reach: Reach { vcpus: Sizes { least: 4, most }, ..pool("a", 0).reach }, ..pool("a", 0) };
        let promised = |most| cpu(&plan(&policy(), &[0, 0], &[sized(most)])[0]).1;
        assert_eq!([promised(8), promised(24), promised(48)], [16, 32, 48]);
    }

    #[test]
    fn a_limit_says_who_else_has_the_quota_and_what_never_fits_it() {
        let mut large = pool("b", 0);
        large.reach.too_large.insert((0, InstanceType::new("g6.48xlarge").unwrap()));
        let plans = plan(&policy(), &[48, 0], &[pool("a", 0), large]);
        assert_eq!(cpu(&plans[1]), (0, 0));
        let why = "L-DB2E81BA us-east-1: 48 of 64 used, 16 promised to a, too small for g6.48xlarge";
        assert_eq!(plans[1].why, why);
    }

    #[test]
    fn pools_do_not_share_a_promise_even_one_that_was_lowered_a_moment_ago() {
        let both = [pool("a", 0), pool("b", 0)];
        let promised = |pools: &[Pool], held| plan(&policy(), &[held, 0], pools).iter().map(|p| cpu(p).1).collect::<Vec<_>>();
        assert_eq!(promised(&both, 0), [16, 16]);
        assert_eq!(promised(&both, 40), [16, 8]);
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
    fn a_limit_stays_while_it_has_room_for_the_largest_node_and_not_for_three() {
        let standing = |limit: u64, used: u64, held| {
            let stands = [("cpu".to_owned(), limit)].into();
            plan(&policy(), &[held, 0], &[Pool { stands, ..pool("a", used) }])[0].limits["cpu"]
        };
        assert_eq!(standing(24, 8, 8), 24);
        assert_eq!(standing(16, 8, 8), 16);
        // Room for a small node alone, while there is more: pods that need the largest would wait for ever.
        assert_eq!(standing(14, 8, 8), 24);
        assert_eq!(standing(6, 4, 4), 20);
        // Nothing more is left of the quota.
        assert_eq!(standing(12, 8, 60), 12);
        assert_eq!(standing(16, 16, 16), 32);
        // Nodes went: what they used is not Karpenter's alone.
        assert_eq!(standing(48, 8, 8), 24);
        // Nothing is left of the quota: it falls at once.
        assert_eq!(standing(16, 8, 64), 8);
    }

    #[test]
    fn a_closed_pool_keeps_what_it_has_and_is_promised_nothing() {
        let closed = |used, stands: u64| Pool {
            closed: Some("all that it may make is out of stock".to_owned()),
            stands: [("cpu".to_owned(), stands)].into(),
            ..pool("a", used)
        };
        let plans = plan(&policy(), &[8, 0], &[closed(8, 24)]);
        assert_eq!(cpu(&plans[0]), (8, 0));
        assert_eq!(plans[0].why, "all that it may make is out of stock; L-DB2E81BA us-east-1: 8 of 64 used");
        assert_eq!(cpu(&plan(&policy(), &[8, 0], &[closed(8, 8)])[0]), (8, 0));
    }

    #[test]
    fn no_limit_is_set_above_the_owners() {
        let was = |value| Some(serde_json::from_value(value).unwrap());
        let limited = |was| cpu(&plan(&policy(), &[8, 0], &[Pool { was, ..pool("a", 8) }])[0]);
        assert_eq!(limited(was(json!({ "cpu": "12" }))), (12, 4));
        assert_eq!(limited(was(json!({ "cpu": 8 }))), (8, 0));
        assert_eq!(limited(was(json!({ "cpu": "1k", "memory": "1Ti" }))), (24, 16));
    }

    #[test]
    fn a_pool_of_two_quotas_is_held_to_both() {
        let both = || Pool { reach: Reach { quotas: [0, 1].into(), ..pool("a", 8).reach }, ..pool("a", 8) };
        assert_eq!(cpu(&plan(&policy(), &[8, 20], &[both()])[0]), (20, 12));
        assert_eq!(promises(&policy(), &[both()], &plan(&policy(), &[8, 20], &[both()])).len(), 2);
    }
}
