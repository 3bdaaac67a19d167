//! What is wrong with a file, all at once, each with its line.

use std::fmt;

use granit_parser::Marker;
use stoker_core::policy::Fault;

/// Faults that are printed before the rest is only counted: more help nobody, and a log line has an end.
const MAX_SHOWN: usize = 100;

/// A place in a text: line and column, both from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Position {
    pub(super) fn of(mark: Marker) -> Self {
        Self { line: mark.line(), column: mark.col() + 1 }
    }
}

/// A fault and its place in the text.
#[derive(Debug)]
pub(super) struct Found {
    pub at: Position,
    pub fault: Fault,
}

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// The field, what is wrong with it and what would be right.
    pub message: String,
}

/// Everything wrong with a file, in the order of its lines. It prints a line for each: `policy.yaml:14:9: pools[2]…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    file_name: String,
    list: Vec<FileFault>,
}

impl Faults {
    /// Sorts what was found in `text`.
    pub(super) fn new(file_name: &str, text: &str, mut found: Vec<Found>) -> Self {
        found.sort_by_key(|found| found.at);
        let last_line = text.lines().count().max(1);
        let place = |at: Position| match text.lines().last() {
            // The parser tells the end of a text as a line after the last one.
            Some(last) if at.line > last_line => Position { line: last_line, column: last.chars().count() + 1 },
            _ => Position { line: at.line.clamp(1, last_line), ..at },
        };
        let list = found.into_iter().map(|Found { at, fault }| {
            let Position { line, column } = place(at);
            FileFault { line, column, message: fault.to_string() }
        });
        Self { file_name: file_name.to_owned(), list: list.collect() }
    }

    /// The file's name, as given.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// Each fault, in the order of lines.
    pub fn iter(&self) -> std::slice::Iter<'_, FileFault> {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a FileFault;
    type IntoIter = std::slice::Iter<'a, FileFault>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, FileFault { line, column, message }) in self.list.iter().take(MAX_SHOWN).enumerate() {
            let end_of_last = if at == 0 { "" } else { "\n" };
            write!(f, "{end_of_last}{}:{line}:{column}: {message}", self.file_name)?;
        }
        match self.list.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more errors", self.file_name),
        }
    }
}

impl std::error::Error for Faults {}
