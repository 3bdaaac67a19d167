//! Budgets in whole passes: a node of the world costs $0.80 on demand, $0.30 as spot in zone a and $0.20 in zone b.

use super::alarms::violations;
use super::oracle::Dice;
use super::world::minutes;
use super::*;
use crate::base::ids::{Cloud, PoolName};
use crate::base::units::{Milli, UsdMicros, UsdPerHour};
use crate::check::Violation;
use crate::market::offer::CapacityType;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::policy::rules::commitment::{Capacity, Commitment, Paid, Terms};
use crate::policy::rules::month::MonthBudget;
use crate::state::budget::{BudgetOf, Stage};

pub(super) const OTHER: &str = "other.gpu-1.zone-a";

pub(super) const fn cents(cents: i64) -> UsdPerHour {
    UsdPerHour(cents * 10_000)
}

/// On-demand first, then spot, without quotas.
fn world(change: impl FnOnce(&mut Policy)) -> World {
    let mut world = World::new();
    world.policy(|policy| {
        policy.quotas.clear();
        policy.pools[0].prefer = vec![CapacityType::OnDemand, CapacityType::Spot];
        policy.pools[0].limits.max_nodes = 100;
        policy.pools[0].limits.max_usd_per_hour = None;
        change(policy);
    });
    world.pass();
    world
}

fn without_spot(policy: &mut Policy) {
    policy.pools[0].prefer = vec![CapacityType::OnDemand];
    policy.pools[0].spot = None;
}

/// The pool and its twin `other`.
pub(super) fn two_pools(policy: &mut Policy) {
    let mut other = policy.pools[0].clone();
    other.name = PoolName::new("other").unwrap();
    policy.pools.push(other);
}

fn count(plan: &Plan<Checked>, capacity: &str) -> usize {
    World::launched_markets(plan).into_iter().filter(|one| *one == capacity).count()
}

/// The stages that a pass tells of, and whether each is an alarm.
fn told(plan: &Plan<Checked>) -> Vec<(BudgetOf, Stage, bool)> {
    let stage = |note: &Note| match note {
        Note::Budget { budget, .. } => Some((budget.of.clone(), budget.stage, note.is_alarm())),
        _ => None,
    };
    plan.notes.iter().filter_map(stage).collect()
}

fn why(refused: Result<(), crate::decide::orders::OrderRefused>) -> String {
    refused.unwrap_err().to_string()
}

/// Of $20.00 the first 90 % are $18.00: 22 nodes cost $17.60, the 23rd steps over, to $18.40. Spot of $0.30 goes on to the limit: five
/// are $19.90, and no node is as cheap as the last 10 cents.
#[test]
fn near_its_limit_a_budget_buys_spot_only_and_then_nothing() {
    let mut world = world(|policy| policy.max_usd_per_hour = Some(cents(2_000)));
    world.increase(GROUP_A, 25);
    let plan = world.pass();
    assert_eq!((count(&plan, "on-demand"), count(&plan, "spot")), (23, 2));
    assert_eq!(told(&plan), [(BudgetOf::All, Stage::SpotOnly, true)]);
    let said: Vec<String> = plan.explanations[0].candidates.iter().map(|c| c.verdict.to_string()).collect();
    assert_eq!(said, ["CHOSEN × 23", "CHOSEN × 2"]);
    world.answer(|_| true);
    world.observe();
    assert_eq!(told(&world.pass()), [], "once, not in each pass");
    world.increase(GROUP_A, 3);
    let plan = world.pass();
    assert_eq!((count(&plan, "on-demand"), count(&plan, "spot")), (0, 3));
    let said: Vec<String> = plan.explanations[0].candidates.iter().map(|c| c.verdict.to_string()).collect();
    let kept = "limits.maxUsdPerHour of all pools: $19.0000/h of $20.0000/h spent, only spot is bought from 90% on, until \
                spend is 2 points lower";
    assert_eq!(said, ["CHOSEN × 3", kept]);
    assert_eq!(told(&plan), [(BudgetOf::All, Stage::Spent, true)]);
    assert_eq!(
        plan.notes[0].to_string(),
        "budget of all pools: $19.9000/h of $20.0000/h spent; no node costs as little as the $0.1000/h left: only capacity \
         that commitments already pay for is bought"
    );
    let said = why(world.try_increase(GROUP_B, 1));
    assert!(said.contains("limits.maxUsdPerHour of all pools: $19.9000/h of $20.0000/h spent, one more costs"), "{said}");
}

