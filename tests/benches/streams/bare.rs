//! The least that probes' streams can cost: tonic and the same messages, each acknowledged and thrown away.

use anyhow::{Context as _, Result};
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use stoker_proto::probe::probe_server::{Probe, ProbeServer};
use stoker_proto::probe::{Ack, FromProbe, ToProbe, from_probe, to_probe};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

struct Bare;

/// Serves on a loopback port that it prints, until the process is killed.
pub(crate) async fn serve() -> Result<()> {
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).context("a loopback port")?.with_nodelay(Some(true));
    println!("{}", incoming.local_addr()?);
    Ok(Server::builder().add_service(ProbeServer::new(Bare)).serve_with_incoming(incoming).await?)
}

#[tonic::async_trait]
impl Probe for Bare {
    type WatchStream = BoxStream<'static, Result<ToProbe, Status>>;

    async fn watch(&self, request: Request<Streaming<FromProbe>>) -> Result<Response<Self::WatchStream>, Status> {
        let rounds = request.into_inner().map(|message| {
            let round = match message?.kind {
                Some(from_probe::Kind::Round(round)) => round.sequence,
                _ => 0,
            };
            Ok(ack(round))
        });
        Ok(Response::new(stream::once(async { Ok(ack(0)) }).chain(rounds).boxed()))
    }
}

fn ack(round: u64) -> ToProbe {
    ToProbe { kind: Some(to_probe::Kind::Ack(Ack { round, event: 0 })) }
}
