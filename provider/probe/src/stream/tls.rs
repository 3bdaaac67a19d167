//! What is wrong where TLS does not hold, by what the library says deep down: each with the place and the cure.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use rustls::AlertDescription as Alert;
use rustls::CertificateError as Bad;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::Uri;

use super::options::Access;

/// A mistake in certificates, or about who speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsMistake {
    /// The authority's file holds no certificate.
    #[error("{}: contains no certificate in PEM: give with --provider-ca the CA that signs the provider's certificate", path.display())]
    NoAuthority {
        /// The file.
        path: PathBuf,
    },
    /// The certificate's file holds none.
    #[error("{}: contains no certificate in PEM: give this node's with --tls-cert", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The key's file holds none.
    #[error("{}: contains no private key in PEM, or an encrypted one: give with --tls-key the key of {}", path.display(), cert.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The certificate's file.
        cert: PathBuf,
    },
    /// They are no pair, or cannot be used.
    #[error("{} and {}: cannot be used together: name the certificate and the key that were issued as a pair", cert.display(), key.display())]
    NoPair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Somebody else signed the provider's certificate.
    #[error(
        "{provider}: its certificate is not signed by the CA in {}: give with --provider-ca the CA that signed the service's \
         --probe-cert", ca.display()
    )]
    OtherAuthority {
        /// The provider.
        provider: Uri,
        /// The authority's file.
        ca: PathBuf,
    },
    /// The provider's certificate is for other names.
    #[error(
        "{provider}: its certificate is for {} and not for that name: use one of these in --provider, or issue the service's \
         --probe-cert for this one",
        names(presented)
    )]
    OtherName {
        /// The provider.
        provider: Uri,
        /// What the certificate is for.
        presented: Vec<String>,
    },
    /// The provider's certificate is past its time, or before it.
    #[error("{provider}: its certificate {}, by this node's clock: {}", if *.early { "is not valid yet" } else { "has expired" },
        if *.early { "set the clock" } else { "renew the service's --probe-cert, or set the clock" })]
    Untimely {
        /// The provider.
        provider: Uri,
        /// Whether it is before its time.
        early: bool,
    },
    /// The provider's certificate cannot be used for another reason.
    #[error("{provider}: its certificate cannot be used: {detail}: reissue the service's --probe-cert for servers")]
    Unusable {
        /// The provider.
        provider: Uri,
        /// What the library says.
        detail: String,
    },
    /// The provider's port is plaintext.
    #[error(
        "{provider}: it does not speak TLS: start the service with --probe-cert and --probe-key, or give --provider as \
         http://"
    )]
    PlaintextPort {
        /// The provider.
        provider: Uri,
    },
    /// The provider speaks TLS, and we do not.
    #[error(
        "{provider}: the connection closes without an answer: if the service has --probe-cert, give --provider as https://, \
         and --provider-ca"
    )]
    TlsPort {
        /// The provider.
        provider: Uri,
    },
    /// The provider refuses this node's certificate.
    #[error("{}: the provider refuses the certificate ({alert}): {cure}", cert.display())]
    Refused {
        /// The certificate's file.
        cert: PathBuf,
        /// What the provider says.
        alert: String,
        /// What to do.
        cure: &'static str,
    },
    /// The provider wants a certificate, and we have a token.
    #[error(
        "{provider}: requires a certificate of this node, not a token: give --tls-cert and --tls-key, or start the service \
         without --probe-client-ca"
    )]
    CertificateWanted {
        /// The provider.
        provider: Uri,
    },
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() { "other names".to_owned() } else { presented.join(", ") }
}

/// Looks at the files themselves, before they are used.
///
/// # Errors
/// The first file that holds not what it should.
pub(super) fn authority(path: &Path, pem: &[u8]) -> Result<(), TlsMistake> {
    if has_certificate(pem) { Ok(()) } else { Err(TlsMistake::NoAuthority { path: path.to_owned() }) }
}

/// The same of a node's own.
///
/// # Errors
/// The first file that holds not what it should.
pub(super) fn identity((cert, cert_pem): (&Path, &[u8]), (key, key_pem): (&Path, &[u8])) -> Result<(), TlsMistake> {
    let (cert_path, path) = (cert.to_owned(), key.to_owned());
    if !has_certificate(cert_pem) {
        return Err(TlsMistake::NoCertificate { path: cert_path });
    }
    match PrivateKeyDer::from_pem_slice(key_pem) {
        Ok(_) => Ok(()),
        Err(_) => Err(TlsMistake::NoKey { path, cert: cert_path }),
    }
}

