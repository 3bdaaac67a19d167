//! Hostile clients on every door: slow, huge, many, malformed and with the wrong identity. Each comes from an address of its own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::stream;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use stoker_proto::Bytes;
use stoker_proto::externalgrpc::RefreshRequest;
use stoker_proto::externalgrpc::cloud_provider_client::CloudProviderClient;
use stoker_tests::raw::Raw;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::doors::{As, Doors};

/// Larger than any door but the expander's takes. That has to read all of it before it finds a fault.
const HUGE: usize = 33 << 20;

/// How long one connection or call is held.
const HELD: Duration = Duration::from_secs(2);

/// Between two attempts of one kind.
const EVERY: Duration = Duration::from_millis(100);

const BEST_OPTIONS: &str = "/grpcplugin.Expander/BestOptions";
const WATCH: &str = "/stoker.probe.v1.Probe/Watch";

/// Attempts of each attack, and how many were answered as an honest call is.
type Counts = BTreeMap<&'static str, [usize; 2]>;

pub(crate) struct Hostile {
    counts: Arc<Mutex<Counts>>,
    attacks: JoinSet<()>,
    /// Threads of their own: what hostile clients compute must delay no honest one.
    runtime: Runtime,
}

impl Hostile {
    /// Attacks until it is ended.
    pub(crate) fn run(doors: &Doors) -> Result<Self> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let handle = runtime.handle().clone();
        let _entered = handle.enter();
        let mut hostile = Self { counts: Arc::default(), attacks: JoinSet::new(), runtime };
        let doors = doors.clone();
        let refresh =
            |channel: Channel| async move { CloudProviderClient::new(channel).refresh(RefreshRequest {}).await.map(drop) };
        for (what, who, last) in [("provider: other authority", As::Stranger, 2), ("provider: no certificate", As::Nobody, 3)] {
            let doors = doors.clone();
            hostile.attack(what, 1, move |_| {
                let channel = doors.channel(doors.provider, who, from(last));
                async move { refresh(channel.map_err(|error| Status::internal(error.to_string()))?).await }
            });
        }
        for (what, to, last) in [
            ("provider: noise", doors.provider, 4),
            ("expander: noise", doors.expander, 5),
            ("probes: noise", doors.probes, 6),
            ("side port: noise", doors.side, 7),
        ] {
            hostile.attack(what, 2, move |bytes| noise(to, last, bytes));
        }
        for (what, to, last, text) in [
            ("provider: many half handshakes", doors.provider, 8, "\u{16}\u{3}\u{1}"),
            ("expander: many half handshakes", doors.expander, 9, "\u{16}\u{3}\u{1}"),
            ("side port: many half requests", doors.side, 10, "GET /metr"),
        ] {
            hostile.attack(what, 20, move |_| half(to, last, text));
        }
        for (what, path, to, last, kind) in [
            ("expander: malformed", BEST_OPTIONS, doors.expander, 11, Kind::Malformed),
            ("expander: huge", BEST_OPTIONS, doors.expander, 12, Kind::Huge),
            ("expander: unfinished", BEST_OPTIONS, doors.expander, 13, Kind::Unfinished),
            ("probes: invented tokens", WATCH, doors.probes, 14, Kind::Malformed),
            ("probes: huge", WATCH, doors.probes, 15, Kind::Huge),
        ] {
            let channel = doors.channel(to, As::Nobody, from(last))?;
            let at_once = if matches!(kind, Kind::Huge) { 1 } else { 2 };
            hostile.attack(what, at_once, move |bytes| call(channel.clone(), path, kind, bytes));
        }
        Ok(hostile)
    }

    /// Ends all attacks; what each tried and came to.
    pub(crate) async fn end(mut self) -> Counts {
        self.attacks.shutdown().await;
        self.runtime.shutdown_background();
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tries that again and again, so many at once.
    fn attack<F>(&mut self, what: &'static str, at_once: usize, attempt: impl Fn(Bytes) -> F + Clone + Send + 'static)
    where
        F: Future<Output = Result<(), Status>> + Send,
    {
        for one in 0..at_once {
            let (counts, attempt) = (Arc::clone(&self.counts), attempt.clone());
            let work = async move {
                let mut rng = ChaCha8Rng::seed_from_u64(u64::try_from(one).unwrap_or_default());
                loop {
                    let mut bytes = vec![0; rng.random_range(200..2_000)];
                    rng.fill(bytes.as_mut_slice());
                    let answer = timeout(HELD, attempt(bytes.into())).await;
                    {
                        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                        let [tried, got_in] = counts.entry(what).or_default();
                        *tried += 1;
                        *got_in += usize::from(matches!(answer, Ok(Ok(()))));
                    }
                    sleep(EVERY).await;
                }
            };
            self.attacks.spawn_on(work, self.runtime.handle());
        }
    }
}

/// What is wrong with a call.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Its message is none, and its token was made up.
    Malformed,
    /// Its message is large and no message.
    Huge,
    /// Its message never comes.
    Unfinished,
}

fn from(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, last)
}

async fn connect(to: SocketAddr, last: u8) -> Result<TcpStream, Status> {
    let connect = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from(last), 0).into())?;
        socket.connect(to).await
    };
    connect.await.map_err(|error: std::io::Error| Status::unavailable(error.to_string()))
}

/// Random bytes.
async fn noise(to: SocketAddr, last: u8, bytes: Bytes) -> Result<(), Status> {
    let mut stream = connect(to, last).await?;
    stream.write_all(&bytes).await.map_err(|error| Status::unavailable(error.to_string()))?;
    sleep(EVERY).await;
    Err(Status::cancelled("noise is no call"))
}

/// The beginning of something, and then nothing.
async fn half(to: SocketAddr, last: u8, text: &str) -> Result<(), Status> {
    let mut stream = connect(to, last).await?;
    stream.write_all(text.as_bytes()).await.map_err(|error| Status::unavailable(error.to_string()))?;
    std::future::pending().await
}

/// Fields that nobody knows, of two bytes each, and at last what is no field.
fn huge() -> Bytes {
    let mut message = [0x78, 0x00].repeat(HUGE / 2);
    message.push(0);
    message.into()
}

/// One gRPC call that no client makes.
async fn call(channel: Channel, path: &'static str, kind: Kind, bytes: Bytes) -> Result<(), Status> {
    let mut client = Grpc::new(channel).max_encoding_message_size(usize::MAX);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static(path);
    if matches!(kind, Kind::Unfinished) {
        return client.client_streaming(Request::new(stream::pending()), path, Raw).await.map(drop);
    }
    let token: String = bytes.iter().take(60).map(|byte| char::from(b'a' + byte % 26)).collect();
    let message = if matches!(kind, Kind::Huge) { huge() } else { bytes };
    let mut request = Request::new(stream::iter([message]));
    if let Ok(value) = format!("Bearer {token}").parse() {
        request.metadata_mut().insert("authorization", value);
    }
    let answer = client.streaming(request, path, Raw).await;
    if matches!(kind, Kind::Huge) {
        sleep(HELD / 2).await;
    }
    let mut answer = answer?.into_inner();
    answer.message().await.map(drop)
}
