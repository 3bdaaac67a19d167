//! `stoker serve`: the service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use jiff::SignedDuration;

use super::args::{JournalArg, duration};
use super::console::ConsoleArgs;
use super::exit::{CliError, Exit};
use stoker_aws::config::Config;
use stoker_aws::{Access, Aws};
use stoker_core::facts::foreign::Promises;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::supplier::{SupplierKind, SupplierRule};
use stoker_karpenter::Karpenter;
use stoker_karpenter::companion::Companion;
use stoker_plugin::client::Plugin;
use stoker_service::boot::Boot;
use stoker_service::clock::Clock;
use stoker_service::feeds::probes::ServiceAccount;
use stoker_service::feeds::prometheus::Connection;
use stoker_service::kube::client::in_cluster;
use stoker_service::kube::leader::LeaseName;
use stoker_service::kube::tokens::{BootTokens, SEED_FILE};
use stoker_service::listener::{DialFiles, TlsFiles};
use stoker_service::policy_file;
use stoker_service::price_tables::{self, EXAMPLE};
use stoker_service::serve::{KubeOptions, ListenerOptions, Options, PolicySource, ProbeListenerOptions, State};
use stoker_service::suppliers::{SIMULATED, Supplier};
use stoker_simulated::{StartError, WorldOptions, start_beside};
use tokio::sync::watch;

/// The simulated machines, in the state directory.
const WORLD_FILE: &str = "world.jsonl";

