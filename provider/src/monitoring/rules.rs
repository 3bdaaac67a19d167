//! Rule files: what is recorded for alerts and the dashboard to share, and the alerts.

use serde::Serialize;

use super::alerts::alerts;
use super::query::{
    EVERY, GPU_PRICE, INSTANCE_ACTIVE, MEMORY_USED, POOL_BUSY, POOL_IDLE, POOL_IDLE_COST, POOL_MEASURED, POOL_SPEND,
    POOL_UTILIZATION, SM_ACTIVE, UTILIZATION, XID, dcgm, idle, instances, level, utilization, with_pool,
};
use super::thresholds::{Thresholds, promql_time};
use stoker_service::feeds::prometheus::dcgm::{Level, either};

/// A rule file in Prometheus's own format; also the `spec` of a `PrometheusRule`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleFile {
    /// Rules that are evaluated together, in order.
    pub groups: Vec<RuleGroup>,
}

/// Rules that are evaluated together, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleGroup {
    /// Its name.
    pub name: &'static str,
    /// How often.
    pub interval: String,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Rule {
    /// A query whose result is kept under a name.
    Recording {
        /// The name.
        record: &'static str,
        /// The query.
        expr: String,
    },
    /// An alert.
    Alert {
        /// Its name.
        alert: &'static str,
        /// It fires for each series of this query.
        expr: String,
        /// Once the series has been there for so long.
        #[serde(rename = "for")]
        for_: String,
        /// For routing.
        labels: Labels,
        /// For people.
        annotations: Annotations,
    },
}

impl Rule {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Recording { record, .. } => record,
            Self::Alert { alert, .. } => alert,
        }
    }

    /// Its query.
    pub fn expr(&self) -> &str {
        match self {
            Self::Recording { expr, .. } | Self::Alert { expr, .. } => expr,
        }
    }
}

/// What alerts are routed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Labels {
    /// How bad it is.
    pub severity: Severity,
}

/// How bad an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing: money or head-room.
    Info,
    /// Somebody should look today.
    Warning,
    /// Somebody should look now: work is being lost, or will be.
    Critical,
}

/// What people are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Annotations {
    /// What is the matter, with its figures: a Go template.
    pub summary: String,
    /// What it means and what to do about it.
    pub description: &'static str,
    /// Its part of a page that explains the alerts; `None` where no page is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runbook_url: Option<String>,
}

impl RuleFile {
    /// Links each alert to its part of a page.
    pub fn link(&mut self, page: &str) {
        for rule in self.groups.iter_mut().flat_map(|group| &mut group.rules) {
            if let Rule::Alert { alert, annotations, .. } = rule {
                annotations.runbook_url = Some(format!("{page}#{}", alert.to_lowercase()));
            }
        }
    }
}

/// The rules.
pub fn rules(thresholds: &Thresholds) -> RuleFile {
    let interval = promql_time(EVERY);
    let recordings = recordings(thresholds);
    let group = |name, rules| RuleGroup { name, interval: interval.clone(), rules };
    RuleFile { groups: vec![group("stoker.recordings", recordings), group("stoker.alerts", alerts(thresholds))] }
}

fn recordings(thresholds: &Thresholds) -> Vec<Rule> {
    let [used, free] = [Level::MemoryUsed, Level::MemoryFree].map(|level| either(level, ""));
    let is_idle = idle(thresholds.idle_below, " bool");
    let recorded = [
        (UTILIZATION, with_pool(&utilization())),
        (SM_ACTIVE, with_pool(&level(Level::SmActivity))),
        (INSTANCE_ACTIVE, with_pool(&instances())),
        (MEMORY_USED, with_pool(&dcgm(&format!("{used} / ({used} + {free})")))),
        (XID, with_pool(&format!("count_values by (node, gpu, UUID) (\"xid\", {} > 0)", level(Level::Xid)))),
        (GPU_PRICE, "max by (node) (stoker_node_usd_per_hour) / max by (node) (stoker_node_gpus)".to_owned()),
        (POOL_UTILIZATION, format!("avg by (pool, workload) ({UTILIZATION})")),
        (POOL_MEASURED, format!("count by (pool, workload) ({UTILIZATION})")),
        (POOL_IDLE, format!("sum by (pool, workload) {is_idle}")),
        (POOL_IDLE_COST, format!("sum by (pool, workload) ({is_idle} * on (node) group_left () {GPU_PRICE})")),
        (POOL_SPEND, "sum by (pool) (stoker_spend_usd_per_hour)".to_owned()),
        (POOL_BUSY, "sum by (pool) (stoker_gpus{use=\"busy\"})".to_owned()),
    ];
    recorded.into_iter().map(|(record, expr)| Rule::Recording { record, expr }).collect()
}
