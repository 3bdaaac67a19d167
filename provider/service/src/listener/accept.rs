//! A TCP listener whose connections have ended their TLS handshake when tonic sees them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::peer::{PeerInfo, identities};
use super::seldom::Seldom;
use super::tls::Tls;

/// How a listener protects its connections.
#[derive(Debug, Clone)]
pub enum Security {
    /// Not at all; see [`check_plaintext`].
    Plaintext,
    /// With these certificates, and with the client's where they name a client authority.
    Tls(Arc<Tls>),
}

/// Bounds on what a client may hold without having said anything useful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Handshakes at once. Beyond it the oldest one is dropped: an honest handshake takes milliseconds, so the oldest is an idler.
    pub handshakes: usize,
    /// How long a handshake may take, and how long until the first byte after it.
    pub handshake_timeout: Duration,
}

impl Default for Limits {
    /// 256 handshakes (a few MB) of 10 s, which a lossy link still makes.
    fn default() -> Self {
        Self { handshakes: 256, handshake_timeout: Duration::from_secs(10) }
    }
}

/// Plaintext was asked for where it could be overheard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{addr}: plaintext is served on loopback addresses only, since anyone who reaches this port can create and delete nodes: \
     give a certificate, key and client CA (`stoker certs` makes a set), listen on 127.0.0.1, or accept the risk with \
     --allow-plaintext"
)]
pub struct PlaintextRefused {
    /// The address asked for.
    pub addr: SocketAddr,
}

/// Whether `addr` may be served without TLS: on loopback, or where the operator says so.
pub fn check_plaintext(addr: SocketAddr, allow_insecure: bool) -> Result<(), PlaintextRefused> {
    if allow_insecure || addr.ip().to_canonical().is_loopback() { Ok(()) } else { Err(PlaintextRefused { addr }) }
}

/// Accepts connections. Nothing but dropping it ends it: what fails on the way is logged, counted and left behind.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    security: Security,
    limits: Limits,
    handshakes: JoinSet<Result<Conn, Failed>>,
    /// Those of `handshakes`, oldest first; may hold some that have ended.
    started: VecDeque<AbortHandle>,
    refused: Counter,
    warnings: Seldom,
}

#[derive(Debug)]
struct Failed {
    remote: SocketAddr,
    error: io::Error,
}

impl Listener {
    /// Listens on `addr`.
    pub async fn bind(addr: SocketAddr, security: Security) -> io::Result<Self> {
        Ok(Self::new(TcpListener::bind(addr).await?, security))
    }

    /// Accepts from a socket that listens already.
    pub fn new(tcp: TcpListener, security: Security) -> Self {
        Self {
            tcp,
            security,
            limits: Limits::default(),
            handshakes: JoinSet::new(),
            started: VecDeque::new(),
            refused: Counter::default(),
            warnings: Seldom::default(),
        }
    }

    /// With other limits than the default.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Counts failed handshakes there.
    #[must_use]
    pub fn count_refused(mut self, counter: Counter) -> Self {
        self.refused = counter;
        self
    }

    /// Where it listens; tells the port where 0 was asked for.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The connections, for tonic's `serve_with_incoming_shutdown`. Neither ends nor fails.
    pub fn incoming(self) -> impl Stream<Item = io::Result<Conn>> + Send {
        futures::stream::unfold(self, |mut listener| async move {
            let conn = listener.accept().await;
            Some((Ok(conn), listener))
        })
    }

    /// The next connection that is ready to serve. Cancel safe.
    pub async fn accept(&mut self) -> Conn {
        loop {
            tokio::select! {
                biased; // What has ended makes room for what comes.
                Some(ended) = self.handshakes.join_next() => match ended {
                    Ok(Ok(conn)) => return conn,
                    Ok(Err(failed)) => self.note(&failed),
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => tracing::error!(%error, "a handshake failed unexpectedly"),
                },
                accepted = self.tcp.accept() => match accepted {
                    Ok((tcp, remote)) => {
                        if let Some(conn) = self.begin(tcp, remote) {
                            return conn;
                        }
                    }
                    Err(error) => pause_after(&error).await,
                },
            }
        }
    }

