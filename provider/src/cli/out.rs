//! What commands print: tables for people, JSON and YAML for programs.

use std::ops::ControlFlow;

use clap::ValueEnum;
use jiff::SignedDuration;
use serde::Serialize;
use stoker_core::base::units::{MICROS_PER_USD, UsdMicros, UsdPerHour};

use super::exit::CliError;
use stoker_service::print::Table;
use stoker_service::print::{say, table};

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

/// A table as text.
pub(super) fn text_of(Table { caption: _, header, numbers, rows }: Table) -> String {
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table(&header, header.get(numbers).unwrap_or_default(), rows)
}

/// A text of others, on one line: a terminal obeys some signs.
pub(super) fn quiet(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { '\u{fffd}' } else { sign }).collect()
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

/// Writes to standard output. A reader that has seen enough is no failure.
pub(super) fn write(text: &str) -> Result<(), CliError> {
    write_part(text).map(drop)
}

/// Writes a part of what there is to write: no more is wanted by a reader that has seen enough.
pub(super) fn write_part(text: &str) -> Result<ControlFlow<()>, CliError> {
    match say(text) {
        Err(error) if error.is_enough() => Ok(ControlFlow::Break(())),
        said => said.map(ControlFlow::Continue).map_err(CliError::other),
    }
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
}
