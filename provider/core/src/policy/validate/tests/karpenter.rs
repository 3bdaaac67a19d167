use serde_json::{Value, json};

use super::{faults, good};
use crate::policy::{Policy, RawPolicy};

fn with(karpenter: Value) -> Value {
    let mut file = good();
    file["karpenter"] = karpenter;
    file
}

#[test]
fn other_nodes_count_only_where_the_policy_says_so() {
    let counts = |file: Value| Policy::try_from_raw(&serde_json::from_value(file).unwrap()).unwrap().counts_foreign;
    assert!(!counts(good()));
    assert!(!counts(with(json!({ "countNodes": false }))));
    assert!(counts(with(json!({ "countNodes": true }))));
}

#[test]
fn nodes_that_count_against_nothing_are_a_fault() {
    let mut file = with(json!({ "countNodes": true }));
    file["quotas"] = json!([]);
    assert_eq!(
        faults(&serde_json::from_value(file).unwrap()),
        ["karpenter.countNodes has nothing to count nodes against: list quotas or commitments, or take karpenter out"]
    );
}

#[test]
fn the_block_is_read_strictly() {
    for bad in [json!({}), json!({ "countNodes": "yes" }), json!({ "countNodes": true, "steer": [] })] {
        assert!(serde_json::from_value::<RawPolicy>(with(bad)).is_err());
    }
}
