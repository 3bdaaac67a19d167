//! Where rounds and events go.

use std::sync::{Arc, Mutex, PoisonError};

use stoker_proto::probe::{Event, Round};
use tokio::sync::oneshot;

/// The provider asks for a round that was sampled after it asked.
#[derive(Debug)]
pub struct Confirm {
    /// Its name for the question.
    pub nonce: u64,
    /// Takes the round.
    pub answer: oneshot::Sender<Round>,
}

/// Takes rounds and events, and numbers them.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    last: Arc<Mutex<(u64, u64)>>,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a round.
    pub fn round(&self, mut round: Round) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.0 += 1;
        round.sequence = last.0;
    }

    /// Takes an event.
    pub fn event(&self, mut event: Event) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.1 += 1;
        event.number = last.1;
    }
}
