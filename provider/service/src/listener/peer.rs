//! Who is at the other end of a connection, and who may call.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use tokio::time::Instant;
use tonic::{Request, Status};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::connections::State;

/// How the identity of a node's probe begins; the node's name follows. Such an identity opens the probes' listener, and nothing else.
pub const PROBE_PREFIX: &str = "probe:";

/// What is known of the peer of a connection; in the extensions of every request that came over it.
#[derive(Debug, Clone)]
pub struct PeerInfo {
    /// The number of the connection: never the same twice in one run of this process, over all its listeners.
    pub connection: u64,
    /// Where it comes from.
    pub remote: SocketAddr,
    /// Since when the connection stands.
    pub since: Instant,
    /// Whom its certificate names: DNS names and URIs of the subject alternative names. The common
    /// name is a label for people and names nobody. Empty without a certificate.
    pub identities: Vec<String>,
    /// Whether the connection is plaintext; such a listener was allowed by address or by flag.
    pub plaintext: bool,
    pub(super) state: Arc<State>,
}

impl PeerInfo {
    /// The peer of a plaintext connection that no listener has: for requests that are handed to a
    /// service without a network.
    pub fn in_process(remote: SocketAddr) -> Self {
        let (since, identities, state) = (Instant::now(), Vec::new(), Arc::default());
        Self { connection: 0, remote, since, identities, plaintext: true, state }
    }

    /// Whether its certificate is that of a node's probe.
    pub fn is_probe(&self) -> bool {
        self.identities.iter().any(|name| name.starts_with(PROBE_PREFIX))
    }

    /// Whether its certificate names one of these, byte for byte.
    pub fn is_one_of(&self, names: &[String]) -> bool {
        self.identities.iter().any(|name| names.contains(name))
    }

    /// A request has proven who calls: the connection is not closed for want of proof any more.
    pub fn prove(&self) {
        self.state.prove();
    }
}

/// Whom a verified client certificate names.
pub(super) fn identities(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(san)) = certificate.subject_alternative_name() else { return Vec::new() };
    let names = san.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        _ => None,
    });
    names.collect()
}

/// A tonic interceptor that lets through whoever names itself as one of `allowed`, byte for byte, and any plaintext connection
/// (its listener was allowed as a whole).
///
/// # Errors
/// `PermissionDenied`, with the identities seen and the flag that would allow them. An empty `allowed` refuses everybody, and a probe is
/// refused whatever is allowed: every node has the key of one.
pub fn require_identity(
    allowed: Arc<[String]>,
) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone + Send + Sync + 'static {
    move |request| {
        let Some(peer) = request.extensions().get::<PeerInfo>() else {
            return Err(Status::permission_denied("nothing is known about this connection"));
        };
        if peer.is_probe() {
            return Err(Status::permission_denied(
                "the client certificate belongs to a node's probe, which may not call this service",
            ));
        }
        if peer.plaintext || peer.is_one_of(&allowed) {
            return Ok(request);
        }
        Err(Status::permission_denied(if peer.identities.is_empty() {
            "no client certificate, or one without a DNS name or URI among its subject alternative names: present one whose \
             name there is allowed by --provider-client"
                .to_owned()
        } else {
            let seen = peer.identities.join(", ");
            format!(
                "the client certificate names {seen}, which may not call this service: allow one of these names with --provider-client"
            )
        }))
    }
}
