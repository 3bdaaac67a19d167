//! Events that a queue is filled with.

use serde_json::{Value, json};

/// An event that a rule sends to the queue.
pub(super) struct Event {
    /// Its name among the rules.
    pub(super) name: &'static str,
    /// What the supplier does about it.
    pub(super) why: &'static str,
    source: &'static str,
    pub(super) detail_type: &'static str,
}

/// Those that the supplier reads.
pub(super) const EVENTS: [Event; 5] = [
    Event {
        name: "spot",
        why: "EC2 takes a Spot instance back in two minutes: its node is drained",
        source: "aws.ec2",
        detail_type: "EC2 Spot Instance Interruption Warning",
    },
    Event {
        name: "reservation",
        why: "EC2 takes an instance of a capacity reservation back: its node is drained",
        source: "aws.ec2",
        detail_type: "EC2 Capacity Reservation Instance Interruption Warning",
    },
    Event {
        name: "health",
        why: "AWS has planned maintenance of an instance: its node is drained before",
        source: "aws.health",
        detail_type: "AWS Health Event",
    },
    Event {
        name: "state",
        why: "An instance has started or ended: machines are listed at once",
        source: "aws.ec2",
        detail_type: "EC2 Instance State-change Notification",
    },
    Event {
        name: "rebalance",
        why: "EC2 expects to take a Spot instance back: nothing is done in this release",
        source: "aws.ec2",
        detail_type: "EC2 Instance Rebalance Recommendation",
    },
];

impl Event {
    /// What its rule matches it by.
    pub(super) fn pattern(&self) -> Value {
        let mut pattern = json!({ "source": [self.source], "detail-type": [self.detail_type] });
        if self.source == "aws.health" {
            pattern["detail"] = json!({ "service": ["EC2"], "eventTypeCategory": ["scheduledChange"] });
        }
        pattern
    }
}

/// How long a queue keeps a message, in seconds: an older notice says nothing any more.
pub(super) const KEPT_FOR: u32 = 300;

/// Who sends events to the queue.
pub(super) const SENDER: &str = "events.amazonaws.com";
