//! A model of the Cluster Autoscaler: what it asks of a node supplier, when, and what it makes of the answers.
//!
//! [`Autoscaler`] stands between a [`CaClient`], the supplier, and a [`Cluster`], the Nodes and Pods. Each [`Autoscaler::run_once`] is
//! one loop of the original in its order of calls; the [`LoopReport`] tells what it did and every call it made. Time is an
//! argument, nothing sleeps, and the same answers give the same loops, so that a day passes in a moment and every case can be
//! told again.
//!
//! It follows the behaviour of three releases ([`Generation`]), where they differ in ways that a supplier or a user can notice:
//! which missing nodes count as coming, what becomes of a request that ran out of time, what an empty reply of the expander
//! means, and what a group without a template blocks.
//!
//! The order of its calls is held against real ones: `tests/transcripts` has what a release of each generation called while GPU pods
//! came and went, and while the cheapest markets had no stock. A test of `stoker-tests` plays the same with the model and lists what
//! differs.
//!
//! # Caveats
//! What it leaves out:
//! * **The scheduler**: only node selectors, required node affinity of one term with the operator `In`, taints, CPU, memory, GPUs, slices
//!   of them and the number of pods decide what fits. No other affinity, topology spread, host ports, volumes, priorities, preemption or
//!   dynamic resource allocation.
//! * **`DaemonSet`s** as such: their pods count on the nodes they run on and in templates copied from those, not in templates that
//!   came from the provider.
//! * **Pod disruption budgets**, owners, local storage and the `safe-to-evict` annotations: whether a pod may move is one flag on
//!   it. An evicted pod has no grace period of its own.
//! * **Balancing** of similar groups, groups that go from nought to their maximum at once, parallel and salvo scale-up,
//!   provisioning requests, capacity buffers and quotas as objects; of the limits of the cluster only the upper ends.
//! * **Expanders** other than ours and least-waste; so the two price calls are never made.
//! * **Concurrency**: what goroutines do beside the loop (reading the instances of all groups every two minutes, draining and
//!   deleting nodes) happens just before the next loop, one after the other; deletions are never batched.
//! * **Calls for metrics**: `GetAvailableGPUTypes`, and on 1.36 the template of a group whose node was just deleted. Among the nodes
//!   that may go, options are asked for once each, where the original looks two or three times.
//! * **Deadlines**: a call never takes time. A provider that wants to be slow answers an error.
//! * **Process death**: where the original crashes, the loop fails with [`LoopError::UnlistedGroup`]; nor does a health check
//!   restart it after failing for long ([`Autoscaler::restart`] does).
//! * **Soft taints** on unneeded nodes (each node's group is asked for all the same), delayed deletion, events, metrics and the status object.
//! * Waits end *at* their moment, where the original waits until just after it; and where the original goes through groups in
//!   random order, the order here is by id.
//! * The small differences between patch releases, and between releases that are named together.

mod autoscaler;
mod backoff;
mod binpack;
mod by_group;
mod ca_client;
mod cleanup;
mod client;
mod cluster;
mod deletion;
mod expander;
mod fit;
mod limits;
mod memory_cluster;
mod planner;
mod readiness;
mod registry;
mod report;
mod scale_up;
mod seen;
mod settings;
mod templates;
#[cfg(test)]
mod tests;
mod time;
mod timing;

pub use autoscaler::Autoscaler;
pub use ca_client::{
    CaClient, CaError, ExpanderOption, FAKE_CREATE_ERROR, FAKE_NODE_REASON, FAKE_UNREGISTERED, GroupInfo, GroupOptions,
    InstanceError, InstanceInfo, InstanceState, Labels, NodeRef, Template,
};
pub use cluster::{
    Cluster, ClusterError, NodeAffinity, NodeView, PodView, Requests, SCALE_DOWN_DISABLED, STARTUP_TAINT_PREFIXES,
    TO_BE_DELETED_TAINT, Toleration,
};
pub use memory_cluster::{MemoryCluster, PodSpec, Scoring};
pub use report::{Action, Call, CallRecord, LoopError, LoopReport, OptionSeen, Outcome, ScaleUp, Skip};
pub use settings::{Expander, Generation, Settings};
pub use timing::LOOP_GAP;
