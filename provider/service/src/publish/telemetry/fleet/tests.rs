use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::SignedDuration;
use prometheus_client::registry::Registry;
use serde_json::json;
use stoker_advice::rollup::{GpuPod, Owner, PodLabels};
use stoker_core::base::ids::{
    Cloud, GpuModel, InstanceType, LaunchKey, NodeGroupId, NodeName, ProviderId, RecordId, Region, SignalName, SupplierName,
    ZoneId,
};
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::facts::snapshot::{Allocatable, Cordon, Hold, NodeFacts};
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::{Arch, InstanceSpec, Market, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::demand::{Amount, NoLevel, PoolDemand, SignalLevel};
use stoker_core::policy::{Policy, RawPolicy};
use stoker_core::state::node_verdict::Verdict;
use stoker_core::state::record::{PodsSeen, Purchase};
use stoker_core::state::shortfall::NodeShortfall;
use tokio::sync::watch;

use super::*;
use crate::kube::feed::{BoundGpuPod, GpuPods};
use crate::kube::pods::Requests;
use crate::kube::thin::Asks;
use crate::publish::telemetry::{Metrics, StateDisk};

const GROUP: &str = "infer.g6-12xlarge.use1-az1";

fn place() -> Place {
    Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new("g6.12xlarge").unwrap(),
    }
}

fn market(capacity_type: CapacityType) -> Market {
    Market { place: place(), capacity_type }
}

/// One type with four L4 and 48 vCPUs at $4 an hour on demand, quoted ten days ago, and a spot price that has lapsed since.
fn catalogue(now: Timestamp) -> Arc<Catalogue> {
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test",
        "pools": [{
            "name": "infer", "workload": "training", "gpu": { "models": ["L4"] },
            "where": { "clouds": ["aws"], "regions": ["us-east-1"] },
            "capacity": { "prefer": ["on-demand", "spot"] }, "limits": { "minNodes": 4, "maxNodes": 10 },
        }],
        "quotas": [{ "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 400, "used": 32, "safety": 16 }],
    }))
    .unwrap();
    let mut book = PriceBook::new();
    book.insert_spec(InstanceSpec {
        cloud: Cloud::new("aws").unwrap(),
        instance_type: InstanceType::new("g6.12xlarge").unwrap(),
        gpu_model: GpuModel::new("L4").unwrap(),
        gpus: Milli(4_000),
        gpu_memory: MiB::from_gib(24),
        vcpus: Some(48),
        memory: Some(MiB::from_gib(192)),
        arch: Arch::Amd64,
        network: None,
        local_disk: None,
    });
    for (capacity_type, kind, micros) in
        [(CapacityType::OnDemand, QuoteKind::List, 4_000_000), (CapacityType::Spot, QuoteKind::Spot, 1_000_000)]
    {
        let as_of = now.checked_sub(SignedDuration::from_hours(240)).ok();
        let quote = Quote { price: UsdPerHour(micros), kind, as_of, source: Arc::from("test") };
        book.insert(market(capacity_type), Entry::Price(quote));
    }
    let facts = MarketFacts { clouds: [Cloud::new("aws").unwrap()].into(), ..MarketFacts::default() };
    let suppliers = BTreeMap::from([(SupplierName::new("test").unwrap(), facts)]);
    Arc::new(Catalogue::derive(&Arc::new(Policy::try_from_raw(&raw).unwrap()), &book, &suppliers))
}

fn purchase(number: u64) -> Purchase {
    Purchase {
        key: LaunchKey::new(format!("test/{GROUP}/{number}/0")).unwrap(),
        market: market(CapacityType::OnDemand),
        price: UsdPerHour(4_000_000),
        boot_within: SignedDuration::from_mins(10),
        reservation: None,
    }
}

fn record(number: u64, now: Timestamp, state: State) -> Arc<Record> {
    Arc::new(Record {
        id: RecordId(number),
        group: NodeGroupId::new(GROUP).unwrap(),
        order: None,
        ordered_at: now,
        credited_to: None,
        floor: false,
        attempts: 1,
        placeholder: ProviderId::new(format!("stoker://placeholder/{number}")).unwrap(),
        pods: PodsSeen::Seen,
        judged: None,
        state,
    })
}

fn machine(number: u64) -> ProviderId {
    ProviderId::new(format!("aws:///use1-az1/i-{number}")).unwrap()
}