#[test]
fn a_pool_without_spot_goes_on_to_the_limit() {
    let mut world = world(|policy| {
        without_spot(policy);
        policy.pools[0].limits.max_usd_per_hour = Some(cents(800));
    });
    // 7 of 10 nodes are 70 %, 8 are 80 %, 9 are 90 %, 10 are all of it.
    let pool = BudgetOf::Pool(PoolName::new("pool").unwrap());
    let mut stages = Vec::new();
    world.increase(GROUP_A, 7);
    stages.extend(told(&world.pass()));
    for _ in 0..3 {
        world.increase(GROUP_A, 1);
        stages.extend(told(&world.pass()));
    }
    assert_eq!(stages, [(pool.clone(), Stage::Near, true), (pool, Stage::Spent, true)]);
    assert_eq!(world.target(GROUP_A), 10);
    let said = why(world.try_increase(GROUP_A, 1));
    assert!(said.contains("limits.maxUsdPerHour: $8.0000/h of $8.0000/h spent, one more costs $0.8000/h"), "{said}");
}

#[test]
fn all_pools_share_the_overall_budget_and_keep_their_own() {
    let mut world = world(|policy| {
        without_spot(policy);
        two_pools(policy);
        policy.pools[0].limits.max_usd_per_hour = Some(cents(240));
        policy.max_usd_per_hour = Some(cents(400));
    });
    // Three nodes are the pool's $2.40; two more are the $4.00 of both.
    assert!(why(world.try_increase(GROUP_A, 4)).contains("limits.maxUsdPerHour: $0.0000/h of $2.4000/h"));
    world.increase(GROUP_A, 3);
    world.pass();
    assert!(why(world.try_increase(OTHER, 3)).contains("limits.maxUsdPerHour of all pools: $2.4000/h of $4.0000/h"));
    world.increase(OTHER, 2);
    world.pass();
    assert_eq!((world.target(GROUP_A), world.target(OTHER)), (3, 2));
}

/// Of the $4.00 of both pools $1.60 are kept for `other`: the pool has $2.40, three nodes. `other` may have all.
#[test]
fn what_is_guaranteed_to_a_pool_is_kept_from_the_others() {
    let both = || {
        world(|policy| {
            without_spot(policy);
            two_pools(policy);
            policy.pools[1].limits.guaranteed = cents(160);
            policy.max_usd_per_hour = Some(cents(400));
        })
    };
    let mut world = both();
    let said = why(world.try_increase(GROUP_A, 4));
    let kept = "limits.maxUsdPerHour of all pools: $0.0000/h of $2.4000/h spent, one more costs $0.8000/h, and $1.6000/h are kept \
                for other pools";
    assert!(said.contains(kept), "{said}");
    world.increase(GROUP_A, 3);
    world.pass();
    world.increase(OTHER, 2);
    world.pass();
    assert_eq!((world.target(GROUP_A), world.target(OTHER)), (3, 2));
    let mut world = both();
    world.increase(OTHER, 5);
    world.pass();
    assert_eq!(world.target(OTHER), 5);
}

/// $1,152 in the 720 hours of November are $1.60 an hour, two nodes. One that ran for ten days cost $192 and leaves $960 for 480 hours, $2.00
/// an hour. December has 744 hours: $1.5484.
#[test]
fn a_monthly_budget_is_spread_over_the_hours_left() {
    let month = MonthBudget { limit: UsdMicros(1_152_000_000), pace: Milli(1_000) };
    let mut world = world(|policy| {
        without_spot(policy);
        policy.pools[0].limits.month = Some(month);
    });
    world.bring(1, minutes(5));
    world.bind_pod();
    let said = why(world.try_increase(GROUP_A, 2));
    let of = |spent: &str, left: &str| {
        format!(
            "limits.maxUsdPerMonth of pool pool: {spent} of $1152.00 spent this month, which leaves {left}/h; $0.8000/h spent, one \
             more costs $0.8000/h"
        )
    };
    assert!(said.contains(&of("$0.00", "$1.6000")), "{said}");
    world.live(minutes(10 * 24 * 60));
    let said = why(world.try_increase(GROUP_A, 2));
    assert!(said.contains(&of("$192.00", "$2.0000")), "{said}");
    world.live(minutes(20 * 24 * 60));
    let said = why(world.try_increase(GROUP_A, 1));
    assert!(said.contains(&of("$0.00", "$1.5484")), "{said}");
    // Twice the pace: $3.0967, three nodes.
    world.policy(|policy| policy.pools[0].limits.month = Some(MonthBudget { pace: Milli(2_000), ..month }));
    world.increase(GROUP_A, 2);
    world.pass();
    assert_eq!(world.target(GROUP_A), 3);
}

