//! Stands between an autoscaler and Stoker, passes every call on as it is, and writes down which were made.
//!
//! # Caveats
//! Stoker sees one connection for as long as the recorder stands, so that a restarted autoscaler is not told from the one before it.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context as _;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use prost::{DecodeError, Message};
use stoker_proto::Bytes;
use stoker_proto::expander::BestOptionsRequest;
use stoker_proto::externalgrpc as wire;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::server::UnaryService;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};

use crate::raw::Raw;
use crate::transcript::Seen;

/// What either side accepts of the other: as much as the autoscaler's expander client does.
const LARGEST: usize = 128 << 20;

/// The calls so far. It records until it is dropped.
pub struct Recorder {
    calls: Calls,
    doors: JoinSet<()>,
}

type Calls = Arc<Mutex<Vec<Seen>>>;

impl Recorder {
    /// Listens at two ports with the server's certificate of `certs`, and passes on with the client's to two others: those of the
    /// provider and of the expander.
    ///
    /// # Errors
    /// When a certificate or a port cannot be used.
    pub async fn start(certs: &Path, front: [u16; 2], behind: [u16; 2]) -> anyhow::Result<Self> {
        let read = |name: &str| std::fs::read(certs.join(name)).with_context(|| format!("certificate {name}"));
        let ca = Certificate::from_pem(read("ca.crt")?);
        let client = Identity::from_pem(read("client.crt")?, read("client.key")?);
        let server = ServerTlsConfig::new().identity(Identity::from_pem(read("server.crt")?, read("server.key")?));
        let authority = ClientTlsConfig::new().ca_certificate(ca.clone());
        let sides = [(server.clone().client_ca_root(ca), authority.clone().identity(client)), (server, authority)];
        let (calls, begun, mut doors) = (Calls::default(), Instant::now(), JoinSet::new());
        for (((server, client), port), to) in sides.into_iter().zip(front).zip(behind) {
            let channel = Endpoint::from_shared(format!("https://localhost:{to}"))?.tls_config(client)?.connect_lazy();
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            let calls = Arc::clone(&calls);
            let serve = move |request: http::Request<axum::body::Body>| {
                let path = request.uri().path().to_owned();
                let forward = Forward { path, channel: channel.clone(), calls: Arc::clone(&calls), begun };
                async move {
                    let mut grpc = tonic::server::Grpc::new(Raw).max_decoding_message_size(LARGEST);
                    grpc.unary(forward, request).await
                }
            };
            let routes = Routes::from(axum::Router::new().fallback(serve));
            let server = Server::builder().tls_config(server)?.add_routes(routes);
            doors.spawn(async move {
                if let Err(error) = server.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await {
                    eprintln!("the recorder ended: {error}");
                }
            });
        }
        Ok(Self { calls, doors })
    }

    /// Ends it; what it saw.
    pub fn finish(mut self) -> Vec<Seen> {
        self.doors.abort_all();
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One call, passed on.
struct Forward {
    path: String,
    channel: Channel,
    calls: Calls,
    begun: Instant,
}

impl UnaryService<Bytes> for Forward {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let method = self.path.rsplit('/').next().unwrap_or_default().to_owned();
        let argument = argument(&method, request.get_ref().clone()).unwrap_or_else(|error| error.to_string());
        let calls = Arc::clone(&self.calls);
        // In the order in which they came, not in which they were answered.
        let place = {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push(Seen { at: self.begun.elapsed(), method, argument, code: Code::Ok });
            calls.len() - 1
        };
        let mut grpc = tonic::client::Grpc::new(self.channel.clone())
            .max_decoding_message_size(LARGEST)
            .max_encoding_message_size(LARGEST);
        let path = PathAndQuery::try_from(self.path.as_str());
        Box::pin(async move {
            let path = path.map_err(|error| Status::invalid_argument(error.to_string()))?;
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let answer = grpc.unary(Request::new(request.into_inner()), path, Raw).await;
            let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
            if let Some(call) = calls.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place) {
                call.code = code;
            }
            answer.map(|answer| Response::new(answer.into_inner()))
        })
    }
}

/// What tells a call from others of its method.
fn argument(method: &str, message: Bytes) -> Result<String, DecodeError> {
    Ok(match method {
        "NodeGroupForNode" => wire::NodeGroupForNodeRequest::decode(message)?.node.map(|node| node.name).unwrap_or_default(),
        "NodeGroupTargetSize" => wire::NodeGroupTargetSizeRequest::decode(message)?.id,
        "NodeGroupNodes" => wire::NodeGroupNodesRequest::decode(message)?.id,
        "NodeGroupTemplateNodeInfo" => wire::NodeGroupTemplateNodeInfoRequest::decode(message)?.id,
        "NodeGroupGetOptions" => wire::NodeGroupAutoscalingOptionsRequest::decode(message)?.id,
        "NodeGroupIncreaseSize" => {
            let wire::NodeGroupIncreaseSizeRequest { delta, id } = Message::decode(message)?;
            format!("{id} {delta:+}")
        }
        "NodeGroupDecreaseTargetSize" => {
            let wire::NodeGroupDecreaseTargetSizeRequest { delta, id } = Message::decode(message)?;
            format!("{id} {delta:+}")
        }
        "NodeGroupDeleteNodes" => {
            let wire::NodeGroupDeleteNodesRequest { nodes, id } = Message::decode(message)?;
            let nodes: Vec<String> = nodes.into_iter().map(|node| node.provider_id).collect();
            format!("{id} {}", nodes.join(","))
        }
        "BestOptions" => {
            let options = BestOptionsRequest::decode(message)?.options;
            options.into_iter().map(|option| option.node_group_id).collect::<Vec<_>>().join(",")
        }
        _ => String::new(),
    })
}
