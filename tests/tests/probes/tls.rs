//! What a probe says of mistakes in certificates, to a real door: each with the place and the cure.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};
use stoker_service::listener::TlsFiles;

use super::*;

/// Tries after which the cause must have been told: on a busy machine the end of the connection overtakes the alert often.
const TRIES: u64 = 30;

/// Writes certificates, all into one directory.
struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// One whose certificate is `<name>-ca.crt`.
    fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.join(format!("{name}-ca.crt")), issuer.pem()).unwrap();
        Self { dir: dir.to_owned(), issuer }
    }

    fn issue(&self, file: &str, san: SanType, usage: ExtendedKeyUsagePurpose, years: (i32, i32)) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![san];
        params.extended_key_usages = vec![usage];
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(years.0, 1, 1), rcgen::date_time_ymd(years.1, 1, 1));
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.dir.join(format!("{file}.crt")), cert.pem()).unwrap();
        std::fs::write(self.dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    fn server(&self, file: &str, name: &str, years: (i32, i32)) {
        let name = SanType::DnsName(name.to_owned().try_into().unwrap());
        self.issue(file, name, ExtendedKeyUsagePurpose::ServerAuth, years);
    }

    fn client(&self, file: &str, years: (i32, i32)) {
        let uri = SanType::URI("probe:node-a".to_owned().try_into().unwrap());
        self.issue(file, uri, ExtendedKeyUsagePurpose::ClientAuth, years);
    }
}

/// What a probe says that cannot open a stream: what has all of `parts`, or what it said last. An alert comes after the handshake and may be
/// overtaken by the end of the connection, so not every try tells it.
async fn why(running: &Simulation, scheme: &str, access: Access, parts: &[&str]) -> String {
    let url = format!("{scheme}://localhost:{}", running.probes.unwrap().port());
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let probe = probe(&mut tasks, settings("node-a", &url, access), &stop, |_| {});
    let told = || probe.status.why().is_some_and(|why| parts.iter().all(|part| why.contains(part)));
    until("a failure", || probe.status.failed() >= TRIES || told()).await;
    let why = probe.status.why().unwrap();
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    assert_eq!(probe.status.opened(), 0);
    why
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mistake_in_certificates_is_told_with_its_place_and_cure() {
    const NOW: (i32, i32) = (2020, 2100);
    const PAST: (i32, i32) = (2020, 2021);
    const FUTURE: (i32, i32) = (2090, 2100);
    stoker_service::listener::install_crypto();
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (ours, theirs) = (Authority::new(dir.path(), "our"), Authority::new(dir.path(), "their"));
    ours.server("good", "localhost", NOW);
    ours.server("elsewhere", "stoker.example", NOW);
    ours.server("past", "localhost", PAST);
    ours.server("future", "localhost", FUTURE);
    ours.client("node", NOW);
    ours.client("node-past", PAST);
    theirs.client("stranger", NOW);
    std::fs::write(file("empty"), "").unwrap();
    std::fs::write(file("token"), "abc.def.ghi").unwrap();
    let access = |ca: &str, pair: &str| Access::Certificate {
        ca: file(ca),
        cert: file(&format!("{pair}.crt")),
        key: file(&format!("{pair}.key")),
    };
    let own = || access("our-ca.crt", "node");
    let cases: [(&str, &str, &str, Access, &[&str]); 13] = [
        ("good", "https", "another authority", access("their-ca.crt", "node"), &["their-ca.crt", "--provider-ca"]),
        ("good", "https", "no authority", access("empty", "node"), &["empty: contains no certificate", "--provider-ca"]),
        ("good", "https", "a strange client", access("our-ca.crt", "stranger"), &["stranger.crt", "--probe-client-ca"]),
        ("good", "https", "an old client", access("our-ca.crt", "node-past"), &["node-past.crt", "renew it"]),
        (
            "good",
            "https",
            "no pair",
            Access::Certificate { ca: file("our-ca.crt"), cert: file("node.crt"), key: file("stranger.key") },
            &["node.crt and", "stranger.key", "as a pair"],
        ),
        (
            "good",
            "https",
            "no key",
            Access::Certificate { ca: file("our-ca.crt"), cert: file("node.crt"), key: file("empty") },
            &["empty: contains no private key", "--tls-key"],
        ),
        (
            "good",
            "https",
            "a token",
            Access::Token { ca: file("our-ca.crt"), token: file("token") },
            &["localhost", "--tls-cert", "--probe-client-ca"],
        ),
        ("good", "http", "plaintext to TLS", Access::Plaintext, &["http://localhost", "https://", "--provider-ca"]),
        ("elsewhere", "https", "another name", own(), &["localhost", "for stoker.example and", "--probe-cert"]),
        ("past", "https", "an old server", own(), &["localhost", "has expired", "--probe-cert"]),
        ("future", "https", "a server to come", own(), &["localhost", "not valid yet", "set the clock"]),
        ("", "https", "TLS to plaintext", own(), &["localhost", "does not speak TLS", "--probe-cert"]),
        (
            "",
            "https",
            "a token to plaintext",
            Access::Token { ca: file("our-ca.crt"), token: file("token") },
            &["does not speak TLS"],
        ),
    ];
    let mut running: Option<(&str, TempDir, Simulation)> = None;
    for (server, scheme, what, access, parts) in cases {
        if running.as_ref().is_none_or(|(known, ..)| *known != server) {
            if let Some((_, _, old)) = running.take() {
                old.stop().await;
            }
            let tls = (!server.is_empty()).then(|| TlsFiles {
                cert: file(&format!("{server}.crt")),
                key: file(&format!("{server}.key")),
                client_ca: Some(file("our-ca.crt")),
                denied_serials: None,
            });
            let state = TempDir::new().unwrap();
            let begun = service(state.path(), ListenerOptions { tls, ..ListenerOptions::loopback() }, &Arc::default()).await;
            running = Some((server, state, begun));
        }
        let Some((_, _, running)) = &running else { continue };
        let why = why(running, scheme, access, parts).await;
        for part in parts {
            assert!(why.contains(part), "{what}: {part:?} is not in: {why}");
        }
    }
    let Some((_, _, last)) = running else { return };
    last.stop().await;
}
