//! What is read from Prometheus, as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How readings and demand signals are taken from Prometheus. Its address and credentials are not
/// policy: `stoker serve --prometheus-url` gives them, and without that flag nothing here has any
/// effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawPrometheus {
    /// How often it is queried, from `5s` to `1m`. Default: `15s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "15s")]
    pub interval: Option<String>,
    /// A sample older than this is unknown: more than `interval`, and at most `10m`. Let it cover three scrapes of your exporters.
    /// Default: `90s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "90s")]
    pub stale_after: Option<String>,
    /// Labels of the exporter's series that may name the node, in the order in which they are
    /// tried; one whose value is not a node of this cluster is skipped. Default: `[Hostname,
    /// hostname, node, instance]`, the last without its port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_labels: Vec<String>,
    /// Labels that the exporter's series must have, e.g. `{ cluster: prod-east }`, where one
    /// Prometheus serves several clusters. Demand signals have such labels in their own queries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// A demand signal: a number from your own metrics that shows how much work there is, and how much
/// of it one replica handles.
///
/// replicas = value ÷ `perReplica` × 1.2, rounded up. Its metrics must have been sampled within
/// `prometheus.staleAfter`; otherwise it is unknown, even if the query ends in `or vector(0)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawSignal {
    /// What it is called, e.g. `queueDepth` or `qps`: letters, digits, `-` and `_`; once in a pool.
    pub name: String,
    /// The PromQL that gives it: a scalar or a single series, e.g. `sum(vllm:num_requests_waiting{namespace="recs"})`.
    pub query: String,
    /// How much of it one replica handles, e.g. 8 requests of a queue. Above 0.
    pub per_replica: serde_json::Number,
    /// What the signal counts each second, where it is such a rate, e.g. `requests` or `tokens`. With
    /// it `stoker report --unit-cost` tells what one of them costs. Default: it is no such rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<String>,
}
