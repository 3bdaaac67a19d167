//! What operators watch Stoker and its GPUs by: alerts and a dashboard for Prometheus and Grafana, both made from one source so that they
//! mean the same by the same words. `manifests/monitoring` holds what the defaults make.
//!
//! GPU levels come under DCGM's names, from our probe or from dcgm-exporter; what a node costs and whose it is come from Stoker. The two are
//! joined by the node's name. A GPU that nobody measures is in no figure: it is unknown, neither idle nor at work.

mod alerts;
mod dashboard;
mod query;
mod rules;
#[cfg(test)]
mod tests;
mod thresholds;

pub use dashboard::DASHBOARD;
pub use query::EVERY;
pub use rules::{Rule, RuleFile, rules};
pub use thresholds::{Thresholds, promql_time};
