//! The alerts and the dashboard: each alert fires where it should and is silent where it should be (`promtool`), and every query is answered
//! by a real Prometheus that reads a real service and a GPU exporter.
//!
//! Those that need Debian's package `prometheus` are ignored unless asked for: `cargo test -p stoker-tests --test monitoring -- --ignored`.
#![expect(clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "monitoring/cases.rs"]
mod cases;
#[path = "monitoring/exporter.rs"]
mod exporter;
#[path = "monitoring/real.rs"]
mod real;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use stoker::monitoring::{Rule, Thresholds, rules};
use stoker_tests::prometheus::promtool;
use tempfile::TempDir;

use cases::{CASES, Case, RENAMED};

/// A series as newer exporters call it.
fn renamed(series: &str) -> String {
    RENAMED.iter().fold(series.to_owned(), |series, (old, new)| series.replace(old, new))
}

/// One test of promtool's: these series, and what fires of one alert.
fn unit_test(case: &Case, name: &str, series: &[(&str, &str)], alerts: &Value, named: fn(&str) -> String) -> Value {
    let one = |(series, values): &(&str, &str)| json!({ "series": named(series), "values": values });
    let input: Vec<Value> = case.common.iter().chain(series).map(one).collect();
    json!({
        "name": name, "interval": case.every, "input_series": input,
        "alert_rule_test": [{ "eval_time": case.at, "alertname": case.alert, "exp_alerts": alerts }],
    })
}

#[tokio::test]
#[ignore = "needs promtool: apt-get install --no-install-recommends prometheus"]
async fn every_alert_fires_and_is_silent_as_it_should() {
    let file = rules(&Thresholds::default());
    let descriptions: BTreeMap<&str, &str> =
        file.groups.iter().flat_map(|group| &group.rules).filter_map(description).collect();
    let tested: BTreeSet<&str> = CASES.iter().map(|case| case.alert).collect();
    assert_eq!(descriptions.keys().copied().collect::<BTreeSet<_>>(), tested, "each alert has a case, and each case an alert");
    let dir = TempDir::new().unwrap();
    // JSON is YAML.
    std::fs::write(dir.path().join("rules.yml"), serde_json::to_string(&file).unwrap()).unwrap();
    promtool(&["check", "rules", "rules.yml"], dir.path()).await.unwrap();
    // One file for each interval: rules are evaluated as often as samples come.
    for every in CASES.iter().map(|case| case.every).collect::<BTreeSet<_>>() {
        let mut tests = Vec::new();
        for case in CASES.iter().filter(|case| case.every == every) {
            let labels: BTreeMap<&str, &str> = case.labels.iter().copied().collect();
            let fires = json!([{
                "exp_labels": labels,
                "exp_annotations": { "summary": case.summary, "description": descriptions[case.alert] },
            }]);
            assert!(!case.silent.is_empty(), "{} has no silent test", case.alert);
            for (names, named) in [("old", str::to_owned as fn(&str) -> String), ("new", renamed)] {
                tests.push(unit_test(case, &format!("{} fires, by {names} names", case.alert), case.firing, &fires, named));
                for (number, series) in case.silent.iter().enumerate() {
                    let name = format!("{} is silent ({number}), by {names} names", case.alert);
                    tests.push(unit_test(case, &name, series, &json!([]), named));
                }
            }
        }
        let all = json!({ "rule_files": ["rules.yml"], "evaluation_interval": every, "tests": tests });
        std::fs::write(dir.path().join("tests.yml"), all.to_string()).unwrap();
        promtool(&["test", "rules", "tests.yml"], dir.path()).await.unwrap();
    }
}

fn description(rule: &Rule) -> Option<(&'static str, &'static str)> {
    match rule {
        Rule::Alert { alert, annotations, .. } => Some((alert, annotations.description)),
        Rule::Recording { .. } => None,
    }
}

/// The text of a manifest.
fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn monitors_find_what_they_scrape() {
    let monitors = manifest("monitoring/monitors.yaml");
    for (kind, port, number, scraped) in [
        ("ServiceMonitor", "http", 8088, manifest("stoker/deployment.yaml")),
        ("PodMonitor", "metrics", 9400, manifest("probe/daemonset.yaml")),
    ] {
        let monitor = monitors.split("\n---\n").find(|document| document.contains(&format!("kind: {kind}\n"))).unwrap();
        let label = monitor.lines().rfind(|line| line.contains("app.kubernetes.io/name:")).unwrap().trim();
        assert!(monitor.contains(&format!("port: {port},")), "{monitor}");
        assert!(
            scraped.contains(label) && scraped.contains(&format!("{{name: {port}, containerPort: {number}}}")),
            "{kind}: {label}"
        );
    }
    // A ServiceMonitor goes by the labels of the Service, not of its pods.
    let deployment = manifest("stoker/deployment.yaml");
    let service = deployment.split("\n---\n").find(|document| document.contains("kind: Service\n")).unwrap();
    let metadata = service.split("\nspec:").next().unwrap();
    assert!(metadata.contains("app.kubernetes.io/name: stoker"), "{metadata}");
    assert!(service.contains("{name: http, port: 8088, targetPort: http}"), "{service}");
}
