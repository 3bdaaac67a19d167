//! Pools from what the GPU pods of a cluster choose nodes by.

use std::collections::{BTreeMap, BTreeSet};

use stoker_core::base::ids::InstanceType;
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::{GPU_LABEL, POOL_LABEL};
use stoker_core::market::labels::tells_each_capacity_type;
use stoker_core::market::offer::CapacityType;
use stoker_core::market::price::PriceBook;
use stoker_core::market::sharing::GPU_RESOURCE;

use super::cluster::{Cluster, POOL_LABELS, is_free, listed};
use super::draft::Draft;
use crate::kube::gpu_labels::{GPU_LABELS, model_of};
use crate::kube::node_labels::{INSTANCE_TYPE, capacity_type};
use crate::kube::pending::PendingRow;
use crate::policy_file;
use crate::print::count;

/// Pods for which one pool is drafted are alike in these.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    /// The pool that they name, Stoker's or another's.
    pool: Option<String>,
    models: BTreeSet<String>,
    memory: Option<MiB>,
    types: BTreeSet<String>,
    labels: BTreeMap<String, String>,
    capacity_type: Option<CapacityType>,
    /// Whether it is by a label that groups are split by.
    splits: bool,
    /// Whether they tolerate the taint that keeps pods without a GPU away.
    tolerates: bool,
}

/// A pool for the pods that are alike.
pub(super) fn drafts(cluster: &Cluster, book: &PriceBook) -> (Vec<Draft>, Vec<String>) {
    let mut alike: BTreeMap<Alike, Vec<&PendingRow>> = BTreeMap::new();
    for pod in &cluster.pods {
        alike.entry(Alike::of(book, pod)).or_default().push(pod);
    }
    (alike.into_iter().map(|(key, pods)| drafted(cluster, book, &key, &pods)).collect(), Vec::new())
}

impl Alike {
    fn of(book: &PriceBook, pod: &PendingRow) -> Self {
        let taint = Taint { key: GPU_RESOURCE.to_owned(), value: "true".to_owned(), effect: TaintEffect::NoSchedule };
        let mut of = Self { tolerates: pod.tolerates(&taint), ..Self::default() };
        let wanted = pod.wanted();
        for (label, values) in &wanted {
            if POOL_LABELS.contains(label) || *label == POOL_LABEL {
                of.pool = values.first().map(|name| (*name).to_owned());
            } else if GPU_LABELS.contains(label) || *label == GPU_LABEL {
                for (model, memory) in values.iter().filter_map(|value| model_of(book, value)) {
                    of.models.insert(model.to_string());
                    of.memory = of.memory.or(memory);
                }
            } else if *label == INSTANCE_TYPE {
                of.types.extend(values.iter().map(|name| (*name).to_owned()));
            }
            of.splits |= tells_each_capacity_type(label);
            of.capacity_type = of.capacity_type.or_else(|| capacity_type(label, values.first()?));
        }
        let single = wanted.iter().filter_map(|(label, values)| match values.as_slice() {
            [value] => Some(((*label).to_owned(), (*value).to_owned())),
            _ => None,
        });
        of.labels = single.filter(|(label, _)| is_free(label)).collect();
        of
    }

    /// The models: those that are chosen, those of the types that are, or where neither is those of the built-in policy's first pool.
    fn models(&self, book: &PriceBook) -> BTreeSet<String> {
        if !self.models.is_empty() {
            return self.models.clone();
        }
        let is_chosen = |name: &InstanceType| self.types.contains(name.as_str());
        let of_types = book.specs().filter(|spec| is_chosen(&spec.instance_type)).map(|spec| spec.gpu_model.to_string());
        let of_types: BTreeSet<String> = of_types.collect();
        if !of_types.is_empty() {
            return of_types;
        }
        let example = policy_file::parse("the built-in policy", policy_file::example(), None).ok();
        let first = example.iter().flat_map(|policy| &policy.pools).next();
        let models = first.iter().flat_map(|pool| &pool.models);
        models.filter(|model| book.gpu_models().any(|known| known == *model)).map(ToString::to_string).collect()
    }
}

fn drafted(cluster: &Cluster, book: &PriceBook, alike: &Alike, pods: &[&PendingRow]) -> Draft {
    let models: Vec<String> = alike.models(book).into_iter().collect();
    let called = match (&alike.pool, alike.models.is_empty() && alike.types.is_empty()) {
        (Some(pool), _) => pool.clone(),
        (None, true) => "gpu".to_owned(),
        (None, false) => models.first().map_or_else(|| "gpu".to_owned(), |model| model.to_ascii_lowercase()),
    };
    let mut draft = Draft::new(&called);
    let names: Vec<String> = pods.iter().map(|pod| pod.key()).collect();
    let number = count(pods.len(), "GPU pod");
    draft.notes.insert(0, format!("From {number}: {}.", listed(&names, 5)));
    if alike.models.is_empty() && alike.types.is_empty() {
        draft
            .notes
            .push("They choose no GPU, so these are the models of the built-in policy: keep those that will do.".to_owned());
    }
    draft.raw.gpu.models = models;
    draft.raw.gpu.min_memory_gib = alike.memory.and_then(|memory| u32::try_from(memory.0 / 1024).ok());
    let (clouds, regions) = cluster.home();
    draft.raw.place.clouds = clouds.into_iter().map(str::to_owned).collect();
    draft.raw.place.regions = regions.into_iter().map(str::to_owned).collect();
    draft.raw.instance_types = alike.types.iter().cloned().collect();
    draft.set_prefer(&BTreeSet::from([alike.capacity_type.unwrap_or(CapacityType::OnDemand)]));
    draft.raw.split_capacity_type = alike.splits.then_some(true);
    draft.raw.template.labels.clone_from(&alike.labels);
    if !alike.tolerates {
        draft.notes.push(format!("They do not tolerate {GPU_RESOURCE}=true:NoSchedule, the usual taint of GPU nodes."));
        draft.set_taints(&[]);
    }
    draft.raw.limits.max_nodes = u32::try_from(pods.len()).unwrap_or(u32::MAX);
    "one for each of these pods".clone_into(&mut draft.limit);
    draft
}
