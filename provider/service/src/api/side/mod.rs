//! The side port: metrics, liveness, readiness and the current view, over plain HTTP.
//!
//! Whoever reaches the port can read all of it: nothing here may show a secret, and nothing here changes anything.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long answers under way may take once the port is to close.
const DRAIN: Duration = Duration::from_secs(2);

/// Whether the process does its work; a kubelet restarts one that does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The loop runs.
    Alive,
    /// The loop has stopped; says since when, and where.
    Stuck(String),
}

/// One thing that readiness depends on, or that an operator should see beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What, in a word or two: `policy`, `feed supplier`, `certificates`.
    pub name: String,
    /// How it stands.
    pub standing: Standing,
}

/// How a condition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// As it should be.
    Good,
    /// Not as it should be, but calls can be answered: a refused policy file while the last good one is in use.
    Degraded(String),
    /// Calls cannot be answered.
    NotReady(String),
}

impl Condition {
    /// A condition that holds.
    pub fn good(name: impl Into<String>) -> Self {
        Self { name: name.into(), standing: Standing::Good }
    }

    /// A fault that is shown and leaves the process ready.
    pub fn degraded(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), standing: Standing::Degraded(detail.into()) }
    }

    /// A fault that makes the process not ready.
    pub fn not_ready(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), standing: Standing::NotReady(detail.into()) }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = OneLine(&self.name);
        match &self.standing {
            Standing::Good => write!(f, "ok        {name}"),
            Standing::Degraded(detail) => write!(f, "degraded  {name}: {}", OneLine(detail)),
            Standing::NotReady(detail) => write!(f, "not-ready {name}: {}", OneLine(detail)),
        }
    }
}

/// A text that stays on its line.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, line) in self.0.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{line}")?;
        }
        Ok(())
    }
}

/// Where the answers come from. The closures run on each request and must not block.
pub struct SideState {
    /// What `/metrics` shows.
    pub registry: Arc<Registry>,
    /// For `/healthz`.
    pub healthy: Box<dyn Fn() -> Health + Send + Sync>,
    /// For `/readyz`: every condition, good ones too.
    pub ready: Box<dyn Fn() -> Vec<Condition> + Send + Sync>,
    /// For `/debug/view`.
    pub view: Box<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// For `/debug/signals`; the one answer that may take a while.
    pub signals: Box<dyn Fn() -> BoxFuture<'static, serde_json::Value> + Send + Sync>,
}

impl fmt::Debug for SideState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideState").finish_non_exhaustive()
    }
}

/// Serves the side port until `stop`, and then at most two seconds longer for answers under way.
pub async fn serve(listener: TcpListener, state: SideState, stop: CancellationToken) -> io::Result<()> {
    let app = router(Arc::new(state));
    let draining = stop.clone();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async move { stop.cancelled().await });
    tokio::select! {
        served = serving.into_future() => served,
        () = async { draining.cancelled().await; tokio::time::sleep(DRAIN).await } => Ok(()),
    }
}

fn router(state: Arc<SideState>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/debug/view", get(view))
        .route("/debug/signals", get(signals))
        .fallback(|| async { (StatusCode::NOT_FOUND, "try /metrics, /healthz, /readyz, /debug/view or /debug/signals\n") })
        .with_state(state)
}

async fn metrics(State(state): State<Arc<SideState>>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &state.registry) {
        Ok(()) => {
            ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be written: {error}\n")).into_response(),
    }
}

async fn healthz(State(state): State<Arc<SideState>>) -> Response {
    match (state.healthy)() {
        Health::Alive => "ok\n".into_response(),
        Health::Stuck(detail) => (StatusCode::SERVICE_UNAVAILABLE, format!("stuck: {}\n", OneLine(&detail))).into_response(),
    }
}

async fn readyz(State(state): State<Arc<SideState>>) -> Response {
    let conditions = (state.ready)();
    let ready = !conditions.iter().any(|condition| matches!(condition.standing, Standing::NotReady(_)));
    let degraded = conditions.iter().any(|condition| matches!(condition.standing, Standing::Degraded(_)));
    let mut text = String::from(match (ready, degraded) {
        (false, _) => "not ready\n",
        (true, true) => "ready, degraded\n",
        (true, false) => "ready\n",
    });
    for condition in conditions {
        text.push_str(&condition.to_string());
        text.push('\n');
    }
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text).into_response()
}

async fn view(State(state): State<Arc<SideState>>) -> axum::Json<serde_json::Value> {
    axum::Json((state.view)())
}

async fn signals(State(state): State<Arc<SideState>>) -> axum::Json<serde_json::Value> {
    axum::Json((state.signals)().await)
}

#[cfg(test)]
mod tests;
