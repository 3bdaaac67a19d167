//! Whether the driver's list of processes can be believed.
//!
//! Newer drivers translate process numbers into the caller's PID namespace and leave out, silently, those that have none there. A probe
//! in a namespace of its own then reads an empty list from a busy GPU.

use std::collections::BTreeMap;

/// An empty list is doubted when the memory in use has risen by more than this since it was least.
const RISE: u64 = 1 << 30;
/// So many rounds in a row: a process that has just ended or begun shows in one of the two first.
const ROUNDS: u32 = 2;

/// What was seen of lists and memory.
#[derive(Debug)]
pub(crate) struct Trust {
    sees_all: bool,
    /// By UUID: the least memory in use, and for how many rounds the list was empty above it.
    seen: BTreeMap<String, (u64, u32)>,
}

impl Trust {
    pub(crate) fn new(sees_all: bool) -> Self {
        if !sees_all {
            tracing::warn!(
                "the probe runs in a PID namespace of its own: lists of processes are not trusted; run it with hostPID"
            );
        }
        Self { sees_all, seen: BTreeMap::new() }
    }

    pub(crate) fn trusted(&self) -> bool {
        self.sees_all
    }

    /// Weighs a list of so many processes against the memory in use. Once caught, no list is trusted again.
    pub(crate) fn weigh(&mut self, uuid: &str, processes: usize, used: u64) {
        let (least, doubted) = self.seen.entry(uuid.to_owned()).or_insert((used, 0));
        *least = used.min(*least);
        *doubted = if processes == 0 && used > least.saturating_add(RISE) { *doubted + 1 } else { 0 };
        if *doubted >= ROUNDS && self.sees_all {
            self.sees_all = false;
            tracing::warn!(
                gpu = uuid,
                "memory is in use and no process is listed: lists of processes are not trusted from now on"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_rises_twice_without_a_process_ends_the_trust() {
        let mut trust = Trust::new(true);
        trust.weigh("a", 0, 4 << 20);
        trust.weigh("a", 0, 8 << 30);
        assert!(trust.trusted(), "one round may be a process that begins");
        trust.weigh("a", 0, 8 << 30);
        assert!(!trust.trusted());
        trust.weigh("a", 1, 8 << 30);
        assert!(!trust.trusted(), "what was caught once stays so");
    }

    #[test]
    fn listed_processes_and_small_rises_keep_it() {
        let mut trust = Trust::new(true);
        for used in [4 << 20, 900 << 20, 900 << 20] {
            trust.weigh("a", 0, used);
        }
        for used in [8 << 30, 16 << 30, 16 << 30] {
            trust.weigh("a", 1, used);
        }
        assert!(trust.trusted());
    }
}
