//! Read calls over loopback: `NodeGroupForNode` and `NodeGroupTargetSize` against the running service, beside a bare tonic service that
//! answers a constant with the same messages. Both take turns, so that what else the machine does hits both alike.

mod common {
    pub(crate) mod bare;
    pub(crate) mod logs;
    pub(crate) mod report;
    pub(crate) mod service;
    pub(crate) mod times;
    pub(crate) mod wait;
}

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use common::bare::Bare;
use common::report::{Report, is_short, short};
use common::times::Times;
use common::{logs, service, wait};
use jiff::Timestamp;
use stoker_proto::externalgrpc::cloud_provider_client::CloudProviderClient;
use stoker_proto::externalgrpc::{
    ExternalGrpcNode, NodeGroup, NodeGroupForNodeRequest, NodeGroupIncreaseSizeRequest, NodeGroupTargetSizeRequest,
    RefreshRequest,
};
use stoker_service::publish::view::{InstanceStatus, View};
use stoker_simulated::{Simulation, start};
use tokio::task::JoinSet;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Pools, of six groups each.
const POOLS: usize = 25;
const SHORT_POOLS: usize = 5;
/// Nodes of each group: 5,100 in all.
const NODES: i32 = 34;

const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 12;
const SHORT_ROUNDS: usize = 8;
/// How long each side is asked in one round, one call after the other and then with 32 in flight.
const ALONE: Duration = Duration::from_millis(200);
const TOGETHER: Duration = Duration::from_millis(400);

fn main() -> Result<()> {
    logs::to_nowhere()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let mut report = Report::new("doors");
    let (pools, rounds) = if is_short() { (SHORT_POOLS, SHORT_ROUNDS) } else { (POOLS, ROUNDS) };
    let dir = tempfile::tempdir()?;
    let (options, world) = service::options(service::policy(pools), dir.path());
    let running = start(options, world).await?;
    let mut client = connect(running.provider).await?;
    let groups = grow(&running, &mut client).await?;
    let nodes = nodes(&running);
    println!("{} nodes in {} groups", nodes.len(), groups.len());
    let constant =
        NodeGroup { id: groups.first().cloned().unwrap_or_default(), min_size: 0, max_size: 100_000, debug: String::new() };
    let bare = Bare { group: constant, target: NODES }.serve()?;
    let asked = Arc::new(Asked { nodes, groups });
    let ours = Side::new(client, Arc::clone(&asked));
    let bare = Side::new(connect(bare).await?, asked);
    for call in [Call::ForNode, Call::TargetSize] {
        compare(call, &ours, &bare, rounds, &mut report).await?;
    }
    running.stop().await;
    report.print();
    Ok(())
}

async fn connect(addr: SocketAddr) -> Result<CloudProviderClient<Channel>> {
    Ok(CloudProviderClient::new(Endpoint::from_shared(format!("http://{addr}"))?.connect().await?))
}

/// Orders nodes in every group as an autoscaler does, and waits until they run; the ids of the groups.
async fn grow(running: &Simulation, client: &mut CloudProviderClient<Channel>) -> Result<Vec<String>> {
    let ready = || usize::from(running.handle.view().ready.is_ok());
    wait::until("ready views", ready, 1, Duration::from_secs(30)).await?;
    client.refresh(RefreshRequest {}).await?;
    let groups: Vec<String> = running.handle.view().groups.keys().map(ToString::to_string).collect();
    let begun = Instant::now();
    for id in &groups {
        let order = NodeGroupIncreaseSizeRequest { id: id.clone(), delta: NODES };
        client.node_group_increase_size(order).await.with_context(|| format!("ordering in {id}"))?;
    }
    let ordered = begun.elapsed();
    let wanted = groups.len() * usize::try_from(NODES)?;
    let count = || joined(&running.handle.view());
    let joined = wait::until("running nodes", count, wanted, Duration::from_mins(5)).await?;
    println!(
        "{} orders taken in {} s, the last node there {} s later",
        groups.len(),
        short(ordered.as_secs_f64()),
        short(joined.as_secs_f64())
    );
    client.refresh(RefreshRequest {}).await?;
    Ok(groups)
}