fn joined(number: u64, now: Timestamp, named: bool) -> Arc<Record> {
    let node = named.then(|| NodeName::new(format!("node-{number}")).unwrap());
    let state = State::Registered {
        purchase: purchase(number),
        instance: machine(number),
        launched_at: now,
        node,
        at: now,
        ready_at: Some(now),
    };
    record(number, now, state)
}

fn facts(number: u64, now: Timestamp, pods: &[&str]) -> Arc<NodeFacts> {
    Arc::new(NodeFacts {
        name: NodeName::new(format!("node-{number}")).unwrap(),
        provider_id: Some(machine(number)),
        group: None,
        created_at: now,
        ready_since: Some(now),
        gpu_pods: pods.iter().map(|pod| (*pod).to_owned()).collect::<BTreeSet<_>>(),
        scale_down_disabled: Hold::None,
        cordon: Cordon::None,
        allocatable: None,
        shown: None,
    })
}

/// A scrape of that fleet.
fn scrape(fleet: Fleet) -> String {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    metrics.fleet(fleet);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn nodes_gpus_floors_quotas_and_prices_are_told() {
    let now = Timestamp::now();
    let catalogue = catalogue(now);
    assert!(catalogue.groups.contains_key(&NodeGroupId::new(GROUP).unwrap()), "{:?}", catalogue.groups.keys());
    let booting = State::Booting { purchase: purchase(3), instance: machine(3), launched_at: now };
    let records = [joined(0, now, true), joined(1, now, true), joined(2, now, true), record(3, now, booting)];
    let memory = Memory { records: records.map(|record| (record.id, record)).into(), ..Memory::default() };
    // One is held, one is not, of one nothing is known.
    let nodes = [facts(0, now, &["default/a"]), facts(1, now, &[])].map(|facts| (facts.name.clone(), facts));
    let cluster = ClusterFacts { nodes: nodes.into() };
    let text = scrape(Fleet { catalogue, memory: Arc::new(memory), cluster: Some(Arc::new(cluster)), floors: Vec::new() });
    let gpus =
        |used: &str| format!("stoker_gpus{{pool=\"infer\",workload=\"training\",capacity_type=\"on-demand\",use=\"{used}\"}}");
    let quota = "{quota=\"L-DB2E81BA\",cloud=\"aws\",region=\"us-east-1\",unit=\"vcpus\"}";
    let info = "stoker_node_info{node=\"node-0\",pool=\"infer\",workload=\"training\",instance_type=\"g6.12xlarge\",\
                zone=\"use1-az1\",capacity_type=\"on-demand\"}";
    for (series, expected) in [
        (info.to_owned(), Some(1.0)),
        ("stoker_node_usd_per_hour{node=\"node-0\"}".to_owned(), Some(4.0)),
        ("stoker_node_gpus{node=\"node-1\"}".to_owned(), Some(4.0)),
        ("stoker_node_busy{node=\"node-0\"}".to_owned(), Some(1.0)),
        ("stoker_node_busy{node=\"node-1\"}".to_owned(), Some(0.0)),
        ("stoker_node_busy{node=\"node-2\"}".to_owned(), None),
        (gpus("busy"), Some(4.0)),
        (gpus("idle"), Some(4.0)),
        (gpus("unknown"), Some(4.0)),
        (gpus("away"), Some(4.0)),
        ("stoker_gpus{pool=\"infer\",workload=\"training\",capacity_type=\"spot\",use=\"busy\"}".to_owned(), Some(0.0)),
        ("stoker_floor_nodes{pool=\"infer\"}".to_owned(), Some(4.0)),
        // Three of four are Ready.
        ("stoker_floor_missing_nodes{pool=\"infer\"}".to_owned(), Some(1.0)),
        // 400 less 16 kept back; 4 × 48 here and 32 elsewhere.
        (format!("stoker_quota_limit{quota}"), Some(384.0)),
        (format!("stoker_quota_used{quota}"), Some(224.0)),
        ("stoker_offers{pool=\"infer\",price=\"dated\"}".to_owned(), Some(1.0)),
        ("stoker_offers{pool=\"infer\",price=\"lapsed\"}".to_owned(), Some(1.0)),
        ("stoker_offers{pool=\"infer\",price=\"unknown\"}".to_owned(), Some(0.0)),
    ] {
        assert_eq!(value(&text, &series), expected, "{series} in\n{text}");
    }
    for kind in ["list", "spot"] {
        let age = value(&text, &format!("stoker_price_age_seconds{{pool=\"infer\",kind=\"{kind}\"}}")).unwrap();
        assert!((864_000.0..864_100.0).contains(&age), "{age}");
    }
}

/// GPU pods as the watch tells them: each with its node and its GPUs.
fn holding(pods: &[(&str, &str, u64)]) -> watch::Receiver<Arc<GpuPods>> {
    let bound = |(name, node, gpus): &(&str, &str, u64)| {
        let owner = Owner { namespace: "ml".into(), name: "train".into() };
        let (name, uid) = (Arc::from(*name), Some(Arc::from(format!("uid-{name}"))));
        let labels = PodLabels::default();
        let pod = GpuPod { name: Arc::clone(&name), uid, owner, labels, units: None, started_after: None };
        let requests = Requests { gpus: *gpus, ..Requests::default() };
        let asks = Asks { node: (*node).to_owned(), requests: Some(requests), ..Asks::default() };
        (name, BoundGpuPod { pod, asks: Arc::new(asks) })
    };
    watch::channel(Arc::new(pods.iter().map(bound).collect())).1
}

/// A node of four GPUs at $4 an hour: $1 for each. `a` holds three of them; what claims hold is not known by number, and what sits on
/// nodes of others is not Stoker's.
#[test]
fn costs_and_allocation_are_told_under_opencosts_names() {
    let now = Timestamp::now();
    let memory = Memory { records: [(RecordId(0), joined(0, now, true))].into(), ..Memory::default() };
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    metrics.opencost(&mut registry, Some(holding(&[("ml/a", "node-0", 3), ("ml/b", "node-0", 0), ("ml/c", "theirs", 8)])));
    let scrape = |registry: &Registry| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    };
    assert!(!scrape(&registry).contains("hourly_cost"), "before the first pass nothing is known");
    metrics.fleet(Fleet { catalogue: catalogue(now), memory: Arc::new(memory), cluster: None, floors: Vec::new() });
    let text = scrape(&registry);
    let node = "{instance=\"node-0\",node=\"node-0\",instance_type=\"g6.12xlarge\",region=\"us-east-1\",\
                provider_id=\"aws:///use1-az1/i-0\",arch=\"amd64\"}";
    let pod = "{namespace=\"ml\",pod=\"a\",instance=\"node-0\",node=\"node-0\",uid=\"uid-ml/a\"}";
    for (series, expected) in [
        (format!("node_total_hourly_cost{node}"), 4.0),
        (format!("node_gpu_hourly_cost{node}"), 1.0),
        (format!("node_gpu_count{node}"), 4.0),
        (format!("kubecost_node_is_spot{node}"), 0.0),
        (format!("container_gpu_allocation{pod}"), 3.0),
    ] {
        assert_eq!(value(&text, &series), Some(expected), "{series} in\n{text}");
    }
    assert_eq!(text.matches("\ncontainer_gpu_allocation{").count(), 1, "{text}");
}

