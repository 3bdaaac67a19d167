//! Nodes from EC2, by a peer whose machines register what their user data says.

use std::collections::{BTreeMap, BTreeSet};
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use rand::{Rng, SeedableRng as _};
use serde_json::json;
use stoker_fake_ec2::{Call, Fault, Machine, Market, Rule, events};
use stoker_service::failpoints::INSTANCE_ANSWERED;
use tokio::time::{Instant, sleep};

use super::{GONE, ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{eventually, holds};
use crate::e2e::ec2::QUEUE;
use crate::e2e::files::{CALM, Files, NodesFrom};

pub(super) const FILES: Files = Files { nodes: NodesFrom::Ec2, ..CALM };
pub(super) const SPOT: Files = Files { nodes: NodesFrom::Ec2, prefer: "spot", ..CALM };
pub(super) const KEPT: Files = Files { floor: 1, ..FILES };
pub(super) const WAVE: Files = Files { most: 50, ..SPOT };

/// Every machine has ended.
async fn all_gone(bench: &Bench) -> anyhow::Result<()> {
    eventually("end of the machines", GONE, async || {
        let left = bench.ec2()?.alive();
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are left")) })
    })
    .await?;
    bench.ec2()?.ensure_one_a_token()
}

/// GPU pods wait, machines are made, their kubelets register what the user data says, the scheduler binds the pods, and all goes again. The
/// first answer is lost on its way, and Stoker is killed right after it has the second.
pub(super) async fn come_and_go(bench: &mut Bench) -> anyhow::Result<()> {
    bench.kill_stoker().await?;
    bench.ec2()?.peer.world().fault(Rule::of("RunInstances", Fault::Lose).times(1));
    bench.start_stoker_with(INSTANCE_ANSWERED).await?;
    for pod in ["a", "b"] {
        bench.cluster.gpu_pod(pod, ONE).await?;
    }
    eventually("crash after an answer", SCALED, async || {
        Ok(if bench.stoker_runs() { Err("it runs".to_owned()) } else { Ok(()) })
    })
    .await?;
    bench.start_stoker().await?;
    let nodes = bench.cluster.bound(&["a", "b"], SCALED).await?;
    ensure!(nodes[0] != nodes[1], "two pods share the one GPU of {}", nodes[0]);
    let alive = bench.ec2()?.alive();
    ensure!(alive.len() == 2, "{} machines for the 2 that are needed", alive.len());
    bench.cluster.finish("a").await?;
    bench.cluster.remove("b").await?;
    bench.cluster.count(0, GONE).await?;
    all_gone(bench).await
}

/// How often Stoker is killed, and what chance is drawn from, unless the environment says otherwise.
const KILLS: &str = "STOKER_E2E_EC2_KILLS";
const SEED: &str = "STOKER_E2E_EC2_SEED";

/// Calls of a thousand that EC2 does and does not answer, that it throttles, and that it fails.
const LOST: u32 = 150;
const THROTTLED: u32 = 150;
const FAILED: u32 = 50;

pub(super) fn of_environment<T: FromStr<Err = ParseIntError>>(name: &'static str, default: T) -> anyhow::Result<T> {
    std::env::var(name).map_or(Ok(default), |value| value.parse()).context(name)
}

/// Machines that run, records and Nodes are the same, so many of them.
pub(super) async fn the_same(bench: &Bench, count: usize) -> anyhow::Result<()> {
    let what = format!("{count} machines that are on record and have a Node");
    eventually(&what, SCALED, async || {
        let machines = bench.ec2()?.alive();
        let (records, nodes) = (bench.records().await?, bench.cluster.ours_by_machine().await?);
        let all_same = machines.len() == count && machines == records && machines == nodes;
        Ok(if all_same { Ok(()) } else { Err(format!("machines {machines:?}, records {records:?}, Nodes {nodes:?}")) })
    })
    .await
}

/// Stoker is killed again and again while machines come, and once while they go. All that time EC2 throttles, fails, and loses answers:
/// every pod gets its node, no machine too many is left, and all go again.
pub(super) async fn killed(bench: &mut Bench) -> anyhow::Result<()> {
    const PODS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let kills: u32 = of_environment(KILLS, 6)?;
    let seed: u64 = of_environment(SEED, Timestamp::now().as_millisecond().unsigned_abs())?;
    println!("       {kills} kills, {SEED}={seed}");
    let mut chance = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    {
        let peer = bench.ec2()?.peer.clone();
        let mut world = peer.world();
        world.seed = seed;
        let throttled = Fault::status(503, "RequestLimitExceeded", "Request limit exceeded.");
        let failed = Fault::status(500, "InternalError", "An internal error has occurred.");
        for action in ["RunInstances", "TerminateInstances", "DescribeInstances"] {
            for (fault, calls) in [(Fault::Lose, LOST), (throttled.clone(), THROTTLED), (failed.clone(), FAILED)] {
                world.fault(Rule::of(action, fault).per_thousand(calls));
            }
        }
        world.fault(Rule { answer: Fault::Lose, ..Rule::default() }.per_thousand(FAILED));
    }
    for kill in 0..kills {
        if let Some(pod) = PODS.get(usize::try_from(kill)?) {
            bench.cluster.gpu_pod(pod, ONE).await?;
        }
        kill_sometime(bench, &mut chance).await?;
    }
    let nodes: BTreeSet<String> = bench.cluster.bound(&PODS, SCALED * 2).await?.into_iter().collect();
    ensure!(nodes.len() == PODS.len(), "pods share nodes: {nodes:?}");
    the_same(bench, PODS.len()).await?;
    for pod in PODS {
        bench.cluster.remove(pod).await?;
    }
    kill_sometime(bench, &mut chance).await?;
    the_same(bench, 0).await?;
    let peer = bench.ec2()?.peer.clone();
    let (lost, throttled) = {
        let world = peer.world();
        let count = |is: fn(&Call) -> bool| world.calls.iter().filter(|call| is(call)).count();
        (count(|call| call.status == 0), count(|call| call.code == "RequestLimitExceeded"))
    };
    println!("       {lost} answers lost, {throttled} calls throttled");
    ensure!(lost > 0 && throttled > 0, "the faults were not on");
    bench.ec2()?.ensure_one_a_token()
}

async fn kill_sometime(bench: &mut Bench, chance: &mut impl Rng) -> anyhow::Result<()> {
    sleep(Duration::from_millis(chance.random_range(500..5_000))).await;
    bench.kill_stoker().await?;
    bench.start_stoker().await
}

/// How long the pod of a machine may stay after its notice: the two seconds of the promise, and what its eviction takes.
const EVICTED: Duration = Duration::from_secs(5);

/// EC2 takes a spot machine back and says so in the queue: its pod is evicted at once, and the next pod gets another machine.
pub(super) async fn notice(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.job_pod("a", ONE).await?;
    let node = bench.cluster.bound(&["a"], SCALED).await?.remove(0);
    let (peer, now) = (bench.ec2()?.peer.clone(), Timestamp::now());
    let told = {
        let mut world = peer.world();
        let machine = world.alive().first().map(|machine| (*machine).clone()).context("no machine")?;
        ensure!(machine.market == Market::Spot, "the machine is bought {:?}", machine.market);
        world.reclaim(&machine.id, now);
        events::spot_interruption(&machine, now)
    };
    peer.send(QUEUE, &told);
    eventually("its pod gone", EVICTED, async || {
        Ok(if bench.cluster.has_pod("a").await? { Err("it is still there".to_owned()) } else { Ok(()) })
    })
    .await?;
    bench.cluster.job_pod("b", ONE).await?;
    let next = bench.cluster.bound(&["b"], SCALED).await?.remove(0);
    ensure!(next != node, "the new pod is on {node}, which is taken back");
    eventually("the node that is taken back gone", GONE * 2, async || {
        Ok(if bench.cluster.node(&node).await?.is_some() { Err(format!("{node} is there")) } else { Ok(()) })
    })
    .await?;
    bench.ec2()?.ensure_one_a_token()
}

/// How long it takes until a changed file is read, is looked up by, and has made machines outdated.
const OUTDATED: Duration = Duration::from_mins(2);

/// The node class is changed. The node with a pod stays, and is listed as outdated. Once its pod has ended it is replaced: the least size of
/// its group brings one that is made as the class says now.
pub(super) async fn outdated(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("a", ONE).await?;
    let node = bench.cluster.bound(&["a"], SCALED).await?.remove(0);
    let classes = |bench: &Bench| -> anyhow::Result<Vec<String>> {
        let peer = bench.ec2()?.peer.clone();
        let world = peer.world();
        Ok(world.alive().iter().filter_map(|machine| machine.tags.get("stoker.dev/node-class").cloned()).collect())
    };
    let before = classes(bench)?;
    ensure!(before.len() == 1, "{before:?}");
    let class = json!({ "instanceProfile": "stoker-node", "disk": { "sizeGiB": 200 } });
    bench.ec2()?.configure_with("us-east-1", &class)?;
    eventually("node that counts as outdated", OUTDATED, async || {
        let metrics = bench.get("/metrics").await.map_err(anyhow::Error::msg)?;
        let counted = metrics.contains("stoker_outdated_nodes{pool=\"small\"} 1");
        Ok(if counted { Ok(()) } else { Err("stoker_outdated_nodes is not 1".to_owned()) })
    })
    .await?;
    holds("node with a pod", Duration::from_secs(10), async || {
        let is_there = bench.cluster.node(&node).await?.is_some();
        Ok(if is_there { Ok(()) } else { Err(format!("{node} is gone")) })
    })
    .await?;
    bench.cluster.remove("a").await?;
    eventually("node of the changed class in its place", SCALED * 2, async || {
        let (now, there) = (classes(bench)?, bench.cluster.node(&node).await?.is_some());
        let replaced = now.len() == 1 && now != before && !there;
        Ok(if replaced { Ok(()) } else { Err(format!("machines of {now:?}, the first Node is there: {there}")) })
    })
    .await?;
    the_same(bench, 1).await?;
    bench.ec2()?.ensure_one_a_token()
}

/// How long a region is listed by nobody: longer than a machine that its region's listing does not have counts as one that is there.
const UNLISTED: Duration = Duration::from_secs(45);

/// Somebody takes the region of a machine out of aws.yaml, and Stoker begins anew: the machine stays on record and its Node in the cluster,
/// and people are told. Once the region is back all goes on.
pub(super) async fn region_left_out(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("a", ONE).await?;
    bench.cluster.bound(&["a"], SCALED).await?;
    the_same(bench, 1).await?;
    bench.kill_stoker().await?;
    {
        let peer = bench.ec2()?.peer.clone();
        let mut world = peer.world();
        let (queue, west) = (QUEUE, world.add_region("us-west-2", &[("a", "usw2-az1")]));
        west.add_queue(queue);
    }
    bench.ec2()?.configure("us-west-2")?;
    bench.start_stoker().await?;
    holds("on record, with its Node", UNLISTED, async || {
        let (records, nodes) = (bench.records().await?, bench.cluster.ours_by_machine().await?);
        let kept = records == bench.ec2()?.alive() && nodes == records && records.len() == 1;
        Ok(if kept { Ok(()) } else { Err(format!("records {records:?}, Nodes {nodes:?}")) })
    })
    .await?;
    let told = bench.get("/readyz").await.map_err(anyhow::Error::msg)?;
    let expected = "aws/us-east-1: 1 machine on record, and the supplier does not list that region any more";
    ensure!(told.contains(expected), "/readyz does not tell of the region: {told}");
    bench.kill_stoker().await?;
    bench.ec2()?.configure("us-east-1")?;
    bench.start_stoker().await?;
    bench.cluster.remove("a").await?;
    the_same(bench, 0).await
}

/// How long SQS takes for a call, as seen from a cluster of its region.
const SQS: Duration = Duration::from_millis(25);

/// How long a node that is taken back may stay open after its message.
const DRAINED: Duration = Duration::from_secs(2);

/// EC2 takes all machines of a pool back at once: each node is closed, and its pod told to go, as soon as if it were the only one.
pub(super) async fn wave(bench: &mut Bench) -> anyhow::Result<()> {
    let pods: Vec<String> = (0..WAVE.most).map(|number| format!("wave-{number}")).collect();
    let peer = bench.ec2()?.peer.clone();
    for action in ["ReceiveMessage", "DeleteMessage"] {
        peer.world().fault(Rule::of(action, Fault::None).delay(SQS));
    }
    for pod in &pods {
        bench.cluster.job_pod(pod, ONE).await?;
    }
    let names: Vec<&str> = pods.iter().map(String::as_str).collect();
    let nodes = bench.cluster.bound(&names, SCALED * 2).await?;
    let machines: Vec<Machine> = peer.world().alive().into_iter().cloned().collect();
    ensure!(machines.len() == pods.len(), "{} machines for {} pods", machines.len(), pods.len());
    ensure!(machines.iter().all(|machine| machine.market == Market::Spot), "not all machines are spot");
    let (told, now) = (Instant::now(), Timestamp::now());
    for machine in &machines {
        peer.world().reclaim(&machine.id, now);
        peer.send(QUEUE, &events::spot_interruption(machine, now));
    }
    // From the first message on, so that what the sending takes counts too; by when a look is over, so that it counts as well.
    let (mut closed, mut evicted) = (BTreeMap::new(), BTreeMap::new());
    eventually("drain of all nodes", DRAINED * 5, async || {
        let (cordoned, left) = (bench.cluster.ours_cordoned().await?, bench.cluster.pod_names().await?);
        let passed = told.elapsed();
        for (node, pod) in nodes.iter().zip(&pods) {
            if cordoned.contains(node) {
                closed.entry(node).or_insert(passed);
            }
            if !left.contains(pod) {
                evicted.entry(node).or_insert(passed);
            }
        }
        let ended = closed.len() == nodes.len() && evicted.len() == nodes.len();
        let seen = || format!("{} are closed and {} empty of {}", closed.len(), evicted.len(), nodes.len());
        Ok(if ended { Ok(()) } else { Err(seen()) })
    })
    .await?;
    for (what, after) in [("closed", closed), ("pod told to go", evicted)] {
        let mut after: Vec<Duration> = after.into_values().collect();
        after.sort();
        let (median, worst) = (after[after.len() / 2].as_secs_f64(), after[after.len() - 1].as_secs_f64());
        let bar = DRAINED.as_secs();
        println!("       {} reclaims at once, {what}: median {median:.2} s, worst {worst:.2} s, bar {bar} s", after.len());
        ensure!(after.iter().all(|after| *after <= DRAINED), "a node was {what} {worst:.2} s after its message");
    }
    all_gone(bench).await
}
