//! The facts of one pass: what suppliers, the cluster and probes report.

pub mod activity;
pub mod foreign;
pub mod images;
pub mod node_status;
pub mod outdated;
pub mod reading;
pub mod snapshot;
pub mod supply;
