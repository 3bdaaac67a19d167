//! How a plugin is reached: a socket or a port of this machine, or another machine by certificates.

use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use stoker_core::policy::rules::supplier::{ENDPOINTS, TLS_ENDPOINT};
use stoker_proto::supplier::supplier_client::SupplierClient;
use stoker_service::listener::{DialFiles, TlsFaults};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// How long a plugin may take to take a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How often a plugin on another machine is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Largest page of a listing, in bytes: some ten thousand machines.
const LARGEST_PAGE: usize = 16 << 20;

/// A plugin that cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum BadEndpoint {
    /// Its endpoint is none.
    #[error(
        "{endpoint:?} is no endpoint of a plugin: write unix:///path/to/socket or http://127.0.0.1:port, or https://host:port with \
         the files of certificates"
    )]
    Form {
        /// What was given.
        endpoint: String,
        /// What the transport says.
        source: Option<tonic::transport::Error>,
    },
    /// The files of certificates are not good.
    #[error("the certificates for the plugin at {endpoint} cannot be used: {source}")]
    Tls {
        /// Where the plugin listens.
        endpoint: String,
        /// What is wrong with the files.
        source: TlsFaults,
    },
}

/// A connection to the plugin there, with the files of certificates where it is on another machine; it is made when it is first needed,
/// and again whenever it breaks.
///
/// # Errors
/// Where that is no endpoint, or the files are not good.
pub fn connect(endpoint: &str, files: Option<DialFiles>) -> Result<SupplierClient<Channel>, BadEndpoint> {
    let bad = |source| BadEndpoint::Form { endpoint: endpoint.to_owned(), source };
    let channel = match (endpoint.strip_prefix(TLS_ENDPOINT), files) {
        (Some(authority), Some(files)) => {
            // What is wrong now is said now; later each connection reads them anew.
            files.load().map_err(|source| BadEndpoint::Tls { endpoint: endpoint.to_owned(), source })?;
            let uri = Endpoint::from_shared(format!("http://{authority}")).map_err(|source| bad(Some(source)))?;
            let host = uri.uri().host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let (Ok(name), Some(port)) = (ServerName::try_from(host.clone()), uri.uri().port_u16()) else {
                return Err(bad(None));
            };
            let dialled = move |_: Uri| dial((host.clone(), port), name.clone(), files.clone());
            alive(uri).connect_with_connector_lazy(tower::service_fn(dialled))
        }
        // The transport panics at a scheme that it half knows.
        (None, None) if ENDPOINTS.iter().chain(&["http://localhost:"]).any(|begin| endpoint.starts_with(begin)) => {
            let endpoint = Endpoint::from_shared(endpoint.to_owned()).map_err(|source| bad(Some(source)))?;
            endpoint.connect_timeout(CONNECT_WITHIN).connect_lazy()
        }
        _ => return Err(bad(None)),
    };
    Ok(SupplierClient::new(channel).max_decoding_message_size(LARGEST_PAGE))
}

/// A machine that is gone answers nothing for hours; it is asked whether it is there.
fn alive(endpoint: Endpoint) -> Endpoint {
    endpoint.http2_keep_alive_interval(PING_EVERY).keep_alive_timeout(CONNECT_WITHIN).keep_alive_while_idle(true)
}

/// A connection over which both sides have shown their certificates.
async fn dial(
    address: (String, u16),
    name: ServerName<'static>,
    files: DialFiles,
) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
    let config = files.load().map_err(io::Error::other)?;
    let connected = async { TlsConnector::from(config).connect(name, TcpStream::connect(address).await?).await };
    let stream = timeout(CONNECT_WITHIN, connected).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // A server that speaks no HTTP/2 would take the call for noise.
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(io::Error::other("its server does not speak HTTP/2"));
    }
    Ok(TokioIo::new(stream))
}
