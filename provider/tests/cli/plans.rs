//! `stoker estimate`, and `stoker plan` for each cloud and each kind of commitment, over tables with round prices, so that a hand can check them.

use serde_json::Value;

use crate::binary::{Ran, golden, stoker};

/// What is chosen of one market: zone, capacity type, nodes, price of one, and what the first is ranked by, in micro-dollars an hour.
type Chosen<'a> = (&'a str, &'a str, u64, i64, i64);

/// What is due for a covered node: its price divided by ten million, and at least a micro-dollar.
const TRIFLE: i64 = 1;

fn plan(name: &str, count: &str, output: &str) -> Ran {
    let policy = format!("plans/{name}.yaml");
    stoker(&["plan", "--policy", &policy, "--prices-dir", "plans/prices", "--pool", "work", "--count", count, "-o", output])
}

/// Compares a plan with its golden, and its numbers with those worked out by hand: what is chosen, and what that costs an hour at list
/// prices and after what commitments pay.
fn by_hand(name: &str, count: u64, chosen: &[Chosen<'_>], list: i64, cash: i64) -> Value {
    let ran = plan(name, &count.to_string(), "table");
    let found: u64 = chosen.iter().map(|(_, _, nodes, ..)| nodes).sum();
    assert_eq!(ran.code, if found < count { 4 } else { 0 }, "{name}: {ran:?}");
    golden(&format!("plan-{name}"), &ran.out);
    let report: Value = serde_json::from_str(&plan(name, &count.to_string(), "json").out).unwrap();
    let micros = |money: &Value| money["microUsd"].as_i64().unwrap();
    let rows = report["candidates"].as_array().unwrap().iter().filter(|row| row["verdict"] == "chosen");
    let told: Vec<_> = rows
        .map(|row| {
            let text = |field: &str| row[field].as_str().unwrap();
            let price = |field: &str| micros(&row["price"][field]);
            (text("zone"), text("capacityType"), row["nodes"].as_u64().unwrap(), price("perNode"), price("effectivePerNode"))
        })
        .collect();
    assert_eq!((report["found"].as_u64(), told.as_slice()), (Some(found), chosen), "{name}");
    assert_eq!(told.iter().map(|(_, _, nodes, price, _)| i64::try_from(*nodes).unwrap() * price).sum::<i64>(), list, "{name}");
    match report.get("listTotal") {
        Some(listed) => assert_eq!((micros(listed), micros(&report["total"])), (list, cash), "{name}"),
        None => assert_eq!(micros(&report["total"]), list, "{name}"),
    }
    report
}

/// Why an offer of this market lost.
fn reason<'a>(report: &'a Value, zone: &str, capacity_type: &str) -> &'a str {
    let mut rows = report["candidates"].as_array().unwrap().iter();
    rows.find(|row| row["zone"] == zone && row["capacityType"] == capacity_type).unwrap()["reason"].as_str().unwrap()
}

/// Spot first. A node has 4 vCPU, so a quota of 14 holds three and leaves 2; the other two are bought on demand: 3 × 0.30 + 2 × 0.80 =
/// $2.50.
///
/// 2.5 % of nodes a month are reclaimed, −ln 0.975 ÷ 730 = 0.0000347 an hour; a quarter of them, 0.000394, count as 0.16, so this as
/// 0.0141. Each costs half of 30 min and a restart of 5: a third of an hour. 3 % go into checkpoints. Useful is
/// 1 − 0.03 − 0.004694 = 0.965306, and 0.30 ÷ 0.965306 = $0.310783, rounded up.
#[test]
fn aws() {
    let chosen = [("use1-az1", "spot", 3, 300_000, 310_783), ("use1-az1", "on-demand", 2, 800_000, 800_000)];
    let report = by_hand("aws", 5, &chosen, 2_500_000, 2_500_000);
    let binding = reason(&report, "use1-az2", "spot");
    assert!(binding.starts_with("quota L-3819A6DF us-east-1: 2 of 14 vCPU left"), "{binding}");
}

