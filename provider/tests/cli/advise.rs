//! `stoker advise` and `stoker nodes`, over a journal with a month of readings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stoker_advice::rollup::{Bought, GpuPod, NodeContext, Owner, PodLabels, Rollup, Tally};
use stoker_core::base::ids::{Cloud, GpuUuid, InstanceType, NodeName, PoolName, ProviderId, Region, SessionId, ZoneId};
use stoker_core::base::units::{Milli, UsdPerHour};
use stoker_core::facts::reading::{DriverState, GpuReading, Measured, MemoryLevel, NodeReading, Permille, Source, Why};
use stoker_core::facts::snapshot::{ClusterFacts, Cordon, Hold, NodeFacts};
use stoker_core::facts::supply::InstanceState;
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::state::memory::Memory;
use stoker_core::state::spot_history::SpotHistory;
use stoker_journal::{AcceptedCall, Journal};

use crate::binary::{Ran, golden, stoker};
use crate::journal::{Passes, inventory, launches, made};

const GIB: u64 = 1 << 30;
/// Seconds between two readings: the longest time that one may stand for.
const STEP: i64 = 90;
const MONTH: i64 = 30 * 24 * 3_600;

fn now() -> Timestamp {
    "2026-11-01T12:00:00Z".parse().unwrap()
}

fn place(cloud: &str, region: &str, zone: &str, instance_type: &str) -> Place {
    Place {
        cloud: Cloud::new(cloud).unwrap(),
        region: Region::new(region).unwrap(),
        zone: ZoneId::new(zone).unwrap(),
        instance_type: InstanceType::new(instance_type).unwrap(),
    }
}

fn g5() -> Place {
    place("aws", "us-east-1", "use1-az1", "g5.xlarge")
}

fn g6() -> Place {
    place("aws", "us-east-1", "use1-az1", "g6.xlarge")
}

fn h100() -> Place {
    place("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g")
}

/// A node with one GPU: what it is, whose pod holds it, from which second of the month to which, and what its GPU reads there.
struct Story {
    node: &'static str,
    pool: &'static str,
    market: Market,
    price: i64,
    pod: Option<&'static str>,
    span: (i64, i64),
    reads: fn(i64) -> GpuReading,
}

fn percent(level: u16) -> Measured<Permille> {
    Measured::Known(Permille::new(level * 10).unwrap())
}

fn gpu(utilization: u16, used: u64, total: u64) -> GpuReading {
    let memory = MemoryLevel { used: used * GIB, total: total * GIB, reserved: 0 };
    GpuReading { utilization: percent(utilization), memory: Measured::Known(memory), ..GpuReading::default() }
}

/// Of twenty readings ten say 10 %, nine 30 % and one 60 %: a p50 of 10, a p95 of 30, a peak of 60.
fn recs(second: i64) -> GpuReading {
    let level = match second / STEP % 20 {
        0..10 => 10,
        10..19 => 30,
        _ => 60,
    };
    gpu(level, 10, 24)
}

/// Two hours a day at 20 %, the rest at nothing with 4 GiB in memory.
fn notebook(second: i64) -> GpuReading {
    gpu(if (second - 1).rem_euclid(86_400) < 7_200 { 20 } else { 0 }, 4, 24)
}

fn embed(_: i64) -> GpuReading {
    GpuReading { sm_activity: percent(10), memory_bandwidth: percent(8), ..gpu(12, 7, 80) }
}

fn dark(_: i64) -> GpuReading {
    GpuReading { utilization: Measured::Unknown(Why::GpuLost), ..GpuReading::default() }
}

fn stories() -> Vec<Story> {
    let market = |place: Place, capacity_type| Market { place, capacity_type };
    let story = |node, pool, place, capacity_type, price, pod, reads| {
        let market = market(place, capacity_type);
        Story { node, pool, market, price, pod, span: (0, MONTH), reads }
    };
    let (on_demand, spot) = (CapacityType::OnDemand, CapacityType::Spot);
    vec![
        story("n1", "serving", g5(), on_demand, 1_006_000, Some("ml/recs-7d4b9c5f6d-x2x7z"), recs),
        story("n2", "serving", g5(), on_demand, 1_006_000, Some("ml/recs-7d4b9c5f6d-b4b8c"), recs),
        // Free for the last ten days.
        Story { span: (MONTH * 2 / 3, MONTH), ..story("n3", "serving", g5(), on_demand, 1_006_000, None, |_| gpu(0, 0, 24)) },
        story("n4", "dev", g6(), on_demand, 804_800, Some("research/notebook"), notebook),
        story("n5", "training", g6(), spot, 300_000, Some("train/llm"), |_| gpu(100, 20, 24)),
        story("n6", "embed", h100(), spot, 6_330_000, Some("ml/embed"), embed),
        // Three days, and a GPU of which nothing is known.
        Story {
            span: (0, 3 * 86_400),
            ..story("n7", "training", g6(), spot, 300_000, Some("train/short"), |_| gpu(100, 20, 24))
        },
        story("n8", "training", g6(), spot, 300_000, Some("train/dark"), dark),
    ]
}

