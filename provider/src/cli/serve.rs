//! `stoker serve`: the service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use jiff::SignedDuration;

use super::args::{StateDirArg, duration};
use super::exit::{CliError, Exit};
use crate::catalog::{self, EXAMPLE};
use crate::clock::Clock;
use crate::kube::client::in_cluster;
use crate::net::TlsFiles;
use crate::policy_file;
use crate::probes::ServiceAccount;
use crate::prometheus::Connection;
use crate::serve::{Door, KubeOptions, Options, PolicySource, ProbeDoorOptions, ServeError, start};
use crate::supplier::simulated;

/// The simulated machines, in the state directory.
const WORLD_FILE: &str = "world.jsonl";

/// Runs the service: the autoscaler's provider, its expander, and a side port with /metrics, /healthz, /readyz, /debug/view and /debug/signals.
///
/// Without options: the built-in example policy and simulated world, on loopback, with its state in the user's state directory. Run so
/// when no command is given.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Policy file; read again whenever it changes [default: the built-in example]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// World file: how the simulated markets behave [default: the built-in world]
    #[arg(long, env = "STOKER_WORLD", value_name = "FILE")]
    pub world: Option<PathBuf>,
    /// Where what must outlive the service is kept.
    #[command(flatten)]
    pub state: StateDirArg,
    /// How long decisions can be explained
    #[arg(long, env = "STOKER_RETENTION", value_name = "TIME", default_value = "30d", value_parser = duration)]
    pub retention: SignedDuration,

    /// Where the autoscaler's provider listens
    #[arg(
        long,
        env = "STOKER_PROVIDER_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:8086",
        help_heading = "Addresses"
    )]
    pub provider_listen: SocketAddr,
    /// Where the autoscaler's expander listens
    #[arg(
        long,
        env = "STOKER_EXPANDER_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:8087",
        help_heading = "Addresses"
    )]
    pub expander_listen: SocketAddr,
    /// Where the side port listens, in plain HTTP
    #[arg(long, env = "STOKER_HTTP_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8088", help_heading = "Addresses")]
    pub http_listen: SocketAddr,

    /// Where the nodes' probes are listened for [default: nowhere]
    #[arg(long, alias = "probe-addr", env = "STOKER_PROBE_LISTEN", value_name = "ADDR", help_heading = "Addresses")]
    pub probe_listen: Option<SocketAddr>,

    /// Certificate of the provider, in PEM; clients must then show one of their own
    #[arg(long, env = "STOKER_TLS_CERT", value_name = "FILE", requires_all = ["tls_key", "client_ca"], help_heading = "TLS")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, env = "STOKER_TLS_KEY", value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    pub tls_key: Option<PathBuf>,
    /// Who signs the certificates of the provider's clients
    #[arg(long, env = "STOKER_CLIENT_CA", value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    pub client_ca: Option<PathBuf>,
    /// Certificate of the expander, in PEM
    #[arg(long, env = "STOKER_EXPANDER_CERT", value_name = "FILE", requires = "expander_key", help_heading = "TLS")]
    pub expander_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, env = "STOKER_EXPANDER_KEY", value_name = "FILE", requires = "expander_cert", help_heading = "TLS")]
    pub expander_key: Option<PathBuf>,
    /// Certificate of the probes' listener, in PEM
    #[arg(long, env = "STOKER_PROBE_CERT", value_name = "FILE", requires_all = ["probe_key", "probe_listen"], help_heading = "TLS")]
    pub probe_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, env = "STOKER_PROBE_KEY", value_name = "FILE", requires = "probe_cert", help_heading = "TLS")]
    pub probe_key: Option<PathBuf>,
    /// Who signs the certificates of probes, each naming `probe:<node>` [default: probes show ServiceAccount tokens]
    #[arg(long, env = "STOKER_PROBE_CLIENT_CA", value_name = "FILE", requires = "probe_cert", help_heading = "TLS")]
    pub probe_client_ca: Option<PathBuf>,
    /// Whose tokens count as those of probes
    #[arg(
        long,
        env = "STOKER_PROBE_SERVICE_ACCOUNT",
        value_name = "NAMESPACE/NAME",
        default_value_t = ServiceAccount::default(),
        help_heading = "TLS"
    )]
    pub probe_service_account: ServiceAccount,
    /// Who may call the provider, by a name in the client's certificate; repeatable
    #[arg(
        long = "provider-client",
        env = "STOKER_PROVIDER_CLIENT",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "cluster-autoscaler",
        help_heading = "TLS"
    )]
    pub provider_clients: Vec<String>,
    /// Serve without TLS on addresses that other machines reach: whoever reaches them can buy and end nodes
    #[arg(long, env = "STOKER_ALLOW_PLAINTEXT", help_heading = "TLS")]
    pub allow_plaintext: bool,

    /// Cluster whose nodes and pods to watch and annotate [default: the cluster that this runs in, else none]. The simulated supplier
    /// also registers its machines there, as Nodes that do not exist
    #[arg(long, env = "STOKER_KUBECONFIG", value_name = "FILE", help_heading = "Kubernetes")]
    pub kubeconfig: Option<PathBuf>,
    /// Watch no cluster: the autoscaler's word is then the only evidence of what is in use
    #[arg(long, env = "STOKER_NO_KUBERNETES", conflicts_with = "kubeconfig", help_heading = "Kubernetes")]
    pub no_kubernetes: bool,
    /// Let the simulated supplier run inside a real cluster, whatever it watches: its nodes are announced and never exist
    #[arg(long, env = "STOKER_SIMULATED_IN_CLUSTER", help_heading = "Kubernetes")]
    pub simulated_in_cluster: bool,

    /// Prometheus to ask for readings of GPUs (dcgm-exporter) and for the policy's demand signals [default: none]
    #[arg(long, env = "STOKER_PROMETHEUS_URL", value_name = "URL", help_heading = "Prometheus")]
    pub prometheus_url: Option<String>,
    /// File with a bearer token for it; read again for each question
    #[arg(
        long,
        env = "STOKER_PROMETHEUS_TOKEN_FILE",
        value_name = "FILE",
        requires = "prometheus_url",
        help_heading = "Prometheus"
    )]
    pub prometheus_token_file: Option<PathBuf>,
    /// Who signs its certificate, in PEM [default: the system's authorities]
    #[arg(long, env = "STOKER_PROMETHEUS_CA", value_name = "FILE", requires = "prometheus_url", help_heading = "Prometheus")]
    pub prometheus_ca: Option<PathBuf>,
}

