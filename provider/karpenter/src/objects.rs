//! Karpenter's objects and Nodes as they are read: everything that is not used is skipped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
pub(crate) use stoker_service::cluster_kind as kind;
use stoker_service::kube::Expression;
pub(crate) use stoker_service::kube::quantity::amount;

use crate::carriers::ClassRef;
use crate::companion::CONDITIONS;

/// The label with the `NodePool` of a claim or a Node.
pub(crate) const NODE_POOL: &str = "karpenter.sh/nodepool";

/// Amounts of resources, as written.
pub(crate) type Amounts = BTreeMap<String, Value>;

/// A `NodePool`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodePool {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: NodePoolSpec,
}

/// What one says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodePoolSpec {
    /// `None` where it has none at all.
    pub(crate) limits: Option<Amounts>,
    /// Set where its size is fixed.
    pub(crate) replicas: Option<Value>,
    pub(crate) weight: Option<Value>,
    pub(crate) disruption: Disruption,
    pub(crate) template: Template,
}

/// When Karpenter ends its nodes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Disruption {
    pub(crate) consolidate_after: Option<Value>,
    pub(crate) budgets: Option<Value>,
}

/// What its nodes are made by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Template {
    pub(crate) spec: TemplateSpec,
}

/// The same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TemplateSpec {
    pub(crate) node_class_ref: Option<ClassRef>,
    pub(crate) requirements: Vec<Expression>,
    pub(crate) taints: Vec<Taint>,
}

kind!(NodePool, "karpenter.sh", "v1", "NodePool", "nodepools");

/// A `NodeClaim`, whosever it is.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodeClaim {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: NodeClaimSpec,
    #[serde(default)]
    pub(crate) status: NodeClaimStatus,
}

/// What one asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeClaimSpec {
    pub(crate) requirements: Vec<Expression>,
}

/// What it got.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeClaimStatus {
    /// What its machine is called; empty while there is none.
    #[serde(rename = "providerID")]
    pub(crate) provider_id: String,
    pub(crate) node_name: String,
    pub(crate) capacity: Amounts,
}

kind!(NodeClaim, "karpenter.sh", "v1", "NodeClaim", "nodeclaims");

/// A `NodeOverlay`: a price that Karpenter compares in place of its own.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodeOverlay {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: NodeOverlaySpec,
    #[serde(default)]
    pub(crate) status: NodeOverlayStatus,
}

/// What one says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeOverlaySpec {
    pub(crate) weight: u32,
    pub(crate) requirements: Vec<Expression>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) price: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) price_adjustment: Option<String>,
}

/// What Karpenter makes of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeOverlayStatus {
    pub(crate) conditions: Vec<Condition>,
}

kind!(NodeOverlay, "karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays");

/// A Node that Karpenter made.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Node {
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: NodeSpec,
    #[serde(default)]
    pub(crate) status: NodeStatus,
}

/// What its kubelet says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    pub(crate) capacity: Amounts,
    /// Whether it is Ready, and those by which it is repaired.
    #[serde(deserialize_with = "read_conditions")]
    pub(crate) conditions: Vec<Condition>,
}

impl NodeStatus {
    /// A condition by its type.
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        Condition::of(&self.conditions, kind)
    }

    /// Since when it is Ready; `None` while it is not.
    pub(crate) fn ready_since(&self) -> Option<Timestamp> {
        self.condition(READY).filter(|ready| ready.status == "True")?.last_transition_time.as_ref().map(|time| time.0)
    }
}

/// A condition of an object.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default, rename = "lastTransitionTime")]
    pub(crate) last_transition_time: Option<Time>,
}

impl Condition {
    /// The condition of that type.
    pub(crate) fn of<'a>(conditions: &'a [Self], kind: &str) -> Option<&'a Self> {
        conditions.iter().find(|condition| condition.kind == kind)
    }

    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

const READY: &str = "Ready";

/// Keeps the conditions that matter: a Node has a dozen, and a cluster thousands of Nodes.
fn read_conditions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Condition>, D::Error> {
    let mut conditions = Vec::<Condition>::deserialize(from)?;
    conditions.retain(|one| one.kind == READY || CONDITIONS.iter().any(|(_, kind)| *kind == one.kind));
    Ok(conditions)
}

/// What it says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    pub(crate) taints: Vec<Taint>,
}

/// A taint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

kind!(Node, "", "v1", "Node", "nodes");

/// A label of an object.
pub(crate) fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation of an object.
pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The name of an object.
pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}
