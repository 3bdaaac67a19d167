//! A selector that names what no group has, and what was probably meant.

use std::collections::BTreeSet;

use stoker_core::policy::{nearest, quoted};
use stoker_core::template::{GPU_LABEL, GROUP_LABEL, POOL_LABEL};

use crate::kube::pending::PendingRow;
use crate::view::View;

#[cfg(test)]
mod tests;

/// Labels that only our nodes have.
const OURS: [&str; 3] = [POOL_LABEL, GPU_LABEL, GROUP_LABEL];

/// Labels by which GPU models are chosen elsewhere. Some of them a node gets once its driver runs, but an autoscaler that looks for a node
/// to make finds them on no template.
const OTHERS: [&str; 6] = [
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.azure.com/sku-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "accelerator",
];

/// What is wrong with a waiting pod's selector, where it means one of our groups and names none; `None` where nothing is.
pub(super) fn near_miss(pod: &PendingRow, view: &View) -> Option<String> {
    let wanted = pod.wanted();
    // A pod that names nothing of ours may be waiting for anybody's nodes.
    if !wanted.iter().any(|(key, _)| near_ours(key).is_some()) {
        return None;
    }
    wanted.into_iter().find_map(|(key, wanted)| {
        let there = values_of(view, key);
        if wanted.iter().any(|value| there.contains(value) || value.is_empty()) {
            return None;
        }
        if there.is_empty() {
            return no_such_label(view, key, &wanted);
        }
        let near = wanted.iter().find_map(|value| nearest(value, there.iter().copied()));
        let cure = match near.or_else(|| wanted.iter().find_map(|value| model_in(value, &there))) {
            Some(near) => format!("did you mean {near}?"),
            None if there.len() <= 10 => format!("there are {}", there.into_iter().collect::<Vec<_>>().join(", ")),
            None => "see `stoker groups`".to_owned(),
        };
        let named: Vec<String> = wanted.iter().map(|value| quoted(value)).collect();
        Some(format!("it selects nodes by {key}: {}, which no node group has: {cure}", named.join(", ")))
    })
}

/// The label of ours that a key is, begins with or nearly is.
fn near_ours(key: &str) -> Option<&'static str> {
    OURS.into_iter().find(|ours| key.starts_with(ours)).or_else(|| nearest(key, OURS))
}

/// The values of a label over all groups.
fn values_of<'v>(view: &'v View, key: &str) -> BTreeSet<&'v str> {
    view.groups.values().filter_map(|group| group.group.template.labels.get(key)).map(String::as_str).collect()
}

/// What to say of a label that no group has: only of one that is nearly ours, or that chooses GPUs elsewhere.
fn no_such_label(view: &View, key: &str, wanted: &[&str]) -> Option<String> {
    let none = format!("it selects nodes by the label {key}, which no node group has");
    if let Some(near) = near_ours(key) {
        return Some(format!("{none}: did you mean {near}?"));
    }
    if !OTHERS.contains(&key) && nearest(key, OTHERS).is_none() {
        return None;
    }
    let models = values_of(view, GPU_LABEL);
    let cure = match wanted.iter().find_map(|value| model_in(value, &models)) {
        Some(model) => format!("did you mean {GPU_LABEL}: {model}?"),
        None => format!("choose the GPU model by {GPU_LABEL}"),
    };
    Some(format!("{none}: {cure}"))
}

/// The GPU model that a longer name has in it: the L4 of `NVIDIA-L4`, the A100 of `nvidia-tesla-a100`.
fn model_in<'v>(name: &str, models: &BTreeSet<&'v str>) -> Option<&'v str> {
    let words = |text: &str| -> Vec<String> {
        let lower = text.to_ascii_lowercase();
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let name = words(name);
    let has = |model: &&&str| {
        let model = words(model);
        !model.is_empty() && name.windows(model.len()).any(|part| part == model)
    };
    models.iter().filter(has).max_by_key(|model| model.len()).copied()
}
