//! Why the service could not start.

use std::net::SocketAddr;

use stoker_core::base::ids::ClusterName;

use crate::feeds::policy_watch::PolicyError;
use crate::listener::TlsFaults;
use stoker_journal::JournalError;
use stoker_journal::state_lock::StateLockError;

/// Why the service could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The state directory is in use, or cannot be made.
    #[error(transparent)]
    StateLock(#[from] StateLockError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What the journal remembers cannot be moved to where the wall stands.
    #[error("the journal's memory cannot be moved to the time on the wall")]
    Rebase(#[source] serde_json::Error),
    /// The policy does not hold.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Certificates do not hold.
    #[error(transparent)]
    Tls(#[from] TlsFaults),
    /// Plaintext would be served where it can be overheard.
    #[error(transparent)]
    Plaintext(#[from] crate::listener::PlaintextRefused),
    /// The same where probes are listened for.
    #[error(
        "--probe-listen {0}: plaintext is served on loopback addresses only, since anyone who reaches this port may report \
         for any node: give --probe-cert, --probe-key and --probe-client-ca (`stoker certs --client-name probe:<node>` makes \
         a set), listen on 127.0.0.1, or accept the risk with --allow-plaintext"
    )]
    ProbePlaintext(SocketAddr),
    /// Probes would be believed whatever node they name.
    #[error(
        "it is unknown which node a probe is on: give --probe-client-ca (certificates), or watch a cluster, whose API server \
         reviews ServiceAccount tokens"
    )]
    UnprovenProbes,
    /// The console cannot be served as it is asked for.
    #[error(transparent)]
    Console(#[from] crate::api::console::NoAccess),
    /// Prometheus cannot be asked.
    #[error(transparent)]
    Prometheus(#[from] crate::feeds::prometheus::NoAsker),
    /// An address cannot be listened on.
    #[error("{addr}: cannot listen for {door}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What for.
        door: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The state is another cluster's.
    #[error(
        "{journal}: this state belongs to cluster {other}, and the policy's clusterName is {cluster}: its nodes would keep running \
         unmanaged. Restore clusterName, or start with a new state directory (--state-dir) or database (--journal)"
    )]
    OtherCluster {
        /// Where the journal is.
        journal: String,
        /// The cluster of its nodes.
        other: String,
        /// The policy's.
        cluster: ClusterName,
    },
    /// The journal did not open in time.
    #[error(
        "journal {0}: did not open within 2 min; check that PostgreSQL answers. The Lease is given back, as the other replica may reach it"
    )]
    SilentJournal(String),
    /// Another replica may lead meanwhile.
    #[error("the Lease was lost while the journal was opened: another replica may lead")]
    LostLead,
    /// Replicas have no cluster whose Lease they could hold.
    #[error("--lease {0}: there is no cluster that keeps it: give --kubeconfig FILE, or run in a cluster")]
    NoLease(String),
    /// The cluster cannot be talked to.
    #[error(transparent)]
    Kubernetes(#[from] crate::kube::client::ClientError),
}
