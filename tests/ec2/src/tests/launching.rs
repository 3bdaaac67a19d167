//! Launches, their tokens, their refusals and their ends.

use super::{Rig, element, refused};
use crate::{Fault, Market, Rule, State};

#[tokio::test]
async fn a_token_is_of_one_zone() {
    let rig = Rig::new();
    let first = rig.id("a", "t", &[]).await;
    assert_eq!(rig.id("a", "t", &[]).await, first, "the same token, the same zone");
    let other = rig.id("b", "t", &[]).await;
    assert_ne!(other, first, "the same token in another zone buys again");
    let world = rig.peer.world();
    assert_eq!(world.alive().len(), 2);
    assert_eq!(world.machines_by_token()["t"].len(), 2);
}

#[tokio::test]
async fn other_parameters_under_a_token_are_refused() {
    let rig = Rig::new();
    rig.id("a", "t", &[]).await;
    refused(&rig.run("a", "t", &[("InstanceType", "g6.2xlarge")]).await, 400, "IdempotentParameterMismatch");
    assert_eq!(rig.peer.world().alive().len(), 1);
}

#[tokio::test]
async fn a_replay_tells_the_newer_state_and_of_an_end() {
    let rig = Rig::new();
    let first = rig.run("a", "t", &[]).await;
    assert_eq!(element(&first.1, "name"), "pending");
    rig.pass(5);
    assert_eq!(element(&rig.run("a", "t", &[]).await.1, "name"), "running");
    let id = element(&first.1, "instanceId");
    assert_eq!(rig.ask("TerminateInstances", &[("InstanceId.1", &id)]).await.0, 200);
    assert_eq!(element(&rig.run("a", "t", &[]).await.1, "name"), "shutting-down");
    rig.pass(30);
    refused(&rig.run("a", "t", &[]).await, 400, "IdempotentInstanceTerminated");
    rig.pass(7_200);
    refused(&rig.run("a", "t", &[]).await, 400, "IdempotentInstanceTerminated");
}

#[tokio::test]
async fn a_failed_launch_leaves_no_trace_under_its_token() {
    let rig = Rig::new();
    rig.peer.world().region("us-east-1").set_stock("g6.xlarge", "use1-az1", Market::OnDemand, Some(0));
    let told = rig.run("a", "t", &[]).await;
    refused(&told, 500, "InsufficientInstanceCapacity");
    assert!(told.1.contains("or choosing us-east-1b, us-east-1c."), "{}", told.1);
    rig.peer.world().region("us-east-1").set_stock("g6.xlarge", "use1-az1", Market::OnDemand, Some(1));
    rig.id("a", "t", &[("InstanceInitiatedShutdownBehavior", "terminate")]).await;
    refused(&rig.run("a", "u", &[]).await, 500, "InsufficientInstanceCapacity");
}

#[tokio::test]
async fn a_lost_answer_leaves_the_machine() {
    let rig = Rig::new();
    rig.peer.world().fault(Rule::of("RunInstances", Fault::Lose).times(1));
    assert_eq!(rig.run_lost("a", "t", &[]).await, None);
    assert_eq!(rig.peer.world().alive().len(), 1);
    let id = rig.id("a", "t", &[]).await;
    let world = rig.peer.world();
    assert_eq!(world.machines.keys().cloned().collect::<Vec<_>>(), [id]);
    assert_eq!(world.calls.iter().map(|call| call.status).collect::<Vec<_>>(), [0, 200]);
}

#[tokio::test]
async fn a_cut_before_the_work_leaves_nothing() {
    let rig = Rig::new();
    rig.peer.world().fault(Rule::of("RunInstances", Fault::Cut).times(1));
    assert_eq!(rig.run_lost("a", "t", &[]).await, None);
    assert_eq!(rig.peer.world().machines.len(), 0);
}

#[tokio::test]
async fn one_bad_id_ends_none() {
    let rig = Rig::new();
    let id = rig.id("a", "t", &[]).await;
    let told = rig.ask("TerminateInstances", &[("InstanceId.1", &id), ("InstanceId.2", "i-00000000000000bad")]).await;
    refused(&told, 400, "InvalidInstanceID.NotFound");
    let world = rig.peer.world();
    assert_eq!(world.alive().len(), 1);
    assert!(world.named_to_end.contains("i-00000000000000bad"));
}

