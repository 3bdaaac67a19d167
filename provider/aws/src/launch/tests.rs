use std::collections::BTreeMap;

use stoker_core::base::ids::{ClusterName, LaunchKey, NodeClassName};
use stoker_core::market::offer::CapacityType;
use stoker_service::suppliers::Launch;

use super::{Ordered, token};
use crate::testing::{class, launch};
use crate::wire::Form;

fn form(launch: &Launch, fields: &str, reservation: Option<(&str, bool)>) -> Result<Form, String> {
    let (cluster, class) = (ClusterName::new("prod").unwrap(), class(fields));
    let token = token("111111111111", "us-east-1", &launch.request.key);
    let ordered = Ordered {
        launch,
        class_name: &NodeClassName::new("gpu").unwrap(),
        class: &class,
        cluster: &cluster,
        eks: "prod-eks",
        token: &token,
        image: "ami-1",
        subnet: "subnet-1",
        groups: &["sg-1".to_owned(), "sg-2".to_owned()],
        reservation,
        user_data: "aGVsbG8=",
    };
    ordered.form()
}

fn made(bought: CapacityType, reservation: Option<(&str, bool)>) -> Form {
    form(&launch("g6.xlarge", bought, &[]), "", reservation).unwrap()
}

/// The tags of each kind of resource.
fn tags(form: &Form) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut kinds = BTreeMap::new();
    for at in 1.. {
        let specification = format!("TagSpecification.{at}");
        let Some(kind) = form.get(&format!("{specification}.ResourceType")) else { break };
        let of = (1..).map_while(|at| {
            let value = form.get(&format!("{specification}.Tag.{at}.Value"))?.to_owned();
            Some((form.get(&format!("{specification}.Tag.{at}.Key"))?.to_owned(), value))
        });
        kinds.insert(kind.to_owned(), of.collect());
    }
    kinds
}

#[test]
fn a_token_follows_from_account_region_and_key_alone() {
    let key = |text: &str| LaunchKey::new(text).unwrap();
    let first = token("111111111111", "us-east-1", &key("prod/g/0c4de2a1/7/1"));
    assert_eq!(first, "stk1-f589593a0579c21693dded4c02ef92ca99c3dd3bb8e4b4bbd01f89ed");
    let others = [
        token("222222222222", "us-east-1", &key("prod/g/0c4de2a1/7/1")),
        token("111111111111", "us-east-2", &key("prod/g/0c4de2a1/7/1")),
        token("111111111111", "us-east-1", &key("prod/g/0c4de2a1/7/2")),
        token("111111111111", "us-east-1", &key("prod/g/0c4de2a1/8/1")),
    ];
    for (at, other) in others.iter().enumerate() {
        assert!(*other != first && !others[at + 1..].contains(other), "{other}");
        assert_eq!(other.len(), 61);
        let digits = other.strip_prefix("stk1-").unwrap();
        assert!(digits.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)), "{other}");
    }
}

#[test]
fn every_market_says_what_it_may_be_bought_from() {
    let market = "InstanceMarketOptions.MarketType";
    let preference = "CapacityReservationSpecification.CapacityReservationPreference";
    let target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
    for (form, expected) in [
        (made(CapacityType::OnDemand, None), [None, Some("none"), None]),
        (made(CapacityType::Spot, None), [Some("spot"), Some("none"), None]),
        (made(CapacityType::Reserved, Some(("cr-1", false))), [None, Some("capacity-reservations-only"), Some("cr-1")]),
        (
            made(CapacityType::Reserved, Some(("cr-1", true))),
            [Some("capacity-block"), Some("capacity-reservations-only"), Some("cr-1")],
        ),
    ] {
        assert_eq!([market, preference, target].map(|name| form.get(name)), expected);
    }
    let spot = made(CapacityType::Spot, None);
    assert_eq!(spot.get("InstanceMarketOptions.SpotOptions.SpotInstanceType"), Some("one-time"));
    assert_eq!(spot.get("InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"), Some("terminate"));
    assert_eq!(spot.get("InstanceMarketOptions.SpotOptions.MaxPrice"), None);
}

#[test]
fn a_machine_ends_when_it_shuts_down_and_guards_its_metadata() {
    let form = made(CapacityType::OnDemand, None);
    for (name, value) in [
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("InstanceInitiatedShutdownBehavior", "terminate"),
        ("MetadataOptions.HttpTokens", "required"),
        ("MetadataOptions.HttpPutResponseHopLimit", "2"),
        ("MetadataOptions.InstanceMetadataTags", "disabled"),
        ("IamInstanceProfile.Name", "stoker-node"),
        ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", "105"),
        ("BlockDeviceMapping.1.Ebs.Encrypted", "true"),
        ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
        ("NetworkInterface.1.SecurityGroupId.2", "sg-2"),
        ("NetworkInterface.1.DeleteOnTermination", "true"),
    ] {
        assert_eq!(form.get(name), Some(value), "{name}");
    }
    // They stand in the interface, and never beside it.
    assert_eq!(
        (form.get("SubnetId"), form.get("SecurityGroupId.1"), form.get("Placement.AvailabilityZone")),
        (None, None, None)
    );
}

