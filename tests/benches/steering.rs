//! The companion of a Karpenter with everything steered, in virtual time against the small API server in this process: what it writes and
//! watches while nothing happens, and the CPU that one look at a large cluster takes.

mod common {
    pub(crate) mod report;
}

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use common::report::{Report, is_short, short};
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Node;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::UsdPerHour;
use stoker_core::catalogue::Catalogue;
use stoker_core::facts::foreign::Foreign;
use stoker_core::plan::Accounts;
use stoker_core::policy::rules::warm_floor::FloorStands;
use stoker_core::state::memory::Memory;
use stoker_fake_apiserver::ApiServer;
use stoker_karpenter::companion::Companion;
use stoker_service::clock::Clock;
use stoker_service::feeds::foreign::ForeignFeed;
use stoker_service::feeds::probes::{ProbeMetrics, Readings};
use stoker_service::kube::act::KubeAct;
use stoker_service::kube::feed::KubeFeed;
use stoker_service::policy_file;
use stoker_service::publish::telemetry::Metrics;
use stoker_service::publish::view::{Publisher, View};
use tokio::sync::watch;
use tokio::time::sleep;

/// How many nodes Karpenter has, and how many prices others have set.
const NODES: u32 = 5_000;
const OVERLAYS: u32 = 200;
/// The same in the short form.
const SHORT_NODES: u32 = 1_000;
/// The fleet for which writes and watches are told.
const SMALL: u32 = 500;
/// Nodes of one `NodePool`.
const POOL_OF: u32 = 100;
/// How long nothing happens, after everything was written that is to be.
const SETTLED: Duration = Duration::from_mins(5);
const QUIET: Duration = Duration::from_mins(10);
/// How often the companion looks.
const LOOKS: f64 = 300.0;

const POLICY: &str = "\
apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: bench
pools:
- name: serving
  workload: inference
  gpu: { models: [L4] }
  where: { clouds: [aws], regions: [us-east-1] }
  capacity: { prefer: [spot, on-demand] }
  limits: { maxNodes: 100 }
  stabilization: { maxRemovalsPerWindow: 20% }
  warmFloor: { nodes: 2 }
quotas:
- { name: L-DB2E81BA, cloud: aws, region: us-east-1, limit: 100000 }
- { name: L-3819A6DF, cloud: aws, region: us-east-1, limit: 100000 }
commitments:
- { name: plan, kind: compute-savings-plan, cloud: aws, usdPerHour: 9000, discount: 30% }
karpenter: { steer: [limits, prices, protect, windows, floors, repair] }
";

/// What one fleet came to.
struct Figures {
    writes: f64,
    only_leases: bool,
    watches: u32,
    look: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    tokio::time::pause();
    let mut report = Report::new("steering");
    let small = fleet(SMALL).await?;
    let nodes = if is_short() { SHORT_NODES } else { NODES };
    let large = fleet(nodes).await?;
    println!("\n{:<46} {:>12} {:>12}", "", format!("{SMALL} nodes"), format!("{nodes} nodes"));
    for (what, a, b) in [
        ("writes a minute while nothing happens", small.writes, large.writes),
        ("kinds that are watched", f64::from(small.watches), f64::from(large.watches)),
        ("CPU of a look, ms", small.look.as_secs_f64() * 1e3, large.look.as_secs_f64() * 1e3),
    ] {
        println!("{what:<46} {:>12} {:>12}", short(a), short(b));
    }
    println!();
    report.judge(&format!("writes a minute at {SMALL} nodes"), small.writes, "", "6, the Lease alone", small.only_leases);
    let (milliseconds, bar) = (large.look.as_secs_f64() * 1e3, 50.0);
    report.judge(&format!("CPU of a look at {nodes} nodes"), milliseconds, "ms", "50", milliseconds <= bar);
    let read = reading(nodes)?;
    println!("reading as many Nodes once: {} ms", short(read.as_secs_f64() * 1e3));
    report.ratio("look-over-reading", large.look.as_secs_f64() / read.as_secs_f64());
    report.print();
    Ok(())
}

