//! What a Node tells of the machine that it is: its cloud, type, place and how it was bought.

use std::collections::BTreeMap;

use stoker_core::base::ids::{Cloud, InstanceType};
use stoker_core::market::labels::is_of_capacity_type;
use stoker_core::market::offer::{CapacityType, InstanceSpec};
use stoker_core::market::price::PriceBook;

use super::gpu_labels::{GPU_LABELS, model_of};

/// The label with its type.
pub(crate) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// The label with its region.
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
/// The label with the name of its zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// The label with a zone's id on AWS: names are each account's own.
pub(crate) const ZONE_ID: &str = "topology.k8s.aws/zone-id";

/// How a node was bought, by one of its labels; `None` where the label is of something else.
pub(crate) fn capacity_type(key: &str, value: &str) -> Option<CapacityType> {
    if !is_of_capacity_type(key) {
        return None;
    }
    Some(match value.to_ascii_lowercase().as_str() {
        "spot" | "true" | "preemptible" => CapacityType::Spot,
        "reserved" | "reservation" | "capacity_block" => CapacityType::Reserved,
        _ => CapacityType::OnDemand,
    })
}

/// How a node was bought, by the first of its labels that says so.
pub(crate) fn bought_as(labels: &BTreeMap<String, String>) -> Option<CapacityType> {
    labels.iter().find_map(|(key, value)| capacity_type(key, value))
}

/// The name of the cloud that a provider id begins with; none of a node of KWOK's, which stands for one of any cloud.
pub(crate) fn cloud_of(provider_id: &str) -> Option<&str> {
    match provider_id.split_once("://")?.0 {
        "kwok" => None,
        "gce" => Some("gcp"),
        scheme => Some(scheme),
    }
}

/// What the tables say of a node's type. GPUs that were attached to a machine are a part of its name there: `n1-standard-4+1xt4`.
pub(crate) fn spec_of<'b>(
    book: &'b PriceBook,
    cloud: &Cloud,
    labels: &BTreeMap<String, String>,
    gpus: u64,
) -> Option<&'b InstanceSpec> {
    let name = labels.get(INSTANCE_TYPE)?;
    let attached = || {
        let model = GPU_LABELS.iter().find_map(|key| model_of(book, labels.get(*key)?))?.0;
        book.specs().find(|spec| {
            let rest = spec.instance_type.as_str().strip_prefix(name.as_str());
            spec.cloud == *cloud
                && rest.is_some_and(|rest| rest.starts_with('+'))
                && spec.gpu_model == *model
                && u64::from(spec.advertised_gpus()) == gpus
        })
    };
    book.spec(cloud, &InstanceType::new(name.as_str()).ok()?).or_else(attached).map(AsRef::as_ref)
}
