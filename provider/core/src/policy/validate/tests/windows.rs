//! Stabilization windows.

use super::*;
use crate::policy::rules::stabilization::{Stabilization, Window};

fn said(windows: Value) -> Vec<String> {
    let told = faults(&with("/pools/0/stabilization", windows));
    told.iter()
        .map(|text| text.strip_prefix("pools[0].stabilization").unwrap_or(text).trim_start_matches('.').to_owned())
        .collect()
}

fn read(windows: Value) -> Option<Stabilization> {
    Policy::try_from_raw(&with("/pools/0/stabilization", windows)).expect("no faults").pools[0].stabilization.clone()
}

#[test]
fn windows_have_defaults_by_workload() {
    let policy = Policy::try_from_raw(&with("/kind", json!("Policy"))).expect("no faults");
    let mins = |n| SignedDuration::from_mins(n);
    let found: Vec<_> = policy.pools.iter().map(|pool| pool.stabilization.clone().expect("windows")).collect();
    assert_eq!(found.iter().map(|rules| rules.scale_down).collect::<Vec<_>>(), [mins(15), mins(10)]);
    let usual = Stabilization {
        scale_down: mins(15),
        window: Window::Fixed,
        minimum_life: mins(15),
        after_scale_up: SignedDuration::ZERO,
        max_removals: Percent(100),
    };
    assert_eq!(found[0], usual);
    assert_eq!(read(json!({})), Some(usual));
}

#[test]
fn what_is_written_of_windows_is_read() {
    let written = json!({
        "scaleDown": "20m", "window": "equalCost", "minimumLife": "0s", "afterScaleUp": "90s", "maxRemovalsPerWindow": "25%"
    });
    let rules = Stabilization {
        scale_down: SignedDuration::from_mins(20),
        window: Window::EqualCost,
        minimum_life: SignedDuration::ZERO,
        after_scale_up: SignedDuration::from_secs(90),
        max_removals: Percent(25),
    };
    assert_eq!(read(written), Some(rules));
}

#[test]
fn windows_that_make_no_sense_are_named_all_at_once() {
    let all = json!({ "scaleDown": "0s", "minimumLife": "25h", "afterScaleUp": "soon", "maxRemovalsPerWindow": "0%" });
    assert_eq!(
        said(all),
        [
            "scaleDown is 0, below 1s: a node would be released between two pods of one queue; write a length, such as 1m",
            "minimumLife 25h is above 24h: shorten it, or keep nodes with limits.minNodes",
            r#"afterScaleUp "soon" is not a length of time: write it like 10m, 1h30m or 90s"#,
            "maxRemovalsPerWindow is 0%, and no node would ever be released: raise it, or keep nodes with limits.minNodes",
        ]
    );
    assert_eq!(
        said(json!({ "scaleDown": "1m", "window": "equalCost" })),
        ["window is equalCost, but scaleDown is 1m or less, which expensive and cheap nodes wait alike: raise scaleDown, \
             or write fixed"]
    );
    assert_eq!(
        said(json!({ "scaleDown": "48h" })),
        ["scaleDown 48h is above 24h: shorten it, or keep nodes with limits.minNodes"]
    );
    assert_eq!(said(json!({ "maxRemovalsPerWindow": "120%" })), [r#"maxRemovalsPerWindow "120%" is above 100%: lower it"#]);
}

#[test]
fn windows_are_for_pools_in_which_something_tells_what_is_free() {
    let mut raw = with("/pools/0/evidence", json!("none"));
    assert_eq!(Policy::try_from_raw(&raw).expect("no faults").pools[0].stabilization, None);
    raw.pools[0].stabilization = Some(crate::policy::RawStabilization::default());
    let why = "has no effect with evidence: none, because nothing then shows when a node is free: remove it, or write evidence: \
         pods";
    assert_eq!(faults(&raw), [format!("pools[0].stabilization {why}")]);
}