fn owned(pod: &str) -> GpuPod {
    let (namespace, name) = pod.split_once('/').unwrap();
    let controller = name.strip_suffix("-x2x7z").or(name.strip_suffix("-b4b8c")).map(|set| ("ReplicaSet", set));
    // Two workloads of one team, and one that says nothing.
    let team = match name {
        "notebook" | "embed" => Some(("team", "search")),
        "llm" => Some(("team", "language")),
        _ => None,
    };
    let owner = Owner::of(namespace, name, controller, None);
    GpuPod { name: Arc::from(pod), uid: None, owner, labels: PodLabels::of(team), units: Some(1), started_after: None }
}

fn reading(uuid: &str, at: Timestamp, gpu: GpuReading) -> NodeReading {
    NodeReading {
        arrived: at,
        source: Source::Probe,
        driver: DriverState::Ready,
        counted: Measured::Known(1),
        gpus: BTreeMap::from([(GpuUuid::new(format!("GPU-8f1c2b6e-0000-4000-8000-0000000000{uuid}")).unwrap(), gpu)]),
        gates: BTreeMap::new(),
    }
}

/// A month of readings, and 720 node-hours with seven reclaims in the market of the training.
async fn write_a_month(state: &Path) {
    let (journal, _) = Journal::open(state).await.unwrap();
    let history = SpotHistory { exposure: 720 * 3_600, reclaims: Milli(7_000), ..SpotHistory::begun(now()) };
    let after = Memory { spot: BTreeMap::from([(g6(), Arc::new(history))]), ..Memory::default() };
    journal.accept(now(), &AcceptedCall::Session { session: SessionId(1) }, &Memory::default(), &after).await.unwrap();
    let (mut rollup, stories) = (Rollup::default(), stories());
    let context = |story: &Story| {
        let (pool, price) = (PoolName::new(story.pool).unwrap(), UsdPerHour(story.price));
        let bought = Bought { pool, market: story.market.clone(), price, gpus: 1, units: 1 };
        NodeContext { bought: Some(bought), pods: Some(story.pod.map(owned).into_iter().collect()) }
    };
    rollup.follow(stories.iter().map(|story| (NodeName::new(story.node).unwrap(), Arc::new(context(story)))).collect());
    for (at, story) in stories.iter().enumerate() {
        let node = NodeName::new(story.node).unwrap();
        for second in (story.span.0..=story.span.1).step_by(usize::try_from(STEP).unwrap()) {
            let at_second = now() - SignedDuration::from_secs(MONTH - second);
            let taken = rollup.take(&node, at_second, &reading(&format!("{at:02}"), at_second, (story.reads)(second)));
            assert_eq!(taken, if second == story.span.0 { Tally::Begins } else { Tally::Counted });
        }
    }
    journal.readings().write(&rollup.flush()).await.unwrap();
    journal.close().await;
}

fn number(value: &Value, path: &str) -> i64 {
    value.pointer(path).and_then(Value::as_i64).unwrap()
}

/// The changed policy differs from the old one in what the measure says, keeps its comments, and can be planned with; nothing is overwritten.
fn a_measure_is_applied_to_a_file(advise: &impl Fn(&[&str]) -> Ran, dir: &Path) {
    let report: Value = serde_json::from_str(&advise(&["--ranked", "-o", "json"]).out).unwrap();
    let measures = report["measures"].as_array().unwrap();
    let rank_of = |what: &str| (measures.iter().position(|measure| measure["what"] == what).unwrap() + 1).to_string();
    let to = dir.join("changed.yaml");
    let to = to.to_str().unwrap();
    let apply = |rank: &str| advise(&["--ranked", "--apply", to, "--measure", rank]);
    let applied = apply(&rank_of("MIG"));
    assert_eq!(applied.code, 0, "{applied:?}");
    golden("advise-apply", &applied.out.replace(to, "changed.yaml"));
    let planned = stoker(&["plan", "--prices-dir", "prices", "--policy", to, "--pool", "embed", "--count", "1"]);
    assert!(planned.code == 0 && planned.err.is_empty(), "{planned:?}");

    let again = apply("1");
    assert!(again.code != 0 && again.err.contains("is there already"), "{again:?}");
    let by_hand = apply(&rank_of("idle pods"));
    assert!(by_hand.code == 2 && by_hand.err.contains("changes no policy"), "{by_hand:?}");
    let none = apply("99");
    assert!(none.code == 2 && none.err.contains("there is no rank 99"), "{none:?}");
}

