//! `stoker report --billed`: what a cloud billed against what Stoker calculated, and why they differ.

mod print;
mod read;

use std::path::PathBuf;

use stoker_advice::spend::billed::{Compared, Comparison};

use super::reckon::Reckoned;
use super::{Format, exit};
use crate::cli::exit::{CliError, Exit};

pub(crate) use read::BillFaults;
use read::Readings;

/// A bill, next to what was calculated.
struct Billed {
    compared: Compared,
    readings: Readings,
    time: (i64, i64),
    known_seconds: i64,
}

/// Compares bills with what was calculated, and prints what it comes to.
pub(super) fn run(
    files: &[PathBuf],
    mut comparison: Comparison,
    reckoned: &Reckoned,
    format: Format,
) -> Result<Exit, CliError> {
    let time = (reckoned.period.from, reckoned.period.until);
    let (mut faults, mut readings) = (BillFaults::default(), Readings::default());
    for file in files {
        read::read(file, &mut comparison, &mut faults, &mut readings)?;
    }
    if !faults.is_empty() {
        return Err(CliError::Bill(faults));
    }
    let known_seconds = reckoned.known_seconds;
    let billed = Billed { compared: comparison.finish(), readings, time, known_seconds };
    print::print(format, &billed)?;
    Ok(exit(known_seconds))
}