/// Running instances of a view.
fn joined(view: &View) -> usize {
    let instances = view.groups.values().flat_map(|group| &group.instances);
    instances.filter(|instance| instance.state == InstanceStatus::Running).count()
}

/// Every node as the autoscaler names it: with all its labels and annotations.
fn nodes(running: &Simulation) -> Vec<ExternalGrpcNode> {
    let text = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let labels = text(&[
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "g6.xlarge"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
        ("stoker.dev/cluster", service::CLUSTER),
        ("stoker.dev/pool", "p00"),
        ("stoker.dev/group", "p00.g6-xlarge.us-east-1a"),
        ("stoker.dev/gpu", "L4"),
        ("nvidia.com/gpu.product", "NVIDIA-L4"),
    ]);
    let annotations = text(&[
        ("node.alpha.kubernetes.io/ttl", "0"),
        ("volumes.kubernetes.io/controller-managed-attach-detach", "true"),
        ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true"),
        ("stoker.dev/scale-down-blocked", "true"),
    ]);
    let machines = running.simulated.machines(Timestamp::now());
    let node = |(machine, _): (Arc<stoker_core::facts::supply::Instance>, bool)| ExternalGrpcNode {
        provider_id: machine.provider_id.to_string(),
        name: machine.node_name.to_string(),
        labels: labels.clone(),
        annotations: annotations.clone(),
    };
    machines.into_iter().map(node).collect()
}

#[derive(Debug, Clone, Copy)]
enum Call {
    ForNode,
    TargetSize,
}

impl Call {
    const fn name(self) -> &'static str {
        match self {
            Self::ForNode => "NodeGroupForNode",
            Self::TargetSize => "NodeGroupTargetSize",
        }
    }
}

/// What is asked about, in turn.
struct Asked {
    nodes: Vec<ExternalGrpcNode>,
    groups: Vec<String>,
}

/// One of the two services.
#[derive(Clone)]
struct Side {
    client: CloudProviderClient<Channel>,
    asked: Arc<Asked>,
}

impl Side {
    const fn new(client: CloudProviderClient<Channel>, asked: Arc<Asked>) -> Self {
        Self { client, asked }
    }

    async fn ask(&mut self, call: Call, n: usize) -> Result<(), Status> {
        match call {
            Call::ForNode => {
                let node = self.asked.nodes.get(n % self.asked.nodes.len()).cloned();
                let answer = self.client.node_group_for_node(NodeGroupForNodeRequest { node }).await?.into_inner();
                let known = answer.node_group.is_some_and(|group| !group.id.is_empty());
                if known { Ok(()) } else { Err(Status::not_found("a node that is of no group")) }
            }
            Call::TargetSize => {
                let id = self.asked.groups.get(n % self.asked.groups.len()).cloned().unwrap_or_default();
                let target =
                    self.client.node_group_target_size(NodeGroupTargetSizeRequest { id }).await?.into_inner().target_size;
                if target == NODES { Ok(()) } else { Err(Status::internal(format!("a target of {target}"))) }
            }
        }
    }

    /// Asks one call after the other.
    async fn alone(&self, call: Call, times: &mut Times) -> Result<()> {
        let mut side = self.clone();
        let end = Instant::now() + ALONE;
        let mut n = 0;
        while Instant::now() < end {
            let begun = Instant::now();
            side.ask(call, n).await?;
            times.add(begun.elapsed());
            n += 1;
        }
        Ok(())
    }