/// All over 720 hours with readings; a month is 730.
///
/// * ml/recs, two pods on A10G (70 TFLOPS, 600 GB/s, 24 GiB) at $1.006: 2 × 1.006 × 730 = $1,468.76. With a p95 of 30 % it needs
///   70 × 0.3 × 1.2 = 25.2 TFLOPS, as no bandwidth was read 600 × 0.3 × 1.2 = 216 GB/s, and 10 × 1.2 = 12 GiB. An L4 has 121, 300 and 24,
///   the cheapest for $0.706832 in us-central1: 2 × 0.706832 × 730 = $1,031.97472, $436.78528 less. Inference takes no turns.
/// * research/notebook on an L4 at $0.8048: $587.504. Two hours in 24 are 8.3 % of the time, so its p95 is their 20 %: it needs 29.04 TFLOPS,
///   72 GB/s and 4.8 GiB. Four take turns on an L4 with 30.25, 75 and 6 each; five would have 24.2. $0.2012 × 730 = $146.876, $440.628
///   less. 22 of 24 hours are idle: 660 h × 0.8048 = $531.168, $0.7377 an hour.
/// * train/llm at 100 % needs 145.2 TFLOPS, more than what costs less has. Of spot at $0.30, $219 a month: reclaims of g6.xlarge were 7 in
///   720 h, with the prior of a monthly 25 % (0.000394085 an hour) for 10 h: 7.00394 ÷ 730 = 0.0095944 an hour, one in 104.2 h =
///   375,217 s. A checkpoint takes 3 % of 30 min, 54 s: best √(2 × 54 × 375,217) = 6,365.8 s. Now 3 % + 0.0095944 × 0.5 ÷ 2 = 3.2399 % is
///   lost, then 54 ÷ 6,365.8 twice, 1.6966 %: $219 × 1.5433 % = $3.38.
/// * ml/embed on an H100 (989, 3,350, 80) at $6.33: $4,620.90. By SM activity it needs 989 × 0.1 × 1.2 = 118.68 TFLOPS, 3,350 × 0.08 × 1.2 =
///   321.6 GB/s and 8.4 GiB. A seventh of the arithmetic is 141.3, an eighth of the bandwidth 418.75, with 10 GiB: `1g.10gb`, seven a GPU.
///   $6.33 ÷ 7 = $0.904286, × 730 = $660.12878, $3,960.77122 less. An L4 would have the arithmetic and not the bandwidth.
/// * n3 stood free for 240 h: 240 × 1.006 = $241.44, $0.3353 an hour of 720.
#[test]
fn advice_follows_from_a_month_of_readings() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(write_a_month(state.path()));
    let ran = |command: &[&str], args: &[&str]| -> Ran {
        stoker(&[command, &["--state-dir", state.path().to_str().unwrap()], args].concat())
    };
    let advise = |args: &[&str]| ran(&["advise", "--prices-dir", "prices", "--policy", "advise.yaml"], args);
    let table = advise(&[]);
    assert_eq!(table.code, 0, "{table:?}");
    assert!(table.out.lines().all(|line| line.chars().count() <= 120), "{}", table.out);
    golden("advise", &table.out);
    golden("advise-explain", &advise(&["--explain"]).out);
    let ranked = advise(&["--ranked"]);
    assert!(ranked.code == 0 && ranked.out.lines().all(|line| line.chars().count() <= 120), "{ranked:?}");
    golden("advise-ranked", &ranked.out);
    a_measure_is_applied_to_a_file(&advise, state.path());

    let json = advise(&["-o", "json"]).out;
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(number(&report, "/knownHours"), 720);
    let of = |name: &str| {
        let workloads = report["workloads"].as_array().unwrap();
        workloads.iter().find(|row| row["owner"] == name).unwrap_or_else(|| panic!("{name} in {json}"))
    };
    let money = |row: &Value| {
        ["/perMonth/microUsd", "/cheapest/perMonth/microUsd", "/cheapest/savedPerMonth/microUsd"].map(|path| number(row, path))
    };
    let levels = |row: &Value, what: &str| ["p50", "p95", "peak"].map(|level| number(row, &format!("/{what}/{level}")));
    let recs = of("ml/recs");
    assert_eq!((recs["class"].as_str(), levels(recs, "utilization")), (Some("over-provisioned"), [100, 300, 600]));
    // 10 of 24 GiB, rounded up.
    assert_eq!(levels(recs, "memory"), [417; 3]);
    assert_eq!(money(recs), [1_468_760_000, 1_031_974_720, 436_785_280]);
    assert_eq!(recs["cheapest"]["policyChanges"], serde_json::json!([]));
    let notebook = of("research/notebook");
    assert_eq!(levels(notebook, "utilization"), [0, 200, 200]);
    assert_eq!(money(notebook), [587_504_000, 146_876_000, 440_628_000]);
    assert_eq!(notebook["cheapest"]["policyChanges"], serde_json::json!(["sharing: { timeSlicing: 4 }"]));
    let embed = of("ml/embed");
    assert_eq!((levels(embed, "sm"), embed["by"].as_str()), ([100, 100, 100], Some("sm-activity")));
    assert_eq!(money(embed), [4_620_900_000, 660_128_780, 3_960_771_220]);
    assert_eq!(embed["cheapest"]["layout"], "mig 1g.10gb, 7 a GPU");
    let llm = of("train/llm");
    assert_eq!((llm["class"].as_str(), &llm["cheapest"]), (Some("compute-bound"), &Value::Null));
    assert_eq!(llm["stay"], "nothing that fits with headroom costs less");
    assert_eq!([number(llm, "/checkpoints/bestSeconds"), number(llm, "/checkpoints/costSeconds")], [5_744, 54]);
    assert_eq!([number(llm, "/checkpoints/wastedPpm"), number(llm, "/checkpoints/leastPpm")], [32_945, 18_800]);
    // $219 × (32,945 − 18,800) ÷ 10⁶.
    assert_eq!(number(llm, "/checkpoints/savedPerMonth/microUsd"), 3_097_755);
    let refused: Vec<_> =
        report["refused"].as_array().unwrap().iter().map(|row| (row["owner"].as_str(), row["why"].as_str())).collect();
    let why = |days: usize| format!("{days} days of readings, and a week is needed: {} more", 7 - days);
    assert_eq!(refused, [(Some("train/dark"), Some(why(0).as_str())), (Some("train/short"), Some(why(3).as_str()))]);
    let idle = |name: &str| {
        let rows = report["idle"].as_array().unwrap();
        let row = rows.iter().find(|row| row["owner"] == name || row["noOwner"] == name).unwrap();
        ["/residentSeconds", "/emptySeconds", "/unknownSeconds", "/idleCost/microUsd", "/idlePerHour/microUsd"]
            .map(|path| number(row, path))
    };
    assert_eq!(idle("research/notebook"), [660 * 3_600, 0, 0, 531_168_000, 737_733]);
    assert_eq!(idle("nobody (pool serving)"), [0, 240 * 3_600, 0, 241_440_000, 335_333]);
    assert_eq!(idle("train/dark"), [0, 0, 720 * 3_600, 0, 0], "unknown is not idle");

    golden("nodes-by-owner", &ran(&["nodes", "--by", "owner", "--hours", "720"], &[]).out);
    let by_namespace = ran(&["nodes", "--by", "namespace", "-o", "json"], &[]).out;
    let report: Value = serde_json::from_str(&by_namespace).unwrap();
    // The last 24 hours alone: 22 of them idle.
    let row = report["held"].as_array().unwrap().iter().find(|row| row["owner"] == "research").unwrap();
    assert_eq!((number(&report, "/knownHours"), number(row, "/residentSeconds")), (24, 22 * 3_600));

    golden("nodes-by-label", &ran(&["nodes", "--by", "label=team", "--hours", "720"], &[]).out);
    let misspelt = ran(&["nodes", "--by", "label=taem"], &[]);
    assert_eq!(misspelt.code, 5, "{misspelt:?}");
    assert!(misspelt.err.contains("team"), "{misspelt:?}");

    // A week of a month in which a workload ran for six days.
    let early = ran(&["advise", "--prices-dir", "prices", "--policy", "advise.yaml", "--now", "2026-10-08T10:30:00Z"], &[]);
    assert_eq!(early.code, 4, "{early:?}");
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(stoker(&["nodes", "--state-dir", nothing.path().to_str().unwrap()]).code, 5);
}

