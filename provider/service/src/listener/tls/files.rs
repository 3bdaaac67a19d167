//! From certificate files to a server configuration, or to every fault in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::denied::{Denied, DenyingVerifier};
use super::fault::{Found, TlsFault, TlsFaults};
use crate::files;

/// The files of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then its intermediates, in PEM.
    pub cert: PathBuf,
    /// The private key of the first certificate, in PEM.
    pub key: PathBuf,
    /// Who signs clients. With it, a client without a certificate from there is refused; without it, any client may connect.
    pub client_ca: Option<PathBuf>,
    /// Serial numbers of client certificates that are refused although `client_ca` signed them, one
    /// a line in hexadecimal.
    pub denied_serials: Option<PathBuf>,
}

/// A good set of files.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Ready to serve: TLS 1.2 and 1.3, and gRPC or, for browsers, HTTP/1.1.
    pub config: Arc<ServerConfig>,
    /// What decides about clients' certificates, where they are asked for.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The certificates, own first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The certificates of the chain, own first, with their time of validity.
    pub validity: Vec<Validity>,
    /// Which certificates of clients are denied.
    pub(in crate::listener) denied: Denied,
}

/// When one certificate counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// The file, and which certificate of it.
    pub what: String,
    /// Not before.
    pub from: Timestamp,
    /// Not after.
    pub until: Timestamp,
}

impl Loaded {
    /// The same for another protocol, by its name in ALPN.
    pub(super) fn speaking(self, protocol: &[u8]) -> Self {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.to_vec()];
        Self { config: Arc::new(config), ..self }
    }

    /// What is wrong with the time at `now`: such a certificate is served, and clients refuse it.
    pub fn warnings(&self, now: Timestamp) -> Vec<String> {
        self.validity.iter().filter_map(|v| v.warning(now)).collect()
    }

    /// When the first certificate of the chain ends.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.validity.iter().map(|v| v.until).min()
    }
}

impl Validity {
    fn warning(&self, now: Timestamp) -> Option<String> {
        let Self { what, from, until } = self;
        if now > *until {
            Some(format!("{what} expired at {until}, so clients refuse it: renew it; it is read again without a restart"))
        } else if now < *from {
            Some(format!(
                "{what} is not valid before {from}, so clients refuse it until then: check this machine's clock or reissue \
                 it"
            ))
        } else {
            None
        }
    }
}

/// The bytes of the files as they were at one time.
pub(super) struct Contents {
    cert: Result<Vec<u8>, std::io::Error>,
    key: Result<Vec<u8>, std::io::Error>,
    client_ca: Option<Result<Vec<u8>, std::io::Error>>,
    denied_serials: Option<Result<Vec<u8>, std::io::Error>>,
}

impl Contents {
    /// The same for the same bytes and the same failures to read.
    pub(super) fn fingerprint(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        let Self { cert, key, client_ca, denied_serials } = self;
        for file in [Some(cert), Some(key), client_ca.as_ref(), denied_serials.as_ref()].into_iter().flatten() {
            match file {
                Ok(bytes) => hasher.update(blake3::hash(bytes).as_bytes()),
                Err(error) => hasher.update(error.to_string().as_bytes()),
            };
        }
        hasher.finalize()
    }
}

impl TlsFiles {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// Every fault of every file, each with its cure. An expired certificate is no fault but a [warning](Loaded::warnings).
    pub fn load(&self) -> Result<Loaded, TlsFaults> {
        self.parse_all(self.read())
    }

    /// Checks the files, the deny list as strictly as the others.
    pub(super) fn parse_all(&self, contents: Contents) -> Result<Loaded, TlsFaults> {
        let (loaded, of_list) = self.parse(contents, &Denied::default())?;
        if of_list.0.is_empty() { Ok(loaded) } else { Err(of_list) }
    }

    pub(super) fn read(&self) -> Contents {
        Contents {
            cert: files::read(&self.cert),
            key: files::read(&self.key),
            client_ca: self.client_ca.as_deref().map(files::read),
            denied_serials: self.denied_serials.as_deref().map(files::read),
        }
    }