#[tokio::test]
async fn a_protected_machine_spares_its_zone() {
    let rig = Rig::new();
    let (kept, spared, ended) = (rig.id("a", "1", &[]).await, rig.id("a", "2", &[]).await, rig.id("b", "3", &[]).await);
    rig.peer.world().machines.get_mut(&kept).unwrap().protected = true;
    let ids = [("InstanceId.1", kept.as_str()), ("InstanceId.2", &spared), ("InstanceId.3", &ended)];
    refused(&rig.ask("TerminateInstances", &ids).await, 400, "OperationNotPermitted");
    let world = rig.peer.world();
    let mut alive: Vec<&str> = world.alive().iter().map(|machine| machine.id.as_str()).collect();
    let mut expected = [kept.as_str(), spared.as_str()];
    alive.sort_unstable();
    expected.sort_unstable();
    assert_eq!(alive, expected);
    assert_eq!(world.state(&ended), Some(State::ShuttingDown));
}

#[tokio::test]
async fn quotas_count_vcpu_of_a_class_and_market() {
    let rig = Rig::new();
    rig.peer.world().region("us-east-1").set_quota("L-DB2E81BA", 7);
    rig.peer.world().region("us-east-1").set_quota("L-3819A6DF", 3);
    let id = rig.id("a", "1", &[]).await;
    refused(&rig.run("b", "2", &[]).await, 400, "VcpuLimitExceeded");
    let spot = [("InstanceMarketOptions.MarketType", "spot")];
    refused(&rig.run("b", "3", &spot).await, 400, "MaxSpotInstanceCountExceeded");
    rig.ask("TerminateInstances", &[("InstanceId.1", &id)]).await;
    rig.id("b", "2", &[]).await;
}

#[tokio::test]
async fn an_open_reservation_is_eaten_by_whoever_does_not_decline() {
    let rig = Rig::new();
    rig.peer.world().region("us-east-1").add_reservation("cr-1", "g6.xlarge", "use1-az1", 1).open = true;
    let target = [
        ("CapacityReservationSpecification.CapacityReservationPreference", "capacity-reservations-only"),
        ("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", "cr-1"),
    ];
    let declines = rig.run("a", "1", &[]).await;
    assert!(!declines.1.contains("<capacityReservationId>"), "{}", declines.1);
    let says_nothing = [("CapacityReservationSpecification.CapacityReservationPreference", "")];
    let eaten = rig.run("a", "2", &says_nothing).await;
    assert_eq!(element(&eaten.1, "capacityReservationId"), "cr-1");
    refused(&rig.run("a", "3", &target).await, 400, "ReservationCapacityExceeded");
    let id = element(&eaten.1, "instanceId");
    rig.ask("TerminateInstances", &[("InstanceId.1", &id)]).await;
    rig.pass(30);
    rig.id("a", "3", &target).await;
}

#[tokio::test]
async fn a_block_is_used_between_its_dates() {
    let rig = Rig::new();
    let now = rig.peer.now();
    {
        let mut world = rig.peer.world();
        let block = world.region("us-east-1").add_reservation("cr-b", "p5.48xlarge", "use1-az1", 1);
        block.kind = crate::ReservationKind::Block;
        block.starts = now + std::time::Duration::from_mins(1);
        block.ends = Some(now + std::time::Duration::from_hours(2));
    }
    let block = [
        ("InstanceType", "p5.48xlarge"),
        ("InstanceMarketOptions.MarketType", "capacity-block"),
        ("CapacityReservationSpecification.CapacityReservationPreference", "capacity-reservations-only"),
        ("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", "cr-b"),
    ];
    refused(&rig.run("a", "1", &block).await, 400, "InvalidCapacityReservationState.PendingActivation");
    rig.pass(60);
    let told = rig.run("a", "1", &block).await;
    assert_eq!(element(&told.1, "instanceLifecycle"), "capacity-block");
    rig.pass(5_400);
    refused(&rig.run("a", "2", &block).await, 400, "InvalidCapacityReservationState");
    assert_eq!(rig.peer.world().alive().len(), 0, "EC2 ends a block's machines half an hour before its end");
    let mut unknown = block;
    unknown[3].1 = "cr-none";
    refused(&rig.run("a", "3", &unknown).await, 400, "InvalidCapacityReservationId.NotFound");
}

