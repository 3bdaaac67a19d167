//! The services behind their listeners: who may call, how much at once, health, reflection, and an orderly stop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use stoker_core::base::sabotage;
use stoker_proto::FILE_DESCRIPTOR_SET;
use stoker_proto::expander::expander_server;
use stoker_proto::externalgrpc::cloud_provider_server::{self, CloudProviderServer};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};

use super::bounded::Bounded;
use super::expander::Expander;
use super::intake::Intake;
use super::probe::ProbeService;
use super::provider::Provider;
use crate::api::confirm::Confirm;
use crate::engine::EngineHandle;
use crate::listener::{CONNECTION_AGE, CONNECTION_GRACE, Listener, require_identity};
use crate::publish::telemetry::{Metrics, RpcLayer};

/// Requests to the provider. The largest is a deletion of some thousand nodes with their labels and
/// annotations. A label may take twenty times its bytes in memory: all at once stay well below what
/// the shipped Deployment allows.
const PROVIDER_INTAKE: Intake = Intake { overall: 12 << 20, each: 8 << 20, within: Duration::from_secs(5) };

/// Requests to the expander. With the 200 MB of the service itself, and what a request becomes
/// while it is ranked, they stay below the 512 MiB that the shipped Deployment allows. Whoever
/// waits behind a dozen that do not come still has its turn in time.
const EXPANDER_INTAKE: Intake = Intake { overall: 128 << 20, each: 64 << 20, within: Duration::from_secs(2) };

/// Largest request for health or reflection.
const SMALL_REQUEST: usize = 4 << 10;

/// The autoscaler waits no longer for the expander. Past it a call frees its place for the next.
const EXPANDER_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest the autoscaler waits for a call unless told otherwise, and so how long calls under way may take once the service stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How often health is compared with the view.
const HEALTH_EVERY: Duration = Duration::from_millis(250);

/// A client that does not answer a ping is gone: its connection would otherwise stay until the system notices, hours later.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// Calls at once on one connection; an autoscaler makes a few at a time, and further ones wait on
/// its side.
const PROVIDER_STREAMS: u32 = 64;
const EXPANDER_STREAMS: u32 = 8;

/// Bytes that a client may send before they are taken, of one connection.
const WINDOW: u32 = 1 << 20;
const EXPANDER_WINDOW: u32 = 256 << 10;

/// Streams on one connection. A probe has one, and another while it changes over.
const PROBE_STREAMS: u32 = 4;

/// Bytes that a probe may send before they are taken: as much as the largest message, so that 5,000 of them bound what is held.
const PROBE_WINDOW: u32 = 256 << 10;

/// Why a service does not serve any more.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The descriptors that reflection serves do not hold together.
    #[error("reflection cannot be served")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the gRPC transport failed")]
    Transport(#[source] tonic::transport::Error),
}