/// Two orders are taken before a pass: the second sees what the first may cost.
#[test]
fn orders_in_flight_do_not_overdraw_the_budget_together() {
    let mut world = world(|policy| {
        two_pools(policy);
        policy.max_usd_per_hour = Some(cents(240));
    });
    world.increase(GROUP_A, 2);
    // Wanted nodes count at $0.80 each, the most expensive that they may become: $0.80 are left, three spot nodes of $0.20.
    assert!(world.try_increase("other.gpu-1.zone-b", 5).is_err());
    world.increase("other.gpu-1.zone-b", 4);
    world.pass();
    let spent: i64 = world.memory.records.values().filter_map(|r| r.purchase()).map(|p| p.price.0).sum();
    assert!(spent <= 2_400_000, "{spent}");
}

#[test]
fn what_commitments_pay_for_is_bought_whatever_the_budget_says() {
    let mut world = world(|policy| {
        policy.pools[0].prefer = vec![CapacityType::Reserved, CapacityType::OnDemand, CapacityType::Spot];
        policy.max_usd_per_hour = Some(cents(160));
    });
    world.increase(GROUP_A, 2);
    assert_eq!(count(&world.pass(), "on-demand"), 2);
    world.answer(|_| true);
    world.observe();
    world.pass();
    assert!(world.try_increase(GROUP_A, 1).is_err());
    // The limit falls below what is spent, and two nodes come to be kept in zone a.
    world.policy(|policy| {
        let kept = Capacity { place: world::place("zone-a"), nodes: 2, paid: Paid::OnDemand };
        let cloud = Cloud::new("aws").unwrap();
        policy.commitments =
            vec![Commitment { name: "kept".into(), cloud, from: None, until: None, terms: Terms::Capacity(kept) }];
        policy.max_usd_per_hour = Some(cents(100));
    });
    let plan = world.pass();
    assert!(plan.actions.is_empty(), "nothing that runs is ended: {:?}", plan.actions);
    world.increase(GROUP_A, 2);
    assert_eq!(count(&world.pass(), "reserved"), 2);
    assert!(world.try_increase(GROUP_A, 1).is_err());
}

#[test]
fn room_again_is_told_and_is_no_alarm() {
    let mut world = world(|policy| {
        without_spot(policy);
        policy.max_usd_per_hour = Some(cents(160));
    });
    world.increase(GROUP_A, 2);
    assert_eq!(told(&world.pass()), [(BudgetOf::All, Stage::Spent, true)]);
    world.numbers(|policy| policy.max_usd_per_hour = Some(cents(250)));
    assert_eq!(told(&world.pass()), [(BudgetOf::All, Stage::Ample, false)]);
    assert_eq!(told(&world.pass()), []);
}

/// Eight nodes cost $6.40: 80 % of $8.00, 79 % of $8.10, and 77.9 % of $8.21.
#[test]
fn a_stage_is_left_two_points_below_where_it_begins() {
    let mut world = world(|policy| {
        without_spot(policy);
        policy.max_usd_per_hour = Some(cents(800));
    });
    world.increase(GROUP_A, 8);
    assert_eq!(told(&world.pass()), [(BudgetOf::All, Stage::Near, true)]);
    world.numbers(|policy| policy.max_usd_per_hour = Some(cents(810)));
    assert_eq!(told(&world.pass()), []);
    world.numbers(|policy| policy.max_usd_per_hour = Some(cents(821)));
    assert_eq!(told(&world.pass()), [(BudgetOf::All, Stage::Ample, false)]);
    world.numbers(|policy| policy.max_usd_per_hour = Some(cents(810)));
    assert_eq!(told(&world.pass()), [], "it begins at 80 % again");
}

/// 23 nodes cost $18.40: 92 % of $20.00, 89 % of $20.67, and 87.6 % of $21.00.
#[test]
fn what_is_kept_for_spot_is_kept_until_two_points_less_are_spent() {
    let mut world = world(|policy| policy.max_usd_per_hour = Some(cents(2_000)));
    world.increase(GROUP_A, 23);
    assert_eq!(told(&world.pass()), [(BudgetOf::All, Stage::SpotOnly, true)]);
    world.answer(|_| true);
    world.observe();
    world.numbers(|policy| policy.max_usd_per_hour = Some(cents(2_067)));
    world.increase(GROUP_A, 1);
    let plan = world.pass();
    assert_eq!((count(&plan, "on-demand"), count(&plan, "spot")), (0, 1));
    world.numbers(|policy| policy.max_usd_per_hour = Some(cents(2_150)));
    // With the spot node $18.70, 87 % of $21.50.
    assert_eq!(told(&world.pass()), [(BudgetOf::All, Stage::Near, false)]);
    world.increase(GROUP_A, 1);
    assert_eq!(count(&world.pass(), "on-demand"), 1);
}

