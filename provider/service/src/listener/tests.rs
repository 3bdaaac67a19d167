mod faults;
mod reload;
mod standing;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::certs::write_tryout;

/// Far above what anything here takes, so that only a hang meets it.
const LONG: Duration = Duration::from_secs(30);

/// A directory with a try-out set whose client is called `client`.
fn set(client: &str) -> TempDir {
    install_crypto();
    let dir = TempDir::new().unwrap();
    write_tryout(dir.path(), &[], client).unwrap();
    dir
}

fn files(dir: &Path, clients: bool) -> TlsFiles {
    TlsFiles {
        cert: dir.join("server.crt"),
        key: dir.join("server.key"),
        client_ca: clients.then(|| dir.join("ca.crt")),
        denied_serials: None,
    }
}

/// A server of the health service, gone when dropped.
struct Served {
    addr: std::net::SocketAddr,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn listener(security: Security) -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), security).await.unwrap()
}

fn serve(listener: Listener, allowed: &[&str]) -> Served {
    let addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let allowed: Arc<[String]> = allowed.iter().map(|&name| name.to_owned()).collect();
    let health = tonic_health::pb::health_server::HealthServer::with_interceptor(
        tonic_health::server::HealthService::from_health_reporter(tonic_health::server::HealthReporter::new()),
        require_identity(allowed),
    );
    let stopped = stop.clone().cancelled_owned();
    let server = tonic::transport::Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming_shutdown(listener.incoming(), stopped));
    Served { addr, stop }
}

async fn serve_tls(dir: &Path, allowed: &[&str]) -> Served {
    serve(listener(Security::Tls(Tls::load(files(dir, true)).unwrap())).await, allowed)
}

/// Calls the health service, trusting the authority in `trust`, as the client in `identity`.
async fn check(served: &Served, trust: &Path, identity: Option<&Path>) -> Result<(), Status> {
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    let mut tls =
        ClientTlsConfig::new().domain_name("localhost").ca_certificate(Certificate::from_pem(read(trust.join("ca.crt"))));
    if let Some(dir) = identity {
        tls = tls.identity(Identity::from_pem(read(dir.join("client.crt")), read(dir.join("client.key"))));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", served.addr)).unwrap().tls_config(tls).unwrap();
    call(endpoint.connect_lazy()).await
}

async fn call(channel: Channel) -> Result<(), Status> {
    let request = HealthCheckRequest { service: String::new() };
    timeout(LONG, HealthClient::new(channel).check(request)).await.expect("an answer").map(drop)
}

/// A bare TLS client, for what tonic's does not show.
struct Bare {
    alpn: &'static [u8],
    versions: &'static [&'static rustls::SupportedProtocolVersion],
}

static TLS12_ONLY: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
static TLS13_ONLY: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

impl Default for Bare {
    fn default() -> Self {
        Self { alpn: b"h2", versions: rustls::ALL_VERSIONS }
    }
}

impl Bare {
    async fn connect(
        &self,
        addr: std::net::SocketAddr,
        dir: &Path,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(dir.join("ca.crt")).unwrap()).unwrap();
        let cert = CertificateDer::from_pem_file(dir.join("client.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(dir.join("client.key")).unwrap();
        let mut config = rustls::ClientConfig::builder_with_protocol_versions(self.versions)
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![cert], key)
            .unwrap();
        config.alpn_protocols = vec![self.alpn.to_vec()];
        let tcp = TcpStream::connect(addr).await?;
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), tcp).await
    }
}

/// The certificate that a connection made now is shown.
async fn shown(served: &Served, dir: &Path) -> CertificateDer<'static> {
    let stream = Bare::default().connect(served.addr, dir).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

fn on_disk(dir: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(dir.join("server.crt")).unwrap()
}

#[tokio::test]
async fn a_client_of_the_authority_with_an_allowed_name_may_call() {
    let dir = set("cluster-autoscaler");
    let served = serve_tls(dir.path(), &["somebody", "cluster-autoscaler"]).await;
    check(&served, dir.path(), Some(dir.path())).await.unwrap();
}

