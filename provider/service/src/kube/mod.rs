//! Kubernetes: what the cluster's nodes and GPU pods are, and the few things done to them.
//!
//! [`feed`] gives the engine the facts, [`act`] carries out what it decides about Nodes. The
//! autoscaler's protobuf meets our own types in [`template`] and [`pods`] only. Controllers that read
//! the published view stand in `controllers`.

/// Makes a type with a field `meta` one of a cluster-wide kind, which can be listed and watched.
#[macro_export]
macro_rules! cluster_kind {
    ($kind:ident, $group:literal, $version:literal, $name:literal, $plural:literal) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $name.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.meta
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.meta
            }
        }
    };
}

pub mod act;
mod bound;
pub mod client;
pub mod feed;
pub(crate) mod gpu_labels;
pub mod leader;
pub mod node_class;
pub(crate) mod node_labels;
pub(crate) mod pages;
pub(crate) mod pending;
pub mod pods;
pub mod quantity;
pub mod template;
pub mod thin;
pub mod tokens;

pub use pending::Expression;

/// The name under which the API server records what we changed.
pub const FIELD_MANAGER: &str = "stoker";
/// The annotation that keeps the autoscaler from removing a node.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// The annotation that marks [`SCALE_DOWN_DISABLED`] as ours.
pub const HELD: &str = "stoker.dev/scale-down-blocked";
/// The annotation that tells a node's verdict, as one word.
pub const VERDICT: &str = "stoker.dev/verdict";
/// The annotation that marks a node as closed to new pods by us.
pub const DRAINING: &str = "stoker.dev/draining";
/// Namespaces whose pods are never told to go: of the cluster, and Stoker's own. The policy
/// `stoker-pods-removal` of `manifests/stoker/admission.yaml` holds the service to that.
pub const SYSTEM_NAMESPACES: [&str; 5] = ["kube-system", "kube-public", "kube-node-lease", "stoker", "stoker-probe"];
