//! Calls of a gRPC service with bytes, by the service's own codec and without a network.

use std::convert::Infallible;
use std::net::SocketAddr;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use prost::Message;
use stoker_proto::Bytes;
use stoker_service::listener::PeerInfo;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service, ServiceExt as _};

/// What was answered: messages, and how the call ended.
pub(super) struct Answer {
    pub(super) messages: Vec<Bytes>,
    pub(super) status: Status,
}

impl Answer {
    /// The only message, where the call went well.
    pub(super) fn only<M: Message + Default>(&self) -> Option<M> {
        if self.status.code() != Code::Ok {
            return None;
        }
        assert_eq!(self.messages.len(), 1, "one answer to one request");
        Some(M::decode(self.messages[0].clone()).expect("an answer can be read"))
    }
}

/// Sends these messages to that method, and reads all that comes.
pub(super) async fn call<S>(service: S, path: &str, messages: &[&[u8]]) -> Answer
where
    S: Service<Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    let mut body = Vec::new();
    for message in messages {
        body.push(0);
        body.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend_from_slice(message);
    }
    let remote = SocketAddr::from(([127, 0, 0, 1], 1));
    let request = Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .extension(PeerInfo::in_process(remote))
        .body(Body::new(Full::new(Bytes::from(body))))
        .expect("a request");
    let Ok(response) = service.oneshot(request).await;
    let in_headers = Status::from_header_map(response.headers());
    let collected = response.into_body().collect().await.expect("a body");
    let in_trailers = collected.trailers().and_then(Status::from_header_map);
    let status = in_headers.or(in_trailers).expect("how the call ended");
    // So tonic's own codec refuses what is no protobuf.
    let refused = status.message().starts_with("failed to decode Protobuf message");
    assert!(!matches!(status.code(), Code::Unknown | Code::Internal) || refused, "{status:?}");
    let bytes = collected.to_bytes();
    let mut rest = bytes.clone();
    let mut messages = Vec::new();
    while rest.len() >= 5 {
        let head = rest.split_to(5);
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        messages.push(rest.split_to(length as usize));
    }
    Answer { messages, status }
}
