use serde_json::json;

use super::{faults, good, with};
use crate::policy::rules::karpenter::Lever;
use crate::policy::{Policy, RawPolicy};

#[test]
fn nothing_is_steered_unless_the_policy_says_so() {
    let policy = |steering: Option<serde_json::Value>| {
        let mut file = good();
        if let Some(steering) = steering {
            file["karpenter"] = steering;
        }
        Policy::try_from_raw(&serde_json::from_value(file).unwrap()).unwrap()
    };
    assert!(policy(None).karpenter.is_off());
    let shown = policy(Some(json!({ "steer": ["protect", "limits"], "dryRun": true }))).karpenter;
    assert!(shown.has(Lever::Limits) && shown.has(Lever::Protect) && !shown.shares_quotas());
    assert!(policy(Some(json!({ "steer": ["limits"] }))).karpenter.shares_quotas());
    assert!(!policy(Some(json!({ "steer": ["protect"] }))).karpenter.shares_quotas());
}

#[test]
fn each_fault_of_steering_names_the_place_and_the_cure() {
    let found = |steering| faults(&with("/karpenter", steering));
    assert_eq!(
        found(json!({ "steer": [] })),
        ["karpenter.steer is empty: name limits, protect or both, or take karpenter out"]
    );
    assert_eq!(found(json!({ "steer": ["protect", "protect"] })), ["karpenter.steer[1] protect is listed twice: remove one"]);
    let mut file = good();
    file["quotas"] = json!([]);
    file["karpenter"] = json!({ "steer": ["protect", "limits"] });
    assert_eq!(
        faults(&serde_json::from_value(file).unwrap()),
        ["karpenter.steer[1] limits are made of what is left of the quotas, and there is none: list them under quotas"]
    );
    for bad in [json!({ "steer": ["price"] }), json!({ "steer": ["limits"], "dry": true }), json!({})] {
        let mut file = good();
        file["karpenter"] = bad;
        assert!(serde_json::from_value::<RawPolicy>(file).is_err());
    }
}
