//! A machine of EC2's, as the service knows machines.

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, InstanceType, LaunchKey, NodeName, ProviderId, Region, ZoneId};
use stoker_core::facts::supply::{EndedWhy, Instance, InstanceState, KeyParts};
use stoker_core::market::offer::{CapacityType, Market, Place};

use crate::answers::Machine;
use crate::launch::{CAPACITY_TYPE_TAG, KEY_TAG};

/// What a machine's Node will have as its `spec.providerID`: by the zone's name, with three slashes.
pub(crate) fn provider_id(machine: &Machine) -> Result<ProviderId, String> {
    let (zone, id) = (&machine.placement.availability_zone, &machine.instance_id);
    if zone.is_empty() || id.is_empty() {
        return Err(format!("{id:?} has no zone or no id"));
    }
    ProviderId::new(format!("aws:///{zone}/{id}")).map_err(|error| error.to_string())
}

/// The id of the machine that is called so.
pub(crate) fn instance_id(provider_id: &ProviderId) -> Option<&str> {
    provider_id.as_str().strip_prefix("aws:///")?.split_once('/').map(|(_, id)| id)
}

/// The name of the zone of the machine that is called so.
pub(crate) fn zone_name(provider_id: &ProviderId) -> Option<&str> {
    provider_id.as_str().strip_prefix("aws:///")?.split_once('/').map(|(zone, _)| zone)
}

/// The machine; `zone_id` knows zones by their names, for answers that have no id of theirs.
///
/// # Errors
/// What is missing or cannot be read.
pub(crate) fn instance(
    machine: &Machine,
    region: &Region,
    zone_id: impl Fn(&str) -> Option<ZoneId>,
) -> Result<Instance, String> {
    let id = &machine.instance_id;
    let missing = |what: &str| format!("machine {id} {what}");
    // One of another form would be of no record, and nobody would hear of its machine.
    let key = machine.tag(KEY_TAG).filter(|key| key.parse::<KeyParts>().is_ok()).and_then(|key| LaunchKey::new(key).ok());
    let zone = machine.placement.availability_zone_id.as_deref().and_then(|zone| ZoneId::new(zone).ok());
    let zone = zone.or_else(|| zone_id(&machine.placement.availability_zone));
    let launched_at = machine.launch_time.as_deref().and_then(|at| at.parse().ok());
    let place = Place {
        cloud: Cloud::new("aws").map_err(|error| error.to_string())?,
        region: region.clone(),
        zone: zone.ok_or_else(|| missing("is in a zone that is not known"))?,
        instance_type: InstanceType::new(machine.instance_type.as_str()).map_err(|error| error.to_string())?,
    };
    let node_name = machine.private_dns_name.as_deref().unwrap_or(id);
    Ok(Instance {
        key: key.ok_or_else(|| missing(&format!("has no launch key in its tag {KEY_TAG}: end it by hand, or mend the tag")))?,
        provider_id: provider_id(machine)?,
        node_name: NodeName::new(node_name).map_err(|error| error.to_string())?,
        market: Market { place, capacity_type: bought(machine) },
        launched_at: launched_at.unwrap_or(Timestamp::UNIX_EPOCH),
        state: match machine.instance_state.name.as_str() {
            "pending" => InstanceState::Pending,
            "running" => InstanceState::Running,
            // Ours are never stopped on purpose: one that is stopped is ended.
            _ => InstanceState::Stopping,
        },
    })
}

/// How it was bought. What it is now tells a reservation that has ended from one that has not.
fn bought(machine: &Machine) -> CapacityType {
    let lifecycle = machine.instance_lifecycle.as_deref().unwrap_or_default();
    let was_reserved = machine.tag(CAPACITY_TYPE_TAG) == Some(CapacityType::Reserved.as_str());
    if lifecycle == "spot" || machine.spot_instance_request_id.is_some() {
        CapacityType::Spot
    } else if lifecycle == "capacity-block" || (was_reserved && machine.capacity_reservation_id.is_some()) {
        CapacityType::Reserved
    } else {
        CapacityType::OnDemand
    }
}

/// Whether it has ended.
pub(crate) fn is_gone(machine: &Machine) -> bool {
    machine.instance_state.name == "terminated"
}

/// Why it ended; `None` where EC2 does not say.
pub(crate) fn why_ended(machine: &Machine) -> Option<EndedWhy> {
    match machine.state_reason.code.as_str() {
        "Server.SpotInstanceTermination" | "Server.SpotInstanceShutdown" => Some(EndedWhy::Reclaimed),
        "Client.UserInitiatedShutdown" => Some(EndedWhy::Deleted),
        "Server.InsufficientInstanceCapacity"
        | "Client.VolumeLimitExceeded"
        | "Client.InternalError"
        | "Client.InvalidSnapshot.NotFound" => Some(EndedWhy::FailedBoot),
        "Client.InstanceInitiatedShutdown" | "Server.InternalError" => Some(EndedWhy::Broken),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
