//! Pods without GPU on GPU nodes of ours: each is told of once by an Event, and they are counted. They take CPU and memory from pods that
//! need the GPU, and keep the autoscaler from removing the node.
//!
//! Of the cluster's own are none: `DaemonSet` pods, static pods, and what runs in `kube-system`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stoker_core::base::ids::PoolName;
use tokio::sync::watch;

use crate::kube::act::{About, KubeAct, Severity};
use crate::kube::feed::Guests;
use crate::publish::telemetry::Metrics;
use crate::publish::view::View;

/// Tells of such pods as they come, until the feed ends. `view` is the published view, by which pools are counted.
pub async fn run(
    mut guests: watch::Receiver<Arc<Guests>>,
    view: impl Fn() -> Arc<View> + Send,
    events: Arc<KubeAct>,
    metrics: Metrics,
) {
    let mut told: BTreeSet<(String, Option<String>)> = BTreeSet::new();
    loop {
        let known = Arc::clone(&guests.borrow_and_update());
        metrics.guests(&by_pool(&known, &view()), known.values().map(|guest| guest.node.clone()).collect());
        // A pod of the same name that comes later is another.
        told.retain(|(key, uid)| known.get(key).is_some_and(|guest| guest.meta.uid == *uid));
        for (key, guest) in known.iter() {
            if told.insert((key.clone(), guest.meta.uid.clone())) {
                let note = format!(
                    "requests no GPU and runs on GPU node {}: it uses the node's CPU and memory and blocks its scale-down; \
                     remove its toleration of GPU nodes, or select other nodes",
                    guest.node
                );
                events.event(About::Pod(&guest.meta), Severity::Warning, "NoGpuOnGpuNode", &note).await;
            }
        }
        if guests.changed().await.is_err() {
            return;
        }
    }
}

/// How many there are in each pool of the policy.
fn by_pool(guests: &Guests, view: &View) -> BTreeMap<PoolName, u32> {
    let mut pools: BTreeMap<PoolName, u32> = view.catalogue.policy.pools.iter().map(|pool| (pool.name.clone(), 0)).collect();
    for guest in guests.values() {
        let group = view.owner("", guest.node.as_str()).and_then(|group| view.groups.get(group));
        if let Some(pool) = group.and_then(|group| pools.get_mut(&group.group.pool)) {
            *pool += 1;
        }
    }
    pools
}

#[cfg(test)]
mod tests;