/// Serves the provider until `stop`, to clients that name themselves as one of `clients`. `confirm`
/// is asked before nodes go. Its connections stand as long as their certificates are good: a new
/// one may mean that the autoscaler was restarted.
pub async fn serve_provider(
    listener: Listener,
    engine: EngineHandle,
    confirm: Option<Arc<Confirm>>,
    clients: Arc<[String]>,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let provider = Provider::new(engine.clone()).confirming(confirm);
    let provider = CloudProviderServer::new(provider).max_decoding_message_size(PROVIDER_INTAKE.each);
    let provider = PROVIDER_INTAKE.of(InterceptedService::new(provider, require_identity(clients)));
    let health = HealthReporter::new();
    let router = builder()
        .max_concurrent_streams(PROVIDER_STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .layer(RpcLayer::new(metrics))
        .add_service(provider)
        .add_service(health_service(&health))
        .add_service(
            reflection(cloud_provider_server::SERVICE_NAME)
                .build_v1()
                .map_err(ServeError::Reflection)?
                .max_decoding_message_size(SMALL_REQUEST),
        )
        .add_service(
            reflection(cloud_provider_server::SERVICE_NAME)
                .build_v1alpha()
                .map_err(ServeError::Reflection)?
                .max_decoding_message_size(SMALL_REQUEST),
        );
    let served = router.serve_with_incoming_shutdown(listener.incoming(), stop.clone().cancelled_owned());
    let ready = || engine.view().ready.is_ok();
    until_stopped(served, tell_health(health, cloud_provider_server::SERVICE_NAME, ready, &stop), &stop).await
}

/// Serves the expander until `stop`. The autoscaler's expander client has no certificate to show, so anybody who reaches the port may
/// ask; nothing can be changed here.
pub async fn serve_expander(
    listener: Listener,
    engine: EngineHandle,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let most = if sabotage::on("expander-4mib") { 4 << 20 } else { EXPANDER_INTAKE.each };
    let expander = EXPANDER_INTAKE.of(Bounded::new(Expander::new(engine), most));
    let health = HealthReporter::new();
    let router = builder()
        .timeout(EXPANDER_TIMEOUT)
        .max_connection_age(CONNECTION_AGE)
        .max_connection_age_grace(CONNECTION_GRACE)
        .max_concurrent_streams(EXPANDER_STREAMS)
        .initial_stream_window_size(EXPANDER_WINDOW)
        .initial_connection_window_size(EXPANDER_WINDOW)
        .layer(RpcLayer::new(metrics))
        .add_service(expander)
        .add_service(health_service(&health))
        .add_service(
            reflection(expander_server::SERVICE_NAME)
                .build_v1()
                .map_err(ServeError::Reflection)?
                .max_decoding_message_size(SMALL_REQUEST),
        )
        .add_service(
            reflection(expander_server::SERVICE_NAME)
                .build_v1alpha()
                .map_err(ServeError::Reflection)?
                .max_decoding_message_size(SMALL_REQUEST),
        );
    let served = router.serve_with_incoming_shutdown(listener.incoming(), stop.clone().cancelled_owned());
    // It always has an answer: where nothing can be ranked, the options as they came.
    until_stopped(served, tell_health(health, expander_server::SERVICE_NAME, || true, &stop), &stop).await
}

/// Serves probes until `stop`: their service alone, without reflection or health, which would tell a node's key more than it needs.
pub async fn serve_probes(listener: Listener, door: ProbeService, stop: CancellationToken) -> Result<(), ServeError> {
    let router = builder()
        .max_connection_age(CONNECTION_AGE)
        .max_connection_age_grace(CONNECTION_GRACE)
        .max_concurrent_streams(PROBE_STREAMS)
        .initial_stream_window_size(PROBE_WINDOW)
        .initial_connection_window_size(PROBE_WINDOW)
        .add_service(door);
    let served = router.serve_with_incoming_shutdown(listener.incoming(), stop.clone().cancelled_owned());
    until_stopped(served, std::future::pending(), &stop).await
}

/// [`serve_probes`] as one of the process's tasks.
pub fn spawn_probes(tasks: &mut JoinSet<&'static str>, listener: Listener, door: ProbeService, stop: CancellationToken) {
    tasks.spawn(named("the probes' door", serve_probes(listener, door, stop)));
}

/// [`serve_provider`] as one of the process's tasks.
pub fn spawn_provider(
    tasks: &mut JoinSet<&'static str>,
    listener: Listener,
    engine: EngineHandle,
    confirm: Option<Arc<Confirm>>,
    clients: Arc<[String]>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    tasks.spawn(named("the provider", serve_provider(listener, engine, confirm, clients, metrics, stop)));
}

/// [`serve_expander`] as one of the process's tasks.
pub fn spawn_expander(
    tasks: &mut JoinSet<&'static str>,
    listener: Listener,
    engine: EngineHandle,
    metrics: Metrics,
    stop: CancellationToken,
) {
    tasks.spawn(named("the expander", serve_expander(listener, engine, metrics, stop)));
}

async fn named(name: &'static str, served: impl Future<Output = Result<(), ServeError>>) -> &'static str {
    if let Err(error) = served.await {
        tracing::error!(error = &error as &dyn std::error::Error, "{name} failed");
    }
    name
}

fn builder() -> Server {
    Server::builder().http2_keepalive_interval(Some(PING_EVERY)).http2_keepalive_timeout(Some(PONG_WITHIN))
}

fn reflection(service: &str) -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(service)
        .with_service_name(tonic_health::pb::health_server::SERVICE_NAME)
}

fn health_service(health: &HealthReporter) -> tonic_health::pb::health_server::HealthServer<HealthService> {
    let health = HealthService::from_health_reporter(health.clone());
    tonic_health::pb::health_server::HealthServer::new(health).max_decoding_message_size(SMALL_REQUEST)
}

/// Tells, for `service` and the server as a whole, whether it is ready. From `stop` on it is not, and whoever watches is let go: an open
/// watch would hold up the end.
async fn tell_health(
    mut health: HealthReporter,
    service: &'static str,
    ready: impl Fn() -> bool,
    stop: &CancellationToken,
) -> Infallible {
    let follow = async {
        let mut told = None;
        let mut ticks = tokio::time::interval(HEALTH_EVERY);
        loop {
            let now = ready();
            if told.replace(now) != Some(now) {
                let status = if now { ServingStatus::Serving } else { ServingStatus::NotServing };
                health.set_service_status(service, status).await;
                health.set_service_status("", status).await;
            }
            ticks.tick().await;
        }
    };
    stop.run_until_cancelled(follow).await;
    for name in [service, ""] {
        health.set_service_status(name, ServingStatus::NotServing).await;
        health.clear_service_status(name).await;
    }
    std::future::pending().await
}

/// Serves until all calls have ended after `stop`, or have had their time.
async fn until_stopped(
    served: impl Future<Output = Result<(), tonic::transport::Error>>,
    health: impl Future<Output = Infallible>,
    stop: &CancellationToken,
) -> Result<(), ServeError> {
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        biased; // Health is told before the first call is served.
        never = health => match never {},
        served = served => served.map_err(ServeError::Transport),
        () = late => {
            tracing::warn!("calls were still under way {} s after the stop and are cut off", DRAIN.as_secs());
            Ok(())
        }
    }
}
