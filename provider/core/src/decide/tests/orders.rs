//! What the autoscaler's calls do: whole or not at all, and never twice.

use super::world::{GROUP_A, GROUP_B, World};
use crate::base::units::Percent;
use crate::decide::orders::OrderRefused;
use crate::facts::supply::RefusalKind;
use crate::state::record::State;

#[test]
fn an_order_beyond_a_limit_is_refused_whole_and_names_the_limit() {
    let mut world = World::new();
    let refused = world.try_increase(GROUP_A, 11).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("{GROUP_A}: 11 nodes requested, 10 possible: limits.maxNodes: 0 of 10 nodes in use")
    );
    assert_eq!(world.target(GROUP_A), 0);
}

#[test]
fn orders_share_the_room_of_their_pool_before_anything_is_bought() {
    let mut world = World::new();
    world.increase(GROUP_A, 6);
    let refused = world.try_increase(GROUP_B, 5).unwrap_err();
    assert!(matches!(refused, OrderRefused::NoRoom { room: 4, .. }), "{refused}");
    world.increase(GROUP_B, 4);
    assert_eq!(world.target(GROUP_A) + world.target(GROUP_B), 10);
}

#[test]
fn a_quota_in_flight_is_a_quota_used() {
    let mut world = World::new();
    world.policy(|policy| {
        policy.pools[0].limits.max_nodes = 100;
        policy.pools[0].limits.max_usd_per_hour = None;
    });
    world.pass();
    // 64 vCPU of either market, 4 a node, and what is wanted counts against both until it is bought.
    world.increase(GROUP_A, 16);
    assert!(world.try_increase(GROUP_B, 1).is_err());
    world.pass();
    assert_eq!(world.bought().count(), 16);
    world.increase(GROUP_B, 16);
    let plan = world.pass();
    assert_eq!(World::launched_markets(&plan).iter().filter(|m| **m == "on-demand").count(), 16);
    assert!(world.try_increase(GROUP_B, 1).is_err());
}

#[test]
fn nonsense_is_refused() {
    let mut world = World::new();
    assert!(matches!(world.try_increase(GROUP_A, 0), Err(OrderRefused::BadDelta(0, _))));
    assert!(matches!(world.try_increase(GROUP_A, i32::MIN), Err(OrderRefused::BadDelta(..))));
    assert!(matches!(world.try_increase("nobody", 1), Err(OrderRefused::UnknownGroup(_))));
}

#[test]
fn a_group_that_the_policy_dropped_is_refused_as_what_it_is() {
    let mut world = World::with_node(GROUP_A, true);
    world.policy(|policy| policy.pools.clear());
    world.pass();
    let refused = world.try_increase(GROUP_A, 1).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "{GROUP_A} cannot grow: it is listed until it is empty, as the policy no longer has it, or its supplier cannot make it any more (see stoker suppliers)"
        )
    );
}

#[test]
fn a_decrease_never_touches_a_machine() {
    let mut world = World::with_node(GROUP_A, true);
    world.increase(GROUP_A, 1);
    world.decrease(GROUP_A, -5);
    assert_eq!(world.target(GROUP_A), 1, "the wanted one goes, the machine stays");
    world.decrease(GROUP_A, -1);
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn the_same_missing_node_cancelled_twice_lowers_the_target_once() {
    let mut world = World::new();
    world.increase(GROUP_A, 2);
    let shown: Vec<String> = world.records(GROUP_A).map(|r| r.shown_id().to_string()).collect();
    world.decrease(GROUP_A, -1);
    let ids: Vec<&str> = shown.iter().map(String::as_str).collect();
    world.delete(GROUP_A, &ids[1..]).unwrap();
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn a_node_named_with_another_group_is_refused() {
    let mut world = World::with_node(GROUP_A, true);
    let node = world.node_name();
    assert!(world.delete(GROUP_B, &[&node]).is_err());
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn what_is_ordered_beyond_a_floor_is_not_for_it_whether_a_pass_came_between_or_not() {
    let mut world = World::new();
    world.policy(|policy| policy.pools[0].limits.min_nodes = 1);
    world.pass();
    let group = [GROUP_A, GROUP_B].into_iter().find(|group| world.limits(group).min == 1).unwrap();
    world.increase(group, 1);
    world.increase(group, 1);
    let floors: Vec<bool> = world.records(group).map(|record| record.floor).collect();
    assert_eq!(floors, [true, false]);
}

#[test]
fn an_order_that_a_limit_stops_fails_by_that_limit_whatever_bars_the_other_markets() {
    let mut world = World::new();
    world.increase(GROUP_A, 1);
    world.policy(|policy| {
        policy.pools[0].spot.as_mut().unwrap().max_interruption = Some(Percent(1));
        policy.quotas.iter_mut().for_each(|quota| quota.limit = 0);
    });
    world.pass();
    let states: Vec<&State> = world.records(GROUP_A).map(|record| &record.state).collect();
    assert!(matches!(states[..], [State::Failed { kind: RefusalKind::QuotaExceeded, .. }]), "{states:?}");
}
