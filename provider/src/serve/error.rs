//! Why the service could not start.

use std::net::SocketAddr;

use stoker_core::ids::ClusterName;

use crate::journal::JournalError;
use crate::net::TlsFaults;
use crate::permit::PermitError;
use crate::policy_watch::PolicyError;
use crate::supplier::simulated::WorldError;

/// Why the service could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The state directory is in use, or cannot be made.
    #[error(transparent)]
    Permit(#[from] PermitError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The policy does not hold.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The simulated world cannot be opened.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Certificates do not hold.
    #[error(transparent)]
    Tls(#[from] TlsFaults),
    /// Plaintext would be served where it can be overheard.
    #[error(transparent)]
    Plaintext(#[from] crate::net::PlaintextRefused),
    /// The same where probes are listened for.
    #[error(
        "--probe-listen {0}: plaintext is served on loopback addresses only, since whoever reaches this port may speak for any node: \
         give --probe-cert, --probe-key and --probe-client-ca (`stoker certs --client-name probe:<node>` makes a set), listen on \
         127.0.0.1, or accept the risk with --allow-plaintext"
    )]
    ProbePlaintext(SocketAddr),
    /// Probes would be believed whatever node they name.
    #[error(
        "nothing tells which node a probe is on: give --probe-client-ca (certificates), or watch a cluster, whose API server reviews \
         ServiceAccount tokens"
    )]
    UnprovenProbes,
    /// Prometheus cannot be asked.
    #[error(transparent)]
    Prometheus(#[from] crate::prometheus::NoAsker),
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
        "{}: the nodes kept here are of the cluster {other}, and the policy's clusterName is {cluster}: they would run on, unknown to \
         anybody. Give clusterName back its value, or start with a state directory of its own (--state-dir)", .state_dir.display()
    )]
    OtherCluster {
        /// The state directory.
        state_dir: std::path::PathBuf,
        /// The cluster of its nodes.
        other: String,
        /// The policy's.
        cluster: ClusterName,
    },
    /// The cluster cannot be talked to.
    #[error(transparent)]
    Kubernetes(#[from] crate::kube::client::ClientError),
    /// It runs inside a real cluster, and the supplier is simulated.
    #[error(
        "this runs inside a Kubernetes cluster and the supplier is simulated: the nodes that it announces never exist. \
         Give --simulated-in-cluster if that is what you want (a rehearsal), or run it outside"
    )]
    SimulatedInCluster,
}
