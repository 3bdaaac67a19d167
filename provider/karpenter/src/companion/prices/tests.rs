use std::sync::Arc;

use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use stoker_core::base::engine_clock::Times;
use stoker_core::base::ids::{Cloud, NodeName, Region, ZoneId};
use stoker_core::catalogue::Catalogue;
use stoker_core::facts::foreign::Foreign;
use stoker_core::market::offer;
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_core::policy::{Policy, RawPolicy};
use stoker_core::state::memory::Memory;

use super::*;
use crate::companion::State;
use crate::companion::tables::Tables;
use crate::companion::tests as world;
use crate::objects::name;

/// The L4s of AWS with a price on demand, in two zones.
fn book() -> PriceBook {
    let mut book = world::book();
    let specs: Vec<_> = book.specs().cloned().collect();
    let of_google = InstanceSpec {
        cloud: Cloud::new("gcp").unwrap(),
        instance_type: InstanceType::new("g2-standard-4").unwrap(),
        ..InstanceSpec::clone(&specs[0])
    };
    book.insert_spec(of_google);
    for spec in specs {
        for (zone, capacity_type) in
            ["use1-az1", "use1-az2"].into_iter().flat_map(|zone| CapacityType::ALL.map(|of| (zone, of)))
        {
            let place = Place {
                cloud: spec.cloud.clone(),
                region: Region::new("us-east-1").unwrap(),
                zone: ZoneId::new(zone).unwrap(),
                instance_type: spec.instance_type.clone(),
            };
            let price = UsdPerHour(i64::from(spec.vcpus.unwrap()) * 200_000);
            let quote = Quote { price, kind: QuoteKind::List, as_of: None, source: Arc::from("test") };
            book.insert(offer::Market { place, capacity_type }, Entry::Price(quote));
        }
    }
    book
}

/// Ten g6.xlarge are reserved; a pool of inference buys spot, and one of training that saves nothing.
fn policy() -> Policy {
    let pool = |name: &str, workload: &str, spot: Value| {
        json!({
            "name": name, "workload": workload, "gpu": { "models": ["L4"] },
            "where": { "clouds": ["aws"], "regions": ["us-east-1"] },
            "capacity": { "prefer": ["spot", "on-demand"], "spot": spot }, "limits": { "maxNodes": 10 },
        })
    };
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "prod",
        "pools": [pool("serving", "inference", json!({})), pool("training", "training", json!({ "checkpoint": "1h" }))],
        "commitments": [{
            "name": "ri", "kind": "reserved-instance", "cloud": "aws", "region": "us-east-1",
            "instanceType": "g6.xlarge", "nodes": 10, "usdPerHour": 0.5,
        }],
        "karpenter": { "steer": ["prices"] },
    }))
    .unwrap();
    Policy::try_from_raw(&raw).unwrap()
}

/// A steered `NodePool` of one type.
fn pool(name: &str, instance_type: &str, labels: &Value, class: &str) -> Value {
    let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let mut pool = json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "template": { "spec": {
            "nodeClassRef": { "group": class, "kind": "Class", "name": "gpu" },
            "requirements": [one(INSTANCE_TYPE, instance_type), one("topology.kubernetes.io/region", "us-east-1")],
        } } },
    });
    pool["metadata"]["labels"]["stoker.dev/steered"] = json!("true");
    pool
}

const AWS: &str = "karpenter.k8s.aws";

fn tables(pools: &[Value], overlays: &[Value]) -> Tables {
    let mut tables = Tables::default();
    tables.pools.take(Event::InitDone);
    tables.claims.take(Event::InitDone);
    tables.nodes.take(Event::InitDone);
    tables.overlays.take(Event::InitDone);
    for pool in pools {
        tables.pools.take(Event::Apply(serde_json::from_value(pool.clone()).unwrap()));
    }
    for overlay in overlays {
        tables.overlays.take(Event::Apply(serde_json::from_value(overlay.clone()).unwrap()));
    }
    tables
}

fn tables_with(pools: &[Value], overlays: &[Value], claim: Value) -> Tables {
    let mut tables = tables(pools, overlays);
    tables.claims.take(Event::Apply(serde_json::from_value(claim).unwrap()));
    tables
}

