//! Pods, as far as it decides which nodes they may use.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::catalogue::isolation::PodNeeds;
use stoker_core::catalogue::template::NodeTemplate;

use super::pods::{Amounts, ReadContainer, ReadResources, ReadSpec, Requests, requests};
use super::thin::{RawMeta, row};

/// A Pod that waits for a node, or has one.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Raw")]
pub(crate) struct PendingRow {
    /// Namespace, name, uid and resource version only.
    pub(crate) meta: ObjectMeta,
    pub(crate) created_at: Option<Timestamp>,
    /// What it asks for; `None` where an amount of it cannot be read.
    pub(crate) requests: Option<Requests>,
    /// Its tolerations, whole: they are written back with others added.
    pub(crate) tolerations: Vec<Value>,
    pub(crate) node_selector: BTreeMap<String, String>,
    /// Whether it has a node.
    pub(crate) is_bound: bool,
    /// Whether it belongs to its node, as a pod of a `DaemonSet`.
    pub(crate) of_node: bool,
    /// Its required node affinity: one of the terms must hold; `None` where it has none.
    terms: Option<Vec<Term>>,
}

row!(PendingRow, Pod, NamespaceResourceScope);

impl PendingRow {
    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace().unwrap_or_default(), self.name_any())
    }

    /// Whether its selector, its node affinity and its tolerations admit such a node, the taint `but` aside.
    pub(crate) fn admits(&self, node: &NodeTemplate, but: &str) -> bool {
        self.obstacles(node, but).next().is_none()
    }

    /// All that keeps it off such a node, the taint `but` aside.
    pub(crate) fn obstacles<'a>(&'a self, node: &'a NodeTemplate, but: &'a str) -> impl Iterator<Item = Obstacle<'a>> {
        let differs = |(key, value): &(&String, &String)| node.labels.get(*key) != Some(*value);
        let selector = self.node_selector.iter().filter(differs);
        let terms = self.terms.as_deref().filter(|terms| !terms.iter().any(|term| term.holds(&node.labels)));
        let taints = node.taints.iter().filter(move |taint| taint.key != but && !self.tolerates(taint));
        selector
            .map(|(key, value)| Obstacle::Selector { key, value })
            .chain(terms.map(|terms| Obstacle::Affinity { key: alone(terms, &node.labels) }))
            .chain(taints.map(Obstacle::Taint))
    }

    /// What it asks of a node; `None` where an amount cannot be read. It has waited until `now`.
    pub(crate) fn needs(&self, now: Timestamp) -> Option<PodNeeds> {
        let requests = self.requests.as_ref()?;
        Some(PodNeeds {
            milli_cpu: requests.milli_cpu,
            memory_bytes: requests.memory_bytes,
            gpus: u32::try_from(requests.gpus).unwrap_or(u32::MAX),
            slices: requests.slices.clone(),
            waited: self.created_at.map_or(SignedDuration::ZERO, |since| now.duration_since(since)),
        })
    }

    /// The labels that its node must have, each with the values that would do: of its selector, and of its required node affinity where
    /// that leaves no choice between terms.
    pub(crate) fn wanted(&self) -> Vec<(&str, Vec<&str>)> {
        wanted(&self.node_selector, self.terms.as_deref())
    }

    /// Whether it may run on a node with that taint.
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        taint.effect == TaintEffect::PreferNoSchedule || self.tolerations.iter().any(|toleration| covers(toleration, taint))
    }
}

/// The labels that a node must have by a selector and required terms, as [`PendingRow::wanted`] tells them.
pub(super) fn wanted<'a>(selector: &'a BTreeMap<String, String>, terms: Option<&'a [Term]>) -> Vec<(&'a str, Vec<&'a str>)> {
    let selector = selector.iter().map(|(key, value)| (key.as_str(), vec![value.as_str()]));
    let expressions = match terms {
        Some([term]) => term.match_expressions.as_deref().unwrap_or_default(),
        _ => &[],
    };
    let required = expressions.iter().filter(|expression| expression.operator == "In").map(|expression| {
        let values = expression.values.as_deref().unwrap_or_default();
        (expression.key.as_str(), values.iter().map(String::as_str).collect())
    });
    selector.chain(required).collect()
}

/// What keeps a pod off a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle<'a> {
    /// It selects a label that the node does not have.
    Selector {
        /// The label.
        key: &'a str,
        /// The value that it selects.
        value: &'a str,
    },
    /// Its required node affinity does not hold.
    Affinity {
        /// The label that it is about, where there is one.
        key: Option<&'a str>,
    },
    /// It does not tolerate this taint.
    Taint(&'a Taint),
}