/// Two preemptible GPUs, in the cheaper zone; then on demand, of which 4 were allowed but all regions together hold 5 GPUs: 3. The sixth
/// is not to be had. 2 × 0.38 + 3 × 0.70 = $2.86.
///
/// No table tells Google's reclaims: 0.16 an hour are assumed, a third of an hour each. 1 − 0.03 − 0.053333 = 0.916666, and
/// 0.38 ÷ 0.916666 = $0.414546, rounded against spot.
#[test]
fn gcp() {
    let chosen = [("us-central1-b", "spot", 2, 380_000, 414_546), ("us-central1-a", "on-demand", 3, 700_000, 700_000)];
    let report = by_hand("gcp", 6, &chosen, 2_860_000, 2_860_000);
    let binding = reason(&report, "us-central1-a", "spot");
    assert!(binding.starts_with("quota PREEMPTIBLE_NVIDIA_L4_GPUS us-central1: 0 of 2 GPU left"), "{binding}");
    let binding = reason(&report, "us-central1-b", "on-demand");
    assert!(binding.starts_with("quota GPUS_ALL_REGIONS: 0 of 5 GPU left"), "{binding}");
}

/// A node has 4 vCPU. Spot has one pool for all families, 8: two nodes. On demand needs its family (16) and the regional total (10), and
/// the total binds: two more. 2 × 0.10 + 2 × 0.50 = $1.20; 0.10 ÷ 0.916666 = $0.109091.
#[test]
fn azure() {
    let chosen = [("eastus", "spot", 2, 100_000, 109_091), ("eastus", "on-demand", 2, 500_000, 500_000)];
    by_hand("azure", 5, &chosen, 1_200_000, 1_200_000);
}

/// Two nodes are paid for, at $1.00 an hour for both: they go before the spot that the pool prefers, and cost nothing more. The third is
/// spot. List 2 × 0.80 + 0.30 = $1.90, cash $0.30.
#[test]
fn reserved_instance() {
    let chosen = [("use1-az1", "on-demand", 2, 800_000, TRIFLE), ("use1-az1", "spot", 1, 300_000, 310_783)];
    by_hand("reserved-instance", 3, &chosen, 1_900_000, 300_000);
}

/// $1.25 an hour at rates 37.5 % below on-demand, $0.50 a node: two nodes and half of the third, whose other half costs $0.40. List
/// 3 × 0.80 = $2.40, cash $0.40.
#[test]
fn ec2_savings_plan() {
    by_hand("ec2-savings-plan", 3, &[("use1-az1", "on-demand", 3, 800_000, TRIFLE)], 2_400_000, 400_000);
}

/// $27.50 an hour at 45 % off cover 27.50 ÷ 0.55 = $50 of the node's $55: it is ranked by the $5 that are left.
#[test]
fn compute_savings_plan() {
    by_hand("compute-savings-plan", 1, &[("use1-az1", "on-demand", 1, 55_000_000, 5_000_000)], 55_000_000, 5_000_000);
}

/// Two nodes are kept in the second zone and billed, used or not: they come first and add nothing to the bill. The third is bought on
/// demand. List 3 × 0.80 = $2.40, cash $0.80.
#[test]
fn capacity_reservation() {
    let chosen = [("use1-az2", "reserved", 2, 800_000, TRIFLE), ("use1-az1", "on-demand", 1, 800_000, 800_000)];
    by_hand("capacity-reservation", 3, &chosen, 2_400_000, 800_000);
}

/// One node for a week that has begun, paid ahead: 8 GPUs at $4.92 are $39.36 an hour, and nothing more is due; a trifle of that is 3.9
/// micro-dollars. Nothing is bought on demand beside it: the quota of P instances is not listed.
#[test]
fn capacity_block() {
    let report = by_hand("capacity-block", 2, &[("use1-az1", "reserved", 1, 39_360_000, 3)], 39_360_000, 0);
    let barred = reason(&report, "use1-az1", "on-demand");
    assert!(barred.starts_with("quota L-417A185B us-east-1") && barred.contains("is not in the policy"), "{barred}");
}

/// Six GPUs of $1 each; a node has four. The first node is covered whole, the second by half: list 2 × 4 = $8, cash $2.
#[test]
fn committed_use() {
    by_hand("committed-use", 2, &[("us-central1-a", "on-demand", 2, 4_000_000, TRIFLE)], 8_000_000, 2_000_000);
}

/// One node is kept in the second zone; the other is bought on demand. List 2 × 0.70 = $1.40, cash $0.70.
#[test]
fn reservation_of_gcp() {
    let chosen = [("us-central1-b", "reserved", 1, 700_000, TRIFLE), ("us-central1-a", "on-demand", 1, 700_000, 700_000)];
    by_hand("reservation-gcp", 2, &chosen, 1_400_000, 700_000);
}

