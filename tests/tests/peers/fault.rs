//! Peers that misbehave: a supplier, and clients. Before a server stands a [`Proxy`](stoker_tests::proxy::Proxy).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{LaunchKey, ProviderId, SupplierName};
use stoker_core::facts::supply::{LaunchOutcome, MarketFacts, Observation};
use stoker_service::suppliers::{Launch, Supplier, SupplierError};
use stoker_simulated::supplier::Simulated;
use stoker_tests::proxy::{Fault, SECOND, garbage};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

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

    fn launch(&self, now: Timestamp, batch: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        async move {
            let unclear = |launch: &Launch| (launch.request.key.clone(), LaunchOutcome::unclear("it talks garbage"));
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
                return Ok(Observation { complete: false, ..Observation::complete(as_of, [].into()) });
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