/// Two nodes at work: one held by a pod whose GPU idles, one free whose readings are an hour old; and one that boots.
async fn write_nodes(state: &Path) {
    let mut passes = Passes::begin(state).await;
    let at = |second: i64| now() - SignedDuration::from_secs(3_600 - second);
    passes.order("serving.g6-xlarge.us-east-1a", 3, at(1)).await;
    let asked = passes.pass(inventory(&[], at(1)), at(1)).await;
    let mut running = made(&asked, at(4), InstanceState::Running);
    running.truncate(launches(&asked).len());
    let node = |n: usize, pods: &[&str]| {
        let name = NodeName::new(format!("sim-{n}")).unwrap();
        let facts = NodeFacts {
            name: name.clone(),
            provider_id: Some(ProviderId::new(format!("sim:///us-east-1a/i-{n}")).unwrap()),
            group: None,
            created_at: at(60),
            ready_since: Some(at(90)),
            gpu_pods: pods.iter().map(ToString::to_string).collect(),
            scale_down_disabled: Hold::None,
            cordon: Cordon::None,
            allocatable: None,
            shown: None,
        };
        (name, Arc::new(facts))
    };
    let cluster = ClusterFacts { nodes: [node(0, &["ml/recs-1"]), node(1, &[])].into() };
    let snapshot = stoker_core::facts::snapshot::Snapshot { cluster: Some(Arc::new(cluster)), ..inventory(&running, at(120)) };
    passes.pass(snapshot, at(120)).await;
    let mut rollup = Rollup::default();
    let market = Market { place: g6(), capacity_type: CapacityType::Spot };
    let pool = PoolName::new("serving").unwrap();
    let bought = Bought { pool, market, price: UsdPerHour(425_568), gpus: 1, units: 1 };
    let context = |pods: Vec<GpuPod>| Arc::new(NodeContext { bought: Some(bought.clone()), pods: Some(pods) });
    let (held, free) = (NodeName::new("sim-0").unwrap(), NodeName::new("sim-1").unwrap());
    rollup.follow([(held.clone(), context(vec![owned("ml/recs-1")])), (free.clone(), context(Vec::new()))].into());
    rollup.take(&held, at(3_540), &reading("00", at(3_540), gpu(0, 12, 24)));
    rollup.take(&free, at(200), &reading("01", at(200), gpu(0, 0, 24)));
    passes.journal.readings().write(&rollup.flush()).await.unwrap();
    passes.journal.close().await;
}

