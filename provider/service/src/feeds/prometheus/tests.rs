//! What is made of Prometheus's answers, right ones and wrong ones.

#![expect(clippy::cast_precision_loss, reason = "seconds of a test")]

mod asking;
mod levels;
mod nodes;
mod rounds;
mod signals;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::post;
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{GpuUuid, NodeName};

use super::Connection;
use super::ask::{Asker, Row};
use super::dcgm::{FIELDS, Field, Level};

/// A moment, so many seconds after the tests' beginning.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// The same by Prometheus's clock, which is ten minutes ahead of ours: no age may come of that.
fn theirs(seconds: f64) -> f64 {
    1_800_000_600.0 + seconds
}

/// A series as Prometheus answers it, worked out at that second.
fn row(labels: &[(&str, &str)], worked_out: f64, value: &(impl ToString + ?Sized)) -> Row {
    let metric = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>();
    Row { metric, value: (theirs(worked_out), value.to_string()) }
}

fn gpu(number: u32) -> GpuUuid {
    GpuUuid::new(format!("GPU-{number}")).unwrap()
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn field(level: Level) -> &'static Field {
    FIELDS.iter().find(|field| field.level == level).unwrap()
}

/// What a Prometheus answers to a query, with which status.
type Answers = Arc<dyn Fn(&str) -> (u16, String) + Send + Sync>;

/// A server in Prometheus's place; it goes with the test's runtime.
struct Prometheus {
    addr: SocketAddr,
    /// The tokens that it was shown.
    tokens: Arc<Mutex<Vec<String>>>,
}

impl Prometheus {
    async fn start(answers: Answers) -> Self {
        let tokens: Arc<Mutex<Vec<String>>> = Arc::default();
        let shown = Arc::clone(&tokens);
        let answer = move |headers: HeaderMap, body: String| {
            let (answers, shown) = (Arc::clone(&answers), Arc::clone(&shown));
            async move {
                if let Some(token) = headers.get("authorization") {
                    shown.lock().unwrap().push(token.to_str().unwrap().to_owned());
                }
                let form: Uri = format!("/?{body}").parse().unwrap();
                let Query(form) = Query::<BTreeMap<String, String>>::try_from_uri(&form).unwrap();
                if form["query"] == "slow" {
                    tokio::time::sleep(Duration::from_mins(1)).await;
                }
                let (status, text) = answers(&form["query"]);
                (StatusCode::from_u16(status).unwrap(), text)
            }
        };
        let app = Router::new().route("/api/v1/query", post(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { addr, tokens }
    }

    fn connection(&self) -> Connection {
        Connection { url: format!("http://{}", self.addr), token_file: None, ca: None }
    }

    fn asker(&self) -> Asker {
        crate::listener::install_crypto();
        Asker::within(&self.connection(), Duration::from_millis(500)).unwrap()
    }
}

/// A right answer.
fn vector(rows: &[Row]) -> (u16, String) {
    let rows = rows.iter().map(|row| serde_json::json!({"metric": row.metric, "value": row.value})).collect::<Vec<_>>();
    let data = serde_json::json!({"resultType": "vector", "result": rows});
    (200, serde_json::json!({"status": "success", "data": data}).to_string())
}

const STALE: SignedDuration = SignedDuration::from_secs(90);
