//! Pools from Karpenter's `NodePools`.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::market::labels::{CAPACITY_TYPE_LABEL, Machine, Value as LabelValue, is_of_karpenter, label};
use stoker_core::market::offer::{CapacityType, InstanceSpec};
use stoker_core::market::price::PriceBook;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::rules::karpenter::{LIMITS_MARK, WINDOW_MARK};
use stoker_core::policy::rules::supplier::{CARRIER_LABEL, CLOUD_LABEL, cloud_of_class};

use super::cluster::{Cluster, NodeSeen, listed};
use super::draft::Draft;
use super::nodes::common_labels;
use crate::kube::node_labels::{INSTANCE_TYPE, REGION, ZONE, ZONE_ID};
use crate::kube::pending::Expression;
use crate::kube::quantity::amount;

const NODE_POOL: &str = "karpenter.sh/nodepool";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    template: Template,
    limits: BTreeMap<String, Value>,
    weight: Value,
    replicas: Value,
    disruption: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Meta,
    spec: NodeSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSpec {
    node_class_ref: ClassRef,
    requirements: Vec<Requirement>,
    taints: Vec<TaintSeen>,
    startup_taints: Vec<TaintSeen>,
    expire_after: Value,
    termination_grace_period: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClassRef {
    group: String,
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Requirement {
    #[serde(flatten)]
    asked: Expression,
    min_values: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct TaintSeen {
    key: String,
    #[serde(default)]
    value: String,
    effect: TaintEffect,
}

impl Requirement {
    fn values(&self) -> &[String] {
        self.asked.values.as_deref().unwrap_or_default()
    }

    fn is_in(&self, key: &str) -> bool {
        self.asked.key == key && self.asked.operator == "In"
    }

    /// Whether it chooses instance types, and so GPUs, by name. That all others of a cloud's types remain is no choice of GPUs.
    fn names_gpus(&self) -> bool {
        const BY_NAME: [&str; 5] = ["instance-type", "instance-family", "instance-category", "sku-name", "sku-family"];
        let is_by_name = BY_NAME.iter().any(|end| self.asked.key.ends_with(end));
        self.asked.key.contains("gpu") || (self.asked.operator == "In" && is_by_name)
    }

    fn shown(&self) -> String {
        let values = self.values();
        let least = self.min_values.map(|least| format!(" minValues {least}")).unwrap_or_default();
        format!("{} {} {}{least}", self.asked.key, self.asked.operator, listed(values, 5)).trim_end().to_owned()
    }
}

/// A pool for each `NodePool` that makes GPU nodes, and what was left out.
pub(super) fn drafts(cluster: &Cluster, book: &PriceBook) -> (Vec<Draft>, Vec<String>) {
    let (mut drafts, mut notes) = (Vec::new(), Vec::new());
    for object in &cluster.node_pools {
        let name = object.metadata.name.clone().unwrap_or_default();
        let labels = object.metadata.labels.clone().unwrap_or_default();
        if labels.get(CARRIER_LABEL).is_some_and(|value| value == "true") {
            notes.push(format!("Left out: NodePool {name} is a carrier of Stoker's own."));
            continue;
        }
        match spec(object) {
            Ok(spec) => {
                let pool = NodePool { name: &name, spec, labels };
                match pool.draft(cluster, book) {
                    Ok(draft) => drafts.push(draft),
                    Err(why) => notes.extend(why.map(|why| format!("Left out: NodePool {name} {why}."))),
                }
            }
            Err(error) => notes.push(format!("Left out: NodePool {name} cannot be read: {error}.")),
        }
    }
    (drafts, notes)
}

/// What a `NodePool` says, and said before Stoker steered it.
fn spec(object: &DynamicObject) -> serde_json::Result<Spec> {
    let mut spec: Spec = serde_json::from_value(object.data.get("spec").cloned().unwrap_or_default())?;
    let annotations = object.metadata.annotations.as_ref();
    let mark = |key| annotations.and_then(|all| serde_json::from_str::<Value>(all.get(key)?).ok()).unwrap_or_default();
    let mark_of_limits = mark(LIMITS_MARK);
    for (resource, set) in mark_of_limits["set"].as_object().into_iter().flatten() {
        if spec.limits.get(resource).and_then(amount) == set.as_u64() {
            match &mark_of_limits["was"][resource] {
                Value::Null => spec.limits.remove(resource),
                was => spec.limits.insert(resource.clone(), was.clone()),
            };
        }
    }
    let mark_of_window = mark(WINDOW_MARK);
    if spec.disruption["consolidateAfter"] == mark_of_window["set"]
        && let Some(disruption) = spec.disruption.as_object_mut()
        && !mark_of_window.is_null()
    {
        disruption.remove("consolidateAfter");
        disruption.extend(
            mark_of_window.get("was").filter(|was| !was.is_null()).map(|was| ("consolidateAfter".to_owned(), was.clone())),
        );
    }
    Ok(spec)
}

struct NodePool<'a> {
    name: &'a str,
    spec: Spec,
    labels: BTreeMap<String, String>,
}

impl NodePool<'_> {
    /// The pool; without one, why it is left out, where that is worth a word.
    fn draft(&self, cluster: &Cluster, book: &PriceBook) -> Result<Draft, Option<String>> {
        let NodeSpec { node_class_ref: class, requirements, .. } = &self.spec.template.spec;
        let is_of = |node: &&NodeSeen| node.has_gpus() && node.label(NODE_POOL) == self.name;
        let nodes: Vec<&NodeSeen> = cluster.nodes.iter().filter(is_of).collect();
        let (clouds, regions) = cluster.home();
        let cloud = cloud_of_class(&class.group, Some(&self.labels)).or_else(|| clouds.first().copied()).unwrap_or_default();
        let named = requirements.iter().find(|one| one.is_in(REGION)).map(|one| one.values().iter().map(String::as_str));
        let regions: BTreeSet<&str> = named.map_or(regions, Iterator::collect);

        let all: Vec<&InstanceSpec> = book.specs().map(AsRef::as_ref).filter(|spec| spec.cloud.as_str() == cloud).collect();
        let others: Vec<_> = requirements.iter().filter(|one| !is_of_types(&one.asked.key)).collect();
        let allowed = |spec: &&&InstanceSpec| allow(requirements.iter().map(|one| &one.asked), spec, book);
        let types: Vec<&InstanceSpec> = all.iter().filter(allowed).copied().collect();
        if cloud.is_empty() && requirements.iter().any(Requirement::names_gpus) {
            return Err(Some(format!("is of a cloud that nothing tells: label it {CLOUD_LABEL}, such as {CLOUD_LABEL}=aws")));
        }
        if types.is_empty() && nodes.is_empty() {
            return Err(None);
        }
        if nodes.is_empty() && !requirements.iter().any(Requirement::names_gpus) {
            return Err(Some("names no GPU type and has no GPU node now, but makes one for any pod that asks".to_owned()));
        }
        let here: BTreeSet<&str> = sold(book, cloud, &regions);
        let types: Vec<&InstanceSpec> = types.into_iter().filter(|spec| here.contains(spec.instance_type.as_str())).collect();
        if types.is_empty() {
            return Err(Some("makes GPU nodes of types that the price tables do not have in its regions".to_owned()));
        }

        let mut draft = Draft::new(self.name);
        draft.notes.insert(0, format!("From NodePool {}.", self.name));
        draft.raw.place.clouds = vec![cloud.to_owned()];
        draft.raw.place.regions = regions.into_iter().map(str::to_owned).collect();
        draft.set_types(book, &types);
        draft.raw.node_class = (!class.name.is_empty()).then(|| class.name.clone());
        self.say_unknown_types(&mut draft, book, cloud);
        let of_zones = requirements.iter().filter(|one| one.is_in(ZONE) || one.is_in(ZONE_ID));
        let zones: BTreeSet<&str> = of_zones.flat_map(Requirement::values).map(String::as_str).collect();
        draft.set_zones(cluster, book, &zones);
        self.set_capacity(&mut draft);
        let taint = |one: &TaintSeen| Taint { key: one.key.clone(), value: one.value.clone(), effect: one.effect };
        draft.set_taints(&self.spec.template.spec.taints.iter().map(taint).collect::<Vec<_>>());
        draft.raw.template.labels = self.labels_for(cluster, &nodes);
        self.set_limit(&mut draft, &types, nodes.len());
        let without = self.without_counterpart(&others);
        if !without.is_empty() {
            draft.notes.push(format!("A policy has nothing like these: {}.", without.join("; ")));
        }
        Ok(draft)
    }

    /// Types that it names and the tables do not.
    fn say_unknown_types(&self, draft: &mut Draft, book: &PriceBook, cloud: &str) {
        let known: BTreeSet<&str> =
            book.specs().filter(|spec| spec.cloud.as_str() == cloud).map(|spec| spec.instance_type.as_str()).collect();
        let named = self.spec.template.spec.requirements.iter().filter(|one| one.is_in(INSTANCE_TYPE));
        let unknown: Vec<&String> = named.flat_map(Requirement::values).filter(|name| !known.contains(name.as_str())).collect();
        if !unknown.is_empty() {
            draft.notes.push(format!("Left out, as the price tables have no such GPU type: {}.", listed(&unknown, 10)));
        }
    }

    fn set_capacity(&self, draft: &mut Draft) {
        let asked = self.spec.template.spec.requirements.iter().find(|one| one.asked.key == CAPACITY_TYPE_LABEL);
        let types = match asked {
            Some(one) => {
                let has = |word: &str| BTreeMap::from([(CAPACITY_TYPE_LABEL.to_owned(), word.to_owned())]);
                CapacityType::ALL.into_iter().filter(|of| one.asked.holds(&has(of.as_str()))).collect()
            }
            None => BTreeSet::from([CapacityType::Spot, CapacityType::OnDemand]),
        };
        draft.set_prefer(&types);
        if asked.is_none() {
            draft.notes.push("It names no capacity type: Karpenter then takes spot first, and so does this pool.".to_owned());
        }
    }

    /// The labels that it gives its nodes, and those of its nodes that pods choose them by.
    fn labels_for(&self, cluster: &Cluster, nodes: &[&NodeSeen]) -> BTreeMap<String, String> {
        let single = self.spec.template.spec.requirements.iter().filter(|one| one.asked.operator == "In");
        let single = single.filter_map(|one| match one.values() {
            [value] => Some((one.asked.key.clone(), value.clone())),
            _ => None,
        });
        let mut labels = cluster.needed(common_labels(nodes).into_iter().chain(single).collect());
        labels.extend(self.spec.template.metadata.labels.clone());
        labels
    }

    fn set_limit(&self, draft: &mut Draft, types: &[&InstanceSpec], today: usize) {
        let limit = |name: &str| self.spec.limits.get(name).and_then(amount);
        let largest = types.iter().map(|spec| u64::from(spec.advertised_gpus())).max().unwrap_or(1).max(1);
        let of_gpus =
            limit(GPU_RESOURCE).map(|gpus| (gpus / largest, format!("limit {GPU_RESOURCE}: {gpus}, at {largest} a node")));
        let of_nodes = limit("nodes").map(|nodes| (nodes, format!("limit nodes: {nodes}")));
        if let Some((nodes, why)) = of_gpus.into_iter().chain(of_nodes).min() {
            draft.raw.limits.max_nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            draft.limit = why;
        } else {
            draft.notes.push("It has no limit of GPUs or nodes.".to_owned());
            draft.limit_to_today(today);
        }
    }

    /// What it says and a policy cannot.
    fn without_counterpart(&self, others: &[&Requirement]) -> Vec<String> {
        let Spec { weight, replicas, disruption, limits, template: Template { spec, .. } } = &self.spec;
        let of_requirements = others.iter().filter(|one| {
            let key = one.asked.key.as_str();
            let is_told = one.is_in(REGION) || one.is_in(ZONE) || one.is_in(ZONE_ID) || key == CAPACITY_TYPE_LABEL;
            !is_told || one.min_values.is_some()
        });
        let mut without: Vec<String> = of_requirements.map(|one| one.shown()).collect();
        let least = spec.requirements.iter().filter(|one| is_of_types(&one.asked.key) && one.min_values.is_some());
        without.extend(least.map(Requirement::shown));
        for (field, value) in [
            ("weight", weight),
            ("replicas", replicas),
            ("expireAfter", &spec.expire_after),
            ("terminationGracePeriod", &spec.termination_grace_period),
            ("disruption", disruption),
        ] {
            if !value.is_null() && value != "Never" {
                without.push(format!("{field} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
            }
        }
        let others = limits.keys().filter(|name| ![GPU_RESOURCE, "nodes"].contains(&name.as_str()));
        without.extend(others.map(|name| format!("limits.{name}")));
        without.extend(spec.startup_taints.iter().map(|taint| format!("startup taint {}", taint.key)));
        without
    }
}

/// The types that are sold in these regions of a cloud.
fn sold<'b>(book: &'b PriceBook, cloud: &str, regions: &BTreeSet<&str>) -> BTreeSet<&'b str> {
    let zoned = book.entries().map(|(market, _)| (&market.place.cloud, &market.place.region, &market.place.instance_type));
    let unzoned = book.unzoned().map(|((cloud, region, instance_type), _)| (cloud, region, instance_type));
    let here = zoned.chain(unzoned).filter(|(of, region, _)| of.as_str() == cloud && regions.contains(region.as_str()));
    here.map(|(_, _, instance_type)| instance_type.as_str()).collect()
}

/// Whether requirements of a `NodePool` allow a GPU type, by what they say of types.
pub fn allow<'a>(mut requirements: impl Iterator<Item = &'a Expression>, spec: &InstanceSpec, book: &PriceBook) -> bool {
    let labels = labels_of(spec, book);
    // What nobody knows of a type's GPUs does not mean that it has none.
    let has_no_gpus = |one: &Expression| one.operator == "DoesNotExist" && one.key.contains("gpu");
    requirements.all(|one| !is_of_types(&one.key) || (one.holds(&labels) && !has_no_gpus(one)))
}

/// Whether [`labels_of`] tells of a label.
fn is_of_types(key: &str) -> bool {
    const OF_KUBELETS: [&str; 3] = [INSTANCE_TYPE, "kubernetes.io/arch", "kubernetes.io/os"];
    OF_KUBELETS.contains(&key)
        || (is_of_karpenter(key) && label(key).is_some_and(|of| matches!(of.value, LabelValue::Machine(_))))
}

/// The labels that nodes of a type would have from Karpenter.
fn labels_of(spec: &InstanceSpec, book: &PriceBook) -> BTreeMap<String, String> {
    let name = spec.instance_type.as_str();
    let own = [(INSTANCE_TYPE, name), ("kubernetes.io/arch", spec.arch.as_str()), ("kubernetes.io/os", "linux")];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let others = Machine { spec, gpu: book.gpu_of(spec), split: None }.labels(None);
    own.into_iter().chain(others.map(|(key, value)| (key.to_owned(), value))).collect()
}
