//! A service that runs, and how it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::standby::Lead;
use crate::engine::EngineHandle;
use crate::feeds::probes::{Readings, Streams};
use crate::kube::act::KubeAct;
use crate::kube::feed::KubeFeed;
use crate::publish::telemetry::Metrics;
use stoker_journal::{PodsWriter, Reader};

/// How long stopping may take: less than the 30 s that Kubernetes gives a pod.
const STOP_WITHIN: Duration = Duration::from_secs(25);

/// The same of a leader. Another replica goes on with what is under way, by the same keys: it need not wait for that.
const LEADER_STOPS_WITHIN: Duration = Duration::from_secs(1);

/// A running service.
pub struct Running {
    /// The way to its engine.
    pub handle: EngineHandle,
    /// Where the autoscaler's provider listens.
    pub provider: SocketAddr,
    /// Where the expander listens.
    pub expander: SocketAddr,
    /// Where the nodes' probes are listened for, if they are.
    pub probes: Option<SocketAddr>,
    /// Where the side port listens.
    pub http: SocketAddr,
    /// Where the console listens, if not on the side port.
    pub console: Option<SocketAddr>,
    /// What is read of nodes.
    pub readings: Arc<Readings>,
    /// The probes that speak.
    pub streams: Arc<Streams>,
    /// The connection to the cluster, where there is one.
    pub client: Option<Client>,
    /// What is read of the cluster, and what writes to it, where there is one.
    pub kube: Option<(KubeFeed, Arc<KubeAct>)>,
    /// What is counted.
    pub metrics: Metrics,
    /// Writes GPU pods into the journal, for a cluster that is no Kubernetes.
    pub pods: PodsWriter,
    /// The journal, closed when all that writes it has ended.
    pub(super) journal: Reader,
    /// What takes calls in.
    pub(super) calls: Tasks,
    /// All else. A task that is added ends when the service stops, and ends it when it ends by itself.
    pub inner: Tasks,
    /// The lead among several replicas.
    pub(super) lead: Option<Lead>,
}

/// Tasks that end together.
#[derive(Default)]
pub struct Tasks {
    pub(super) stop: CancellationToken,
    pub(super) set: JoinSet<&'static str>,
}

impl Tasks {
    /// Runs a task until the service stops. A task that ends by itself stops the service.
    pub fn run<T>(&mut self, name: &'static str, task: impl Future<Output = T> + Send + 'static) {
        let stop = self.stop.clone();
        self.set.spawn(async move {
            stop.run_until_cancelled_owned(task).await;
            name
        });
    }

    async fn stop(&mut self) {
        self.stop.cancel();
        while self.set.join_next().await.is_some() {}
    }
}

impl Running {
    /// Waits until `until` is over or a part ends unasked, and then stops everything in order. Whether all parts ran to the end.
    pub async fn run_until(mut self, until: impl Future<Output = ()>) -> bool {
        let sound = tokio::select! {
            () = until => true,
            () = lost(self.lead.as_ref()) => {
                // Another replica goes on with what is under way.
                self.inner.set.abort_all();
                false
            }
            Some(ended) = self.calls.set.join_next() => unasked(ended),
            Some(ended) = self.inner.set.join_next() => unasked(ended),
        };
        self.stop().await;
        sound
    }

    /// Stops everything: first what takes calls in, then the loop, which lets what is under way finish. The state directory is at rest then.
    pub async fn stop(mut self) {
        let in_order = async {
            self.calls.stop().await;
            self.inner.stop().await;
            self.journal.close().await;
        };
        let within = if self.lead.is_some() { LEADER_STOPS_WITHIN } else { STOP_WITHIN };
        let has_stopped = tokio::time::timeout(within, in_order).await.is_ok();
        if !has_stopped {
            tracing::warn!("some parts did not stop within {} s; unfinished work resumes at the next start", within.as_secs());
        }
        if let Some(lead) = &self.lead {
            self.inner.set.abort_all();
            lead.give_back().await;
        }
    }
}

/// Waits until another replica may lead; for ever where there is none.
async fn lost(lead: Option<&Lead>) {
    match lead {
        Some(lead) => lead.lost().await,
        None => std::future::pending().await,
    }
}

/// Tells of a part that ended by itself. Nothing is sound without it.
fn unasked(ended: Result<&'static str, tokio::task::JoinError>) -> bool {
    match ended {
        Ok(task) => tracing::error!(task, "a part ended unexpectedly; stopping"),
        Err(error) => tracing::error!(%error, "a part failed; stopping"),
    }
    false
}