/// A companion at work on so many nodes, until nothing changes any more and for a while after.
async fn fleet(nodes: u32) -> Result<Figures> {
    let server = ApiServer::new(Timestamp::now);
    for plural in ["nodepools", "nodeclaims", "nodeoverlays", "capacitybuffers", "podtemplates", "leases"] {
        server.serve_kind(plural);
    }
    fill(&server, nodes);
    let client = server.client();
    let book = Arc::new(stoker_pricing::embedded()?);
    let policy =
        Arc::new(policy_file::parse("policy.yaml", POLICY, Some(&book)).map_err(|faults| anyhow::anyhow!("{faults}"))?);
    let catalogue = Arc::new(Catalogue::derive(&policy, &book, &BTreeMap::new()));
    let (promised, told) = watch::channel(None);
    let (known, foreign) = watch::channel(None::<Arc<Foreign>>);
    let (_policy, followed) = watch::channel(Arc::clone(&policy));
    let (_facts, facts) = watch::channel(Arc::default());
    let wake = Arc::default();
    let feed =
        ForeignFeed { client: client.clone(), book: Arc::clone(&book), policy: followed, facts, promised: told, known, wake };
    let (kube, follow) = KubeFeed::start(&client, &policy.cluster, Arc::default());
    let act = Arc::new(KubeAct::new(&client, "default"));
    let shown: Mutex<Option<Shown>> = Mutex::new(None);
    let view = Box::new(move || {
        let foreign = foreign.borrow().clone();
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, view)) = shown.as_ref().filter(|(of, _)| *of == foreign) {
            return Arc::clone(view);
        }
        let view = Arc::new(view_of(&catalogue, foreign.clone()));
        *shown = Some((foreign, Arc::clone(&view)));
        view
    });
    let metrics = Metrics::register(&mut Registry::default());
    let readings = Readings::new(Clock::system(), Some(kube.facts()), Arc::default(), ProbeMetrics::default());
    let companion = Companion { client, view, feed: kube, act, book, metrics, readings, promised, replicas: None };
    let running = [tokio::spawn(feed.run()), tokio::spawn(follow), tokio::spawn(companion.run())];
    sleep(SETTLED).await;
    server.take_writes();
    let watched = |server: &ApiServer| server.asked().keys().filter(|key| key.starts_with("WATCH")).count();
    let begun = cpu()?;
    sleep(QUIET).await;
    let look = cpu()?.saturating_sub(begun).div_f64(LOOKS);
    let writes = server.take_writes();
    ensure!(running.iter().all(|task| !task.is_finished()), "a part of it ended");
    running.iter().for_each(tokio::task::JoinHandle::abort);
    let only_leases = writes.iter().all(|call| call.path.contains("/leases/"));
    let minutes = QUIET.as_secs_f64() / 60.0;
    Ok(Figures {
        writes: f64::from(u32::try_from(writes.len())?) / minutes,
        only_leases,
        watches: u32::try_from(watched(&server))?,
        look,
    })
}

/// What was shown last, and the nodes that it counts.
type Shown = (Option<Arc<Foreign>>, Arc<View>);

/// What the decisions show once they count the nodes that others have.
fn view_of(catalogue: &Arc<Catalogue>, foreign: Option<Arc<Foreign>>) -> View {
    let memory = Arc::new(Memory { foreign, ..Memory::default() });
    let wall = Wall(Timestamp::now());
    let floor = FloorStands {
        pool: PoolName::new("serving").unwrap_or_else(|_| unreachable!("a plain word")),
        wanted: 2,
        why: String::new(),
        warm: 0,
        coming: 0,
        usd_per_hour: UsdPerHour(0),
        unmet_since: None,
        blocked: None,
    };
    let (groups, accounts) = (BTreeMap::new(), Accounts { floors: vec![floor], ..Accounts::default() });
    Publisher::default().view(Times { now: wall.0, wall }, Ok(()), groups, accounts, catalogue, &memory)
}

