//! The policies of the fault runs.

/// Each is tried by as many seeds.
pub(crate) const ALL: [&str; 3] = [SPOT, TWO, TIGHT];

/// The pools of a policy.
pub(crate) fn pools(policy: &str) -> Vec<&str> {
    policy.lines().filter_map(|line| line.strip_prefix("- name: ")).collect()
}

const SPOT: &str = "
pools:
- name: train
  workload: training
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [spot, on-demand], spot: { checkpoint: 10m, restart: 2m } }
  limits: { maxNodes: 12 }
";

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

const TIGHT: &str = "
pools:
- name: serve
  workload: inference
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 10, maxUsdPerHour: 9 }
- name: train
  workload: training
  gpu: { models: [L4] }
  where: { clouds: [aws], regions: [east] }
  limits: { maxNodes: 10 }
  evidence: probe
  stabilization: { window: equalPay, maxRemovalsPerWindow: 50% }
quotas:
- { name: spot, cloud: aws, region: east, capacityTypes: [spot], vcpus: 64 }
- { name: on-demand, cloud: aws, region: east, capacityTypes: [on-demand], vcpus: 48 }
";
