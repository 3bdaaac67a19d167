//! The Grafana dashboard: a file of this tree, edited as it stands or exported from Grafana.

/// The dashboard, as Grafana imports it.
pub const DASHBOARD: &str = include_str!("../../../manifests/monitoring/dashboard.json");
