//! What shows that this process may act.

use stoker_journal::state_lock::StateLock;

use crate::kube::leader::Leader;

/// The lock on the state directory, and where there are several replicas the lead among them.
#[derive(Debug)]
pub struct Permit {
    _lock: StateLock,
    leader: Option<Leader>,
}

impl Permit {
    /// That of the only process on its state directory, which leads where there are several.
    pub const fn new(lock: StateLock, leader: Option<Leader>) -> Self {
        Self { _lock: lock, leader }
    }

    /// Whether it counts now: a replica that was paused may have another in its place.
    pub fn is_valid(&self) -> bool {
        self.leader.as_ref().is_none_or(Leader::leads)
    }

    /// Takes down whether the journal could be written: a leader that cannot lets another replica try.
    pub fn note_write(&self, written: bool) {
        if let Some(leader) = &self.leader {
            leader.note_write(written);
        }
    }
}
