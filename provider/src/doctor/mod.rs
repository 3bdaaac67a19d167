//! Which flags of a Cluster Autoscaler fight what the policy promises, why, and what to write instead.
//!
//! The autoscaler decides when a node may go and when an order has failed; windows, floors and boot deadlines are ours. Its timers come on
//! top of ours, some of its flags make it act against them, and some make it end at its start. `rules` is the table of all that.

mod flags;
mod given;
mod release;
mod rules;
mod wants;
mod words;

use std::fmt;

use serde::Serialize;

pub use release::Release;
pub use wants::Wants;
pub use words::{CommandLine, NoCommandLine, of_manifest, split};

use given::{Given, Values};

/// How much is at stake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Something promised is not kept, or the autoscaler does not start.
    Error,
    /// It costs money or time.
    Warning,
    /// Worth knowing.
    Info,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cure {
    /// Write these flags, in place of what there is of the same names.
    Write(Vec<String>),
    /// Take the flag out.
    TakeOut,
    /// Something else, in words.
    Do(String),
}

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(flags) => write!(f, "write {}", flags.join(" ")),
            Self::TakeOut => f.write_str("remove it"),
            Self::Do(words) => f.write_str(words),
        }
    }
}

/// One thing that is wrong with a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much is at stake.
    pub severity: Severity,
    /// The flag, without dashes, or the word that is none.
    pub flag: String,
    /// How it stands, as it would be written: `--expander=random`; with `(default)` where it is not given.
    pub stands: String,
    /// What comes of it.
    pub why: String,
    /// What to do.
    pub cure: Cure,
}

impl Finding {
    fn new(flag: &str, severity: Severity, why: String, cure: Cure) -> Self {
        Self { severity, flag: flag.to_owned(), stands: format!("--{flag}"), why, cure }
    }

    fn of_word(word: &str, severity: Severity, why: String) -> Self {
        let stands = word.escape_debug().to_string();
        Self { severity, flag: stands.clone(), stands, why, cure: Cure::TakeOut }
    }
}

/// Everything that is wrong with a command line for such a policy, the gravest first.
pub fn examine(words: &[String], release: Release, wants: &Wants) -> Vec<Finding> {
    let (given, mut found) = Given::read(words, release);
    if release < Release::FIRST {
        // Which flags it has is not known here.
        found.clear();
    }
    found.extend(rules::judge(Values { given: &given, release }, wants));
    // By severity alone: what ends the process stands first of its kind, then rules in the order of their table.
    found.sort_by_key(|finding| finding.severity);
    found
}
