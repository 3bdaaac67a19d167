//! Warm floors: what is wanted, how it comes, and what happens where it does not.

mod back;
mod buffers;
mod doubtful;
mod own;
mod runs;
mod shared;
mod types;

use std::sync::Arc;

use jiff::Timestamp;

use super::world::{GROUP_A, GROUP_B, World, book, minutes, place, policy, seconds, start};
use crate::base::calendar::{Cron, OffHours, Slot, Zone};
use crate::base::ids::{Cloud, InstanceType, PoolName, SignalName};
use crate::base::units::{Milli, Percent, UsdPerHour};
use crate::facts::snapshot::Cordon;
use crate::facts::supply::RefusalKind;
use crate::market::offer::{CapacityType, InstanceSpec, Market, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::plan::Closed;
use crate::policy::Policy;
use crate::policy::rules::demand::{Amount, NoLevel, PoolDemand, SignalLevel};
use crate::policy::rules::stabilization::Stabilization;
use crate::policy::rules::warm_floor::{Quantile, WarmFloor};
use crate::state::memory::Backoff;

/// A pool that buys on demand, at $0.80 in either zone, and keeps this floor.
pub(super) fn with(floor: WarmFloor) -> World {
    with_policy(|policy| policy.pools[0].warm_floor = Some(floor))
}

fn with_policy(change: impl FnOnce(&mut Policy)) -> World {
    with_book(book(start()), change)
}

/// The same at other prices.
fn with_book(book: PriceBook, change: impl FnOnce(&mut Policy)) -> World {
    let mut policy = policy();
    policy.pools[0].prefer = vec![CapacityType::OnDemand];
    // Free nodes go at once unless the floor keeps them.
    let none = jiff::SignedDuration::ZERO;
    let usual = Stabilization::of(policy.pools[0].workload);
    policy.pools[0].stabilization = Some(Stabilization { scale_down: none, minimum_life: none, after_scale_up: none, ..usual });
    change(&mut policy);
    World::over(policy, book)
}

pub(super) fn nodes(nodes: u32) -> WarmFloor {
    WarmFloor { nodes, ..WarmFloor::default() }
}

fn slot(cron: &str, zone: &str, hours: i64) -> Slot {
    Slot { cron: Cron::parse(cron).unwrap(), time_zone: Zone::parse(zone).unwrap(), length: minutes(60 * hours) }
}

/// The floor comes up as it does with an autoscaler that enforces minimums and markets that sell.
pub(super) fn settle(world: &mut World) {
    for _ in 0..4 {
        world.pass();
        world.enforce_minimums();
        world.pass();
        world.answer(|_| true);
        world.pass();
        world.observe();
        world.join_new();
        world.pass();
    }
}

/// By how many nodes the autoscaler is to raise each group.
fn rises(world: &World) -> (u32, u32) {
    (rise(world, GROUP_A), rise(world, GROUP_B))
}

fn rise(world: &World, group: &str) -> u32 {
    world.limits(group).min.saturating_sub(world.target(group))
}

/// Wanted, warm and coming.
fn stands(world: &World) -> (u32, u32, u32) {
    let floor = world.floor();
    (floor.wanted, floor.warm, floor.coming)
}

#[test]
fn a_floor_comes_up_through_min_size_and_stays() {
    let mut world = with(nodes(2));
    world.pass();
    // Nothing is bought for it before the autoscaler asks. Both zones cost the same, so the tie goes to the first.
    let limits = world.limits(GROUP_A);
    assert_eq!((limits.target, limits.min, world.limits(GROUP_B).min), (0, 2, 0));
    assert_eq!(stands(&world), (2, 0, 0));
    // 2 × $0.80 an hour.
    assert_eq!((world.floor().usd_per_hour, world.floor().why.as_str()), (UsdPerHour(1_600_000), "nodes"));
    assert_eq!((world.floor().unmet_since, world.floor().blocked.as_deref()), (Some(start()), None));
    world.enforce_minimums();
    let plan = world.pass();
    assert_eq!(World::launched_markets(&plan).len(), 2);
    assert_eq!(stands(&world), (2, 0, 2));
    settle(&mut world);
    assert_eq!(stands(&world), (2, 2, 0));
    assert_eq!((world.target(GROUP_A), world.limits(GROUP_A).min, world.target(GROUP_B)), (2, 2, 0));
    assert_eq!((world.floor().unmet_since, world.floor().usd_per_hour), (None, UsdPerHour(1_600_000)));
    assert!(world.memory.records.values().all(|record| record.floor));
}

#[test]
fn a_warm_node_that_a_pod_takes_is_bought_again_at_once() {
    let mut world = with(nodes(2));
    settle(&mut world);
    world.pods_on("node-0", &["a/job"]);
    world.pass();
    // One at work and two warm ones: one more than there are.
    assert_eq!((world.target(GROUP_A), world.limits(GROUP_A).min), (2, 3));
    settle(&mut world);
    assert_eq!((world.target(GROUP_A), stands(&world)), (3, (2, 2, 0)));
    // The pod ends: three are free, two are kept, and which goes is the autoscaler's to choose.
    world.pods_on("node-0", &[]);
    world.pass();
    assert_eq!((world.limits(GROUP_A).min, stands(&world)), (2, (2, 3, 0)));
}

#[test]
fn nothing_is_bought_for_a_warm_node_whose_kubelet_is_away_for_a_moment() {
    let mut world = with(nodes(2));
    settle(&mut world);
    // Pods had asked for them, and have gone.
    world.memory.records.values_mut().for_each(|record| Arc::make_mut(record).floor = false);
    world.set_ready(0, None);
    world.pass();
    // One is warm, and one was: both are kept, and none is asked for above the two that there are.
    assert_eq!((world.target(GROUP_A), world.limits(GROUP_A).min, world.limits(GROUP_B).min), (2, 2, 0));
}

#[test]
fn nodes_on_their_way_for_pods_are_not_counted_on() {
    let mut world = with(nodes(1));
    settle(&mut world);
    // A pod takes the warm node, and two more ask for nodes of their own before the floor can.
    world.pods_on("node-0", &["a/job"]);
    world.pass();
    world.increase(GROUP_B, 2);
    world.pass();
    assert_eq!((stands(&world), world.limits(GROUP_A).min, world.target(GROUP_A)), ((1, 0, 0), 2, 1));
    settle(&mut world);
    // They came and stand free for now: nothing more is bought, and one of the free ones is kept.
    assert_eq!((world.target(GROUP_A) + world.target(GROUP_B), stands(&world).1), (4, 3));
    world.pods_on("node-1", &["a/two"]);
    world.pods_on("node-2", &["a/three"]);
    world.pass();
    assert_eq!(stands(&world), (1, 1, 0));
}

#[test]
fn a_floor_that_meets_a_stock_out_moves_to_another_group_at_once() {
    let mut world = with(nodes(2));
    world.pass();
    world.enforce_minimums();
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    world.pass();
    let (a, b) = (world.limits(GROUP_A), world.limits(GROUP_B));
    assert!(matches!(a.closed, Some(Closed::Offers(_))));
    // What failed stays in the target until the autoscaler has seen it, and asks for nothing more there.
    assert_eq!(((a.target, a.min, a.max), (b.target, b.min)), ((2, 0, 2), (0, 2)));
    // Both have failed: the floor waits, and says what for.
    world.enforce_minimums();
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    world.pass();
    assert_eq!((world.limits(GROUP_A).min, world.limits(GROUP_B).min), (0, 0));
    let blocked = world.floor().blocked.clone().unwrap();
    assert!(blocked.contains("market returned") && blocked.contains("backing off until 00:06:00Z"), "{blocked}");
    // A market on trial takes one launch: each zone is asked for one.
    world.advance(minutes(6));
    world.observe();
    world.pass();
    assert_eq!(rises(&world), (1, 1));
}

/// The autoscaler asks one group after the other by what it read before the first: an order changes nothing of what the others are raised by.
#[test]
fn what_is_asked_of_one_group_moves_nothing_between_the_others() {
    let mut world = with_policy(|policy| policy.pools[0].prefer = vec![CapacityType::Spot, CapacityType::OnDemand]);
    // Of each zone's spot one node is tried; what more a zone could have is on demand.
    for zone in ["zone-a", "zone-b"] {
        let spot = Market { place: place(zone), capacity_type: CapacityType::Spot };
        let refused = Backoff::after(None, RefusalKind::OutOfCapacity, "no stock".into(), None, world.now);
        world.memory.refused.insert(spot, Arc::new(refused));
    }
    world.advance(minutes(6));
    world.observe();
    world.policy(|policy| policy.pools[0].warm_floor = Some(nodes(2)));
    world.pass();
    assert_eq!(rises(&world), (1, 1));
    world.increase(GROUP_A, 1);
    world.pass();
    assert_eq!((rises(&world), stands(&world)), ((0, 1), (2, 0, 1)));
    world.increase(GROUP_B, 1);
    world.pass();
    assert_eq!((rises(&world), stands(&world)), ((0, 0), (2, 0, 2)));
}

#[test]
fn the_group_that_was_raised_stays_so_while_it_can() {
    let mut world = with(nodes(1));
    world.pass();
    assert_eq!((world.limits(GROUP_A).min, world.limits(GROUP_B).min), (1, 0));
    // The other becomes cheaper while the autoscaler may be about to ask: were it raised, both would be bought.
    world.price("zone-b", CapacityType::OnDemand, UsdPerHour(700_000));
    world.pass();
    assert_eq!((world.limits(GROUP_A).min, world.limits(GROUP_B).min), (1, 0));
    settle(&mut world);
    assert_eq!((world.target(GROUP_A), world.target(GROUP_B)), (1, 0));
}

#[test]
fn unused_commitments_come_first() {
    let mut world = with_policy(|policy| {
        policy.pools[0].warm_floor = Some(nodes(3));
        policy.commitments = crate::testing::commitments(&serde_json::json!([
            { "name": "ri", "cloud": "aws", "kind": "reserved-instance", "region": "r", "zone": "zone-b",
              "instanceType": "gpu.1", "nodes": 2, "usdPerHour": 0.5 },
        ]));
    });
    world.pass();
    // Two in zone b cost nothing more; for the third both zones cost the same, and the tie goes to the first.
    assert_eq!((world.limits(GROUP_A).min, world.limits(GROUP_B).min), (1, 2));
}

#[test]
fn a_floor_above_quota_gets_what_there_is_and_says_what_lacks() {
    // A node has 4 vCPUs: room for two.
    let mut world = with_policy(|policy| {
        policy.pools[0].warm_floor = Some(nodes(3));
        policy.quotas[1].limit = 8;
    });
    world.pass();
    assert_eq!(world.limits(GROUP_A).min + world.limits(GROUP_B).min, 2);
    assert!(world.floor().blocked.as_deref().unwrap().contains("quota Q-OD"), "{:?}", world.floor());
    settle(&mut world);
    assert_eq!(stands(&world), (3, 2, 0));
    assert!(world.floor().blocked.as_deref().unwrap().contains("quota Q-OD"), "{:?}", world.floor());
    assert_eq!(world.floor().unmet_since, Some(start()));
}

#[test]
fn nodes_that_nobody_can_use_are_not_bought_for_again_while_they_stay() {
    let mut world = with(nodes(2));
    settle(&mut world);
    world.close(Cordon::Theirs);
    settle(&mut world);
    assert_eq!((world.target(GROUP_A), stands(&world)), (2, (2, 0, 0)));
    assert!(world.floor().blocked.as_deref().unwrap().starts_with("2 nodes are unhealthy, cordoned, or silent"));
}

#[test]
fn min_nodes_and_a_floor_are_not_bought_twice() {
    let mut world = with_policy(|policy| {
        policy.pools[0].warm_floor = Some(nodes(2));
        policy.pools[0].limits.min_nodes = 3;
    });
    world.pass();
    assert_eq!(world.limits(GROUP_A).min + world.limits(GROUP_B).min, 3);
    settle(&mut world);
    assert_eq!(world.target(GROUP_A) + world.target(GROUP_B), 3);
    // Two at work, one warm: the floor wants one more.
    world.pods_on("node-0", &["a/one"]);
    world.pods_on("node-1", &["a/two"]);
    settle(&mut world);
    assert_eq!((world.target(GROUP_A) + world.target(GROUP_B), stands(&world)), (4, (2, 2, 0)));
}

/// The group of machines of four GPUs.
const LARGE: &str = "pool.gpu-4.zone-a";

/// The usual prices, and machines of four GPUs in zone a.
fn with_large(price: i64) -> PriceBook {
    let mut book = book(start());
    let large = InstanceType::new("gpu.4").unwrap();
    let known = book.spec(&Cloud::new("aws").unwrap(), &InstanceType::new("gpu.1").unwrap()).unwrap();
    let mut spec = InstanceSpec::clone(known);
    (spec.instance_type, spec.gpus) = (large.clone(), Milli(4000));
    book.insert_spec(spec);
    let place = Place { instance_type: large, ..place("zone-a") };
    let quote = Quote { price: UsdPerHour(price), kind: QuoteKind::List, as_of: Some(start()), source: Arc::from("test") };
    book.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote));
    book
}

