//! What is counted of Prometheus's answers, and what signals say, as metrics.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use stoker_core::policy::rules::demand::{Demand, NoLevel, SignalLevel};

use super::ask::AskFailed;
use super::labels::{Dropped, Drops};

/// What a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    /// Readings of GPUs.
    Readings,
    /// A demand signal.
    Signal,
    /// Somebody who looks.
    People,
}

impl Series {
    const ALL: [Self; 3] = [Self::Readings, Self::Signal, Self::People];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Readings => "readings",
            Self::Signal => "signal",
            Self::People => "people",
        }
    }
}

/// Why a question may fail, as a label.
const FAILURES: [NoLevel; 5] =
    [NoLevel::Unreachable, NoLevel::TimedOut, NoLevel::Refused, NoLevel::TooLarge, NoLevel::Malformed];

/// The metrics. A clone counts into the same ones.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    queries: Family<[(&'static str, &'static str); 2], Counter>,
    dropped: Family<[(&'static str, &'static str); 1], Counter>,
    gpus: Family<[(&'static str, &'static str); 1], Gauge>,
    round: Option<Histogram>,
    last_round: Gauge<f64, AtomicU64>,
    demand: Signals,
}

/// What signals say, written at each scrape: all of one round.
#[derive(Debug, Clone, Default)]
struct Signals(Arc<Mutex<Demand>>);

impl Collector for Signals {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let demand = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let help = "Replicas that a demand signal asks for; absent while it is unknown";
        let mut family = encoder.encode_descriptor("demand_replicas", help, None, MetricType::Gauge)?;
        for (pool, of_pool) in &demand {
            for (signal, level) in &of_pool.signals {
                if let SignalLevel::Known { replicas, .. } = level {
                    let labels = [("pool", pool.as_str()), ("signal", signal.as_str())];
                    family.encode_family(&labels)?.encode_gauge(&i64::from(*replicas))?;
                }
            }
        }
        let help = "1 while a demand signal is unknown, by reason";
        let mut family = encoder.encode_descriptor("demand_unknown", help, None, MetricType::Gauge)?;
        for (pool, of_pool) in &demand {
            for (signal, level) in &of_pool.signals {
                if let SignalLevel::Unknown { why, .. } = level {
                    let labels = [("pool", pool.as_str()), ("signal", signal.as_str()), ("reason", why.as_str())];
                    family.encode_family(&labels)?.encode_gauge(&1_i64)?;
                }
            }
        }
        Ok(())
    }
}

impl Metrics {
    /// Makes the metrics and registers them, all named `stoker_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let buckets = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
        let round = Histogram::new(buckets);
        let metrics = Self { round: Some(round.clone()), ..Self::default() };
        let registry = registry.sub_registry_with_prefix("stoker");
        registry.register("prometheus_queries", "Queries to Prometheus, by purpose and result", metrics.queries.clone());
        registry.register(
            "prometheus_dropped",
            "Series and values of Prometheus's answers that were rejected, by reason",
            metrics.dropped.clone(),
        );
        registry.register(
            "prometheus_gpus",
            "GPUs that Prometheus reports, and those that it reported within the hour but no longer does",
            metrics.gpus.clone(),
        );
        registry.register_with_unit("prometheus_round", "Time that a round of readings took", Unit::Seconds, round);
        registry.register_with_unit(
            "prometheus_last_round_timestamp",
            "When readings were last taken from Prometheus, in Unix time; 0 before the first",
            Unit::Seconds,
            metrics.last_round.clone(),
        );
        registry.register_collector(Box::new(metrics.demand.clone()));
        for series in Series::ALL {
            drop(metrics.queries.get_or_create(&[("kind", series.as_str()), ("result", "ok")]));
            for failure in FAILURES {
                drop(metrics.queries.get_or_create(&[("kind", series.as_str()), ("result", failure.as_str())]));
            }
        }
        for reason in Dropped::ALL {
            drop(metrics.dropped.get_or_create(&[("reason", reason.as_str())]));
        }
        for state in ["known", "silent"] {
            drop(metrics.gpus.get_or_create(&[("state", state)]));
        }
        metrics
    }

    /// A question was answered, or not.
    pub(super) fn asked<T>(&self, series: Series, answer: &Result<T, AskFailed>) {
        let result = answer.as_ref().err().map_or("ok", AskFailed::label);
        self.queries.get_or_create(&[("kind", series.as_str()), ("result", result)]).inc();
    }

    /// A round of readings was made; whether Prometheus answered it.
    pub(super) fn round(&self, answered: bool, took: Duration, unix: f64, drops: &Drops, (live, silent): (usize, usize)) {
        if let Some(round) = &self.round {
            round.observe(took.as_secs_f64());
        }
        if answered {
            self.last_round.set(unix);
        }
        for (reason, count) in drops {
            self.dropped.get_or_create(&[("reason", reason.as_str())]).inc_by(*count);
        }
        for (state, count) in [("known", live), ("silent", silent)] {
            self.gpus.get_or_create(&[("state", state)]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// When readings were last taken; `None` before the first time.
    pub fn last_round(&self) -> Option<Timestamp> {
        #[expect(clippy::cast_possible_truncation, reason = "whole milliseconds of Unix time")]
        let at = (self.last_round.get() * 1_000.0) as i64;
        if at == 0 { None } else { Timestamp::from_millisecond(at).ok() }
    }

    /// What signals say now; one that is no more is gone from the next scrape.
    pub(crate) fn demand(&self, demand: &Demand) {
        *self.demand.0.lock().unwrap_or_else(PoisonError::into_inner) = demand.clone();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use jiff::Timestamp;
    use stoker_core::base::ids::{PoolName, SignalName};
    use stoker_core::policy::rules::demand::{Amount, PoolDemand};

    use super::*;

    /// Each scrape has the one signal as known or as unknown, while rounds that say so in turn come as fast as they can.
    #[test]
    fn a_scrape_sees_all_signals_of_one_round() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let at = Timestamp::UNIX_EPOCH;
        let of = |level: SignalLevel| -> Demand {
            let signals = [(SignalName::new("queue").unwrap(), level)].into();
            [(PoolName::new("p").unwrap(), Arc::new(PoolDemand { signals }))].into()
        };
        let known = of(SignalLevel::Known { amount: Amount(1), replicas: 2, at });
        let unknown = of(SignalLevel::Unknown { why: NoLevel::Stale, since: at });
        metrics.demand(&known);
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    metrics.demand(&unknown);
                    metrics.demand(&known);
                }
            });
            for _ in 0..2_000 {
                let mut text = String::new();
                prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
                let series = |line: &&str| line.starts_with("stoker_demand_") && line.contains("signal=\"queue\"");
                let told: Vec<&str> = text.lines().filter(series).collect();
                if told.len() != 1 {
                    over.store(true, Ordering::Relaxed);
                }
                assert_eq!(told.len(), 1, "{told:?}");
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
