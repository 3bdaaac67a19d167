//! What demand signals say, for people.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use stoker_core::policy::rules::demand::{Demand, Need, SignalLevel};

/// What the demand signals of one pool say.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DemandRow {
    pool: String,
    /// Replicas that it needs.
    need: Need,
    signals: Vec<SignalRow>,
}

/// What one signal says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SignalRow {
    signal: String,
    #[serde(flatten)]
    level: SignalLevel,
    /// How long ago that was, in seconds, or it became unknown.
    seconds: i64,
}

/// Every pool with signals, or the one that was asked for.
pub(super) fn rows(demand: &Demand, pool: Option<&str>, now: Timestamp) -> Vec<DemandRow> {
    let asked = demand.iter().filter(|(name, _)| pool.is_none_or(|pool| name.as_str() == pool));
    let row = |(signal, level): (&stoker_core::base::ids::SignalName, &SignalLevel)| {
        let since = match level {
            SignalLevel::Known { at, .. } => *at,
            SignalLevel::Unknown { since, .. } => *since,
        };
        let seconds = now.duration_since(since).as_secs().max(0);
        SignalRow { signal: signal.to_string(), level: level.clone(), seconds }
    };
    let rows = asked.map(|(pool, of_pool)| DemandRow {
        pool: pool.to_string(),
        need: of_pool.need(),
        signals: of_pool.signals.iter().map(row).collect(),
    });
    rows.collect()
}

impl fmt::Display for DemandRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "demand of pool {}: ", self.pool)?;
        match self.need {
            Need::Known(replicas) => write!(f, "{replicas} replicas")?,
            Need::AtLeast(replicas) => write!(f, "at least {replicas} replicas")?,
            Need::Unknown => write!(f, "unknown")?,
        }
        for (at, signal) in self.signals.iter().enumerate() {
            let SignalRow { signal, level, seconds } = signal;
            write!(f, "{}", if at == 0 { " (" } else { "; " })?;
            match level {
                SignalLevel::Known { amount, replicas, .. } => {
                    write!(f, "{signal} {amount} asks for {replicas}, {seconds} s ago")?;
                }
                SignalLevel::Unknown { why, .. } => write!(f, "{signal} has been unknown for {seconds} s: {why}")?,
            }
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stoker_core::base::ids::{PoolName, SignalName};
    use stoker_core::policy::rules::demand::{Amount, NoLevel, PoolDemand};

    use super::*;

    #[test]
    fn a_pool_s_demand_is_told_with_what_it_rests_on() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let name = |text: &str| SignalName::new(text).unwrap();
        let known = SignalLevel::Known { amount: Amount(24_500_000), replicas: 4, at: at(88) };
        let unknown = SignalLevel::Unknown { why: NoLevel::Stale, since: at(40) };
        let signals = [(name("queueDepth"), known), (name("qps"), unknown)].into();
        let demand: Demand = [(PoolName::new("inference").unwrap(), Arc::new(PoolDemand { signals }))].into();
        let shown = |pool| rows(&demand, pool, at(100)).iter().map(ToString::to_string).collect::<Vec<_>>();
        let line = "demand of pool inference: at least 4 replicas (qps has been unknown for 60 s: a metric that it reads has \
                    no recent sample; queueDepth 24.5 asks for 4, 12 s ago)";
        assert_eq!(shown(None), [line]);
        assert_eq!(shown(Some("training")), [] as [&str; 0]);
    }
}
