use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::market::offer::{CapacityType, Market};
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_core::policy::{Policy, RawPolicy};

use super::outcome::Violations;
use super::region::{Boot, Shortage, Spot};
use super::side_by_side::side_by_side;
use super::*;
use crate::bound::fleet::Method;
use crate::demand::{InstanceType, Pod, Resources, Service, types};
use crate::in_process::cloud::Cloud as _;
use crate::in_process::play::Pods;
use crate::model::{Generation, Scoring};
use crate::spot_month::availability::{SpellLaw, ZoneLaw};
use stoker_core::policy::rules::warm_floor::FloorStands;

const HOUR: f64 = 3600.0;

fn of(name: &str, model: &str, gpus: u32, usd_milli: i64) -> InstanceType {
    let allocatable = Resources { gpus, milli_cpu: 7_910 * gpus, memory_mib: 29_000 * gpus };
    InstanceType { name: name.into(), model: model.into(), allocatable, hourly: UsdMicros(usd_milli * 1000) }
}

/// A cheap type, a dearer one and a large one.
fn sold() -> Vec<InstanceType> {
    vec![of("g4dn.2xlarge", "T4", 1, 500), of("g6.2xlarge", "L4", 1, 1000), of("g6.8x4", "L4", 4, 4400)]
}

fn policy(of_pool: &Value) -> Arc<Policy> {
    let mut pool = json!({
        "name": "gpu", "workload": "batch",
        "gpu": { "models": ["T4", "L4"] },
        "where": { "clouds": ["aws"], "regions": ["us-east-1"] },
        "capacity": { "prefer": ["on-demand"] },
        "limits": { "maxNodes": 50 },
        "stabilization": { "scaleDown": "5m", "minimumLife": "15m" },
    });
    let mut raw = json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "sim",
        "defaults": { "unknownQuota": "allow", "bootDeadline": "20m" },
    });
    for (key, value) in of_pool.as_object().into_iter().flatten() {
        if key == "quotas" { raw["quotas"] = value.clone() } else { pool[key] = value.clone() }
    }
    raw["pools"] = json!([pool]);
    let raw: RawPolicy = serde_json::from_value(raw).unwrap();
    Arc::new(Policy::try_from_raw(&raw).unwrap())
}

fn pod(arrives: f64, runs: f64, gpus: u32, models: &[&str]) -> Pod {
    Pod {
        name: String::new(),
        arrives,
        runs,
        requests: Resources { gpus, milli_cpu: 4_000 * gpus, memory_mib: 8_000 * gpus },
        gpu_milli: 1000,
        models: models.iter().map(|model| (*model).to_owned()).collect(),
        service: Service::BestEffort,
        pool: None,
    }
}

fn demand(pods: Vec<Pod>, hours: f64) -> Arc<Demand> {
    Arc::new(Demand { types: sold(), pods, seconds: hours * HOUR })
}

fn setup(pods: Vec<Pod>, hours: f64, of_pool: &Value) -> Setup {
    let demand = demand(pods, hours);
    let catalogue = types::catalogue(&policy(of_pool), &demand.types).unwrap();
    let world = World { boot: Boot::Given(vec![300.0]), ..World::default() };
    Setup { world, sample_every: 60, ..Setup::new(demand, catalogue, 1) }
}

fn play(setup: &Setup) -> Outcome {
    let outcome = simulate(setup).unwrap().outcome;
    assert_eq!(outcome.violations, Violations::default());
    outcome
}

/// The types that were ever there.
fn used(outcome: &Outcome) -> BTreeSet<&str> {
    let there = outcome.samples.iter().flat_map(|sample| sample.nodes.keys());
    there.map(|(of, _)| outcome.types[*of].as_str()).collect()
}

fn most_nodes(outcome: &Outcome) -> u32 {
    outcome.samples.iter().map(|sample| sample.nodes.values().sum()).max().unwrap_or(0)
}

/// The pool `gpu`, and a pool `l4` that has only L4.
fn two_pools() -> Arc<Policy> {
    let mut policy = Policy::clone(&policy(&json!({})));
    let mut second = policy.pools[0].clone();
    second.name = PoolName::new("l4").unwrap();
    second.models.retain(|model| model.as_str() == "L4");
    policy.pools.push(second);
    Arc::new(policy)
}

