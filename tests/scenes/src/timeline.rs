//! What happened and what was decided, as lines of text: the golden of a scene.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

/// A timeline.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    text: String,
    start: Timestamp,
    at: Timestamp,
    /// Whether lines are kept at all.
    pub(crate) quiet: bool,
    /// The last lines, where none are kept.
    last: std::collections::VecDeque<String>,
}

impl Timeline {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { start, at: start, ..Self::default() }
    }

    pub(crate) const fn now(&mut self, now: Timestamp) {
        self.at = now;
    }

    /// Adds a line of who did what.
    pub(crate) fn tell(&mut self, who: &str, what: &str) {
        let line = format!("{} {who:<10} {what}", self.clock());
        if self.quiet {
            if self.last.len() >= 60 {
                self.last.pop_front();
            }
            self.last.push_back(line);
        } else {
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }

    pub(crate) fn clock(&self) -> String {
        shown(self.at.duration_since(self.start))
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        if self.quiet { self.last.iter().fold(String::new(), |text, line| text + line + "\n") } else { self.text.clone() }
    }
}

/// Hours, minutes and seconds; tenths where there are any.
pub(crate) fn shown(passed: SignedDuration) -> String {
    let seconds = passed.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let tenths = passed.subsec_millis() / 100;
    if tenths == 0 {
        format!("{hours:02}:{minutes:02}:{rest:02}  ")
    } else {
        format!("{hours:02}:{minutes:02}:{rest:02}.{tenths}")
    }
}