#[tokio::test]
async fn a_probe_may_not_call_whatever_is_allowed() {
    let dir = set("probe:node-a");
    let served = serve_tls(dir.path(), &["probe:node-a"]).await;
    assert_eq!(check(&served, dir.path(), Some(dir.path())).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_client_that_is_a_uri_may_be_allowed() {
    let dir = set("spiffe://prod/autoscaler");
    let served = serve_tls(dir.path(), &["spiffe://prod/autoscaler"]).await;
    check(&served, dir.path(), Some(dir.path())).await.unwrap();
}

#[tokio::test]
async fn a_client_without_a_certificate_or_of_another_authority_gets_no_connection() {
    let dir = set("cluster-autoscaler");
    let other = set("cluster-autoscaler");
    let served = serve_tls(dir.path(), &["cluster-autoscaler"]).await;
    for identity in [None, Some(other.path())] {
        let refused = check(&served, dir.path(), identity).await.unwrap_err();
        assert_ne!(refused.code(), Code::PermissionDenied, "{refused:?}");
    }
    check(&served, dir.path(), Some(dir.path())).await.unwrap();
}

#[tokio::test]
async fn another_name_is_denied_and_told_the_flag() {
    let dir = set("probe");
    let served = serve_tls(dir.path(), &["cluster-autoscaler"]).await;
    let refused = check(&served, dir.path(), Some(dir.path())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("names probe,"), "{}", refused.message());
    assert!(refused.message().contains("--provider-client"), "{}", refused.message());
}

#[tokio::test]
async fn a_server_certificate_is_no_client() {
    let dir = set("cluster-autoscaler");
    let served = serve_tls(dir.path(), &["cluster-autoscaler", "localhost", "stoker"]).await;
    for (from, to) in [("server.crt", "client.crt"), ("server.key", "client.key")] {
        std::fs::copy(dir.path().join(from), dir.path().join(to)).unwrap();
    }
    assert!(check(&served, dir.path(), Some(dir.path())).await.is_err());
}

#[tokio::test]
async fn without_a_client_authority_any_client_gets_a_connection_but_no_identity() {
    let dir = set("cluster-autoscaler");
    let tls = Tls::load(files(dir.path(), false)).unwrap();
    let served = serve(listener(Security::Tls(tls)).await, &["cluster-autoscaler"]);
    let refused = check(&served, dir.path(), None).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().starts_with("no client certificate"), "{}", refused.message());
}

#[tokio::test]
async fn a_plaintext_connection_needs_no_identity() {
    let served = serve(listener(Security::Plaintext).await, &[]);
    call(Endpoint::from_shared(format!("http://{}", served.addr)).unwrap().connect_lazy()).await.unwrap();
}

#[tokio::test]
async fn each_connection_has_its_own_number() {
    let dir = set("cluster-autoscaler");
    let mut listener = listener(Security::Tls(Tls::load(files(dir.path(), true)).unwrap())).await;
    let addr = listener.local_addr().unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (client, conn) =
            tokio::join!(async { Bare::default().connect(addr, dir.path()).await.unwrap() }, listener.accept());
        assert_eq!(conn.peer().identities, ["cluster-autoscaler"]);
        assert_eq!(conn.peer().remote, client.get_ref().0.local_addr().unwrap());
        assert!(!conn.peer().plaintext);
        seen.push(conn.peer().connection);
    }
    assert!(seen[0] < seen[1], "{seen:?}");
}

#[tokio::test]
async fn both_versions_are_spoken_with_h2_and_nothing_else() {
    let dir = set("cluster-autoscaler");
    let served = serve_tls(dir.path(), &[]).await;
    for versions in [&TLS12_ONLY, &TLS13_ONLY] {
        let stream = Bare { versions, ..Bare::default() }.connect(served.addr, dir.path()).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(stream.get_ref().1.protocol_version(), Some(versions[0].version));
    }
    assert!(Bare { alpn: b"http/1.1", ..Bare::default() }.connect(served.addr, dir.path()).await.is_err());
}

#[tokio::test]
async fn an_idler_is_cut_off_and_holds_up_nobody() {
    let dir = set("cluster-autoscaler");
    let tls = Tls::load(files(dir.path(), true)).unwrap();
    let limits = Limits { handshake_timeout: Duration::from_millis(1500), ..Limits::of(16) };
    let refused = prometheus_client::metrics::counter::Counter::default();
    let listener = listener(Security::Tls(tls)).await.with_limits(limits).count_refused(refused.clone());
    let served = serve(listener, &["cluster-autoscaler"]);
    let mut idler = TcpStream::connect(served.addr).await.unwrap();
    check(&served, dir.path(), Some(dir.path())).await.unwrap();
    assert!(cut_off(&mut idler).await);
    wait_until(|| refused.get() == 1).await;
}

