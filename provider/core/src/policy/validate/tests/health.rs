//! Unhealthy nodes, and how long a save takes.

use super::*;
use crate::policy::rules::health::{HealthRules, UnhealthyAction};

fn read(evidence: Evidence, unhealthy: Value) -> Result<HealthRules, Vec<String>> {
    let mut raw = with("/pools/0/unhealthy", unhealthy);
    raw.pools[0].evidence = Some(evidence);
    let read = Policy::try_from_raw(&raw).map(|policy| policy.pools[0].unhealthy);
    read.map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

#[test]
fn rules_for_unhealthy_nodes_are_read_and_have_defaults() {
    let minutes = SignedDuration::from_mins;
    assert_eq!(read(Evidence::Probe, json!({})), Ok(HealthRules::default()));
    let said = HealthRules { action: UnhealthyAction::Drain, after: minutes(10), max_replacements: 5 };
    assert_eq!(read(Evidence::Probe, json!({"action": "drain", "after": "10m", "maxReplacements": 5})), Ok(said));
    // Suppliers tell of machines, whatever tells of their work.
    assert_eq!(read(Evidence::Pods, json!({})), Ok(HealthRules::default()));
    let cordon = read(Evidence::Probe, json!({"action": "cordon"})).unwrap();
    assert_eq!(cordon.action, UnhealthyAction::Cordon);
}

#[test]
fn rules_for_unhealthy_nodes_that_say_nothing_or_too_much_are_told() {
    let faults = |evidence, unhealthy| read(evidence, unhealthy).unwrap_err();
    let at = "pools[0].unhealthy";
    assert_eq!(
        faults(Evidence::None, json!({"action": "drain"})),
        [format!("{at} cannot be met by the evidence: none judges no node: write evidence: pods or probe, or remove it")]
    );
    assert_eq!(
        faults(Evidence::Probe, json!({"maxReplacements": 0, "after": "25h"})),
        [
            format!("{at}.after 25h is above 24h: shorten it, or write action: cordon"),
            format!("{at}.maxReplacements is 0, which replaces no node: raise it, or write action: cordon"),
        ]
    );
    let idle = "has no effect with action: cordon, which ends no node: remove it";
    assert_eq!(
        faults(Evidence::Probe, json!({"action": "cordon", "maxReplacements": 2, "after": "1m"})),
        [format!("{at}.after {idle}"), format!("{at}.maxReplacements {idle}")]
    );
}

#[test]
fn a_save_that_cannot_be_is_told() {
    let faults = |spot: Value| faults(&with("/pools/1/capacity/spot", spot));
    let at = "pools[1].capacity.spot.checkpointSave";
    assert_eq!(
        faults(json!({"checkpointSave": "0s"})),
        [format!("{at} is 0, below 1s: name how long a save takes, or remove it")]
    );
    assert_eq!(
        faults(json!({"checkpointSave": "30m"})),
        [format!(
            "{at} \"30m\" is no shorter than the time between checkpoints, which leaves no time for work: name a longer checkpoint"
        )]
    );
    let unsaved = faults(json!({"checkpoint": "none", "checkpointSave": "30s"}));
    assert_eq!(unsaved, [format!("{at} applies to checkpoints, and the pool writes none: remove it, or name checkpoint")]);
}
