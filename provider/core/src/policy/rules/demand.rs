//! Demand signals: how many replicas a pool needs, since when that is known, or why it is not.
//!
//! A signal is a number from the operator's own metrics, such as the length of a queue. Unknown is
//! a value: a query that fails, returns nothing or returns an old sample says nothing about the
//! need.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::{PoolName, SignalName};
use crate::base::units::scaled;

/// Room above what a signal asks for: replicas = need × 1.2, rounded up. Demand is some 15 s to 2 min old by the time it is acted on, and a
/// replica that is full answers late.
const HEADROOM: (u128, u128) = (12, 10);

/// So much of what a signal counts, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub u64);

impl Amount {
    /// Most that a signal may say, and that a replica may be given: a million million. More is a slip of units.
    pub const MOST: Self = Self(1_000_000_000_000_000_000);

    /// A plain decimal number, e.g. `12.5`; `None` where it is none or beyond [`Self::MOST`].
    pub fn parse(text: &str) -> Option<Self> {
        scaled(text, 6).map(Self).filter(|amount| *amount <= Self::MOST)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if rest == 0 {
            return f.pad(&whole.to_string());
        }
        f.pad(format!("{whole}.{rest:06}").trim_end_matches('0'))
    }
}

/// A demand signal of a pool, as the policy has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DemandSignal {
    /// Its name; unique in its pool.
    pub name: SignalName,
    /// The PromQL that gives it: a scalar, or one series.
    pub query: String,
    /// How much of it one replica takes; above zero.
    pub per_replica: Amount,
    /// What it counts each second, such as requests; `None` where it is no such rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<String>,
}

impl DemandSignal {
    /// How many replicas so much asks for: amount ÷ per replica × 1.2, rounded up, exactly.
    pub fn replicas(&self, amount: Amount) -> u32 {
        let need = u128::from(amount.0) * HEADROOM.0;
        let one = u128::from(self.per_replica.0.max(1)) * HEADROOM.1;
        u32::try_from(need.div_ceil(one)).unwrap_or(u32::MAX)
    }
}

/// What the signals of every pool that has some say.
pub type Demand = BTreeMap<PoolName, Arc<PoolDemand>>;

/// What the signals of one pool say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolDemand {
    /// Each signal.
    pub signals: BTreeMap<SignalName, SignalLevel>,
}

/// What one signal says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SignalLevel {
    /// It was asked, and it answered.
    Known {
        /// What it read.
        amount: Amount,
        /// How many replicas that asks for.
        replicas: u32,
        /// When what it rests on was sampled, by our clock.
        at: Timestamp,
    },
    /// It is not known.
    Unknown {
        /// Why.
        why: NoLevel,
        /// Since when for this reason.
        since: Timestamp,
    },
}

/// Why a signal says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoLevel {
    /// No Prometheus is named.
    NotAsked,
    /// Prometheus is being asked for the first time, and has not answered yet.
    Awaited,
    /// Prometheus could not be reached.
    Unreachable,
    /// Prometheus did not answer in time.
    TimedOut,
    /// Prometheus answered with an error.
    Refused,
    /// The answer is larger than any right one.
    TooLarge,
    /// The answer is not that of a Prometheus.
    Malformed,
    /// The query gives no series at all.
    NoData,
    /// What it rests on was last sampled too long ago, or is gone.
    Stale,
    /// The query gives several series, and which counts is not said.
    SeveralSeries,
    /// Not a number that demand can be: below zero, not finite, or beyond reason.
    Absurd,
}

impl NoLevel {
    /// Every reason, in declared order.
    pub const ALL: [Self; 11] = [
        Self::NotAsked,
        Self::Awaited,
        Self::Unreachable,
        Self::TimedOut,
        Self::Refused,
        Self::TooLarge,
        Self::Malformed,
        Self::NoData,
        Self::Stale,
        Self::SeveralSeries,
        Self::Absurd,
    ];

    /// The word used in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAsked => "not-asked",
            Self::Awaited => "awaited",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed-out",
            Self::Refused => "refused",
            Self::TooLarge => "too-large",
            Self::Malformed => "malformed",
            Self::NoData => "no-data",
            Self::Stale => "stale",
            Self::SeveralSeries => "several-series",
            Self::Absurd => "absurd",
        }
    }
}

