use stoker_core::base::ids::{Region, ZoneId};
use stoker_core::facts::supply::{EndedWhy, Instance, InstanceState};
use stoker_core::market::offer::CapacityType;

use super::{instance, instance_id, is_gone, provider_id, why_ended};
use crate::answers::Machine;

/// A machine as EC2 describes it, with more elements.
fn machine(state: &str, more: &str) -> Machine {
    let text = format!(
        "<item><instanceId>i-0123456789abcdef0</instanceId><instanceState><code>16</code><name>{state}</name></instanceState>\
         <privateDnsName>ip-10-0-1-2.ec2.internal</privateDnsName><instanceType>g6.xlarge</instanceType>\
         <launchTime>2026-11-02T12:00:00.000Z</launchTime><placement><availabilityZone>us-east-1a</availabilityZone>\
         <availabilityZoneId>use1-az1</availabilityZoneId></placement>{more}</item>"
    );
    quick_xml::de::from_str(&text).unwrap()
}

/// Tags of a machine that was bought so.
fn tags(bought: &str) -> String {
    format!(
        "<tagSet><item><key>stoker.dev/launch-key</key><value>prod/g/0c4de2a1/7/1</value></item><item>\
         <key>stoker.dev/capacity-type</key><value>{bought}</value></item></tagSet>"
    )
}

fn read(machine: &Machine) -> Result<Instance, String> {
    let known = |name: &str| (name == "us-east-1b").then(|| ZoneId::new("use1-az2").unwrap());
    instance(machine, &Region::new("us-east-1").unwrap(), known)
}

#[test]
fn a_machine_is_bought_as_it_runs_now() {
    let spot = "<instanceLifecycle>spot</instanceLifecycle>";
    let request = "<spotInstanceRequestId>sir-1</spotInstanceRequestId>";
    let block = "<instanceLifecycle>capacity-block</instanceLifecycle>";
    let reserved = "<capacityReservationId>cr-1</capacityReservationId>";
    for (elements, tag, bought) in [
        ("", "on-demand", CapacityType::OnDemand),
        (spot, "spot", CapacityType::Spot),
        (request, "spot", CapacityType::Spot),
        (block, "reserved", CapacityType::Reserved),
        (reserved, "reserved", CapacityType::Reserved),
        // The reservation was cancelled.
        ("", "reserved", CapacityType::OnDemand),
        ("<capacityReservationId/>", "reserved", CapacityType::OnDemand),
        // It slipped into somebody's open reservation.
        (reserved, "on-demand", CapacityType::OnDemand),
        ("<instanceLifecycle/><spotInstanceRequestId/>", "on-demand", CapacityType::OnDemand),
    ] {
        let machine = machine("running", &(elements.to_owned() + &tags(tag)));
        assert_eq!(read(&machine).unwrap().market.capacity_type, bought, "{elements} {tag}");
    }
}

#[test]
fn each_state_of_ec2_is_one_of_the_services() {
    for (name, state) in [
        ("pending", InstanceState::Pending),
        ("running", InstanceState::Running),
        ("shutting-down", InstanceState::Stopping),
        ("stopping", InstanceState::Stopping),
        ("stopped", InstanceState::Stopping),
    ] {
        let machine = machine(name, &tags("on-demand"));
        assert_eq!(read(&machine).unwrap().state, state, "{name}");
        assert!(!is_gone(&machine));
    }
    assert!(is_gone(&machine("terminated", "")));
}

#[test]
fn a_machine_is_called_by_the_name_of_its_zone() {
    let of = read(&machine("running", &tags("spot"))).unwrap();
    assert_eq!(of.provider_id.as_str(), "aws:///us-east-1a/i-0123456789abcdef0");
    assert_eq!(instance_id(&of.provider_id), Some("i-0123456789abcdef0"));
    assert_eq!((of.node_name.as_str(), of.market.place.zone.as_str()), ("ip-10-0-1-2.ec2.internal", "use1-az1"));
    assert_eq!(of.key.as_str(), "prod/g/0c4de2a1/7/1");
    assert_eq!(of.launched_at.to_string(), "2026-11-02T12:00:00Z");
}

#[test]
fn an_answer_without_zone_ids_is_read_by_zone_names() {
    let mut old = machine("running", &tags("spot"));
    old.placement.availability_zone_id = None;
    assert!(read(&old).unwrap_err().contains("a zone that is not known"));
    old.placement.availability_zone = "us-east-1b".to_owned();
    assert_eq!(read(&old).unwrap().market.place.zone.as_str(), "use1-az2");
    old.private_dns_name = None;
    assert_eq!(read(&old).unwrap().node_name.as_str(), "i-0123456789abcdef0");
}

#[test]
fn what_is_missing_is_said() {
    let error = read(&machine("running", "<tagSet/>")).unwrap_err();
    assert!(error.contains("i-0123456789abcdef0 has no launch key in its tag stoker.dev/launch-key"), "{error}");
    let mut nowhere = machine("running", &tags("spot"));
    nowhere.placement.availability_zone.clear();
    assert!(provider_id(&nowhere).is_err());
    let mut nobody = machine("running", &tags("spot"));
    nobody.instance_id.clear();
    assert!(provider_id(&nobody).is_err());
}

#[test]
fn only_a_reclaim_is_one() {
    for (code, why) in [
        ("Server.SpotInstanceTermination", Some(EndedWhy::Reclaimed)),
        ("Server.SpotInstanceShutdown", Some(EndedWhy::Reclaimed)),
        ("Client.UserInitiatedShutdown", Some(EndedWhy::Deleted)),
        ("Server.InsufficientInstanceCapacity", Some(EndedWhy::FailedBoot)),
        ("Client.VolumeLimitExceeded", Some(EndedWhy::FailedBoot)),
        ("Client.InternalError", Some(EndedWhy::FailedBoot)),
        ("Client.InvalidSnapshot.NotFound", Some(EndedWhy::FailedBoot)),
        ("Client.InstanceInitiatedShutdown", Some(EndedWhy::Broken)),
        ("Server.InternalError", Some(EndedWhy::Broken)),
        ("Server.ScheduledStop", None),
        ("", None),
    ] {
        let machine = machine("terminated", &format!("<stateReason><code>{code}</code><message>m</message></stateReason>"));
        assert_eq!(why_ended(&machine), why, "{code}");
    }
    assert_eq!(why_ended(&machine("terminated", "")), None);
}