/// The label by which the only term fails.
fn alone<'a>(terms: &'a [Term], labels: &BTreeMap<String, String>) -> Option<&'a str> {
    let [Term { match_expressions: Some(expressions), .. }] = terms else { return None };
    expressions.iter().find(|expression| !expression.holds(labels)).map(|expression| expression.key.as_str())
}

fn covers(toleration: &Value, taint: &Taint) -> bool {
    let of = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or_default();
    let effect = of("effect").is_empty() || of("effect") == taint.effect.as_str();
    let (key, exists) = (of("key"), of("operator") == "Exists");
    effect && if key.is_empty() { exists } else { key == taint.key && (exists || of("value") == taint.value) }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Term {
    match_expressions: Option<Vec<Expression>>,
    match_fields: Option<Vec<Expression>>,
}

/// What is asked of one label, by an operator of node affinity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expression {
    /// The label.
    pub key: String,
    /// The operator.
    pub operator: String,
    /// What it compares with.
    pub values: Option<Vec<String>>,
}

impl Term {
    /// Fields tell one node from the others, and a node that is still to come has none of them. An empty term holds nowhere.
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let expressions = self.match_expressions.as_deref().unwrap_or_default();
        self.match_fields.as_ref().is_none_or(Vec::is_empty)
            && !expressions.is_empty()
            && expressions.iter().all(|expression| expression.holds(labels))
    }
}

impl Expression {
    /// Whether such labels are what is asked.
    pub fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let label = labels.get(&self.key);
        let values = self.values.as_deref().unwrap_or_default();
        let number = |text: &String| text.parse::<i64>().ok();
        let than = || Some((number(label?)?, number(values.first()?)?));
        match self.operator.as_str() {
            "In" => label.is_some_and(|label| values.contains(label)),
            "NotIn" => label.is_none_or(|label| !values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            "Gt" => than().is_some_and(|(label, value)| label > value),
            "Lt" => than().is_some_and(|(label, value)| label < value),
            // Of Karpenter's requirements only.
            "Gte" => than().is_some_and(|(label, value)| label >= value),
            "Lte" => than().is_some_and(|(label, value)| label <= value),
            _ => false,
        }
    }
}

