//! A command line, read as the autoscaler reads it: what it sets, and what makes the process end before it begins.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use stoker_core::base::text::{nearest, quoted};

use super::flags::{FLAGS, Flag, Kind, bool_of, default_of, duration_of, flag_named};
use super::release::Release;
use super::{Cure, Finding, Severity};

/// What a command line sets.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// The values of each flag, in order. Those that cannot be read are left out.
    values: BTreeMap<&'static str, Vec<String>>,
}

impl Given {
    /// Reads a command line, and tells what of it cannot be read.
    pub(super) fn read(words: &[String], release: Release) -> (Self, Vec<Finding>) {
        let mut reader = Reader { given: Self::default(), found: Vec::new(), release };
        reader.read(words);
        (reader.given, reader.found)
    }

    /// Whether a flag is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// What a flag is set to; of several values the last.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        Some(self.values.get(name)?.last()?.as_str())
    }

    /// Every value of a flag that may be given several times.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.values.get(name).into_iter().flatten().map(String::as_str)
    }
}

/// A flag's value for a release: what is given, else the default; `None` where the release lacks the flag or the value is not known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a> {
    /// What is given.
    pub given: &'a Given,
    /// By which release.
    pub release: Release,
}

impl<'a> Values<'a> {
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        let is_there = flag_named(name).is_some_and(|flag| flag.is_in(self.release));
        let text = is_there.then(|| self.given.text(name).unwrap_or_else(|| default_of(name, self.release)))?;
        (!is_variable(text)).then_some(text)
    }

    pub(super) fn is_on(self, name: &str) -> Option<bool> {
        bool_of(self.text(name)?)
    }

    pub(super) fn duration(self, name: &str) -> Option<SignedDuration> {
        duration_of(self.text(name)?)
    }

    pub(super) fn number(self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }
}

/// Kubernetes puts the container's environment in for `$(NAME)`.
fn is_variable(text: &str) -> bool {
    text.contains("$(")
}

struct Reader {
    given: Given,
    found: Vec<Finding>,
    release: Release,
}

impl Reader {
    fn read(&mut self, words: &[String]) {
        let mut words = words.iter().enumerate();
        let mut switch: Option<&'static Flag> = None;
        while let Some((at, word)) = words.next() {
            let before = switch.take();
            let Some(long) = word.strip_prefix("--").filter(|long| !long.is_empty()) else {
                match word.strip_prefix('-').filter(|short| !short.is_empty() && *short != "-") {
                    Some(short) => self.short(word, short, || words.next().map(|(_, value)| value.as_str())),
                    None => self.bare(at, word, before),
                }
                continue;
            };
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            // As Kubernetes' flags do: an underscore counts as a hyphen.
            let name = name.replace('_', "-");
            let Some(flag) = flag_named(&name) else {
                self.unknown(&name);
                continue;
            };
            let value = match (value, flag.kind) {
                (Some(value), _) => Some(value),
                (None, Kind::Bool) => {
                    switch = Some(flag);
                    Some("true")
                }
                (None, _) => words.next().map(|(_, value)| value.as_str()),
            };
            match value {
                Some(value) => self.keep(flag, value),
                None => self.end(
                    flag.name,
                    "has no value, and the autoscaler exits with an error",
                    &format!("write --{}=VALUE", flag.name),
                ),
            }
        }
    }

    fn keep(&mut self, flag: &'static Flag, value: &str) {
        if !flag.is_in(self.release) {
            let (release, name) = (self.release, flag.name);
            let when = if release < flag.since {
                format!("was added in {}", flag.since)
            } else {
                format!("was removed after {}", flag.until)
            };
            let why = format!("Cluster Autoscaler {release} has no such flag and exits with an error: the flag {when}");
            self.found.push(Finding::new(name, Severity::Error, why, Cure::TakeOut));
            return;
        }
        let fault = match flag.kind {
            _ if is_variable(value) => None,
            Kind::Bool => bool_of(value).is_none().then_some("true or false"),
            Kind::Duration => duration_of(value).is_none().then_some("a length of time, such as 10m"),
            Kind::Int => value.parse::<i64>().is_err().then_some("a whole number"),
            Kind::Float => value.parse::<f64>().is_err().then_some("a number"),
            Kind::Text | Kind::List => None,
        };
        match fault {
            None => self.given.values.entry(flag.name).or_default().push(value.to_owned()),
            Some(wanted) => {
                let why = format!("{} is not {wanted}, and the autoscaler exits with an error", quoted(value));
                self.end(flag.name, &why, &format!("write {wanted}"));
            }
        }
    }

    fn unknown(&mut self, name: &str) {
        let here = FLAGS.iter().filter(|flag| flag.is_in(self.release)).map(|flag| flag.name);
        let mut why = format!("Cluster Autoscaler {} has no such flag and exits with an error", self.release);
        if self.release > Release::LAST {
            why = format!("{} had no such flag, and a release without it exits with an error", Release::LAST);
        }
        let (severity, cure) = match (nearest(name, here), self.release > Release::LAST) {
            (Some(meant), _) => (Severity::Error, Cure::Do(format!("write --{meant}, if that is meant"))),
            (None, false) => (Severity::Error, Cure::TakeOut),
            (None, true) => (Severity::Info, Cure::Do("look it up in the autoscaler's --help".to_owned())),
        };
        self.found.push(Finding::new(name, severity, why, cure));
    }