/// A machine of four GPUs costs $2 an hour, so half of the other's price a GPU, and more than the other.
#[test]
fn min_nodes_and_a_floor_are_bought_by_the_price_of_a_node() {
    for of_a_floor in [false, true] {
        let mut policy = policy();
        let pool = &mut policy.pools[0];
        pool.prefer = vec![CapacityType::OnDemand];
        if of_a_floor {
            pool.warm_floor = Some(nodes(1));
        } else {
            pool.limits.min_nodes = 1;
        }
        let mut world = World::over(policy, with_large(2_000_000));
        world.pass();
        assert_eq!((world.limits(GROUP_A).min, world.limits(LARGE).min), (1, 0), "{of_a_floor}");
    }
}

#[test]
fn a_share_of_the_busy_ones_is_rounded_up() {
    let mut world = with(WarmFloor { percent_of_busy: Some(Percent(40)), ..WarmFloor::default() });
    world.pass();
    assert_eq!(stands(&world), (0, 0, 0));
    world.increase(GROUP_A, 3);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join_new();
    for node in ["node-0", "node-1", "node-2"] {
        world.pods_on(node, &["a/job"]);
    }
    world.pass();
    // 40 % of 3 are 1.2.
    assert_eq!((stands(&world), world.floor().why.as_str()), ((2, 0, 0), "percentOfBusy: 40% of 3 busy nodes"));
    // Those that are warm do not count as at work.
    settle(&mut world);
    assert_eq!(stands(&world), (2, 2, 0));
}

