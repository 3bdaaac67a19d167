//! The loop that takes readings of GPUs from Prometheus.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use stoker_core::policy::{Policy, Prometheus};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ask::{AskFailed, Asker, Row};
use super::book::{Book, Round, Told};
use super::labels::{Drops, Nodes};
use super::levels::Levels;
use super::metrics::{Metrics, Series};
use super::{KnownNodes, Tell, dcgm, until_due};
use crate::clock::Clock;

/// Takes readings of GPUs from Prometheus, and passes on what is new.
pub struct GpuFeed {
    asker: Asker,
    policy: watch::Receiver<Arc<Policy>>,
    nodes: KnownNodes,
    tell: Tell,
    metrics: Metrics,
    clock: Clock,
    book: Book,
    /// Whether the last round was not answered, which is logged once.
    away: bool,
}

/// What a round came to.
struct Answered {
    stamps: Vec<Row>,
    levels: Levels,
    xids: Option<Vec<Row>>,
    asked: Timestamp,
}

impl GpuFeed {
    /// A feed that has asked nothing yet.
    pub fn new(
        asker: Asker,
        policy: watch::Receiver<Arc<Policy>>,
        nodes: KnownNodes,
        tell: Tell,
        metrics: Metrics,
        clock: Clock,
    ) -> Self {
        Self { asker, policy, nodes, tell, metrics, clock, book: Book::default(), away: false }
    }

    /// Makes round after round until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let began = self.clock.now();
            if let Some(told) = stop.run_until_cancelled(self.round()).await {
                for (node, reading, events) in told {
                    (self.tell)(node, reading, events);
                }
            }
            let interval = self.policy.borrow().prometheus.interval;
            until_due(&self.clock, began, interval, &stop).await;
        }
    }

    /// One round: asks, and says which nodes have anything new. Where Prometheus does not answer, what is known lapses all the same.
    pub(super) async fn round(&mut self) -> Vec<Told> {
        let started = Instant::now();
        let mut drops = Drops::new();
        let rules = self.policy.borrow().prometheus.clone();
        let answered = match self.ask(&rules, &mut drops).await {
            Ok(answered) => {
                if std::mem::take(&mut self.away) {
                    tracing::info!("Prometheus answers again");
                }
                Some(answered)
            }
            Err(why) => {
                if !std::mem::replace(&mut self.away, true) {
                    tracing::warn!(%why, "no readings from Prometheus: its last values become unknown as they age");
                }
                None
            }
        };
        let round = answered.as_ref().map(|answered| {
            let Answered { stamps, levels, xids, asked } = answered;
            Round { stamps, levels, xids: xids.as_deref(), asked: *asked }
        });
        let nodes = Nodes::new((self.nodes)());
        let now = self.clock.now();
        let told = self.book.take(round.as_ref(), (&nodes, &rules.node_labels), rules.stale_after, now, &mut drops);
        self.metrics.round(round.is_some(), started.elapsed(), now.as_duration().as_secs_f64(), &drops, self.book.count());
        told
    }

    /// Asks for everything, one question after the other. A level that fails is unknown; without the stamps, or once Prometheus is
    /// away, the round is over.
    async fn ask(&self, rules: &Prometheus, drops: &mut Drops) -> Result<Answered, AskFailed> {
        // First, so that nothing is taken for younger than it is: a level that is read after its stamp is as old as that says, or younger.
        // The clock likewise: the answer may be seconds on its way.
        let asked = self.clock.now();
        let stamps = self.one(&dcgm::stamps(rules)).await?;
        let mut levels = Levels::new();
        for field in dcgm::FIELDS {
            match self.one(&field.query(rules)).await {
                Err(why) if why.is_away() => return Err(why),
                answer => levels.take(field, answer.as_ref().map(Vec::as_slice), drops),
            }
        }
        let xids = match self.one(&dcgm::xid_counts(rules)).await {
            Err(why) if why.is_away() => return Err(why),
            answer => answer.ok(),
        };
        Ok(Answered { stamps, levels, xids, asked })
    }

    async fn one(&self, query: &str) -> Result<Vec<Row>, AskFailed> {
        let answer = self.asker.ask(query).await;
        self.metrics.asked(Series::Readings, &answer);
        if let Err(why) = &answer {
            tracing::debug!(query, %why, "a query failed");
        }
        answer
    }
}