    /// Checks the files. Faults of the deny list come beside and hold no certificate back: what was denied before, `known`, stays so,
    /// beside what else is on the list.
    pub(super) fn parse(&self, contents: Contents, known: &Denied) -> Result<(Loaded, TlsFaults), TlsFaults> {
        let provider = Arc::new(ring::default_provider());
        let mut faults = Vec::new();
        let chain = contents.cert.map_err(unreadable(&self.cert)).and_then(|bytes| certificates(&self.cert, &bytes, true));
        let validity = chain.as_deref().map(|chain| check_chain(&self.cert, chain, &mut faults)).unwrap_or_default();
        let chain = chain.map_err(|fault| faults.push(fault)).ok();
        let key = contents.key.map_err(unreadable(&self.key)).and_then(|bytes| private_key(&self.key, &bytes));
        let key = key.map_err(|fault| faults.push(fault)).ok();
        let roots = match (&self.client_ca, contents.client_ca) {
            (Some(path), Some(bytes)) => match bytes.map_err(unreadable(path)) {
                Ok(bytes) => client_roots(path, &bytes, &mut faults),
                Err(fault) => {
                    faults.push(fault);
                    None
                }
            },
            _ => None,
        };
        let mut list_faults = Vec::new();
        let denied = match (&self.denied_serials, contents.denied_serials) {
            (Some(path), Some(bytes)) => {
                let listed = match bytes.map_err(unreadable(path)) {
                    Ok(bytes) => Denied::parse(path, &bytes, &mut list_faults),
                    Err(fault) => {
                        list_faults.push(fault);
                        Denied::default()
                    }
                };
                if list_faults.is_empty() { listed } else { listed.and(known) }
            }
            _ => Denied::default(),
        };
        let certified = match (chain, key) {
            (Some(chain), Some(key)) => pair(&provider, (&self.cert, chain), (&self.key, key), &mut faults),
            _ => None,
        };
        match (certified, faults.is_empty()) {
            (Some(certified), true) => {
                let chain = certified.cert.clone();
                let one = |fault| TlsFaults(vec![fault]);
                let verifier = roots.map(|roots| self.verifier(&provider, roots, denied.clone())).transpose().map_err(one)?;
                let config = self.config(provider, certified, verifier.clone()).map_err(one)?;
                Ok((Loaded { config: Arc::new(config), verifier, chain, validity, denied }, TlsFaults(list_faults)))
            }
            _ => Err(TlsFaults(faults)),
        }
    }

    /// Takes clients' certificates from these roots, unless they are denied.
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
        roots: RootCertStore,
        denied: Denied,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsFault> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        let verifier = verifier.map_err(|error| TlsFault::Refused {
            path: self.client_ca.as_ref().unwrap_or(&self.cert).clone(),
            detail: error.to_string(),
        })?;
        Ok(Arc::new(DenyingVerifier { denied, verifier }))
    }

    fn config(
        &self,
        provider: Arc<CryptoProvider>,
        certified: CertifiedKey,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<ServerConfig, TlsFault> {
        let versions = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| TlsFault::Refused { path: self.cert.clone(), detail: error.to_string() })?;
        let checking = match verifier {
            Some(verifier) => versions.with_client_cert_verifier(verifier),
            None => versions.with_no_client_auth(),
        };
        let mut config = checking.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"h2".to_vec()];
        // Connections are few and long: each one proves itself anew, so that no session outlives the certificate that began it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// Puts chain and key together; a pair that does not belong together is a fault.