#[test]
fn a_class_says_what_its_machines_are_made_with() {
    let fields = "    image: { family: bottlerocket }\n    disk: { sizeGiB: 500, throughput: 500, iops: 6000, kmsKey: alias/n }\n    \
                  placementGroup: close\n";
    let form = form(&launch("g6.xlarge", CapacityType::OnDemand, &[]), fields, None).unwrap();
    for (name, value) in [
        ("Placement.GroupName", "close"),
        ("BlockDeviceMapping.1.DeviceName", "/dev/xvdb"),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", "500"),
        ("BlockDeviceMapping.1.Ebs.Throughput", "500"),
        ("BlockDeviceMapping.1.Ebs.Iops", "6000"),
        ("BlockDeviceMapping.1.Ebs.KmsKeyId", "alias/n"),
    ] {
        assert_eq!(form.get(name), Some(value), "{name}");
    }
}

/// Card, device and kind of each interface.
fn interfaces(instance_type: &str, fields: &str) -> Vec<(u32, u32, String)> {
    let form = form(&launch(instance_type, CapacityType::OnDemand, &[]), fields, None).unwrap();
    let number = |at: i32, name: &str| form.get(&format!("NetworkInterface.{at}.{name}")).map(|text| text.parse().unwrap());
    let of = (1..).map_while(|at| {
        let kind = form.get(&format!("NetworkInterface.{at}.InterfaceType")).unwrap_or("interface").to_owned();
        Some((number(at, "NetworkCardIndex").unwrap_or(0), number(at, "DeviceIndex")?, kind))
    });
    of.collect()
}

#[test]
fn every_card_with_efa_has_one_interface_that_takes_no_address() {
    let plain = (0, 0, "interface".to_owned());
    for (instance_type, cards) in [("p5.48xlarge", 32), ("p4d.24xlarge", 4), ("g6.12xlarge", 1), ("g6.xlarge", 0)] {
        let of_card = |card: u32| (card, u32::from(card == 0), "efa-only".to_owned());
        let expected: Vec<_> = std::iter::once(plain.clone()).chain((0..cards).map(of_card)).collect();
        assert_eq!(interfaces(instance_type, "    efa: all\n"), expected, "{instance_type}");
        assert_eq!(interfaces(instance_type, ""), expected[..1], "{instance_type}");
    }
}

#[test]
fn everything_that_a_launch_makes_bears_whose_it_is() {
    let mut launch = launch("g6.xlarge", CapacityType::Spot, &[]);
    launch.request.reservation = Some("training".to_owned());
    let tags = tags(&form(&launch, "    tags: { team: ml, Name: mine }\n", None).unwrap());
    let kinds: Vec<&str> = tags.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["instance", "network-interface", "spot-instances-request", "volume"]);
    for of in tags.values() {
        assert_eq!(of["stoker.dev/cluster"], "prod");
        assert_eq!(of["stoker.dev/launch-key"], launch.request.key.as_str());
        assert_eq!(of["team"], "ml");
    }
    let has = |kind: &str, key: &str| tags[kind].contains_key(key);
    for key in ["stoker.dev/pool", "stoker.dev/group", "stoker.dev/capacity-type", "stoker.dev/commitment"] {
        assert!(has("instance", key) && has("volume", key), "{key}");
        assert!(!has("network-interface", key) && !has("spot-instances-request", key), "{key}");
    }
    assert_eq!(tags["instance"]["kubernetes.io/cluster/prod-eks"], "owned");
    assert!(has("network-interface", "kubernetes.io/cluster/prod-eks") && !has("volume", "kubernetes.io/cluster/prod-eks"));
    assert_eq!(tags["instance"]["Name"], "mine");
    let plain = self::tags(&made(CapacityType::OnDemand, None));
    assert!(!plain.contains_key("spot-instances-request"));
    assert_eq!(plain["instance"]["Name"], "prod/training.g6-xlarge.us-east-1a");
}

#[test]
fn a_tag_that_ec2_does_not_take_is_refused() {
    let mut launch = launch("g6.xlarge", CapacityType::OnDemand, &[]);
    launch.request.key = LaunchKey::new(format!("prod/{}/0c4de2a1/7/1", "g".repeat(260))).unwrap();
    let error = form(&launch, "", None).unwrap_err();
    assert!(error.contains("stoker.dev/launch-key is longer than EC2 takes"), "{error}");
}

#[test]
fn a_retry_is_the_same_request() {
    let launch = launch("p5.48xlarge", CapacityType::Spot, &[("team", "ml")]);
    let once = || form(&launch, "    efa: all\n    tags: { b: x, a: y }\n", None).unwrap().encoded();
    assert_eq!(once(), once());
}
