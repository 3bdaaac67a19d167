//! Pools from the GPU Nodes that a cluster has.

use std::collections::{BTreeMap, BTreeSet};

use stoker_core::base::ids::Cloud;
use stoker_core::base::kinds::Taint;
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::POOL_LABEL;
use stoker_core::market::offer::InstanceSpec;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::{RawMig, RawSharing};

use super::cluster::{Cluster, NodeSeen, listed};
use super::draft::Draft;
use crate::kube::gpu_labels::{GPU_LABELS, model_of};
use crate::kube::node_labels::{INSTANCE_TYPE, REGION, ZONE, spec_of};
use crate::print::count;

/// The layout of its GPUs that a node has from NVIDIA's MIG manager.
const MIG_CONFIG: &str = "nvidia.com/mig.config";
/// How many pods take turns on each of its GPUs.
const REPLICAS: &str = "nvidia.com/gpu.replicas";

/// Nodes that become one pool are alike in these.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alike<'a> {
    pool: Option<(&'static str, &'a str)>,
    model: String,
    memory: Option<MiB>,
    cloud: &'a str,
    taints: &'a [Taint],
    layout: &'a str,
}

/// A pool for the nodes that are alike, and what was left out.
pub(super) fn drafts(cluster: &Cluster, book: &PriceBook) -> (Vec<Draft>, Vec<String>) {
    let gpu_nodes = cluster.nodes.iter().filter(|node| node.has_gpus());
    let (own, others): (Vec<_>, Vec<_>) = gpu_nodes.partition(|node| node.labels.contains_key(POOL_LABEL));
    let mut alike: BTreeMap<Alike<'_>, Vec<&NodeSeen>> = BTreeMap::new();
    for node in others {
        let (model, memory) = model(book, node);
        let (pool, cloud, taints) = (node.pool(), node.cloud.as_str(), node.taints.as_slice());
        let key = Alike { pool, model, memory, cloud, taints, layout: node.label(MIG_CONFIG) };
        alike.entry(key).or_default().push(node);
    }
    let mut notes = Vec::new();
    if !own.is_empty() {
        let names: Vec<&str> = own.iter().map(|node| node.name.as_str()).collect();
        notes.push(format!("Left out: {} of Stoker's own, {}.", count(own.len(), "node"), listed(&names, 5)));
    }
    (alike.into_iter().map(|(key, nodes)| drafted(cluster, book, key, &nodes)).collect(), notes)
}

fn drafted(cluster: &Cluster, book: &PriceBook, key: Alike<'_>, nodes: &[&NodeSeen]) -> Draft {
    let mut draft = Draft::new(key.pool.map_or(key.model.as_str(), |(_, name)| name));
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let of = key.pool.map(|(label, name)| format!(" with {label}={name}")).unwrap_or_default();
    draft.notes.insert(0, format!("From {}{of}: {}.", count(nodes.len(), "node"), listed(&names, 5)));
    let labels = |name: &'static str| -> BTreeSet<&str> {
        nodes.iter().map(|node| node.label(name)).filter(|value| !value.is_empty()).collect()
    };
    draft.raw.gpu.models = vec![key.model];
    draft.raw.gpu.min_memory_gib = key.memory.and_then(|memory| u32::try_from(memory.0 / 1024).ok());
    draft.raw.place.clouds = vec![key.cloud.to_owned()];
    draft.raw.place.regions = labels(REGION).into_iter().map(str::to_owned).collect();
    draft.set_zones(cluster, book, &labels(ZONE));
    let types = nodes.iter().map(|node| {
        let of_tables = spec(book, node).map(|spec| spec.instance_type.to_string());
        of_tables.unwrap_or_else(|| node.label(INSTANCE_TYPE).to_owned())
    });
    draft.raw.instance_types = types.filter(|name| !name.is_empty()).collect::<BTreeSet<_>>().into_iter().collect();
    draft.set_prefer(&nodes.iter().map(|node| node.capacity_type()).collect());
    draft.raw.split_capacity_type = cluster.selects_capacity_type().then_some(true);
    draft.raw.template.labels = cluster.needed(common_labels(nodes));
    draft.set_taints(key.taints);
    draft.limit_to_today(nodes.len());
    share(&mut draft, key.layout, nodes);
    draft
}

/// Labels that all of these nodes have with one value.
pub(super) fn common_labels(nodes: &[&NodeSeen]) -> BTreeMap<String, String> {
    let Some((first, rest)) = nodes.split_first() else { return BTreeMap::new() };
    let mut labels = first.labels.clone();
    labels.retain(|key, value| rest.iter().all(|node| node.labels.get(key) == Some(value)));
    labels
}

/// Shares its GPUs as those of its nodes are shared, as far as the policy can say it.
fn share(draft: &mut Draft, layout: &str, nodes: &[&NodeSeen]) {
    if layout.starts_with("all-") && layout != "all-disabled" {
        draft.raw.sharing = Some(RawSharing { mig: Some(RawMig::Named(layout.to_owned())), ..RawSharing::default() });
    } else if nodes.iter().any(|node| node.has_slices) {
        draft.notes.push(format!("Its GPUs are split by {MIG_CONFIG}={layout}: write the layout under sharing.mig."));
    }
    let replicas: BTreeSet<&str> = nodes.iter().map(|node| node.label(REPLICAS)).collect();
    if let Some(pods) = replicas.iter().find(|number| number.parse::<u32>().is_ok_and(|pods| pods > 1)) {
        draft.notes.push(format!("{pods} pods take turns on each of its GPUs: write that under sharing.timeSlicing."));
    }
}

/// The GPU model of a node, and its size where the type does not tell it: by the tables, else by its labels, as they are.
fn model(book: &PriceBook, node: &NodeSeen) -> (String, Option<MiB>) {
    if let Some(spec) = spec(book, node) {
        return (spec.gpu_model.to_string(), None);
    }
    let labels = || GPU_LABELS.iter().filter_map(|key| node.labels.get(*key));
    let known = labels().find_map(|value| model_of(book, value));
    match known {
        Some((model, memory)) => (model.to_string(), memory),
        None => (labels().next().map_or_else(|| node.label(INSTANCE_TYPE).to_owned(), Clone::clone), None),
    }
}

/// What the tables say of a node's type.
fn spec<'b>(book: &'b PriceBook, node: &NodeSeen) -> Option<&'b InstanceSpec> {
    spec_of(book, &Cloud::new(node.cloud.as_str()).ok()?, &node.labels, node.gpus)
}