/// Runs the service: the autoscaler's provider, its expander, and a side port with /metrics,
/// /healthz and /readyz.
///
/// Without options: the built-in example policy and simulated world, on loopback, with its state in the user's state directory.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct ServeArgs {
    /// Policy file; read again whenever it changes [default: the built-in example]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// World file: how the simulated markets behave [default: the built-in world]
    #[arg(long, env = "STOKER_WORLD", value_name = "FILE")]
    pub world: Option<PathBuf>,
    /// Folder of price tables to use instead of the built-in ones; read at start only
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    pub prices_dir: Option<PathBuf>,
    /// Where what must outlive the service is kept.
    #[command(flatten)]
    pub journal: JournalArg,
    /// How long decisions are kept for `stoker explain`, and which pods there were for `stoker report`, that at least 3 days
    #[arg(long, env = "STOKER_RETENTION", value_name = "TIME", default_value = "30d", value_parser = duration)]
    pub retention: SignedDuration,

    /// Listen address of the autoscaler's provider
    #[arg(
        long,
        env = "STOKER_PROVIDER_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:8086",
        help_heading = "Addresses"
    )]
    pub provider_listen: SocketAddr,
    /// Listen address of the autoscaler's expander
    #[arg(
        long,
        env = "STOKER_EXPANDER_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:8087",
        help_heading = "Addresses"
    )]
    pub expander_listen: SocketAddr,
    /// Listen address of the side port, in plain HTTP
    #[arg(long, env = "STOKER_HTTP_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8088", help_heading = "Addresses")]
    pub http_listen: SocketAddr,
    /// Serve what `stoker groups` (/debug/view) and `stoker top` (/debug/top) read, and /debug/signals, on the side port, to whoever
    /// reaches it
    #[arg(long, env = "STOKER_DEBUG", help_heading = "Addresses")]
    pub debug: bool,
    /// Show costs and GPU allocation under OpenCost's names in /metrics too, by node and by pod; not beside OpenCost, which has the
    /// same names
    #[arg(long, env = "STOKER_OPENCOST_METRICS", help_heading = "Addresses")]
    pub opencost_metrics: bool,
    /// The console.
    #[command(flatten)]
    pub(super) console: ConsoleArgs,

    /// Lease by which one of several replicas leads; the others wait, and are not ready [default: none, for one replica]
    #[arg(long, env = "STOKER_LEASE", value_name = "NAMESPACE/NAME", requires = "journal", help_heading = "Replicas")]
    pub lease: Option<LeaseName>,

    /// Listen address for probes [default: none]
    #[arg(long, alias = "probe-addr", env = "STOKER_PROBE_LISTEN", value_name = "ADDR", help_heading = "Addresses")]
    pub probe_listen: Option<SocketAddr>,

    /// Certificate of the provider, in PEM; clients must then present their own
    #[arg(long, env = "STOKER_TLS_CERT", value_name = "FILE", requires_all = ["tls_key", "client_ca"], help_heading = "TLS")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM
    #[arg(long, env = "STOKER_TLS_KEY", value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    pub tls_key: Option<PathBuf>,
    /// CA bundle for the provider's client certificates, in PEM
    #[arg(long, env = "STOKER_CLIENT_CA", value_name = "FILE", requires = "tls_cert", help_heading = "TLS")]
    pub client_ca: Option<PathBuf>,
    /// Certificate of the expander, in PEM
    #[arg(long, env = "STOKER_EXPANDER_CERT", value_name = "FILE", requires = "expander_key", help_heading = "TLS")]
    pub expander_cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM
    #[arg(long, env = "STOKER_EXPANDER_KEY", value_name = "FILE", requires = "expander_cert", help_heading = "TLS")]
    pub expander_key: Option<PathBuf>,
    /// Certificate of the probes' listener, in PEM
    #[arg(long, env = "STOKER_PROBE_CERT", value_name = "FILE", requires_all = ["probe_key", "probe_listen"], help_heading = "TLS")]
    pub probe_cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM
    #[arg(long, env = "STOKER_PROBE_KEY", value_name = "FILE", requires = "probe_cert", help_heading = "TLS")]
    pub probe_key: Option<PathBuf>,
    /// CA bundle for probe client certificates, each naming `probe:<node>` [default: probes present ServiceAccount tokens]
    #[arg(long, env = "STOKER_PROBE_CLIENT_CA", value_name = "FILE", requires = "probe_cert", help_heading = "TLS")]
    pub probe_client_ca: Option<PathBuf>,
    /// File of serial numbers, one a line in hexadecimal: client certificates with one of them are
    /// refused by every listener, whichever CA signed them, and their connections closed; read again whenever it changes [default: none]
    #[arg(long, env = "STOKER_DENIED_SERIALS", value_name = "FILE", help_heading = "TLS")]
    pub denied_serials: Option<PathBuf>,
    /// ServiceAccount that probes run as
    #[arg(
        long,
        env = "STOKER_PROBE_SERVICE_ACCOUNT",
        value_name = "NAMESPACE/NAME",
        default_value_t = ServiceAccount::default(),
        help_heading = "TLS"
    )]
    pub probe_service_account: ServiceAccount,
    /// Name in a client certificate that may call the provider; repeatable
    #[arg(
        long = "provider-client",
        env = "STOKER_PROVIDER_CLIENT",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "cluster-autoscaler",
        help_heading = "TLS"
    )]
    pub provider_clients: Vec<String>,
    /// Serve without TLS on addresses that other machines can reach: anyone who reaches them can buy and delete nodes
    #[arg(long, env = "STOKER_ALLOW_PLAINTEXT", help_heading = "TLS")]
    pub allow_plaintext: bool,

    /// Cluster whose nodes and pods to watch and annotate [default: the cluster that this runs in, else none]. The simulated supplier
    /// also registers its machines there, as Nodes that do not exist
    #[arg(long, env = "STOKER_KUBECONFIG", value_name = "FILE", help_heading = "Kubernetes")]
    pub kubeconfig: Option<PathBuf>,
    /// Do not watch a cluster; trust the autoscaler alone about which nodes are in use
    #[arg(long, env = "STOKER_NO_KUBERNETES", conflicts_with = "kubeconfig", help_heading = "Kubernetes")]
    pub no_kubernetes: bool,
    /// Let the simulated supplier run inside a real cluster: its nodes are announced but do not exist
    #[arg(long, env = "STOKER_SIMULATED_IN_CLUSTER", help_heading = "Kubernetes")]
    pub simulated_in_cluster: bool,

    /// Prometheus to query for GPU readings (dcgm-exporter) and the policy's demand signals [default: none]
    #[arg(long, env = "STOKER_PROMETHEUS_URL", value_name = "URL", help_heading = "Prometheus")]
    pub prometheus_url: Option<String>,
    /// File with a bearer token for it; read again for each query
    #[arg(
        long,
        env = "STOKER_PROMETHEUS_TOKEN_FILE",
        value_name = "FILE",
        requires = "prometheus_url",
        help_heading = "Prometheus"
    )]
    pub prometheus_token_file: Option<PathBuf>,
    /// CA bundle for its certificate, in PEM [default: the system's CAs]
    #[arg(long, env = "STOKER_PROMETHEUS_CA", value_name = "FILE", requires = "prometheus_url", help_heading = "Prometheus")]
    pub prometheus_ca: Option<PathBuf>,
}

