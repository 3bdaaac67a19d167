//! Calls and answers, and a client without a network between.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::Query;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode, Uri};
use kube::Client;
use serde_json::{Value, json};
use tower::service_fn;

/// What the server answers.
pub type Answer = Response<Body>;

/// A request.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: String,
    /// The media type of the body: how a patch is meant.
    pub media: String,
    /// Its body; null where there is none.
    pub body: Value,
    query: BTreeMap<String, String>,
}

impl Call {
    /// Reads a request.
    pub(crate) fn of(parts: &http::request::Parts, body: &[u8]) -> Self {
        let media = parts.headers.get(http::header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        Self {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            media: media.unwrap_or_default().to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
            query: query(&parts.uri),
        }
    }

    /// Whether it only asks what would be.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.param("dryRun").is_some() || self.body["dryRun"].is_array()
    }

    /// A parameter of the query.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// Whether it asks for what changes rather than for what is.
    pub fn is_watch(&self) -> bool {
        self.param("watch") == Some("true")
    }
}

fn query(uri: &Uri) -> BTreeMap<String, String> {
    Query::try_from_uri(uri).map(|Query(query)| query).unwrap_or_default()
}

/// A client of a server that answers as `serve` says.
pub fn client<F, R>(serve: F) -> Client
where
    F: Fn(Call) -> R + Clone + Send + 'static,
    R: Future<Output = Answer> + Send,
{
    let service = service_fn(move |request: Request<kube::client::Body>| {
        let serve = serve.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            Ok::<_, kube::Error>(serve(Call::of(&parts, &body)).await)
        }
    });
    Client::new(service, "default")
}

/// An object, or whatever else is JSON.
pub fn object(value: &Value) -> Answer {
    text(value.to_string())
}

pub(crate) fn text(json: String) -> Answer {
    let mut answer = Response::new(Body::from(json));
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

/// A failure as the API server words it.
pub fn failure(code: StatusCode, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code.as_u16(),
    });
    let mut answer = object(&status);
    *answer.status_mut() = code;
    answer
}

/// A page of a list.
pub fn page(items: &[Value], next: Option<&str>) -> Answer {
    object(&json!({
        "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "100", "continue": next }, "items": items,
    }))
}

/// A watch that tells these events and then stays open.
pub fn watch(events: Vec<Value>) -> Answer {
    let lines = stream::iter(events).map(|event| Ok::<_, std::io::Error>(format!("{event}\n")));
    Response::new(Body::from_stream(lines.chain(stream::pending())))
}
