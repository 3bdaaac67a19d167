//! `stoker commit`, over a journal that counted eight days of use.

use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stoker_core::base::ids::{Cloud, InstanceType, LaunchKey, NodeGroupId, ProviderId, RecordId, Region, ZoneId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::state::memory::Memory;
use stoker_core::state::record::{PodsSeen, Purchase, Record, State};

use crate::binary::{Ran, golden, stoker};
use crate::journal::{Passes, inventory};

/// Cloud, region, zone and instance type.
type Where = (&'static str, &'static str, &'static str, &'static str);

const G6A: Where = ("aws", "us-east-1", "use1-az1", "g6.xlarge");
const G6B: Where = ("aws", "us-east-1", "use1-az2", "g6.xlarge");
const G2: Where = ("gcp", "us-central1", "us-central1-a", "g2-standard-4");

/// A memory that holds so many nodes bought so.
fn held(nodes: &[(Where, CapacityType, u64)]) -> Memory {
    let mut memory = Memory::default();
    for ((cloud, region, zone, instance_type), capacity_type, count) in nodes {
        let place = Place {
            cloud: Cloud::new(*cloud).unwrap(),
            region: Region::new(*region).unwrap(),
            zone: ZoneId::new(*zone).unwrap(),
            instance_type: InstanceType::new(*instance_type).unwrap(),
        };
        for _ in 0..*count {
            let id = memory.next_record;
            memory.next_record += 1;
            let purchase = Purchase {
                key: LaunchKey::new(format!("golden/g/{id}/1")).unwrap(),
                market: Market { place: place.clone(), capacity_type: *capacity_type },
                price: UsdPerHour(1),
                boot_within: SignedDuration::from_mins(10),
                reservation: None,
            };
            let record = Record {
                id: RecordId(id),
                group: NodeGroupId::new("g").unwrap(),
                order: None,
                ordered_at: Timestamp::UNIX_EPOCH,
                credited_to: None,
                floor: false,
                attempts: 1,
                placeholder: ProviderId::new("p").unwrap(),
                pods: PodsSeen::Seen,
                judged: None,
                state: State::Booting {
                    purchase,
                    instance: ProviderId::new(format!("i-{id}")).unwrap(),
                    launched_at: Timestamp::UNIX_EPOCH,
                },
            };
            memory.records.insert(record.id, Arc::new(record));
        }
    }
    memory
}

/// Eight days to noon of 1 November: by day four g6.xlarge, by night two; always three g2-standard-4 and a spot node.
async fn count_eight_days(state: &Path) {
    let mut passes = Passes::begin(state).await;
    // One decision, so that the journal knows the policy.
    let before: Timestamp = "2026-10-24T11:00:00Z".parse().unwrap();
    passes.order("serving.g6-xlarge.us-east-1a", 1, before).await;
    passes.pass(inventory(&[], before), before).await;
    let always = [(G2, CapacityType::OnDemand, 3), (G6A, CapacityType::Spot, 1)];
    let by_day = held(&[&always[..], &[(G6A, CapacityType::OnDemand, 2), (G6B, CapacityType::OnDemand, 2)]].concat());
    let by_night = held(&[&always[..], &[(G6B, CapacityType::OnDemand, 2)]].concat());
    let begin: Timestamp = "2026-10-24T12:00:00Z".parse().unwrap();
    for quarter in 0..=8 * 24 * 4 {
        let at = begin + SignedDuration::from_mins(15 * quarter);
        // What is held at a count stands for the time before it: noon to midnight is day.
        let day = (quarter - 1).rem_euclid(96) < 48;
        passes.journal.count_use(at, if day { &by_day } else { &by_night }).await.unwrap();
    }
    passes.journal.close().await;
}

/// Of the two terms of each, the one that saves more is ranked; applied, the policy counts on it.
fn a_reservation_is_a_measure(state: &Path) {
    let (dir, to) = (state.to_str().unwrap(), state.join("reserved.yaml"));
    let advise = |args: &[&str]| -> Ran {
        let base = ["advise", "--ranked", "--state-dir", dir, "--prices-dir", "prices", "--policy", "commit.yaml"];
        stoker(&[&base[..], args].concat())
    };
    let report: Value = serde_json::from_str(&advise(&["-o", "json"]).out).unwrap();
    let measures = report["measures"].as_array().unwrap();
    let reserve: Vec<(&str, i64)> = measures
        .iter()
        .filter(|measure| measure["what"] == "reserve")
        .map(|measure| (measure["of"].as_str().unwrap(), (number(measure, "/savedPerMonth/microUsd") + 5_000) / 10_000))
        .collect();
    let cud = ("gcp committed-use for three years, L4 in us-central1", 56_759);
    assert_eq!(reserve, [cud, ("aws reserved-instance for three years, g6.xlarge in us-east-1", 31_784)]);
    let applied = advise(&["--apply", to.to_str().unwrap(), "--measure", "1"]);
    assert!(applied.code == 0 && applied.out.contains("committed-use-L4-in-us-central1-3y"), "{applied:?}");
    let planned = stoker(&["policy", "check", to.to_str().unwrap(), "--prices-dir", "prices"]);
    assert_eq!(planned.code, 0, "{planned:?}");
}

fn number(value: &Value, path: &str) -> i64 {
    value.pointer(path).and_then(Value::as_i64).unwrap()
}

/// One g6.xlarge is reserved, so 3 are left by day and 1 by night, 2 on average, and three L4 on Google.
///
/// * g6.xlarge at $0.8048: the cap is 70 % of 2, one node, used always, half of what is left. For a year at $0.5239 it breaks even at
///   65.1 % and saves 730 × 0.2809 = $205.06 a month; with half the use it is used 0.5 by night and 1 by day:
///   730 × (0.75 × 0.8048 − 0.5239) = $58.18. For three at $0.3694: 730 × 0.4354 = $317.84, and 730 × 0.2342 = $170.97.
/// * L4 at $0.706832: the cap is 2.1, two GPUs of three. For a year at $0.445304: 730 × 2 × 0.261528 = $381.83; with half the use 1.5 of
///   the 2 are used: 730 × (1.5 × 0.706832 − 2 × 0.445304) = $123.84.
/// * Spend: 3 × 0.8048 + 3 × 0.706832 = $4.534896 an hour on average, $0.8048 of it covered.
#[test]
fn what_to_commit_to_follows_from_the_use_that_was_counted() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(count_eight_days(state.path()));
    let commit = |args: &[&str]| -> Ran {
        let base = ["commit", "--state-dir", state.path().to_str().unwrap(), "--prices-dir", "prices"];
        stoker(&[&base[..], args].concat())
    };
    let all = commit(&["--policy", "commit.yaml"]);
    assert_eq!(all.code, 0, "{all:?}");
    assert!(all.out.lines().all(|line| line.chars().count() <= 120), "{}", all.out);
    golden("commit", &all.out);
    a_reservation_is_a_measure(state.path());

    let json = commit(&["--policy", "commit.yaml", "-o", "json"]).out;
    golden("commit-json", &json);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((number(&report, "/used/microUsd"), number(&report, "/coveredAlready/microUsd")), (4_534_896, 804_800));
    let row = |at: usize| {
        let path = |field: &str| number(&report, &format!("/proposals/{at}/{field}"));
        let commit = report["proposals"][at]["commit"].as_object().unwrap().values().next().unwrap().as_i64();
        (
            commit.unwrap(),
            path("coversPermille"),
            path("breakEvenPermille"),
            path("savedPerMonth/microUsd"),
            path("ifUseFalls/1/savedPerMonth/microUsd"),
        )
    };
    assert_eq!(row(0), (1, 500, 651, 205_057_000, 58_181_000));
    assert_eq!(row(1), (1, 500, 459, 317_842_000, 170_966_000));
    assert_eq!(row(2), (2, 666, 630, 381_830_880, 123_837_200));

    // The service's own policy has no commitments, so nothing is taken off: the mean of 4 and 2 makes a cap of two nodes.
    let own = commit(&["--kind", "reserved-instance", "--term", "1y", "-o", "json"]);
    let report: Value = serde_json::from_str(&own.out).unwrap();
    assert_eq!((number(&report, "/proposals/0/commit/nodes"), number(&report, "/coveredAlready/microUsd")), (2, 0));
    golden("commit-offer", &commit(&["--kind", "ec2-savings-plan", "--term", "1y", "--discount", "28%"]).out);

    // Three days earlier only five were counted.
    let early = commit(&["--now", "2026-10-29T12:30:00Z"]);
    assert_eq!(early.code, 4, "{early:?}");
    golden("commit-too-little", &early.out);
}

