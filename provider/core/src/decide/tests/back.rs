//! What a move back to spot comes to.

use std::sync::Arc;

use super::world::{GROUP_A, GROUP_B, World, minutes, place, policy, start};
use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region};
use crate::base::kinds::ReturnToSpot;
use crate::base::units::{MiB, Milli, Percent, UsdMicros, UsdPerHour};
use crate::catalogue::group::Group;
use crate::choose::rank::Scales;
use crate::choose::spot_return::{DWELL, Move, Running, SpotReturn, has_settled};
use crate::facts::supply::{InstanceState, RefusalKind};
use crate::limits::usage::Usage;
use crate::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::market::transfer::Transfer;
use crate::policy::Isolation;
use crate::policy::rules::commitment::{Commitment, CommittedNodes, Terms};
use crate::policy::rules::spot::Saving;
use crate::state::memory::{FIRST_BACKOFF, LONGEST_BACKOFF};
use crate::state::spot_history::{LEFT_ALONE, SpotHistory};

/// A world with on-demand nodes in zone a that were bought when spot could not be had, took 5 min to boot, and have had pods.
pub(super) fn fallen_back(nodes: i32) -> World {
    // Zone b's spot is cheaper, and out of the way of these tests.
    fall_back(World::in_zone_a(), nodes)
}

fn fall_back(mut world: World, nodes: i32) -> World {
    world.increase(GROUP_A, nodes);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    assert_eq!(World::launched_markets(&world.pass()), vec!["on-demand"; usize::try_from(nodes).unwrap()]);
    world.answer(|_| true);
    world.pass();
    world.advance(minutes(5));
    world.observe();
    world.join(true);
    world.bind_pod();
    world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().return_to_spot = ReturnToSpot::Busy);
    world.pass();
    world
}

fn weighed(world: &World, busy: bool, work: bool) -> Option<Move> {
    let usage = Usage::count(&world.memory, &world.catalogue, Wall(world.now));
    let fresh = |_: &Group| true;
    let scales = Scales {
        catalogue: &world.catalogue,
        memory: &world.memory,
        usage: &usage,
        fresh: &fresh,
        times: Times::at(world.now),
    };
    let record = world.records(GROUP_A).next().unwrap();
    let running = Running::of(&world.memory, &world.catalogue);
    let spot =
        SpotReturn::of(&world.catalogue.policy.pools[0], &world.catalogue, &world.memory, &running, Times::at(world.now))?;
    spot.weigh(&scales, record, busy, work)
}

fn wait(world: &mut World, mins: i64) {
    world.advance(minutes(mins));
    world.observe();
    world.pass();
}

/// Spot is $0.30 and worth $0.3273 (0.16 reclaims an hour), on demand it is $0.80: $0.4727 an hour, times the 60 % of the time that a
/// market has room. The move costs 5 min of boot, 15 min of work done again and 5 min of restart, at $0.30: $0.125, which 26.4 min earn.
#[test]
fn a_busy_node_moves_when_what_it_saves_outweighs_the_move() {
    let mut world = fallen_back(1);
    // Refused at minute 0, left alone for 3 min, forgotten after 30 more. The node was Ready at minute 5.
    let quiet = (FIRST_BACKOFF + LONGEST_BACKOFF).as_mins();
    wait(&mut world, quiet - 5 - 1);
    assert_eq!(weighed(&world, true, true), None);
    wait(&mut world, 1);
    let found = weighed(&world, true, true).expect("it pays");
    // 28 minutes: $0.472727 × 28 ÷ 60 = $0.220606, × 60 %.
    assert_eq!((found.gain, found.cost), (UsdMicros(132_360), UsdMicros(125_000)));
    assert_eq!(found.market.to_string(), "aws/zone-a/gpu.1/spot");
    // What nobody needs loses nothing by going, and a floor waits for the boot alone.
    assert_eq!(weighed(&world, false, false).map(|found| found.cost), Some(UsdMicros(0)));
    assert_eq!(weighed(&world, false, true).map(|found| found.cost), Some(UsdMicros(25_000)));
}

/// A node away from its data reads it for $0.06, once a day $0.0025 an hour. The spot node that takes its place reads at once, and with
/// every reclaim: 0.16 × $0.06 + $0.0025 = $0.0121 an hour, so spot is worth ($0.30 + $0.0121) ÷ 0.9167 = $0.3405, and saves $0.4620.
#[test]
fn data_that_the_new_node_reads_is_a_cost_of_the_move() {
    let mut world = fallen_back(1);
    let transfer = Transfer { per_read: UsdMicros(60_000), every: minutes(24 * 60) };
    Arc::make_mut(world.catalogue.groups.get_mut(&World::group(GROUP_A)).unwrap()).transfer = Some(transfer);
    wait(&mut world, 40);
    // 40 min save $0.3080, × 60 % = $0.1848, and the move costs $0.125 + $0.06.
    assert_eq!(weighed(&world, true, true), None);
    wait(&mut world, 1);
    let found = weighed(&world, true, true).expect("41 min save $0.3157");
    assert_eq!((found.gain, found.cost), (UsdMicros(189_420), UsdMicros(185_000)));
}

