//! What is made of answers that are in memory: the feeds without a Prometheus.

use http::StatusCode;
use jiff::Timestamp;
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::{NodeEvent, NodeReading};
use stoker_core::policy::Prometheus;
use stoker_core::policy::rules::demand::{Amount, NoLevel};

use super::ask::{self, AskFailed, Row};
use super::book::{Book, Round};
use super::dcgm;
use super::labels::{Drops, Nodes};
use super::levels::Levels;
use super::signals::only_amount;

/// Rounds of readings from answers in memory.
#[derive(Default)]
pub struct Offline {
    rules: Prometheus,
    book: Book,
}

impl Offline {
    /// One round at `now`: the readings that are new. The answers are those to the questions of a
    /// round in their order: when each GPU was sampled, each level, how many XIDs there were.
    pub fn round<'a>(
        &mut self,
        answers: impl IntoIterator<Item = &'a [u8]>,
        nodes: Vec<NodeName>,
        now: Timestamp,
    ) -> Vec<(NodeName, NodeReading, Vec<NodeEvent>)> {
        let mut drops = Drops::new();
        let mut answers = answers.into_iter().map(read);
        let stamps = answers.next().and_then(Result::ok);
        let mut levels = Levels::new();
        for (field, answer) in dcgm::FIELDS.iter().zip(&mut answers) {
            levels.take(field, answer.as_ref().map(Vec::as_slice), &mut drops);
        }
        let xids = answers.next().and_then(Result::ok);
        let round = stamps.as_ref().map(|stamps| Round { stamps, levels: &levels, xids: xids.as_deref(), asked: now });
        let nodes = Nodes::new(nodes);
        self.book.take(round.as_ref(), (&nodes, &self.rules.node_labels), self.rules.stale_after, now, &mut drops)
    }

    /// How many questions a round has.
    pub const QUESTIONS: usize = dcgm::FIELDS.len() + 2;

    /// What a demand signal is by an answer.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn amount(answer: &[u8]) -> Result<Amount, NoLevel> {
        read(answer).map_err(|failed| failed.no_level()).and_then(|rows| only_amount(&rows))
    }
}

fn read(answer: &[u8]) -> Result<Vec<Row>, AskFailed> {
    ask::read(StatusCode::OK, answer)
}