/// Carries the command out: until the process is told to stop, or a part of the service ends by itself.
pub(super) async fn run(args: ServeArgs) -> Result<Exit, CliError> {
    let options = options(args)?;
    let (policy, state_dir, cluster) =
        (options.policy.name(), options.state_dir.display().to_string(), options.kube.to_string());
    let running = start(options).await?;
    tracing::info!(
        policy,
        state_dir,
        supplier = simulated::NAME,
        cluster,
        provider = %running.provider,
        expander = %running.expander,
        probes = running.probes.map(tracing::field::display),
        http = %running.http,
        "serving"
    );
    let sound = running.run_until(told_to_stop()).await;
    Ok(if sound { Exit::Done } else { Exit::Failed })
}

fn options(args: ServeArgs) -> Result<Options, CliError> {
    let ServeArgs {
        policy,
        world,
        state,
        retention,
        provider_listen,
        expander_listen,
        http_listen,
        tls_cert,
        tls_key,
        client_ca,
        expander_cert,
        expander_key,
        probe_listen,
        probe_cert,
        probe_key,
        probe_client_ca,
        probe_service_account,
        provider_clients,
        allow_plaintext,
        kubeconfig,
        no_kubernetes,
        simulated_in_cluster,
        prometheus_url,
        prometheus_token_file,
        prometheus_ca,
    } = args;
    // Also where no cluster is watched: an autoscaler beside it would wait for the nodes all the same.
    if in_cluster() && !simulated_in_cluster {
        return Err(ServeError::SimulatedInCluster.into());
    }
    let clock = Clock::System;
    let book = Arc::new(catalog::prices(None)?);
    let world = catalog::world_config(world.as_deref(), &book, clock.now())?;
    let state_dir = state.resolve()?;
    let files = |cert: Option<PathBuf>, key: Option<PathBuf>, client_ca| Some(TlsFiles { cert: cert?, key: key?, client_ca });
    let example = || PolicySource::Text { name: EXAMPLE.to_owned(), text: policy_file::example().to_owned() };
    Ok(Options {
        policy: policy.map_or_else(example, PolicySource::File),
        world,
        world_file: Some(state_dir.join(WORLD_FILE)),
        state_dir,
        provider: Door {
            listen: provider_listen,
            tls: files(tls_cert, tls_key, client_ca),
            allow_plaintext,
            clients: provider_clients.into(),
        },
        expander: Door {
            listen: expander_listen,
            tls: files(expander_cert, expander_key, None),
            allow_plaintext,
            clients: Arc::from([]),
        },
        probes: probe_listen.map(|listen| ProbeDoorOptions {
            door: Door { listen, tls: files(probe_cert, probe_key, probe_client_ca), allow_plaintext, clients: Arc::from([]) },
            account: probe_service_account,
        }),
        http: http_listen,
        kube: match kubeconfig {
            Some(path) => KubeOptions::Kubeconfig(path),
            None if in_cluster() && !no_kubernetes => KubeOptions::InCluster,
            None => KubeOptions::None,
        },
        prometheus: prometheus_url.map(|url| Connection { url, token_file: prometheus_token_file, ca: prometheus_ca }),
        retention,
        clock,
        book,
    })
}

/// Ends at ctrl-C, or at what Kubernetes sends before it kills. Listens from the call on, not only from the first wait.
pub(super) fn told_to_stop() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signals = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate()).and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)))
    };
    async move {
        #[cfg(unix)]
        if let Ok((mut terminate, mut interrupt)) = signals {
            let signal = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!(signal, "told to stop: no more calls are taken, what is under way is finished");
            return;
        }
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
