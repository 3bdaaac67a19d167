//! A span and a measurement for each call, whether it is answered or abandoned.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Instrument as _, Span, field};

use super::labels::{Method, RpcCode};
use super::metrics::Metrics;
use crate::listener::{PeerInfo, Seldom};

/// Wraps each call of a tonic server in a span `rpc{method, connection}` (of level debug where the call only reads), and counts and times
/// it when it ends.
///
/// A call ends when its last byte was handed to the connection. One that is dropped before (the client went away, its deadline
/// passed) counts as `cancelled`, whatever its handler had found.
#[derive(Debug, Clone)]
pub struct RpcLayer {
    metrics: Metrics,
    warnings: Arc<Warnings>,
}

/// What clients can fill the log with.
#[derive(Debug, Default)]
struct Warnings {
    failed: Seldom,
    refused: Seldom,
}

impl RpcLayer {
    /// Counts into `metrics`.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, warnings: Arc::default() }
    }
}

impl<S> Layer<S> for RpcLayer {
    type Service = RpcService<S>;

    fn layer(&self, inner: S) -> RpcService<S> {
        RpcService { inner, metrics: self.metrics.clone(), warnings: Arc::clone(&self.warnings) }
    }
}

/// What [`RpcLayer`] makes of a service.
#[derive(Debug, Clone)]
pub struct RpcService<S> {
    inner: S,
    metrics: Metrics,
    warnings: Arc<Warnings>,
}

impl<S, B> Service<Request<B>> for RpcService<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = Method::of_path(request.uri().path());
        let connection = request.extensions().get::<PeerInfo>().map(|peer| peer.connection);
        let span = span(method, connection);
        let (metrics, warnings) = (self.metrics.clone(), Arc::clone(&self.warnings));
        let call = Call { metrics, warnings, method, span: span.clone(), begun: Instant::now(), ended: false };
        let answer = span.in_scope(|| self.inner.call(request));
        Box::pin(
            async move {
                let mut call = call;
                match answer.await {
                    Ok(response) => Ok(call.answer(response)),
                    Err(error) => {
                        call.end(RpcCode::Internal, "the service failed");
                        Err(error)
                    }
                }
            }
            .instrument(span),
        )
    }
}

/// The span of a call. Reads come by the thousand and say nothing unless they fail, so theirs is made only where details are asked for:
/// making it would be a tenth of the call.
fn span(method: Method, connection: Option<u64>) -> Span {
    let name = method.as_str();
    if method.is_read() {
        tracing::debug_span!("rpc", method = name, connection, code = field::Empty, latency_us = field::Empty)
    } else {
        tracing::info_span!("rpc", method = name, connection, code = field::Empty, latency_us = field::Empty)
    }
}

/// Whether a request could not be read. tonic answers such a call with `INTERNAL`, as gRPC's list of codes has it, but
/// the fault is the client's: to count it as Stoker's would let a client raise the alert on failed calls.
fn is_malformed(code: RpcCode, status: &str) -> bool {
    const BY_PROST: &str = "failed to decode Protobuf message: ";
    const BY_TONIC: [&str; 2] = ["protocol error: ", "Unexpected EOF decoding stream."];
    code == RpcCode::Internal && (status.starts_with(BY_PROST) || BY_TONIC.iter().any(|begin| status.starts_with(begin)))
}

/// A call under way. Dropped before its end, it was abandoned.
struct Call {
    metrics: Metrics,
    warnings: Arc<Warnings>,
    method: Method,
    span: Span,
    begun: Instant,
    ended: bool,
}

impl Call {
    /// Follows the answer to its end. One without a body has its status in the headers.
    fn answer(mut self, response: Response<Body>) -> Response<Body> {
        if self.end_with(response.headers()) {
            return response;
        }
        response.map(|inner| Body::new(Followed { inner, call: self }))
    }

    /// Ends the call if these headers or trailers have its status.
    fn end_with(&mut self, headers: &HeaderMap) -> bool {
        let Some(status) = Status::from_header_map(headers) else { return false };
        self.end(status.code().into(), status.message());
        true
    }

    fn end(&mut self, code: RpcCode, status: &str) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let took = self.begun.elapsed();
        let code = if is_malformed(code, status) { RpcCode::InvalidArgument } else { code };
        self.metrics.rpc(self.method, code, took);
        let latency_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.span.record("code", code.as_str()).record("latency_us", latency_us);
        let _entered = self.span.enter();
        match code {
            RpcCode::Internal | RpcCode::Unknown | RpcCode::DataLoss => {
                if let Some(unlogged) = self.warnings.failed.unlogged() {
                    tracing::error!(call = self.method.as_str(), status, unlogged, "call failed");
                }
            }
            RpcCode::PermissionDenied | RpcCode::Unauthenticated => {
                if let Some(unlogged) = self.warnings.refused.unlogged() {
                    tracing::warn!(call = self.method.as_str(), status, unlogged, "call refused");
                }
            }
            _ => tracing::debug!(status, "call ended"),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(RpcCode::Cancelled, "abandoned by the client");
    }
}

/// A body that tells its call when it ends.
struct Followed {
    inner: Body,
    call: Call,
}

impl http_body::Body for Followed {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.call.end_with(trailers);
                }
            }
            Some(Err(status)) => self.call.end(status.code().into(), status.message()),
            None => self.call.end(Code::Unknown.into(), "the answer ended without a status"),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
