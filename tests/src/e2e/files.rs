//! The policy and the world that a scenario runs in.

use std::path::Path;

/// What differs from one scenario to the next.
#[derive(Debug, Clone, Copy)]
pub struct Files {
    /// How long a machine takes to boot.
    pub boot_seconds: u32,
    /// What chance is drawn from.
    pub seed: u32,
    /// `minNodes` of the pool `small`.
    pub floor: u32,
    /// `maxNodes` of the pool `small`.
    pub most: u32,
    /// `maxNodes` of the pool `big`.
    pub big: u32,
    /// What the pool `small` buys.
    pub prefer: &'static str,
    /// The spot rules of the pool `small`, in the policy's words.
    pub spot: &'static str,
    /// More of the pool `small`, in the policy's words.
    pub small: &'static str,
    /// Whether every node has a probe.
    pub probes: bool,
    /// Where nodes come from.
    pub nodes: NodesFrom,
    /// Whether two replicas share a journal in PostgreSQL.
    pub replicas: bool,
    /// Whether the one replica's way to the API server can be cut.
    pub cut: bool,
    /// `isolation` of the pool `big`, in the policy's words.
    pub isolation: &'static str,
    /// More pools, and what follows them in a policy, such as quotas.
    pub more: &'static str,
    /// More of the world, in its own words.
    pub world: &'static str,
    /// Flags of the autoscaler, in place of those that we ship or beside them.
    pub flags: &'static [&'static str],
}

/// Where nodes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodesFrom {
    /// The simulated supplier.
    Simulated,
    /// A Karpenter.
    Karpenter,
    /// The fake of EC2.
    Ec2,
}

/// A quick and reliable world without spot.
pub const CALM: Files = Files {
    boot_seconds: 3,
    seed: 7,
    floor: 0,
    most: 8,
    big: 4,
    prefer: "on-demand",
    spot: "",
    small: "  stabilization: { scaleDown: 1s, minimumLife: 0s }\n",
    probes: false,
    nodes: NodesFrom::Simulated,
    replicas: false,
    cut: false,
    isolation: "",
    more: "",
    world: "",
    flags: &[],
};

impl Files {
    /// Two pools over two zones: `small` has one GPU a node, `big` four or eight. Unless `small` says otherwise, free nodes go by the
    /// autoscaler's timers alone. The scenario's files are in `dir`.
    pub fn policy(&self, dir: &Path) -> String {
        let Self { floor, most, big, prefer, spot, small, isolation, more, .. } = self;
        // KWOK gives zones no names of its own.
        let (suppliers, class, zones) = if self.nodes == NodesFrom::Karpenter {
            ("suppliers: [{ name: karpenter, kind: karpenter }]\n".to_owned(), "  nodeClass: gpu\n", "use1-az1, use1-az2")
        } else if self.nodes == NodesFrom::Ec2 {
            let file = dir.join("aws.yaml");
            let suppliers = format!("suppliers: [{{ name: aws, kind: aws, config: {} }}]\n", file.display());
            (suppliers, "  nodeClass: gpu\n", "use1-az1, use1-az2")
        } else {
            (String::new(), "", "us-east-1a, us-east-1b")
        };
        format!(
            "apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: e2e
defaults: {{ bootDeadline: 60s }}
{suppliers}pools:
- name: small
  workload: inference
  gpu: {{ models: [L4], count: 1, minMemoryGiB: 20 }}
  where: {{ clouds: [aws], regions: [us-east-1], zones: [{zones}] }}
  capacity: {{ prefer: [{prefer}]{spot} }}
  limits: {{ minNodes: {floor}, maxNodes: {most} }}
{small}{class}- name: big
  workload: training
  gpu: {{ models: [L4, A10G], count: [4, 8] }}
  where: {{ clouds: [aws], regions: [us-east-1], zones: [{zones}] }}
  capacity: {{ prefer: [on-demand] }}
  limits: {{ maxNodes: {big} }}
  stabilization: {{ scaleDown: 1s, minimumLife: 0s }}
{class}{isolation}{more}"
        )
    }

    /// The world file.
    pub fn world(&self) -> String {
        let Self { boot_seconds, seed, world, .. } = self;
        format!(
            "seed: {seed}
boot: {{ medianSeconds: {boot_seconds}, sigma: 0, clouds: {{}} }}
stopSeconds: 1
spells: {{ spotShare: 0 }}
api: {{ latencyMs: {{ min: 5, max: 20 }} }}
{world}"
        )
    }
}
