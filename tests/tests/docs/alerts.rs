//! The page of alerts, from their table.

use std::fmt::Write as _;

use serde_json::Value;
use stoker::monitoring::{Thresholds, rules};

use crate::cli::{cell, wrapped};
use crate::page::GENERATED;

const HEAD: &str = "# Alerts and dashboard

```sh
kubectl apply -f manifests/monitoring/monitors.yaml -f manifests/monitoring/rules.yaml
```

These are objects of the Prometheus operator. [`rules.yaml`](rules.yaml) is what `stoker alerts`
prints. Its options set every threshold (`--gpu-idle 1h --temperature-high 75`), `--label` sets what
your Prometheus selects rules by, and `--plain` prints a rule file for a Prometheus without the
operator. [`dashboard.json`](dashboard.json) is what `stoker dashboard` prints: import it into
Grafana.

GPUs of which nobody sends readings are unknown and never count as idle. No decision rests on an
alert. Thresholds below are the defaults.

See also: [Prometheus](../../provider/docs/tasks/prometheus.md),
[metrics](../../provider/docs/reference/metrics.md).
";

pub(crate) fn reference() -> String {
    let mut page = format!("{GENERATED}\n{HEAD}");
    let file = rules(&Thresholds::default());
    let alerts: Vec<Value> = file
        .groups
        .iter()
        .flat_map(|group| &group.rules)
        .map(|rule| serde_json::to_value(rule).unwrap())
        .filter(|rule| rule["alert"].is_string())
        .collect();
    page.push_str("\n| alert | severity | fires after |\n|---|---|---|\n");
    for alert in &alerts {
        let name = alert["alert"].as_str().unwrap();
        let severity = alert["labels"]["severity"].as_str().unwrap();
        let lasting = match alert["for"].as_str().unwrap() {
            "0s" => "at once",
            lasting => lasting,
        };
        let _ = writeln!(page, "| [{name}](#{}) | {severity} | {lasting} |", name.to_lowercase());
    }
    for alert in &alerts {
        let text = |name: &str| alert["annotations"][name].as_str().unwrap_or_default();
        let what_to_do = if text("description").is_empty() { text("runbook") } else { text("description") };
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n{}\n\n```text\n{}\n```\n",
            alert["alert"].as_str().unwrap(),
            wrapped(&plain(text("summary"))),
            wrapped(what_to_do),
            alert["expr"].as_str().unwrap()
        );
    }
    page
}

/// A summary without its templates: `{{ $labels.pool }}` reads `POOL`, and the value `N`. Of two cases both are told.
fn plain(summary: &str) -> String {
    let mut text = String::new();
    let mut rest = summary;
    let mut case = String::new();
    while let Some((before, after)) = rest.split_once("{{") {
        let (template, after) = after.split_once("}}").unwrap();
        text.push_str(before);
        let label = template.split("$labels.").nth(1).and_then(|label| label.split_whitespace().next()).map(str::to_uppercase);
        match template.split_whitespace().next() {
            Some("with") => case = label.unwrap_or_default(),
            Some(".") => text.push_str(&case),
            Some("else") => text.push_str(" or "),
            Some("end") => {}
            _ => text.push_str(label.as_deref().unwrap_or("N")),
        }
        rest = after;
    }
    cell(&(text + rest))
}
