//! The loop that asks for demand signals.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{PoolName, SignalName};
use stoker_core::policy::rules::demand::{Amount, Demand, DemandSignal, NoLevel, PoolDemand, SignalLevel};
use stoker_core::policy::{Policy, Pool};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ask::{AskFailed, Asker, Row};
use super::book::sampled;
use super::metrics::{Metrics, Series};
use super::until_due;
use crate::clock::Clock;
use crate::policy_file::promql;

/// Signals asked for at once. Each is asked for once a round, so no question of a kind overtakes itself.
const AT_ONCE: usize = 4;

/// Asks for the demand signals of the policy, round after round.
pub struct Signals {
    /// `None` where no Prometheus is named: every signal is unknown then.
    asker: Option<Asker>,
    policy: watch::Receiver<Arc<Policy>>,
    demand: watch::Sender<Arc<Demand>>,
    metrics: Metrics,
    clock: Clock,
}

impl Signals {
    /// A feed that has asked nothing yet: every signal is unknown.
    pub fn new(asker: Option<Asker>, policy: watch::Receiver<Arc<Policy>>, metrics: Metrics, clock: Clock) -> Self {
        let signals = Self { asker, policy, demand: watch::Sender::default(), metrics, clock };
        let policy = Arc::clone(&signals.policy.borrow());
        let since = signals.clock.now();
        let why = if signals.asker.is_some() { NoLevel::Awaited } else { NoLevel::NotAsked };
        let unknown = |_: &DemandSignal| SignalLevel::Unknown { why, since };
        signals.publish(&demand(&policy, unknown));
        signals
    }

    /// What the signals say, followed.
    pub fn demand(&self) -> watch::Receiver<Arc<Demand>> {
        self.demand.subscribe()
    }

    /// Makes round after round until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let began = self.clock.now();
            let policy = Arc::clone(&self.policy.borrow_and_update());
            if let Some(demand) = stop.run_until_cancelled(self.round(&policy)).await {
                self.publish(&demand);
            }
            tokio::select! {
                () = until_due(&self.clock, began, policy.prometheus.interval, &stop) => {}
                // Signals that a new policy brings are not unknown for longer than they must be. A closed channel says nothing more.
                Ok(()) = self.policy.changed() => {}
            }
        }
    }

    fn publish(&self, demand: &Demand) {
        self.metrics.demand(demand);
        self.demand.send_if_modified(|last| {
            let changed = **last != *demand;
            if changed {
                *last = Arc::new(demand.clone());
            }
            changed
        });
    }

    /// What every signal of the policy says now.
    pub(super) async fn round(&self, policy: &Policy) -> Demand {
        let of_pool = |pool: &Pool| pool.signals.iter().map(|signal| (pool.name.clone(), signal.clone())).collect::<Vec<_>>();
        let all: Vec<_> = policy.pools.iter().flat_map(of_pool).collect();
        let stale_after = policy.prometheus.stale_after;
        let asked = futures::stream::iter(all).map(|(pool, signal)| async move {
            let level = self.level(&pool, &signal, stale_after).await;
            ((pool, signal.name), level)
        });
        let mut levels: BTreeMap<(PoolName, SignalName), SignalLevel> = asked.buffer_unordered(AT_ONCE).collect().await;
        let mut taken = demand(policy, |_| SignalLevel::Unknown { why: NoLevel::NotAsked, since: self.clock.now() });
        for (pool, of_pool) in &mut taken {
            for (signal, level) in &mut Arc::make_mut(of_pool).signals {
                if let Some(read) = levels.remove(&(pool.clone(), signal.clone())) {
                    *level = read;
                }
            }
        }
        taken
    }

    /// What a signal says now; what is still unknown for the same reason is so since then.
    async fn level(&self, pool: &PoolName, signal: &DemandSignal, stale_after: SignedDuration) -> SignalLevel {
        match self.amount(signal, stale_after).await {
            Ok((amount, at)) => SignalLevel::Known { amount, replicas: signal.replicas(amount), at },
            Err(why) => {
                let last = self.demand.borrow();
                match last.get(pool).and_then(|pool| pool.signals.get(&signal.name)) {
                    Some(before @ SignalLevel::Unknown { why: same, .. }) if *same == why => before.clone(),
                    _ => SignalLevel::Unknown { why, since: self.clock.now() },
                }
            }
        }
    }

    /// What a signal reads, and when what it rests on was sampled.
    async fn amount(&self, signal: &DemandSignal, stale_after: SignedDuration) -> Result<(Amount, Timestamp), NoLevel> {
        let asker = self.asker.as_ref().ok_or(NoLevel::NotAsked)?;
        // The policy's queries were parsed when it was read.
        let stamps = promql::stamps(&signal.query).map_err(|_| NoLevel::Refused)?;
        // Before the question: the answer may be seconds on its way.
        let now = self.clock.now();
        let at = match &stamps {
            // Not on any metric: it is as of now.
            None => now,
            Some(stamps) => {
                let rows = self.one(asker, signal, &stamps.query).await?;
                oldest(&rows, now, stamps.selectors, stale_after)?
            }
        };
        let rows = self.one(asker, signal, &signal.query).await?;
        Ok((only_amount(&rows)?, at))
    }

    async fn one(&self, asker: &Asker, signal: &DemandSignal, query: &str) -> Result<Vec<Row>, NoLevel> {
        let answer = asker.ask(query).await;
        self.metrics.asked(Series::Signal, &answer);
        answer.map_err(|why| {
            tracing::debug!(signal = %signal.name, %why, "a demand signal could not be read");
            AskFailed::no_level(&why)
        })
    }
}

/// The demand of every pool with signals.
fn demand(policy: &Policy, level: impl Fn(&DemandSignal) -> SignalLevel) -> Demand {
    let of_pool = |signals: &[DemandSignal]| PoolDemand {
        signals: signals.iter().map(|signal| (signal.name.clone(), level(signal))).collect(),
    };
    let pools = policy.pools.iter().filter(|pool| !pool.signals.is_empty());
    pools.map(|pool| (pool.name.clone(), Arc::new(of_pool(&pool.signals)))).collect()
}

/// When the metric that was sampled longest ago was; all of them must have been of late. `asked`: when they were asked for.
fn oldest(rows: &[Row], asked: Timestamp, selectors: usize, stale_after: SignedDuration) -> Result<Timestamp, NoLevel> {
    if rows.is_empty() {
        return Err(NoLevel::NoData);
    }
    let mut oldest = asked;
    for row in rows {
        let (_, at) = sampled(row, asked).map_err(|_| NoLevel::Malformed)?;
        oldest = oldest.min(at);
    }
    if rows.len() < selectors || asked.duration_since(oldest) > stale_after {
        return Err(NoLevel::Stale);
    }
    Ok(oldest)
}

/// The one value of an answer.
pub(super) fn only_amount(rows: &[Row]) -> Result<Amount, NoLevel> {
    let row = match rows {
        [] => return Err(NoLevel::NoData),
        [row] => row,
        [_, _, ..] => return Err(NoLevel::SeveralSeries),
    };
    // Comparing refuses what is not a number, too. Millionths of up to a million million fit.
    let value = row.number();
    if !(0.0..=1e12).contains(&value) {
        return Err(NoLevel::Absurd);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from nought to 10^18")]
    Ok(Amount((value * 1e6).round() as u64))
}
