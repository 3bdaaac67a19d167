//! The probes' door: `Watch`, and nothing else.

mod codec;
mod session;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::Source;
use stoker_proto::PROBE_PERIODS_MS;
use stoker_proto::probe::probe_server::SERVICE_NAME;
use stoker_proto::probe::{FromProbe, Hello, ToProbe, from_probe};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tower::Service;

use super::counting::Counting;
use crate::feeds::probes::identity::Identity;
use crate::feeds::probes::{Readings, Reason, Streams};
use crate::listener::{CONNECTION_AGE, CONNECTION_GRACE, PeerInfo, Seldom};
use session::Session;

const WATCH: &str = "/stoker.probe.v1.Probe/Watch";

/// How long the first message may take.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// Longest boot id; the kernel's are UUIDs.
const MOST_BOOT_ID: usize = 64;

/// The service.
#[derive(Debug, Clone)]
pub struct ProbeService {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    readings: Arc<Readings>,
    streams: Arc<Streams>,
    identity: Identity,
    stop: CancellationToken,
    warnings: Arc<Warnings>,
}

/// What is warned of, each kind on its own: one must not hide another.
#[derive(Debug, Default)]
struct Warnings {
    refused: Seldom,
    elsewhere: Seldom,
    round: Seldom,
    fast: Seldom,
    lapsed: Seldom,
}

impl ProbeService {
    /// Takes what probes with that identity send; streams end at `stop`.
    pub fn new(readings: Arc<Readings>, streams: Arc<Streams>, identity: Identity, stop: CancellationToken) -> Self {
        Self { shared: Arc::new(Shared { readings, streams, identity, stop, warnings: Arc::default() }) }
    }
}

impl NamedService for ProbeService {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for ProbeService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = Watch(Arc::clone(&self.shared));
        Box::pin(async move {
            if request.uri().path() != WATCH {
                return Ok(Status::unimplemented("the probe API serves Watch only").into_http());
            }
            Ok(Grpc::new(Counting::default()).max_decoding_message_size(codec::LARGEST).streaming(method, request).await)
        })
    }
}

/// When a stream ends, of a connection since then: after the connection was told to end, and before
/// it is ended. Streams that a restart of ours brought back together do not end together.
fn stream_ends(since: Instant, node: &NodeName) -> Instant {
    let spread = u32::from(blake3::hash(node.as_str().as_bytes()).as_bytes()[0]);
    since + CONNECTION_AGE + CONNECTION_GRACE * spread / 320
}

struct Watch(Arc<Shared>);

type Answers = Pin<Box<dyn Stream<Item = Result<ToProbe, Status>> + Send>>;

impl StreamingService<FromProbe> for Watch {
    type Response = ToProbe;
    type ResponseStream = Answers;
    type Future = BoxFuture<'static, Result<Response<Answers>, Status>>;

    fn call(&mut self, request: Request<Streaming<FromProbe>>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { Ok(Response::new(shared.open(request).await?)) })
    }
}

impl Shared {
    /// Hears who speaks and for which node; from then on the stream lives in its answers.
    async fn open(&self, request: Request<Streaming<FromProbe>>) -> Result<Answers, Status> {
        let peer = request.extensions().get::<PeerInfo>().cloned();
        let may_speak = self.identity.of(peer.as_ref(), request.metadata()).await.map_err(|refused| {
            self.readings.reject(refused.reason);
            if let Some(unlogged) = self.warnings.refused.unlogged() {
                let remote = peer.as_ref().map(|peer| peer.remote);
                tracing::warn!(?remote, unlogged, "probe refused: {}", refused.status.message());
            }
            refused.status
        })?;
        let proof = self.identity.proof(request.metadata());
        let mut inbound = request.into_inner();
        let late = |_| Status::deadline_exceeded("no Hello within 10 s");
        let first = timeout(HELLO_WITHIN, inbound.message()).await.map_err(late)?;
        let first = first.inspect_err(|status| session::count_broken(&self.readings, status))?;
        let Some(from_probe::Kind::Hello(hello)) = first.and_then(|first| first.kind) else {
            return Err(self.refuse(Reason::Malformed, Status::invalid_argument("the first message must be a Hello")));
        };
        let node = self.check(&hello)?;
        if !may_speak.includes(&node) {
            let message = format!("the identity presented does not name node {node}: a probe may report for its own node only");
            if let Some(unlogged) = self.warnings.elsewhere.unlogged() {
                let remote = peer.map(|peer| peer.remote);
                tracing::warn!(%node, ?may_speak, ?remote, unlogged, "a probe reports for another node; refused");
            }
            return Err(self.refuse(Reason::WrongIdentity, Status::permission_denied(message)));
        }
        let unknown = |reason| {
            let status = match reason {
                Reason::NotReady => Status::unavailable("the cluster has not been read yet; try again"),
                _ => Status::not_found(format!("{node} is not a node that Stoker manages, or not yet; try again")),
            };
            self.refuse(reason, status)
        };
        self.readings.knows(&node).map_err(unknown)?;
        let (ticket, taken) = self
            .streams
            .admit(&node, &hello, self.readings.hears(&node))
            .map_err(|reason| self.refuse(reason, Status::already_exists(format!("a newer process reports for {node}"))))?;
        let period = jiff::SignedDuration::from_millis(i64::from(hello.period_ms));
        self.readings.expect(&node, Source::Probe, period, Some(&hello.boot_id)).map_err(unknown)?;
        tracing::debug!(%node, version = hello.version.escape_debug().to_string(), "a probe reports");
        let readings = Arc::clone(&self.readings);
        let remote = peer.as_ref().map_or(IpAddr::from([0; 4]), |peer| peer.remote.ip());
        let lapse = proof.lapse(&node, remote, move || readings.metrics().rejected(Reason::ReviewUnavailable));
        let ends = stream_ends(peer.as_ref().map_or_else(Instant::now, |peer| peer.since), &node);
        let ended = Box::pin(async move {
            tokio::select! { status = lapse => Some(status), () = sleep_until(ends) => None }
        });
        if let Some(peer) = &peer {
            peer.prove();
        }
        let (readings, warnings) = (Arc::clone(&self.readings), Arc::clone(&self.warnings));
        let session = Session::new(inbound, ticket, taken, ended, readings, warnings, self.stop.clone());
        Ok(Box::pin(session.answers()))
    }

    fn check(&self, hello: &Hello) -> Result<NodeName, Status> {
        let bad = |why: String| self.refuse(Reason::Malformed, Status::invalid_argument(format!("Hello: {why}")));
        let node = NodeName::new(&hello.node).map_err(|error| bad(error.to_string()))?;
        // The longest name of a Kubernetes object.
        if hello.node.len() > 253 {
            return Err(bad("the node's name is longer than any".to_owned()));
        }
        if hello.boot_id.is_empty() || hello.boot_id.len() > MOST_BOOT_ID || hello.boot_id.contains(char::is_control) {
            return Err(bad("boot_id must have 1 to 64 characters".to_owned()));
        }
        if !PROBE_PERIODS_MS.contains(&hello.period_ms) {
            return Err(bad(format!(
                "period_ms is {}, and must be from {} to {}",
                hello.period_ms,
                PROBE_PERIODS_MS.start(),
                PROBE_PERIODS_MS.end()
            )));
        }
        Ok(node)
    }

    fn refuse(&self, reason: Reason, status: Status) -> Status {
        self.readings.reject(reason);
        status
    }
}
