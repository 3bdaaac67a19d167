//! For which node a peer may speak.
//!
//! By a certificate: its subject alternative names have the URI `probe:<node>`. A prefix of our
//! own, and not the kubelet's `system:node:<node>`: a probe then never needs the kubelet's key, and
//! its certificate opens nothing of Kubernetes.
//!
//! By a ServiceAccount token: the API server says whose it is, for which audience, and on which node its pod runs.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use stoker_core::base::ids::NodeName;
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::reason::Reason;
use super::tokens::{Reviewer, TokenRefused};
use crate::listener::{PROBE_PREFIX, PeerInfo};

/// How probes prove which node they are on.
#[derive(Debug, Clone)]
pub enum Identity {
    /// By client certificates.
    Certificates,
    /// By ServiceAccount tokens.
    Tokens(Arc<Reviewer>),
    /// Not at all: over plaintext, where the listener was allowed as a whole.
    Unproven,
}

/// For whom a peer may speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaySpeak {
    /// For these nodes.
    For(Vec<String>),
    /// For any: nothing was proven, nor asked.
    ForAny,
}

impl MaySpeak {
    /// Whether it may speak for that node.
    pub fn includes(&self, node: &NodeName) -> bool {
        match self {
            Self::For(nodes) => nodes.iter().any(|name| name == node.as_str()),
            Self::ForAny => true,
        }
    }
}

/// Why a peer may not speak at all, and what it is told.
#[derive(Debug)]
pub struct Refused {
    /// As it is counted.
    pub reason: Reason,
    /// As it is told.
    pub status: Status,
}

impl Identity {
    /// For whom a peer may speak.
    ///
    /// # Errors
    /// Says what is missing or wrong.
    pub async fn of(&self, peer: Option<&PeerInfo>, metadata: &MetadataMap) -> Result<MaySpeak, Refused> {
        let peer = peer.ok_or_else(|| nobody("nothing is known about this connection"))?;
        match self {
            // A listener that is not plaintext never gets here without proof.
            Self::Unproven if peer.plaintext => Ok(MaySpeak::ForAny),
            Self::Unproven => Err(nobody("no proof of identity is accepted here")),
            Self::Certificates => {
                let nodes = peer.identities.iter().filter_map(|name| name.strip_prefix(PROBE_PREFIX));
                let nodes: Vec<String> = nodes.map(str::to_owned).collect();
                if !nodes.is_empty() {
                    return Ok(MaySpeak::For(nodes));
                }
                let seen = peer.identities.join(", ");
                Err(Refused {
                    reason: Reason::WrongIdentity,
                    status: Status::permission_denied(format!(
                        "the client certificate names {seen:?}, which is not a probe's: issue one with the URI \
                         {PROBE_PREFIX}<node>"
                    )),
                })
            }
            Self::Tokens(reviewer) => {
                let token = bearer(metadata)
                    .ok_or_else(|| nobody("no token: send `authorization: Bearer` with a ServiceAccount token"))?;
                let node = reviewer.node_of(token, peer.remote.ip()).await.map_err(|refused| {
                    let message = refused.to_string();
                    match refused {
                        TokenRefused::Unavailable(_) => {
                            Refused { reason: Reason::ReviewUnavailable, status: Status::unavailable(message) }
                        }
                        TokenRefused::NotAuthentic(_) => {
                            Refused { reason: Reason::NoIdentity, status: Status::unauthenticated(message) }
                        }
                        TokenRefused::NotAProbe { .. } | TokenRefused::NoNode | TokenRefused::Elsewhere { .. } => {
                            Refused { reason: Reason::WrongIdentity, status: Status::permission_denied(message) }
                        }
                    }
                })?;
                Ok(MaySpeak::For(vec![node]))
            }
        }
    }
}

/// What goes on proving who speaks on a stream, and is asked about again.
#[derive(Debug)]
pub struct Proof(Option<(Arc<Reviewer>, Token)>);

/// A token that no log has.
struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a token")
    }
}

impl Identity {
    /// What a peer showed that may be taken back: a token. The listener closes connections whose
    /// certificates are good no more.
    pub fn proof(&self, metadata: &MetadataMap) -> Proof {
        Proof(match self {
            Self::Tokens(reviewer) => bearer(metadata).map(|token| (Arc::clone(reviewer), Token(token.to_owned()))),
            Self::Certificates | Self::Unproven => None,
        })
    }
}

impl Proof {
    /// Ends once it proves that node no more, with what the peer is told; `unavailable` is called each time that nobody could be asked.
    pub fn lapse(
        self,
        node: &NodeName,
        address: IpAddr,
        unavailable: impl Fn() + Send + Sync + 'static,
    ) -> BoxFuture<'static, Status> {
        let Some((reviewer, Token(token))) = self.0 else { return Box::pin(std::future::pending()) };
        let node = node.clone();
        Box::pin(async move {
            let refused = reviewer.lapse(&token, node.as_str(), address, unavailable).await;
            Status::unauthenticated(format!("the token that opened the stream is no longer valid: {refused}"))
        })
    }
}

fn bearer(metadata: &MetadataMap) -> Option<&str> {
    metadata.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")
}

fn nobody(message: &str) -> Refused {
    Refused { reason: Reason::NoIdentity, status: Status::unauthenticated(message) }
}
