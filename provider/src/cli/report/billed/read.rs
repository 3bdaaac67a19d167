//! Reading of a cloud's bill: FOCUS as CSV, packed by gzip or not, charge by charge.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;

use ::csv::{ByteRecord, ReaderBuilder};
use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use stoker_advice::spend::billed::{Charge, ChargeCategory, Comparison, Exact};
use stoker_core::base::text::quoted;

use crate::cli::exit::CliError;

/// Errors that are shown. The same error on many lines is shown once.
const SHOWN: usize = 20;

/// Longest row, in bytes: a quote that is never closed makes a row of the rest of the file.
const LONGEST_ROW: usize = 16 << 20;

macro_rules! columns {
    ($($name:ident = $text:literal, $needed:literal);* $(;)?) => {
        /// A column that is read.
        #[derive(Debug, Clone, Copy)]
        enum Column { $($name),* }

        impl Column {
            /// Each with its name, and whether nothing can be told without it.
            const ALL: &'static [(Self, &'static str, bool)] = &[$((Self::$name, $text, $needed)),*];
        }
    };
}

columns! {
    BilledCost = "BilledCost", true;
    EffectiveCost = "EffectiveCost", true;
    ListCost = "ListCost", true;
    ContractedCost = "ContractedCost", true;
    Currency = "BillingCurrency", true;
    Category = "ChargeCategory", true;
    Begin = "ChargePeriodStart", true;
    End = "ChargePeriodEnd", true;
    ResourceId = "ResourceId", true;
    ResourceName = "ResourceName", false;
    Class = "ChargeClass", false;
    Service = "ServiceName", false;
    ServiceCategory = "ServiceCategory", false;
    Quantity = "ConsumedQuantity", false;
    Unit = "ConsumedUnit", false;
    CommitmentStatus = "CommitmentDiscountStatus", false;
    ReservationStatus = "CapacityReservationStatus", false;
    ServiceCode = "x_ServiceCode", false;
    UsageType = "x_UsageType", false;
}

/// What is wrong with a bill, by file and line.
#[derive(Debug, Default)]
pub struct BillFaults {
    faults: Vec<Fault>,
    /// Errors beyond those that are shown.
    further: u64,
}

#[derive(Debug)]
struct Fault {
    file: String,
    line: u64,
    what: String,
    /// So many lines more have the same.
    again: u64,
}

impl BillFaults {
    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    fn count(&self) -> u64 {
        self.faults.iter().map(|fault| 1 + fault.again).sum::<u64>() + self.further
    }

    fn add(&mut self, file: &Path, line: u64, what: String) {
        let file = file.display().to_string();
        if let Some(known) = self.faults.iter_mut().find(|known| known.what == what && known.file == file) {
            known.again += 1;
        } else if self.faults.len() < SHOWN {
            self.faults.push(Fault { file, line, what, again: 0 });
        } else {
            self.further += 1;
        }
    }
}

impl fmt::Display for BillFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Fault { file, line, what, again }) in self.faults.iter().enumerate() {
            write!(f, "{}{file}:{line}: {what}", if n == 0 { "" } else { "\n" })?;
            match again {
                0 => {}
                1 => write!(f, " (and on another line)")?,
                more => write!(f, " (and on {more} other lines)")?,
            }
        }
        match self.further {
            0 => Ok(()),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl std::error::Error for BillFaults {}

/// What is to be known of how a bill was read.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// Charges whose time has no offset; FOCUS has all times in UTC.
    pub(super) without_offset: u64,
    /// Files that do not end with a line end, as one that was cut short would.
    pub(super) open_ends: Vec<String>,
}

/// Reads a file into a comparison. All that is wrong with it goes into `faults`, and what is wrong is not counted.
pub(super) fn read(
    path: &Path,
    comparison: &mut Comparison,
    faults: &mut BillFaults,
    readings: &mut Readings,
) -> Result<(), CliError> {
    let no_file = |source| CliError::NoFile { flag: "--billed", path: path.to_owned(), source };
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).map_err(no_file)?);
    let head = file.fill_buf().map_err(no_file)?;
    if let Some(what) = foreign(head) {
        faults.add(path, 1, what.to_owned());
        return Ok(());
    }
    let plain: Box<dyn Read> =
        if head.starts_with(&[0x1f, 0x8b]) { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let watched = Watched { inner: plain, is_quoted: false, row: 0, last: b'\n', is_crlf: false };
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(watched);
    let mut row = ByteRecord::new();
    let mut next = |row: &mut ByteRecord, faults: &mut BillFaults| match reader.read_byte_record(row) {
        Ok(true) => row.position().map(|at| at.line() + u64::from(at.byte() > 0 && reader.get_ref().is_crlf)),
        Ok(false) => {
            let end = reader.get_ref();
            if end.is_quoted {
                let what = "the file ends within a quoted cell: it was cut short, or a quote is not closed; fetch it again";
                faults.add(path, reader.position().line(), what.to_owned());
            } else if end.last != b'\n' {
                readings.open_ends.push(path.display().to_string());
            }
            None
        }
        Err(error) => {
            let what = format!("cannot be read any further: {error}: it was cut short or is damaged; fetch it again");
            faults.add(path, reader.position().line(), what);
            None
        }
    };
    let before = faults.count();
    let Some(_) = next(&mut row, faults) else {
        if faults.count() == before {
            faults.add(path, 1, "is empty: export the bill as FOCUS 1.0 or later, in CSV with a header".to_owned());
        }
        return Ok(());
    };
    let Some(columns) = Columns::of(&row, path, faults) else { return Ok(()) };
    let header = row.clone();
    let mut without_offset = 0_u64;
    while let Some(line) = next(&mut row, faults) {
        if row == header {
            let what = "repeats the header: several files were put together; name each by a --billed of its own";
            faults.add(path, line, what.to_owned());
        } else if row.len() != header.len() {
            let what = format!(
                "has {} cells, and the header has {}: the file was cut short, or a quote is missing; fetch it again",
                row.len(),
                header.len()
            );
            faults.add(path, line, what);
        } else {
            let take = |charge: &Charge<'_>, has_offset: bool| {
                without_offset += u64::from(!has_offset);
                comparison.add(charge, || mark(&row));
            };
            Cells { columns: &columns, row: &row }.charge(&mut |what| faults.add(path, line, what), take);
        }
    }
    readings.without_offset += without_offset;
    Ok(())
}