    /// Asks with 32 calls in flight on one connection, as an autoscaler has; calls a second.
    async fn together(&self, call: Call) -> Result<f64> {
        let begun = Instant::now();
        let end = begun + TOGETHER;
        let mut callers = JoinSet::new();
        for caller in 0..IN_FLIGHT {
            let mut side = self.clone();
            callers.spawn(async move {
                let mut done = 0_u32;
                let mut n = caller;
                while Instant::now() < end {
                    side.ask(call, n).await?;
                    n += IN_FLIGHT;
                    done += 1;
                }
                Ok::<_, Status>(done)
            });
        }
        let mut done = 0_u32;
        while let Some(caller) = callers.join_next().await {
            done += caller??;
        }
        Ok(f64::from(done) / begun.elapsed().as_secs_f64())
    }
}

async fn compare(call: Call, ours: &Side, bare: &Side, rounds: usize, report: &mut Report) -> Result<()> {
    let (mut rates, mut p50s, mut p99s) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let warming = round == 0;
        let (mut our_rate, mut bare_rate) = (0.0, 0.0);
        let (mut our_round, mut bare_round) = (Times::default(), Times::default());
        // Whoever goes first meets what the other left: they change places.
        for first in [round % 2 == 0, round % 2 != 0] {
            let (side, times, rate) =
                if first { (ours, &mut our_round, &mut our_rate) } else { (bare, &mut bare_round, &mut bare_rate) };
            side.alone(call, times).await?;
            *rate = side.together(call).await?;
        }
        if !warming {
            rates.push((our_rate, bare_rate));
            p50s.push((our_round.p50() * 1e3, bare_round.p50() * 1e3));
            p99s.push((our_round.p99() * 1e3, bare_round.p99() * 1e3));
        }
    }
    // A machine is faster in one round than in the next: each round is compared by itself.
    let (share, alone) = (middle(&rates, |round| round.0 / round.1) * 100.0, middle(&p50s, |round| round.1 / round.0) * 100.0);
    let name = call.name();
    println!("\n{name:<32} {:>10} {:>10} {:>10}  bar", "ours", "bare", "ours/bare");
    let row = |what: &str, ours: f64, bare: f64, bar: &str| {
        println!("{what:<32} {:>10} {:>10} {:>8} %  {bar}", short(ours), short(bare), short(ours / bare * 100.0));
    };
    let both = |rounds| (middle(rounds, |round| round.0), middle(rounds, |round| round.1));
    let (our_rate, bare_rate) = both(&rates);
    let ((our_p50, bare_p50), (our_p99, bare_p99)) = (both(&p50s), both(&p99s));
    row("  one in flight, p50 µs", our_p50, bare_p50, "≤ 125 %");
    row("  one in flight, p99 µs", our_p99, bare_p99, "≤ 200 µs");
    row("  32 in flight, calls/s", our_rate, bare_rate, "≥ 80 %, ≥ 20000/s");
    println!("  median of {rounds} rounds' own ratios: one in flight {} %, 32 in flight {} %", short(alone), short(share));
    report.judge(&format!("{name}, 32 in flight, of the bare ceiling"), share, "%", "≥ 80 %", share >= 80.0);
    report.judge(&format!("{name}, one in flight, of the bare ceiling"), alone, "%", "≥ 80 %", alone >= 80.0);
    let (rate_bar, p99_bar) = (format!("≥ 20000; bare: {}", short(bare_rate)), format!("≤ 200; bare: {}", short(bare_p99)));
    report.judge(&format!("{name}, 32 in flight"), our_rate, "calls/s", &rate_bar, our_rate >= 20_000.0);
    report.judge(&format!("{name}, one in flight, p99"), our_p99, "µs", &p99_bar, our_p99 <= 200.0);
    // By time, as all ratios are: what a call takes over what a bare one does.
    report.ratio(&format!("{name}-32"), 100.0 / share);
    report.ratio(&format!("{name}-1"), 100.0 / alone);
    Ok(())
}

/// The median of what rounds have.
fn middle(rounds: &[(f64, f64)], of: fn(&(f64, f64)) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