    /// Serves a plaintext connection at once, and begins the handshake of another.
    fn begin(&mut self, tcp: TcpStream, remote: SocketAddr) -> Option<Conn> {
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%remote, %error, "TCP_NODELAY not set");
        }
        let timeout = self.limits.handshake_timeout;
        let Security::Tls(tls) = &self.security else {
            let peer = PeerInfo { connection: next_connection(), remote, identities: Vec::new(), plaintext: true };
            return Some(Conn::new(Io::Plain(tcp), peer, timeout));
        };
        self.started.retain(|handshake| !handshake.is_finished());
        while self.started.len() >= self.limits.handshakes.max(1) {
            let Some(oldest) = self.started.pop_front() else { break };
            oldest.abort();
            self.refused.inc();
        }
        let acceptor = TlsAcceptor::from(tls.config());
        self.started.push_back(self.handshakes.spawn(handshake(acceptor, tcp, remote, timeout)));
        None
    }

    /// Counts and logs a failure.
    fn note(&self, failed: &Failed) {
        let Failed { remote, error } = failed;
        if error.kind() == io::ErrorKind::UnexpectedEof {
            tracing::debug!(%remote, "connection closed before the handshake ended, as port checks do");
            return;
        }
        self.refused.inc();
        if let Some(unlogged) = self.warnings.unlogged() {
            tracing::warn!(%remote, %error, unlogged, "TLS handshake failed");
        }
    }
}

async fn handshake(acceptor: TlsAcceptor, tcp: TcpStream, remote: SocketAddr, timeout: Duration) -> Result<Conn, Failed> {
    let failed = |error| Failed { remote, error };
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("the handshake did not finish within {timeout:?}"));
    let tls = match tokio::time::timeout(timeout, acceptor.accept(tcp).into_fallible()).await {
        Ok(Ok(tls)) => tls,
        Ok(Err((error, tcp))) => {
            close_after_alert(tcp).await;
            return Err(failed(error));
        }
        Err(_) => return Err(failed(late())),
    };
    let certificate = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let identities = certificate.map(identities).unwrap_or_default();
    let peer = PeerInfo { connection: next_connection(), remote, identities, plaintext: false };
    Ok(Conn::new(Io::Tls(Box::new(tls)), peer, timeout))
}

/// Closes a connection whose handshake failed so that the client can read the alert. A close with unread bytes resets
/// the connection, and a reset discards the alert, which says what is wrong with the client's certificate.
async fn close_after_alert(mut tcp: TcpStream) {
    const AT_MOST: Duration = Duration::from_millis(500);
    let drained = async {
        tcp.shutdown().await?;
        let mut unread = [0_u8; 4096];
        while tcp.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether the client heard it cannot be known, and the failure is reported either way.
    let _ = tokio::time::timeout(AT_MOST, drained).await;
}

fn next_connection() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Waits where trying again at once would spin: out of file descriptors or memory.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections; retrying (if file descriptors are exhausted, raise the limit of open files)");
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// A connection that is ready to serve.
#[derive(Debug)]
pub struct Conn {
    io: Io,
    peer: PeerInfo,
    /// Ends the connection unless the first byte comes before. A client that means it sends its HTTP/2 preface at once.
    first_byte: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Conn {
    fn new(io: Io, peer: PeerInfo, timeout: Duration) -> Self {
        Self { io, peer, first_byte: Some(Box::pin(tokio::time::sleep(timeout))) }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &PeerInfo {
        &self.peer
    }
}

impl Connected for Conn {
    type ConnectInfo = PeerInfo;

    fn connect_info(&self) -> PeerInfo {
        self.peer.clone()
    }
}

/// Calls a poll method of whichever stream is inside.
macro_rules! inner {
    ($conn:expr, $io:ident => $call:expr) => {
        match &mut $conn.io {
            Io::Plain(tcp) => {
                let $io = Pin::new(tcp);
                $call
            }
            Io::Tls(tls) => {
                let $io = Pin::new(tls.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Conn {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = inner!(self, io => io.poll_read(cx, buf)) {
            self.first_byte = None;
            return Poll::Ready(read);
        }
        let Some(first_byte) = &mut self.first_byte else { return Poll::Pending };
        ready!(first_byte.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sent nothing")))
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        inner!(self, io => io.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self, io => io.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(tcp) => tcp.is_write_vectored(),
            Io::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, io => io.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, io => io.poll_shutdown(cx))
    }
}
