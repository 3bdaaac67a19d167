//! A `NodeClaim` of Stoker's: what it says when it is created, and what Karpenter made of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::json;
use stoker_core::base::ids::{ClusterName, LaunchKey, NodeName, ProviderId};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::supply::{Instance, InstanceState};
use stoker_core::market::labels::{CAPACITY_TYPE_LABEL, is_of_karpenter};
use stoker_core::market::offer::Market;
use stoker_service::suppliers::Launch;

use crate::carriers::{Carrier, ClassRef};
use crate::objects::{Condition, NodeClaimSpec, kind};

/// The annotation with the launch key: a label has no room for it.
const KEY_ANNOTATION: &str = "stoker.dev/launch-key";
/// The annotation with the market that was bought, as JSON: on AWS a node's labels do not tell the zone's id.
const MARKET_ANNOTATION: &str = "stoker.dev/market";

/// How the name of a claim begins, and how many digits follow.
const PREFIX: &str = "stoker-";
const DIGITS: usize = 20;

pub(crate) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// The label with the id of a reservation on AWS.
const RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";

/// How long a drain by Karpenter may take. Stoker and the autoscaler drain before they delete, so this is for what is left.
const TERMINATION_GRACE_PERIOD: &str = "1h";

/// All objects of a kind that lies in no namespace.
pub(crate) fn of_kind(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}

/// The name of a launch's claim: the same for the same key, for ever, so that to create it again makes no second machine.
pub(crate) fn name(key: &LaunchKey) -> String {
    let hash = blake3::hash(key.as_str().as_bytes()).to_hex();
    format!("{PREFIX}{}", hash.chars().take(DIGITS).collect::<String>())
}

/// The claim of a launch. A function of the launch, so that a retry creates the same object.
///
/// Type, zone and capacity type have one value each: providers choose between several by rules of their own. The GPU is asked for so that
/// Karpenter takes the node for initialized only when its device plugin is there.
pub(crate) fn object(cluster: &ClusterName, launch: &Launch, carrier: &Carrier) -> serde_json::Value {
    let Launch { request, labels, taints, gpus, .. } = launch;
    let ClassRef { group, kind, name: class } = &carrier.class;
    let mut labels: BTreeMap<&str, &str> =
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).filter(|(key, _)| !is_of_karpenter(key)).collect();
    labels.extend([("karpenter.sh/nodepool", carrier.name.as_str()), (CLUSTER_LABEL, cluster.as_str())]);
    let taints: Vec<_> =
        taints.iter().map(|taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect.as_str() })).collect();
    let one_of = |key: &str, values: &[&str]| json!({ "key": key, "operator": "In", "values": values });
    let mut requirements: Vec<_> = pinned(launch).into_iter().map(|(key, value)| one_of(key, &[value])).collect();
    // What an operator calls by its id on AWS is that reservation.
    let is_id = |name: &&str| group == "karpenter.k8s.aws" && name.starts_with("cr-");
    if let Some(reservation) = request.reservation.as_deref().filter(is_id) {
        requirements.push(one_of(RESERVATION_ID, &[reservation]));
    }
    let requests = if *gpus > 0 { json!({ "nvidia.com/gpu": gpus.to_string() }) } else { json!({}) };
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name(&request.key),
            "labels": labels,
            "annotations": {
                KEY_ANNOTATION: request.key.as_str(),
                MARKET_ANNOTATION: json!(request.market).to_string(),
                "karpenter.sh/do-not-disrupt": "true",
            },
        },
        "spec": {
            "nodeClassRef": { "group": group, "kind": kind, "name": class },
            "expireAfter": "Never",
            "terminationGracePeriod": TERMINATION_GRACE_PERIOD,
            "taints": taints,
            "resources": { "requests": requests },
            "requirements": requirements,
        },
    })
}

