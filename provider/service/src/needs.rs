//! What a policy asks for that a service can give only with something beside it, and how that is given.

use std::fmt;

use stoker_core::base::ids::PoolName;
use stoker_core::base::kinds::Evidence;
use stoker_core::policy::rules::stabilization::Stabilization;
use stoker_core::policy::{Policy, Pool};

/// How a service is given a cluster to watch.
pub const WATCH_A_CLUSTER: &str = "run `stoker serve` in the cluster, or give it --kubeconfig";
/// How it is given readings of GPUs.
pub const READ_GPUS: &str = "give `stoker serve` --probe-listen and run stoker-probe on the nodes, or give it --prometheus-url";
/// How it is given demand signals.
const ASK_PROMETHEUS: &str = "give `stoker serve` --prometheus-url";

/// What a service has beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// A cluster that it watches.
    pub cluster: bool,
    /// Probes that it listens for.
    pub probes: bool,
    /// A Prometheus that it asks.
    pub prometheus: bool,
}

/// Something that a policy needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// Warm floors: only a cluster's Nodes and pods tell which nodes are warm.
    Cluster(Vec<PoolName>),
    /// Windows other than the usual ones: only a cluster tells which nodes are free.
    Windows(Vec<PoolName>),
    /// `isolation`: only in a cluster are there pods to give tolerations to.
    Isolation(Vec<PoolName>),
    /// `evidence: probe`.
    Readings(Vec<PoolName>),
    /// Demand signals.
    Signals(Vec<PoolName>),
}

/// Everything that a policy needs.
pub fn needs(policy: &Policy) -> Vec<Need> {
    let pools = |needs: fn(&Pool) -> bool| -> Option<Vec<PoolName>> {
        let names: Vec<_> = policy.pools.iter().filter(|pool| needs(pool)).map(|pool| pool.name.clone()).collect();
        (!names.is_empty()).then_some(names)
    };
    let cluster = pools(|pool| pool.warm_floor.is_some()).map(Need::Cluster);
    let written = |pool: &Pool| pool.stabilization.as_ref().is_some_and(|rules| *rules != Stabilization::of(pool.workload));
    let windows = pools(written).map(Need::Windows);
    let isolation = pools(|pool| pool.isolation.is_some()).map(Need::Isolation);
    let readings = pools(|pool| pool.evidence == Evidence::Probe).map(Need::Readings);
    let signals = pools(|pool| !pool.signals.is_empty()).map(Need::Signals);
    [cluster, windows, isolation, readings, signals].into_iter().flatten().collect()
}

/// Logs each need of a policy that the service was not given.
pub fn warn_of_unmet(policy: &Policy, given: Given) {
    for need in needs(policy).into_iter().filter(|need| !need.is_met(given)) {
        tracing::warn!(%need, "the policy needs something that the service was not started with");
    }
}

impl Need {
    const fn is_met(&self, given: Given) -> bool {
        match self {
            Self::Cluster(_) | Self::Windows(_) | Self::Isolation(_) => given.cluster,
            Self::Readings(_) => given.probes || given.prometheus,
            Self::Signals(_) => given.prometheus,
        }
    }
}

/// What of which pools, what it comes to without, and how it is given.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, pools, without, cure) = match self {
            Self::Cluster(pools) => (
                "warmFloor",
                pools,
                "no node is kept warm unless a cluster is watched, which shows which nodes are warm",
                WATCH_A_CLUSTER,
            ),
            Self::Windows(pools) => (
                "stabilization",
                pools,
                "no free node is kept unless a cluster is watched, which shows which nodes are free",
                WATCH_A_CLUSTER,
            ),
            Self::Isolation(pools) => (
                "isolation",
                pools,
                "pods get no tolerations unless a cluster is watched, so no pod can use these nodes",
                WATCH_A_CLUSTER,
            ),
            Self::Readings(pools) => {
                ("evidence: probe", pools, "without GPU readings, only pods show which nodes are in use", READ_GPUS)
            }
            Self::Signals(pools) => ("signals", pools, "without a Prometheus they stay unknown", ASK_PROMETHEUS),
        };
        let names: Vec<_> = pools.iter().map(PoolName::as_str).collect();
        let word = if names.len() == 1 { "pool" } else { "pools" };
        write!(f, "{field} of {word} {}: {without}: {cure}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_file;

    #[test]
    fn what_a_policy_needs_is_told_until_it_is_given() {
        let text = "\
apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: demo
pools:
- name: plain
  workload: dev
  gpu: { models: [L4] }
  where: { clouds: [aws], regions: [us-east-1] }
  limits: { minNodes: 1, maxNodes: 4 }
- name: warm
  workload: inference
  gpu: { models: [L4] }
  where: { clouds: [aws], regions: [us-east-1] }
  limits: { maxNodes: 4 }
  evidence: probe
  signals: [{ name: depth, query: vector(1), perReplica: 1 }]
  warmFloor: { nodes: 1 }
  stabilization: { scaleDown: 5m }
  isolation: { maxCostRatio: 1.0 }
";
        let policy = policy_file::parse("policy.yaml", text, None).unwrap();
        let unmet = |cluster, probes, prometheus| {
            let given = Given { cluster, probes, prometheus };
            needs(&policy).into_iter().filter(|need| !need.is_met(given)).map(|need| need.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            unmet(false, false, false),
            [
                format!(
                    "warmFloor of pool warm: no node is kept warm unless a cluster is watched, which shows which nodes are \
                     warm: {WATCH_A_CLUSTER}"
                ),
                format!(
                    "stabilization of pool warm: no free node is kept unless a cluster is watched, which shows which nodes \
                     are free: {WATCH_A_CLUSTER}"
                ),
                format!(
                    "isolation of pool warm: pods get no tolerations unless a cluster is watched, so no pod can use these \
                     nodes: {WATCH_A_CLUSTER}"
                ),
                format!(
                    "evidence: probe of pool warm: without GPU readings, only pods show which nodes are in use: {READ_GPUS}"
                ),
                format!("signals of pool warm: without a Prometheus they stay unknown: {ASK_PROMETHEUS}"),
            ]
        );
        assert_eq!(unmet(true, true, true), [""; 0]);
        // dcgm-exporter's readings are as good as a probe's.
        assert_eq!(unmet(true, false, true), [""; 0]);
        assert_eq!(unmet(true, true, false).len(), 1);
    }
}
