//! `stoker certs`: certificates for a try-out.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::exit::{CliError, Exit};
use super::out;
use stoker_service::certs::{ClientFiles, Tryout, Written};

/// Where the commands that are printed let probes be listened for.
const PROBE_PORT: u16 = 8089;

/// Writes a self-signed test CA, a certificate for the server and for each client, and the autoscaler's --cloud-config.
///
/// They are valid for one year. For production, use certificates from your own CA.
#[derive(Debug, Args)]
pub(super) struct CertsArgs {
    /// Directory for the files; created if it does not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// A DNS name or IP address of the server, in addition to localhost; repeatable
    #[arg(long = "server-name", value_name = "NAME")]
    server_names: Vec<String>,
    /// Name in a client certificate: one that `serve --provider-client` allows, or `probe:<node>`; repeatable
    #[arg(long = "client-name", value_name = "NAME", default_value = "cluster-autoscaler")]
    client_names: Vec<String>,
    /// Where the autoscaler finds the server; its host must be one of the server's names
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:8086")]
    address: String,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

/// Carries the command out.
pub(super) fn run(args: &CertsArgs) -> Result<Exit, CliError> {
    let CertsArgs { dir, server_names, client_names, address, force } = args;
    let names: Vec<&str> = client_names.iter().map(String::as_str).collect();
    let written = Tryout { dir, server_names, client_names: &names, address, force: *force }.write()?;
    out::write(&text(&written, address)).map(|()| Exit::Done)
}

/// The files, and the commands that take them.
fn text(written: &Written, address: &str) -> String {
    let Written { ca, server_cert, server_key, clients, cloud_config } = written;
    let [ca, server_cert, server_key, cloud_config] = [ca, server_cert, server_key, cloud_config].map(|path| path.display());
    let mut text = format!("authority     {ca}\nserver        {server_cert}\n              {server_key}\n");
    // Writing to a string cannot fail.
    for ClientFiles { name: _, cert, key } in clients {
        let _ = writeln!(text, "client        {}\n              {}", cert.display(), key.display());
    }
    let (probes, others): (Vec<_>, Vec<_>) = clients.iter().partition(|client| client.node().is_some());
    if !others.is_empty() {
        let _ = writeln!(text, "cloud config  {cloud_config}");
    }
    text.push_str("\nstoker serve");
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|client| client.name.as_str()).collect();
        let _ = write!(text, " --tls-cert {server_cert} --tls-key {server_key} --client-ca {ca}");
        if names != ["cluster-autoscaler"] {
            let _ = write!(text, " --provider-client {}", names.join(","));
        }
    }
    if !probes.is_empty() {
        let _ = write!(text, " --probe-listen 127.0.0.1:{PROBE_PORT} --probe-cert {server_cert} --probe-key {server_key}");
        let _ = write!(text, " --probe-client-ca {ca}");
    }
    text.push('\n');
    if !others.is_empty() {
        let _ = writeln!(text, "cluster-autoscaler --cloud-provider=externalgrpc --cloud-config={cloud_config}");
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    for probe in probes {
        let _ = writeln!(
            text,
            "stoker-probe --node {} --provider https://{host}:{PROBE_PORT} --provider-ca {ca} --tls-cert {} --tls-key {}",
            probe.node().unwrap_or_default(),
            probe.cert.display(),
            probe.key.display(),
        );
    }
    text
}
