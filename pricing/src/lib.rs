//! Price, spec and zone tables, with source and date per figure, and the way from them to a [`PriceBook`].
//!
//! The tables are CSV files in `pricing/tables`; `SOURCES.md` beside them says what each column means, where the
//! figures come from and what they lack. They are built in ([`embedded`]); an operator's own copy of the same format is
//! read with [`load_dir`]. Money is parsed as decimal text, never as a float.
//!
//! What a table cannot say truthfully is kept apart from prices: a spot quote pinned at the on-demand price or at AWS's
//! floor, and a list price of what cannot be ordered on demand, are [`Entry::NoSignal`]; a list price of a type whose
//! zones no source tells is shown as unzoned and opens no market.
//!
//! [`Entry::NoSignal`]: stoker_core::market::price::Entry::NoSignal

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::market::price::PriceBook;

mod book;
mod cell;
mod fault;
mod hardware;
mod offers;
mod places;
mod sheet;
mod specs;
mod transfers;

#[cfg(test)]
mod tests;

pub use fault::{Fault, Problem, TableFaults};
use sheet::Table;

/// How far ahead of UTC a day of the calendar may begin somewhere, rounded up.
const A_DAY: SignedDuration = SignedDuration::from_hours(24);

/// The name of the table of GPU models.
pub const GPU_SPECS: &str = "gpu-specs.csv";
/// The name of the table of GCP's zones.
pub const GCP_ZONES: &str = "gcp-zones.csv";
/// The name of the table of AWS spot interruptions.
pub const AWS_SPOT_ADVISOR: &str = "aws-spot-advisor.csv";
/// The name of the table of pods, local disks and network interfaces of AWS's instance types.
pub const AWS_TYPES: &str = "aws-types.csv";
/// The name of the table of regions.
pub const REGIONS: &str = "regions.csv";
/// The name of the table of what moving data costs.
pub const EGRESS: &str = "egress.csv";

/// The built-in tables.
const EMBEDDED: [(&str, &str); 10] = [
    ("pricing/tables/aws.csv", include_str!("../tables/aws.csv")),
    ("pricing/tables/azure.csv", include_str!("../tables/azure.csv")),
    ("pricing/tables/gcp.csv", include_str!("../tables/gcp.csv")),
    ("pricing/tables/gpu-clouds.csv", include_str!("../tables/gpu-clouds.csv")),
    ("pricing/tables/gpu-specs.csv", include_str!("../tables/gpu-specs.csv")),
    ("pricing/tables/gcp-zones.csv", include_str!("../tables/gcp-zones.csv")),
    ("pricing/tables/aws-spot-advisor.csv", include_str!("../tables/aws-spot-advisor.csv")),
    ("pricing/tables/aws-types.csv", include_str!("../tables/aws-types.csv")),
    ("pricing/tables/regions.csv", include_str!("../tables/regions.csv")),
    ("pricing/tables/egress.csv", include_str!("../tables/egress.csv")),
];

/// The book of the built-in tables. It is parsed anew at each call: keep it.
///
/// # Errors
/// Every fault of the tables; there is none in a tested build.
pub fn embedded() -> Result<PriceBook, TableFaults> {
    load(EMBEDDED.map(|(name, text)| (name, text.as_bytes())), Timestamp::MAX)
}

/// The book of the tables given as name and content.
///
/// A table's kind is told by the last part of its name: [`GPU_SPECS`], [`GCP_ZONES`], [`AWS_SPOT_ADVISOR`], [`AWS_TYPES`],
/// [`REGIONS`], [`EGRESS`], and any other is a table of offers. The six named ones and one table of offers must be
/// there. Faults show the whole name.
/// A date after `latest` is a fault: such a figure would never grow old.
///
/// # Errors
/// Every fault of every table at once, each with file, line, column, bad value and cure.
pub fn load<'t>(tables: impl IntoIterator<Item = (&'t str, &'t [u8])>, latest: Timestamp) -> Result<PriceBook, TableFaults> {
    let mut parsed = book::Parsed::default();
    let mut faults = Vec::new();
    let mut missing = vec![GPU_SPECS, GCP_ZONES, AWS_SPOT_ADVISOR, AWS_TYPES, REGIONS, EGRESS];
    let mut has_offers = false;
    for (name, bytes) in tables {
        let kind = name.rsplit(['/', '\\']).next().unwrap_or(name);
        missing.retain(|required| *required != kind);
        let table = Arc::new(Table { file: name.to_owned(), latest });
        match kind {
            GPU_SPECS => parsed.gpus.extend(specs::parse(&table, bytes, &mut faults)),
            GCP_ZONES => parsed.gcp_zones.extend(places::parse_zones(&table, bytes, &mut faults)),
            AWS_SPOT_ADVISOR => parsed.reclaims.extend(places::parse_advisor(&table, bytes, &mut faults)),
            AWS_TYPES => parsed.aws_types.extend(hardware::parse(&table, bytes, &mut faults)),
            REGIONS => parsed.regions.extend(transfers::parse_regions(&table, bytes, &mut faults)),
            EGRESS => parsed.egress.extend(transfers::parse_egress(&table, bytes, &mut faults)),
            _ => {
                has_offers = true;
                parsed.offers.extend(offers::parse(&table, bytes, &mut faults));
            }
        }
    }
    faults.extend(missing.into_iter().map(|name| whole_file(name, Problem::NoTable)));
    if !has_offers {
        faults.push(whole_file("the set of tables", Problem::NoOffers));
    }
    let book = book::build(parsed, &mut faults);
    TableFaults::unless_empty(book, faults)
}

/// The book of the `*.csv` files in a folder, in the order of their names; other files are left alone. How a file is read, and how much of
/// one, is for the caller to say. No figure may be of a later day than that of `now`, in any time zone. See [`load`].
///
/// # Errors
/// A folder or file that cannot be read, and every fault of every table at once.
pub fn load_dir(dir: &Path, now: Timestamp, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> Result<PriceBook, TableFaults> {
    let mut files = Vec::new();
    let mut faults = Vec::new();
    let unreadable =
        |path: &Path, error: &io::Error| whole_file(&path.display().to_string(), Problem::Unreadable(error.to_string()));
    match fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(mut entries) => {
            entries.sort_by_key(fs::DirEntry::file_name);
            let paths = entries.iter().map(fs::DirEntry::path);
            for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "csv")) {
                match read(&path) {
                    Ok(bytes) => files.push((path.display().to_string(), bytes)),
                    Err(error) => faults.push(unreadable(&path, &error)),
                }
            }
        }
        Err(error) => faults.push(unreadable(dir, &error)),
    }
    // Half a set would only add faults about what the unreadable files hold.
    TableFaults::unless_empty((), faults)?;
    let latest = now.saturating_add(A_DAY).unwrap_or(Timestamp::MAX);
    load(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())), latest)
}

fn whole_file(file: &str, problem: Problem) -> Fault {
    Fault { file: file.to_owned(), line: None, column: None, problem }
}