/// What the log says that it serves.
struct About {
    policy: String,
    state_dir: String,
    cluster: String,
}

/// Carries the command out: until the process is told to stop, or a part of the service ends by itself.
pub(super) async fn run(args: ServeArgs) -> Result<Exit, CliError> {
    let (options, world) = options(args)?;
    let about = About {
        policy: options.policy.name(),
        state_dir: options.state_dir.display().to_string(),
        cluster: options.kube.to_string(),
    };
    let book = Arc::clone(&options.book);
    let (promised, told) = watch::channel(None);
    let mut stop = Box::pin(told_to_stop());
    let mut lead = None;
    let state = tokio::select! {
        state = Box::pin(State::open_as(options, &mut lead)) => Some(state.map_err(StartError::from)),
        () = &mut stop => None,
    };
    let ended = match state {
        Some(Ok(state)) => Box::pin(serve(state.with_promises(told), world, book, promised, stop, &about)).await,
        Some(Err(error)) => Err(error.into()),
        None => Ok(Exit::Done),
    };
    // However it ended: another replica need not wait.
    if let Some(lead) = lead {
        lead.give_back().await;
    }
    ended
}

/// Serves on a state that was opened, until the process is told to stop.
async fn serve(
    state: State,
    world: WorldOptions,
    book: Arc<PriceBook>,
    promised: watch::Sender<Option<Promises>>,
    stop: impl Future<Output = ()>,
    about: &About,
) -> Result<Exit, CliError> {
    let tokens = boot_tokens(&state)?;
    let Others { suppliers: others, karpenters } = others(&state, tokens.as_ref()).await?;
    let replicas = state.options().lease.as_ref().map(ToString::to_string);
    let simulated = has_simulated(state.suppliers());
    if simulated && state.options().lease.is_some() {
        let why = "--lease: the simulated supplier keeps its machines in the state directory, so each replica would have a cloud of its \
                   own: name another supplier in the policy, or run one replica";
        return Err(CliError::Usage(why.to_owned()));
    }
    let named = simulated.then_some(SIMULATED).into_iter().map(str::to_owned);
    let suppliers = named.chain(others.iter().map(|supplier| supplier.name().to_string())).collect::<Vec<_>>().join(", ");
    let mut running = if simulated {
        Box::pin(start_beside(state, world, others)).await?.into_running()
    } else {
        Box::pin(stoker_service::serve::start(state, &others)).await.map_err(StartError::from)?
    };
    if let Some(tokens) = tokens {
        let handle = running.handle.clone();
        running.inner.run("boot tokens", async move { tokens.clean(|| Arc::clone(&handle.view().memory)).await });
    }
    for karpenter in karpenters {
        running.inner.run("a supplier of kind karpenter", async move { karpenter.ended().await });
    }
    tracing::info!(
        policy = about.policy,
        state_dir = about.state_dir,
        suppliers,
        cluster = about.cluster,
        provider = %running.provider,
        expander = %running.expander,
        probes = running.probes.map(tracing::field::display),
        http = %running.http,
        console = running.console.map(tracing::field::display),
        "serving"
    );
    if let Some((client, (feed, act))) = running.client.clone().zip(running.kube.clone()) {
        let handle = running.handle.clone();
        let view = Box::new(move || Arc::clone(&handle.view()));
        let metrics = running.metrics.clone();
        let readings = Arc::clone(&running.readings);
        let companion = Companion { client, view, feed, act, book, metrics, readings, promised, replicas };
        running.inner.run("the Karpenter companion", companion.run());
    }
    let sound = running.run_until(stop).await;
    Ok(if sound { Exit::Done } else { Exit::Failed })
}