/// Twelve on-demand nodes bought, and judged by another budget of the fleet.
pub(super) fn judged_after(limit: Option<UsdPerHour>, stage: Option<Stage>) -> Vec<Violation> {
    let mut world = world(|_| ());
    world.memory.budgets.extend(stage.map(|stage| (BudgetOf::All, stage)));
    world.increase(GROUP_A, 12);
    let snapshot = world.snapshot();
    let decision = decide(&snapshot, &world.memory, &world.catalogue, world.now);
    let before = world.memory.clone();
    world.numbers(|policy| policy.max_usd_per_hour = limit);
    violations(world.checked(decision, &before, &snapshot))
}

/// Eleven on-demand nodes cost $8.80, the twelfth $9.60 together.
#[test]
fn the_checker_recounts_budgets() {
    let judged = |limit| judged_after(limit, None);
    assert_eq!(judged(Some(cents(959))), [Violation::TooMuchSpendOverall { micros: 9_600_000, limit: 9_590_000 }]);
    // The twelfth was bought with $8.80 spent: 90 % of $9.77 are $8.793, of $9.80 they are $8.82.
    assert_eq!(judged(Some(cents(977))), [Violation::NotSpot { micros: 8_800_000, limit: 9_770_000 }]);
    assert_eq!(judged(Some(cents(980))), []);
    // Once nothing else is bought, so it is down to 88 %: of $9.80 $8.624, of $10.01 $8.8088.
    let after = Some(Stage::SpotOnly);
    assert_eq!(judged_after(Some(cents(980)), after), [Violation::NotSpot { micros: 8_800_000, limit: 9_800_000 }]);
    assert_eq!(judged_after(Some(cents(1_001)), after), []);
}

/// Random orders, refusals and withdrawals of two pools: no budget is ever overdrawn by growth, whatever order things come in, and where
/// a group refuses one more node for its budget, no offer fits by the rule as it is written.
#[test]
fn no_budget_is_overdrawn_and_none_is_left_while_something_fits() {
    let mut full = 0;
    for seed in 0..150 {
        let mut dice = Dice::new(seed);
        let (own, all) = (200 + 10 * dice.roll(120), 300 + 10 * dice.roll(200));
        let spot = dice.roll(2) == 0;
        let mut world = world(|policy| {
            if !spot {
                without_spot(policy);
            }
            two_pools(policy);
            policy.pools[0].limits.max_usd_per_hour = Some(cents(i64::try_from(own).unwrap()));
            policy.max_usd_per_hour = Some(cents(i64::try_from(all).unwrap()));
        });
        let (own, all) = (i64::try_from(own).unwrap() * 10_000, i64::try_from(all).unwrap() * 10_000);
        for _ in 0..12 {
            let (group, first) = if dice.roll(2) == 0 { (GROUP_A, true) } else { (OTHER, false) };
            let _ = world.try_increase(group, i32::try_from(1 + dice.roll(4)).unwrap());
            world.pass();
            let yes = dice.roll(4) > 0;
            world.answer(|_| yes);
            world.observe();
            world.pass();
            world.answer(|_| yes);
            world.observe();
            world.join(true);
            world.bind_pod();
            world.pass();
            // What could not be had goes, and markets that refused are open again.
            world.decrease(group, -20);
            world.advance(minutes(40));
            world.observe();
            world.pass();
            let spent = |pool: Option<&str>| -> i64 {
                let of = |r: &&std::sync::Arc<crate::state::record::Record>| {
                    pool.is_none_or(|pool| r.group.as_str().starts_with(pool))
                };
                world.memory.records.values().filter(of).filter_map(|r| r.purchase()).map(|p| p.price.0).sum()
            };
            let (mine, both) = (spent(Some("pool.")), spent(None));
            assert!(mine <= own && both <= all, "seed {seed}: {mine} of {own}, {both} of {all}");
            if world.clone().try_increase(group, 1).is_ok() {
                continue;
            }
            // Until two points less are spent, what is kept for spot stays so.
            let kept_from = |of| match world.memory.budgets.get(&of) {
                Some(Stage::SpotOnly | Stage::Spent) => 88,
                _ => 90,
            };
            let of_pool = (mine, own, kept_from(BudgetOf::Pool(PoolName::new("pool").unwrap())));
            let of_all = (both, all, kept_from(BudgetOf::All));
            let budgets: &[(i64, i64, i64)] = if first { &[of_pool, of_all] } else { &[of_all] };
            let fits = |price: i64| budgets.iter().all(|(spent, limit, _)| spent + price <= *limit);
            let open =
                |price: i64| fits(price) && (!spot || budgets.iter().all(|(spent, limit, kept)| 100 * spent < kept * limit));
            let fits = open(800_000) || (spot && fits(300_000));
            assert!(!fits, "seed {seed}: {mine} of {own}, {both} of {all}");
            full += 1;
        }
    }
    assert!(full > 100, "{full}");
}
