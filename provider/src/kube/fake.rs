//! An API server of a few lines, for tests that need to choose what it says and when.

use axum::body::Body as Answer;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(super) method: Method,
    pub(crate) path: String,
    query: String,
    /// The media type of the body: how a patch is meant.
    pub(super) media: String,
    pub(crate) body: Value,
}

impl Call {
    /// A parameter of the query.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub(super) fn is_watch(&self) -> bool {
        self.param("watch") == Some("true")
    }
}

/// A client of a server that answers as `serve` says.
pub(crate) fn client<F, R>(serve: F) -> Client
where
    F: Fn(Call) -> R + Clone + Send + 'static,
    R: Future<Output = Response<Answer>> + Send,
{
    let service = service_fn(move |request: Request<Body>| {
        let serve = serve.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect_bytes().await?).unwrap_or_default();
            let query = parts.uri.query().unwrap_or_default().to_owned();
            let media = parts
                .headers
                .get(http::header::CONTENT_TYPE)
                .and_then(|media| media.to_str().ok())
                .unwrap_or_default()
                .to_owned();
            Ok::<_, kube::Error>(
                serve(Call { method: parts.method, path: parts.uri.path().to_owned(), query, media, body }).await,
            )
        }
    });
    Client::new(service, "default")
}

/// An object.
pub(super) fn object(value: &Value) -> Response<Answer> {
    Response::new(Answer::from(value.to_string()))
}

/// A failure as the API server words it.
pub(super) fn failure(code: StatusCode, reason: &str) -> Response<Answer> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code.as_u16(),
    });
    let mut response = object(&status);
    *response.status_mut() = code;
    response
}

/// A page of a list.
pub(super) fn page(items: &[Value], next: Option<&str>) -> Response<Answer> {
    object(&json!({
        "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "100", "continue": next }, "items": items,
    }))
}

/// A watch that tells these events and then stays open.
pub(super) fn watch(events: Vec<Value>) -> Response<Answer> {
    let lines = stream::iter(events).map(|event| Ok::<_, std::io::Error>(format!("{event}\n")));
    Response::new(Answer::from_stream(lines.chain(stream::pending())))
}