/// A look while so many g6.xlarge of Karpenter's run.
fn look(state: &mut State, tables: &Tables, running: u32, now: Instant) -> Look {
    let (policy, book) = (Arc::new(policy()), book());
    let (market, _) = book.entries().find(|(m, _)| m.place.instance_type.as_str() == "g6.xlarge").unwrap();
    let spec = book.spec(&market.place.cloud, &market.place.instance_type).unwrap();
    let kind = ForeignKind {
        cloud: Some(market.place.cloud.clone()),
        region: Some(market.place.region.clone()),
        zone: Some(market.place.zone.clone()),
        capacity_type: Some(CapacityType::OnDemand),
        spec: Some(InstanceSpec::clone(spec)),
        gpus: 1,
        vcpus: 4,
        price: Some(UsdPerHour(800_000)),
    };
    let claims = [(spec.instance_type.clone(), running)].into();
    let foreign = Foreign { nodes: [(kind, running)].into(), claims, ..Foreign::default() };
    let memory = Memory { foreign: Some(Arc::new(foreign)), ..Memory::default() };
    let catalogue = Catalogue::derive(&policy, &book, &BTreeMap::default());
    let times = Times::at("2026-11-20T12:00:00Z".parse().unwrap());
    let (used, occupied) = (Used::of(&memory, &catalogue, times), BTreeSet::<NodeName>::new());
    let facts = tables.facts().unwrap();
    let inputs = Inputs { used: used.as_ref(), occupied: Some(&occupied), ..Inputs::of(facts, &policy, &book, now) };
    state.look(&inputs)
}

/// An overlay as Karpenter shows it.
fn shown(name: &str, overlay: &Overlay, conditions: &Value) -> Value {
    json!({
        "metadata": { "name": name, "labels": { OWNER: "stoker-karpenter" } },
        "spec": overlay.spec, "status": { "conditions": conditions },
    })
}

fn ready() -> Value {
    json!([{ "type": "Ready", "status": "True", "message": "" }])
}

#[test]
fn a_price_stands_while_the_commitment_has_room_for_two_more_and_those_on_their_way() {
    let pools = [pool("theirs", "g6.xlarge", &json!({}), AWS)];
    let (mut state, now) = (State::default(), Instant::now());
    let empty = tables(&pools, &[]);
    assert!(look(&mut state, &empty, 8, now).overlays.is_empty(), "to begin, one more has to fit");
    let made = look(&mut state, &empty, 7, now);
    let [(name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
    assert_eq!(
        (name.as_str(), overlay.spec.price.as_deref(), overlay.why.as_str()),
        ("stoker-od-g6.xlarge", Some("0.000001"), "covered by commitment ri")
    );
    let requirements: Vec<_> = overlay.spec.requirements.iter().map(|one| one.values.clone().unwrap().join(",")).collect();
    assert_eq!(requirements, ["theirs", "g6.xlarge", "on-demand"]);
    let mut standing = tables(&pools, &[shown(name, overlay, &ready())]);
    let stays = look(&mut state, &standing, 8, now);
    assert!(stays.overlays.is_empty() && stays.unpriced.is_empty() && stays.faults.0.is_empty(), "{stays:?}");
    // One that is on its way takes a place.
    let mut claim = world::claim(0, "g6.xlarge", "4", "1");
    claim["metadata"]["labels"][NODE_POOL] = json!("theirs");
    claim["status"] = json!({});
    standing.claims.take(Event::Apply(serde_json::from_value(claim).unwrap()));
    assert_eq!(look(&mut state, &standing, 8, now).unpriced, ["stoker-od-g6.xlarge"]);
    // So does one that is launched and that the decisions do not count yet. One that they count does not, nor one of spot.
    let with = |mut claim: Value| {
        claim["metadata"]["labels"][NODE_POOL] = json!("theirs");
        tables_with(&pools, &[shown(name, overlay, &ready())], claim)
    };
    let launched = with(world::claim(0, "g6.xlarge", "4", "1"));
    assert_eq!(look(&mut state, &launched, 0, now).unpriced, [] as [&str; 0]);
    assert_eq!(launched.facts().unwrap().on_their_way(&["theirs"].into()).of("g6.xlarge", 0), 1);
    assert_eq!(launched.facts().unwrap().on_their_way(&["theirs"].into()).of("g6.xlarge", 1), 0);
    let mut spot = world::claim(0, "g6.xlarge", "4", "1");
    spot["spec"] = json!({ "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"] }] });
    spot["status"] = json!({});
    assert!(look(&mut state, &with(spot), 8, now).unpriced.is_empty());
    // What was taken back stays away for a while.
    assert!(look(&mut state, &empty, 0, now + DWELL / 2).overlays.is_empty());
    assert_eq!(look(&mut state, &empty, 0, now + DWELL).overlays.len(), 1);
    assert_eq!(look(&mut state, &standing, 10, now).unpriced, ["stoker-od-g6.xlarge"]);
}