pub(super) fn pair(
    provider: &CryptoProvider,
    (cert, chain): (&Path, Vec<CertificateDer<'static>>),
    (path, key): (&Path, PrivateKeyDer<'static>),
    faults: &mut Vec<TlsFault>,
) -> Option<CertifiedKey> {
    let key = match provider.key_provider.load_private_key(key) {
        Ok(key) => key,
        Err(error) => {
            faults.push(TlsFault::Key { path: path.to_owned(), detail: error.to_string() });
            return None;
        }
    };
    let matches = |leaf: &CertificateDer<'static>| {
        let pair = CertifiedKey::new(vec![leaf.clone()], Arc::clone(&key));
        !matches!(pair.keys_match(), Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)))
    };
    if chain.first().is_some_and(&matches) {
        return Some(CertifiedKey::new(chain, key));
    }
    let found = chain.iter().position(&matches).map(|at| at + 1);
    faults.push(TlsFault::Mismatch { key: path.to_owned(), cert: cert.to_owned(), matches: found });
    None
}

pub(super) fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> TlsFault {
    let path = path.to_owned();
    move |source| TlsFault::Read { path, source }
}

pub(super) fn certificates(path: &Path, bytes: &[u8], chain: bool) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let list: Vec<_> = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsFault::pem(path, pem_detail(&error)))?;
    if list.is_empty() {
        return Err(TlsFault::NoCertificate { path: path.to_owned(), chain, found: Found::in_file(bytes) });
    }
    Ok(list)
}

pub(super) fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsFault> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            let found = Found::in_file(bytes);
            let path = path.to_owned();
            if found.has("ENCRYPTED PRIVATE KEY") { TlsFault::EncryptedKey { path } } else { TlsFault::NoKey { path, found } }
        }
        other => TlsFault::pem(path, pem_detail(&other)),
    })
}

fn pem_detail(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("the line {:?} is missing: the file is cut short", String::from_utf8_lossy(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => format!("the line {:?} is malformed", String::from_utf8_lossy(line)),
        other => other.to_string(),
    }
}

/// Checks what clients will check of the server's chain; gives the time of validity of each certificate.
fn check_chain(path: &Path, chain: &[CertificateDer<'static>], faults: &mut Vec<TlsFault>) -> Vec<Validity> {
    let mut validity = Vec::new();
    for (at, der) in chain.iter().enumerate() {
        let bad = |detail: String| TlsFault::Certificate { path: path.to_owned(), number: at + 1, detail };
        // rustls reads the server's own certificate more strictly than x509-parser does.
        if at == 0
            && let Err(error) = rustls::server::ParsedCertificate::try_from(der)
        {
            faults.push(bad(error.to_string()));
            continue;
        }
        let certificate = match X509Certificate::from_der(der) {
            Ok((_, certificate)) => certificate,
            Err(error) => {
                faults.push(bad(error.to_string()));
                continue;
            }
        };
        if at == 0 {
            check_leaf(path, &certificate, faults);
        }
        let time = |t: x509_parser::time::ASN1Time| Timestamp::from_second(t.timestamp());
        match (time(certificate.validity().not_before), time(certificate.validity().not_after)) {
            (Ok(from), Ok(until)) => {
                validity.push(Validity { what: format!("{}: certificate {}", path.display(), at + 1), from, until });
            }
            _ => faults.push(bad("its validity lies outside the supported dates".to_owned())),
        }
    }
    validity
}

fn check_leaf(path: &Path, leaf: &X509Certificate<'_>, faults: &mut Vec<TlsFault>) {
    let named = |name: &GeneralName<'_>| matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_));
    let san = leaf.subject_alternative_name().ok().flatten();
    if !san.is_some_and(|san| san.value.general_names.iter().any(named)) {
        faults.push(TlsFault::NoSan { path: path.to_owned() });
    }
    let usage = leaf.extended_key_usage().ok().flatten();
    if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        faults.push(TlsFault::NotForServers { path: path.to_owned() });
    }
}

pub(super) fn client_roots(path: &Path, bytes: &[u8], faults: &mut Vec<TlsFault>) -> Option<RootCertStore> {
    let list = certificates(path, bytes, false).map_err(|fault| faults.push(fault)).ok()?;
    let mut roots = RootCertStore::empty();
    for (at, certificate) in list.into_iter().enumerate() {
        if let Err(error) = roots.add(certificate) {
            faults.push(TlsFault::Certificate { path: path.to_owned(), number: at + 1, detail: error.to_string() });
        }
    }
    Some(roots)
}