impl fmt::Display for NoLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "no Prometheus is configured: give stoker serve --prometheus-url",
            Self::Awaited => "Prometheus has not answered its first query yet",
            Self::Unreachable => "Prometheus cannot be reached",
            Self::TimedOut => "Prometheus did not answer in time",
            Self::Refused => "Prometheus answered with an error",
            Self::TooLarge => "the answer is too large",
            Self::Malformed => "the answer does not come from a Prometheus",
            Self::NoData => "the query returns no series",
            Self::Stale => "a metric that it reads has no recent sample",
            Self::SeveralSeries => "the query returns several series: aggregate them, as with sum()",
            Self::Absurd => "the value is not a valid demand: negative, not finite or too large",
        })
    }
}

/// What a pool needs, by all of its signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Need {
    /// So many replicas: the most that any signal asks for.
    Known(u32),
    /// So many at least: some signal is unknown, and might ask for more.
    AtLeast(u32),
    /// No signal is known.
    Unknown,
}

impl PoolDemand {
    /// What the pool needs. No signal that is unknown makes it less.
    pub fn need(&self) -> Need {
        let known = |level: &SignalLevel| match level {
            SignalLevel::Known { replicas, .. } => Some(*replicas),
            SignalLevel::Unknown { .. } => None,
        };
        let most = self.signals.values().filter_map(known).max();
        match most {
            None => Need::Unknown,
            Some(most) if self.signals.values().all(|level| known(level).is_some()) => Need::Known(most),
            Some(most) => Need::AtLeast(most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per(text: &str) -> DemandSignal {
        let name = SignalName::new("queueDepth").unwrap();
        DemandSignal { name, query: "sum(queue)".to_owned(), per_replica: Amount::parse(text).unwrap(), per_second: None }
    }

    #[test]
    fn replicas_are_the_need_with_a_fifth_more_rounded_up_exactly() {
        let replicas = |amount: &str, one: &str| per(one).replicas(Amount::parse(amount).unwrap());
        // 0 asks for none; 24 ÷ 8 = 3, × 1.2 = 3.6; 25 ÷ 10 = 2.5, × 1.2 = 3 with nothing over.
        assert_eq!([replicas("0", "8"), replicas("24", "8"), replicas("25", "10")], [0, 4, 3]);
        // The least there is still asks for one.
        assert_eq!(replicas("0.000001", "1000"), 1);
        // 0.3 ÷ 0.1 = 3, × 1.2 = 3.6. In floats 0.3 ÷ 0.1 is below 3, and 1.1 ÷ 0.011 × 1.2 is above 120.
        assert_eq!([replicas("0.3", "0.1"), replicas("1.1", "0.011")], [4, 120]);
        assert_eq!(replicas("1000000000000", "0.000001"), u32::MAX);
    }

    #[test]
    fn amounts_are_read_and_shown_in_plain_decimals() {
        let shown = |text: &str| Amount::parse(text).map(|amount| amount.to_string());
        assert_eq!(shown("12.50").as_deref(), Some("12.5"));
        assert_eq!(shown("7").as_deref(), Some("7"));
        assert_eq!([shown("-1"), shown("1e3"), shown("1000000000001"), shown("")], [None, None, None, None]);
    }

    #[test]
    fn a_signal_that_is_unknown_never_lowers_the_need() {
        let at = Timestamp::UNIX_EPOCH;
        let known = |replicas| SignalLevel::Known { amount: Amount(0), replicas, at };
        let unknown = SignalLevel::Unknown { why: NoLevel::Stale, since: at };
        let need = |levels: &[SignalLevel]| {
            let name = |number: usize| SignalName::new(format!("s{number}")).unwrap();
            let signals = levels.iter().enumerate().map(|(number, level)| (name(number), level.clone()));
            PoolDemand { signals: signals.collect() }.need()
        };
        assert_eq!(need(&[known(2), known(5)]), Need::Known(5));
        assert_eq!(need(&[known(0)]), Need::Known(0));
        assert_eq!(need(&[known(2), unknown.clone()]), Need::AtLeast(2));
        assert_eq!(need(&[unknown]), Need::Unknown);
    }

    #[test]
    fn every_reason_is_written_as_it_is_called() {
        for why in NoLevel::ALL {
            assert_eq!(serde_json::to_value(why).unwrap(), serde_json::json!(why.as_str()));
        }
    }
}