#[test]
fn spot_is_priced_by_the_rules_of_the_pool_that_a_label_names() {
    let rules = |of: &str| json!({ RULES_LABEL: of });
    let pools = [
        pool("serving", "g6.12xlarge", &rules("serving"), AWS),
        pool("training", "g6.12xlarge", &rules("training"), AWS),
        pool("plain", "g6.12xlarge", &json!({}), AWS),
        pool("wrong", "g6.12xlarge", &rules("trainnig"), AWS),
    ];
    let (mut state, now) = (State::default(), Instant::now());
    let made = look(&mut state, &tables(&pools, &[]), 10, now);
    let priced: Vec<_> = made
        .overlays
        .iter()
        .map(|(name, overlay)| {
            let pools = overlay.spec.requirements[0].values.clone().unwrap().join(",");
            (name.as_str(), pools, overlay.spec.price_adjustment.as_deref().unwrap(), overlay.spec.weight)
        })
        .collect();
    // No table has a rate, so 0.16 reclaims an hour are assumed: 2 min each, or half an hour of work and 5 min.
    assert_eq!(
        priced,
        [
            ("stoker-spot-serving-1", "serving".to_owned(), "+1%", 4000),
            ("stoker-spot-training-15", "training".to_owned(), "+15%", 4001),
        ]
    );
    assert!(made.faults.0["NodePool wrong"].contains("names trainnig"), "{:?}", made.faults);
}

