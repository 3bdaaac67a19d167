//! What commands print: tables for people, JSON and YAML for programs.

use std::io::{self, Write as _};

use clap::ValueEnum;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use jiff::SignedDuration;
use serde::Serialize;
use stoker_core::units::{MICROS_PER_USD, UsdMicros, UsdPerHour};

use super::exit::CliError;

/// How wide tables are where no terminal tells: what a review tool, a log or a wide terminal shows without wrapping.
const WIDTH: u16 = 120;

/// Narrowest last column, where reasons stand: below it a sentence is a column of words.
const NARROWEST_REASON: u16 = 16;

/// How a report is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs: one JSON document.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Money as programs get it, per hour or as an amount: exact in micro-dollars, and as decimal text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Money {
    /// Micro-dollars.
    pub micro_usd: i64,
    /// Dollars with six decimals.
    pub usd: String,
}

impl From<UsdPerHour> for Money {
    fn from(UsdPerHour(micros): UsdPerHour) -> Self {
        UsdMicros(micros).into()
    }
}

impl From<UsdMicros> for Money {
    fn from(UsdMicros(micros): UsdMicros) -> Self {
        let sign = if micros < 0 { "-" } else { "" };
        let (whole, rest) =
            (micros.unsigned_abs() / MICROS_PER_USD.unsigned_abs(), micros.unsigned_abs() % MICROS_PER_USD.unsigned_abs());
        Self { micro_usd: micros, usd: format!("{sign}{whole}.{rest:06}") }
    }
}

/// Prints a report.
pub(super) fn print<T: Serialize>(format: Format, report: &T, table: impl FnOnce(&T) -> String) -> Result<(), CliError> {
    write(&match format {
        Format::Table => table(report),
        Format::Json => json(report)?,
        Format::Yaml => yaml(report)?,
    })
}

/// A value as indented JSON with a line end.
pub(super) fn json<T: Serialize>(value: &T) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| CliError::Failed { doing: "the report could not be written as JSON".into(), source: error.into() })?;
    Ok(text + "\n")
}

/// A value as YAML with a line end.
pub(super) fn yaml<T: Serialize>(value: &T) -> Result<String, CliError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| CliError::Failed { doing: "the report could not be written as YAML".into(), source: error.into() })
}

/// Standard output did not take what was written.
#[derive(Debug, thiserror::Error)]
#[error("standard output could not be written")]
pub(crate) struct NotWritten(#[from] io::Error);

impl NotWritten {
    /// Whether the reader has seen enough (`| head`), which is no failure.
    pub(super) fn is_enough(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Writes to standard output, at once.
pub(crate) fn say(text: &str) -> Result<(), NotWritten> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

/// Writes to standard output. A reader that has seen enough is no failure.
pub(super) fn write(text: &str) -> Result<(), CliError> {
    match say(text) {
        Err(error) if error.is_enough() => Ok(()),
        said => said.map_err(CliError::other),
    }
}

/// A table without rules, whose last column takes what room is left. Columns named in `numbers` are set to the right.
pub(crate) fn table(header: &[&str], numbers: &[&str], rows: Vec<Vec<String>>) -> String {
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

fn bare() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    table
}

/// The table's lines: columns two spaces apart, nothing after the last.
fn finish(table: &mut Table) -> String {
    let last = table.column_count().saturating_sub(1);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if at == last { 0 } else { 2 }));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

/// A word and what it stands before, wrapped as tables are.
pub(super) fn paragraph(word: &str, text: &str) -> String {
    let mut table = bare();
    table.add_row([word, text]);
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    finish(&mut table)
}

/// How old something is, in one unit; a source without a date has no age.
pub(super) fn age(age: Option<SignedDuration>) -> String {
    let Some(age) = age else { return "undated".to_owned() };
    match age.as_secs() {
        seconds if seconds < 60 => "now".to_owned(),
        seconds if seconds < 3_600 => format!("{}m", seconds / 60),
        seconds if seconds < 48 * 3_600 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(n: impl Into<u64>, noun: &str) -> String {
    match n.into() {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact_in_both_forms() {
        assert_eq!(Money::from(UsdPerHour(804_800)), Money { micro_usd: 804_800, usd: "0.804800".into() });
        assert_eq!(Money::from(UsdPerHour(-1_000_001)).usd, "-1.000001");
    }

    #[test]
    fn ages_read_in_one_unit() {
        let of = |seconds| age(Some(SignedDuration::from_secs(seconds)));
        assert_eq!([of(-5), of(59), of(60), of(3_600), of(86_400), of(172_800)], ["now", "now", "1m", "1h", "24h", "2d"]);
        assert_eq!(age(None), "undated");
    }

    #[test]
    fn a_table_wraps_its_last_column_at_120() {
        let long = "word ".repeat(60);
        let text = table(&["A", "B"], &["A"], vec![vec!["1".into(), long]]);
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
