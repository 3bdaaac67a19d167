//! Spot: what a reclaim changes, how shares bind, and when spot is too expensive.

use super::oracle::Dice;
use super::world::{GROUP_A, GROUP_B, World, minutes, place};
use super::*;
use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::PoolName;
use crate::base::units::{Milli, Percent, Ppm, UsdPerHour};
use crate::choose::candidate::{Barred, OfferVerdict};
use crate::choose::what_if::what_if;
use crate::facts::supply::InstanceState;
use crate::market::offer::CapacityType;
use crate::policy::Pool;
use crate::policy::rules::spot::{Saving, SpotRules};
use crate::state::spot_history::{EXPOSURE_STEP, LEFT_ALONE, SpotHistory};

fn spot(pool: &mut Pool) -> &mut SpotRules {
    pool.spot.as_mut().unwrap()
}

/// What a pass buys when so many nodes of a group are asked for.
fn buys(world: &mut World, group: &str, nodes: i32) -> Vec<&'static str> {
    world.increase(group, nodes);
    let plan = world.pass();
    let markets = World::launched_markets(&plan);
    world.answer(|_| true);
    world.pass();
    markets
}

/// Why the spot offer of a group may not be bought now.
fn barred(world: &World, group: &str) -> String {
    let id = World::group(group);
    let told = what_if(&world.catalogue, &world.memory, &PoolName::new("pool").unwrap(), Some(&id), 1, Times::at(world.now));
    let spot = told.candidates.iter().find(|c| c.market.capacity_type == CapacityType::Spot).unwrap();
    match &spot.verdict {
        OfferVerdict::Barred(why) => why.to_string(),
        other => format!("not barred: {other}"),
    }
}

fn lose_all(world: &mut World) {
    world.advance(minutes(1));
    world.lose_machine();
    world.observe();
    world.pass();
}

#[test]
fn a_reclaim_leaves_its_market_alone_for_five_minutes_and_no_other() {
    let mut world = World::with_node(GROUP_A, true);
    lose_all(&mut world);
    assert_eq!(barred(&world, GROUP_A), "a node was reclaimed here at 00:01:00Z; backing off until 00:06:00Z");
    let decision = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now);
    assert!(decision.next_change_at.is_some_and(|at| at <= world.now + LEFT_ALONE));
    assert_eq!(buys(&mut world, GROUP_A, 1), ["on-demand"]);
    assert_eq!(buys(&mut world, GROUP_B, 1), ["spot"]);
    world.advance(LEFT_ALONE);
    world.observe();
    assert_eq!(buys(&mut world, GROUP_A, 1), ["spot"]);
}

#[test]
fn a_notice_is_a_reclaim_and_counts_once() {
    let mut world = World::with_node(GROUP_A, true);
    world.advance(minutes(1));
    let at = world.now + minutes(2);
    world.set_machine_state(InstanceState::Reclaiming { at });
    world.observe();
    world.pass();
    let told = world.memory.spot[&place("zone-a")].clone();
    assert_eq!((told.reclaims, told.event_at), (Milli(1000), Some(world.now)));
    world.pass();
    world.advance(minutes(4));
    world.lose_machine();
    world.observe();
    world.pass();
    let gone = &world.memory.spot[&place("zone-a")];
    assert_eq!((gone.reclaims, gone.event_at, gone.noticed.len()), (told.reclaims, told.event_at, 0));
    // It ran for 5 min.
    assert_eq!(gone.exposure, 300);
}

#[test]
fn a_noticed_node_that_is_deleted_in_time_is_forgotten_and_its_reclaim_is_not() {
    let mut world = World::with_node(GROUP_A, true);
    let at = world.now + minutes(2);
    world.set_machine_state(InstanceState::Reclaiming { at });
    world.observe();
    world.pass();
    let node = world.node_name();
    world.delete(GROUP_A, &[&node]).unwrap();
    lose_all(&mut world);
    let known = &world.memory.spot[&place("zone-a")];
    assert_eq!((known.reclaims, known.noticed.len()), (Milli(1000), 0));
}

#[test]
fn an_on_demand_node_that_goes_is_no_reclaim() {
    let mut world = World::new();
    world.policy(|policy| policy.pools[0].prefer = vec![CapacityType::OnDemand]);
    world.pass();
    assert_eq!(buys(&mut world, GROUP_A, 1), ["on-demand"]);
    world.observe();
    lose_all(&mut world);
    assert_eq!(world.target(GROUP_A), 0);
    assert!(world.memory.spot.is_empty() && world.memory.exposure_at.is_none());
}