/// What the first bytes of a file tell that is no CSV.
fn foreign(head: &[u8]) -> Option<&'static str> {
    Some(match head {
        [b'P', b'A', b'R', b'1', ..] => "is Parquet: export the bill as CSV",
        [b'P', b'K', 3, 4, ..] => "is a zip archive: unpack it, and name the CSV in it",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "is UTF-16: save it as UTF-8",
        _ => return None,
    })
}

/// A number of all cells of a row.
fn mark(row: &ByteRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.iter().for_each(|cell| cell.hash(&mut hasher));
    hasher.finish()
}

/// A reader that knows whether a quote is open. One that is closed is there twice, and so is one within a quoted cell.
struct Watched<R> {
    inner: R,
    is_quoted: bool,
    /// Bytes since the last end of a row.
    row: usize,
    last: u8,
    /// Whether lines end as on Windows: of such the reader begins a row before its line's feed.
    is_crlf: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        for byte in buffer.iter().take(read) {
            match byte {
                b'"' => self.is_quoted = !self.is_quoted,
                b'\n' if !self.is_quoted => {
                    self.row = 0;
                    self.is_crlf = self.last == b'\r';
                }
                _ => {}
            }
            self.row += 1;
            self.last = *byte;
        }
        if self.row > LONGEST_ROW {
            return Err(io::Error::other("a row is longer than 16 MiB, as where a quote is not closed"));
        }
        Ok(read)
    }
}

/// Where the columns are.
struct Columns(Vec<Option<usize>>);

impl Columns {
    /// Finds the columns by the header. Some tools write all names small; where a name is there as FOCUS writes it, that is the column.
    fn of(header: &ByteRecord, path: &Path, faults: &mut BillFaults) -> Option<Self> {
        let find = |name: &str| {
            let places = |is_it: fn(&[u8], &[u8]) -> bool| {
                let named = header.iter().enumerate().filter(|(_, cell)| is_it(cell.trim_ascii(), name.as_bytes()));
                let mut at = named.map(|(at, _)| at);
                (at.next(), at.next().is_some())
            };
            let exact = places(|cell, name| cell == name);
            if exact.0.is_some() { exact } else { places(<[u8]>::eq_ignore_ascii_case) }
        };
        let has = |name: &str| find(name).0.is_some();
        let missing: Vec<&str> =
            Column::ALL.iter().filter(|(_, name, needed)| *needed && !has(name)).map(|(_, name, _)| *name).collect();
        let cure = "export the bill as FOCUS 1.0 or later, with all columns";
        if !missing.is_empty() {
            let what = if has("line_item_unblended_cost") || has("lineItem/UnblendedCost") {
                "is a Cost and Usage Report, and no FOCUS".to_owned()
            } else if has("ChargeType") && !has("ChargeCategory") {
                "is FOCUS before 1.0, which tells too little".to_owned()
            } else {
                format!("lacks {}, which FOCUS has", missing.join(", "))
            };
            faults.add(path, 1, format!("{what}: {cure}"));
            return None;
        }
        let twice = Column::ALL.iter().filter(|(_, name, _)| find(name).1);
        let twice: Vec<&str> = twice.map(|(_, name, _)| *name).collect();
        if !twice.is_empty() {
            faults.add(path, 1, format!("has {} twice: {cure}", twice.join(", ")));
            return None;
        }
        Some(Self(Column::ALL.iter().map(|(_, name, _)| find(name).0).collect()))
    }
}

/// The cells of a row.
struct Cells<'a> {
    columns: &'a Columns,
    row: &'a ByteRecord,
}

