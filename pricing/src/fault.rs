//! What can be wrong with a table, said so that the cure is in the message.

use std::fmt;

use stoker_core::base::ids::IdError;
use stoker_core::base::units::{MoneyError, UsdPerHour};

/// Faults printed by [`TableFaults`]' `Display`; the rest are counted. A table saved with the wrong separator has a
/// fault on every line, and fifty lines show the pattern.
const SHOWN: usize = 50;

/// Longest cell accepted, in bytes: above it a quote is missing and the cell has swallowed the lines after it.
pub(crate) const MAX_CELL_LEN: usize = 512;

/// Every fault found in a set of tables, in the order of files and lines. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFaults(Vec<Fault>);

impl TableFaults {
    /// `Ok(value)` where there is no fault.
    pub(crate) fn unless_empty<T>(value: T, faults: Vec<Fault>) -> Result<T, Self> {
        if faults.is_empty() { Ok(value) } else { Err(Self(faults)) }
    }

    /// Each fault.
    pub fn faults(&self) -> &[Fault] {
        &self.0
    }
}

impl fmt::Display for TableFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{fault}", if n == 0 { "" } else { "\n" })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl std::error::Error for TableFaults {}

/// One fault: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The table's file, as it was named to the loader.
    pub file: String,
    /// The line in it, counted from 1; `None` where the whole file is at fault.
    pub line: Option<u64>,
    /// The column; `None` where the whole line is at fault.
    pub column: Option<String>,
    /// What is wrong, with its cure.
    pub problem: Problem,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match &self.column {
            Some(column) => write!(f, ": {column} {}", self.problem),
            None => write!(f, ": {}", self.problem),
        }
    }
}

/// What is wrong with a file, a line or a cell. Each message names the bad value and the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file or folder cannot be read.
    #[error("cannot be read ({0}): check the path and its permissions")]
    Unreadable(String),
    /// A table that the others need is not there.
    #[error("is missing: copy it from the built-in tables (its header alone is enough)")]
    NoTable,
    /// There is no table of offers.
    #[error("has no table of offers: add one, e.g. aws.csv")]
    NoOffers,
    /// The line is not UTF-8.
    #[error("is not UTF-8 text: save the file as UTF-8")]
    NotUtf8,
    /// The line has more or fewer cells than the header.
    #[error("has {have} cells where the header has {want}: quote a cell that holds a comma, and close every quote")]
    Cells {
        /// Cells of the line.
        have: u64,
        /// Cells of the header.
        want: u64,
    },
    /// The line is not CSV for another reason.
    #[error("is not readable as CSV: {0}")]
    Csv(String),
    /// The header lacks a column.
    #[error("is missing in the header: add the column (its cells may be empty where the figure is unknown)")]
    NoColumn,
    /// The header has a column that this table does not have.
    #[error("is not a column of this table: correct its spelling or remove it")]
    StrangeColumn,
    /// The header names a column twice.
    #[error("is in the header twice: remove one")]
    DoubleColumn,
    /// The cell is too long to be what it should be.
    #[error("has {len} bytes, more than {max}: close the quote", max = MAX_CELL_LEN)]
    CellTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The cell must not be empty.
    #[error("is empty: {cure}")]
    Empty {
        /// What to write.
        cure: &'static str,
    },
    /// The cell is not money.
    #[error("{error}: {cure}")]
    Money {
        /// Why not.
        error: MoneyError,
        /// What to write.
        cure: String,
    },
    /// A price of nought is no price.
    #[error("\"{0}\" is not a price: leave the cell empty where the price is unknown")]
    Nought(String),
    /// The cell is not a number of the kind it should be.
    #[error("\"{value}\" is not {wanted}")]
    Number {
        /// The cell.
        value: String,
        /// What it should be, with an example.
        wanted: &'static str,
    },
    /// The cell is not a date.
    #[error("\"{0}\" is not a date: write 2026-08-03, or 2026-08 where only the month is known, or leave it empty")]
    Date(String),
    /// A figure of a day to come.
    #[error("\"{0}\" is in the future: write the day on which the figure was read, and check this machine's clock")]
    Ahead(String),
    /// The cell cannot be a name.
    #[error("\"{value}\" is not a valid name ({error}): write it as the cloud does")]
    Name {
        /// The cell.
        value: String,
        /// Why not.
        error: IdError,
    },
    /// The cell is none of the words it may be.
    #[error("\"{value}\" is not a known value: write {words}")]
    Word {
        /// The cell.
        value: String,
        /// The words.
        words: &'static str,
    },
    /// An AWS zone name in place of the zone id.
    #[error("\"{0}\" is a zone name, which means another zone in each account: write the zone id, e.g. use1-az6")]
    ZoneName(String),
    /// A region that the table of regions does not have.
    #[error("\"{value}\" is not a region of {cloud} in regions.csv: correct its spelling, or add it there")]
    NoRegion {
        /// The cell.
        value: String,
        /// The cloud.
        cloud: String,
    },
    /// A zone that does not end in its letter.
    #[error("\"{0}\" is not a GCP zone: write the region and the zone's letter, e.g. us-central1-a")]
    NoZone(String),
    /// A source, date or kind beside a price that is not there.
    #[error("\"{value}\" is given, but {price} is empty: write the price or clear this cell")]
    NoPrice {
        /// The cell.
        value: String,
        /// The price's column.
        price: &'static str,
    },
    /// The line has no price at all.
    #[error("has neither an on-demand nor a spot price: remove the line or write a price")]
    Priceless,
    /// Spot capacity dearer than on-demand.
    #[error("{spot} is above on-demand, {on_demand}: one of them is another product's price (GCP: flex-start); correct it")]
    SpotAboveOnDemand {
        /// The spot price.
        spot: UsdPerHour,
        /// The on-demand price.
        on_demand: UsdPerHour,
    },
    /// A spot quote at the on-demand price that is not noted as such.
    #[error("{0} equals the on-demand price, which means no spot market: write pinned-at-on-demand in note")]
    UnmarkedPin(UsdPerHour),
    /// A note that the prices contradict.
    #[error("\"{note}\" does not fit spot {spot} and on-demand {on_demand}: clear the note or correct the prices")]
    NoteContradicted {
        /// The note.
        note: &'static str,
        /// The spot price.
        spot: UsdPerHour,
        /// The on-demand price.
        on_demand: UsdPerHour,
    },
    /// A note on a price that is not there.
    #[error("\"{note}\" describes {price}, which is empty: clear the note or write the price")]
    NoteWithoutPrice {
        /// The note.
        note: &'static str,
        /// The price's column.
        price: &'static str,
    },
    /// The same key again, with other figures.
    #[error("contradicts {first}, which has the same {key}: keep one of them")]
    Conflict {
        /// What identifies a line of this table.
        key: &'static str,
        /// Where it stands first.
        first: String,
    },
    /// An instance type made of other things than before.
    #[error(
        "gives {instance_type} other GPUs, CPUs or memory than {first}: an instance type is the same everywhere; correct one \
         of them"
    )]
    OtherShape {
        /// The instance type.
        instance_type: String,
        /// Where it stands first.
        first: String,
    },
    /// MIG profiles on a GPU that cannot be split.
    #[error("\"{0}\" is given, but mig_max_instances is 0: write how many instances it can be split into, or clear this cell")]
    ProfilesWithoutMig(String),
}

/// A cell as a fault shows it: cut to a readable length.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
    }
}