#[test]
fn the_sixth_reclaim_within_an_hour_sends_growth_to_on_demand_in_the_whole_region() {
    let mut world = World::new();
    for n in 0..6 {
        assert_eq!(buys(&mut world, GROUP_A, 1), ["spot"], "{n}");
        world.observe();
        lose_all(&mut world);
        world.advance(LEFT_ALONE);
        world.observe();
        world.pass();
    }
    // Six events, six minutes apart; the last at 00:31.
    let why = "more than 5 reclaims within an hour in r: no spot is bought there until 01:31:00Z";
    assert_eq!((barred(&world, GROUP_A).as_str(), barred(&world, GROUP_B).as_str()), (why, why));
    assert_eq!(buys(&mut world, GROUP_B, 1), ["on-demand"]);
    world.advance(minutes(60));
    world.observe();
    world.pass();
    assert_eq!(buys(&mut world, GROUP_B, 1), ["spot"]);
    assert!(world.memory.reclaims.is_empty());
}

#[test]
fn hours_without_a_reclaim_make_a_market_cheaper() {
    let mut world = World::with_node(GROUP_A, true);
    let effective = |world: &World| {
        let group = &world.catalogue.groups[&World::group(GROUP_A)];
        crate::choose::parts::price_parts(&world.catalogue, &world.memory, group, &group.offers[0], Wall(world.now)).unwrap()
    };
    // 0.16 an hour × 20 min = 5.34 % (rounded up), and 3 % for checkpoints: $0.30 ÷ 0.9166.
    let before = effective(&world);
    assert_eq!(before.spot.as_ref().unwrap().useful, Ppm(916_666));
    assert_eq!(before.effective, UsdPerHour(327_273));
    let mut last = world.memory.clone();
    for _ in 0..60 {
        world.advance(EXPOSURE_STEP);
        world.observe();
        world.pass();
        assert_ne!(world.memory, last);
        last = world.memory.clone();
    }
    // The same node 10 h later: 1.6 ÷ (10 + 10) = 0.08 an hour: 2.67 %.
    let after = effective(&world);
    assert_eq!(after.spot.unwrap().useful, Ppm(943_333));
    assert_eq!(world.memory.spot[&place("zone-a")].exposure, 36_000);
    assert_eq!(after.quote.price, before.quote.price, "bills and budgets count the same cash");
}

#[test]
fn spot_that_is_dearer_than_on_demand_is_bought_only_where_on_demand_cannot_be_had() {
    let mut world = World::new();
    world.policy(|policy| spot(&mut policy.pools[0]).saving = Saving::Nothing);
    // (0.4 + 1.6) ÷ (10 + 10) = 0.1 an hour × (5 h + 5 min) = 50.83 %: still $0.61 against $0.80.
    let mut history = SpotHistory::begun(world.now);
    (history.exposure, history.reclaims) = (36_000, Milli(400));
    world.memory.spot.insert(place("zone-a"), Arc::new(history.clone()));
    world.pass();
    assert_eq!(barred(&world, GROUP_A), "not barred: CHOSEN × 1");
    // (1.4 + 1.6) ÷ 20 = 0.15 an hour × 5 h 5 min = 76.25 %: $0.30 ÷ 0.2375.
    history.reclaims = Milli(1_400);
    world.memory.spot.insert(place("zone-a"), Arc::new(history));
    world.pass();
    let why = "spot costs more than on-demand once reclaims are counted: $1.2632 against $0.8000";
    assert_eq!(barred(&world, GROUP_A), why);
    world.increase(GROUP_A, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["on-demand"]);
    world.refuse_all(RefusalKind::OutOfCapacity);
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
}

#[test]
fn only_known_rates_up_to_the_highest_are_accepted() {
    let mut world = World::new();
    let barred_at = |world: &mut World, per_month: Option<u32>| {
        if let Some(share) = per_month {
            world.reclaims("zone-a", Milli(share));
        }
        world.policy(|policy| spot(&mut policy.pools[0]).max_interruption = Some(Percent(10)));
        barred(world, GROUP_A)
    };
    let accepts = "capacity.spot.maxInterruption accepts 10%";
    let unknown = format!("no monthly reclaim rate is published for this market: {accepts}");
    assert_eq!(barred_at(&mut world, None), unknown);
    assert_eq!(barred_at(&mut world, Some(125)), format!("12.5% of nodes are reclaimed a month: {accepts}"));
    assert_eq!(barred_at(&mut world, Some(75)), "not barred: CHOSEN × 1");
}

#[test]
fn no_more_of_the_pool_is_spot_than_its_share() {
    let mut world = World::new();
    world.policy(|policy| spot(&mut policy.pools[0]).max_share = Percent(50));
    world.pass();
    assert_eq!(buys(&mut world, GROUP_A, 4), ["on-demand", "spot", "on-demand", "spot"]);
    assert_eq!(barred(&world, GROUP_A), "capacity.spot.maxShare 50%: 2 of 4 nodes are spot");
    // Over the pool: of five, two in the other zone too.
    assert_eq!(buys(&mut world, GROUP_B, 2), ["on-demand", "spot"]);
}