fn has_certificate(pem: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(pem).next().is_some_and(|first| first.is_ok())
}

/// What is wrong, where it is a matter of TLS.
pub(super) fn mistake(error: &(dyn Error + 'static), provider: &Uri, access: &Access) -> Option<TlsMistake> {
    let provider = provider.clone();
    match (access, library(error)) {
        (Access::Plaintext, _) => broken(error).then_some(TlsMistake::TlsPort { provider }),
        (Access::Certificate { ca, .. } | Access::Token { ca, .. }, Some(rustls::Error::InvalidCertificate(bad))) => {
            Some(of_provider(bad, provider, ca))
        }
        (_, Some(rustls::Error::InvalidMessage(_))) => Some(TlsMistake::PlaintextPort { provider }),
        (_, Some(rustls::Error::AlertReceived(alert))) => refused(&format!("{alert:?}"), provider, access),
        // The layer above keeps what was said, and not what said it.
        (_, None) => refused(causes(error).iter().find_map(|text| Some(text.split_once(ALERT)?.1))?, provider, access),
        (_, Some(_)) => None,
    }
}

/// What the library writes before the name of an alert.
const ALERT: &str = "received fatal alert: ";

fn of_provider(bad: &Bad, provider: Uri, ca: &Path) -> TlsMistake {
    match bad {
        Bad::UnknownIssuer | Bad::BadSignature => TlsMistake::OtherAuthority { provider, ca: ca.to_owned() },
        Bad::NotValidForName => TlsMistake::OtherName { provider, presented: Vec::new() },
        Bad::NotValidForNameContext { presented, .. } => {
            TlsMistake::OtherName { provider, presented: presented.iter().map(|name| bare(name).to_owned()).collect() }
        }
        Bad::Expired | Bad::ExpiredContext { .. } => TlsMistake::Untimely { provider, early: false },
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => TlsMistake::Untimely { provider, early: true },
        other => TlsMistake::Unusable { provider, detail: other.to_string() },
    }
}

/// The library writes names like `DnsName("stoker")`.
fn bare(name: &str) -> &str {
    name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')')).trim_matches('"')
}

/// What an alert of the provider's says of what we showed.
fn refused(alert: &str, provider: Uri, access: &Access) -> Option<TlsMistake> {
    let is = |known: Alert| alert.starts_with(&format!("{known:?}"));
    if is(Alert::CertificateRequired) && matches!(access, Access::Token { .. }) {
        return Some(TlsMistake::CertificateWanted { provider });
    }
    let Access::Certificate { cert, .. } = access else { return None };
    let cure = if is(Alert::CertificateExpired) {
        "it has expired or is not valid yet: renew it, or set the clocks"
    } else if is(Alert::UnknownCA) || is(Alert::BadCertificate) || is(Alert::DecryptError) || is(Alert::CertificateUnknown) {
        "issue it by the CA in the service's --probe-client-ca"
    } else if is(Alert::UnsupportedCertificate) || is(Alert::AccessDenied) || is(Alert::CertificateRequired) {
        "issue it for clients (extended key usage clientAuth), by the CA in the service's --probe-client-ca"
    } else if is(Alert::CertificateRevoked) {
        "issue another"
    } else {
        return None;
    };
    Some(TlsMistake::Refused { cert: cert.clone(), alert: alert.to_owned(), cure })
}

/// Whether a plaintext connection was taken and then ended, or answered with what is no HTTP/2: so a port does that speaks TLS.
fn broken(error: &(dyn Error + 'static)) -> bool {
    let texts = causes(error);
    let refused = texts.iter().any(|text| text.contains("onnection refused") || text.contains("dns error"));
    !refused
        && texts.iter().any(|text| text.contains("http2 error") || text.contains("connection error") || text.contains("frame"))
}

/// What the TLS library said, wherever in the chain it is.
fn library<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // What an error of the system holds is not among its causes.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            return library(inner);
        }
        next = error.source();
    }
    None
}

/// The causes of an error in words; without its own, which may be the provider's.
fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    std::iter::successors(error.source(), |error| (*error).source()).map(ToString::to_string).collect()
}
