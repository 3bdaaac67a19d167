//! What is printed, and what `--out` keeps of it: the same text, tables for pages, and pictures. Times of this machine go to standard error,
//! so that the same build prints the same everywhere.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use stoker_service::print::{NotWritten, say};

/// The file of what is printed.
const PRINTED: &str = "printed.txt";

/// All that was found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    out: Option<PathBuf>,
    text: String,
    failed: bool,
}

impl Report {
    /// A report that is kept in that folder too. The folder is written to at once, so that a run of an hour is not lost on it.
    pub(crate) fn new(out: Option<PathBuf>) -> Result<Self> {
        if let Some(dir) = &out {
            std::fs::create_dir_all(dir).with_context(|| format!("--out {}", dir.display()))?;
        }
        let report = Self { out, ..Self::default() };
        report.keep(PRINTED, "")?;
        Ok(report)
    }

    /// Prints a line.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), NotWritten> {
        let _ = writeln!(self.text, "{line}");
        say(&format!("{line}\n"))
    }

    /// Prints whether something holds that has to.
    pub(crate) fn verdict(&mut self, holds: bool, what: &str) -> Result<(), NotWritten> {
        self.failed |= !holds;
        self.line(&format!("{} {what}", if holds { "ok" } else { "FAIL" }))
    }

    /// Prints a promise that was broken.
    pub(crate) fn broken(&mut self, what: &str) -> Result<(), NotWritten> {
        self.failed = true;
        self.line(&format!("  BROKEN {what}"))
    }

    /// Keeps a file.
    pub(crate) fn keep(&self, name: &str, text: &str) -> Result<()> {
        let Some(dir) = &self.out else { return Ok(()) };
        let file = dir.join(name);
        std::fs::write(&file, text).with_context(|| format!("--out: {}", file.display()))
    }

    /// Keeps a table for a page.
    pub(crate) fn keep_table(&self, name: &str, table: &Table) -> Result<()> {
        self.keep(&format!("{name}.table"), &table.markdown())
    }

    /// Keeps what was printed; an error where something does not hold that has to.
    pub(crate) fn finish(self) -> Result<()> {
        self.keep(PRINTED, &self.text)?;
        anyhow::ensure!(!self.failed, "see FAIL and BROKEN above");
        Ok(())
    }
}

/// A table of a page.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    /// One whose rows are policies.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut table = Self { head: vec!["policy".to_owned()], rows: Vec::new() };
        table.head.extend(columns.iter().map(|&column| column.to_owned()));
        table
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, name: &str, cells: &[String]) {
        self.rows.push((name.to_owned(), cells.to_vec()));
    }

    /// One table of several; each has its columns to the right of those before it.
    pub(crate) fn side_by_side(tables: Vec<Self>) -> Self {
        tables.into_iter().fold(Self::new(&[]), |mut all, right| {
            let width = all.head.len() - 1;
            all.head.extend(right.head.into_iter().skip(1));
            for (name, cells) in right.rows {
                match all.rows.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, row)) => {
                        row.resize(width, String::new());
                        row.extend(cells);
                    }
                    None => all.rows.push((name, [vec![String::new(); width], cells].concat())),
                }
            }
            all
        })
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&self.head) + &line(&vec!["---".to_owned(); self.head.len()]);
        for (name, cells) in &self.rows {
            let mut row = vec![name.clone()];
            row.extend_from_slice(cells);
            row.resize(self.head.len(), String::new());
            text += &line(&row);
        }
        text
    }
}
