//! What the service is started with.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::SignedDuration;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_journal::{DatabaseUrl, Place};

use crate::api::console::ConsoleOptions;
use crate::clock::Clock;
use crate::feeds::policy_watch::PolicyError;
use crate::feeds::probes::ServiceAccount;
use crate::feeds::prometheus::Connection;
use crate::kube::leader::LeaseName;
use crate::listener::TlsFiles;

/// What the service is started with.
pub struct Options {
    /// Where "now" comes from.
    pub clock: Clock,
    /// The prices.
    pub book: Arc<PriceBook>,
    /// The policy.
    pub policy: PolicySource,
    /// Where the lock and files live, and the journal where it has no database.
    pub state_dir: PathBuf,
    /// The database of the journal; none where it is in the state directory.
    pub journal: Option<DatabaseUrl>,
    /// The Lease by which one of several replicas leads; none where there is but one.
    pub lease: Option<LeaseName>,
    /// The autoscaler's provider.
    pub provider: ListenerOptions,
    /// The autoscaler's expander.
    pub expander: ListenerOptions,
    /// The nodes' probes; nothing listens for them when absent.
    pub probes: Option<ProbeListenerOptions>,
    /// The side port.
    pub http: SocketAddr,
    /// Whether the side port serves `/debug`: all that the autoscaler is shown, to whoever reaches
    /// it.
    pub debug: bool,
    /// Whether `/metrics` has costs and allocation under OpenCost's names too. OpenCost itself has the same names, and sums over both
    /// would be twice what is paid.
    pub opencost_metrics: bool,
    /// The console on the side port; not served when absent.
    pub console: Option<ConsoleOptions>,
    /// The cluster.
    pub kube: KubeOptions,
    /// Where readings and demand signals are asked for; nowhere when absent.
    pub prometheus: Option<Connection>,
    /// How long decisions are kept.
    pub retention: SignedDuration,
}

impl Options {
    /// Where the journal is.
    pub(super) fn place(&self) -> Place {
        self.journal.clone().map_or_else(|| Place::from(&self.state_dir), Place::Database)
    }

    /// A service by itself: all listeners on loopback ports that the system chooses, and no probes, no cluster, no Prometheus.
    /// Decisions are kept for a day.
    pub fn loopback(clock: Clock, book: Arc<PriceBook>, policy: PolicySource, state_dir: PathBuf) -> Self {
        Self {
            clock,
            book,
            policy,
            state_dir,
            journal: None,
            lease: None,
            provider: ListenerOptions::loopback(),
            expander: ListenerOptions::loopback(),
            probes: None,
            http: SocketAddr::from(([127, 0, 0, 1], 0)),
            debug: false,
            opencost_metrics: false,
            console: None,
            kube: KubeOptions::None,
            prometheus: None,
            retention: SignedDuration::from_hours(24),
        }
    }
}

/// Where the policy comes from.
#[derive(Debug, Clone)]
pub enum PolicySource {
    /// A file, which is followed.
    File(PathBuf),
    /// A text that does not change.
    Text {
        /// What it is called in faults.
        name: String,
        /// The text.
        text: String,
    },
    /// A policy that was read already.
    Value(Box<Policy>),
}

/// A listener for calls.
#[derive(Debug, Clone)]
pub struct ListenerOptions {
    /// Where.
    pub listen: SocketAddr,
    /// Its certificates; plaintext when absent.
    pub tls: Option<TlsFiles>,
    /// Whether plaintext may be served off loopback.
    pub allow_plaintext: bool,
    /// Who may call, by the name in the client's certificate.
    pub clients: Arc<[String]>,
}

impl ListenerOptions {
    /// Plaintext on a loopback port that the system chooses.
    pub fn loopback() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 0)), tls: None, allow_plaintext: false, clients: Arc::from([]) }
    }
}

/// The listener for the nodes' probes.
#[derive(Debug, Clone)]
pub struct ProbeListenerOptions {
    /// Where, and its certificates. With a client authority, probes show certificates; without, ServiceAccount tokens.
    pub listener: ListenerOptions,
    /// The ServiceAccount of the probes.
    pub account: ServiceAccount,
}

impl ProbeListenerOptions {
    /// Plaintext on a loopback port that the system chooses.
    pub fn loopback() -> Self {
        Self { listener: ListenerOptions::loopback(), account: ServiceAccount::default() }
    }
}

/// The cluster to watch and to act on.
#[derive(Debug, Clone)]
pub enum KubeOptions {
    /// None: the autoscaler's word is the only evidence.
    None,
    /// The one of this file.
    Kubeconfig(PathBuf),
    /// The one that this process runs in.
    InCluster,
}

impl PolicySource {
    /// The policy, and the file to follow where there is one.
    pub(super) fn read(&self, book: &PriceBook) -> Result<(Policy, Option<PathBuf>), PolicyError> {
        match self {
            Self::File(path) => Ok((crate::feeds::policy_watch::read(path, book)?, Some(path.clone()))),
            Self::Text { name, text } => {
                let policy = crate::policy_file::parse(name, text, Some(book)).map_err(PolicyError::Faults)?;
                Ok((policy, None))
            }
            Self::Value(policy) => Ok((Policy::clone(policy), None)),
        }
    }

    /// What it is called in the log.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Text { name, .. } => name.clone(),
            Self::Value(policy) => policy.cluster.to_string(),
        }
    }
}

impl fmt::Display for KubeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Kubeconfig(path) => write!(f, "that of {}", path.display()),
            Self::InCluster => f.write_str("the one it runs in"),
        }
    }
}
