use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::*;

#[test]
fn times_are_written_in_the_largest_unit_that_fits() {
    let of = |seconds| promql_time(SignedDuration::from_secs(seconds));
    assert_eq!([of(0), of(90), of(1_800), of(5_400), of(3_600), of(86_400 * 90)], ["0s", "90s", "30m", "90m", "1h", "90d"]);
}

#[test]
fn no_two_rules_have_a_name_and_every_query_stands_on_rules_before_it() {
    let file = rules(&Thresholds::default());
    let all: Vec<&Rule> = file.groups.iter().flat_map(|group| &group.rules).collect();
    let mut recorded = BTreeSet::new();
    let mut names = BTreeSet::new();
    for rule in &all {
        assert!(names.insert(rule.name()), "{} is there twice", rule.name());
        for used in recorded_names(rule.expr()) {
            assert!(recorded.contains(&used), "{} uses {used}, which no rule before it records", rule.name());
        }
        if matches!(rule, Rule::Recording { .. }) {
            recorded.insert(rule.name().to_owned());
        }
    }
    for used in recorded_names(DASHBOARD) {
        assert!(recorded.contains(&used), "the dashboard uses {used}, which no rule records");
    }
}

/// The names of recorded series in a query: those with colons.
fn recorded_names(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.starts_with("stoker:")).map(str::to_owned).collect()
}

#[test]
fn a_threshold_reaches_its_rule() {
    let thresholds = Thresholds { hot_celsius: 71, idle_for: SignedDuration::from_mins(7), ..Thresholds::default() };
    let text = serde_json::to_string(&rules(&thresholds)).unwrap();
    assert!(text.contains("> 71)") && text.contains("above 71 C") && text.contains("\"for\":\"7m\""), "{text}");
}

#[test]
fn panels_do_not_overlap_and_stay_within_the_page() {
    let board: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut taken = BTreeSet::new();
    for panel in board["panels"].as_array().unwrap() {
        let of = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(of("x") + of("w") <= 24, "{panel}");
        for (x, y) in (of("x")..of("x") + of("w")).flat_map(|x| (of("y")..of("y") + of("h")).map(move |y| (x, y))) {
            assert!(taken.insert((x, y)), "{} overlaps another at {x}, {y}", panel["title"]);
        }
    }
}
