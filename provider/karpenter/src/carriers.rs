//! Carriers: `NodePools` that lend their names to Stoker's claims, and from which Karpenter itself makes and takes nothing. Each names the
//! `NodeClass` of its claims.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use kube::api::{DynamicObject, ListParams};
use serde::Deserialize;
use serde_json::{Value, json};
use stoker_core::base::ids::{Cloud, NodeClassName, Region, ZoneId, ZoneName};
use stoker_core::policy::rules::supplier::{AWS_CLASSES, CARRIER_LABEL, CLOUD_LABEL, cloud_of_class};
use stoker_service::kube::node_class::zone_names;

use crate::claim::of_kind;
use crate::objects::Condition;

/// How a claim names its `NodeClass`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ClassRef {
    #[serde(default)]
    pub(crate) group: String,
    #[serde(default)]
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// A carrier that is fit for it.
#[derive(Debug, Clone)]
pub(crate) struct Carrier {
    /// The `NodePool`'s name.
    pub(crate) name: String,
    pub(crate) class: ClassRef,
    /// The cloud of its nodes.
    pub(crate) cloud: Cloud,
    /// What this account calls each zone, where the `NodeClass` tells.
    pub(crate) zone_names: BTreeMap<ZoneId, ZoneName>,
    /// What it allows, by key: the values of its requirements with the operator `In`.
    allowed: BTreeMap<String, BTreeSet<String>>,
}

impl Carrier {
    /// Whether its requirements allow that.
    ///
    /// # Errors
    /// What they do not allow.
    pub(crate) fn allows(&self, pinned: &[(&str, &str)]) -> Result<(), String> {
        for (key, value) in pinned {
            if self.allowed.get(*key).is_some_and(|values| !values.contains(*value)) {
                return Err(format!("NodePool {} allows no {key} {value}: add it to its requirements", self.name));
            }
        }
        Ok(())
    }

    /// Whether its class has a subnet in that zone, where it tells.
    ///
    /// # Errors
    /// Says that it has none.
    pub(crate) fn reaches(&self, zone: &ZoneId) -> Result<(), String> {
        if self.zone_names.is_empty() || self.zone_names.contains_key(zone) {
            return Ok(());
        }
        Err(format!(
            "{} {} has no subnet in zone {zone}: add one, or leave the zone out of the pool",
            self.class.kind, self.class.name
        ))
    }

    /// The regions that it allows; `None` where it does not say.
    pub(crate) fn regions(&self) -> Option<BTreeSet<Region>> {
        let regions = self.allowed.get("topology.kubernetes.io/region")?;
        Some(regions.iter().filter_map(|region| Region::new(region.as_str()).ok()).collect())
    }
}

/// The carriers of a cluster: each by the name of its `NodeClass`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carriers {
    /// Those that are fit for it.
    pub(crate) fit: BTreeMap<NodeClassName, Carrier>,
    /// What is wrong with each of the others.
    pub(crate) faults: Vec<String>,
}

impl Carriers {
    /// The carrier for claims of that class.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn of(&self, class: Option<&NodeClassName>) -> Result<&Carrier, String> {
        let class = class.ok_or("the pool names no nodeClass")?;
        self.fit.get(class).ok_or_else(|| match self.faults.as_slice() {
            [] => format!("no NodePool with the label {CARRIER_LABEL}=true names NodeClass {class}"),
            faults => format!("no fit NodePool names NodeClass {class}: {}", faults.join("; ")),
        })
    }

    fn add(&mut self, carrier: Carrier) {
        let Ok(class) = NodeClassName::new(carrier.class.name.as_str()) else {
            self.faults.push(format!("NodePool {}: its NodeClass has no name", carrier.name));
            return;
        };
        match self.fit.get(&class) {
            Some(other) => self.faults.push(format!(
                "NodePool {}: NodePool {} is the carrier of NodeClass {class} already: keep one",
                carrier.name, other.name
            )),
            None => {
                self.fit.insert(class, carrier);
            }
        }
    }
}