#[test]
fn every_overlay_has_a_weight_of_its_own_and_another_where_they_meet() {
    let pools = [pool("theirs", "g6.xlarge", &json!({}), AWS)];
    let (mut state, now) = (State::default(), Instant::now());
    let theirs = json!({ "metadata": { "name": "x" }, "spec": { "weight": 4000, "requirements": [] } });
    let made = look(&mut state, &tables(&pools, std::slice::from_ref(&theirs)), 0, now);
    let [(name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
    assert_eq!(overlay.spec.weight, 4001);
    let conflict = json!([
        { "type": "ValidationSucceeded", "status": "False", "message": "conflict with x" },
        { "type": "Ready", "status": "False", "message": "" },
    ]);
    let mut meets = shown(name, overlay, &conflict);
    meets["spec"]["weight"] = json!(4000);
    let moved = look(&mut state, &tables(&pools, &[meets, theirs]), 0, now);
    assert_eq!(moved.overlays[0].1.spec.weight, 4001);
    assert_eq!(moved.faults.0[&format!("NodeOverlay {name}")], "Karpenter does not take it: conflict with x");
    // One of that name that is not Stoker's is left as it is.
    let same = json!({ "metadata": { "name": name }, "spec": { "weight": 7, "requirements": [] } });
    let left = look(&mut state, &tables(&pools, &[same]), 0, now);
    assert!(left.overlays.is_empty() && left.unpriced.is_empty());
    assert!(left.faults.0[&format!("NodeOverlay {name}")].contains("not Stoker's"), "{:?}", left.faults);
}

#[test]
fn karpenters_that_do_not_obey_are_told() {
    let pools = [pool("theirs", "g6.xlarge", &json!({}), AWS), pool("far", "g2-standard-4", &json!({}), "karpenter.k8s.gcp")];
    let (mut state, now) = (State::default(), Instant::now());
    let made = look(&mut state, &tables(&pools, &[]), 0, now);
    let [(overlay_name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
    let silent = tables(&pools, &[shown(overlay_name, overlay, &json!([]))]);
    let fault = format!("NodeOverlay {overlay_name}");
    assert!(!look(&mut state, &silent, 0, now).faults.0.contains_key(&fault));
    let told = look(&mut state, &silent, 0, now + LOOKED_AT_WITHIN).faults;
    assert!(told.0[&fault].contains("NodeOverlay=true"), "{told:?}");
    assert!(told.0["NodePool far"].contains("Google ignores NodeOverlays"), "{told:?}");
}

#[test]
fn what_is_steered_no_more_is_taken_back() {
    let (mut state, now) = (State::default(), Instant::now());
    let made = look(&mut state, &tables(&[pool("theirs", "g6.xlarge", &json!({}), AWS)], &[]), 0, now);
    let [(overlay_name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
    let gone = look(&mut state, &tables(&[], &[shown(overlay_name, overlay, &ready())]), 0, now);
    assert_eq!(gone.unpriced, std::slice::from_ref(overlay_name));
    assert_eq!(name(&serde_json::from_value::<NodeOverlay>(shown("n", overlay, &ready())).unwrap().meta), "n");
}

#[test]
fn a_price_moves_by_more_than_a_twentieth_or_not_at_all() {
    assert!(is_near(100, 105) && is_near(100, 95) && !is_near(100, 106) && !is_near(100, 94));
    for micros in [1, 999_999, 1_000_000, 31_400_000] {
        let written = Price::Fixed(UsdPerHour(micros)).written().0.unwrap();
        assert_eq!(parsed(&written), Some(UsdPerHour(micros)), "{written}");
    }
    assert_eq!(parsed("31.4"), None);
}

#[test]
fn where_karpenter_compares_no_prices_a_pool_that_a_commitment_covers_comes_first() {
    let theirs = |weight: u32, mark: Option<&FieldMark>, capacity: &str| {
        let mut pool = pool("theirs", "g6.xlarge", &json!({}), AWS);
        let one = json!({ "key": CAPACITY_TYPE_LABEL, "operator": "In", "values": [capacity] });
        pool["spec"]["template"]["spec"]["requirements"].as_array_mut().unwrap().push(one);
        pool["spec"]["weight"] = json!(weight);
        if let Some(mark) = mark {
            pool["metadata"]["annotations"] = json!({ "stoker.dev/weight": serde_json::to_string(mark).unwrap() });
        }
        pool
    };
    let weights = |look: &Look| {
        let of = |(_, field, mark): &(String, Field, FieldMark)| (*field == Field::Weight).then(|| mark.clone());
        (look.fields.set.iter().find_map(of), look.fields.given_back.iter().find_map(of).is_some())
    };
    let (mut state, start) = (State::default(), Instant::now());
    let plain = theirs(10, None, "on-demand");
    let priced = look(&mut state, &tables(std::slice::from_ref(&plain), &[]), 0, start);
    assert_eq!(weights(&priced), (None, false), "prices steer it");
    let [(name, overlay)] = &priced.overlays[..] else { panic!("{priced:?}") };
    let mut at = |pool: &Value, running: u32, seconds: u64| {
        let tables = tables(std::slice::from_ref(pool), &[shown(name, overlay, &json!([]))]);
        weights(&look(&mut state, &tables, running, start + Duration::from_secs(seconds)))
    };
    assert_eq!(at(&plain, 7, 1), (None, false), "Karpenter has its time to look");
    let first = FieldMark { set: json!(100), was: Some(json!(10)), why: "covered by commitment ri".to_owned() };
    assert_eq!(at(&plain, 7, 62), (Some(first.clone()), false));
    assert_eq!(at(&theirs(10, None, "spot"), 7, 63), (None, false), "a commitment pays for no spot");
    // It stands while two more have room, and then goes back, for a quarter of an hour at least.
    let standing = theirs(100, Some(&first), "on-demand");
    assert_eq!(at(&standing, 8, 64), (None, false));
    assert_eq!(at(&standing, 9, 66), (None, true));
    assert_eq!(at(&plain, 0, 600), (None, false));
    assert_eq!(at(&plain, 0, 1_000).0, Some(first));
}

#[test]
fn a_price_that_somebody_rewrites_three_times_is_left_alone() {
    let pools = [pool("theirs", "g6.xlarge", &json!({}), AWS)];
    let (mut state, now) = (State::default(), Instant::now());
    let made = look(&mut state, &tables(&pools, &[]), 0, now);
    let [(name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
    let mut theirs = overlay.clone();
    theirs.spec.price = Some("9.000000".to_owned());
    for round in 0..3 {
        state.prices.wrote(name, &overlay.spec);
        let rewritten = look(&mut state, &tables(&pools, &[shown(name, &theirs, &ready())]), 0, now);
        assert_eq!(rewritten.overlays.len(), usize::from(round < 2), "{round}");
        assert_eq!(rewritten.faults.0.contains_key(&format!("NodeOverlay {name}")), round == 2, "{:?}", rewritten.faults);
    }
}
