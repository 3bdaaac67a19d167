//! The tolerations that a waiting pod of an isolated pool lacks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use stoker_core::base::ids::InstanceType;
use stoker_core::catalogue::isolation::{Admitted, SHAPE_TAINT, Shape, admitted, shape_taint};

use super::OPENED;
use crate::kube::pending::PendingRow;
use crate::publish::view::View;

/// The shapes that a pod may use and does not tolerate yet; `now` by the wall, as the API server tells of pods.
pub(super) fn lacking(pod: &PendingRow, view: &View, now: Timestamp) -> BTreeMap<InstanceType, Admitted> {
    let wants_gpus = pod.requests.as_ref().is_some_and(|requests| requests.all_gpus() > 0);
    let Some(needs) = pod.needs(now).filter(|_| wants_gpus) else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for pool in &view.catalogue.policy.pools {
        let Some(rules) = pool.isolation else { continue };
        let of_pool = view.groups.values().filter(|group| group.group.pool == pool.name);
        let shapes: Vec<Shape<'_>> = of_pool
            .filter(|group| {
                view.catalogue.groups.contains_key(&group.group.id) && pod.admits(&group.group.template, SHAPE_TAINT)
            })
            .filter_map(|group| group.limits.shape(&group.group, &view.catalogue, &view.memory, view.wall))
            .collect();
        all.extend(admitted(&needs, &shapes, rules, pool.waiting));
    }
    all.retain(|instance_type, _| !pod.tolerates(&shape_taint(instance_type)));
    all
}

/// The change that adds tolerations for those shapes.
pub(super) fn patch(pod: &PendingRow, shapes: &BTreeMap<InstanceType, Admitted>) -> Value {
    let added = shapes
        .keys()
        .map(shape_taint)
        .map(|taint| json!({ "key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect.as_str() }));
    let tolerations: Vec<Value> = pod.tolerations.iter().cloned().chain(added).collect();
    let opened: Vec<String> = shapes
        .iter()
        .filter_map(|(shape, why)| match why {
            Admitted::InClass => None,
            Admitted::ClassSoldOut { extra } => Some(format!("{shape}: its own price class is sold out; {extra}/h more")),
        })
        .collect();
    // Only on top of what was read: another writer's tolerations must not be lost.
    let mut metadata = json!({ "resourceVersion": pod.meta.resource_version });
    if !opened.is_empty() {
        metadata["annotations"] = json!({ OPENED: opened.join("; ") });
    }
    json!({ "metadata": metadata, "spec": { "tolerations": tolerations } })
}