/// What a launch's claim leaves Karpenter no choice in.
pub(crate) fn pinned(launch: &Launch) -> [(&'static str, &str); 3] {
    let request = &launch.request;
    [
        (INSTANCE_TYPE, request.market.place.instance_type.as_str()),
        (ZONE, request.zone_name.as_str()),
        (CAPACITY_TYPE_LABEL, request.market.capacity_type.as_str()),
    ]
}

/// A `NodeClaim` as it is read: everything that is not used is skipped.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Claim {
    /// Name, uid, labels and annotations among others.
    #[serde(rename = "metadata")]
    pub(crate) meta: ObjectMeta,
    #[serde(default)]
    spec: NodeClaimSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default, rename = "providerID")]
    provider_id: String,
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    conditions: Vec<Condition>,
}

kind!(Claim, "karpenter.sh", "v1", "NodeClaim", "nodeclaims");

impl Claim {
    /// The reservation that it is for, and no other; `None` where it is for none by its id.
    pub(crate) fn reservation(&self) -> Option<&str> {
        let named = self.spec.requirements.iter().find(|requirement| requirement.key == RESERVATION_ID)?;
        named.values.as_ref()?.first().map(String::as_str)
    }

    /// The claim in the answer to its creation.
    pub(crate) fn created(object: DynamicObject) -> Self {
        let spec = object.data.get("spec").and_then(|spec| NodeClaimSpec::deserialize(spec).ok()).unwrap_or_default();
        Self { meta: object.metadata, spec, status: Status::default() }
    }

    pub(crate) fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn version(&self) -> Option<String> {
        self.meta.resource_version.clone()
    }

    pub(crate) fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.meta.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The key of its launch; `None` where it bears none that can be read.
    pub(crate) fn key(&self) -> Option<LaunchKey> {
        LaunchKey::new(self.annotation(KEY_ANNOTATION)?).ok()
    }

    /// Whether its name is of the form of [`name`]: what else bears the cluster's label is not Stoker's, such as the claims of a `NodePool`
    /// whose template bears it.
    pub(crate) fn is_ours(&self) -> bool {
        let hash = self.name().strip_prefix(PREFIX);
        hash.is_some_and(|hash| hash.len() == DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }

    /// Whether it is on its way out.
    pub(crate) const fn is_deleting(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// What its machine is called; empty while there is none.
    pub(crate) fn provider_id(&self) -> &str {
        &self.status.provider_id
    }

    /// The condition of that type.
    fn condition(&self, kind: &str) -> Option<&Condition> {
        Condition::of(&self.status.conditions, kind)
    }

    /// Whether there is a machine.
    pub(crate) fn is_launched(&self) -> bool {
        !self.status.provider_id.is_empty() && self.condition("Launched").is_some_and(Condition::is_true)
    }

    /// What Karpenter says of a launch that has not happened: its reason and its message.
    pub(crate) fn why_not_launched(&self) -> Option<String> {
        let Condition { reason, message, .. } = self.condition("Launched").filter(|condition| !condition.is_true())?;
        Some(if message.is_empty() || message == reason { reason.clone() } else { format!("{reason}: {message}") })
    }

    /// The machine of a claim that is launched.
    ///
    /// # Errors
    /// What is missing or cannot be read.
    pub(crate) fn instance(&self) -> Result<Instance, String> {
        let market = self.annotation(MARKET_ANNOTATION).ok_or_else(|| format!("no annotation {MARKET_ANNOTATION}"))?;
        let market: Market =
            serde_json::from_str(market).map_err(|error| format!("annotation {MARKET_ANNOTATION}: {error}"))?;
        let created = self.meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
        // A claim knows its Node once that has registered.
        let node = if self.status.node_name.is_empty() { self.name() } else { &self.status.node_name };
        let registered = self.condition("Registered").is_some_and(Condition::is_true);
        Ok(Instance {
            key: self.key().ok_or_else(|| format!("no launch key in annotation {KEY_ANNOTATION}"))?,
            provider_id: ProviderId::new(self.status.provider_id.as_str()).map_err(|error| error.to_string())?,
            node_name: NodeName::new(node).map_err(|error| error.to_string())?,
            market,
            launched_at: created,
            state: match (self.is_deleting(), registered) {
                (true, _) => InstanceState::Stopping,
                (false, true) => InstanceState::Running,
                (false, false) => InstanceState::Pending,
            },
        })
    }
}

#[cfg(test)]
mod tests;
