//! Cells to values: each parser pushes its fault and answers `None`, so that a line's faults are all found.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use stoker_core::base::ids::IdError;
use stoker_core::base::units::{MiB, MoneyError, UsdPerHour, scaled};

use crate::fault::{Fault, MAX_CELL_LEN, Problem, shown};
use crate::sheet::At;

/// One cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'r> {
    /// Its column.
    pub(crate) column: &'static str,
    /// Its text, trimmed.
    pub(crate) text: &'r str,
}

/// Parses the cells of one line and gathers their faults.
pub(crate) struct Parser<'a> {
    at: &'a At,
    faults: &'a mut Vec<Fault>,
    before: usize,
}

impl<'a> Parser<'a> {
    /// Starts a line.
    pub(crate) fn new(at: &'a At, faults: &'a mut Vec<Fault>) -> Self {
        let before = faults.len();
        Self { at, faults, before }
    }

    /// Whether the line has no fault so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.faults.len() == self.before
    }

    /// Notes a fault of a cell.
    pub(crate) fn fault(&mut self, cell: Cell<'_>, problem: Problem) {
        self.faults.push(self.at.fault(Some(cell.column), problem));
    }

    /// Notes a fault of the line.
    pub(crate) fn line_fault(&mut self, problem: Problem) {
        self.faults.push(self.at.fault(None, problem));
    }

    /// The text, `None` where empty; every other parser starts here.
    pub(crate) fn text<'r>(&mut self, cell: Cell<'r>) -> Option<&'r str> {
        if cell.text.len() > MAX_CELL_LEN {
            self.fault(cell, Problem::CellTooLong { len: cell.text.len() });
            return None;
        }
        Some(cell.text).filter(|text| !text.is_empty())
    }

    /// The text of a cell that must not be empty.
    pub(crate) fn filled<'r>(&mut self, cell: Cell<'r>, cure: &'static str) -> Option<&'r str> {
        if cell.text.is_empty() {
            self.fault(cell, Problem::Empty { cure });
        }
        self.text(cell)
    }

    /// An id, `None` where empty.
    pub(crate) fn id<T: TryFrom<String, Error = IdError>>(&mut self, cell: Cell<'_>) -> Option<T> {
        let text = self.text(cell)?;
        match T::try_from(text.to_owned()) {
            Ok(id) => Some(id),
            Err(error) => {
                self.fault(cell, Problem::Name { value: shown(text), error });
                None
            }
        }
    }

    /// An id that must be there.
    pub(crate) fn name<T: TryFrom<String, Error = IdError>>(&mut self, cell: Cell<'_>) -> Option<T> {
        self.filled(cell, "write the name as the cloud does")?;
        self.id(cell)
    }

    /// A price in dollars an hour, `None` where empty. Nought is a fault: no price is not a price of nought.
    pub(crate) fn price(&mut self, cell: Cell<'_>) -> Option<UsdPerHour> {
        let text = self.text(cell)?;
        match UsdPerHour::parse_usd(text) {
            Ok(UsdPerHour::ZERO) => {
                self.fault(cell, Problem::Nought(shown(text)));
                None
            }
            Ok(price) => Some(price),
            Err(error) => {
                self.fault(cell, not_money(error, money_cure(text)));
                None
            }
        }
    }

    /// A decimal number as a count of 10^-`places`, rounded to nearest; `None` where empty.
    pub(crate) fn decimal<N: TryFrom<u64>>(&mut self, cell: Cell<'_>, places: usize, wanted: &'static str) -> Option<N> {
        let text = self.text(cell)?;
        let number = scaled(text, places).and_then(|number| N::try_from(number).ok());
        if number.is_none() {
            self.fault(cell, Problem::Number { value: shown(text), wanted });
        }
        number
    }

    /// A whole number, `None` where empty.
    pub(crate) fn whole<N: std::str::FromStr>(&mut self, cell: Cell<'_>, wanted: &'static str) -> Option<N> {
        let text = self.text(cell)?;
        let number = Some(text).filter(|text| text.bytes().all(|b| b.is_ascii_digit())).and_then(|text| text.parse().ok());
        if number.is_none() {
            self.fault(cell, Problem::Number { value: shown(text), wanted });
        }
        number
    }

    /// Memory given in gibibytes, to the nearest mebibyte; `None` where empty.
    pub(crate) fn memory(&mut self, cell: Cell<'_>) -> Option<MiB> {
        let milli_gib: u32 = self.decimal(cell, 3, "a decimal number of GiB, e.g. 16 or 0.5")?;
        if milli_gib == 0 {
            self.fault(cell, Problem::Number { value: shown(cell.text), wanted: "memory: write its GiB or leave it empty" });
            return None;
        }
        Some(MiB((u64::from(milli_gib) * 1024 + 500) / 1000))
    }

    /// The first moment (UTC) of a day, or of a month where only that is known; `None` where empty.
    pub(crate) fn date(&mut self, cell: Cell<'_>) -> Option<Timestamp> {
        let text = self.text(cell)?;
        match midnight(text) {
            None => {
                self.fault(cell, Problem::Date(shown(text)));
                None
            }
            Some(at) if at > self.at.table.latest => {
                self.fault(cell, Problem::Ahead(shown(text)));
                None
            }
            at => at,
        }
    }
}

/// What is said of a text that is not money, cut to a readable length.
pub(crate) fn not_money(error: MoneyError, cure: String) -> Problem {
    let error = match error {
        MoneyError::NotANumber(value) => MoneyError::NotANumber(shown(&value)),
        MoneyError::Negative(value) => MoneyError::Negative(shown(&value)),
        MoneyError::TooLarge(value) => MoneyError::TooLarge(shown(&value)),
    };
    Problem::Money { error, cure }
}

/// What to write in place of a text that is not money.
fn money_cure(text: &str) -> String {
    let bare: String = text.chars().filter(|c| !matches!(c, '$' | ' ' | '_')).collect();
    let guess = if bare.contains('.') { bare.replace(',', "") } else { bare.replacen(',', ".", 1) };
    match UsdPerHour::parse_usd(&guess) {
        Ok(_) if guess != text => format!("write {}", shown(&guess)),
        _ => "write dollars an hour, e.g. 1.204, or leave it empty where no price is known".to_owned(),
    }
}

fn midnight(text: &str) -> Option<Timestamp> {
    let day = match text.len() {
        7 => format!("{text}-01"),
        10 => text.to_owned(),
        _ => return None,
    };
    let date: Date = day.parse().ok()?;
    TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_its_first_moment() {
        assert_eq!(midnight("2025-11").map(|at| at.to_string()).as_deref(), Some("2025-11-01T00:00:00Z"));
        assert_eq!(midnight("2026-08-03").map(|at| at.to_string()).as_deref(), Some("2026-08-03T00:00:00Z"));
        for text in ["2025", "2025-13", "2025-02-30", "20250404", "2025/04/04", "yesterday!"] {
            assert_eq!(midnight(text), None, "{text}");
        }
    }

    #[test]
    fn the_cure_for_a_price_is_a_price() {
        assert_eq!(money_cure("1,204"), "write 1.204");
        assert_eq!(money_cure("$0.8048"), "write 0.8048");
        assert_eq!(money_cure("1,204.50"), "write 1204.50");
        assert!(money_cure("free").starts_with("write dollars"));
        assert!(money_cure("-1").starts_with("write dollars"));
    }
}
