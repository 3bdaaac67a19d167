//! What happens when.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Something that happens. Nodes and jobs are named by their numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Event {
    /// A job arrives.
    Arrives(usize),
    /// A node is ready.
    Ready(usize),
    /// A job ends on a node, unless it was started again since.
    Ends { job: usize, start: u32, node: usize },
    /// The autoscaler looks at the waiting jobs.
    Scan,
    /// It looks again at those that it held back.
    ScanHeld,
    /// A node has been idle for its window, unless it was used since.
    Idle { node: usize, since: f64 },
    /// Underutilized nodes are looked for.
    Consolidate,
    /// Spot is asked again for jobs that wait for it.
    Retry,
    /// A job that runs on demand may leave for spot.
    MayLeave(usize),
    /// The room of a spot pool falls.
    RoomFalls(usize),
}

#[derive(Debug)]
struct Due {
    at: f64,
    number: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

/// Events by time. Those of the same time happen in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Due>>,
    added: u64,
}

impl Events {
    pub(super) fn add(&mut self, at: f64, event: Event) {
        self.added += 1;
        self.heap.push(Reverse(Due { at, number: self.added, event }));
    }

    /// The next event before `end`.
    pub(super) fn next(&mut self, end: f64) -> Option<(f64, Event)> {
        self.heap.pop().map(|Reverse(due)| (due.at, due.event)).filter(|(at, _)| *at < end)
    }
}
