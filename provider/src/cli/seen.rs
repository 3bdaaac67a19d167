//! What the service that writes a journal saw of its cluster when it last decided.

use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::facts::snapshot::ClusterFacts;

use super::exit::CliError;
use stoker_journal::Reader;
use stoker_service::needs::WATCH_A_CLUSTER;

/// What the last decision saw.
#[derive(Debug)]
pub(super) enum Seen {
    /// None was made yet.
    Nothing,
    /// It was made without a cluster.
    NoCluster(Timestamp),
    /// These nodes and pods.
    Cluster(Timestamp, Arc<ClusterFacts>),
}

impl Seen {
    /// By the journal.
    pub(super) async fn last(reader: &Reader) -> Result<Self, CliError> {
        let Some(decision) = reader.recent(1).await?.pop() else { return Ok(Self::Nothing) };
        let Some(inputs) = reader.replay_inputs(decision.id).await? else { return Ok(Self::Nothing) };
        Ok(match inputs.snapshot.cluster {
            Some(cluster) => Self::Cluster(decision.at, cluster),
            None => Self::NoCluster(decision.at),
        })
    }

    /// The nodes and pods.
    pub(super) fn cluster(&self) -> Option<&ClusterFacts> {
        match self {
            Self::Cluster(_, cluster) => Some(cluster),
            Self::Nothing | Self::NoCluster(_) => None,
        }
    }

    /// When; `None` before the first decision.
    pub(super) const fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Cluster(at, _) | Self::NoCluster(at) => Some(*at),
            Self::Nothing => None,
        }
    }

    /// Why nothing is known of nodes and pods, and what to do; `None` where it is.
    pub(super) fn blind(&self) -> Option<String> {
        match self {
            Self::Cluster(..) => None,
            Self::NoCluster(_) => Some(format!(
                "the service watches no cluster, so it is unknown which nodes joined and which pods they run: \
                 {WATCH_A_CLUSTER}"
            )),
            Self::Nothing => Some(
                "the service has recorded no decision yet: it records its first when nodes are requested or found, \
                 however long it is ready before"
                    .to_owned(),
            ),
        }
    }
}
