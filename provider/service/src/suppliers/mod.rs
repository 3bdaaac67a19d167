//! Suppliers of nodes: what the executor talks to, and the only way to a cloud.

mod console;
mod limited;
mod pace;
mod standing;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{LaunchKey, NodeClassName, ProviderId, SupplierName};
use stoker_core::base::kinds::Taint;
use stoker_core::base::units::MiB;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::template::{DISK, NodeTemplate, Reserves};
use stoker_core::facts::supply::{LaunchOutcome, LaunchRequest, MarketFacts, Observation};
use stoker_core::market::offer::{InstanceSpec, PODS};
use tokio::sync::Notify;

pub use limited::{CallKind, Failure, LimitedSupplier, Went};
pub use pace::{Pace, Turns};
pub(crate) use standing::without_nodes;
pub use standing::{Inventory, Standings, SupplierStanding};

/// What the simulated supplier is called in records, logs and the policy's explanations.
pub use stoker_core::policy::rules::supplier::SIMULATED;

/// A launch, and what its node must bear. Everything that goes into the call follows from these, so that a retry is the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Which launch.
    pub request: LaunchRequest,
    /// When it was first asked for; an earlier process may have done so.
    pub first_asked: Timestamp,
    /// What the node is made with; `None` for the one way that needs no name.
    pub node_class: Option<NodeClassName>,
    /// The labels that its group promised.
    pub labels: BTreeMap<String, String>,
    /// The taints that its group promised.
    pub taints: Vec<Taint>,
    /// How many `nvidia.com/gpu` its machine has; 0 where its group's GPUs go by other names, or nothing was promised.
    pub gpus: u32,
    /// Most pods that its kubelet may run (`maxPods`).
    pub pods: u32,
    /// What its kubelet must reserve (`kubeReserved`) to leave to pods what its group promised.
    pub kept: Reserves,
    /// Least size of the disk that pods share with the kubelet.
    pub disk: MiB,
    /// What its machine is made of; `None` where nothing was promised.
    pub spec: Option<Arc<InstanceSpec>>,
}

impl Launch {
    /// A launch for a node of that group, first asked for then.
    pub fn of(request: LaunchRequest, group: &Group, first_asked: Timestamp) -> Self {
        let NodeTemplate { labels, taints, capacity, allocatable, .. } = &group.template;
        Self {
            request,
            first_asked,
            node_class: group.node_class.clone(),
            labels: labels.clone(),
            taints: taints.clone(),
            // Where GPUs are shared under their own name, a node has more of them than its machine.
            gpus: allocatable.gpus.min(group.spec.advertised_gpus()),
            pods: capacity.pods,
            kept: group.template.reserves(),
            disk: capacity.ephemeral,
            spec: Some(Arc::clone(&group.spec)),
        }
    }
}

impl From<LaunchRequest> for Launch {
    /// A launch, asked for long ago, of a node of which nothing was promised: the kubelet's defaults, and the usual disk.
    fn from(request: LaunchRequest) -> Self {
        Self {
            request,
            first_asked: Timestamp::UNIX_EPOCH,
            node_class: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            gpus: 0,
            pods: PODS,
            kept: Reserves::default(),
            disk: DISK,
            spec: None,
        }
    }
}

/// A supplier could not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{supplier}: {message}")]
pub struct SupplierError {
    /// Which one.
    pub supplier: SupplierName,
    /// What it or the transport said.
    pub message: String,
}

/// Makes, lists and ends machines. The service calls it through [`LimitedSupplier`].
///
/// # Guarantees an implementation gives
/// - The same launch key never makes two machines, however often and by whomever it is asked.
/// - `launch` answers for every key it was given; what it does not know is [`LaunchOutcome::Unclear`], never a refusal.
/// - `observe` lists every machine that carries the cluster's name when it says that it is complete.
pub trait Supplier: Send + Sync + 'static {
    /// What it is called in records and logs.
    fn name(&self) -> &SupplierName;

    /// How many calls it takes at once.
    fn max_in_flight(&self) -> usize;

    /// How many calls of `launch` and `terminate` it takes a second; `None` where it sets no limit, or keeps one of its own.
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// How often it wants to be asked for its markets. A live quote counts for an hour, so several answers may fail before one lapses.
    fn markets_every(&self) -> SignedDuration {
        SignedDuration::from_mins(5)
    }

    /// Wakes when it knows more of its machines than it said last; `None` where it is asked now and then only.
    fn changed(&self) -> Option<&Notify> {
        None
    }

    /// What keeps it from making all that it might, each with its cure; for people.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes machines.
    fn launch(&self, now: Timestamp, batch: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>>;

    /// Lists machines.
    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>>;

    /// Ends machines. Ending one that is gone is fine.
    fn terminate(&self, now: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>>;

    /// Ends machines that did not join the cluster in time: nothing runs there that must be stopped in good order.
    fn terminate_late(
        &self,
        now: Timestamp,
        ids: Vec<ProviderId>,
    ) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        self.terminate(now, ids)
    }

    /// What a machine wrote to its console; `None` where it wrote nothing, or the supplier cannot tell.
    fn console(&self, _: ProviderId) -> BoxFuture<'_, Result<Option<String>, SupplierError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// What it knows of its markets.
    fn market_facts(&self, wall: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>>;
}

#[cfg(test)]
mod tests;