#[test]
fn nodes_are_shown_with_what_they_cost_who_holds_them_and_what_their_gpus_do() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(write_nodes(state.path()));
    let nodes = |args: &[&str]| stoker(&[&["nodes", "--state-dir", state.path().to_str().unwrap()], args].concat());
    let table = nodes(&[]);
    assert_eq!(table.code, 0, "{table:?}");
    assert!(table.out.lines().all(|line| line.chars().count() <= 120), "{}", table.out);
    golden("nodes", &table.out);
    golden("nodes-json", &nodes(&["-o", "json"]).out);
    let report: Value = serde_json::from_str(&nodes(&["--sort", "state", "-o", "json"]).out).unwrap();
    let states: Vec<_> = report["nodes"].as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["booting", "busy", "free"]);
    let nobody = nodes(&["--pool", "nobody"]);
    assert_eq!((nobody.code, nobody.out.as_str()), (5, ""), "{nobody:?}");
    assert!(nobody.err.contains("no node of pool \"nobody\""), "{nobody:?}");
    let busy: Value = serde_json::from_str(&nodes(&["--verdict", "busy", "-o", "json"]).out).unwrap();
    assert_eq!((busy["nodes"].as_array().unwrap().len(), &busy["nodes"][0]["node"]), (1, &Value::from("sim-0")));
    assert_eq!(busy["total"]["nodes"], 1);
    let held: Value = serde_json::from_str(&nodes(&["--verdict", "held", "-o", "json"]).out).unwrap();
    assert_eq!(held["nodes"], Value::Array(Vec::new()));
    let free = nodes(&["--verdict", "free"]);
    assert!(free.code == 2 && free.err.contains("write one of booting, warm, idle"), "{free:?}");
    assert_eq!(nodes(&["--by", "owner", "--sort", "price"]).code, 2);
}
