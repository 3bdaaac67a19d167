//! What is counted of probes and of what they send.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::reason::Reason;

/// Every metric of the probes. A clone counts into the same ones.
#[derive(Debug, Clone)]
pub struct ProbeMetrics {
    rejected: Family<[(&'static str, &'static str); 1], Counter>,
    throttled: Counter,
    streams: Gauge,
    rounds: Counter,
    events: Counter,
    nodes: Gauge,
    silent: Gauge,
    oldest: Gauge<f64, std::sync::atomic::AtomicU64>,
    latency: Histogram,
}

impl Default for ProbeMetrics {
    fn default() -> Self {
        Self {
            rejected: Family::default(),
            throttled: Counter::default(),
            streams: Gauge::default(),
            rounds: Counter::default(),
            events: Counter::default(),
            nodes: Gauge::default(),
            silent: Gauge::default(),
            oldest: Gauge::default(),
            // Changes are gathered for 50 ms at least, and for 250 where they are many.
            latency: Histogram::new([0.01, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 1.0, 2.5]),
        }
    }
}

impl ProbeMetrics {
    /// Makes the metrics and registers them, all named `stoker_probe_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let probe = registry.sub_registry_with_prefix("stoker_probe");
        probe.register(
            "rejected",
            "Data of probes that was rejected, by reason; an implausible level is counted and becomes unknown",
            metrics.rejected.clone(),
        );
        probe.register(
            "throttled",
            "Messages after which a probe was throttled, because it sends more than four a period",
            metrics.throttled.clone(),
        );
        probe.register("streams", "Open streams of probes", metrics.streams.clone());
        probe.register("rounds", "Readings of nodes accepted, from any source", metrics.rounds.clone());
        probe.register("events", "Events of nodes accepted: XIDs and interruption notices", metrics.events.clone());
        probe.register("nodes", "Nodes with readings", metrics.nodes.clone());
        probe.register("silent_nodes", "Nodes whose readings have stopped", metrics.silent.clone());
        probe.register_with_unit(
            "oldest_reading_age",
            "Age of the least recent reading of any node",
            Unit::Seconds,
            metrics.oldest.clone(),
        );
        probe.register_with_unit(
            "reading_to_snapshot",
            "Time from the arrival of a reading that changes something until decisions use it",
            Unit::Seconds,
            metrics.latency.clone(),
        );
        // There from the start: a rate over a series that begins with its first event misses that event.
        for reason in Reason::ALL {
            drop(metrics.rejected.get_or_create(&[("reason", reason.as_str())]));
        }
        metrics
    }

    /// Something was not taken.
    pub fn rejected(&self, reason: Reason) {
        self.rejected.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// How much was not taken for that reason.
    pub fn rejections(&self, reason: Reason) -> u64 {
        self.rejected.get_or_create(&[("reason", reason.as_str())]).get()
    }

    /// Readings that were taken.
    pub fn rounds(&self) -> u64 {
        self.rounds.get()
    }

    /// Streams that stand.
    pub fn streams(&self) -> i64 {
        self.streams.get()
    }

    /// Messages after which a probe was not listened to for a while.
    pub fn throttles(&self) -> u64 {
        self.throttled.get()
    }

    pub(super) fn throttled(&self) {
        self.throttled.inc();
    }

    pub(super) fn opened(&self) {
        self.streams.inc();
    }

    pub(super) fn ended(&self) {
        self.streams.dec();
    }

    pub(super) fn took(&self, rounds: u64, events: usize) {
        self.rounds.inc_by(rounds);
        self.events.inc_by(events as u64);
    }

    pub(super) fn published(&self, after: Duration) {
        self.latency.observe(after.as_secs_f64());
    }

    pub(super) fn standing(&self, nodes: usize, silent: usize, oldest: Duration) {
        self.nodes.set(i64::try_from(nodes).unwrap_or(i64::MAX));
        self.silent.set(i64::try_from(silent).unwrap_or(i64::MAX));
        self.oldest.set(oldest.as_secs_f64());
    }
}
