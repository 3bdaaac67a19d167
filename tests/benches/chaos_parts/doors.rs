//! The doors of the service: on ports that stay the same over its restarts, and with the certificates of honest clients and others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use stoker_fake_apiserver::ApiServer;
use stoker_service::certs::write_tryout;
use stoker_tests::client::Client;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// What an autoscaler gives each call.
const DEADLINE: Duration = Duration::from_secs(5);

/// Ports below those that the system gives to outgoing connections, so that none of these takes one while the service is away.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Where the service listens, and with what.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) provider: SocketAddr,
    pub(crate) expander: SocketAddr,
    pub(crate) probes: SocketAddr,
    pub(crate) side: SocketAddr,
    /// The certificates of the service and of its client.
    pub(crate) own: PathBuf,
    /// Those of an authority that the service does not know.
    other: PathBuf,
}

/// Who calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum As {
    /// The autoscaler.
    Autoscaler,
    /// Somebody with the certificate of another authority.
    Stranger,
    /// Somebody without one.
    Nobody,
}

impl Doors {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let (own, other) = (dir.join("certs"), dir.join("other-certs"));
        for certs in [&own, &other] {
            write_tryout(certs, &[], "cluster-autoscaler")?;
        }
        let mut free = PORTS.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).skip(usize::from(port_seed()));
        let mut next = || free.find(|address| TcpListener::bind(address).is_ok()).context("no free port");
        Ok(Self { provider: next()?, expander: next()?, probes: next()?, side: next()?, own, other })
    }

    /// A connection that is made with the first call, and again after a loss.
    pub(crate) fn channel(&self, to: SocketAddr, who: As, from: Ipv4Addr) -> Result<Channel> {
        let pem = |dir: &Path, name: &str| std::fs::read(dir.join(name)).with_context(|| format!("reading {name}"));
        let mut tls =
            ClientTlsConfig::new().domain_name("localhost").ca_certificate(Certificate::from_pem(pem(&self.own, "ca.crt")?));
        let identity = match who {
            As::Autoscaler => Some(&self.own),
            As::Stranger => Some(&self.other),
            As::Nobody => None,
        };
        if let Some(dir) = identity {
            tls = tls.identity(Identity::from_pem(pem(dir, "client.crt")?, pem(dir, "client.key")?));
        }
        let endpoint = Endpoint::from_shared(format!("https://{to}"))?.tls_config(tls)?;
        Ok(endpoint.local_address(Some(IpAddr::V4(from))).connect_timeout(DEADLINE).timeout(DEADLINE).connect_lazy())
    }

    /// The connections of the autoscaler.
    pub(crate) fn autoscaler(&self) -> Result<(Channel, Channel)> {
        let of = |to| self.channel(to, As::Autoscaler, Ipv4Addr::LOCALHOST);
        Ok((of(self.provider)?, of(self.expander)?))
    }

    /// A client with its certificate.
    pub(crate) fn client(&self) -> Result<Client> {
        let (provider, expander) = self.autoscaler()?;
        Ok(Client::over(provider, expander))
    }
}

/// Where to begin to look for ports: runs beside each other take others.
fn port_seed() -> u16 {
    u16::try_from(std::process::id() % 9_000).unwrap_or_default()
}

/// The address of an API server, and the kubeconfig that leads there.
pub(crate) fn kubeconfig(api: &ApiServer) -> Result<(SocketAddr, String)> {
    let text = std::fs::read_to_string(api.kubeconfig())?;
    let address =
        text.split("http://").nth(1).and_then(|rest| rest.split('"').next()).context("no address in the kubeconfig")?;
    Ok((address.parse()?, text))
}
