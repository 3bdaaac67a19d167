use serde_json::{Value, json};

use super::{faults, good, with};
use crate::policy::Policy;
use crate::policy::rules::supplier::SupplierKind;

fn with_suppliers(suppliers: &Value) -> Vec<String> {
    faults(&with("/suppliers", suppliers.clone()))
}

#[test]
fn a_pool_may_name_a_supplier_and_a_node_class() {
    let mut file = good();
    let endpoint = "unix:///run/stoker/lambda.sock";
    let lambda = json!({ "name": "lambda", "kind": "plugin", "endpoint": endpoint, "bootTemplate": "/boot.yaml" });
    file["suppliers"] = json!([lambda, { "name": "simulated", "kind": "simulated" }]);
    file["pools"][0]["supplier"] = json!("lambda");
    file["pools"][0]["nodeClass"] = json!("h100-image");
    let policy = Policy::try_from_raw(&serde_json::from_value(file).unwrap()).unwrap();
    let boot_template = Some("/boot.yaml".to_owned());
    assert_eq!(policy.suppliers[0].kind, SupplierKind::Plugin { endpoint: endpoint.to_owned(), boot_template, tls: None });
    let [first, second] = policy.pools.as_slice() else { panic!("two pools") };
    assert_eq!(first.supplier.as_ref().unwrap().as_str(), "lambda");
    assert_eq!((first.node_class.as_ref().unwrap().as_str(), &second.supplier), ("h100-image", &None));
}

#[test]
fn each_fault_of_suppliers_names_the_place_and_the_cure() {
    let tls = json!({ "caFile": "/ca", "certFile": "/crt", "keyFile": "/key" });
    let relative = json!({ "caFile": "/ca", "certFile": "/crt", "keyFile": "key" });
    let plugin = |name: &str, endpoint: &str| json!({ "name": name, "kind": "plugin", "endpoint": endpoint });
    for (suppliers, fault) in [
        (json!([{ "name": "a", "kind": "plugin" }]), "suppliers[0] has no endpoint: write where the plugin listens"),
        (json!([plugin("a", "http://example.com:80")]), "suppliers[0].endpoint \"http://example.com:80\" is no endpoint"),
        (json!([plugin("a", "https://example.com:443")]), "suppliers[0] has no tls"),
        (
            json!([{ "name": "a", "kind": "plugin", "endpoint": "unix:///a", "tls": tls }]),
            "suppliers[0].tls is for an endpoint https://host:port only",
        ),
        (
            json!([{ "name": "a", "kind": "plugin", "endpoint": "https://a:1", "tls": relative }]),
            "suppliers[0].tls.keyFile is no absolute path",
        ),
        (
            json!([{ "name": "a", "kind": "plugin", "endpoint": "unix:///a", "bootTemplate": "boot.yaml" }]),
            "suppliers[0].bootTemplate is no absolute path: write where the file is mounted",
        ),
        (
            json!([{ "name": "karpenter", "kind": "karpenter", "bootTemplate": "/boot.yaml" }]),
            "suppliers[0].bootTemplate is for kind: plugin only: take it out",
        ),
        (json!([{ "name": "a", "kind": "aws" }]), "suppliers[0] has no config: write where its file is mounted"),
        (
            json!([{ "name": "a", "kind": "aws", "config": "aws.yaml" }]),
            "suppliers[0].config is no absolute path: write where the file is mounted, such as /etc/stoker/aws/aws.yaml",
        ),
        (
            json!([{ "name": "a", "kind": "aws", "config": "/aws.yaml", "endpoint": "unix:///a" }]),
            "suppliers[0].endpoint is for kind: plugin only: take it out",
        ),
        (
            json!([{ "name": "karpenter", "kind": "aws", "config": "/aws.yaml" }]),
            "karpenter is the name of a built-in supplier: give AWS its own",
        ),
        (
            json!([{ "name": "karpenter", "kind": "karpenter", "config": "/aws.yaml" }]),
            "suppliers[0].config is for kind: aws only: take it out",
        ),
        (json!([plugin("a", "unix:///")]), "is no endpoint: write unix:///path/to/socket"),
        (json!([plugin("simulated", "unix:///a")]), "simulated is the name of a built-in supplier: give the plugin its own"),
        (
            json!([{ "name": "world", "kind": "simulated" }]),
            "suppliers[0].name \"world\" is of kind simulated: call it simulated",
        ),
        (
            json!([{ "name": "nodes", "kind": "karpenter" }]),
            "suppliers[0].name \"nodes\" is of kind karpenter: call it karpenter",
        ),
        (
            json!([{ "name": "karpenter", "kind": "karpenter", "endpoint": "unix:///a" }]),
            "suppliers[0].endpoint is for kind: plugin only: take it out",
        ),
        (json!([plugin("karpenter", "unix:///a")]), "suppliers[0].name karpenter is the name of a built-in supplier"),
        (
            json!([{ "name": "simulated", "kind": "simulated", "endpoint": "unix:///a" }]),
            "is for kind: plugin only: take it out",
        ),
        (json!([plugin("a", "unix:///a"), plugin("a", "unix:///b")]), "suppliers[1] \"a\" is listed twice: remove one"),
    ] {
        let found = with_suppliers(&suppliers);
        assert!(found.iter().any(|one| one.contains(fault)), "{fault}: {found:?}");
    }
    let found = faults(&with("/pools/1/supplier", json!("lambda")));
    assert_eq!(found, ["pools[1].supplier \"lambda\" is not under suppliers: write one of simulated, or add it there"]);
}
