//! Nodes that no pod with a GPU holds, and on which pods without one run: their GPUs are paid for and free, and the node stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stoker_core::base::ids::{PoolName, RecordId};
use stoker_core::base::units::UsdPerHour;

/// A time in which a pod without GPU was on an otherwise free node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnFreeNode {
    /// The node's record.
    pub record: RecordId,
    /// From then on, in Unix seconds.
    pub since: i64,
    /// Until then, not included, in Unix seconds.
    pub until: i64,
    /// The node's pool.
    pub pool: PoolName,
    /// What the node cost.
    pub rate: UsdPerHour,
    /// The pod's `namespace/name`.
    pub pod: Arc<str>,
}

/// What nodes of a pool cost while they were free but for pods without GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WithoutGpu {
    /// Micro-dollars per hour × seconds.
    pub cost: i128,
    /// Seconds of nodes.
    pub node_seconds: i64,
    /// How many such pods there were.
    pub pods: usize,
    /// Their namespaces.
    pub namespaces: BTreeSet<String>,
}

/// By pool. A node with several such pods counts once.
pub fn without_gpu(mut times: Vec<OnFreeNode>) -> BTreeMap<PoolName, WithoutGpu> {
    times.sort_unstable();
    let mut pools: BTreeMap<PoolName, WithoutGpu> = BTreeMap::new();
    let mut pods: BTreeSet<(&PoolName, &str)> = BTreeSet::new();
    let mut counted: Option<(RecordId, i64)> = None;
    for time in &times {
        let of = pools.entry(time.pool.clone()).or_default();
        if pods.insert((&time.pool, &time.pod)) {
            let namespace = time.pod.split_once('/').map_or(&*time.pod, |(namespace, _)| namespace);
            of.pods += 1;
            of.namespaces.insert(namespace.to_owned());
        }
        let since = match counted {
            Some((record, until)) if record == time.record => time.since.max(until),
            _ => time.since,
        };
        if since < time.until {
            of.node_seconds += time.until - since;
            of.cost += i128::from(time.until - since) * i128::from(time.rate.0);
            counted = Some((time.record, time.until));
        }
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node at $2 an hour has one such pod from 0 to 100 s and another from 50 to 150 s: 150 s. Another node has one for 10 s.
    #[test]
    fn a_node_counts_once() {
        let pool = PoolName::new("train").unwrap();
        let time = |record, (since, until), pod: &str| OnFreeNode {
            record: RecordId(record),
            since,
            until,
            pool: pool.clone(),
            rate: UsdPerHour(2_000_000),
            pod: pod.into(),
        };
        let times = vec![time(1, (50, 150), "web/b"), time(2, (0, 10), "ops/c"), time(1, (0, 100), "web/a")];
        let found = &without_gpu(times)[&pool];
        assert_eq!((found.node_seconds, found.cost), (160, 160 * 2_000_000));
        assert_eq!((found.pods, &found.namespaces), (3, &["ops".to_owned(), "web".to_owned()].into()));
    }
}
