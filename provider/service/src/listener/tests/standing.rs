//! Connections that stand while the certificates that began them turn bad.

use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType, SerialNumber,
};

use super::*;

/// What a client's certificate says.
#[derive(Clone, Copy)]
struct Client {
    common_name: &'static str,
    san: Option<&'static str>,
    serial: u64,
    life: Duration,
}

const CLIENT: Client = Client { common_name: "a", san: Some("a"), serial: 0x0a1b, life: Duration::from_hours(1) };

/// An authority that a listener trusts, and its server's certificate.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        install_crypto();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A directory as a client of this authority, and the server that it trusts, have it.
    fn set(&self, client: Client) -> TempDir {
        let dir = TempDir::new().unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        let issue = |name: &str, mut params: CertificateParams, usage| {
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().unwrap();
            write(&format!("{name}.crt"), params.signed_by(&key, &self.0).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        };
        write("ca.crt", self.0.pem());
        issue("server", CertificateParams::new(["localhost".to_owned()]).unwrap(), ExtendedKeyUsagePurpose::ServerAuth);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, client.common_name);
        params.subject_alt_names = client.san.map(|name| SanType::DnsName(name.try_into().unwrap())).into_iter().collect();
        params.serial_number = Some(SerialNumber::from(client.serial));
        params.not_after = (SystemTime::now() + client.life).into();
        issue("client", params, ExtendedKeyUsagePurpose::ClientAuth);
        dir
    }
}

/// A listener that follows its files, and one connection of each of these clients, which has called
/// already.
struct Standing {
    tls: Arc<Tls>,
    served: Served,
    channels: Vec<Channel>,
}

impl Standing {
    async fn new(files: TlsFiles, clients: &[&TempDir]) -> Self {
        let tls = Tls::load(files).unwrap();
        let served = serve(listener(Security::Tls(Arc::clone(&tls))).await, &["a"]);
        tokio::spawn(Arc::clone(&tls).watch_every(Duration::from_millis(100), served.stop.clone()));
        let mut channels = Vec::new();
        for dir in clients {
            let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
            let config = ClientTlsConfig::new()
                .domain_name("localhost")
                .ca_certificate(Certificate::from_pem(read("ca.crt")))
                .identity(Identity::from_pem(read("client.crt"), read("client.key")));
            let endpoint = Endpoint::from_shared(format!("https://{}", served.addr)).unwrap().tls_config(config).unwrap();
            let channel = endpoint.connect().await.unwrap();
            call(channel.clone()).await.unwrap();
            channels.push(channel);
        }
        Self { tls, served, channels }
    }

    /// Whether a client can call no more, neither by the connection that stood nor by a new one.
    async fn is_cut(&self, client: usize) -> bool {
        let mut refused = 0;
        for _ in 0..100 {
            refused = if call(self.channels[client].clone()).await.is_err() { refused + 1 } else { 0 };
            if refused == 3 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }
}

#[tokio::test]
async fn a_connection_is_closed_when_its_certificate_is_denied_and_others_stand() {
    let authority = Authority::new();
    let (stolen, good) = (authority.set(CLIENT), authority.set(Client { serial: 7, ..CLIENT }));
    let list = stolen.path().join("denied.txt");
    std::fs::write(&list, "# nobody yet\n").unwrap();
    let files = TlsFiles { denied_serials: Some(list.clone()), ..files(stolen.path(), true) };
    let standing = Standing::new(files, &[&stolen, &good]).await;
    let mut status = standing.tls.status();
    std::fs::write(&list, "no serial\n").unwrap();
    timeout(LONG, status.wait_for(Option::is_some)).await.expect("the fault is seen").unwrap();
    call(standing.channels[0].clone()).await.unwrap();
    // The other lines count beside one that is no serial.
    std::fs::write(&list, "0A:1B # the laptop\noops!\n").unwrap();
    assert!(standing.is_cut(0).await);
    call(standing.channels[1].clone()).await.unwrap();
    assert!(Bare { versions: &TLS12_ONLY, ..Bare::default() }.connect(standing.served.addr, good.path()).await.is_ok());
    assert!(Bare { versions: &TLS12_ONLY, ..Bare::default() }.connect(standing.served.addr, stolen.path()).await.is_err());
}

#[tokio::test]
async fn a_connection_is_closed_when_its_authority_is_removed_and_others_stand() {
    let (former, present) = (Authority::new(), Authority::new());
    let (old, new) = (former.set(CLIENT), present.set(CLIENT));
    // The old server's certificate stays; both clients trust it.
    std::fs::copy(old.path().join("ca.crt"), new.path().join("ca.crt")).unwrap();
    std::fs::write(old.path().join("clients.crt"), former.0.pem() + &present.0.pem()).unwrap();
    let files = TlsFiles { client_ca: Some(old.path().join("clients.crt")), ..files(old.path(), true) };
    let standing = Standing::new(files, &[&old, &new]).await;
    std::fs::write(old.path().join("clients.crt"), present.0.pem()).unwrap();
    assert!(standing.is_cut(0).await);
    call(standing.channels[1].clone()).await.unwrap();
}

#[tokio::test]
async fn a_connection_is_closed_when_its_certificate_expires_and_others_stand() {
    let authority = Authority::new();
    let (short, long) = (authority.set(Client { life: Duration::from_secs(3), ..CLIENT }), authority.set(CLIENT));
    let standing = Standing::new(files(short.path(), true), &[&short, &long]).await;
    assert!(standing.is_cut(0).await);
    call(standing.channels[1].clone()).await.unwrap();
}

#[tokio::test]
async fn a_common_name_names_nobody() {
    let authority = Authority::new();
    for (san, expected) in [(Some("a"), Ok(())), (Some("b"), Err(Code::PermissionDenied)), (None, Err(Code::PermissionDenied))]
    {
        let dir = authority.set(Client { san, ..CLIENT });
        let served = serve_tls(dir.path(), &["a"]).await;
        let asked = check(&served, dir.path(), Some(dir.path())).await;
        assert_eq!(asked.map_err(|refused| refused.code()), expected, "{san:?}");
    }
}