/// Whether the simulated supplier is one of them: it is the one where the policy names none.
fn has_simulated(suppliers: &[SupplierRule]) -> bool {
    suppliers.is_empty() || suppliers.iter().any(|one| one.kind == SupplierKind::Simulated)
}

/// What makes tokens for new machines, where a plugin's machines boot with a template and there is a cluster.
fn boot_tokens(state: &State) -> Result<Option<Arc<BootTokens>>, CliError> {
    let has_template = |one: &SupplierRule| matches!(&one.kind, SupplierKind::Plugin { boot_template: Some(_), .. });
    let Some(client) = state.client().filter(|_| state.suppliers().iter().any(has_template)) else { return Ok(None) };
    let (dir, clock) = (&state.options().state_dir, state.options().clock.clone());
    if state.options().lease.is_some() && !dir.join(SEED_FILE).exists() {
        return Err(CliError::Usage(format!(
            "--lease: boot tokens need the same seed in both replicas, or a launch that is asked again has another token: put the same \
             32 random bytes as {SEED_FILE} into {} of each",
            dir.display()
        )));
    }
    let tokens = BootTokens::open(client, state.cluster().clone(), dir, clock);
    let tokens = tokens.map_err(CliError::failed(format!("the seed of boot tokens in {} cannot be used", dir.display())))?;
    Ok(Some(Arc::new(tokens)))
}

/// The suppliers that the policy names, but for the simulated one.
#[derive(Default)]
struct Others {
    suppliers: Vec<Arc<dyn Supplier>>,
    /// Those that follow the cluster: the service ends with the first that no longer does.
    karpenters: Vec<Arc<Karpenter>>,
}

async fn others(state: &State, tokens: Option<&Arc<BootTokens>>) -> Result<Others, CliError> {
    let mut others = Others::default();
    for SupplierRule { name, kind } in state.suppliers() {
        let (name, cluster) = (name.clone(), state.cluster().clone());
        match kind {
            SupplierKind::Simulated => {}
            SupplierKind::Plugin { endpoint, boot_template, tls } => {
                let boot = boot_template.as_ref().map(|file| Boot::read(Path::new(file), tokens.cloned())).transpose()?;
                let dial = tls.as_ref().map(|tls| DialFiles {
                    ca: tls.ca_file.clone().into(),
                    cert: tls.cert_file.clone().into(),
                    key: tls.key_file.clone().into(),
                });
                let plugin = Plugin::new(name, cluster, (endpoint, dial), boot);
                others.suppliers.push(Arc::new(plugin.map_err(|error| CliError::Usage(error.to_string()))?));
            }
            SupplierKind::Aws { config } => {
                let file = PathBuf::from(config);
                let config = Config::read(&file)?;
                let access = Access::of_system(state.options().clock.clone());
                let access = access.map_err(|why| CliError::Usage(format!("supplier {name} cannot make calls: {why}")))?;
                let aws = Aws::start(name, cluster, (config, Some(file)), &state.options().book, access).await;
                others.suppliers.push(Arc::new(aws));
            }
            SupplierKind::Karpenter => {
                let client = state.client().ok_or_else(|| {
                    CliError::Usage(format!(
                        "supplier {name} makes NodeClaims, and there is no cluster: give --kubeconfig FILE"
                    ))
                })?;
                let karpenter = Arc::new(Karpenter::start(name, cluster, client));
                others.karpenters.push(Arc::clone(&karpenter));
                others.suppliers.push(karpenter);
            }
        }
    }
    Ok(others)
}