#[tokio::test]
async fn of_too_many_handshakes_the_oldest_goes() {
    let dir = set("cluster-autoscaler");
    let tls = Tls::load(files(dir.path(), true)).unwrap();
    // No time-out within this test: only room for others ends an idler.
    let limits = Limits { unproven: 2, handshake_timeout: LONG * 10, ..Limits::default() };
    let served = serve(listener(Security::Tls(tls)).await.with_limits(limits), &["cluster-autoscaler"]);
    let mut idlers = Vec::new();
    for _ in 0..4 {
        idlers.push(TcpStream::connect(served.addr).await.unwrap());
    }
    check(&served, dir.path(), Some(dir.path())).await.unwrap();
    assert!(cut_off(&mut idlers[0]).await);
}

#[tokio::test]
async fn a_client_that_says_nothing_after_the_handshake_is_cut_off() {
    let dir = set("cluster-autoscaler");
    let limits = Limits { handshake_timeout: Duration::from_millis(1500), ..Limits::default() };
    let tls = Security::Tls(Tls::load(files(dir.path(), true)).unwrap());
    let encrypted = serve(listener(tls).await.with_limits(limits), &[]);
    let plain = serve(listener(Security::Plaintext).await.with_limits(limits), &[]);
    let mut silent = Bare::default().connect(encrypted.addr, dir.path()).await.unwrap();
    assert!(cut_off(&mut silent).await);
    assert!(cut_off(&mut TcpStream::connect(plain.addr).await.unwrap()).await);
}

/// Whether the server closes the connection before long.
async fn cut_off(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> bool {
    let mut sent = Vec::new();
    match timeout(LONG, stream.read_to_end(&mut sent)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof),
        Err(_) => false,
    }
}

#[tokio::test]
async fn a_client_that_sends_half_a_preface_is_cut_off() {
    let limits = Limits { handshake_timeout: Duration::from_millis(1500), ..Limits::default() };
    let served = serve(listener(Security::Plaintext).await.with_limits(limits), &[]);
    let mut half = TcpStream::connect(served.addr).await.unwrap();
    half.write_all(b"PRI * HTTP/2.0").await.unwrap();
    assert!(cut_off(&mut half).await);
}

/// A connection that comes from that address of this machine.
async fn connect_from(address: [u8; 4], to: std::net::SocketAddr) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((address, 0).into())?;
    socket.connect(to).await
}

#[tokio::test]
async fn many_connections_of_one_address_keep_no_other_out() {
    let crowded = prometheus_client::metrics::counter::Counter::default();
    let listener = listener(Security::Plaintext).await.with_limits(Limits::of(8)).count_crowded(crowded.clone());
    let served = serve(listener, &[]);
    let mut idlers = Vec::new();
    for address in [[127, 0, 0, 2], [127, 0, 0, 3]] {
        for _ in 0..50 {
            idlers.push(connect_from(address, served.addr).await.unwrap());
        }
    }
    wait_until(|| crowded.get() >= 92).await;
    call(Endpoint::from_shared(format!("http://{}", served.addr)).unwrap().connect_lazy()).await.unwrap();
    let mut standing = 0;
    for idler in &mut idlers {
        standing += usize::from(timeout(Duration::from_millis(20), idler.read_u8()).await.is_err());
    }
    assert!(standing <= 8, "{standing}");
}

#[test]
fn plaintext_is_for_loopback_or_by_flag() {
    for addr in ["127.0.0.1:8086", "127.8.8.8:1", "[::1]:8086", "[::ffff:127.0.0.1]:8086"] {
        check_plaintext(addr.parse().unwrap(), false).unwrap();
    }
    for addr in ["0.0.0.0:8086", "[::]:8086", "10.0.0.1:8086"] {
        let refused = check_plaintext(addr.parse().unwrap(), false).unwrap_err();
        assert!(refused.to_string().contains("--allow-plaintext"), "{refused}");
        check_plaintext(addr.parse().unwrap(), true).unwrap();
    }
}

async fn wait_until(met: impl Fn() -> bool) {
    let waiting = async {
        while !met() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, waiting).await.expect("met in time");
}
