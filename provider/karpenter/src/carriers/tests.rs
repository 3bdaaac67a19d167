use super::*;

impl Carrier {
    /// A carrier of AWS that allows all.
    pub(crate) fn of_class(name: &str, group: &str, kind: &str, class: &str) -> Self {
        let (group, kind, class) = (group.to_owned(), kind.to_owned(), class.to_owned());
        Self {
            name: name.to_owned(),
            class: ClassRef { group, kind, name: class },
            cloud: Cloud::new("aws").unwrap(),
            zone_names: BTreeMap::new(),
            allowed: BTreeMap::new(),
        }
    }
}

fn pool(change: impl FnOnce(&mut Value)) -> DynamicObject {
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "stoker-gpu", "labels": { "stoker.dev/carrier": "true" } },
        "spec": {
            "limits": { "cpu": "0", "nodes": "0" },
            "disruption": { "consolidateAfter": "Never", "budgets": [{ "nodes": "0" }] },
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu" },
                "requirements": [
                    { "key": "topology.kubernetes.io/region", "operator": "In", "values": ["us-east-1"] },
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                    { "key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["p5.48xlarge"] },
                ],
            } },
        },
        "status": { "conditions": [{ "type": "NodeClassReady", "status": "True" }] },
    });
    change(&mut pool);
    serde_json::from_value(pool).unwrap()
}

#[test]
fn a_carrier_tells_its_class_cloud_and_regions() {
    let carrier = carrier(&pool(|_| {})).unwrap();
    assert_eq!((carrier.cloud.as_str(), carrier.class.name.as_str()), ("aws", "gpu"));
    assert_eq!(carrier.regions(), Some([Region::new("us-east-1").unwrap()].into()));
    assert_eq!(carrier.allows(&[("karpenter.sh/capacity-type", "on-demand"), ("x", "y")]), Ok(()));
    let refused = carrier.allows(&[("karpenter.sh/capacity-type", "spot")]).unwrap_err();
    assert_eq!(refused, "NodePool stoker-gpu allows no karpenter.sh/capacity-type spot: add it to its requirements");
}

#[test]
fn a_carrier_edited_by_hand_is_named_with_the_field() {
    for (path, value, field) in [
        ("/spec/limits/cpu", json!("8"), "spec.limits.cpu is \"8\" and must be \"0\""),
        ("/spec/limits/nodes", json!("5"), "spec.limits.nodes is \"5\" and must be \"0\""),
        ("/spec/disruption/consolidateAfter", json!("0s"), "spec.disruption.consolidateAfter is \"0s\" and must be \"Never\""),
        ("/spec/disruption/budgets/0/nodes", json!("10%"), "spec.disruption.budgets is"),
        ("/status/conditions/0/status", json!("False"), "EC2NodeClass gpu is not ready"),
    ] {
        let edited = pool(|pool| *pool.pointer_mut(path).unwrap() = value);
        let fault = carrier(&edited).unwrap_err();
        assert!(fault.contains(field), "{fault}");
    }
    let of_fixed_size = pool(|pool| pool["spec"]["replicas"] = json!(0));
    assert!(carrier(&of_fixed_size).unwrap_err().contains("spec.replicas is set"));
    // A quantity may be written as a number.
    assert!(carrier(&pool(|pool| pool["spec"]["limits"]["nodes"] = json!(0))).is_ok());
}

#[test]
fn the_cloud_of_another_provider_is_said_by_a_label() {
    let other = |label: bool| {
        pool(|pool| {
            pool["spec"]["template"]["spec"]["nodeClassRef"]["group"] = json!("karpenter.example.com");
            if label {
                pool["metadata"]["labels"]["stoker.dev/cloud"] = json!("oci");
            }
        })
    };
    assert!(carrier(&other(false)).unwrap_err().contains("stoker.dev/cloud"));
    assert_eq!(carrier(&other(true)).unwrap().cloud.as_str(), "oci");
}

#[test]
fn two_carriers_of_one_class_are_a_fault() {
    let mut carriers = Carriers::default();
    carriers.add(carrier(&pool(|_| {})).unwrap());
    carriers.add(carrier(&pool(|pool| pool["metadata"]["name"] = json!("again"))).unwrap());
    assert_eq!(carriers.fit.len(), 1);
    assert_eq!(carriers.faults, ["NodePool again: NodePool stoker-gpu is the carrier of NodeClass gpu already: keep one"]);
}

#[test]
fn zones_of_an_account_are_read_from_its_subnets() {
    let class = json!({ "status": { "subnets": [{ "id": "subnet-1", "zone": "us-east-1b", "zoneID": "use1-az1" }, {}] } });
    let named = zone_names(&class);
    assert_eq!(named.get(&ZoneId::new("use1-az1").unwrap()), Some(&ZoneName::new("us-east-1b").unwrap()));
    assert_eq!(named.len(), 1);
    let carrier = Carrier { zone_names: named, ..carrier(&pool(|_| {})).unwrap() };
    assert_eq!(carrier.reaches(&ZoneId::new("use1-az1").unwrap()), Ok(()));
    let none = carrier.reaches(&ZoneId::new("use1-az4").unwrap()).unwrap_err();
    assert!(none.contains("EC2NodeClass gpu has no subnet in zone use1-az4"), "{none}");
}