#[test]
fn a_warm_floor_is_told_with_its_cost_and_what_is_missing() {
    let now = Timestamp::now();
    let floor = FloorStands {
        pool: PoolName::new("infer").unwrap(),
        wanted: 6,
        why: "nodes".to_owned(),
        warm: 1,
        coming: 2,
        usd_per_hour: UsdPerHour(24_000_000),
        unmet_since: Some(now),
        blocked: None,
    };
    let text = scrape(Fleet { catalogue: catalogue(now), memory: Arc::default(), cluster: None, floors: vec![floor] });
    for (series, expected) in [
        ("stoker_warm_floor_wanted_nodes", 6.0),
        ("stoker_warm_floor_warm_nodes", 1.0),
        ("stoker_warm_floor_coming_nodes", 2.0),
        ("stoker_warm_floor_usd_per_hour", 24.0),
        // Five warm ones are more than the four of minNodes, of which none is there.
        ("stoker_floor_missing_nodes", 5.0),
    ] {
        assert_eq!(value(&text, &format!("{series}{{pool=\"infer\"}}")), Some(expected), "{series} in\n{text}");
    }
}

#[test]
fn without_a_cluster_nodes_go_by_their_machines_and_nobody_knows_what_is_in_use() {
    let now = Timestamp::now();
    let memory = Memory { records: [(RecordId(0), joined(0, now, false))].into(), ..Memory::default() };
    let text = scrape(Fleet { catalogue: catalogue(now), memory: Arc::new(memory), cluster: None, floors: Vec::new() });
    assert_eq!(value(&text, "stoker_node_usd_per_hour{node=\"aws:///use1-az1/i-0\"}"), Some(4.0));
    assert!(!text.contains("stoker_node_busy{"), "{text}");
    let unknown = "stoker_gpus{pool=\"infer\",workload=\"training\",capacity_type=\"on-demand\",use=\"unknown\"}";
    assert_eq!(value(&text, unknown), Some(4.0));
}

