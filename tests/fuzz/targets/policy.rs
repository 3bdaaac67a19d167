//! A policy's text: refused with its faults, each with a place, or a policy that stays the same when
//! it is written and read again, and of which a catalogue can be made.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoker_core::catalogue::Catalogue;
use stoker_core::policy::Policy;
use stoker_service::policy_file;
use stoker_service::yaml::Faults;
use stoker_tests::market;

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = policy_file::parse_with_doubts("policy.yaml", text, None, |_| Vec::new());
    let known = policy_file::parse("policy.yaml", text, Some(&market::book()));
    let (policy, doubts) = match read {
        Ok((read, doubts)) => (read.value, doubts),
        Err(faults) => {
            placed(&faults, text);
            assert!(faults.iter().next().is_some(), "refused without a fault");
            assert!(known.is_err(), "refused, and accepted by the price tables");
            return;
        }
    };
    placed(&doubts, text);
    match known {
        Ok(known) => assert_eq!(known, policy, "the price tables change the policy"),
        Err(faults) => placed(&faults, text),
    }
    for pool in &policy.pools {
        assert!(pool.limits.min_nodes <= pool.limits.max_nodes, "{:?}", pool.limits);
        assert!(pool.limits.max_usd_per_hour.is_none_or(|most| most.0 >= 0), "{:?}", pool.limits);
    }
    let written = serde_json::to_string(&policy).expect("a policy can be written");
    let again: Policy = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(again, policy, "another policy after it was written and read");
    let catalogue = Catalogue::derive(&Arc::new(policy), &market::book(), &BTreeMap::new());
    assert!(catalogue.groups.iter().all(|(id, group)| *id == group.id));
}

/// Each fault says something, and stands in the text.
fn placed(faults: &Faults, text: &str) {
    let lines = text.lines().count().max(1);
    for fault in faults {
        assert!((1..=lines).contains(&fault.line) && fault.column >= 1, "{fault:?} of {lines} lines");
        assert!(!fault.message.is_empty());
    }
    assert!(!faults.to_string().chars().any(|c| c.is_control() && c != '\n'), "control characters: {:?}", faults.to_string());
}
