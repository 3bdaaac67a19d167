//! Reading one table: bytes to lines of named cells, with every fault of header and lines.

use std::sync::Arc;

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};
use jiff::Timestamp;
use serde::Deserialize;

use crate::fault::{Fault, Problem};

/// Declares the cells of a table's lines, and with them its columns.
macro_rules! line {
    ($(#[$doc:meta])* $name:ident { $($column:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, serde::Deserialize)]
        pub(crate) struct $name<'r> {
            $(pub(crate) $column: &'r str,)+
        }

        impl $name<'_> {
            /// The table's columns.
            pub(crate) const COLUMNS: &'static [&'static str] = &[$(stringify!($column)),+];
        }
    };
}
pub(crate) use line;

/// A cell and its column: `cell!(line.zone)`.
macro_rules! cell {
    ($line:ident.$column:ident) => {
        $crate::cell::Cell { column: stringify!($column), text: $line.$column }
    };
}
pub(crate) use cell;

/// The table that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// Its file, as it was named to the loader.
    pub(crate) file: String,
    /// No figure of it can be of a later moment than this.
    pub(crate) latest: Timestamp,
}

/// Where a line stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At {
    /// The table.
    pub(crate) table: Arc<Table>,
    /// The line, counted from 1.
    pub(crate) line: u64,
}

impl At {
    /// A fault of this line, or of one cell in it.
    pub(crate) fn fault(&self, column: Option<&str>, problem: Problem) -> Fault {
        Fault { file: self.table.file.clone(), line: Some(self.line), column: column.map(str::to_owned), problem }
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.table.file, self.line)
    }
}

/// A table's lines as text.
pub(crate) struct Sheet {
    headers: StringRecord,
    lines: Vec<(At, StringRecord)>,
}

impl Sheet {
    /// Reads `bytes`; a header that does not have exactly `columns`, in any order, leaves no lines.
    pub(crate) fn read(table: &Arc<Table>, bytes: &[u8], columns: &[&str], faults: &mut Vec<Fault>) -> Self {
        let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(bytes);
        let at = |line| At { table: Arc::clone(table), line };
        let mut sheet = Self { headers: StringRecord::new(), lines: Vec::new() };
        match reader.headers() {
            Ok(headers) => sheet.headers = headers.clone(),
            Err(error) => {
                faults.push(at(1).fault(None, problem(&error)));
                return sheet;
            }
        }
        let before = faults.len();
        for (n, header) in sheet.headers.iter().enumerate() {
            let wrong = if !columns.contains(&header) {
                Problem::StrangeColumn
            } else if sheet.headers.iter().take(n).any(|earlier| earlier == header) {
                Problem::DoubleColumn
            } else {
                continue;
            };
            faults.push(at(1).fault(Some(&crate::fault::shown(header)), wrong));
        }
        for column in columns.iter().filter(|column| !sheet.headers.iter().any(|header| header == **column)) {
            faults.push(at(1).fault(Some(column), Problem::NoColumn));
        }
        if faults.len() > before {
            return sheet;
        }
        for record in reader.records() {
            match record {
                Ok(record) => {
                    let line = record.position().map_or(0, |position| line_of(bytes, position));
                    sheet.lines.push((at(line), record));
                }
                Err(error) => {
                    let line = error.position().map_or(1, |position| line_of(bytes, position));
                    faults.push(at(line).fault(None, problem(&error)));
                }
            }
        }
        sheet
    }

    /// The lines, by header.
    pub(crate) fn lines<'s, L: Deserialize<'s>>(&'s self, faults: &mut Vec<Fault>) -> Vec<(&'s At, L)> {
        let mut lines = Vec::with_capacity(self.lines.len());
        for (at, record) in &self.lines {
            match record.deserialize(Some(&self.headers)) {
                Ok(line) => lines.push((at, line)),
                Err(error) => faults.push(at.fault(None, problem(&error))),
            }
        }
        lines
    }
}

/// The line of a record. The reader notes a record's position before it skips what ends the line before: the
/// second half of a CRLF, and empty lines.
fn line_of(bytes: &[u8], position: &csv::Position) -> u64 {
    let from = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let skipped = bytes.iter().skip(from).take_while(|byte| matches!(byte, b'\r' | b'\n'));
    skipped.fold(position.line(), |line, byte| line + u64::from(*byte == b'\n'))
}

fn problem(error: &csv::Error) -> Problem {
    match error.kind() {
        ErrorKind::Utf8 { .. } => Problem::NotUtf8,
        ErrorKind::UnequalLengths { expected_len, len, .. } => Problem::Cells { have: *len, want: *expected_len },
        _ => Problem::Csv(error.to_string()),
    }
}