/// Reads the carriers of the cluster, and of AWS's `NodeClasses` the zones' names.
///
/// # Errors
/// What the API server says.
pub(crate) async fn read(client: &Client) -> kube::Result<Carriers> {
    let pools = of_kind(client, "karpenter.sh", "v1", "NodePool");
    let labelled = ListParams::default().labels(&format!("{CARRIER_LABEL}=true"));
    let mut carriers = Carriers::default();
    for pool in pools.list(&labelled).await?.items {
        let name = pool.metadata.name.clone().unwrap_or_default();
        match carrier(&pool) {
            Ok(mut carrier) => {
                if carrier.class.group == AWS_CLASSES {
                    let class = of_kind(client, AWS_CLASSES, "v1", "EC2NodeClass").get_opt(&carrier.class.name).await?;
                    carrier.zone_names = class.map(|class| zone_names(&class.data)).unwrap_or_default();
                }
                carriers.add(carrier);
            }
            Err(why) => carriers.faults.push(format!("NodePool {name}: {why}")),
        }
    }
    Ok(carriers)
}

/// The carrier that a `NodePool` is.
///
/// # Errors
/// Why it is none that is fit.
fn carrier(pool: &DynamicObject) -> Result<Carrier, String> {
    let at = |path| pool.data.pointer(path).cloned().unwrap_or_default();
    let class: ClassRef = serde_json::from_value(at("/spec/template/spec/nodeClassRef")).map_err(|error| error.to_string())?;
    // Else Karpenter would make nodes of its own from it, or take Stoker's away.
    for (path, due) in [
        // Karpenter before 1.11 does not look at the number of nodes.
        ("/spec/limits/cpu", json!("0")),
        ("/spec/limits/nodes", json!("0")),
        ("/spec/disruption/consolidateAfter", json!("Never")),
        ("/spec/disruption/budgets", json!([{ "nodes": "0" }])),
    ] {
        let is = at(path);
        // A quantity may be written as a number.
        let is_number = |number: i64| due.as_str().and_then(|due| due.parse().ok()) == Some(number);
        if is != due && !is.as_i64().is_some_and(is_number) {
            let field = path.trim_start_matches('/').replace('/', ".");
            return Err(format!("{field} is {is} and must be {due}: apply it from manifests/karpenter again"));
        }
    }
    if !at("/spec/replicas").is_null() {
        return Err("spec.replicas is set, so Karpenter would end Stoker's claims: make it a NodePool without".to_owned());
    }
    let conditions: Vec<Condition> = serde_json::from_value(at("/status/conditions")).unwrap_or_default();
    match Condition::of(&conditions, "NodeClassReady") {
        Some(condition) if condition.is_true() => {}
        Some(Condition { reason, message, .. }) => {
            return Err(format!("{} {} is not ready: {reason}: {message}", class.kind, class.name));
        }
        None => return Err("Karpenter has not looked at it yet: it has no condition NodeClassReady".to_owned()),
    }
    let cloud = cloud_of_class(&class.group, pool.metadata.labels.as_ref()).ok_or_else(|| {
        format!("the cloud of {} is not known: say it by the label {CLOUD_LABEL}, such as {CLOUD_LABEL}=aws", class.kind)
    })?;
    let requirements = at("/spec/template/spec/requirements");
    let allowed = |requirement: &Value| {
        let is_list = requirement.get("operator")?.as_str()? == "In";
        let values = requirement.get("values")?.as_array()?.iter().filter_map(|value| Some(value.as_str()?.to_owned()));
        is_list.then_some((requirement.get("key")?.as_str()?.to_owned(), values.collect()))
    };
    Ok(Carrier {
        name: pool.metadata.name.clone().unwrap_or_default(),
        cloud: Cloud::new(cloud).map_err(|error| format!("label {CLOUD_LABEL}: {error}"))?,
        class,
        zone_names: BTreeMap::new(),
        allowed: requirements.as_array().into_iter().flatten().filter_map(allowed).collect(),
    })
}

#[cfg(test)]
mod tests;