#[test]
fn verdicts_are_counted_by_pool_and_what_held_nodes_cost() {
    let now = Timestamp::now();
    let judged = |number, verdict| {
        let why = stoker_core::state::node_verdict::Reason::Pods;
        let judged = Some(stoker_core::state::node_verdict::Judged { verdict, why, since: now });
        Arc::new(Record { judged, ..Record::clone(&joined(number, now, true)) })
    };
    let records = [judged(0, Verdict::Held), judged(1, Verdict::Held), judged(2, Verdict::Unknown), joined(3, now, true)];
    let memory = Arc::new(Memory { records: records.map(|record| (record.id, record)).into(), ..Memory::default() });
    let fleet = Fleet { catalogue: catalogue(now), memory, cluster: Some(Arc::default()), floors: Vec::new() };
    let text = scrape(fleet.clone());
    let nodes = |verdict: &str| value(&text, &format!("stoker_verdict_nodes{{pool=\"infer\",verdict=\"{verdict}\"}}"));
    assert_eq!([nodes("held"), nodes("unknown"), nodes("busy")], [Some(2.0), Some(1.0), Some(0.0)], "{text}");
    assert_eq!(value(&text, "stoker_held_usd_per_hour{pool=\"infer\"}"), Some(8.0));
    let blind = scrape(Fleet { cluster: None, ..fleet });
    assert!(!blind.contains("stoker_verdict_nodes") && !blind.contains("stoker_held_usd_per_hour"), "{blind}");
}

#[test]
fn what_pods_without_gpu_keep_is_told_in_dollars() {
    let now = Timestamp::now();
    let records = [0, 1, 2].map(|number| (RecordId(number), joined(number, now, true)));
    let nodes = [facts(0, now, &[]), facts(1, now, &["ml/train"]), facts(2, now, &[])].map(|facts| (facts.name.clone(), facts));
    let fleet = Fleet {
        catalogue: catalogue(now),
        memory: Arc::new(Memory { records: records.into(), ..Memory::default() }),
        cluster: Some(Arc::new(ClusterFacts { nodes: nodes.into() })),
        floors: Vec::new(),
    };
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    metrics.fleet(fleet);
    let kept = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        value(&text, "stoker_pods_without_gpu_usd_per_hour{pool=\"infer\"}")
    };
    assert_eq!(kept(), Some(0.0));
    // The second is busy with a GPU pod, too: it would stay without them.
    let on = ["node-0", "node-1"].map(|name| NodeName::new(name).unwrap());
    metrics.guests(&[(PoolName::new("infer").unwrap(), 2)].into(), on.into());
    assert_eq!(kept(), Some(4.0));
}

/// A row of the page for each metric of a scrape: its labels are those of its first series.
fn rows(text: &str) -> String {
    let mut rows = String::new();
    for block in text.split("# HELP ").skip(1) {
        let (name, rest) = block.split_once(' ').unwrap();
        let (help, rest) = rest.split_once('\n').unwrap();
        let field =
            |key: &str| rest.lines().find_map(|line| line.strip_prefix(&format!("# {key} {name} "))).unwrap_or_default();
        let series = rest.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
        let labels = series.split_once('{').and_then(|(_, labels)| labels.rsplit_once('}')).map_or("", |(labels, _)| labels);
        let labels =
            labels.split("\",").filter_map(|label| label.split("=\"").next()).filter(|label| !["", "le"].contains(label));
        let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
        let kind = field("TYPE");
        let total = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let _ = writeln!(rows, "| `{name}{total}` | {kind} | {} | {} | {help} |", field("UNIT"), labels.join(", "));
    }
    rows
}

