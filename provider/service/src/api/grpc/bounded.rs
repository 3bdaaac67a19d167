//! The expander's service with a codec that counts before it decodes.
//!
//! Anybody who reaches the expander's port may call it, and a message can be much smaller than what
//! it becomes: 64 MiB of empty options, two bytes each, would take 3.5 GB. So a message is read
//! through once, without storing anything, before it is decoded.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use stoker_proto::codec::fields;
use stoker_proto::expander::expander_server::{Expander as _, SERVICE_NAME};
use stoker_proto::expander::{BestOptionsRequest, BestOptionsResponse};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tower::Service;

use super::counting::{Counted, Counting};
use super::expander::Expander;

const BEST_OPTIONS: &str = "/grpcplugin.Expander/BestOptions";

/// Most options: twenty times the groups that one autoscaler was built for.
const MAX_OPTIONS: usize = 10_000;
/// Most templates, of both generations together.
const MAX_TEMPLATES: usize = 2 * MAX_OPTIONS;
/// Most pods, over all options. A real pod takes half a kilobyte, so a message of 64 MiB has half
/// of it.
const MAX_PODS: usize = 250_000;

/// The expander as a service of a tonic server.
#[derive(Debug, Clone)]
pub struct Bounded {
    expander: Arc<Expander>,
    largest: usize,
}

impl Bounded {
    /// Refuses messages of more than `largest` bytes, or with more parts than make sense.
    pub fn new(expander: Expander, largest: usize) -> Self {
        Self { expander: Arc::new(expander), largest }
    }
}

impl NamedService for Bounded {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for Bounded {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (method, largest) = (BestOptions(Arc::clone(&self.expander)), self.largest);
        Box::pin(async move {
            if request.uri().path() != BEST_OPTIONS {
                return Ok(Status::unimplemented("the expander serves BestOptions only").into_http());
            }
            Ok(Grpc::new(Counting::default()).max_decoding_message_size(largest).unary(method, request).await)
        })
    }
}

struct BestOptions(Arc<Expander>);

impl UnaryService<BestOptionsRequest> for BestOptions {
    type Response = BestOptionsResponse;
    type Future = BoxFuture<'static, Result<Response<BestOptionsResponse>, Status>>;

    fn call(&mut self, request: Request<BestOptionsRequest>) -> Self::Future {
        let expander = Arc::clone(&self.0);
        Box::pin(async move { expander.best_options(request).await })
    }
}

impl Counted for BestOptionsRequest {
    fn check(message: &[u8]) -> Result<(), Status> {
        Parts::count(message).ok_or_else(|| Self::bad("the message is not valid protobuf"))?.check()
    }

    fn bad(why: &str) -> Status {
        Status::invalid_argument(format!("BestOptions: {why}; send a grpcplugin.BestOptionsRequest"))
    }
}

/// How many parts of a message become things of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Parts {
    options: usize,
    templates: usize,
    pods: usize,
}

impl Parts {
    /// Counts; `None` for what is no protobuf.
    fn count(message: &[u8]) -> Option<Self> {
        let mut parts = Self::default();
        for field in fields(message) {
            match field? {
                (1, Some(option)) => {
                    parts.options += 1;
                    for field in fields(option) {
                        parts.pods += usize::from(matches!(field?, (4 | 5, _)));
                    }
                }
                (2 | 3, _) => parts.templates += 1,
                _ => {}
            }
        }
        Some(parts)
    }

    fn check(self) -> Result<(), Status> {
        for (what, count, most) in [
            ("options", self.options, MAX_OPTIONS),
            ("templates", self.templates, MAX_TEMPLATES),
            ("pods", self.pods, MAX_PODS),
        ] {
            if count > most {
                let message = format!("BestOptions: {count} {what}, more than {most}; ask with fewer");
                return Err(Status::resource_exhausted(message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use stoker_proto::Bytes;
    use stoker_proto::expander::ExpanderOption;

    use super::*;

    fn counted(request: &BestOptionsRequest) -> Parts {
        Parts::count(&request.encode_to_vec()).unwrap()
    }

    #[test]
    fn parts_are_counted_as_they_would_be_decoded() {
        let pods = |n| vec![Bytes::from_static(b"\x0a\x00"); n];
        let option = |older, newer| ExpanderOption {
            node_group_id: "g".into(),
            node_count: 300,
            debug: "d".into(),
            pod: pods(older),
            pod_bytes: pods(newer),
        };
        let template = |id: &str| (id.to_owned(), Bytes::from_static(b"node"));
        let request = BestOptionsRequest {
            options: vec![option(2, 3), option(0, 0), ExpanderOption::default()],
            node_map: [template("a")].into(),
            node_bytes_map: [template("a"), template("b")].into(),
        };
        assert_eq!(counted(&request), Parts { options: 3, templates: 3, pods: 5 });
        assert_eq!(counted(&BestOptionsRequest::default()), Parts::default());
        // Fields that a later release may add are no parts: one of each wire type.
        let later = b"\x78\xff\x01\x79\x01\x02\x03\x04\x05\x06\x07\x08\x7a\x01x\x7d\x01\x02\x03\x04\x0a\x00";
        assert_eq!(Parts::count(later), Some(Parts { options: 1, ..Parts::default() }));
        assert_eq!(BestOptionsRequest::decode(&later[..]).unwrap().options.len(), 1);
    }

    #[test]
    fn what_is_cut_short_is_no_protobuf() {
        let whole =
            BestOptionsRequest { options: vec![ExpanderOption { node_count: 1, ..Default::default() }], ..Default::default() };
        let whole = whole.encode_to_vec();
        for end in 1..whole.len() {
            assert_eq!(Parts::count(&whole[..end]), None, "{end}");
        }
        let overlong: &[u8] = &[0xff; 11];
        for broken in [b"\x0a\x7f", b"\x0b\x0c", overlong, b"\x0a\x02\x0a\x09"] {
            assert_eq!(Parts::count(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn more_than_makes_sense_is_refused_before_it_is_decoded() {
        let at = |options, templates, pods| Parts { options, templates, pods }.check().map_err(|refused| refused.code());
        assert_eq!(at(MAX_OPTIONS, MAX_TEMPLATES, MAX_PODS), Ok(()));
        for over in [at(MAX_OPTIONS + 1, 0, 0), at(0, MAX_TEMPLATES + 1, 0), at(0, 0, MAX_PODS + 1)] {
            assert_eq!(over, Err(tonic::Code::ResourceExhausted));
        }
    }
}