#[derive(Deserialize)]
struct Raw {
    metadata: RawMeta,
    spec: Option<RawSpec>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    node_name: Option<String>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<RawAffinity>,
    tolerations: Option<Vec<Value>>,
    containers: Option<Vec<RawContainer>>,
    init_containers: Option<Vec<RawContainer>>,
    overhead: Option<BTreeMap<String, Value>>,
    resources: Option<RawResources>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawAffinity {
    node_affinity: Option<RawNodeAffinity>,
}

impl RawAffinity {
    /// Its required terms.
    pub(super) fn required(self) -> Option<Vec<Term>> {
        self.node_affinity?.required.map(|required| required.node_selector_terms)
    }
}

#[derive(Deserialize, Default)]
struct RawNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<RawRequired>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequired {
    node_selector_terms: Vec<Term>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer {
    resources: Option<RawResources>,
    restart_policy: Option<String>,
}

#[derive(Deserialize)]
struct RawResources {
    requests: Option<BTreeMap<String, Value>>,
}

pub(super) fn amounts(raw: Option<BTreeMap<String, Value>>) -> Amounts {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    raw.unwrap_or_default().into_iter().map(|(key, value)| (key, Quantity { string: Some(text(value)) })).collect()
}

fn resources(raw: Option<RawResources>) -> Option<ReadResources> {
    raw.map(|raw| ReadResources { requests: amounts(raw.requests) })
}

fn containers(raw: Option<Vec<RawContainer>>) -> Vec<ReadContainer> {
    let read = |raw: RawContainer| ReadContainer { resources: resources(raw.resources), restart_policy: raw.restart_policy };
    raw.unwrap_or_default().into_iter().map(read).collect()
}

impl From<Raw> for PendingRow {
    fn from(mut raw: Raw) -> Self {
        let spec = raw.spec.unwrap_or_default();
        let asks = ReadSpec {
            containers: containers(spec.containers),
            init_containers: containers(spec.init_containers),
            overhead: amounts(spec.overhead),
            resources: resources(spec.resources),
            ..ReadSpec::default()
        };
        Self {
            of_node: raw.metadata.owner() == Some("DaemonSet"),
            is_bound: spec.node_name.is_some_and(|name| !name.is_empty()),
            meta: raw.metadata.thin(),
            created_at: raw.metadata.creation_timestamp.and_then(|text| text.parse().ok()),
            requests: requests(&asks).ok(),
            tolerations: spec.tolerations.unwrap_or_default(),
            node_selector: spec.node_selector.unwrap_or_default(),
            terms: spec.affinity.and_then(RawAffinity::required),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoker_core::base::units::MiB;
    use stoker_core::catalogue::template::Resources;
    use stoker_core::market::sharing::Slices;

    use super::*;

    fn pod(spec: &Value) -> PendingRow {
        serde_json::from_value(json!({ "metadata": { "namespace": "ml", "name": "p" }, "spec": spec })).unwrap()
    }

    fn node() -> NodeTemplate {
        let size = Resources { milli_cpu: 4000, memory: MiB(1024), ephemeral: MiB(1024), pods: 110, gpus: 1 };
        let taint = |key: &str, value: &str| Taint { key: key.into(), value: value.into(), effect: TaintEffect::NoSchedule };
        NodeTemplate {
            labels: [("stoker.dev/pool", "small"), ("size", "7")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            taints: vec![taint("nvidia.com/gpu", "true"), taint("stoker.dev/shape", "g6.xlarge")],
            capacity: size,
            allocatable: size,
            slices: Slices::default(),
        }
    }

    #[test]
    fn a_pod_is_admitted_by_what_it_says_itself_shape_aside() {
        let gpu = json!([{ "key": "nvidia.com/gpu", "operator": "Exists" }]);
        let with = |field: &str, value: Value| {
            let mut spec = json!({ "tolerations": gpu });
            spec[field] = value;
            pod(&spec).admits(&node(), "stoker.dev/shape")
        };
        assert!(with("nodeSelector", json!(null)));
        assert!(with("nodeSelector", json!({ "stoker.dev/pool": "small" })));
        assert!(!with("nodeSelector", json!({ "stoker.dev/pool": "large" })));
        assert!(!with("tolerations", json!(null)), "the pool's own taint keeps it away");
        assert!(
            !pod(&json!({ "tolerations": gpu })).admits(&node(), "other"),
            "the shape's taint counts where it is not left out"
        );
        let required = |expression: Value| {
            let terms = json!([{ "matchExpressions": [expression] }]);
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } })
        };
        for (key, operator, values, admits) in [
            ("stoker.dev/pool", "In", json!(["small", "x"]), true),
            ("stoker.dev/pool", "NotIn", json!(["small"]), false),
            ("absent", "NotIn", json!(["small"]), true),
            ("size", "Exists", json!(null), true),
            ("size", "DoesNotExist", json!(null), false),
            ("size", "Gt", json!(["6"]), true),
            ("size", "Lt", json!(["7"]), false),
            ("size", "Like", json!(["7"]), false),
        ] {
            let expression = json!({ "key": key, "operator": operator, "values": values });
            assert_eq!(with("affinity", required(expression)), admits, "{key} {operator}");
        }
    }

    #[test]
    fn tolerations_follow_the_rules_of_kubernetes() {
        let taint = Taint { key: "stoker.dev/shape".into(), value: "g6.xlarge".into(), effect: TaintEffect::NoSchedule };
        for (toleration, covers) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "stoker.dev/shape", "operator": "Exists" }), true),
            (json!({ "key": "stoker.dev/shape", "value": "g6.xlarge" }), true),
            (json!({ "key": "stoker.dev/shape", "value": "g6.xlarge", "effect": "NoExecute" }), false),
            (json!({ "key": "stoker.dev/shape", "value": "g6.2xlarge", "effect": "NoSchedule" }), false),
            (json!({ "key": "other", "operator": "Exists" }), false),
            (json!({}), false),
        ] {
            assert_eq!(pod(&json!({ "tolerations": [toleration] })).tolerates(&taint), covers, "{toleration}");
        }
    }

    #[test]
    fn what_it_asks_for_is_counted_as_the_scheduler_counts_it() {
        let row = pod(&json!({
            "containers": [{ "name": "a", "resources": { "requests": { "cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 2 } } }],
            "initContainers": [{ "name": "i", "resources": { "requests": { "cpu": 3 } } }],
        }));
        assert_eq!(row.requests, Some(Requests { milli_cpu: 3000, memory_bytes: 1 << 30, gpus: 2, slices: Slices::default() }));
        let odd = pod(&json!({ "containers": [{ "name": "a", "resources": { "requests": { "cpu": "much" } } }] }));
        assert_eq!(odd.requests, None);
    }
}