/// In Berlin the clocks go back on 25 October 2026: the night from 22:00 to 8:00 has eleven hours, and ends at 7:00 UTC.
#[test]
fn a_schedule_keeps_to_the_clock_on_the_wall_and_the_most_counts() {
    let schedule = vec![(slot("0 22 * * *", "Europe/Berlin", 10), 2), (slot("0 0 25 10 *", "UTC", 1), 3)];
    let mut world = with(WarmFloor { schedule, ..WarmFloor::default() });
    let mut at = |time: &str| {
        world.now = time.parse().unwrap();
        world.observe();
        let snapshot = world.snapshot();
        let next = super::decide(&snapshot, &world.memory, &world.catalogue, world.now).next_change_at.unwrap();
        world.pass();
        (world.floor().wanted, world.limits(GROUP_A).min, next)
    };
    let time = |text: &str| -> Timestamp { text.parse().unwrap() };
    assert_eq!(at("2026-10-24T19:59:00Z"), (0, 0, time("2026-10-24T20:00:00Z")));
    let (wanted, min, _) = at("2026-10-24T20:00:00Z");
    assert_eq!((wanted, min), (2, 2));
    assert_eq!((at("2026-10-25T00:30:00Z").0, at("2026-10-25T01:00:00Z").0), (3, 2));
    assert_eq!((at("2026-10-25T06:59:59Z").0, at("2026-10-25T07:00:00Z").0), (2, 0));
}

