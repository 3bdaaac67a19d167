//! Groups of three clouds that share quotas, in random weather: however orders, refusals, losses and reloads fall, nothing is oversold.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::oracle::Dice;
use super::world::{World, minutes, seconds, start, supplier};
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use crate::base::units::{MiB, Milli, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::facts::supply::{MarketFacts, QuotaFact, RefusalKind, RefusalScope};
use crate::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::plan::Note;
use crate::policy::{Policy, QuotaKey, RawPolicy};

/// Cloud, region, type, GPU model, GPUs, GiB of each, vCPUs.
type Kind = (&'static str, &'static str, &'static str, &'static str, u32, u64, u32);

const KINDS: [Kind; 7] = [
    ("aws", "us-east-1", "g6.xlarge", "L4", 1, 24, 4),
    ("aws", "us-east-1", "p4d.24xlarge", "A100", 8, 40, 96),
    ("aws", "us-east-1", "p5.48xlarge", "H100", 8, 80, 192),
    ("gcp", "us-central1", "g2-standard-4", "L4", 1, 24, 4),
    ("gcp", "us-central1", "a2-highgpu-1g", "A100", 1, 40, 12),
    ("azure", "eastus", "Standard_NC4as_T4_v3", "T4", 1, 16, 4),
    ("azure", "eastus", "Standard_NC24ads_A100_v4", "A100", 1, 80, 24),
];

/// What counts against each quota, written out by hand: types with the units of one node, bought on demand or reserved; then on spot.
type Row = (&'static str, &'static [(&'static str, u64)], &'static [(&'static str, u64)]);

const COUNTED: [Row; 13] = [
    ("L-DB2E81BA", &[("g6.xlarge", 4)], &[]),
    ("L-417A185B", &[("p4d.24xlarge", 96), ("p5.48xlarge", 192)], &[]),
    ("L-3819A6DF", &[], &[("g6.xlarge", 4)]),
    ("L-7212CCBC", &[], &[("p4d.24xlarge", 96)]),
    ("L-C4BD4855", &[], &[("p5.48xlarge", 192)]),
    ("GPUS_ALL_REGIONS", &[("g2-standard-4", 1), ("a2-highgpu-1g", 1)], &[("g2-standard-4", 1), ("a2-highgpu-1g", 1)]),
    // Its preemptible twin is not in the policy.
    ("NVIDIA_L4_GPUS", &[("g2-standard-4", 1)], &[("g2-standard-4", 1)]),
    ("NVIDIA_A100_GPUS", &[("a2-highgpu-1g", 1)], &[]),
    ("PREEMPTIBLE_NVIDIA_A100_GPUS", &[], &[("a2-highgpu-1g", 1)]),
    ("cores", &[("Standard_NC4as_T4_v3", 4), ("Standard_NC24ads_A100_v4", 24)], &[]),
    ("Standard NCASv3_T4 Family", &[("Standard_NC4as_T4_v3", 4)], &[]),
    ("StandardNCADSA100v4Family", &[("Standard_NC24ads_A100_v4", 24)], &[]),
    ("lowPriorityCores", &[], &[("Standard_NC4as_T4_v3", 4), ("Standard_NC24ads_A100_v4", 24)]),
];

fn place((cloud, region, instance_type, ..): Kind) -> Place {
    Place {
        cloud: Cloud::new(cloud).unwrap(),
        region: Region::new(region).unwrap(),
        zone: ZoneId::new(format!("{region}-z")).unwrap(),
        instance_type: InstanceType::new(instance_type).unwrap(),
    }
}

/// Every type under every capacity type, a dollar per GPU on demand and half of it on spot.
fn book(now: Timestamp) -> PriceBook {
    let mut book = PriceBook::new();
    for kind in KINDS {
        let (.., model, gpus, gib, vcpus) = kind;
        let place = place(kind);
        book.insert_spec(InstanceSpec {
            cloud: place.cloud.clone(),
            instance_type: place.instance_type.clone(),
            gpu_model: GpuModel::new(model).unwrap(),
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(gib),
            vcpus: Some(vcpus),
            memory: Some(MiB::from_gib(64)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        for (capacity_type, micros) in
            [(CapacityType::Reserved, 100), (CapacityType::Spot, 500_000), (CapacityType::OnDemand, 1_000_000)]
        {
            let price = UsdPerHour(micros * i64::from(gpus));
            let quote = Quote { price, kind: QuoteKind::Operator, as_of: Some(now), source: Arc::from("test") };
            book.insert(Market { place: place.clone(), capacity_type }, Entry::Price(quote));
        }
    }
    book
}

fn policy() -> Policy {
    let pool = |name: &str, models: Value, prefer: Value| {
        json!({
            "name": name, "workload": "training", "gpu": { "models": models },
            "where": { "clouds": ["aws", "gcp", "azure"], "regions": ["us-east-1", "us-central1", "eastus"] },
            "capacity": { "prefer": prefer }, "limits": { "maxNodes": 1000 },
        })
    };
    let quota = |name: &str| {
        let (cloud, region) = match name {
            _ if name.starts_with("L-") => ("aws", Some("us-east-1")),
            "GPUS_ALL_REGIONS" => ("gcp", None),
            _ if name.contains("NVIDIA") => ("gcp", Some("us-central1")),
            _ => ("azure", Some("eastus")),
        };
        json!({ "name": name, "cloud": cloud, "region": region, "limit": 0 })
    };
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test",
        "pools": [
            pool("train", json!(["L4", "T4", "A100", "H100"]), json!(["spot", "on-demand"])),
            pool("serve", json!(["L4"]), json!(["reserved", "on-demand"])),
        ],
        "quotas": COUNTED.map(|(name, ..)| quota(name)),
    }))
    .unwrap();
    Policy::try_from_raw(&raw).unwrap()
}

/// What the cloud counts against each quota: its machines, and what it is asked for.
fn counted(world: &World) -> BTreeMap<&'static str, u64> {
    let units = |members: &[(&str, u64)], market: &Market| {
        members.iter().find(|(name, _)| *name == market.place.instance_type.as_str()).map_or(0, |(_, units)| *units)
    };
    let of = |not_spot, spot| {
        let all = world.at_the_cloud().map(|market| match market.capacity_type {
            CapacityType::Spot => units(spot, market),
            CapacityType::Reserved | CapacityType::OnDemand => units(not_spot, market),
        });
        all.sum()
    };
    COUNTED.iter().map(|(name, not_spot, spot)| (*name, of(not_spot, spot))).collect()
}

/// A limit of a few nodes of the kind, a part of which others use or which is kept back.
fn set_quota(dice: &mut Dice, policy: &mut Policy, at: usize) {
    let (_, not_spot, spot) = COUNTED[at];
    let largest = not_spot.iter().chain(spot).map(|(_, units)| u32::try_from(*units).unwrap()).max().unwrap();
    let mut roll = |sides| u32::try_from(dice.roll(sides)).unwrap();
    let quota = &mut policy.quotas[at];
    quota.limit = largest * roll(7) + roll(4);
    quota.used = if roll(3) == 0 { largest * roll(3) } else { 0 };
    quota.safety = roll(3);
}

/// Orders accepted, orders refused, and most units of one quota held at once.
type Told = (u32, u32, u64);

/// One short run.
fn run(seed: u64, mut world: World, groups: &[String]) -> Told {
    let (mut accepted, mut refused, mut most) = (0, 0, 0);
    let mut dice = Dice::new(seed);
    world.numbers(|policy| (0..COUNTED.len()).for_each(|at| set_quota(&mut dice, policy, at)));
    let mut before = counted(&world);
    for _ in 0..6 {
        let mut pick = |n: usize| usize::try_from(dice.roll(n as u64)).unwrap();
        let group = groups[pick(groups.len())].clone();
        let size = i32::try_from(pick(4)).unwrap() + 1;
        match pick(14) {
            // Two orders race before the next pass.
            0..=5 => {
                for group in [&group, &groups[pick(groups.len())]] {
                    let taken = world.try_increase(group, size).is_ok();
                    *(if taken { &mut accepted } else { &mut refused }) += 1;
                }
            }
            6 | 7 => {
                let mercy = pick(4);
                world.answer(|n| n % 4 < mercy);
            }
            8 => world.make_unclear(),
            9 => match pick(2) {
                0 => world.refuse_all(RefusalKind::QuotaExceeded),
                _ => world.reclaim(pick(3)),
            },
            10 => world.decrease(&group, -size),
            11 => {
                let ids: Vec<String> = world.records(&group).take(2).map(|r| r.shown_id().to_string()).collect();
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                world.delete(&group, &ids).unwrap();
            }
            12 => {
                let at = pick(COUNTED.len());
                world.policy(|policy| set_quota(&mut dice, policy, at));
            }
            _ => {
                world.advance(if pick(2) == 0 { seconds(40) } else { minutes(11) });
                world.observe();
                if pick(2) == 0 {
                    world.join(true);
                }
            }
        }
        world.start_launches();
        // The checker counts as well, from the records.
        world.pass();
        let now = counted(&world);
        for quota in &world.policy.quotas {
            let (held, held_before) = (now[quota.name.as_str()], before[quota.name.as_str()]);
            // What exists stays when a limit is lowered below it, and nothing is added.
            let allowed = i64::from(quota.limit) - i64::from(quota.used) - i64::from(quota.safety);
            let allowed = u64::try_from(allowed).unwrap_or(0).max(held_before);
            assert!(held <= allowed, "seed {seed}: {held} of {} after {held_before}, allowed {allowed}", quota.name);
            most = most.max(held);
        }
        world.end_terminated();
        world.start_launches();
        before = counted(&world);
    }
    (accepted, refused, most)
}

#[test]
fn no_quota_is_ever_oversold_by_growth() {
    const RUNS: u64 = 10_000;
    const THREADS: u64 = 4;
    let world = World::over(policy(), book(start()));
    let groups: Vec<String> = world.catalogue.groups.keys().map(ToString::to_string).collect();
    assert_eq!(groups.len(), 9, "the two pools' shapes");
    let share = |thread| -> Vec<Told> {
        (1..=RUNS).filter(|seed| seed % THREADS == thread).map(|seed| run(seed, world.clone(), &groups)).collect()
    };
    let told: Vec<Told> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let share = &share;
                    move || share(thread)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    // It would show nothing if nothing were bought, or no limit ever bound.
    let (accepted, refused) = told.iter().fold((0, 0), |(a, r), told| (a + told.0, r + told.1));
    let most = told.iter().map(|told| told.2).max().unwrap();
    assert!(accepted > 10_000 && refused > 10_000 && most >= 3 * 192, "{accepted} accepted, {refused} refused, {most} held");
}

const SERVE: &str = "serve.g6-xlarge.us-east-1-z";
const TRAIN: &str = "train.g6-xlarge.us-east-1-z";

/// A world in which only the G quotas bind, 64 vCPUs on demand and none on spot.
fn sixty_four() -> World {
    let mut world = World::over(policy(), book(start()));
    world.policy(|policy| {
        for quota in &mut policy.quotas {
            quota.limit = match quota.name.as_str() {
                "L-DB2E81BA" => 64,
                "L-3819A6DF" => 0,
                _ => 1_000_000,
            };
        }
    });
    world
}

#[test]
fn every_group_shows_the_full_headroom_that_it_shares_and_an_order_takes_it_from_all() {
    let mut world = sixty_four();
    let room = |world: &mut World| {
        let limits = world.pass().limits;
        [SERVE, TRAIN].map(|id| limits[&World::group(id)].max - limits[&World::group(id)].target)
    };
    // 64 vCPUs are 16 nodes of 4, of either group.
    assert_eq!(room(&mut world), [16, 16]);
    world.policy(|policy| {
        let quota = policy.quotas.iter_mut().find(|quota| quota.name == "L-DB2E81BA").unwrap();
        (quota.used, quota.safety) = (16, 6);
    });
    // 64 − 16 − 6 = 42: ten nodes and 2 vCPUs over.
    assert_eq!(room(&mut world), [10, 10]);
    world.increase(SERVE, 7);
    // Taken when the order is accepted, before any pass: 42 − 28 = 14 are left, three nodes.
    assert_eq!(
        world.try_increase(TRAIN, 4).unwrap_err().to_string(),
        format!(
            "{TRAIN}: 4 nodes requested, 3 possible: quota L-DB2E81BA us-east-1: 14 of 64 vCPU left, 28 in flight, one more \
             needs 4"
        )
    );
    world.increase(TRAIN, 3);
    assert_eq!(room(&mut world), [0, 0]);
}

#[test]
fn a_group_that_a_quota_closes_says_what_is_left_and_what_is_in_flight() {
    let mut world = sixty_four();
    world.increase(SERVE, 8);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    world.pass();
    world.increase(SERVE, 8);
    // Eight nodes of 4 vCPUs are Ready, eight are being bought.
    let closed = world.pass().limits[&World::group(SERVE)].closed.clone().unwrap();
    let why = "quota L-DB2E81BA us-east-1: 0 of 64 vCPU left, 32 in flight, one more needs 4";
    assert_eq!(closed.to_string(), format!("reserved: {why}; on-demand: {why}"));
}

#[test]
fn a_quota_that_the_policy_does_not_list_bars_large_gpus_on_demand_and_is_told_elsewhere() {
    let mut world = World::over(policy(), book(start()));
    world.policy(|policy| {
        policy.quotas.retain(|quota| !matches!(quota.name.as_str(), "L-417A185B" | "L-3819A6DF"));
        policy.quotas.iter_mut().for_each(|quota| quota.limit = 0);
    });
    let closed = world.pass().limits[&World::group("train.p4d-24xlarge.us-east-1-z")].closed.clone().unwrap();
    assert_eq!(
        closed.to_string(),
        "spot: quota L-7212CCBC us-east-1: 0 of 0 vCPU left, 0 in flight, one more needs 96; \
         on-demand: quota L-417A185B us-east-1 (\"Running On-Demand P instances\") is not in the policy: \
         list it under quotas with its limit, or write defaults.unknownQuota: allow"
    );
    world.increase(TRAIN, 1);
    let plan = world.pass();
    assert_eq!(World::launched_markets(&plan), ["spot"]);
    let told: Vec<String> = plan.explanations[0].candidates[0].unlimited.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["quota L-3819A6DF us-east-1 (\"All G and VT Spot Instance Requests\")"]);
}

#[test]
fn a_lowered_spot_quota_does_not_stop_growth_on_demand() {
    let mut world = sixty_four();
    world.policy(|policy| policy.quotas.iter_mut().filter(|q| q.name == "L-3819A6DF").for_each(|q| q.limit = 8));
    world.pass();
    world.increase(TRAIN, 2);
    assert_eq!(World::launched_markets(&world.pass()), ["spot", "spot"]);
    world.answer(|_| true);
    world.policy(|policy| policy.quotas.iter_mut().filter(|q| q.name == "L-3819A6DF").for_each(|q| q.limit = 4));
    world.pass();
    world.increase(TRAIN, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["on-demand"]);
}

#[test]
fn a_refusal_of_a_quota_closes_all_that_counts_against_it_whatever_the_policy_lists() {
    let open = |world: &World, (name, not_spot, spot): Row| {
        let offers = || world.catalogue.groups.values().flat_map(|g| g.offers.iter().map(move |offer| (g, &offer.market)));
        let counts = |market: &Market| {
            let members = if market.capacity_type == CapacityType::Spot { spot } else { not_spot };
            members.iter().any(|(name, _)| *name == market.place.instance_type.as_str())
        };
        let scope = RefusalScope::Quota(name.to_owned());
        for (group, market) in offers() {
            let area = world.catalogue.refused_area(&scope, group, market);
            assert_eq!(area.is_some(), counts(market), "{name}: {market}");
            let Some(area) = area else { continue };
            for (other, market) in offers() {
                assert_eq!(world.catalogue.is_in(&area, other, market), counts(market), "{area}: {market}");
            }
        }
    };
    let mut world = World::over(policy(), book(start()));
    for row in COUNTED {
        open(&world, row);
    }
    world.policy(|policy| policy.quotas.clear());
    // Which of the two counts spot of L4 nobody knows then, so what a refusal of the other says holds for the rest alone.
    let unlisted = |(name, not_spot, spot): Row| (name, not_spot, if name == "NVIDIA_L4_GPUS" { &[][..] } else { spot });
    for row in COUNTED {
        open(&world, unlisted(row));
    }
    open(&world, ("PREEMPTIBLE_NVIDIA_L4_GPUS", &[], &[("g2-standard-4", 1)]));
}

#[test]
fn a_refusal_of_a_quota_closes_the_group_beside_it_and_none_of_another_quota() {
    let mut world = World::over(policy(), book(start()));
    world.policy(|policy| policy.quotas.iter_mut().for_each(|q| q.limit = if q.name == "L-DB2E81BA" { 64 } else { 1_000 }));
    world.policy(|policy| policy.pools[0].prefer = vec![CapacityType::OnDemand]);
    let [p4d, p5] = ["train.p4d-24xlarge.us-east-1-z", "train.p5-48xlarge.us-east-1-z"];
    world.increase(p4d, 1);
    world.pass();
    // As its API spells it, or its console.
    world.refuse_scope(RefusalKind::QuotaExceeded, &RefusalScope::Quota("l-417a185b".to_owned()), None);
    let plan = world.pass();
    let closed = plan.limits[&World::group(p5)].closed.clone().unwrap().to_string();
    assert!(closed.starts_with("on-demand: quota L-417A185B us-east-1 returned QUOTA_EXCEEDED at "), "{closed}");
    let Note::OrderFailed { message, .. } = &plan.notes[0] else { panic!("{:?}", plan.notes) };
    assert_eq!(message, "quota L-417A185B us-east-1: no");
    assert!(world.try_increase(p5, 1).is_err());
    world.increase(TRAIN, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["on-demand"]);
}

/// The same world when a supplier tells these limits of quotas.
fn told(world: &mut World, quotas: &[(&str, &str, u32)]) {
    let told = |(region, name, limit): &(&str, &str, u32)| {
        let region = Some(Region::new(*region).unwrap());
        let key = QuotaKey { name: (*name).to_owned(), cloud: Cloud::new("aws").unwrap(), region };
        (key, QuotaFact { limit: *limit, used: None, as_of: start() })
    };
    let clouds = ["aws", "gcp", "azure"].map(|cloud| Cloud::new(cloud).unwrap());
    let facts = MarketFacts { clouds: clouds.into(), quotas: quotas.iter().map(told).collect(), ..MarketFacts::default() };
    world.catalogue = Catalogue::derive(&Arc::new(world.policy.clone()), &book(start()), &[(supplier(), facts)].into());
}

#[test]
fn the_lower_of_the_policys_limit_and_a_suppliers_holds_for_a_day() {
    let mut world = sixty_four();
    let room = |world: &mut World| {
        let limits = world.pass().limits;
        limits[&World::group(SERVE)].max - limits[&World::group(SERVE)].target
    };
    // A higher one allows nothing more, nor does one of another region allow less.
    told(&mut world, &[("us-east-1", "L-DB2E81BA", 100), ("us-east-2", "L-DB2E81BA", 4)]);
    assert_eq!(room(&mut world), 16);
    // As its console spells it.
    told(&mut world, &[("us-east-1", "l-db2e81ba", 8)]);
    assert_eq!(room(&mut world), 2);
    assert_eq!(world.catalogue.policy.quotas[0].limit, 64, "the policy is the operator's word");
    world.increase(SERVE, 2);
    let plan = world.pass();
    let closed = plan.limits[&World::group(SERVE)].closed.clone().unwrap().to_string();
    let why = "quota L-DB2E81BA us-east-1: 0 of 8 vCPU left, 8 in flight, one more needs 4: \
               supplier test said 8 at 2026-11-01 00:00Z, less than the policy";
    assert_eq!(closed, format!("reserved: {why}; on-demand: {why}"));
    // Older than a day, it counts no more.
    let mut world = sixty_four();
    told(&mut world, &[("us-east-1", "L-DB2E81BA", 8)]);
    for (hours, nodes) in [(23, 2), (1, 16)] {
        world.advance(minutes(hours * 60));
        world.observe();
        assert_eq!(room(&mut world), nodes);
    }
    world.increase(SERVE, 3);
    assert_eq!(World::launched_markets(&world.pass()).len(), 3);
}

#[test]
fn a_quota_that_only_a_supplier_tells_limits_nothing() {
    let mut world = sixty_four();
    world.policy(|policy| policy.quotas.retain(|quota| quota.name != "L-DB2E81BA"));
    told(&mut world, &[("us-east-1", "L-DB2E81BA", 4)]);
    world.pass();
    world.increase(SERVE, 5);
    assert_eq!(World::launched_markets(&world.pass()).len(), 5);
}