/// `NodePools` of one type each, their claims and Nodes, pods on every other Node, and prices of others.
fn fill(server: &ApiServer, nodes: u32) {
    const TYPES: [(&str, u32, u32); 4] =
        [("g6.xlarge", 4, 1), ("g6.12xlarge", 48, 4), ("g5.xlarge", 4, 1), ("g6e.xlarge", 4, 1)];
    let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    for n in 0..nodes {
        let (pool, (instance_type, vcpus, gpus)) = (n / POOL_OF, TYPES[(n / POOL_OF) as usize % TYPES.len()]);
        let (pool, name) = (format!("pool-{pool}"), format!("node-{n}"));
        if n % POOL_OF == 0 {
            let object = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
                "metadata": { "name": pool, "labels": { "stoker.dev/steered": "true", "stoker.dev/rules-of": "serving" } },
                "spec": { "template": { "spec": {
                    "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu" },
                    "requirements": [one("node.kubernetes.io/instance-type", instance_type)],
                } } },
            });
            server.seed(&format!("/apis/karpenter.sh/v1/nodepools/{pool}"), object);
        }
        let labels = json!({
            "karpenter.sh/nodepool": pool,
            "node.kubernetes.io/instance-type": instance_type,
            "topology.kubernetes.io/zone": "us-east-1a",
            "topology.k8s.aws/zone-id": "use1-az1",
            "topology.kubernetes.io/region": "us-east-1",
            "karpenter.sh/capacity-type": "on-demand",
        });
        let capacity = json!({ "cpu": vcpus.to_string(), "nvidia.com/gpu": gpus.to_string() });
        let status = json!({ "providerID": format!("aws:///us-east-1a/i-{n}"), "nodeName": name, "capacity": capacity });
        let claim = json!({ "metadata": { "name": name, "labels": labels }, "spec": {}, "status": status });
        server.seed(&format!("/apis/karpenter.sh/v1/nodeclaims/{name}"), claim);
        server.seed(&format!("/api/v1/nodes/{name}"), node(&name, &labels, &capacity));
        if n % 2 == 0 {
            server.bind_gpu_pod(&format!("pod-{n}"), &name);
        }
    }
    for n in 0..OVERLAYS {
        let spec = json!({ "weight": n + 1, "requirements": [one("team", &format!("team-{n}"))], "priceAdjustment": "-10%" });
        let overlay = json!({ "metadata": { "name": format!("theirs-{n}") }, "spec": spec });
        server.seed(&format!("/apis/karpenter.sh/v1alpha1/nodeoverlays/theirs-{n}"), overlay);
    }
}

fn node(name: &str, labels: &Value, capacity: &Value) -> Value {
    let id = format!("aws:///us-east-1a/i-{name}");
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    json!({
        "metadata": { "name": name, "labels": labels }, "spec": { "providerID": id },
        "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready },
    })
}

/// What it takes to read a list of so many Nodes once, as the API server sends it: the mean of so many rounds that the clock's own
/// steps of some milliseconds do not matter. As a look does, a round walks objects that no cache holds any more.
fn reading(nodes: u32) -> Result<Duration> {
    const ROUNDS: u32 = 50;
    let labels = json!({ "karpenter.sh/nodepool": "pool", "node.kubernetes.io/instance-type": "g6.xlarge" });
    let items: Vec<Value> = (0..nodes).map(|n| node(&format!("node-{n}"), &labels, &json!({ "cpu": "4" }))).collect();
    let text = json!({ "apiVersion": "v1", "kind": "NodeList", "items": items }).to_string();
    let mut kept = List::<Node>::default();
    let begun = cpu()?;
    for _ in 0..ROUNDS {
        kept = serde_json::from_str(&text)?;
    }
    let read = cpu()?.saturating_sub(begun) / ROUNDS;
    ensure!(kept.items.len() == usize::try_from(nodes)?, "not every Node was read");
    Ok(read)
}

/// The CPU time that this process has used.
fn cpu() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat").context("/proc/self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().context("an empty schedstat")?.parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}
