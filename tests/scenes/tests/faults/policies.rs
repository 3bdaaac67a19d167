//! The policies of the fault runs.

use stoker_scenes::{serve, train};

/// Each is tried by as many seeds.
pub(crate) const ALL: [&str; 9] = [SPOT, TWO, TIGHT, FLOORS, DRAINS, OFF, TURNS, PAID, SCARCE];

/// The pools of a policy.
pub(crate) fn pools(policy: &str) -> Vec<&str> {
    policy.lines().filter_map(|line| line.strip_prefix("- name: ")).collect()
}

const SPOT: &str = concat!("pools:\n", train!(), "  limits: { maxNodes: 12 }\n",);

const TWO: &str = "
pools:
- name: serve
  workload: inference
  gpu: { models: [L4, A10G], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 10 }
  evidence: probe
- name: batch
  workload: batch
  gpu: { models: [L4] }
  where: { clouds: [aws, gcp], regions: [east, central] }
  capacity: { prefer: [spot], spot: { maxMarketShare: 50% } }
  limits: { maxNodes: 10 }
";

const TIGHT: &str = concat!(
    "pools:\n",
    serve!(),
    "  limits: { maxNodes: 10, maxUsdPerHour: 9 }
- name: train
  workload: training
  gpu: { models: [L4] }
  where: { clouds: [aws], regions: [east] }
  limits: { maxNodes: 10 }
  evidence: probe
  stabilization: { window: equalCost, maxRemovalsPerWindow: 50% }
quotas:
- { name: spot, cloud: aws, region: east, capacityTypes: [spot], vcpus: 64 }
- { name: on-demand, cloud: aws, region: east, capacityTypes: [on-demand], vcpus: 48 }
",
);

const FLOORS: &str = concat!(
    "pools:\n",
    serve!(),
    "  limits: { maxNodes: 14 }
  evidence: probe
  warmFloor: { nodes: 1, percentOfBusy: 50% }
  unhealthy: { action: wait, after: 1m }
",
    train!(),
    "  limits: { maxNodes: 14 }
  warmFloor: { nodes: 2, schedule: [{ cron: \"0 9 * * *\", for: 1h, nodes: 3, timeZone: UTC }] }
",
);

const DRAINS: &str = "
pools:
- name: serve
  workload: inference
  gpu: { models: [L4, A10G], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [spot, on-demand] }
  limits: { maxNodes: 14 }
  evidence: probe
  warmFloor: { nodes: 2 }
  unhealthy: { action: drain, after: 30s, maxReplacements: 3 }
";

const OFF: &str = concat!(
    "pools:
- name: lab
  workload: dev
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 12 }
  evidence: probe
  heldAfter: 15m
  warmFloor: { nodes: 1 }
  offHours: { schedule: [{ cron: \"0 9 * * *\", for: 1h, timeZone: UTC }], maxNodes: 1, held: evict, grace: 5m }
",
    serve!(),
    "  limits: { maxNodes: 10 }
  evidence: probe
  unhealthy: { action: cordon }
",
);

const TURNS: &str = concat!(
    "pools:
- name: serve
  workload: inference
  gpu: { models: [L4, A10G], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 12 }
  stabilization: { scaleDown: 8m, window: equalCost, minimumLife: 6m, maxRemovalsPerWindow: 30% }
",
    train!(),
    "  limits: { maxNodes: 12 }
  evidence: probe
  stabilization: { scaleDown: 5m, minimumLife: 0s, afterScaleUp: 20m }
",
);

const PAID: &str = "
pools:
- name: serve
  workload: inference
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [reserved, on-demand] }
  limits: { maxNodes: 12 }
  evidence: probe
  warmFloor: { nodes: 1, warmWhen: imagesPulled }
- name: train
  workload: training
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 12 }
  stabilization: { maxRemovalsPerWindow: 50% }
commitments:
- { name: ri, kind: reserved-instance, cloud: aws, region: east, zone: zone-a, instanceType: g6.xlarge, nodes: 3, usdPerHour: 0.4, until: 2027-11-01T00:00:00Z }
";

const SCARCE: &str = concat!(
    "pools:\n",
    serve!(),
    "  limits: { maxNodes: 9 }
  evidence: probe
  warmFloor: { nodes: 2, mechanism: capacityBuffer }
- name: train
  workload: training
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [spot] }
  limits: { maxNodes: 8, maxUsdPerHour: 2.6 }
  warmFloor: { nodes: 2, quantile: {} }
quotas:
- { name: spot, cloud: aws, region: east, capacityTypes: [spot], vcpus: 40 }
- { name: on-demand, cloud: aws, region: east, capacityTypes: [on-demand], vcpus: 36 }
",
);
