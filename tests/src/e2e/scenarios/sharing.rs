//! Pods that share GPUs get nodes that advertise shares of them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use stoker_core::catalogue::template::GPU_LABEL;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_service::kube::SCALE_DOWN_DISABLED;

use super::{GONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{eventually, holds};
use crate::e2e::files::{CALM, Files};

/// Two pools more: on each of eight A100 of 40 GiB two MIG instances that differ, and L4s that two pods take turns on.
pub(super) const FILES: Files = Files {
    more: "- name: split
  workload: inference
  gpu: { models: [A100], count: 8, minMemoryGiB: 10 }
  where: { clouds: [aws], regions: [us-east-1], zones: [us-east-1a, us-east-1b] }
  instanceTypes: [p4d.24xlarge]
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 4 }
  stabilization: { scaleDown: 1s, minimumLife: 0s }
  sharing: { mig: { 1g.10gb: 1, 3g.20gb: 1 } }
- name: turns
  workload: dev
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [us-east-1], zones: [us-east-1a, us-east-1b] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 4 }
  stabilization: { scaleDown: 1s, minimumLife: 0s }
  sharing: { timeSlicing: 2, renameByDefault: true }
quotas:
- { name: L-417A185B, cloud: aws, region: us-east-1, limit: 768 }
",
    ..CALM
};

const SMALL: &str = "nvidia.com/mig-1g.10gb";
const LARGE: &str = "nvidia.com/mig-3g.20gb";
const TURN: &str = "nvidia.com/gpu.shared";

/// Slices bring nodes that publish no `nvidia.com/gpu`: they count as Ready, are filled before more are bought, are held while a pod has
/// a slice, and go when none has.
pub(super) async fn slices(bench: &mut Bench) -> anyhow::Result<()> {
    // Of a node's eight small instances and eight large ones: one, six and two.
    bench.cluster.slice_pod("one", "split", SMALL, 1).await?;
    let first = bench.cluster.bound(&["one"], SCALED).await?.remove(0);
    for (pod, resource, number) in [("six", SMALL, 6), ("large", LARGE, 2)] {
        bench.cluster.slice_pod(pod, "split", resource, number).await?;
    }
    let beside = bench.cluster.bound(&["six", "large"], Duration::from_secs(10)).await?;
    ensure!(beside.iter().all(|node| *node == first), "{beside:?} beside {first}, which has room");
    // Only one is left: the group must not have been given up for the GPUs that its node does not show.
    bench.cluster.slice_pod("four", "split", SMALL, 4).await?;
    bench.cluster.slice_pod("turn-a", "turns", TURN, 1).await?;
    bench.cluster.slice_pod("turn-b", "turns", TURN, 1).await?;
    let more = bench.cluster.bound(&["four", "turn-a", "turn-b"], SCALED).await?;
    ensure!(more[0] != first && more[1] == more[2] && more[1] != more[0], "on {more:?}, and the first is {first}");
    bench.ensure_bought(3)?;
    let nodes = [(&first, "8", "0"), (&more[0], "8", "0"), (&more[1], "0", "2")];
    for (name, small, turns) in nodes {
        let node = bench.cluster.node(name).await?.with_context(|| format!("{name} is gone"))?;
        ensure!(!node.labels().contains_key(GPU_LABEL), "{name} has the GPU label and no {GPU_RESOURCE}");
        let status = node.status.unwrap_or_default().allocatable.unwrap_or_default();
        let has = |resource: &str| status.get(resource).map_or("0", |quantity| quantity.0.as_str());
        let seen = [SMALL, LARGE, TURN, GPU_RESOURCE].map(has);
        ensure!(seen == [small, small, turns, "0"], "{name} has {seen:?}");
        eventually("mark on a node with slices in use", Duration::from_secs(5), async || {
            let node = bench.cluster.node(name).await?.with_context(|| format!("{name} is gone"))?;
            let held = node.annotations().get(SCALE_DOWN_DISABLED).map(String::as_str) == Some("true");
            Ok(if held { Ok(()) } else { Err("it is not marked".to_owned()) })
        })
        .await?;
    }
    // Longer than the autoscaler leaves any idle node; the CPUs of these are hardly used.
    holds("three Ready nodes with slices in use", Duration::from_secs(25), async || {
        let ready = bench.cluster.ours_ready().await?;
        Ok(if ready == 3 { Ok(()) } else { Err(format!("{ready} are Ready")) })
    })
    .await?;
    for pod in ["one", "six", "large", "four", "turn-a", "turn-b"] {
        bench.cluster.remove(pod).await?;
    }
    bench.cluster.count(0, GONE).await?;
    bench.ensure_bought(3)
}
