//! Peers that misbehave: a proxy before a server, a supplier, and clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{LaunchKey, ProviderId, SupplierName};
use stoker_core::facts::supply::{LaunchOutcome, LaunchRequest, MarketFacts, Observation};
use stoker_service::suppliers::{Supplier, SupplierError};
use stoker_simulated::supplier::Simulated;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What a peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// What it should.
    None,
    /// It answers nothing.
    Hangs,
    /// It says a byte a second.
    IsSlow,
    /// It says what makes no sense.
    TalksGarbage,
    /// It goes in the middle of what it says, now and then.
    Closes,
}

impl Fault {
    /// What hangs comes last: a call that hangs is given up late.
    pub(super) const ALL: [Self; 4] = [Self::IsSlow, Self::TalksGarbage, Self::Closes, Self::Hangs];
}

const SECOND: Duration = Duration::from_secs(1);

/// Bytes that no protocol has, the same in each run.
fn garbage(length: usize) -> Vec<u8> {
    static SEED: AtomicU32 = AtomicU32::new(0x9e37_79b9);
    let mut word = SEED.fetch_add(0x6d2b_79f5, Ordering::Relaxed) | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        word.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// Stands before a server, whose answers it spoils.
pub(super) struct Proxy {
    pub(super) addr: SocketAddr,
    pub(super) fault: watch::Sender<Fault>,
    _serving: JoinSet<()>,
}

impl Proxy {
    pub(super) async fn before(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (addr, fault) = (listener.local_addr()?, watch::Sender::new(Fault::None));
        let (follow, mut serving) = (fault.subscribe(), JoinSet::new());
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let fault = follow.clone();
                open.spawn(async move {
                    if let Ok(far) = TcpStream::connect(server).await {
                        carry(near, far, fault).await;
                    }
                });
            }
        });
        Ok(Self { addr, fault, _serving: serving })
    }
}

/// Carries what both say until one of them ends; the answers as the fault says.
async fn carry(near: TcpStream, far: TcpStream, mut fault: watch::Receiver<Fault>) {
    let ((mut near_read, mut near_write), (mut far_read, mut far_write)) = (near.into_split(), far.into_split());
    let answers = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = far_read.read(&mut buffer).await?;
            let Some(answer) = buffer.get(..read).filter(|answer| !answer.is_empty()) else { return Ok(()) };
            let now = *fault.borrow_and_update();
            match now {
                Fault::None => near_write.write_all(answer).await?,
                Fault::Hangs => {
                    let _ = fault.changed().await;
                    near_write.write_all(answer).await?;
                }
                Fault::IsSlow => {
                    let (mut rest, mut changes) = (answer, fault.clone());
                    while let Some((byte, after)) = rest.split_first() {
                        near_write.write_all(&[*byte]).await?;
                        rest = after;
                        tokio::select! { () = sleep(SECOND) => {}, _ = changes.changed() => break }
                    }
                    near_write.write_all(rest).await?;
                }
                Fault::TalksGarbage => near_write.write_all(&garbage(read)).await?,
                Fault::Closes => {
                    near_write.write_all(answer.get(..read / 2).unwrap_or_default()).await?;
                    return Ok::<_, std::io::Error>(());
                }
            }
        }
    };
    tokio::select! {
        _ = answers => {}
        _ = tokio::io::copy(&mut near_read, &mut far_write) => {}
    }
}

/// A supplier that does what it is told to.
pub(super) struct Faulty {
    pub(super) supplier: Arc<Simulated>,
    pub(super) fault: watch::Sender<Fault>,
    calls: AtomicUsize,
}

impl Faulty {
    pub(super) fn new(supplier: Simulated) -> Self {
        Self { supplier: Arc::new(supplier), fault: watch::Sender::new(Fault::None), calls: AtomicUsize::new(0) }
    }

    /// An answer where it behaves or is slow; an error where it goes away, each other time.
    async fn spoil<T>(&self, answer: BoxFuture<'_, T>) -> Result<T, SupplierError> {
        let fault = *self.fault.borrow();
        let goes = self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        match fault {
            Fault::Hangs => std::future::pending().await,
            Fault::IsSlow => sleep(SECOND).await,
            Fault::TalksGarbage => return Err(self.error("<html>502 Bad Gateway</html>")),
            Fault::Closes if goes => return Err(self.error("connection reset by peer")),
            Fault::None | Fault::Closes => {}
        }
        Ok(answer.await)
    }

    fn error(&self, message: &str) -> SupplierError {
        SupplierError { supplier: self.supplier.name().clone(), message: message.to_owned() }
    }
}

impl Supplier for Faulty {
    fn name(&self) -> &SupplierName {
        self.supplier.name()
    }

    fn max_in_flight(&self) -> usize {
        self.supplier.max_in_flight()
    }

    fn launch(&self, now: Timestamp, batch: Vec<LaunchRequest>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        async move {
            let unclear = |request: &LaunchRequest| {
                (request.key.clone(), LaunchOutcome::Unclear { message: "it talks garbage".to_owned() })
            };
            let failed = batch.iter().map(unclear).collect();
            self.spoil(self.supplier.launch(now, batch)).await.unwrap_or(failed)
        }
        .boxed()
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        async move {
            if *self.fault.borrow() == Fault::TalksGarbage {
                // Of a time to come, and without any machine.
                let as_of = now + SignedDuration::from_hours(24 * 365);
                return Ok(Observation { as_of, complete: false, instances: [].into() });
            }
            self.spoil(self.supplier.observe(now)).await?
        }
        .boxed()
    }

    fn terminate(&self, now: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        async move { self.spoil(self.supplier.terminate(now, ids)).await.unwrap_or_default() }.boxed()
    }

    fn market_facts(&self, wall: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        async move { self.spoil(self.supplier.market_facts(wall)).await? }.boxed()
    }
}

/// Connections of one who misbehaves at a time.
const CONNECTIONS: usize = 20;

/// What an HTTP/2 connection begins with, and an HTTP/1.1 request that has no end.
const BEGUN: [&[u8]; 2] =
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", b"GET /metrics HTTP/1.1\r\nHost: stoker\r\nX-Long: "];

/// Clients of that listener that misbehave until this is dropped. They have an address of their own, as other machines have.
pub(super) fn misbehave(server: SocketAddr, fault: Fault) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for number in 0..CONNECTIONS {
        clients.spawn(async move {
            loop {
                // What becomes of its connections is nothing to it.
                let _ = connection(server, fault, number).await;
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    clients
}

async fn connection(server: SocketAddr, fault: Fault, number: usize) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 2], 0).into())?;
    let mut stream = socket.connect(server).await?;
    let begun = BEGUN[number % BEGUN.len()];
    match fault {
        Fault::None => {}
        Fault::Hangs => {
            let half = if number < CONNECTIONS / 2 { begun } else { &[] };
            stream.write_all(half).await?;
            std::future::pending::<()>().await;
        }
        Fault::IsSlow => {
            for byte in begun.iter().cycle() {
                stream.write_all(&[*byte]).await?;
                sleep(SECOND).await;
            }
        }
        Fault::TalksGarbage => {
            for _ in 0..64 {
                stream.write_all(&garbage(4 << 10)).await?;
            }
        }
        Fault::Closes => stream.write_all(begun.get(..number).unwrap_or(begun)).await?,
    }
    Ok(())
}
