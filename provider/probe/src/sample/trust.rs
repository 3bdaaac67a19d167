//! Whether the driver's list of processes can be believed.
//!
//! Newer drivers translate process numbers into the caller's PID namespace and leave out, silently, those that have none there. A probe
//! in a namespace of its own then reads an empty list from a busy GPU. What it is told of its own namespace at the start tells most of
//! that; what is seen later tells the rest: memory that somebody holds, and nobody listed.
//!
//! It does not matter whether the memory was in use before the probe began. Work that takes less than a driver may keep for itself is left to
//! the provider, which knows what the GPU takes while no pod holds its node; and of a list that has some processes and lacks others nothing
//! tells here.

use std::collections::BTreeMap;

/// An empty list is doubted when more memory than this is in use: a driver keeps less for itself, also where it counts what it reserves.
const KEPT: u64 = 1 << 30;
/// So many rounds in a row: a process that has just ended or begun shows in one of the two first.
const ROUNDS: u32 = 2;

/// What was seen of lists and memory.
#[derive(Debug)]
pub(crate) struct Trust {
    sees_all: bool,
    /// By UUID: for how many rounds the list was empty while memory was in use.
    doubted: BTreeMap<String, u32>,
}

impl Trust {
    pub(crate) fn new(sees_all: bool) -> Self {
        if !sees_all {
            tracing::warn!("the probe runs in a PID namespace of its own: process lists are not trusted; run it with hostPID");
        }
        Self { sees_all, doubted: BTreeMap::new() }
    }

    pub(crate) fn trusted(&self) -> bool {
        self.sees_all
    }

    /// Weighs a list of so many processes against the memory in use. Once caught, no list is trusted again.
    pub(crate) fn weigh(&mut self, uuid: &str, processes: usize, used: u64) {
        let doubted = self.doubted.entry(uuid.to_owned()).or_default();
        *doubted = if processes == 0 && used > KEPT { *doubted + 1 } else { 0 };
        if *doubted >= ROUNDS && self.sees_all {
            self.sees_all = false;
            tracing::warn!(gpu = uuid, "memory is in use and no process is listed: process lists are not trusted from now on");
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
    fn memory_that_was_in_use_before_the_probe_began_is_weighed_too() {
        let mut trust = Trust::new(true);
        trust.weigh("a", 0, 30 << 30);
        trust.weigh("b", 0, 500 << 20);
        assert!(trust.trusted());
        trust.weigh("a", 0, 30 << 30);
        assert!(!trust.trusted());
    }

    #[test]
    fn listed_processes_and_what_a_driver_keeps_keep_it() {
        let mut trust = Trust::new(true);
        for used in [4 << 20, 900 << 20, 1 << 30] {
            trust.weigh("a", 0, used);
        }
        // A process that has just ended: one round of memory without it.
        for (processes, used) in [(1, 8 << 30), (0, 8 << 30), (0, 4 << 20)] {
            trust.weigh("a", processes, used);
        }
        for used in [8 << 30, 16 << 30, 16 << 30] {
            trust.weigh("a", 1, used);
        }
        assert!(trust.trusted());
    }
}