/// A discount on one node, without capacity: bought on demand as any, the first for nothing more. List 2 × 3.60 = $7.20, cash $3.60.
#[test]
fn reservation_of_azure() {
    by_hand("reservation-azure", 2, &[("eastus", "on-demand", 2, 3_600_000, TRIFLE)], 7_200_000, 3_600_000);
}

/// One node for a week, paid ahead: 8 GPUs at $4.57 are $36.56 an hour. The second is not to be had: all of it is used, and no quota
/// for H100 on demand is listed.
#[test]
fn calendar_reservation() {
    by_hand("calendar-reservation", 2, &[("us-central1-a", "reserved", 1, 36_560_000, 3)], 36_560_000, 0);
}

/// $3.00 an hour at 25 % off are worth $4.00 on demand: one node of $3.60 and $0.40 of the second. List $7.20, cash $3.20.
#[test]
fn savings_plan() {
    by_hand("savings-plan", 2, &[("eastus", "on-demand", 2, 3_600_000, TRIFLE)], 7_200_000, 3_200_000);
}

/// Where a policy names suppliers, a plan says who would make each node.
#[test]
fn a_plan_says_who_makes_a_node_where_the_policy_names_suppliers() {
    let dir = tempfile::tempdir().unwrap();
    let (named, unnamed) = (dir.path().join("named.yaml"), dir.path().join("unnamed.yaml"));
    let text = "apiVersion: stoker.dev/v1alpha1\nkind: Policy\nclusterName: c\npools:\n- name: work\n  workload: inference\n  \
                gpu: {models: [L4]}\n  where: {clouds: [aws], regions: [us-east-1]}\n  capacity: {prefer: [on-demand]}\n  \
                limits: {maxNodes: 4}\n";
    std::fs::write(&unnamed, text).unwrap();
    std::fs::write(&named, format!("{text}  nodeClass: gpu\nsuppliers: [{{name: karpenter, kind: karpenter}}]\n")).unwrap();
    let plan =
        |policy: &std::path::Path| stoker(&["plan", "--policy", policy.to_str().unwrap(), "--pool", "work", "--count", "1"]);
    let chosen = |ran: Ran| ran.out.lines().find(|line| line.contains("chosen")).unwrap().to_owned();
    assert!(chosen(plan(&named)).contains("g6.xlarge on-demand from karpenter: $"), "{:?}", plan(&named));
    assert!(chosen(plan(&unnamed)).contains("g6.xlarge on-demand: $"), "{:?}", plan(&unnamed));
}

/// Rates of the tables with round prices, and of one's own; the arithmetic is tested where it is done.
#[test]
fn estimates_need_no_service() {
    let mut told = Vec::new();
    let cases: [(i32, &str); 12] = [
        (0, "run --gpus 16 --hours 48 --limit 4"),
        (0, "run --gpus 3 --hours 10 --cloud aws --capacity-type on-demand --limit 1 -o json"),
        (0, "run --gpus 8 --hours 48 --capacity-type spot --lost 20% --limit 1"),
        (0, "reserve --on-demand 3.06 --one-year 1.82 --three-years 1.31 --nodes 10 --use 50%"),
        (0, "move --data 10000 --per-gib 0.05 --rate-from 4.09 --rate-to 2.60 --nodes 10 --hours 720"),
        (0, "move --data 10 --monthly 100000 --per-gib 0.05 --rate-from 4 --rate-to 3.9"),
        (2, "run --hours 48 --lost 100%"),
        (2, "run --hours 0"),
        (2, "reserve --on-demand 3"),
        (2, "reserve --on-demand 0 --one-year 1"),
        (5, "reserve --type a.nothing"),
        (5, "move --data 10 --from aws/nowhere --to aws/us-east-1 --type a.nothing"),
    ];
    for (code, case) in cases {
        let args: Vec<&str> = ["estimate"].into_iter().chain(case.split(' ')).chain(["--prices-dir", "plans/prices"]).collect();
        let ran = stoker(&args);
        assert_eq!(ran.code, code, "{case} {ran:?}");
        told.push(format!("$ stoker estimate {case}\n{}{}", ran.out, ran.err));
    }
    golden("estimate", &told.join("\n"));
}
