//! Answers fill both, requests are read from both: the only place that knows a field from its legacy twin.

use prost::bytes::Bytes;
use prost_types::{Duration, Timestamp};

use crate::expander::{BestOptionsRequest, BestOptionsResponse, ExpanderOption};
use crate::externalgrpc::{
    InstanceErrorInfo, LegacyDuration, NodeGroupAutoscalingOptions, NodeGroupTemplateNodeInfoResponse, PricingNodePriceRequest,
    PricingPodPriceRequest,
};
use std::collections::BTreeMap;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// What kept an instance from being created, as `instanceErrorClass` counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceErrorClass {
    /// The cloud or the quota has no more: 1.
    OutOfResources,
    /// Anything else: 99.
    Other,
}

impl InstanceErrorClass {
    /// The number on the wire.
    pub fn number(self) -> i32 {
        match self {
            Self::OutOfResources => 1,
            Self::Other => 99,
        }
    }
}

impl InstanceErrorInfo {
    /// A creation error; `code` groups failures and must not be empty.
    pub fn new(class: InstanceErrorClass, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { error_code: code.into(), error_message: message.into(), instance_error_class: class.number() }
    }
}

impl PricingNodePriceRequest {
    /// Start and end of the time to be priced; `None` when neither generation of the pair is complete.
    pub fn interval(&self) -> Option<(Timestamp, Timestamp)> {
        interval((self.start_timestamp, self.end_timestamp), (self.start_time, self.end_time))
    }
}

impl PricingPodPriceRequest {
    /// Start and end of the time to be priced; `None` when neither generation of the pair is complete.
    pub fn interval(&self) -> Option<(Timestamp, Timestamp)> {
        interval((self.start_timestamp, self.end_timestamp), (self.start_time, self.end_time))
    }

    /// The serialised core/v1 Pod; `None` when the request has none.
    pub fn pod(&self) -> Option<&Bytes> {
        [&self.pod_bytes, &self.pod].into_iter().find(|pod| !pod.is_empty())
    }
}

impl NodeGroupTemplateNodeInfoResponse {
    /// A template that every release can read. `node` is a serialised core/v1 Node and must not be empty: an answer
    /// without a node ends the autoscaler's process.
    pub fn both(node: Bytes) -> Self {
        Self { node_info: node.clone(), node_bytes: node }
    }
}

impl NodeGroupAutoscalingOptions {
    /// How long a node must be unneeded before it goes.
    pub fn unneeded(&self) -> Option<Duration> {
        duration(self.scale_down_unneeded_duration, self.scale_down_unneeded_time)
    }

    /// How long an unready node must be unneeded before it goes.
    pub fn unready(&self) -> Option<Duration> {
        duration(self.scale_down_unready_duration, self.scale_down_unready_time)
    }

    /// How long a node may take to register.
    pub fn max_node_provision(&self) -> Option<Duration> {
        duration(self.max_node_provision_duration, self.max_node_provision_time)
    }

    /// The same options with each duration in both layouts, the newer one leading.
    ///
    /// Whoever changes options for a group starts from the request's defaults, sets the newer fields, and ends here.
    #[must_use]
    pub fn both(self) -> Self {
        let (unneeded, unready, provision) = (self.unneeded(), self.unready(), self.max_node_provision());
        Self {
            scale_down_unneeded_time: unneeded.map(legacy),
            scale_down_unready_time: unready.map(legacy),
            max_node_provision_time: provision.map(legacy),
            scale_down_unneeded_duration: unneeded,
            scale_down_unready_duration: unready,
            max_node_provision_duration: provision,
            ..self
        }
    }
}

impl BestOptionsRequest {
    /// Group id to serialised core/v1 Node, for all groups of the autoscaler.
    pub fn templates(&self) -> &BTreeMap<String, Bytes> {
        if self.node_bytes_map.is_empty() { &self.node_map } else { &self.node_bytes_map }
    }
}

impl ExpanderOption {
    /// The serialised core/v1 Pods that growing this group would help.
    pub fn pods(&self) -> &[Bytes] {
        if self.pod_bytes.is_empty() { &self.pod } else { &self.pod_bytes }
    }
}

impl BestOptionsResponse {
    /// Keeps the options of these groups. Only ids are sent: nothing else is read, and the pods of a request sent back
    /// could pass the 4 MiB that the oldest clients accept.
    ///
    /// No id at all is a veto on this scale-up since 1.32; to express no opinion, send the request's ids.
    pub fn keeping<I>(groups: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let option = |id: I::Item| ExpanderOption { node_group_id: id.into(), ..ExpanderOption::default() };
        Self { options: groups.into_iter().map(option).collect() }
    }
}

type Pair = (Option<Timestamp>, Option<Timestamp>);

/// Takes a start and its end from the same generation, so that a half-filled pair never mixes with the other.
fn interval(newer: Pair, older: Pair) -> Option<(Timestamp, Timestamp)> {
    newer.0.zip(newer.1).or_else(|| older.0.zip(older.1))
}

fn duration(newer: Option<Duration>, older: Option<LegacyDuration>) -> Option<Duration> {
    newer.or_else(|| older.map(modern))
}

/// Exact: quotient and remainder of a division share their sign, as protobuf wants seconds and nanos to.
fn modern(older: LegacyDuration) -> Duration {
    let nanos = i32::try_from(older.nanos % NANOS_PER_SECOND).unwrap_or_default();
    Duration { seconds: older.nanos / NANOS_PER_SECOND, nanos }
}

/// Saturates at the 292 years that the older layout holds.
fn legacy(newer: Duration) -> LegacyDuration {
    let nanos = newer.seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(i64::from(newer.nanos));
    LegacyDuration { nanos }
}