#[test]
fn the_page_of_metrics_has_all_that_a_scrape_shows() {
    let now = Timestamp::now();
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    registry.sub_registry_with_prefix("stoker").register_collector(Box::new(StateDisk(env!("CARGO_MANIFEST_DIR").into())));
    crate::publish::telemetry::tests::everything(&metrics);
    crate::feeds::probes::ProbeMetrics::register(&mut registry);
    let levels = [
        SignalLevel::Known { amount: Amount(1), replicas: 2, at: now },
        SignalLevel::Unknown { why: NoLevel::Stale, since: now },
    ];
    let signals = ["queue", "qps"].map(|name| SignalName::new(name).unwrap()).into_iter().zip(levels).collect();
    let demand = [(PoolName::new("infer").unwrap(), Arc::new(PoolDemand { signals }))].into();
    crate::feeds::prometheus::Metrics::register(&mut registry).demand(&demand);
    let mut memory = Memory { records: [(RecordId(0), joined(0, now, true))].into(), ..Memory::default() };
    let nodes = [facts(0, now, &[])].map(|facts| (facts.name.clone(), facts));
    let floors = vec![FloorStands {
        pool: PoolName::new("infer").unwrap(),
        wanted: 6,
        why: "nodes".to_owned(),
        warm: 1,
        coming: 2,
        usd_per_hour: UsdPerHour(24_000_000),
        unmet_since: Some(now),
        blocked: None,
    }];
    let allocatable = |pods| Allocatable { milli_cpu: 1_000, memory: MiB(1_000), ephemeral: MiB(1_000), pods };
    let (promised, has) = (allocatable(58), allocatable(29));
    let lacks = NodeShortfall { node: NodeName::new("node-0").unwrap(), at: now, promised, has };
    let instance_type = market(CapacityType::OnDemand).place.instance_type;
    memory.shortfalls.insert((PoolName::new("infer").unwrap(), instance_type), Arc::new(lacks));
    let cluster = Some(Arc::new(ClusterFacts { nodes: nodes.into() }));
    metrics.fleet(Fleet { catalogue: catalogue(now), memory: Arc::new(memory), cluster, floors });
    metrics.opencost(&mut registry, Some(holding(&[("ml/a", "node-0", 3)])));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let page = format!(
        "<!-- Generated by `cargo test -p stoker-service --lib telemetry`: do not edit. -->\n# Metrics\n\n\
         ```sh\ncurl -s http://127.0.0.1:8088/metrics\n```\n\n\
         A series with nothing to show is absent: what is unknown is never zero. A histogram has `_bucket`,\n\
         `_sum` and `_count`. What a probe serves itself is on [its own page](../../probe/README.md#metrics).\n\n\
         Names without `stoker_` are OpenCost's, with its labels, for dashboards that read those. They are\n\
         there with `--opencost-metrics` only: beside OpenCost every sum would count twice. A pod has a\n\
         series while it holds a node, and so there are at most as many as nodes have GPUs or slices.\n\n\
         | metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n{}",
        rows(&text)
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md");
    if std::env::var("STOKER_DOCS").is_ok_and(|value| value == "write") {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page,
        "STOKER_DOCS=write cargo test -p stoker-service --lib telemetry writes {path} anew; it has to be\n{page}"
    );
}

/// What a scrape of a large fleet costs: `cargo test --release -p stoker-service --lib telemetry::fleet -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_scrape_of_5000_nodes() {
    let now = Timestamp::now();
    let records = (0..5_000).map(|number| (RecordId(number), joined(number, now, true)));
    let memory = Arc::new(Memory { records: records.collect(), ..Memory::default() });
    let nodes = (0..5_000).map(|number| facts(number, now, &[])).map(|facts| (facts.name.clone(), facts));
    let cluster = Some(Arc::new(ClusterFacts { nodes: nodes.collect() }));
    let fleet = Fleet { catalogue: catalogue(now), memory, cluster, floors: Vec::new() };
    for _ in 0..3 {
        let start = std::time::Instant::now();
        let text = scrape(fleet.clone());
        println!("{} bytes in {:?}", text.len(), start.elapsed());
    }
}