#[test]
fn off_hours_lower_the_floor_and_close_the_pool_but_end_nothing() {
    // start() is a Sunday, 0:00 UTC.
    let off = OffHours { slots: vec![slot("0 1 * * *", "UTC", 5)], max_nodes: Some(1), evict_held_after: None };
    let mut world = with_policy(|policy| {
        policy.pools[0].warm_floor = Some(nodes(2));
        policy.pools[0].off_hours = Some(off);
    });
    settle(&mut world);
    world.pods_on("node-0", &["a/job"]);
    settle(&mut world);
    assert_eq!((world.target(GROUP_A), stands(&world)), (3, (2, 2, 0)));
    let snapshot = world.snapshot();
    let next = super::decide(&snapshot, &world.memory, &world.catalogue, world.now).next_change_at;
    assert!(next.is_some_and(|next| next <= start() + minutes(60)), "{next:?}");
    world.advance(minutes(60));
    world.observe();
    let plan = world.pass();
    // One is at work, so none may be warm: that is no lack, and nothing is ended or closed for it.
    assert!(plan.actions.iter().all(|action| !matches!(action, super::Action::Terminate { .. } | super::Action::Drain { .. })));
    assert_eq!((stands(&world), world.floor().unmet_since, world.floor().blocked.as_deref()), ((0, 2, 0), None, None));
    assert_eq!(world.floor().why, "offHours.maxNodes 1 until 2026-11-01 06:00Z");
    assert_eq!((world.limits(GROUP_A).min, world.limits(GROUP_A).max), (1, 3));
    let refused = world.try_increase(GROUP_B, 1).unwrap_err().to_string();
    assert!(refused.contains("offHours.maxNodes: 3 of 1 nodes in use"), "{refused}");
    // In the morning all is as before.
    world.advance(minutes(5 * 60));
    world.observe();
    world.pass();
    assert_eq!((stands(&world), world.limits(GROUP_A).min), ((2, 2, 0), 3));
}

