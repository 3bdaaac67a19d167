//! `karpenter.sh/do-not-disrupt` on Nodes that GPU pods hold, and only as long as they do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::marks::Guard;

/// How long a Node has to be free before Karpenter may empty it again: the next pod of a job is often there within a minute.
pub(super) const FREE_FOR: Duration = Duration::from_mins(2);

/// What is done to a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It gets the annotation, and Stoker's mark.
    Protect,
    /// It loses both; where the annotation is not Stoker's any more, the mark alone.
    Release(Guard),
}

/// A Node as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) name: &'a str,
    /// Whether its `NodePool` is steered, and nodes are to be protected.
    pub(crate) steered: bool,
    pub(crate) guard: Guard,
    /// Whether a GPU pod holds it.
    pub(crate) busy: bool,
}

/// Since when Nodes are free that Stoker protects.
#[derive(Debug, Default)]
pub(crate) struct Free(BTreeMap<String, Instant>);

impl Free {
    /// What is to be done now.
    pub(crate) fn changes(&mut self, nodes: &[Seen<'_>], now: Instant) -> Vec<(String, Change)> {
        let known: BTreeSet<&str> = nodes.iter().filter(|node| !node.busy).map(|node| node.name).collect();
        self.0.retain(|name, _| known.contains(name.as_str()));
        let mut changes = Vec::new();
        for node in nodes {
            let is_marked = matches!(node.guard, Guard::Ours | Guard::Overruled);
            if is_marked && !node.busy && !self.0.contains_key(node.name) {
                self.0.insert(node.name.to_owned(), now);
            }
            let long_free = self.0.get(node.name).is_some_and(|since| now.duration_since(*since) >= FREE_FOR);
            let change = match node.guard {
                Guard::None if node.busy && node.steered => Change::Protect,
                Guard::Ours | Guard::Overruled if long_free || !node.steered => Change::Release(node.guard),
                // Whoever took it away from a Node in use has a reason.
                Guard::None | Guard::Theirs | Guard::Ours | Guard::Overruled => continue,
            };
            changes.push((node.name.to_owned(), change));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(guard: Guard, busy: bool, steered: bool) -> Seen<'static> {
        Seen { name: "n", steered, guard, busy }
    }

    fn alone(guard: Guard, busy: bool, steered: bool) -> Option<Change> {
        Free::default().changes(&[seen(guard, busy, steered)], Instant::now()).pop().map(|(_, change)| change)
    }

    #[test]
    fn a_node_in_use_is_protected_at_once_unless_somebody_has_spoken() {
        assert_eq!(alone(Guard::None, true, true), Some(Change::Protect));
        assert_eq!(alone(Guard::None, false, true), None);
        assert_eq!(alone(Guard::None, true, false), None);
        for guard in [Guard::Theirs, Guard::Ours, Guard::Overruled] {
            assert_eq!(alone(guard, true, true), None, "{guard:?}");
        }
    }

    #[test]
    fn it_is_given_back_after_two_free_minutes_and_never_taken_from_others() {
        let start = Instant::now();
        let mut free = Free::default();
        let mut at = |seconds, busy| free.changes(&[seen(Guard::Ours, busy, true)], start + Duration::from_secs(seconds));
        assert_eq!(at(0, false), []);
        assert_eq!(at(119, false), []);
        // A pod came meanwhile: the two minutes begin again.
        assert_eq!(at(120, true), []);
        assert_eq!(at(130, false), []);
        assert_eq!(at(249, false), []);
        assert_eq!(at(250, false), [("n".to_owned(), Change::Release(Guard::Ours))]);
        let mut free = Free::default();
        assert_eq!(free.changes(&[seen(Guard::Theirs, false, true)], start), []);
        assert_eq!(free.changes(&[seen(Guard::Theirs, false, true)], start + FREE_FOR), []);
    }

    #[test]
    fn a_node_that_is_steered_no_more_is_given_back_at_once() {
        assert_eq!(alone(Guard::Ours, true, false), Some(Change::Release(Guard::Ours)));
        assert_eq!(alone(Guard::Overruled, true, false), Some(Change::Release(Guard::Overruled)));
        assert_eq!(alone(Guard::Theirs, true, false), None);
    }
}