fn in_pool(pool: &str, pod: Pod) -> Pod {
    Pod { pool: Some(pool.to_owned()), ..pod }
}

#[test]
fn pods_run_in_the_pool_that_they_ask_for() {
    let run = |pods: Vec<Pod>| {
        let demand = demand(pods, 3.0);
        let catalogue = types::catalogue(&two_pools(), &demand.types).unwrap();
        let outcome = play(&Setup { sample_every: 60, ..Setup::new(Arc::clone(&demand), catalogue.clone(), 1) });
        let bound = least::least(&catalogue, &demand, &Method::default()).unwrap().unwrap();
        assert!(bound.0 > 0 && bound < outcome.total(), "{bound} {}", outcome.total());
        (used(&outcome).into_iter().map(str::to_owned).collect::<Vec<_>>(), bound)
    };
    let one = || pod(60.0, 1800.0, 1, &[]);
    let (first, cheap) = run(vec![one()]);
    assert_eq!(first, ["g4dn.2xlarge"], "without a name it is the first");
    assert_eq!(run(vec![in_pool("gpu", one())]), (first, cheap));
    let (second, dear) = run(vec![in_pool("l4", one())]);
    assert_eq!((second, dear.0), (vec!["g6.2xlarge".to_owned()], cheap.0 * 2));
    let (_, both) = run(vec![one(), in_pool("l4", one())]);
    assert_eq!(both, cheap.plus(dear), "pools share no nodes");
}

/// Some pods of all kinds, from a seed.
fn some_pods(count: u32, hours: f64) -> Vec<Pod> {
    let mut stream = crate::world::draw::Seed(7).stream("pods", &[], 0);
    let mut pods: Vec<Pod> = (0..count)
        .map(|n| {
            let models: &[&str] = [&[], &["L4"][..], &["T4", "L4"]][n as usize % 3];
            let gpus = if n % 7 == 0 { 4 } else { 1 };
            pod(
                stream.unit() * hours * HOUR,
                60.0 + stream.log_normal(600.0, 1.0),
                gpus,
                if gpus == 4 { &["L4"] } else { models },
            )
        })
        .collect();
    pods.sort_by(|a, b| a.arrives.total_cmp(&b.arrives));
    pods
}

#[test]
fn a_pod_waits_for_a_boot_runs_and_is_paid_for() {
    let outcome = play(&setup(vec![pod(100.0, 1800.0, 1, &[])], 3.0, &json!({})));
    // The autoscaler holds GPU pods back for 30 s and looks every 10 s; then the boot.
    assert!((330.0..=345.0).contains(&outcome.waits.p50), "{:?}", outcome.waits);
    assert_eq!((outcome.fates.launches, outcome.finished, outcome.fates.flaps), (1, 1, 0));
    // Boot, work, window, and what the autoscaler takes: some 41 min at $0.50.
    let cents = outcome.total().0 / 10_000;
    assert!((33..36).contains(&cents), "{cents}");
    assert_eq!(outcome.bill.total(), outcome.bill.on_demand);
    assert!((20.0..35.0).contains(&outcome.idle_percent), "{}", outcome.idle_percent);
}

#[test]
fn a_floor_that_pods_keep_taking_from_breaks_no_promise() {
    let pods = (0..40).map(|n| pod(400.0 + 97.0 * f64::from(n), HOUR / 2.0, 1, &[])).collect();
    let outcome = play(&setup(pods, 3.0, &json!({ "warmFloor": { "nodes": 2 } })));
    assert!(outcome.waits.p95 > 0.0, "the floor was taken down at times: {:?}", outcome.waits);
}

#[test]
fn idle_counts_gpus_as_pods_request_them() {
    let small = Resources { gpus: 1, milli_cpu: 500, memory_mib: 1_000 };
    let pods = (0..8).map(|_| Pod { requests: small, ..pod(0.0, 2.0 * HOUR, 1, &[]) }).collect();
    let shared = json!({ "sharing": { "timeSlicing": 4 }, "workload": "dev" });
    let mut two_nodes = setup(pods, 2.0, &shared);
    two_nodes.catalogue = types::derive(&policy(&shared), &types::price_book(&sold()).unwrap()).unwrap();
    let outcome = play(&two_nodes);
    assert_eq!((outcome.fates.launches, outcome.bill.gpu_seconds), (2, 8 * 7_200), "four pods a GPU");
    assert!(outcome.idle_percent.abs() < 0.001, "{}", outcome.idle_percent);
}

