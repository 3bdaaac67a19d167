//! What is wrong, and when it is said.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long something has to be wrong before it is said: most of what is met in between is over at the next look.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// What is wrong, with the cure, by object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Faults(pub(super) BTreeMap<String, String>);

impl Faults {
    /// Takes note of what is wrong with an object, next to what else is.
    pub(crate) fn add(&mut self, object: impl Into<String>, why: impl Into<String>) {
        let (known, why) = (self.0.entry(object.into()).or_default(), why.into());
        if known.is_empty() {
            *known = why;
        } else if !known.contains(&why) {
            known.push_str("; ");
            known.push_str(&why);
        }
    }

    /// Takes note of others too.
    pub(crate) fn add_all(&mut self, others: &Self) {
        for (object, why) in &others.0 {
            self.add(object, why);
        }
    }
}

/// What was wrong at the last look.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<String, Fault>);

#[derive(Debug)]
struct Fault {
    why: String,
    since: Instant,
    said: bool,
}

/// What is to be said of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is not steered as it should be, for this reason.
    Wrong(String),
    /// It is again.
    Right,
}

impl Known {
    /// What is wrong with single objects. It still is, as far as anybody can tell who cannot look.
    pub(crate) fn of_objects(&self) -> Faults {
        let is_one = |object: &str| object.starts_with("Node") || object.starts_with("CapacityBuffer ");
        let of_objects = self.0.iter().filter(|(object, _)| is_one(object));
        Faults(of_objects.map(|(object, fault)| (object.clone(), fault.why.clone())).collect())
    }

    /// Takes note of what is wrong now, and tells what is to be said of it: each thing once.
    pub(crate) fn note(&mut self, faults: Faults, now: Instant) -> Vec<(String, Said)> {
        let mut said = Vec::new();
        self.0.retain(|object, fault| {
            let stays = faults.0.contains_key(object);
            if !stays && fault.said {
                said.push((object.clone(), Said::Right));
            }
            stays
        });
        for (object, why) in faults.0 {
            let fault = self.0.entry(object.clone()).or_insert_with(|| Fault { why: why.clone(), since: now, said: false });
            let is_new = fault.why != why;
            fault.why.clone_from(&why);
            if is_new && fault.said || !fault.said && now.duration_since(fault.since) >= SAID_AFTER {
                fault.said = true;
                said.push((object, Said::Wrong(why)));
            }
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(of: &[(&str, &str)]) -> Faults {
        let mut faults = Faults::default();
        for (object, why) in of {
            faults.add(*object, *why);
        }
        faults
    }

    fn wrong(object: &str, why: &str) -> (String, Said) {
        (object.to_owned(), Said::Wrong(why.to_owned()))
    }

    #[test]
    fn all_that_is_wrong_with_an_object_is_told_and_each_thing_once() {
        assert_eq!(faults(&[("a", "x"), ("a", "y"), ("a", "x")]).0["a"], "x; y");
    }

    #[test]
    fn what_stays_wrong_is_said_once_and_what_passes_never() {
        let (mut known, start) = (Known::default(), Instant::now());
        let mut at = |seconds, of: &[(&str, &str)]| known.note(faults(of), start + Duration::from_secs(seconds));
        assert_eq!(at(0, &[("a", "x"), ("b", "x")]), []);
        assert_eq!(at(2, &[("a", "x")]), [], "what was never said is not taken back");
        assert_eq!(at(6, &[("a", "x"), ("b", "x")]), [wrong("a", "x")]);
        assert_eq!(at(8, &[("a", "x"), ("b", "x")]), []);
        assert_eq!(at(10, &[("a", "y"), ("b", "x")]), [wrong("a", "y")]);
        assert_eq!(at(12, &[]), [("a".to_owned(), Said::Right)]);
    }
}
