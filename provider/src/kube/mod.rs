//! Kubernetes: what the cluster's nodes and GPU pods are, and the few things we do to them.
//!
//! [`feed`] tells the engine the facts, [`act`] carries out what it decides about Nodes, [`registrar`] makes the Nodes of simulated
//! machines, [`waiting`] looks after pods that wait, [`guests`] tells of pods that hold no GPU. [`template`] and [`pods`] are the two places where the autoscaler's protobuf meets our own types.

pub mod act;
mod bound;
pub mod client;
#[cfg(test)]
pub(crate) mod fake;
pub mod feed;
pub mod guests;
mod pending;
pub mod pods;
pub mod quantity;
pub mod registrar;
pub mod template;
mod thin;
pub mod waiting;

/// The name under which the API server records what we changed.
pub const FIELD_MANAGER: &str = "stoker";
/// The annotation that keeps the autoscaler from removing a node.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// The annotation that marks [`SCALE_DOWN_DISABLED`] as ours.
pub const HELD: &str = "stoker.dev/held";
/// The annotation that tells a node's verdict, as one word.
pub const VERDICT: &str = "stoker.dev/verdict";
/// The annotation that marks a node as closed to new pods by us.
pub const DRAINING: &str = "stoker.dev/draining";
