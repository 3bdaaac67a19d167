//! The autoscaler model's way to a provider and an expander: with the files and addresses that a real autoscaler is given.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use stoker_simulated::ca_client::GrpcCaClient;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// What a real autoscaler gives each call.
const DEADLINE: Duration = Duration::from_secs(5);

/// Reads the certificates; connects with the first call, and again after a loss.
///
/// # Errors
/// When a file cannot be read or used.
pub fn open(cloud_config: &Path, expander: &str, expander_cert: &Path) -> anyhow::Result<GrpcCaClient> {
    let config = read(cloud_config)?;
    let value = |key: &str| {
        config.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(|value| value.trim().trim_matches('"')))
    };
    let (Some(address), Some(key), Some(cert), Some(ca)) = (value("address"), value("key"), value("cert"), value("cacert"))
    else {
        bail!("{}: address, key, cert and cacert must all be there", cloud_config.display());
    };
    let own = Identity::from_pem(read(Path::new(cert))?, read(Path::new(key))?);
    let mutual = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(Path::new(ca))?)).identity(own);
    let server = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(expander_cert)?));
    Ok(GrpcCaClient::new(channel(address, mutual)?, channel(expander, server)?))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn channel(address: &str, tls: ClientTlsConfig) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("https://{address}")).with_context(|| format!("{address} is no host:port"))?;
    Ok(endpoint.tls_config(tls)?.connect_timeout(DEADLINE).timeout(DEADLINE).connect_lazy())
}
