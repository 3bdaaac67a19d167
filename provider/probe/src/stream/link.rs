//! The connection to the provider, and what proves who we are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use super::options::Access;
use super::tls::{self, TlsMistake};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A provider that does not answer a ping is gone; the system would notice hours later.
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(5);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A file cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The token is none.
    #[error("{}: contains no token: mount a ServiceAccount token there", path.display())]
    Token {
        /// The file.
        path: PathBuf,
    },
    /// TLS does not hold.
    #[error(transparent)]
    Tls(#[from] TlsMistake),
    /// The provider cannot be reached.
    #[error("{provider}: no connection")]
    Connect {
        /// The provider.
        provider: Uri,
        /// Why.
        source: tonic::transport::Error,
    },
}

/// What [`Access`] names, as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Files {
    Plaintext,
    Certificate { ca: Vec<u8>, cert: Vec<u8>, key: Vec<u8> },
    Token { ca: Vec<u8>, token: MetadataValue<Ascii> },
}

impl Access {
    /// Whether a change of its files asks for another stream. The provider ends one whose token has expired, and the kubelet renews tokens
    /// long before.
    pub(super) const fn renews(&self) -> bool {
        matches!(self, Self::Certificate { .. } | Self::Token { .. })
    }

    pub(super) async fn read(&self) -> Result<Files, LinkError> {
        match self {
            Self::Plaintext => Ok(Files::Plaintext),
            Self::Certificate { ca: ca_path, cert: cert_path, key: key_path } => {
                let (ca, cert, key) = (read(ca_path).await?, read(cert_path).await?, read(key_path).await?);
                tls::authority(ca_path, &ca)?;
                tls::identity((cert_path, &cert), (key_path, &key))?;
                Ok(Files::Certificate { ca, cert, key })
            }
            Self::Token { ca: ca_path, token: path } => {
                let ca = read(ca_path).await?;
                tls::authority(ca_path, &ca)?;
                let bytes = read(path).await?;
                let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
                let token = (!text.is_empty()).then(|| format!("Bearer {text}").parse().ok()).flatten();
                let token: MetadataValue<Ascii> = token.ok_or_else(|| LinkError::Token { path: path.clone() })?;
                Ok(Files::Token { ca, token })
            }
        }
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, LinkError> {
    tokio::fs::read(path).await.map_err(|source| LinkError::Read { path: path.to_owned(), source })
}

/// A request that says who we are.
pub(super) fn request<T>(body: T, files: &Files) -> Request<T> {
    let mut request = Request::new(body);
    if let Files::Token { token, ca: _ } = files {
        let mut token = token.clone();
        token.set_sensitive(true);
        request.metadata_mut().insert("authorization", token);
    }
    request
}

pub(super) async fn connect(provider: &Uri, access: &Access, files: &Files) -> Result<Channel, LinkError> {
    let failed = |source: tonic::transport::Error| match (access, tls::mistake(&source, provider, access)) {
        // A port that refuses to be called says so itself.
        (Access::Plaintext, _) | (_, None) => LinkError::Connect { provider: provider.clone(), source },
        (_, Some(mistake)) => mistake.into(),
    };
    let endpoint = Endpoint::from(provider.clone())
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN)
        .keep_alive_while_idle(true);
    let trusting = |ca: &[u8]| ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    let endpoint = match files {
        Files::Plaintext => endpoint,
        Files::Token { ca, token: _ } => endpoint.tls_config(trusting(ca)).map_err(failed)?,
        Files::Certificate { ca, cert, key } => {
            // Both were looked at: what is left is that they do not belong together.
            let pair = trusting(ca).identity(Identity::from_pem(cert, key));
            endpoint.tls_config(pair).map_err(|source| match access {
                Access::Certificate { cert, key, .. } => TlsMistake::NoPair { cert: cert.clone(), key: key.clone() }.into(),
                Access::Plaintext | Access::Token { .. } => failed(source),
            })?
        }
    };
    endpoint.connect().await.map_err(failed)
}
