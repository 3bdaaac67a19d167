use serde_json::Value;
use stoker_core::base::ids::{Cloud, InstanceType, NodeClassName, NodeGroupId, Region, ZoneId, ZoneName};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::facts::supply::LaunchRequest;
use stoker_core::market::offer::{CapacityType, Place};

use super::*;

const KEY: &str = "prod/gpu.g6-xlarge.us-east-1a/0c4de2a1/12/1";

fn launch() -> Launch {
    let place = Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new("g6.xlarge").unwrap(),
    };
    let labels = [
        ("stoker.dev/pool", "gpu"),
        ("node.kubernetes.io/instance-type", "g6.xlarge"),
        ("karpenter.k8s.aws/instance-family", "g6"),
        ("nvidia.com/gpu.product", "NVIDIA-L4"),
        ("team", "ml"),
    ];
    let request = LaunchRequest {
        key: LaunchKey::new(KEY).unwrap(),
        group: NodeGroupId::new("gpu.g6-xlarge.us-east-1a").unwrap(),
        market: Market { place, capacity_type: CapacityType::Spot },
        zone_name: ZoneName::new("us-east-1b").unwrap(),
        reservation: None,
    };
    Launch {
        node_class: Some(NodeClassName::new("gpu").unwrap()),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        taints: vec![Taint { key: "nvidia.com/gpu".to_owned(), value: "true".to_owned(), effect: TaintEffect::NoSchedule }],
        gpus: 1,
        ..request.into()
    }
}

fn made(launch: &Launch) -> Value {
    let carrier = Carrier::of_class("stoker-gpu", "karpenter.k8s.aws", "EC2NodeClass", "gpu");
    object(&ClusterName::new("prod").unwrap(), launch, &carrier)
}

#[test]
fn a_claim_leaves_karpenter_no_choice() {
    let claim = made(&launch());
    let requirement = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    assert_eq!(
        claim["spec"],
        json!({
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu" },
            "expireAfter": "Never",
            "terminationGracePeriod": "1h",
            "taints": [{ "key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule" }],
            "resources": { "requests": { "nvidia.com/gpu": "1" } },
            "requirements": [
                requirement("node.kubernetes.io/instance-type", "g6.xlarge"),
                requirement("topology.kubernetes.io/zone", "us-east-1b"),
                requirement("karpenter.sh/capacity-type", "spot"),
            ],
        })
    );
    // What Karpenter sets by itself is not said twice.
    assert_eq!(
        claim["metadata"]["labels"],
        json!({
            "stoker.dev/pool": "gpu",
            "nvidia.com/gpu.product": "NVIDIA-L4",
            "team": "ml",
            "karpenter.sh/nodepool": "stoker-gpu",
            "stoker.dev/cluster": "prod",
        })
    );
}

#[test]
fn the_same_launch_makes_the_same_claim_and_another_key_another_name() {
    assert_eq!(made(&launch()), made(&launch()));
    let mut again = launch();
    again.request.key = LaunchKey::new("prod/gpu.g6-xlarge.us-east-1a/0c4de2a1/12/2").unwrap();
    let name = |launch: &Launch| made(launch)["metadata"]["name"].as_str().unwrap().to_owned();
    assert_ne!(name(&launch()), name(&again));
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    assert!(name(&again).len() < 64 && name(&again).chars().all(allowed), "{}", name(&again));
}

#[test]
fn a_machine_is_read_back_as_it_was_ordered() {
    let mut claim = made(&launch());
    claim["metadata"]["creationTimestamp"] = json!("2026-11-25T12:00:00Z");
    claim["status"] = json!({
        "providerID": "aws:///us-east-1b/i-1",
        "nodeName": "ip-10-0-0-1",
        "conditions": [{ "type": "Launched", "status": "True" }, { "type": "Registered", "status": "True" }],
    });
    let claim: Claim = serde_json::from_value(claim).unwrap();
    assert!(claim.is_launched());
    let made = claim.instance().unwrap();
    assert_eq!((made.key.as_str(), made.market, made.state), (KEY, launch().request.market, InstanceState::Running));
    assert_eq!((made.provider_id.as_str(), made.node_name.as_str()), ("aws:///us-east-1b/i-1", "ip-10-0-0-1"));
}

#[test]
fn a_reservation_that_is_called_by_its_id_is_the_one_that_is_used() {
    let asked = |name: &str| {
        let mut launch = launch();
        launch.request.market.capacity_type = CapacityType::Reserved;
        launch.request.reservation = Some(name.to_owned());
        made(&launch)
    };
    let wanted = json!({ "key": "karpenter.k8s.aws/capacity-reservation-id", "operator": "In", "values": ["cr-0a1b"] });
    assert_eq!(asked("cr-0a1b")["spec"]["requirements"][3], wanted);
    let claim: Claim = serde_json::from_value(asked("cr-0a1b")).unwrap();
    assert_eq!(claim.reservation(), Some("cr-0a1b"));
    assert_eq!(asked("our block")["spec"]["requirements"][3], Value::Null);
}