#[test]
fn pods_of_the_start_are_served_at_once() {
    let pods = vec![pod(0.0, 1800.0, 1, &["T4"]), pod(0.0, 1800.0, 4, &["L4"]), pod(0.0, 1800.0, 1, &["L4"])];
    let outcome = play(&setup(pods, 2.0, &json!({})));
    assert_eq!((outcome.waits.p99.to_bits(), outcome.waits.pods, outcome.finished), (0.0_f64.to_bits(), 3, 3));
}

#[test]
fn the_cheaper_type_wins_unless_the_pod_names_models() {
    let runs = |models: &[&str]| play(&setup(vec![pod(60.0, 900.0, 1, models)], 1.0, &json!({})));
    for (models, expected) in
        [(&[][..], "g4dn.2xlarge"), (&["L4"], "g6.2xlarge"), (&["L4", "T4"], "g4dn.2xlarge"), (&["L4", "A10G"], "g6.2xlarge")]
    {
        assert_eq!(used(&runs(models)), BTreeSet::from([expected]), "{models:?}");
    }
}

#[test]
fn no_more_nodes_are_bought_than_the_policy_and_its_quotas_allow() {
    let pods = || vec![pod(60.0, 1800.0, 1, &["T4"]), pod(60.0, 1800.0, 1, &["T4"])];
    let quota = json!([{ "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 8 }]);
    for limited in [json!({ "limits": { "maxNodes": 1 } }), json!({ "quotas": quota })] {
        let outcome = play(&setup(pods(), 3.0, &limited));
        assert_eq!((most_nodes(&outcome), outcome.finished), (1, 2), "{limited}");
        assert!(outcome.waits.p99 > 1800.0);
    }
    assert_eq!(most_nodes(&play(&setup(pods(), 3.0, &json!({})))), 2);
}

#[test]
fn another_type_is_bought_while_there_is_no_stock() {
    let mut setup = setup(vec![pod(60.0, 900.0, 1, &[])], 2.0, &json!({}));
    let shortage = Shortage { instance_type: "g4dn.2xlarge".into(), capacity_type: None, from: 0, until: 100_000 };
    setup.world.shortages = vec![shortage];
    let outcome = play(&setup);
    assert!(outcome.fates.refused > 0);
    assert_eq!((used(&outcome), outcome.finished), (BTreeSet::from(["g6.2xlarge"]), 1));
    // Unlucky launches are counted likewise.
    setup.world = World { refused_milli: 1000, ..World::default() };
    let outcome = play(&setup);
    assert!(outcome.fates.refused > 0 && outcome.fates.launches == 0);
}

/// What counts as a broken promise, each forged.
#[test]
fn broken_promises_are_counted() {
    let quota = json!([{ "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 8 }]);
    let mut over = setup(vec![pod(0.0, 900.0, 1, &[])], 1.0, &json!({ "quotas": quota }));
    Arc::make_mut(&mut over.catalogue.policy).quotas[0].limit = 0;
    let market = over.catalogue.groups.values().flat_map(|group| &group.offers).next().unwrap().market.clone();
    let mut region = Region::new(&over);
    region.launch(0, &market).unwrap();
    assert_eq!(region.above_quota, 1);

    let mut work = Work::new(&over);
    work.come(0);
    work.started("work/000000", 0);
    Pods::evicted(&mut work, "work/000000", 60);
    assert_eq!(work.evicted, 1);

    let short = FloorStands {
        pool: PoolName::new("gpu").unwrap(),
        wanted: 2,
        why: String::new(),
        warm: 1,
        coming: 0,
        usd_per_hour: UsdPerHour::ZERO,
        unmet_since: None,
        blocked: None,
    };
    let coming = FloorStands { coming: 1, ..short.clone() };
    let sold_out = FloorStands { blocked: Some("no stock".to_owned()), ..short.clone() };
    let steps =
        [(&short, 180, 0), (&short, 181, 1), (&coming, 500, 1), (&short, 680, 1), (&sold_out, 2_000, 1), (&short, 2_190, 11)];
    let mut from = 0;
    for (floor, until, unmet) in steps {
        work.watch(std::slice::from_ref(floor), from, until);
        assert_eq!(work.floor_unmet, unmet, "until {until}");
        from = until;
    }
}

/// Only spot may be bought. A pod comes soon after the node of another was released: its node is not bought again, as more is asked for.
#[test]
fn demand_counts_in_a_pool_without_on_demand_too() {
    let pods = vec![pod(60.0, 1200.0, 1, &["T4"]), pod(2_300.0, 1200.0, 1, &["T4"])];
    let on_spot = policy(&json!({ "capacity": { "prefer": ["spot"] } }));
    let catalogue = types::derive(&on_spot, &with_spot()).unwrap();
    let mut setup = Setup::new(demand(pods, 3.0), catalogue, 1);
    setup.world.boot = Boot::Given(vec![300.0]);
    let outcome = play(&setup);
    assert_eq!((outcome.fates.launches, outcome.bought_again), (2, 0));
}

/// The types with spot at a third of the price.
fn with_spot() -> PriceBook {
    let mut book = types::price_book(&sold()).unwrap();
    let markets: Vec<Market> = book.entries().map(|(market, _)| market.clone()).collect();
    for market in markets {
        let Some(Entry::Price(quote)) = book.entry(&market).cloned() else { continue };
        let quote = Quote { price: UsdPerHour(quote.price.0 / 3), kind: QuoteKind::Operator, ..quote };
        book.insert(Market { capacity_type: CapacityType::Spot, ..market }, Entry::Price(quote));
    }
    book
}

#[test]
fn pods_that_the_cloud_takes_the_node_of_run_again() {
    for service in [Service::BestEffort, Service::Other] {
        pods_run_again(service);
    }
}

/// Pods that may not be moved stay until the machine is gone.
fn pods_run_again(service: Service) {
    let one = |n: u32| Pod { service, ..pod(f64::from(n) * 4.0 * HOUR, 30.0 * HOUR, 1, &["L4"]) };
    let pods: Vec<Pod> = (0_u32..6).map(one).collect();
    let on_spot = policy(&json!({ "workload": "training", "capacity": { "prefer": ["spot", "on-demand"] } }));
    let catalogue = types::derive(&on_spot, &with_spot()).unwrap();
    // There for some hours at a time, and away for minutes: each pod loses its node.
    let spell = |mu| SpellLaw { mu, sigma: 0.3 };
    let zone_law = ZoneLaw { open: spell(1.0), shut: spell(-2.0), coupling: 0.0 };
    let spot = Spot::draw(3, &zone_law, catalogue.groups.values().map(|group| &group.place), 86_400 * 8, 64);
    let mut setup = Setup::new(demand(pods, 24.0 * 7.0), catalogue, 3);
    setup.world.spot = Some(spot);
    let outcome = play(&setup);
    assert!(outcome.fates.reclaimed + outcome.interruptions > 0 && outcome.lost_gpu_hours > 0, "{outcome:?}");
    assert!(outcome.bill.spot.0 > 0, "{:?} {:?}", outcome.bill, outcome.fates);
    assert_eq!(outcome.finished, 6);
}

#[test]
fn an_isolated_pool_keeps_a_small_pod_off_a_large_node() {
    let pods = || vec![pod(0.0, 1200.0, 4, &["L4"]), pod(1230.0, 3000.0, 1, &["L4"])];
    let run = |of_pool: &Value| {
        let setup = Setup { scoring: Scoring::LeastAllocated, ..setup(pods(), 3.0, of_pool) };
        play(&setup)
    };
    let (apart, together) = (run(&json!({ "isolation": { "maxCostRatio": 1 } })), run(&json!({})));
    assert_eq!(used(&apart), BTreeSet::from(["g6.2xlarge", "g6.8x4"]));
    assert_eq!((used(&together), together.waits.p99.to_bits()), (BTreeSet::from(["g6.8x4"]), 0.0_f64.to_bits()));
    assert!(apart.total() < together.total() && apart.waits.p99 > 300.0);
}

/// A pod that comes then, of a class that is sold out, runs on the next dearer type.
fn next_class_opens_for(arrives: f64) -> Outcome {
    let waiting = json!({ "isolation": { "maxCostRatio": 1 }, "waitingUsdPerGpuHour": 10 });
    let mut setup = setup(vec![pod(arrives, 900.0, 1, &[])], 2.0, &waiting);
    let shortage = Shortage { instance_type: "g4dn.2xlarge".into(), capacity_type: None, from: 0, until: 100_000 };
    setup.world.shortages = vec![shortage];
    let outcome = play(&setup);
    assert_eq!((used(&outcome), outcome.finished), (BTreeSet::from(["g6.2xlarge"]), 1));
    outcome
}

/// A pod of a class that is sold out may use the next dearer type once its wait has cost as much.
#[test]
fn a_sold_out_class_opens_the_next() {
    next_class_opens_for(60.0);
}

/// One of the start was there before, but has not waited.
#[test]
fn a_pod_of_the_start_waits_before_a_dearer_class_opens() {
    let outcome = next_class_opens_for(0.0);
    // Half a dollar an hour more is what 3 min of waiting cost at $10; then the boot.
    assert!(outcome.waits.p50 >= 480.0, "{:?}", outcome.waits);
}

#[test]
fn the_same_setup_gives_the_same_outcome_alone_and_beside_others() {
    let setups: Vec<Setup> =
        [1, 1, 2].map(|seed| Setup { seed, world: World::default(), ..setup(some_pods(40, 5.0), 6.0, &json!({})) }).into();
    let most_done = AtomicUsize::new(0);
    let made = side_by_side(&setups, 2, |_, done| {
        most_done.fetch_max(done, Ordering::Relaxed);
    });
    let made: Vec<Outcome> = made.into_iter().map(|made| made.unwrap().outcome).collect();
    assert_eq!(most_done.into_inner(), 3);
    assert_eq!(made[0], made[1]);
    assert_ne!(made[0].bill, made[2].bill);
    assert_eq!(made[0], play(&setups[0]));
}

/// Loops of the autoscaler that are skipped would have done nothing.
#[test]
fn with_all_loops_it_comes_to_the_same() {
    let isolated = json!({ "isolation": { "maxCostRatio": 1 }, "limits": { "maxNodes": 6 } });
    let shortage = Shortage { instance_type: "g4dn.2xlarge".into(), capacity_type: None, from: 7200, until: 12_000 };
    for (of_pool, settings) in [
        (json!({}), Settings::recommended()),
        (isolated.clone(), Settings::recommended()),
        (isolated, Settings::new(Generation::V1_34)),
    ] {
        let mut setup = Setup { settings, ..setup(some_pods(60, 6.0), 8.0, &of_pool) };
        setup.world = World { shortages: vec![shortage.clone()], ..World::default() };
        let some = simulate(&setup).unwrap().outcome;
        let all = simulate(&Setup { every_loop: true, ..setup }).unwrap().outcome;
        assert!(some.loops * 2 < all.loops, "{} of {}", some.loops, all.loops);
        let differs = some.samples.iter().zip(&all.samples).find(|(some, all)| some != all);
        assert_eq!((differs, some.bill, some.fates), (None, all.bill, all.fates), "{of_pool}");
        assert_eq!(Outcome { loops: all.loops, passes: all.passes, ..some }, all);
    }
}

#[test]
fn types_survive_the_way_into_a_catalogue_and_back() {
    let catalogue = types::catalogue(&policy(&json!({})), &sold()).unwrap();
    assert_eq!(types::instance_types(&catalogue), sold());
    // From the price book alone a node leaves at least as much.
    let nearly = types::instance_types(&types::derive(&policy(&json!({})), &types::price_book(&sold()).unwrap()).unwrap());
    for (made, of) in nearly.iter().zip(sold()) {
        assert!(made.allocatable.memory_mib >= of.allocatable.memory_mib, "{made:?}");
        assert!(made.allocatable.memory_mib <= of.allocatable.memory_mib + 2, "{made:?}");
    }
}

#[test]
fn without_groups_nothing_is_simulated() {
    let mut setup = setup(Vec::new(), 1.0, &json!({}));
    setup.catalogue.groups.clear();
    assert_eq!(simulate(&setup).unwrap_err(), NotSimulated::NoGroups);
}