#[tokio::test]
async fn what_a_launch_names_must_be_there() {
    let rig = Rig::new();
    rig.peer.world().buckets = false;
    let value = "InvalidParameterValue";
    for (name, given, code) in [
        ("NetworkInterface.1.SubnetId", "subnet-none", "InvalidSubnetID.NotFound"),
        ("NetworkInterface.1.SecurityGroupId.1", "sg-none", "InvalidGroup.NotFound"),
        ("ImageId", "ami-none", "InvalidAMIID.NotFound"),
        ("ImageId", "none", "InvalidAMIID.Malformed"),
        ("IamInstanceProfile.Name", "none", value),
        ("InstanceType", "none", value),
        ("InstanceType", "g5g.xlarge", value),
        ("MaxCount", "2", value),
        ("SubnetId", "subnet-us-east-1a", "InvalidParameterCombination"),
        ("NetworkInterface.2.InterfaceType", "efa-only", "InvalidParameterCombination"),
        ("MetadataOptions.InstanceMetadataTags", "enabled", value),
    ] {
        refused(&rig.run("a", "t", &[(name, given)]).await, 400, code);
    }
    let long = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, "x".repeat(16_385));
    refused(&rig.run("a", "t", &[("UserData", &long)]).await, 400, value);
    rig.peer.world().region("us-east-1").offered.remove(&("g6.xlarge".to_owned(), "use1-az1".to_owned()));
    refused(&rig.run("a", "t", &[]).await, 400, "Unsupported");
    rig.peer.world().region("us-east-1").subnets.get_mut("subnet-us-east-1b").unwrap().free = 0;
    refused(&rig.run("b", "t", &[]).await, 400, "InsufficientFreeAddressesInSubnet");
    assert_eq!(rig.peer.world().machines.len(), 0);
    refused(&rig.run("c", "t", &[("DryRun", "true")]).await, 412, "DryRunOperation");
    assert_eq!(rig.peer.world().machines.len(), 0);
}

#[tokio::test]
async fn interfaces_take_addresses_unless_they_are_efa_only() {
    let rig = Rig::new();
    let mut layout = vec![("InstanceType".to_owned(), "p5.48xlarge".to_owned())];
    for card in 0..32 {
        let prefix = format!("NetworkInterface.{}", card + 2);
        layout.push((format!("{prefix}.NetworkCardIndex"), card.to_string()));
        layout.push((format!("{prefix}.DeviceIndex"), u32::from(card == 0).to_string()));
        layout.push((format!("{prefix}.InterfaceType"), "efa-only".to_owned()));
    }
    let mut layout: Vec<(&str, &str)> = layout.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let id = rig.id("a", "t", &layout).await;
    let (addresses, interfaces) = {
        let machine = &rig.peer.world().machines[&id];
        (machine.addresses, machine.interfaces.len())
    };
    assert_eq!((addresses, interfaces), (1, 33));
    assert!(rig.ask("DescribeSubnets", &[]).await.1.contains("<availableIpAddressCount>3999<"));
    layout.push(("NetworkInterface.1.AssociatePublicIpAddress", "true"));
    refused(&rig.run("b", "u", &layout).await, 400, "InvalidParameterCombination");
}

#[tokio::test]
async fn the_policy_wants_every_kind_tagged() {
    let rig = Rig::new();
    rig.peer.world().require_tags = Some("prod".to_owned());
    refused(&rig.run("a", "t", &[]).await, 403, "UnauthorizedOperation");
    let mut tags = Vec::new();
    for (number, kind) in ["instance", "volume", "network-interface", "spot-instances-request"].into_iter().enumerate() {
        let number = number + 1;
        tags.push((format!("TagSpecification.{number}.ResourceType"), kind));
        tags.push((format!("TagSpecification.{number}.Tag.1.Key"), "stoker.dev/cluster"));
        tags.push((format!("TagSpecification.{number}.Tag.1.Value"), "prod"));
        tags.push((format!("TagSpecification.{number}.Tag.2.Key"), "stoker.dev/launch-key"));
        tags.push((format!("TagSpecification.{number}.Tag.2.Value"), "prod/1"));
    }
    let mut tags: Vec<(&str, &str)> = tags.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    rig.id("a", "1", &tags[..15]).await;
    tags.push(("InstanceMarketOptions.MarketType", "spot"));
    rig.id("a", "2", &tags).await;
    tags.retain(|(name, _)| !name.starts_with("TagSpecification.4"));
    refused(&rig.run("a", "3", &tags).await, 403, "UnauthorizedOperation");
}