#[test]
fn only_work_that_saves_checkpoints_moves() {
    let mut world = fallen_back(1);
    wait(&mut world, 60 * 24);
    assert!(weighed(&world, true, true).is_some());
    // Of a market that has proved safe: work that is lost whole is not worth a place in others.
    let history = SpotHistory { exposure: 400 * 3_600, ..SpotHistory::begun(world.now) };
    world.memory.spot.insert(place("zone-a"), Arc::new(history));
    for saving in [Saving::Stateless, Saving::Nothing] {
        world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().saving = saving);
        assert_eq!(weighed(&world, true, true), None, "{saving:?}");
        assert!(weighed(&world, false, false).is_some(), "{saving:?}");
    }
}

#[test]
fn a_node_is_not_expected_to_live_longer_on_spot_than_spot_lives() {
    let mut world = fallen_back(1);
    wait(&mut world, 60 * 24);
    // 0.16 reclaims an hour: 6 h 15 min, $2.954544, × 60 %.
    assert_eq!(weighed(&world, true, true).unwrap().gain, UsdMicros(1_772_700));
}

#[test]
fn a_market_that_sells_is_open_and_one_that_reclaimed_must_dwell() {
    let spot = |world: &World| {
        let market = Market { place: place("zone-a"), capacity_type: CapacityType::Spot };
        has_settled(&world.catalogue, &world.memory, &world.catalogue.groups[&World::group(GROUP_A)], &market, None, world.now)
    };
    let mut world = fallen_back(1);
    wait(&mut world, 4);
    assert!(!spot(&world), "refused, and nothing since");
    world.increase(GROUP_A, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
    world.answer(|_| true);
    world.pass();
    assert!(spot(&world), "it has sold");
    world.observe();
    world.join(true);
    world.bind_pod();
    wait(&mut world, 30);
    // It is known to be open, so the gain of 34 min counts whole; half an hour without a reclaim makes it 1.6 in 10.5 h, and the price
    // $0.3 ÷ (1 − 0.152381 ÷ 3 − 3 %) = $0.326369: $0.473631 × 34 ÷ 60.
    assert_eq!(weighed(&world, true, true).unwrap().gain, UsdMicros(268_391));
    // The cloud takes the spot node, the youngest, back.
    world.reclaim(1);
    wait(&mut world, 1);
    assert!(!spot(&world));
    wait(&mut world, (LEFT_ALONE + DWELL).as_mins() - 1);
    assert!(!spot(&world));
    wait(&mut world, 1);
    assert!(spot(&world));
}

/// The fallen back node, and a group of twice its size, of this GPU in this zone. Nothing else is sold.
fn with_a_larger_size(gpu: &str, zone: &str) -> World {
    let mut book = PriceBook::new();
    let sizes = [("gpu.1", "L4", 1, "zone-a"), ("gpu.2", gpu, 2, zone)];
    for (instance_type, model, gpus, zone) in sizes {
        book.insert_spec(InstanceSpec {
            cloud: Cloud::new("aws").unwrap(),
            instance_type: InstanceType::new(instance_type).unwrap(),
            gpu_model: GpuModel::new(model).unwrap(),
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(24),
            vcpus: Some(4),
            memory: Some(MiB::from_gib(16)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        let place = Place { instance_type: InstanceType::new(instance_type).unwrap(), ..place(zone) };
        for (capacity_type, price) in [(CapacityType::Spot, 300_000), (CapacityType::OnDemand, 800_000)] {
            let market = Market { place: place.clone(), capacity_type };
            let price = UsdPerHour(price * i64::from(gpus));
            let quote = Quote { price, kind: QuoteKind::List, as_of: Some(start()), source: Arc::from("test") };
            book.insert(market, Entry::Price(quote));
        }
    }
    let mut policy = policy();
    policy.pools[0].models = [GpuModel::new("L4").unwrap(), GpuModel::new("A10G").unwrap()].into();
    fall_back(World::over(policy, book), 1)
}

/// A node of the larger size is sold at minute 5, when the smaller one's market has been left alone for its 3 min. At minute 32 the
/// node has served 27 min, which save $0.4727 × 27 ÷ 60 = $0.2127, × 60 % as nothing of Stoker's runs in its own market: more than the $0.125
/// of the move. Without the sale it would take until minute 33 for the refusal to be forgotten.
#[test]
fn a_market_that_refused_is_open_again_when_another_size_of_its_gpu_is_sold_in_its_zone() {
    let larger = |zone: &str| format!("pool.gpu-2.{zone}");
    let sell = |world: &mut World, zone: &str| {
        world.increase(&larger(zone), 1);
        assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
        world.answer(|_| true);
        world.pass();
        world.observe();
        world.join(true);
        world.bind_pod();
    };
    for (gpu, zone, opens) in [("L4", "zone-a", true), ("L4", "zone-b", false), ("A10G", "zone-a", false)] {
        let mut world = with_a_larger_size(gpu, zone);
        sell(&mut world, zone);
        wait(&mut world, 27);
        let gain = weighed(&world, true, true).map(|found| found.gain);
        assert_eq!(gain, opens.then_some(UsdMicros(127_620)), "{gpu} in {zone}");
    }
    // The larger one has its notice: the zone shuts again.
    let mut world = with_a_larger_size("L4", "zone-a");
    sell(&mut world, "zone-a");
    wait(&mut world, 26);
    world.set_machine_state(InstanceState::Reclaiming { at: world.now });
    wait(&mut world, 1);
    assert_eq!(weighed(&world, true, true), None);
}

#[test]
fn a_sale_beside_shortens_no_backoff_and_no_dwell() {
    let market = Market { place: place("zone-a"), capacity_type: CapacityType::Spot };
    let at = |mins| start().saturating_add(minutes(mins)).unwrap();
    let settled = |world: &World, sold: i64, now: i64| {
        let group = &world.catalogue.groups[&World::group(GROUP_A)];
        has_settled(&world.catalogue, &world.memory, group, &market, Some(at(sold)), at(now))
    };
    let mut world = fallen_back(1);
    // Refused at minute 0, left alone for 3 min.
    assert_eq!([(1, 2), (1, 3), (0, 3)].map(|(sold, now)| settled(&world, sold, now)), [false, true, false]);
    // Machines that did not boot are no matter of stock: what another size sold says nothing of them.
    let refused = world.memory.refused.get_mut(&market).unwrap();
    Arc::make_mut(refused).kind = RefusalKind::BootTimeout;
    assert!(!settled(&world, 1, 3));
}

#[test]
fn a_policy_may_forbid_it() {
    let mut world = fallen_back(1);
    wait(&mut world, 60 * 24);
    for (said, idle, busy) in
        [(ReturnToSpot::Never, false, false), (ReturnToSpot::Idle, true, false), (ReturnToSpot::Busy, true, true)]
    {
        world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().return_to_spot = said);
        let moves = (weighed(&world, false, false).is_some(), weighed(&world, true, true).is_some());
        assert_eq!(moves, (idle, busy), "{said:?}");
    }
}

#[test]
fn a_node_that_a_commitment_pays_for_saves_nothing_by_going() {
    let mut world = fallen_back(1);
    wait(&mut world, 60 * 24);
    world.policy(|policy| {
        let terms = Terms::Nodes(CommittedNodes {
            instance_type: InstanceType::new("gpu.1").unwrap(),
            region: Region::new("r").unwrap(),
            zone: None,
            nodes: 1,
            rate: UsdPerHour(500_000),
        });
        let cloud = Cloud::new("aws").unwrap();
        policy.commitments = vec![Commitment { name: "ri".into(), cloud, from: None, until: None, terms }];
    });
    assert_eq!(weighed(&world, false, false), None);
}

#[test]
fn waiting_is_a_cost_where_the_pool_says_what_it_is() {
    let mut world = fallen_back(1);
    world.policy(|policy| policy.pools[0].isolation = Some(Isolation { max_cost_ratio: Milli(1000) }));
    // 25 min at $0.30 + $2: $0.9583, which $0.2836 an hour earn in 3 h 23 min.
    wait(&mut world, 3 * 60 + 22);
    assert_eq!(weighed(&world, true, true), None);
    wait(&mut world, 2);
    assert_eq!(weighed(&world, true, true).unwrap().cost, UsdMicros(958_333));
}

#[test]
fn a_full_pool_has_the_room_that_the_node_leaves() {
    let mut world = fallen_back(1);
    wait(&mut world, 60);
    world.policy(|policy| policy.pools[0].limits.max_nodes = 1);
    wait(&mut world, 1);
    assert!(weighed(&world, true, true).is_some());
    // And no other zone's: nothing of this test may rest on zone b.
    assert_eq!(world.target(GROUP_B), 0);
}

/// One spot node of two is half, but its successor would be the only node then.
#[test]
fn a_share_is_counted_without_the_node_that_goes() {
    for (nodes, moves) in [(1, false), (2, true)] {
        let mut world = fallen_back(nodes);
        wait(&mut world, 60);
        assert!(weighed(&world, true, true).is_some());
        world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().max_share = Percent(50));
        wait(&mut world, 1);
        assert_eq!(weighed(&world, true, true).is_some(), moves, "{nodes}");
    }
}