/// No table tells which zones of us-east-1 sell p3.2xlarge: the price is listed, and a row of a zone
/// under `prices` is taken.
#[test]
fn commit_prices_what_the_operator_bought_in_a_zone_that_no_table_tells() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let v100: Where = ("aws", "us-east-1", "use1-az2", "p3.2xlarge");
    runtime.block_on(async {
        let passes = Passes::begin(state.path()).await;
        let begin: Timestamp = "2026-10-24T12:00:00Z".parse().unwrap();
        let nodes = held(&[(v100, CapacityType::OnDemand, 4)]);
        for quarter in 0..=8 * 24 * 4 {
            passes.journal.count_use(begin + SignedDuration::from_mins(15 * quarter), &nodes).await.unwrap();
        }
        passes.journal.close().await;
    });
    let policy = state.path().join("policy.yaml");
    let commit = |prices: &str| {
        let text = format!(
            "{{apiVersion: stoker.dev/v1alpha1, kind: Policy, clusterName: c, pools: [{{name: dev, workload: dev, \
             gpu: {{models: [V100], count: 1}}, where: {{clouds: [aws], regions: [us-east-1]}}, limits: {{maxNodes: 4}}}}]{prices}}}"
        );
        std::fs::write(&policy, text).unwrap();
        let dir = state.path().to_str().unwrap();
        let offer = ["--kind", "reserved-instance", "--term", "1y", "--discount", "40.5%"];
        stoker(&[&["commit", "--state-dir", dir, "--policy", policy.to_str().unwrap()], &offer[..]].concat())
    };
    let listed = commit("");
    assert_eq!(listed.code, 0, "{listed:?}");
    // 4 x $3.06 = $12.24 an hour.
    assert!(listed.out.contains("$12.2400/h at on-demand prices"), "{listed:?}");
    let row = ", prices: [{cloud: aws, region: us-east-1, zone: use1-az2, instanceType: p3.2xlarge, \
               capacityType: on-demand, usdPerHour: 3.00}]";
    let own = commit(row);
    assert!(own.out.contains("$12.0000/h at on-demand prices"), "{own:?}");
}
