use serde_json::{Value, json};

use super::{faults, good, with};
use crate::policy::rules::karpenter::{BesideKarpenter, Lever};
use crate::policy::{Policy, RawPolicy};

fn file(karpenter: Value) -> Value {
    let mut file = good();
    file["karpenter"] = karpenter;
    file
}

fn beside(file: Value) -> BesideKarpenter {
    Policy::try_from_raw(&serde_json::from_value(file).unwrap()).unwrap().karpenter
}

#[test]
fn nothing_counts_and_nothing_is_steered_unless_the_policy_says_so() {
    for off in [good(), file(json!({})), file(json!({ "countNodes": false }))] {
        assert!(beside(off.clone()).is_off() && !beside(off).counts_nodes());
    }
    assert!(beside(file(json!({ "countNodes": true }))).counts_nodes());
    let shown = beside(file(json!({ "steer": ["protect", "limits"], "dryRun": true })));
    assert!(shown.has(Lever::Limits) && shown.has(Lever::Protect) && !shown.promises() && !shown.counts_nodes());
}

#[test]
fn nodes_count_wherever_limits_are_steered() {
    let limits = beside(file(json!({ "steer": ["limits"] })));
    assert!(limits.promises() && limits.counts_nodes());
    let protect = beside(file(json!({ "steer": ["protect"] })));
    assert!(!protect.promises() && !protect.counts_nodes());
}

#[test]
fn each_fault_names_the_place_and_the_cure() {
    let found = |karpenter| faults(&with("/karpenter", karpenter));
    assert_eq!(
        found(json!({ "dryRun": true })),
        [
            "karpenter.dryRun shows nothing, as nothing is steered: list limits, prices, protect, windows, floors or repair under steer"
        ]
    );
    assert_eq!(found(json!({ "steer": ["protect", "protect"] })), ["karpenter.steer[1] protect is listed twice: remove one"]);
    assert_eq!(
        found(json!({ "countNodes": false, "steer": ["prices"] })),
        ["karpenter.countNodes cannot be false beside limits or prices, which go by what others leave: take it out"]
    );
    assert!(found(json!({ "countNodes": false, "steer": ["prices"], "dryRun": true })).is_empty());
    let mut file = file(json!({ "countNodes": true, "steer": ["protect", "limits"] }));
    file["quotas"] = json!([]);
    assert_eq!(
        faults(&serde_json::from_value(file).unwrap()),
        [
            "karpenter.countNodes has nothing to count nodes against: list quotas or commitments, or take it out",
            "karpenter.steer[1] limits are made of what is left of the quotas, and there is none: list them under quotas",
        ]
    );
}

#[test]
fn the_block_is_read_strictly() {
    for bad in [json!({ "countNodes": "yes" }), json!({ "steer": ["weight"] }), json!({ "steer": ["limits"], "dry": true })] {
        assert!(serde_json::from_value::<RawPolicy>(file(bad)).is_err());
    }
}