impl Cells<'_> {
    /// A cell; cells may hold any bytes.
    fn text(&self, column: Column) -> Cow<'_, str> {
        let at = self.columns.0.get(column as usize).copied().flatten();
        let text = String::from_utf8_lossy(at.and_then(|at| self.row.get(at)).unwrap_or_default().trim_ascii());
        // Some tools write what is not there so.
        if text.eq_ignore_ascii_case("null") { Cow::Borrowed("") } else { text }
    }

    fn number(&self, (column, name): (Column, &str), fault: &mut impl FnMut(String)) -> Option<Exact> {
        let text = self.text(column);
        if text.is_empty() {
            return None;
        }
        Exact::parse(&text).map_err(|error| fault(format!("{name} {} {error}", quoted(&text)))).ok()
    }

    /// A moment in Unix seconds, and whether it has an offset.
    fn moment(&self, (column, name): (Column, &str), fault: &mut impl FnMut(String)) -> Option<(i64, bool)> {
        let text = self.text(column);
        let found = moment(&text);
        if found.is_none() {
            fault(format!("{name} {} is no time: FOCUS writes it like 2026-11-01T00:00:00Z", quoted(&text)));
        }
        found
    }

    /// Gives the charge to `take`, and whether its time has an offset; unless `fault` is told of faults.
    fn charge(&self, fault: &mut impl FnMut(String), take: impl FnOnce(&Charge<'_>, bool)) {
        let mut is_whole = true;
        let mut fault = |what: String| {
            is_whole = false;
            fault(what);
        };
        let currency = self.text(Column::Currency);
        if currency != "USD" {
            let cure = "Stoker counts in US dollars: export the bill in USD";
            fault(format!("BillingCurrency {} is not USD: {cure}", quoted(&currency)));
        }
        let word = self.text(Column::Category);
        let category = ChargeCategory::of(&word);
        if category.is_none() {
            let known = "Usage, Purchase, Tax, Credit and Adjustment";
            fault(format!("ChargeCategory {} is none of FOCUS's: {known}", quoted(&word)));
        }
        let begin = self.moment((Column::Begin, "ChargePeriodStart"), &mut fault);
        let end = self.moment((Column::End, "ChargePeriodEnd"), &mut fault);
        if begin.zip(end).is_some_and(|((begin, _), (end, _))| end < begin) {
            fault("ends before it begins (ChargePeriodEnd, ChargePeriodStart)".to_owned());
        }
        let mut cost = |column: (Column, &'static str)| {
            if self.text(column.0).is_empty() {
                fault(format!("{} is empty: FOCUS has it on every row", column.1));
            }
            self.number(column, &mut fault)
        };
        let billed = cost((Column::BilledCost, "BilledCost"));
        let effective = cost((Column::EffectiveCost, "EffectiveCost"));
        let list = self.number((Column::ListCost, "ListCost"), &mut fault);
        let contracted = self.number((Column::ContractedCost, "ContractedCost"), &mut fault);
        let quantity = self.number((Column::Quantity, "ConsumedQuantity"), &mut fault);
        let (Some(category), Some((begin, has_offset)), Some((end, ends_with_offset)), Some(billed), Some(effective), true) =
            (category, begin, end, billed, effective, is_whole)
        else {
            return;
        };
        let unused = |column: Column| self.text(column) == "Unused";
        let charge = Charge {
            category,
            is_correction: self.text(Column::Class) == "Correction",
            resource_id: &self.text(Column::ResourceId),
            resource_name: &self.text(Column::ResourceName),
            service: &self.text(Column::Service),
            service_category: &self.text(Column::ServiceCategory),
            service_code: &self.text(Column::ServiceCode),
            usage_type: &self.text(Column::UsageType),
            time: (begin, end),
            billed,
            effective,
            list,
            contracted,
            quantity,
            unit: &self.text(Column::Unit),
            is_unused: unused(Column::CommitmentStatus) || unused(Column::ReservationStatus),
        };
        take(&charge, has_offset && ends_with_offset);
    }
}

/// A moment in Unix seconds, and whether the text has an offset. One without it is in UTC, as all times of FOCUS are.
fn moment(text: &str) -> Option<(i64, bool)> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some((at.as_second(), true));
    }
    let bare = text.strip_suffix(" UTC");
    let at: DateTime = bare.unwrap_or(text).parse().ok()?;
    Some((TimeZone::UTC.to_timestamp(at).ok()?.as_second(), bare.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 November 2026 is day 20,758 since 1970.
    #[test]
    fn times_are_read_as_clouds_write_them() {
        const AT: i64 = 20_758 * 86_400;
        for (text, expected) in [
            ("2026-11-01T00:00:00Z", Some((AT, true))),
            ("2026-11-01T00:00:00.000Z", Some((AT, true))),
            ("2026-11-01T00:00Z", Some((AT, true))),
            ("2026-11-01T01:00:00+01:00", Some((AT, true))),
            ("2026-11-01 00:00:00 UTC", Some((AT, true))),
            ("2026-11-01 00:00:00.000000 UTC", Some((AT, true))),
            ("2026-11-01 00:00:00", Some((AT, false))),
            ("2026-11-01", Some((AT, false))),
            ("11/01/2026", None),
            ("2026-11-31T00:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(moment(text), expected, "{text}");
        }
    }
}
