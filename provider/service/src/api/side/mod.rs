//! The side port: metrics, liveness, readiness, the current view and the console, over plain HTTP.
//!
//! Whoever reaches the port can read all of it but the console: nothing here may show a secret, and nothing here changes anything.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures::future::BoxFuture;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::console::Console;
use crate::listener::{Conn, Listener};
use crate::publish::picture::Picture;

/// How long a request's headers may take. Nothing else of a request is read.
const HEADERS: Duration = Duration::from_secs(10);

/// How long a connection may take in all: it asks once, and reads the answer. A Prometheus gives up
/// after 10 s.
const CONNECTION: Duration = Duration::from_secs(30);

/// How long an answer may take: as long as its connection.
pub(crate) const LONGEST_ANSWER: Duration = CONNECTION;

/// Longest headers.
const LONGEST: usize = 16 << 10;

/// How long `/metrics` is answered from memory, so that whoever asks without pause costs little.
const FRESH: Duration = Duration::from_millis(250);

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
    /// Whether `/debug` is served.
    pub debug: bool,
    /// For `/healthz`.
    pub healthy: Box<dyn Fn() -> Health + Send + Sync>,
    /// For `/readyz`: every condition, good ones too.
    pub ready: Arc<dyn Fn() -> Vec<Condition> + Send + Sync>,
    /// For `/debug/view`.
    pub view: Box<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// For `/debug/top`.
    pub picture: Arc<dyn Fn() -> Picture + Send + Sync>,
    /// For `/debug/signals`; the one answer that may take a while.
    pub signals: Box<dyn Fn() -> BoxFuture<'static, serde_json::Value> + Send + Sync>,
    /// For `/console`; not served when absent.
    pub console: Option<Arc<Console>>,
}

impl fmt::Debug for SideState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideState").finish_non_exhaustive()
    }
}

/// Serves the side port until `stop`, and then at most two seconds longer for answers under way. A
/// connection is good for one request: none is idle, and none outlives what it proved.
pub async fn serve(listener: Listener, state: SideState, stop: CancellationToken) {
    let console = state.console.clone();
    let app = router(Arc::new(state), &stop);
    serve_app("the side port", listener, app, console, stop).await;
}

/// Serves the console alone until `stop`, as [`serve`] does.
pub async fn serve_console(listener: Listener, console: Arc<Console>, stop: CancellationToken) {
    let app = Arc::clone(&console).router(stop.clone()).fallback(|| async { Redirect::to("/console") });
    serve_app("the console", listener, app, Some(console), stop).await;
}

async fn serve_app(
    name: &'static str,
    mut listener: Listener,
    app: Router,
    console: Option<Arc<Console>>,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            tokio::select! {
                conn = listener.accept() => drop(connections.spawn(timeout(CONNECTION, serve_one(name, conn, app.clone())))),
                Some(_) = connections.join_next() => {}
            }
        }
    };
    let watching = async {
        match &console {
            Some(console) => console.keep_history().await,
            None => std::future::pending().await,
        }
    };
    stop.run_until_cancelled(async { tokio::join!(accepting, watching) }).await;
    drop(timeout(DRAIN, connections.join_all()).await);
}

async fn serve_one(name: &'static str, conn: Conn, app: Router) {
    let remote = conn.peer().remote;
    let app = app.layer(Extension(conn.peer().clone()));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(LONGEST)
        .keep_alive(false)
        .serve_connection(TokioIo::new(conn), TowerToHyperService::new(app));
    if let Err(error) = served.await {
        tracing::debug!(%remote, %error, listener = name, "a connection ended");
    }
}

fn router(state: Arc<SideState>, stop: &CancellationToken) -> Router {
    let debug =
        || Router::new().route("/debug/view", get(view)).route("/debug/top", get(top)).route("/debug/signals", get(signals));
    let router = if state.debug { debug() } else { Router::new() };
    let console = state.console.clone().map(|console| console.router(stop.clone()));
    router
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(|| async {
            let paths =
                "try /metrics, /healthz or /readyz; `stoker serve --debug` also serves /debug/view, /debug/top and /debug/signals, \
                 and `stoker serve --console` /console\n";
            (StatusCode::NOT_FOUND, paths)
        })
        .with_state(Arc::new(Served { state, metrics: Mutex::default() }))
        .merge(console.unwrap_or_default())
}

/// What the requests share.
struct Served {
    state: Arc<SideState>,
    /// What `/metrics` was last answered, and when.
    metrics: Mutex<Option<(Instant, Bytes)>>,
}

impl Served {
    fn metrics(&self) -> Result<Bytes, fmt::Error> {
        // Whoever else asks meanwhile waits a few milliseconds, and gets the same.
        let mut last = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(text.clone());
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.state.registry)?;
        let text = Bytes::from(text);
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

async fn metrics(State(served): State<Arc<Served>>) -> Response {
    match served.metrics() {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be written: {error}\n")).into_response(),
    }
}

async fn healthz(State(served): State<Arc<Served>>) -> Response {
    match (served.state.healthy)() {
        Health::Alive => "ok\n".into_response(),
        Health::Stuck(detail) => (StatusCode::SERVICE_UNAVAILABLE, format!("stuck: {}\n", OneLine(&detail))).into_response(),
    }
}

async fn readyz(State(served): State<Arc<Served>>) -> Response {
    let conditions = (served.state.ready)();
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

async fn view(State(served): State<Arc<Served>>) -> axum::Json<serde_json::Value> {
    axum::Json((served.state.view)())
}

async fn top(State(served): State<Arc<Served>>) -> axum::Json<Picture> {
    axum::Json((served.state.picture)())
}

async fn signals(State(served): State<Arc<Served>>) -> axum::Json<serde_json::Value> {
    axum::Json((served.state.signals)().await)
}

#[cfg(test)]
mod tests;
