//! Several pools that ask for the last of what they share. A node has 4 vCPUs and costs $0.80 in either zone.

use super::*;
use crate::plan::{Checked, Plan};

/// Two pools that buy on demand from a quota of so many vCPUs. The second is named `other`.
fn two(vcpus: u32, change: impl FnOnce(&mut Policy)) -> World {
    with_policy(|policy| {
        let other = crate::policy::Pool { name: PoolName::new("other").unwrap(), ..policy.pools[0].clone() };
        policy.pools.push(other);
        policy.quotas[1].limit = vcpus;
        change(policy);
    })
}

/// By how many nodes the groups of each pool are raised above their target, first `pool` and then `other`.
fn raised(plan: &Plan<Checked>) -> [u32; 2] {
    ["pool.", "other."].map(|pool| {
        let of_pool = plan.limits.iter().filter(|(id, _)| id.as_str().starts_with(pool));
        of_pool.map(|(_, limit)| limit.min.saturating_sub(limit.target)).sum()
    })
}

fn blocked(plan: &Plan<Checked>) -> Vec<(&str, Option<&str>)> {
    plan.accounts.floors.iter().map(|floor| (floor.pool.as_str(), floor.blocked.as_deref())).collect()
}

#[test]
fn the_last_unit_of_a_quota_is_asked_for_once_and_the_other_floor_says_what_it_lacks() {
    let mut world = two(4, |policy| policy.pools.iter_mut().for_each(|pool| pool.warm_floor = Some(nodes(1))));
    for _ in 0..3 {
        let plan = world.pass();
        assert_eq!(raised(&plan), [1, 0]);
        let lacks = "quota Q-OD r: 0 of 4 vCPU left, 4 in flight, one more needs 4, counting what is already on order";
        assert_eq!(blocked(&plan), [("pool", None), ("other", Some(lacks))]);
    }
    // Bought, it is what the other lacks, and nobody asks for it any more.
    settle(&mut world);
    let plan = world.pass();
    assert_eq!(raised(&plan), [0, 0]);
    let lacks = "quota Q-OD r: 0 of 4 vCPU left, 0 in flight, one more needs 4";
    assert_eq!(blocked(&plan), [("pool", None), ("other", Some(lacks))]);
}

#[test]
fn what_is_asked_for_already_is_not_asked_for_by_a_pool_before_it() {
    let mut world = two(4, |policy| policy.pools[1].warm_floor = Some(nodes(1)));
    assert_eq!(raised(&world.pass()), [0, 1]);
    // The autoscaler may be about to ask.
    world.numbers(|policy| policy.pools[0].warm_floor = Some(nodes(1)));
    for _ in 0..3 {
        assert_eq!(raised(&world.pass()), [0, 1]);
    }
}

#[test]
fn min_nodes_come_before_floors_and_share_what_is_left_too() {
    let mut world = two(4, |policy| {
        policy.pools[0].warm_floor = Some(nodes(1));
        policy.pools[1].limits.min_nodes = 3;
    });
    let plan = world.pass();
    assert_eq!(raised(&plan), [0, 1]);
    assert!(blocked(&plan)[0].1.is_some_and(|why| why.starts_with("quota Q-OD r: 0 of 4 vCPU left")), "{:?}", blocked(&plan));
}

#[test]
fn what_there_is_for_all_is_asked_for_by_all() {
    let mut world = two(12, |policy| policy.pools.iter_mut().for_each(|pool| pool.warm_floor = Some(nodes(2))));
    assert_eq!(raised(&world.pass()), [2, 1]);
    settle(&mut world);
    let floors = &world.pass().accounts.floors.clone();
    assert_eq!(floors.iter().map(|floor| floor.warm).collect::<Vec<_>>(), [2, 1]);
}