fn says(world: &mut World, level: SignalLevel) {
    let demand = PoolDemand { signals: [(SignalName::new("queue").unwrap(), level)].into() };
    world.demand = [(PoolName::new("pool").unwrap(), std::sync::Arc::new(demand))].into();
}

#[test]
fn signals_ask_for_the_nodes_that_missing_replicas_fill() {
    let mut world = with(WarmFloor { signals: true, ..WarmFloor::default() });
    let known = |replicas| SignalLevel::Known { amount: Amount(0), replicas, at: start() };
    let unknown = SignalLevel::Unknown { why: NoLevel::TimedOut, since: start() };
    says(&mut world, unknown.clone());
    world.pass();
    assert_eq!(stands(&world), (0, 0, 0));
    // A node has one GPU, so none knows better than that a replica takes one.
    says(&mut world, known(2));
    settle(&mut world);
    assert_eq!((stands(&world), world.floor().why.as_str()), ((2, 2, 0), "signals"));
    // Two replicas to a node, as it turns out: of six, two run, and the other four fill two more nodes.
    world.pods_on("node-0", &["a/one", "a/two"]);
    says(&mut world, known(6));
    world.pass();
    assert_eq!((stands(&world), world.limits(GROUP_A).min), ((2, 1, 0), 3));
    // Prometheus is away: the need is not less for it.
    says(&mut world, unknown);
    world.pass();
    assert_eq!(stands(&world), (2, 1, 0));
    says(&mut world, known(2));
    world.pass();
    assert_eq!(stands(&world), (0, 1, 0));
}

#[test]
fn the_past_tells_how_many_come_at_once() {
    let quantile = Quantile { p: Some(Percent(90)), window: minutes(2 * 24 * 60), horizon: Some(minutes(10)) };
    let mut world = with(WarmFloor { quantile: Some(quantile), ..WarmFloor::default() });
    // A day in stretches of ten minutes. In each of the first thirty two nodes are ordered for pods, which have them till the stretch ends.
    for stretch in 0..144 {
        world.observe();
        world.pass();
        if stretch < 30 {
            world.increase(GROUP_A, 2);
            world.pass();
            world.answer(|_| true);
            world.pass();
            world.observe();
            world.join_new();
            let names: Vec<String> = world.nodes().into_keys().collect();
            // Ready and free for a moment before the pods come: that is the arrival which was counted when they were ordered.
            world.pass();
            for name in &names {
                world.pods_on(name, &["a/job"]);
            }
            world.pass();
            assert_eq!(world.floor().wanted, 0);
            world.lose_machine();
            world.observe();
            world.leave();
        }
        world.advance(minutes(10));
    }
    world.observe();
    world.advance(seconds(40));
    world.observe();
    world.pass();
    // Of 144 stretches, 114 had none, which is less than nine in ten: two.
    assert_eq!((world.floor().wanted, world.floor().why.as_str()), (2, "quantile: as many were needed within its horizon"));
    // Waiting at $0.10 and idling at $0.80 make one in nine: nothing is kept.
    world.numbers(|policy| {
        policy.pools[0].waiting = UsdPerHour(100_000);
        let quantile = Quantile { p: None, ..quantile };
        policy.pools[0].warm_floor = Some(WarmFloor { quantile: Some(quantile), ..WarmFloor::default() });
    });
    // What was worked out stands until the next stretch.
    world.pass();
    assert_eq!(world.floor().wanted, 2);
    world.advance(minutes(10));
    world.observe();
    world.pass();
    assert_eq!(world.floor().wanted, 0);
}