fn options(args: ServeArgs) -> Result<(Options, WorldOptions), CliError> {
    let ServeArgs {
        policy,
        world,
        prices_dir,
        journal,
        retention,
        provider_listen,
        expander_listen,
        http_listen,
        debug,
        opencost_metrics,
        console,
        tls_cert,
        tls_key,
        client_ca,
        expander_cert,
        expander_key,
        probe_listen,
        probe_cert,
        probe_key,
        probe_client_ca,
        denied_serials,
        probe_service_account,
        provider_clients,
        allow_plaintext,
        kubeconfig,
        no_kubernetes,
        simulated_in_cluster,
        prometheus_url,
        prometheus_token_file,
        prometheus_ca,
        lease,
    } = args;
    let clock = Clock::system();
    let book = Arc::new(price_tables::prices(prices_dir.as_deref(), clock.now())?);
    // Also where no cluster is watched: an autoscaler beside it would wait for the nodes all the same.
    if in_cluster() && !simulated_in_cluster {
        let asked = price_tables::policy(policy.as_deref(), &book);
        if !asked.is_ok_and(|policy| !has_simulated(&policy.suppliers)) {
            return Err(StartError::SimulatedInCluster.into());
        }
    }
    let config = price_tables::world_config(world.as_deref(), &book, clock.now())?;
    let state_dir = journal.state_dir()?;
    let world = WorldOptions { config, file: Some(state_dir.join(WORLD_FILE)) };
    let checks_clients = client_ca.is_some() || probe_client_ca.is_some() || console.checks_clients();
    if denied_serials.is_some() && !checks_clients {
        let why = "--denied-serials: no listener asks for client certificates: give --client-ca, --probe-client-ca or --console-client-ca, or \
                   leave it out";
        return Err(CliError::Usage(why.to_owned()));
    }
    let files = |cert: Option<PathBuf>, key: Option<PathBuf>, client_ca: Option<PathBuf>| {
        let denied_serials = client_ca.as_ref().and(denied_serials.clone());
        Some(TlsFiles { cert: cert?, key: key?, client_ca, denied_serials })
    };
    let example = || PolicySource::Text { name: EXAMPLE.to_owned(), text: policy_file::example().to_owned() };
    let options = Options {
        policy: policy.map_or_else(example, PolicySource::File),
        state_dir,
        journal: journal.database()?,
        lease,
        provider: ListenerOptions {
            listen: provider_listen,
            tls: files(tls_cert, tls_key, client_ca),
            allow_plaintext,
            clients: provider_clients.into(),
        },
        expander: ListenerOptions {
            listen: expander_listen,
            tls: files(expander_cert, expander_key, None),
            allow_plaintext,
            clients: Arc::from([]),
        },
        probes: probe_listen.map(|listen| ProbeListenerOptions {
            listener: ListenerOptions {
                listen,
                tls: files(probe_cert, probe_key, probe_client_ca),
                allow_plaintext,
                clients: Arc::from([]),
            },
            account: probe_service_account,
        }),
        http: http_listen,
        debug,
        opencost_metrics,
        console: console.options(&book, files)?,
        kube: match kubeconfig {
            Some(path) => KubeOptions::Kubeconfig(path),
            None if in_cluster() && !no_kubernetes => KubeOptions::InCluster,
            None => KubeOptions::None,
        },
        prometheus: prometheus_url.map(|url| Connection { url, token_file: prometheus_token_file, ca: prometheus_ca }),
        retention,
        clock,
        book,
    };
    Ok((options, world))
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
            tracing::info!(signal, "stopping: no new calls are accepted, running calls are finished");
            return;
        }
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
