//! The Grafana dashboard: rows of panels, from one table.

use serde_json::{Value, json};

use super::query::{
    MEMORY_USED, POOL_BUSY, POOL_IDLE, POOL_IDLE_COST, POOL_MEASURED, POOL_SPEND, POOL_UTILIZATION, SM_ACTIVE, XID, dcgm,
    with_pool,
};

/// Grafana's width, in columns.
const WIDTH: u32 = 24;

/// The pools that the reader chose, as a label matcher.
const POOL: &str = "pool=~\"$pool\"";

/// How a panel shows its queries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One figure.
    Stat,
    /// Lines over time.
    Lines,
    /// Lines over time, one on top of the other.
    Stack,
    /// Bars of shares, at the moment.
    Bars,
    /// Rows, at the moment.
    Table,
}

impl Kind {
    const fn plugin(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Lines | Self::Stack => "timeseries",
            Self::Bars => "bargauge",
            Self::Table => "table",
        }
    }

    const fn height(self) -> u32 {
        if matches!(self, Self::Stat) { 4 } else { 8 }
    }

    const fn is_of_a_moment(self) -> bool {
        matches!(self, Self::Bars | Self::Table)
    }
}

/// Units as Grafana names them.
const USD: &str = "currencyUSD";
const SHARE: &str = "percentunit";
const PERCENT: &str = "percent";
const COUNT: &str = "short";
const SECONDS: &str = "s";
const CELSIUS: &str = "celsius";
const PER_SECOND: &str = "ops";

