//! The same readings for Prometheus, under DCGM's names and dcgm-exporter's labels, so that dashboards made for it fit; and the probe's own.
//!
//! What is unknown has no series: nothing here is nought because it could not be read. dcgm-exporter's labels `namespace`, `pod` and
//! `container` are left out: a probe knows a pod by its UID only, and asks no API server for its name.

mod dcgm;
mod own;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use stoker_proto::probe::interruption::Kind;
use stoker_proto::probe::{Event, Round, Signal, Why, event};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use page::Page;

/// No round for so many periods, and the probe is not well. A driver that hangs gives rounds that say so.
const PERIODS: u32 = 6;

/// Adds to the page what other parts count.
pub type More = Arc<dyn Fn(&mut Page) + Send + Sync>;

/// What is shown.
#[derive(Clone)]
pub struct Metrics(Arc<Shared>);

struct Shared {
    node: String,
    period: Duration,
    more: Option<More>,
    seen: Mutex<Seen>,
}

/// What was seen since the probe began.
#[derive(Default)]
struct Seen {
    latest: Option<(Instant, Round)>,
    /// By the driver's state.
    rounds: BTreeMap<&'static str, u64>,
    unknown: BTreeMap<(Signal, Why), u64>,
    /// By UUID and number.
    xids: BTreeMap<(String, u32), u64>,
    /// The last of each GPU.
    last_xid: BTreeMap<String, u32>,
    /// What the cloud has announced and not withdrawn. After a withdrawal, what still stands is told again.
    standing: BTreeSet<Kind>,
    events: u64,
}

impl Metrics {
    /// Nothing seen yet.
    pub fn new(node: &str, period: Duration, more: Option<More>) -> Self {
        Self(Arc::new(Shared { node: node.to_owned(), period, more, seen: Mutex::default() }))
    }

    /// Counts and keeps a round.
    pub fn round(&self, round: &Round) {
        let mut seen = self.seen();
        let state = round.driver.as_ref().map(stoker_proto::probe::Driver::state).unwrap_or_default();
        *seen.rounds.entry(state.as_str_name()).or_default() += 1;
        let instances =
            round.gpus.iter().flat_map(|gpu| &gpu.mig).flat_map(|mig| &mig.devices).flat_map(|device| &device.unknown);
        for unknown in round.gpus.iter().flat_map(|gpu| &gpu.unknown).chain(instances) {
            *seen.unknown.entry((unknown.signal(), unknown.why())).or_default() += 1;
        }
        seen.latest = Some((Instant::now(), round.clone()));
    }

    /// Counts an event.
    pub fn event(&self, event: &Event) {
        let mut seen = self.seen();
        seen.events += 1;
        match &event.kind {
            Some(event::Kind::Xid(xid)) => {
                *seen.xids.entry((xid.gpu_uuid.clone(), xid.code)).or_default() += 1;
                seen.last_xid.insert(xid.gpu_uuid.clone(), xid.code);
            }
            Some(event::Kind::Interruption(told)) if told.kind() == Kind::Withdrawn => seen.standing.clear(),
            Some(event::Kind::Interruption(told)) => {
                seen.standing.insert(told.kind());
            }
            None => {}
        }
    }

    /// The page of metrics, in Prometheus's text format.
    pub fn page(&self) -> String {
        let mut page = Page::default();
        let seen = self.seen();
        if let Some((_, round)) = &seen.latest {
            dcgm::write(&mut page, round, &self.0.node, &seen.last_xid);
        }
        own::write(&mut page, &seen);
        drop(seen);
        if let Some(more) = &self.0.more {
            more(&mut page);
        }
        page.into_text()
    }

    /// Whether rounds come, whatever they say.
    pub fn healthy(&self) -> bool {
        self.seen().latest.as_ref().is_some_and(|(at, _)| at.elapsed() < self.0.period * PERIODS)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves `/metrics` and `/healthz`.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> std::io::Result<()> {
        let text = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
        let router = axum::Router::new()
            .route("/metrics", get(async move |State(metrics): State<Self>| (text, metrics.page())))
            .route(
                "/healthz",
                get(async |State(metrics): State<Self>| {
                    if metrics.healthy() {
                        "ok\n".into_response()
                    } else {
                        (StatusCode::SERVICE_UNAVAILABLE, "no rounds\n").into_response()
                    }
                }),
            )
            .with_state(self);
        axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await }).await
    }
}
