//! A selector that names what no group has, and what was probably meant.

use std::collections::BTreeSet;

use stoker_core::policy::{nearest, quoted};
use stoker_core::template::{GPU_LABEL, GROUP_LABEL, POOL_LABEL};

use crate::kube::pending::PendingRow;
use crate::view::View;

/// Labels that only our nodes have.
const OURS: [&str; 3] = [POOL_LABEL, GPU_LABEL, GROUP_LABEL];

/// What is wrong with a waiting pod's selector, where it means one of our groups and names none; `None` where nothing is.
pub(super) fn near_miss(pod: &PendingRow, view: &View) -> Option<String> {
    let ours = |key: &str| OURS.contains(&key) || nearest(key, OURS).is_some();
    // A pod that names nothing of ours may be waiting for anybody's nodes.
    if !pod.node_selector.keys().any(|key| ours(key)) {
        return None;
    }
    pod.node_selector.iter().find_map(|(key, value)| {
        let values: BTreeSet<&str> =
            view.groups.values().filter_map(|group| group.group.template.labels.get(key)).map(String::as_str).collect();
        if values.contains(value.as_str()) || value.is_empty() {
            return None;
        }
        if values.is_empty() {
            let near = nearest(key, OURS)?;
            return Some(format!("no node group has the label {key} of its nodeSelector: did you mean {near}?"));
        }
        let cure = match nearest(value, values.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None if values.len() <= 10 => format!("there are {}", values.into_iter().collect::<Vec<_>>().join(", ")),
            None => "see `stoker groups`".to_owned(),
        };
        Some(format!("its nodeSelector {key}: {} matches no node group: {cure}", quoted(value)))
    })
}
