//! Pods land where they ask to, and nowhere else.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use stoker_core::catalogue::isolation::SHAPE_TAINT;
use stoker_core::market::sharing::{GPU_RESOURCE, PRODUCT_LABEL};
use stoker_service::controllers::tolerations::OPT_IN;

use super::{ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{Ask, CPU_NODE, eventually, holds};

const ZONE: &str = "topology.kubernetes.io/zone";

/// What others set on nodes of the only type that has it all.
const OF_OTHERS: [(&str, &str); 6] = [
    (PRODUCT_LABEL, "NVIDIA-L4"),
    ("nvidia.com/gpu.memory", "23034"),
    ("nvidia.com/gpu.count", "1"),
    ("nvidia.com/gpu.family", "ada-lovelace"),
    ("karpenter.k8s.aws/instance-family", "g6"),
    ("karpenter.k8s.aws/instance-size", "xlarge"),
];

/// A pod that chooses by what others set on nodes brings one, which bears it; one that chooses what no node bears brings none.
pub(super) async fn labels(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.choosing_pod("none", &[(PRODUCT_LABEL, "NVIDIA-L5")]).await?;
    bench.cluster.choosing_pod("all", &OF_OTHERS).await?;
    let name = bench.cluster.bound(&["all"], SCALED).await?.remove(0);
    let node = bench.cluster.node(&name).await?.context("its node is gone")?;
    let bears = |(key, value): &(&str, &str)| node.labels().get(*key).is_some_and(|own| own == value);
    ensure!(OF_OTHERS.iter().all(bears), "{name} bears {:?}", node.labels());
    bench.ensure_bought(1)
}

/// Pods without GPUs use nodes without GPUs; where those are full they wait, and buy nothing.
pub(super) async fn cpu_pods(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("gpu", ONE).await?;
    let gpu = bench.cluster.bound(&["gpu"], SCALED).await?.remove(0);
    bench.cluster.cpu_pod("cpu", "3").await?;
    let node = bench.cluster.bound(&["cpu"], Duration::from_secs(10)).await?.remove(0);
    ensure!(node == CPU_NODE, "a pod without GPUs is on {node}");
    // This one fits the GPU node alone.
    bench.cluster.cpu_pod("late", "2").await?;
    // And one whose pool is misspelt buys nothing either, but is told.
    bench.cluster.gpu_pod("slip", Ask { pool: "smal", ..ONE }).await?;
    let near = "it selects nodes by stoker.dev/pool: \"smal\", which no node group has: did you mean small?";
    eventually("an Event on the misspelt pod", Duration::from_secs(10), async || {
        let told = bench.cluster.told("slip").await?;
        Ok(if told.iter().any(|note| note == near) { Ok(()) } else { Err(format!("it is told {told:?}")) })
    })
    .await?;
    holds("a waiting CPU pod", Duration::from_secs(10), async || {
        Ok(bench.cluster.node_of("late").await?.map_or(Ok(()), |node| Err(format!("it is on {node}"))))
    })
    .await?;
    ensure!(gpu != CPU_NODE, "a GPU pod is on {CPU_NODE}");
    bench.ensure_bought(1)
}

/// A pod bound to a zone gets its node there; the other zone's too.
pub(super) async fn zone(bench: &mut Bench) -> anyhow::Result<()> {
    let zones = ["us-east-1a", "us-east-1b"];
    for zone in zones {
        bench.cluster.gpu_pod(zone, Ask { zone: Some(zone), ..ONE }).await?;
    }
    let nodes = bench.cluster.bound(&zones, SCALED).await?;
    for (zone, name) in zones.iter().zip(&nodes) {
        let node = bench.cluster.node(name).await?.with_context(|| format!("{name} is gone"))?;
        let label = node.labels().get(ZONE).map(String::as_str);
        ensure!(label == Some(zone), "the pod for {zone} is on {name}, which says {label:?}");
    }
    bench.ensure_bought(2)
}

/// Pods that need many GPUs of one machine get the big hosts.
pub(super) async fn big(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("four", Ask { pool: "big", gpus: 4, zone: None }).await?;
    bench.cluster.bound(&["four"], SCALED).await?;
    bench.cluster.gpu_pod("six", Ask { pool: "big", gpus: 6, zone: None }).await?;
    let nodes = bench.cluster.bound(&["four", "six"], SCALED).await?;
    for (name, gpus) in nodes.iter().zip(["4", "8"]) {
        let node = bench.cluster.node(name).await?.with_context(|| format!("{name} is gone"))?;
        let room = node.status.and_then(|s| s.allocatable?.get(GPU_RESOURCE).map(|quantity| quantity.0.clone()));
        ensure!(room.as_deref() == Some(gpus), "{name} has {room:?} GPUs and not {gpus}");
    }
    bench.ensure_bought(2)
}

/// In an isolated pool a pod gets the tolerations of its own price class, in a namespace that opts in, and lands there.
pub(super) async fn classes(bench: &mut Bench) -> anyhow::Result<()> {
    let ask = |gpus| Ask { pool: "big", gpus, zone: None };
    bench.cluster.gpu_pod("four", ask(4)).await?;
    holds("a pod of a namespace that has not opted in", Duration::from_secs(5), async || {
        let shapes = bench.cluster.tolerated("four", SHAPE_TAINT).await?;
        Ok(if shapes.is_empty() { Ok(()) } else { Err(format!("it tolerates {shapes:?}")) })
    })
    .await?;
    bench.cluster.opt_in(OPT_IN).await?;
    bench.cluster.gpu_pod("six", ask(6)).await?;
    let nodes = bench.cluster.bound(&["four", "six"], SCALED).await?;
    // Four of eight A10G at $16.29 would be $8.14, above the $4.60 of four L4; eight L4 are not sold in these zones.
    for (pod, name, shape) in [("four", &nodes[0], "g6.12xlarge"), ("six", &nodes[1], "g5.48xlarge")] {
        let shapes = bench.cluster.tolerated(pod, SHAPE_TAINT).await?;
        ensure!(shapes == [shape], "{pod} tolerates {shapes:?} and not {shape} alone");
        let node = bench.cluster.node(name).await?.with_context(|| format!("{name} is gone"))?;
        let made = node.labels().get("node.kubernetes.io/instance-type").map(String::as_str);
        ensure!(made == Some(shape), "{pod} is on {name}, a {made:?}");
    }
    bench.ensure_bought(2)
}
