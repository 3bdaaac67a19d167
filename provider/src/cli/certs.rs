//! `stoker certs`: certificates for a try-out.

use std::path::PathBuf;

use clap::Args;

use super::exit::{CliError, Exit};
use super::out;
use crate::certs::Tryout;

/// Writes a throw-away authority, a server and a client certificate, and the autoscaler's --cloud-config, for trying Stoker out.
///
/// They count for a year. For production, take certificates from your own authority.
#[derive(Debug, Args)]
pub(super) struct CertsArgs {
    /// Where the files go; made if it is not there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// A DNS name or IP address of the server, beside localhost; repeatable
    #[arg(long = "server-name", value_name = "NAME")]
    server_names: Vec<String>,
    /// Whom the client's certificate names; `serve --provider-client` allows it
    #[arg(long, value_name = "NAME", default_value = "cluster-autoscaler")]
    client_name: String,
    /// Where the autoscaler finds the server; its host must be one of the server's names
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:8086")]
    address: String,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
}

/// Carries the command out.
pub(super) fn run(args: &CertsArgs) -> Result<Exit, CliError> {
    let CertsArgs { dir, server_names, client_name, address, force } = args;
    let written = Tryout { dir, server_names, client_name, address, force: *force }.write()?;
    let allow = if client_name == "cluster-autoscaler" { String::new() } else { format!(" --provider-client {client_name}") };
    let text = format!(
        "authority     {}\nserver        {}\n              {}\nclient        {}\n              {}\ncloud config  {}\n\n\
         stoker serve --tls-cert {} --tls-key {} --client-ca {}{allow}\n\
         cluster-autoscaler --cloud-provider=externalgrpc --cloud-config={}\n",
        written.ca.display(),
        written.server_cert.display(),
        written.server_key.display(),
        written.client_cert.display(),
        written.client_key.display(),
        written.cloud_config.display(),
        written.server_cert.display(),
        written.server_key.display(),
        written.ca.display(),
        written.cloud_config.display(),
    );
    out::write(&text).map(|()| Exit::Done)
}
