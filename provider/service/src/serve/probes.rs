//! The listener for the nodes' probes, and what keeps their readings.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use super::listeners::listen;
use super::options::ProbeListenerOptions;
use crate::api::grpc::probe::ProbeService;
use crate::api::grpc::server::spawn_probes;
use crate::feeds::probes::identity::Identity;
use crate::feeds::probes::{REVIEW_AGAIN, Readings, Reviewer, Streams};
use crate::listener::{Limits, Listener, Tls};
use crate::publish::telemetry::Metrics;

/// A listener that takes no connections yet.
pub(super) struct Opened {
    listener: Listener,
    identity: Identity,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) addr: SocketAddr,
}

/// Listens. Over TLS, probes prove their node by certificates where an authority for them is named, and else by tokens that the cluster's
/// API server reviews.
pub(super) async fn open(
    options: ProbeListenerOptions,
    client: Option<&kube::Client>,
    limits: Limits,
    metrics: &Metrics,
) -> Result<Opened, ServeError> {
    let ProbeListenerOptions { listener: options, account } = options;
    let identity = match (&options.tls, client) {
        (None, _) => Identity::Unproven,
        (Some(files), _) if files.client_ca.is_some() => Identity::Certificates,
        (Some(_), Some(client)) => Identity::Tokens(Arc::new(Reviewer::new(client, account, REVIEW_AGAIN))),
        (Some(_), None) => return Err(ServeError::UnprovenProbes),
    };
    let tls = options.load()?;
    let listener = listen("the probes", &options, tls.as_ref(), limits, metrics).await.map_err(|error| match error {
        ServeError::Plaintext(refused) => ServeError::ProbePlaintext(refused.addr),
        other => other,
    })?;
    let addr = listener.local_addr().unwrap_or(options.listen);
    Ok(Opened { listener, identity, tls, addr })
}

impl Opened {
    /// Takes connections until `stop`.
    pub(super) fn spawn(
        self,
        tasks: &mut JoinSet<&'static str>,
        readings: &Arc<Readings>,
        streams: &Arc<Streams>,
        stop: CancellationToken,
    ) {
        let service = ProbeService::new(Arc::clone(readings), Arc::clone(streams), self.identity, stop.clone());
        spawn_probes(tasks, self.listener, service, stop);
    }
}

/// Publishes what is read, until `stop`, and forgets nodes that are gone.
pub(super) fn keep(tasks: &mut JoinSet<&'static str>, readings: Arc<Readings>, streams: Arc<Streams>, stop: CancellationToken) {
    tasks.spawn(async move {
        let mut seen = readings.seen();
        let follow = async {
            while seen.changed().await.is_ok() {
                seen.mark_unchanged();
                streams.retain(|node| readings.has(node));
            }
        };
        tokio::select! { () = readings.run(stop) => {}, () = follow => {} }
        "the readings of nodes"
    });
}
