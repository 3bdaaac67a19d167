//! What a person reads on standard output: lines, tables and counts.

use std::io::{self, Write as _};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

/// How wide tables are where no terminal tells: what a review tool, a log or a wide terminal shows without wrapping.
const WIDTH: u16 = 120;

/// Narrowest last column, where reasons stand: below it a sentence is a column of words.
const NARROWEST_REASON: u16 = 16;

/// A table, as text or as part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What it tells.
    pub caption: String,
    /// Its columns.
    pub header: Vec<String>,
    /// Which of them are numbers.
    pub numbers: std::ops::Range<usize>,
    /// Its rows, as long as the header.
    pub rows: Vec<Vec<String>>,
}

/// Standard output did not take what was written.
#[derive(Debug, thiserror::Error)]
#[error("standard output could not be written")]
pub struct NotWritten(#[from] io::Error);

impl NotWritten {
    /// Whether the reader has seen enough (`| head`), which is no failure.
    pub fn is_enough(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Writes to standard output, at once.
pub fn say(text: &str) -> Result<(), NotWritten> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

/// A table without rules, whose last column takes what room is left. Columns named in `numbers` are set to the right.
pub fn table(header: &[&str], numbers: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = bare();
    table.set_header(header).add_rows(rows);
    let last = header.len().saturating_sub(1);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_constraint(if at == last {
            ColumnConstraint::LowerBoundary(Width::Fixed(NARROWEST_REASON))
        } else {
            ColumnConstraint::ContentWidth
        });
        if header.get(at).is_some_and(|name| numbers.contains(name)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    finish(&mut table)
}

fn bare() -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    table
}

/// The table's lines: columns two spaces apart, nothing after the last.
fn finish(table: &mut comfy_table::Table) -> String {
    let last = table.column_count().saturating_sub(1);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if at == last { 0 } else { 2 }));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

/// A word and what it stands before, wrapped as tables are.
pub fn paragraph(word: &str, text: &str) -> String {
    let mut table = bare();
    table.add_row([word, text]);
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    finish(&mut table)
}

/// A line with a word in front, wrapped to the width of tables below where its text begins.
pub fn wrapped(lead: &str, text: &str) -> String {
    let (width, indent) = (usize::from(bare().width().unwrap_or(WIDTH)), lead.chars().count());
    let (mut out, mut at) = (lead.to_owned(), indent);
    for (n, word) in text.split(' ').enumerate() {
        let len = word.chars().count();
        if n > 0 && at + 1 + len > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            at = indent;
        } else if n > 0 {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += len;
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// `1 node`, `2 nodes`.
pub fn count(n: impl TryInto<u64>, noun: &str) -> String {
    match n.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_wraps_its_last_column_at_120() {
        let long = "word ".repeat(60);
        let text = table(&["A", "B"], &["A"], vec![vec!["1".into(), long]]);
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
