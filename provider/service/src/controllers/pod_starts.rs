//! How long GPU pods take from their node to running containers, counted by pool: mostly the pull of their images, while
//! the GPU waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stoker_core::base::ids::PoolName;
use stoker_core::facts::snapshot::ClusterFacts;
use tokio::sync::watch;

use crate::kube::feed::GpuPods;
use crate::publish::telemetry::Metrics;
use crate::publish::view::View;

/// How often pods are looked at. A pod that comes and ends in between is not counted.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Counts such pods. `view` is the published view, by which pools are counted.
pub async fn run(
    cluster: watch::Receiver<Option<Arc<ClusterFacts>>>,
    pods: watch::Receiver<Arc<GpuPods>>,
    view: impl Fn() -> Arc<View> + Send,
    metrics: Metrics,
) {
    let mut starts = Starts::default();
    loop {
        let (known, named) = (cluster.borrow().clone(), Arc::clone(&pods.borrow()));
        if let Some(known) = known {
            for (pool, took) in starts.since_last(&known, &named, &view()) {
                metrics.pod_started(&pool, took);
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The pods that have started.
#[derive(Debug, Default)]
struct Starts {
    /// Their UIDs; `None` before the first look. What ran by then was counted by the process before.
    known: Option<BTreeSet<Arc<str>>>,
}

impl Starts {
    /// The pods that started since this was last asked: each one's pool, and how long it took.
    fn since_last(&mut self, cluster: &ClusterFacts, pods: &GpuPods, view: &View) -> Vec<(PoolName, Duration)> {
        let mut running = BTreeSet::new();
        let mut new = Vec::new();
        for node in cluster.nodes.values() {
            for pod in node.gpu_pods.iter().filter_map(|name| Some(&pods.get(name.as_str())?.pod)) {
                let (Some(uid), Some(took)) = (&pod.uid, pod.started_after) else { continue };
                let is_new = self.known.as_ref().is_some_and(|known| !known.contains(uid));
                if is_new && let Some(group) = node.group.as_ref().and_then(|group| view.groups.get(group)) {
                    new.push((group.group.pool.clone(), took));
                }
                running.insert(Arc::clone(uid));
            }
        }
        self.known = Some(running);
        new
    }
}

#[cfg(test)]
mod tests;