    /// `-v 4`, `-v=4`, `-v4`: the one flag that may be written short.
    fn short<'w>(&mut self, word: &str, short: &str, next: impl FnOnce() -> Option<&'w str>) {
        let Some((flag, rest)) = flag_named("v").zip(short.strip_prefix('v')) else {
            let name = short.split_once('=').map_or(short, |(name, _)| name);
            let why = format!(
                "{} has one hyphen, so each letter is read as a flag, and the autoscaler exits with an error",
                quoted(word)
            );
            self.end(name, &why, "write two hyphens");
            return;
        };
        match rest.strip_prefix('=').unwrap_or(rest) {
            "" => match next() {
                Some(value) => self.keep(flag, value),
                None => self.end("v", "has no value, and the autoscaler exits with an error", "write --v=4"),
            },
            value => self.keep(flag, value),
        }
    }

    /// A word that is no flag. A switch does not take the next word, which is an easy mistake with large effect.
    fn bare(&mut self, at: usize, word: &str, switch: Option<&'static Flag>) {
        match switch.filter(|_| bool_of(word).is_some()) {
            Some(flag) => {
                let why = format!("{} after a space is ignored: the switch is on", quoted(word));
                let write = format!("--{}={word}", flag.name);
                self.found.push(Finding::new(flag.name, Severity::Error, why, Cure::Write(vec![write])));
            }
            None if at == 0 || word == "--" || word.ends_with("cluster-autoscaler") => {}
            None => {
                let why = "is not a flag, and the autoscaler ignores it".to_owned();
                self.found.push(Finding::of_word(word, Severity::Warning, why));
            }
        }
    }

    /// Something over which the process ends at its start.
    fn end(&mut self, name: &str, why: &str, cure: &str) {
        self.found.push(Finding::new(name, Severity::Error, why.to_owned(), Cure::Do(cure.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::split;
    use super::*;

    fn read(text: &str, release: u16) -> (Given, Vec<Finding>) {
        Given::read(&split(text).unwrap(), Release::minor(release))
    }

    #[test]
    fn values_stand_after_an_equals_sign_or_a_blank_and_the_last_one_counts() {
        let (given, found) = read(
            "./cluster-autoscaler --scan-interval=5s --scan_interval 20s --v=4 --startup-taint a --startup-taint=b --regional",
            36,
        );
        assert_eq!(found, []);
        assert_eq!(given.text("scan-interval"), Some("20s"));
        assert_eq!(given.all("startup-taint").collect::<Vec<_>>(), ["a", "b"]);
        let values = Values { given: &given, release: Release::LAST };
        assert_eq!(values.is_on("regional"), Some(true));
        assert_eq!(values.duration("scale-down-unneeded-time"), Some(SignedDuration::from_mins(10)));
        for text in ["-v=4", "-v4", "-v 4"] {
            assert_eq!(read(text, 36).0.text("v"), Some("4"), "{text}");
        }
    }

    #[test]
    fn what_a_release_lacks_has_no_value() {
        let (given, _) = read("", 25);
        let values = |release| Values { given: &given, release: Release::minor(release) };
        assert_eq!(values(25).is_on("enforce-node-group-min-size"), None);
        assert_eq!(values(26).is_on("enforce-node-group-min-size"), Some(false));
        assert_eq!([30, 34, 35].map(|at| values(at).is_on("frequent-loops-enabled")), [Some(false), Some(false), Some(true)]);
        assert_eq!([32, 33].map(|at| values(at).text("expander")), [Some("random"), Some("least-waste")]);
    }

    #[test]
    fn what_ends_the_process_is_told_with_what_was_meant() {
        for (text, release, flag, told) in [
            ("--expandr=grpc", 36, "expandr", "--expander"),
            ("--banana", 36, "banana", "remove it"),
            ("--max-node-startup-time=15m", 34, "max-node-startup-time", "1.35"),
            ("--max-empty-bulk-delete=5", 36, "max-empty-bulk-delete", "1.32"),
            ("--scan-interval=10", 36, "scan-interval", "10m"),
            ("--scan-interval", 36, "scan-interval", "no value"),
            ("--max-nodes-total=many", 36, "max-nodes-total", "whole number"),
            ("--regional=yes", 36, "regional", "true or false"),
            ("-expander=grpc", 36, "expander", "two hyphens"),
            ("--scale-down-enabled false", 36, "scale-down-enabled", "--scale-down-enabled=false"),
        ] {
            let (_, found) = read(text, release);
            let [one] = &found[..] else { unreachable!("{text}: {found:?}") };
            assert_eq!((one.flag.as_str(), one.severity), (flag, Severity::Error), "{text}");
            assert!(format!("{one:?}{}", one.cure).contains(told), "{text}: {one:?}");
        }
    }

    #[test]
    fn what_is_not_known_here_is_not_judged() {
        let (given, found) = read("--scan-interval=$(INTERVAL) --regional", 36);
        assert_eq!(found, []);
        assert_eq!(Values { given: &given, release: Release::LAST }.duration("scan-interval"), None);
        let (_, found) = read("--quite-new=1", 37);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, Severity::Info);
        let (_, found) = read("run extra", 36);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Warning));
    }
}
