//! Policies for the small market.

use std::fmt;

/// A pool as a policy has it.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Its name.
    pub name: &'static str,
    /// GPU models.
    pub models: &'static str,
    /// GPUs of a node.
    pub count: u32,
    /// Zones by name.
    pub zones: &'static str,
    /// Capacity types in the order of preference.
    pub prefer: &'static str,
    /// Nodes never exceeded.
    pub max_nodes: u32,
    /// Nodes kept.
    pub min_nodes: u32,
    /// More fields of the pool, one a line, indented by two.
    pub more: String,
}

impl Pool {
    /// A pool of on-demand L4 nodes in zone a, which may grow to 10: one group, `<name>.g6-xlarge.us-east-1a`.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            models: "L4",
            count: 1,
            zones: "us-east-1a",
            prefer: "on-demand",
            max_nodes: 10,
            min_nodes: 0,
            more: String::new(),
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, models, count, zones, prefer, max_nodes, min_nodes, more } = self;
        writeln!(f, "- name: {name}")?;
        writeln!(f, "  workload: inference")?;
        writeln!(f, "  gpu: {{ models: [{models}], count: {count} }}")?;
        writeln!(f, "  where: {{ clouds: [aws], regions: [us-east-1], zones: [{zones}] }}")?;
        writeln!(f, "  capacity: {{ prefer: [{prefer}] }}")?;
        writeln!(f, "  limits: {{ minNodes: {min_nodes}, maxNodes: {max_nodes} }}")?;
        writeln!(f, "  stabilization: {{ scaleDown: 1s, minimumLife: 0s }}")?;
        f.write_str(more)
    }
}

/// A policy of those pools for the cluster `test`, with a boot deadline of 10 min. Free nodes go by the autoscaler's timers alone.
pub fn policy(pools: &[Pool]) -> String {
    let head = "apiVersion: stoker.dev/v1alpha1\nkind: Policy\nclusterName: test\ndefaults: { bootDeadline: 10m }\npools:\n";
    pools.iter().fold(head.to_owned(), |text, pool| text + &pool.to_string())
}
