//! Each cloud's announcements, against a stand-in of its metadata service.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stoker_probe::notice::{Cloud, Elsewhere, follow};
use stoker_proto::probe::interruption::Kind;
use stoker_proto::probe::{Event, Interruption, event};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);

/// A metadata service: what each path holds, and what a request must bear.
#[derive(Clone)]
struct StandIn {
    held: watch::Sender<BTreeMap<&'static str, String>>,
    /// Name and value; AWS's is the token of the day.
    demanded: Arc<Mutex<(&'static str, String)>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl StandIn {
    async fn start(name: &'static str, value: &str) -> Result<(Self, String)> {
        let stand_in = Self {
            held: watch::Sender::default(),
            demanded: Arc::new(Mutex::new((name, value.to_owned()))),
            asked: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let base = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(answer).with_state(stand_in.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((stand_in, base))
    }

    fn hold(&self, path: &'static str, text: &str) {
        self.held.send_modify(|held| drop(held.insert(path, text.to_owned())));
    }

    fn let_go(&self, path: &'static str) {
        self.held.send_modify(|held| drop(held.remove(path)));
    }

    fn demand(&self, value: &str) {
        value.clone_into(&mut self.demanded.lock().unwrap().1);
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.contains(path)).count()
    }
}

async fn answer(State(stand_in): State<StandIn>, request: Request) -> Response {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    stand_in.asked.lock().unwrap().push(path.clone());
    let (name, value) = stand_in.demanded.lock().unwrap().clone();
    if path == "/latest/api/token" {
        let lasts = request.headers().contains_key("x-aws-ec2-metadata-token-ttl-seconds");
        return if request.method() == Method::PUT && lasts {
            value.into_response()
        } else {
            StatusCode::BAD_REQUEST.into_response()
        };
    }
    if request.headers().get(name).and_then(|found| found.to_str().ok()) != Some(&value) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let mut held = stand_in.held.subscribe();
    let etag =
        |text: &str| format!("{:x}", text.len() * 31 + usize::from(text.as_bytes().first().copied().unwrap_or_default()));
    if let Some(last) = query.split('&').find_map(|part| part.strip_prefix("last_etag=")) {
        // Held back until the value is another one.
        let changed = held.wait_for(|held| held.get(path.as_str()).is_none_or(|text| etag(text) != last));
        let _ = tokio::time::timeout(PATIENCE, changed).await;
    }
    let text = held.borrow_and_update().get(path.as_str()).cloned();
    match text {
        Some(text) => ([(header::ETAG, etag(&text))], text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

struct Told {
    events: mpsc::UnboundedReceiver<Event>,
    stop: CancellationToken,
}

impl Told {
    fn by(cloud: Cloud, base: String) -> Self {
        let (send, events) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let tell = move |event| drop(send.send(event));
        tokio::spawn(follow(cloud, Elsewhere { base: Some(base), period: Some(PERIOD) }, tell, stop.clone()));
        Self { events, stop }
    }

    async fn next(&mut self) -> Result<(Kind, Interruption)> {
        let event = tokio::time::timeout(PATIENCE, self.events.recv()).await?.context("the end")?;
        match event.kind {
            Some(event::Kind::Interruption(told)) => Ok((told.kind(), told)),
            other => anyhow::bail!("{other:?}"),
        }
    }

    async fn nothing(&mut self) {
        tokio::time::sleep(PERIOD * 6).await;
        assert!(self.events.try_recv().is_err());
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test]
async fn aws_tells_of_rebalancing_and_of_the_end_and_takes_it_back() -> Result<()> {
    let (service, base) = StandIn::start("x-aws-ec2-metadata-token", "first").await?;
    let mut told = Told::by(Cloud::Aws, base);
    assert_eq!(told.next().await?.0, Kind::Withdrawn, "whatever an earlier process told");
    told.nothing().await;
    service.hold("/latest/meta-data/events/recommendations/rebalance", r#"{"noticeTime": "2026-11-22T00:00:00Z"}"#);
    assert_eq!(told.next().await?.0, Kind::Rebalance);
    // The token runs out: another one is fetched, and nothing is taken back meanwhile.
    service.demand("second");
    service.hold("/latest/meta-data/spot/instance-action", r#"{"action": "terminate", "time": "2026-11-22T00:02:00Z"}"#);
    let (kind, end) = told.next().await?;
    assert_eq!((kind, end.deadline.map(|at| at.seconds)), (Kind::Reclaim, Some(1_795_305_720)));
    assert!(end.detail.contains("terminate"));
    // One for each of the two that are followed, and one again for each.
    assert!(service.asked("/latest/api/token") <= 4, "a token is kept for as long as it lasts");
    told.nothing().await;
    service.let_go("/latest/meta-data/spot/instance-action");
    let (kind, gone) = told.next().await?;
    assert_eq!((kind, gone.detail), (Kind::Withdrawn, end.detail));
    assert_eq!(told.next().await?.0, Kind::Rebalance, "which still stands");
    Ok(())
}

#[tokio::test]
async fn aws_tells_of_the_end_whatever_else_cannot_be_read() -> Result<()> {
    let (service, base) = StandIn::start("x-aws-ec2-metadata-token", "first").await?;
    service.hold("/latest/meta-data/events/recommendations/rebalance", "<html>");
    let mut told = Told::by(Cloud::Aws, base);
    told.nothing().await;
    service.hold("/latest/meta-data/spot/instance-action", r#"{"action": "stop", "time": "soon"}"#);
    let (kind, end) = told.next().await?;
    assert_eq!((kind, end.deadline, end.detail.as_str()), (Kind::Reclaim, None, "spot instance-action stop at soon"));
    service.hold("/latest/meta-data/spot/instance-action", r#"{"action": "stop", "time": "2026-11-22T00:02:00Z"}"#);
    let (kind, end) = told.next().await?;
    assert_eq!((kind, end.deadline.map(|at| at.seconds)), (Kind::Reclaim, Some(1_795_305_720)));
    Ok(())
}

#[tokio::test]
async fn gcp_tells_of_preemption_and_maintenance_by_held_back_answers() -> Result<()> {
    let (preempted, maintenance) = ("/computeMetadata/v1/instance/preempted", "/computeMetadata/v1/instance/maintenance-event");
    let (service, base) = StandIn::start("metadata-flavor", "Google").await?;
    service.hold(preempted, "FALSE");
    service.hold(maintenance, "NONE");
    let mut told = Told::by(Cloud::Gcp, base);
    assert_eq!(told.next().await?.0, Kind::Withdrawn, "whatever an earlier process told");
    told.nothing().await;
    service.hold(maintenance, "TERMINATE_ON_HOST_MAINTENANCE");
    assert_eq!(told.next().await?.0, Kind::Maintenance);
    service.hold(preempted, "TRUE");
    assert_eq!(told.next().await?.0, Kind::Reclaim);
    service.hold(maintenance, "NONE");
    assert_eq!(told.next().await?.0, Kind::Withdrawn);
    assert_eq!(told.next().await?.0, Kind::Reclaim, "which still stands");
    // Twice each at first, then once a change: the service is not polled.
    assert!(service.asked(preempted) <= 4, "{}", service.asked(preempted));
    Ok(())
}

#[tokio::test]
async fn azure_tells_of_this_machine_s_events() -> Result<()> {
    let (service, base) = StandIn::start("metadata", "true").await?;
    let events = "/metadata/scheduledevents";
    service.hold("/metadata/instance/compute/name", "gpu_0");
    service.hold(events, r#"{"DocumentIncarnation": 1, "Events": [{"EventId": "A", "EventType": "Preempt", "Resources": ["gpu_1"], "NotBefore": ""}]}"#);
    let mut told = Told::by(Cloud::Azure, base);
    assert_eq!(told.next().await?.0, Kind::Withdrawn, "whatever an earlier process told");
    told.nothing().await;
    service.hold(events, r#"{"Events": [{"EventId": "B", "EventType": "Preempt", "Resources": ["gpu_0"], "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}]}"#);
    let (kind, end) = told.next().await?;
    assert_eq!((kind, end.deadline.map(|at| at.seconds)), (Kind::Reclaim, Some(1_474_309_787)));
    // An answer that cannot be read takes nothing back.
    service.hold(events, "<html>");
    told.nothing().await;
    service.hold(events, r#"{"Events": []}"#);
    assert_eq!(told.next().await?.0, Kind::Withdrawn);
    Ok(())
}

#[tokio::test]
async fn an_absent_service_announces_nothing() -> Result<()> {
    // Bound and let go: nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    for cloud in [Cloud::Aws, Cloud::Gcp, Cloud::Azure] {
        Told::by(cloud, format!("http://{free}")).nothing().await;
    }
    Ok(())
}