#[test]
fn no_market_holds_more_of_the_pool_than_its_share() {
    let mut world = World::new();
    world.policy(|policy| spot(&mut policy.pools[0]).max_market_share = Percent(50));
    world.pass();
    // One is always allowed; a half of two is one, of three, rounded up, two.
    assert_eq!(buys(&mut world, GROUP_A, 3), ["spot", "on-demand", "spot"]);
    // A third of four would be more than a half.
    assert_eq!(barred(&world, GROUP_A), "capacity.spot.maxMarketShare 50%: 2 of 3 nodes are in this market");
    // What is asked of the whole pool goes to two markets, evenly.
    let pool = PoolName::new("pool").unwrap();
    let told = what_if(&world.catalogue, &crate::state::memory::Memory::default(), &pool, None, 6, Times::at(world.now));
    let mut chosen: Vec<(String, u32)> = Vec::new();
    for candidate in &told.candidates {
        if let OfferVerdict::Chosen { nodes } = candidate.verdict {
            chosen.push((candidate.market.to_string(), nodes));
        }
    }
    chosen.sort();
    assert_eq!(chosen, [("aws/zone-a/gpu.1/spot".to_owned(), 3), ("aws/zone-b/gpu.1/spot".to_owned(), 3)]);
}

#[test]
fn a_pool_of_spot_alone_grows_as_its_markets_allow() {
    let mut world = World::new();
    world.policy(|policy| {
        policy.pools[0].prefer = vec![CapacityType::Spot];
        spot(&mut policy.pools[0]).max_market_share = Percent(50);
    });
    let plan = world.pass();
    // One of one; with two wanted, a second market must hold the other.
    assert_eq!(plan.limits[&World::group(GROUP_A)].max, 1);
    assert!(world.try_increase(GROUP_A, 2).is_err());
    assert_eq!(buys(&mut world, GROUP_A, 1), ["spot"]);
    let refused = world.try_increase(GROUP_A, 1).unwrap_err().to_string();
    assert!(refused.contains("capacity.spot.maxMarketShare 50%: 1 of 1 nodes are in this market"), "{refused}");
    assert_eq!(buys(&mut world, GROUP_B, 1), ["spot"]);
    assert_eq!(buys(&mut world, GROUP_A, 1), ["spot"]);
}

#[test]
fn shares_are_filled_as_trying_node_by_node_does() {
    for seed in 1..=500_u64 {
        let mut dice = Dice::new(seed);
        let mut world = World::new();
        let (all, market) = (dice.roll(101), dice.roll(100) + 1);
        world.policy(|policy| {
            policy.pools[0].limits.max_nodes = 30;
            policy.quotas.clear();
            let rules = spot(&mut policy.pools[0]);
            rules.max_share = Percent(u8::try_from(all).unwrap());
            rules.max_market_share = Percent(u8::try_from(market).unwrap());
        });
        world.pass();
        let (mut nodes, mut held) = (0_u64, [0_u64; 2]);
        for _ in 0..=dice.roll(4) {
            let zone = usize::try_from(dice.roll(2)).unwrap();
            let asked = dice.roll(6) + 1;
            let got = buys(&mut world, [GROUP_A, GROUP_B][zone], i32::try_from(asked).unwrap());
            for (n, got) in got.iter().enumerate() {
                // The oracle: spot, unless it or its market would then be more than its share.
                nodes += 1;
                let fits = (held[0] + held[1] + 1) * 100 <= all * nodes && held[zone] < (market * nodes).div_ceil(100);
                assert_eq!(*got, if fits { "spot" } else { "on-demand" }, "seed {seed}: node {n} of {asked}, {all}% {market}%");
                held[zone] += u64::from(fits);
            }
        }
    }
}

#[test]
fn a_plan_with_more_spot_than_the_share_does_not_pass_the_check() {
    let mut world = World::new();
    world.increase(GROUP_A, 2);
    let decision = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now);
    let before = world.memory.clone();
    world.policy(|policy| spot(&mut policy.pools[0]).max_share = Percent(50));
    let faults = world.checked(decision, &before, &world.snapshot()).findings;
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["pool pool would have 2 spot nodes of 2, more than 50%"]);
}

#[test]
fn every_bar_of_spot_is_written_and_read_again() {
    let at = World::new().now;
    for why in [
        Barred::Reclaimed { since: at, until: at },
        Barred::RegionReclaims { region: crate::base::ids::Region::new("r").unwrap(), until: at },
        Barred::Interruption { per_month: None, accepted: Percent(5) },
        Barred::DearerThanOnDemand { spot: UsdPerHour(2), on_demand: UsdPerHour(1) },
    ] {
        let text = serde_json::to_string(&why).unwrap();
        assert_eq!(serde_json::from_str::<Barred>(&text).unwrap(), why);
    }
}

#[test]
fn a_machine_that_no_record_has_is_nobodys_reclaim() {
    let mut world = World::with_node(GROUP_A, true);
    let at = world.now + minutes(2);
    world.set_machine_state(InstanceState::Reclaiming { at });
    world.observe();
    // Its pool is gone with its record: nothing of it is known but its key.
    world.memory = crate::state::memory::Memory::default();
    world.policy(|policy| policy.pools[0].name = PoolName::new("other").unwrap());
    for _ in 0..3 {
        world.pass();
    }
    assert!(world.memory.spot.is_empty());
}
