//! Events as `EventBridge` puts them on a queue.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::machine::Machine;

/// An event of a source about an account and region, with the detail given.
pub fn event(source: &str, what: &str, account: &str, region: &str, at: Timestamp, detail: &Value) -> String {
    let id = crate::world::scrambled(&format!("{what} {at} {detail}")) & 0xFFFF_FFFF_FFFF;
    let id = format!("00000000-0000-4000-a000-{id:012x}");
    let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "version": "0", "id": id, "detail-type": what, "source": source, "account": account, "time": time, "region": region,
        "resources": [], "detail": detail,
    })
    .to_string()
}

fn of_machine(machine: &Machine, what: &str, at: Timestamp, detail: &Value) -> String {
    event("aws.ec2", what, &machine.account, &machine.region, at, detail)
}

/// The notice, at that time, that a Spot machine will be taken 120 s later.
pub fn spot_interruption(machine: &Machine, at: Timestamp) -> String {
    let detail = json!({ "instance-id": machine.id, "instance-action": "terminate" });
    of_machine(machine, "EC2 Spot Instance Interruption Warning", at, &detail)
}

/// The hint that a Spot machine may be taken.
pub fn rebalance(machine: &Machine, at: Timestamp) -> String {
    of_machine(machine, "EC2 Instance Rebalance Recommendation", at, &json!({ "instance-id": machine.id }))
}

/// The news that a machine is in a state, by EC2's name of it.
pub fn state_change(machine: &Machine, state: &str, at: Timestamp) -> String {
    let detail = json!({ "instance-id": machine.id, "state": state });
    of_machine(machine, "EC2 Instance State-change Notification", at, &detail)
}

/// The notice that a machine of a capacity block will be taken at `end`.
pub fn block_interruption(machine: &Machine, at: Timestamp, end: Timestamp) -> String {
    let detail = json!({
        "instance-id": machine.id, "instance-action": "terminate", "availability-zone-id": machine.zone_id,
        "instance-termination-time": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "instance-lifecycle": "capacity-block",
    });
    of_machine(machine, "EC2 Capacity Reservation Instance Interruption Warning", at, &detail)
}

/// The notice of a scheduled change of a machine's host, to begin at `start`.
pub fn scheduled_change(machine: &Machine, code: &str, at: Timestamp, start: Timestamp) -> String {
    let detail = json!({
        "service": "EC2", "eventTypeCategory": "scheduledChange", "eventTypeCode": code,
        "startTime": start.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(), "affectedEntities": [{ "entityValue": machine.id }],
    });
    event("aws.health", "AWS Health Event", &machine.account, &machine.region, at, &detail)
}
