//! `stoker certs`: self-signed certificates, in files or in a cluster.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::exit::{CliError, Exit};
use super::out;
use stoker_service::certs::in_cluster::{self, Kept, ObjectName, Wanted};
use stoker_service::certs::{ClientFiles, Tryout, Written};
use stoker_service::clock::Clock;
use stoker_service::kube::client::connect;

/// Where the commands that are printed let probes be listened for.
const PROBE_PORT: u16 = 8089;

/// Writes a self-signed test CA, a certificate for the server and for each client, and the autoscaler's --cloud-config.
///
/// They are valid for one year. For production, use certificates from your own CA. With --write-secret they are kept in a cluster:
/// certificates with more than a third of their time left stay as they are, others are made again.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("place").required(true).args(["dir", "write_secret"])))]
pub(super) struct CertsArgs {
    /// Directory for the files; created if it does not exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A DNS name or IP address of the server, in addition to localhost; repeatable
    #[arg(long = "server-name", value_name = "NAME")]
    server_names: Vec<String>,
    /// Name in a client certificate: one that `serve --provider-client` allows, or `probe:<node>`; repeatable
    #[arg(long = "client-name", value_name = "NAME", default_value = "cluster-autoscaler")]
    client_names: Vec<String>,
    /// Where the autoscaler finds the server; its host must be one of the server's names
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:8086", conflicts_with = "write_secret")]
    address: String,
    /// Replace what is there: existing files, or certificates in the cluster that are still valid
    #[arg(long)]
    force: bool,

    /// Secret for the server's certificate, in place of files: ca.crt, server.crt and server.key
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = "Kubernetes")]
    write_secret: Option<ObjectName>,
    /// Secret for the clients' certificates: ca.crt, client.crt and client.key [default: the server's Secret]
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "write_secret", conflicts_with = "dir", help_heading = "Kubernetes")]
    write_client_secret: Option<ObjectName>,
    /// ConfigMap for the CA's certificate alone, ca.crt [default: none]
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "write_secret", conflicts_with = "dir", help_heading = "Kubernetes")]
    write_ca: Option<ObjectName>,
    /// Cluster of the Secrets [default: the cluster that this runs in]
    #[arg(long, env = "STOKER_KUBECONFIG", value_name = "FILE", help_heading = "Kubernetes")]
    kubeconfig: Option<PathBuf>,
}

/// Carries the command out.
pub(super) async fn run(args: &CertsArgs) -> Result<Exit, CliError> {
    let CertsArgs { dir, server_names, client_names, address, force, write_secret, write_client_secret, write_ca, kubeconfig } =
        args;
    if let Some(server) = write_secret {
        let wanted = Wanted {
            server: server.clone(),
            clients: write_client_secret.clone().filter(|clients| clients != server),
            ca: write_ca.clone(),
            server_names: server_names.clone(),
            client_names: client_names.clone(),
            force: *force,
        };
        let client = connect(kubeconfig.as_deref()).await.map_err(CliError::other)?;
        let kept = in_cluster::keep(&client, &wanted, Clock::system().now()).await.map_err(CliError::other)?;
        return out::write(&in_cluster_text(&kept)).map(|()| Exit::Done);
    }
    let names: Vec<&str> = client_names.iter().map(String::as_str).collect();
    let dir = dir.as_deref().unwrap_or_else(|| Path::new("."));
    let written = Tryout { dir, server_names, client_names: &names, address, force: *force }.write()?;
    out::write(&text(&written, address)).map(|()| Exit::Done)
}

/// What became of the Secrets.
fn in_cluster_text(Kept { until, renewed, written }: &Kept) -> String {
    let until = until.strftime("%Y-%m-%d");
    let mut text = match renewed {
        None => format!("valid until {until}: left as they are\n"),
        Some(why) => format!("valid until {until}: made, because {why}\n"),
    };
    // Writing to a string cannot fail.
    for object in written {
        let _ = writeln!(text, "written     {object}");
    }
    if renewed.is_some() {
        text.push_str(
            "Stoker and its probes read them again; restart an autoscaler that runs, which reads them at its start only.\n",
        );
    }
    text
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
