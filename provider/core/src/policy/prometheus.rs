//! Settings for Prometheus queries.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// The longest time that a reading stands for: six of the longest usual periods (Prometheus scrapes each 15 s). After a longer silence
/// nobody knows what was.
pub const LONGEST_GAP: i64 = 90;

/// How readings and demand signals are taken from Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// How often it is asked.
    pub interval: SignedDuration,
    /// How old a sample may be.
    pub stale_after: SignedDuration,
    /// Labels that may name the node, in the order in which they are tried; never empty.
    pub node_labels: Vec<String>,
    /// Labels that an exporter's series must have.
    pub match_labels: BTreeMap<String, String>,
}

impl Default for Prometheus {
    /// Every 15 s: half of the 30 s at which a DCGM exporter collects, so that no sample is missed. 90 s: three of its collections.
    /// The labels: dcgm-exporter's own, by its releases, then those that a scrape configuration adds.
    fn default() -> Self {
        Self {
            interval: SignedDuration::from_secs(15),
            stale_after: SignedDuration::from_secs(90),
            node_labels: ["Hostname", "hostname", "node", "instance"].map(str::to_owned).to_vec(),
            match_labels: BTreeMap::new(),
        }
    }
}
