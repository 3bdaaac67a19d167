//! A TCP listener whose connections have ended their TLS handshake when tonic sees them.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::connections::{Connections, Limits, Registration};
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
    connections: Arc<Connections>,
    handshakes: JoinSet<Result<Conn, Failed>>,
    refused: Counter,
    /// Connections refused or closed because there were too many.
    crowded: Counter,
    warnings: Seldom,
    crowd_warnings: Seldom,
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
        let listener = Self {
            tcp,
            security,
            connections: Arc::new(Connections::new(Limits::default())),
            handshakes: JoinSet::new(),
            refused: Counter::default(),
            crowded: Counter::default(),
            warnings: Seldom::default(),
            crowd_warnings: Seldom::default(),
        };
        listener.checked()
    }

    /// With other limits than the default.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.connections = Arc::new(Connections::new(limits));
        self.checked()
    }

    /// Has standing connections closed when their certificates turn bad.
    fn checked(self) -> Self {
        if let Security::Tls(tls) = &self.security {
            tls.check_connections(&self.connections);
        }
        self
    }

    /// Counts failed handshakes there.
    #[must_use]
    pub fn count_refused(mut self, counter: Counter) -> Self {
        self.refused = counter;
        self
    }

    /// Counts connections there that were refused or closed because there were too many.
    #[must_use]
    pub fn count_crowded(mut self, counter: Counter) -> Self {
        self.crowded = counter;
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
        let registration = match self.connections.register(remote) {
            Ok((registration, 0)) => registration,
            Ok((registration, closed)) => {
                self.crowd(closed, remote, &"older connections were closed for this one");
                registration
            }
            Err(full) => {
                self.crowd(1, remote, &full);
                return None;
            }
        };
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%remote, %error, "TCP_NODELAY not set");
        }
        let Security::Tls(tls) = &self.security else {
            registration.established(&[]);
            return Some(Conn::new(Io::Plain(tcp), remote, Vec::new(), registration));
        };
        let acceptor = TlsAcceptor::from(tls.config());
        self.handshakes.spawn(handshake(acceptor, tcp, remote, registration));
        None
    }

    /// Counts and logs connections that were too many.
    fn crowd(&self, count: usize, remote: SocketAddr, why: &dyn std::fmt::Display) {
        self.crowded.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        if let Some(unlogged) = self.crowd_warnings.unlogged() {
            tracing::warn!(%remote, unlogged, "too many connections: {why}");
        }
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

async fn handshake(
    acceptor: TlsAcceptor,
    tcp: TcpStream,
    remote: SocketAddr,
    registration: Registration,
) -> Result<Conn, Failed> {
    let failed = |error| Failed { remote, error };
    let timeout = registration.limits().handshake_timeout;
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("the handshake did not finish within {timeout:?}"));
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(timeout, acceptor.accept(tcp).into_fallible()) => accepted,
        () = poll_fn(|cx| registration.state.poll_close(cx)) => {
            return Err(failed(io::Error::new(io::ErrorKind::ConnectionAborted, "it had to make room for others")));
        }
    };
    let tls = match accepted {
        Ok(Ok(tls)) => tls,
        Ok(Err((error, tcp))) => {
            close_after_alert(tcp).await;
            return Err(failed(error));
        }
        Err(_) => return Err(failed(late())),
    };
    let chain = tls.get_ref().1.peer_certificates().unwrap_or_default();
    registration.established(chain);
    let identities = chain.first().map(identities).unwrap_or_default();
    Ok(Conn::new(Io::Tls(Box::new(tls)), remote, identities, registration))
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

/// Waits where trying again at once would spin: out of file descriptors or memory.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections; retrying (if file descriptors are exhausted, raise the limit of open files)");
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// A connection that is ready to serve. Reads and writes fail once it is to be closed.
#[derive(Debug)]
pub struct Conn {
    io: Io,
    peer: PeerInfo,
    /// Ends the connection unless the client's HTTP/2 preface comes before. One that means it sends
    /// it at once.
    preface: Option<Preface>,
    /// Ends the connection unless a request has proven before who calls.
    proof: Option<Pin<Box<Sleep>>>,
    registration: Registration,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What is awaited of a client's HTTP/2 preface. Pings watch over the connection from then on.
#[derive(Debug)]
struct Preface {
    missing: usize,
    timeout: Pin<Box<Sleep>>,
}

impl Preface {
    /// Its length, as RFC 9113 has it.
    const LENGTH: usize = 24;
}

impl Conn {
    fn new(io: Io, remote: SocketAddr, identities: Vec<String>, registration: Registration) -> Self {
        let limits = registration.limits();
        let sleep = |timeout| Box::pin(tokio::time::sleep(timeout));
        let preface = Preface { missing: Preface::LENGTH, timeout: sleep(limits.handshake_timeout) };
        let proof = limits.proof_timeout.map(sleep);
        let peer = PeerInfo {
            connection: registration.number,
            remote,
            since: Instant::now(),
            identities,
            plaintext: matches!(io, Io::Plain(_)),
            state: Arc::clone(&registration.state),
        };
        Self { io, peer, preface: Some(preface), proof, registration }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &PeerInfo {
        &self.peer
    }

    /// Fails once the connection is to be closed, or the client has kept it waiting.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let state = &self.registration.state;
        if state.poll_close(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection is closed by this side"));
        }
        if self.proof.is_some() && state.is_proven() {
            self.proof = None;
        }
        let silent = self.preface.as_mut().is_some_and(|preface| preface.timeout.as_mut().poll(cx).is_ready());
        let unproven = self.proof.as_mut().is_some_and(|proof| proof.as_mut().poll(cx).is_ready());
        let late = |what: &str| Err(io::Error::new(io::ErrorKind::TimedOut, format!("the client sent no {what} in time")));
        match (silent, unproven) {
            (true, _) => late("HTTP/2 preface"),
            (_, true) => late("proof of who it is"),
            (false, false) => Ok(()),
        }
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
        self.poll_open(cx)?;
        let before = buf.filled().len();
        let read = ready!(inner!(self, io => io.poll_read(cx, buf)));
        if let Some(preface) = &mut self.preface {
            preface.missing = preface.missing.saturating_sub(buf.filled().len() - before);
            if preface.missing == 0 {
                self.preface = None;
            }
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_open(cx)?;
        inner!(self, io => io.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_open(cx)?;
        inner!(self, io => io.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(tcp) => tcp.is_write_vectored(),
            Io::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_open(cx)?;
        inner!(self, io => io.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, io => io.poll_shutdown(cx))
    }
}