/// One panel.
struct Panel {
    title: &'static str,
    /// What it shows, for whoever points at it.
    about: &'static str,
    kind: Kind,
    unit: &'static str,
    /// In columns.
    width: u32,
    /// Each query, and how its series are called.
    queries: Vec<(String, &'static str)>,
}

fn panel(
    title: &'static str,
    about: &'static str,
    (kind, unit, width): (Kind, &'static str, u32),
    queries: impl IntoIterator<Item = (String, &'static str)>,
) -> Panel {
    Panel { title, about, kind, unit, width, queries: queries.into_iter().collect() }
}

/// Every row, and its panels.
fn rows() -> Vec<(&'static str, Vec<Panel>)> {
    vec![("Cost", cost()), ("GPUs", gpus()), ("Supply", supply()), ("What is known", known())]
}

fn cost() -> Vec<Panel> {
    let spend = format!("stoker_spend_usd_per_hour{{{POOL}}}");
    vec![
        panel("Cost now", "US dollars an hour at cash prices", (Kind::Stat, USD, 6), [(format!("sum({spend})"), "")]),
        panel(
            "Lost on idle GPUs",
            "US dollars an hour: what GPUs cost that did nothing for five minutes",
            (Kind::Stat, USD, 6),
            [(format!("sum({POOL_IDLE_COST}{{{POOL}}})"), "")],
        ),
        panel(
            "Cost of the last day",
            "US dollars, as far as it was seen",
            (Kind::Stat, USD, 6),
            [(format!("24 * sum(avg_over_time({POOL_SPEND}{{{POOL}}}[1d]))"), "")],
        ),
        panel(
            "A month at this pace",
            "US dollars: 730 hours like those of the last day",
            (Kind::Stat, USD, 6),
            [(format!("730 * sum(avg_over_time({POOL_SPEND}{{{POOL}}}[1d]))"), "")],
        ),
        panel(
            "Cost by pool and capacity type",
            "US dollars an hour at cash prices",
            (Kind::Stack, USD, 12),
            [(format!("sum by (pool, capacity_type) ({spend})"), "{{pool}} {{capacity_type}}")],
        ),
        panel(
            "Spend against budget",
            "Cash that counts against each budget, in US dollars an hour, and the budget",
            (Kind::Lines, USD, 12),
            [
                (
                    "max by (scope, pool) (stoker_budget_spend_usd_per_hour{pool=~\"$pool|\"})".to_owned(),
                    "{{scope}} {{pool}} spent",
                ),
                (
                    "max by (scope, pool) (stoker_budget_limit_usd_per_hour{pool=~\"$pool|\"})".to_owned(),
                    "{{scope}} {{pool}} budget",
                ),
            ],
        ),
        panel(
            "Lost on idle GPUs by pool",
            "US dollars an hour: what GPUs cost that did nothing for five minutes",
            (Kind::Stack, USD, 8),
            [(format!("sum by (pool) ({POOL_IDLE_COST}{{{POOL}}})"), "{{pool}}")],
        ),
        panel(
            "A busy GPU-hour",
            "What the pool's nodes cost over the GPUs that pods hold, in US dollars",
            (Kind::Lines, USD, 8),
            [(format!("{POOL_SPEND}{{{POOL}}} / ({POOL_BUSY} > 0)"), "{{pool}}")],
        ),
        panel(
            "Unused commitments",
            "What the unused part of each commitment costs, in US dollars an hour",
            (Kind::Lines, USD, 8),
            [("max by (commitment) (stoker_commitment_unused_usd_per_hour)".to_owned(), "{{commitment}}")],
        ),
    ]
}

fn gpus() -> Vec<Panel> {
    let paid = |more: &str| format!("sum by (pool) (stoker_gpus{{{POOL}{more}}})");
    vec![
        panel(
            "Utilization by pool",
            "Mean of the GPUs that anybody measures: share of time in which a kernel ran",
            (Kind::Lines, PERCENT, 8),
            [(format!("{POOL_UTILIZATION}{{{POOL}}}"), "{{pool}}")],
        ),
        panel(
            "Memory in use by pool",
            "Mean and highest of the pool's GPUs",
            (Kind::Lines, SHARE, 8),
            [
                (format!("avg by (pool) ({MEMORY_USED}{{{POOL}}})"), "{{pool}} mean"),
                (format!("max by (pool) ({MEMORY_USED}{{{POOL}}})"), "{{pool}} highest"),
            ],
        ),
        panel(
            "GPUs by use",
            "By whether pods hold their node; away: their node has not joined, or is on its way out",
            (Kind::Stack, COUNT, 8),
            [(format!("sum by (use) (stoker_gpus{{{POOL}}})"), "{{use}}")],
        ),
        panel(
            "Multiprocessors at work",
            "Mean share, where the card tells",
            (Kind::Lines, SHARE, 8),
            [(format!("avg by (pool, workload) ({SM_ACTIVE}{{{POOL}}})"), "{{pool}} ({{workload}})")],
        ),
        panel(
            "Idle GPU-hours of the last day",
            "Share of those that anybody measured",
            (Kind::Lines, SHARE, 8),
            [(format!("sum_over_time({POOL_IDLE}{{{POOL}}}[1d]) / sum_over_time({POOL_MEASURED}[1d])"), "{{pool}}")],
        ),
        panel(
            "Spot share by pool",
            "Of the GPUs that are paid for",
            (Kind::Lines, SHARE, 8),
            [(format!("{} / ({} > 0)", paid(",capacity_type=\"spot\""), paid("")), "{{pool}}")],
        ),
        panel(
            "Temperature",
            "The hottest GPU of each pool",
            (Kind::Lines, CELSIUS, 12),
            [(format!("max by (pool) ({})", with_pool(&dcgm("DCGM_FI_DEV_GPU_TEMP"))), "{{pool}}")],
        ),
        panel("XIDs", "The last of each GPU that had one", (Kind::Table, COUNT, 12), [(format!("{XID}{{{POOL}}}"), "")]),
    ]
}

fn supply() -> Vec<Panel> {
    let by = "max by (quota, cloud, region)";
    vec![
        panel(
            "Quotas in use",
            "Share of what each quota allows; at 1 growth stops",
            (Kind::Bars, SHARE, 12),
            [(format!("{by} (stoker_quota_used) / {by} (stoker_quota_limit)"), "{{quota}} {{cloud}} {{region}}")],
        ),
        panel(
            "Quota headroom",
            "What each quota still allows, in its unit",
            (Kind::Lines, COUNT, 12),
            [(format!("{by} (stoker_quota_limit) - {by} (stoker_quota_used)"), "{{quota}} {{cloud}} {{region}}")],
        ),
        panel(
            "Nodes",
            "By where they stand between order and end",
            (Kind::Stack, COUNT, 8),
            [(format!("sum by (state) (stoker_nodes{{{POOL}}})"), "{{state}}")],
        ),
        panel(
            "Decisions",
            "Actions decided a second, by kind",
            (Kind::Lines, PER_SECOND, 8),
            [("sum by (kind) (rate(stoker_decisions_total[$__rate_interval]))".to_owned(), "{{kind}}")],
        ),
        panel(
            "Launches",
            "Launches ended a second, by result",
            (Kind::Lines, PER_SECOND, 8),
            [(
                "sum by (capacity_type, result) (rate(stoker_launches_total[$__rate_interval]))".to_owned(),
                "{{capacity_type}} {{result}}",
            )],
        ),
        panel(
            "Nodes by verdict",
            "What is concluded of them: held is a pod that does nothing with its GPUs, unknown is never taken for idle",
            (Kind::Stack, COUNT, 12),
            [(format!("sum by (verdict) (stoker_verdict_nodes{{{POOL}}})"), "{{verdict}}")],
        ),
        panel(
            "Held nodes",
            "US dollars an hour: what nodes cost that pods hold and do nothing with",
            (Kind::Stack, USD, 12),
            [(format!("sum by (pool) (stoker_held_usd_per_hour{{{POOL}}})"), "{{pool}}")],
        ),
        panel(
            "Missing of the floor",
            "Ready nodes that a pool lacks of its minNodes",
            (Kind::Lines, COUNT, 12),
            [(format!("max by (pool) (stoker_floor_missing_nodes{{{POOL}}})"), "{{pool}}")],
        ),
        panel(
            "Groups closed by doubt",
            "Groups that may not grow because no pod joined their last nodes",
            (Kind::Stat, COUNT, 12),
            [(format!("sum(stoker_group_frozen{{{POOL}}})"), "")],
        ),
    ]
}

fn known() -> Vec<Panel> {
    vec![
        panel(
            "GPUs that are measured",
            "Of which anybody tells the utilization, and those on nodes that have joined",
            (Kind::Lines, COUNT, 8),
            [
                (format!("sum by (pool) ({POOL_MEASURED}{{{POOL}}})"), "{{pool}} measured"),
                (format!("sum by (pool) (stoker_gpus{{{POOL},use!=\"away\"}})"), "{{pool}} joined"),
            ],
        ),
        panel(
            "Age of prices",
            "The oldest of each kind",
            (Kind::Lines, SECONDS, 8),
            [(format!("max by (kind) (stoker_price_age_seconds{{{POOL}}})"), "{{kind}}")],
        ),
        panel(
            "Offers by price",
            "Lapsed and unknown ones are not bought",
            (Kind::Stack, COUNT, 8),
            [(format!("sum by (price) (stoker_offers{{{POOL}}})"), "{{price}}")],
        ),
        panel(
            "Age of facts",
            "The newest of each feed",
            (Kind::Lines, SECONDS, 8),
            [("max by (feed) (stoker_feed_age_seconds)".to_owned(), "{{feed}}")],
        ),
        panel(
            "Passes",
            "Passes of the decision loop a second, by how they ended",
            (Kind::Lines, PER_SECOND, 8),
            [("sum by (result) (rate(stoker_passes_total[$__rate_interval]))".to_owned(), "{{result}}")],
        ),
        panel(
            "Faults of the policy file",
            "Above nought, the last good policy is in use",
            (Kind::Stat, COUNT, 8),
            [("max(stoker_policy_faults)".to_owned(), "")],
        ),
    ]
}

/// Every query of the dashboard with the title of its panel, and the one that fills its list of pools.
pub fn queries() -> Vec<(&'static str, String)> {
    let panels = rows().into_iter().flat_map(|(_, panels)| panels);
    let mut all: Vec<_> =
        panels.flat_map(|panel| panel.queries.into_iter().map(move |(query, _)| (panel.title, query))).collect();
    all.push(("the list of pools", POOLS.to_owned()));
    all
}

/// Has every pool of the policy, also one without nodes.
const POOLS: &str = "stoker_floor_nodes";

/// The dashboard, as Grafana imports it.
pub fn dashboard() -> Value {
    let mut panels = Vec::new();
    let (mut y, mut id) = (0, 0);
    let mut next_id = || {
        id += 1;
        id
    };
    for (title, row) in rows() {
        panels.push(json!({
            "id": next_id(), "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": y, "w": WIDTH, "h": 1 },
        }));
        y += 1;
        let (mut x, mut height) = (0, 0);
        for panel in row {
            if x + panel.width > WIDTH {
                (x, y) = (0, y + height);
                height = 0;
            }
            panels.push(one(&panel, next_id(), (x, y)));
            x += panel.width;
            height = height.max(panel.kind.height());
        }
        y += height;
    }
    json!({
        "uid": "stoker-gpus",
        "title": "Stoker: GPUs, what they cost and what they do",
        "tags": ["stoker", "gpu"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "1m",
        "time": { "from": "now-6h", "to": "now" },
        "timezone": "",
        "templating": { "list": [
            { "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus" },
            {
                "name": "pool", "label": "Pool", "type": "query", "datasource": datasource(), "refresh": 2, "sort": 1,
                "multi": true, "includeAll": true, "allValue": ".*", "current": { "text": ["All"], "value": ["$__all"] },
                "query": { "qryType": 1, "query": format!("label_values({POOLS}, pool)"), "refId": "pools" },
            },
        ] },
        "annotations": { "list": [] },
        "panels": panels,
    })
}

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn one(panel: &Panel, id: u32, (x, y): (u32, u32)) -> Value {
    let Panel { title, about, kind, unit, width, queries } = panel;
    let targets: Vec<Value> = (b'A'..)
        .zip(queries)
        .map(|(letter, (query, legend))| {
            let mut target = json!({
                "refId": char::from(letter).to_string(), "datasource": datasource(), "expr": query, "legendFormat": legend,
            });
            if kind.is_of_a_moment() {
                target["instant"] = json!(true);
                target["format"] = json!(if *kind == Kind::Table { "table" } else { "time_series" });
            }
            target
        })
        .collect();
    let mut defaults = json!({ "unit": unit, "min": 0 });
    match kind {
        Kind::Stack => defaults["custom"] = json!({ "fillOpacity": 30, "stacking": { "mode": "normal" } }),
        Kind::Bars => defaults["max"] = json!(1),
        Kind::Stat | Kind::Lines | Kind::Table => {}
    }
    let options = match kind {
        Kind::Lines | Kind::Stack => {
            json!({ "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } })
        }
        Kind::Bars => json!({ "displayMode": "lcd", "orientation": "horizontal" }),
        Kind::Stat | Kind::Table => json!({}),
    };
    json!({
        "id": id, "type": kind.plugin(), "title": title, "description": about, "datasource": datasource(),
        "gridPos": { "x": x, "y": y, "w": width, "h": kind.height() },
        "targets": targets,
        "fieldConfig": { "defaults": defaults, "overrides": [] },
        "options": options,
    })
}
