//! The comparison as people and programs read it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ::csv::Writer;
use jiff::Timestamp;
use serde::Serialize;
use stoker_advice::spend::billed::{Aside, Compared, Line, Machine, Part};
use stoker_core::base::units::UsdMicros;
use stoker_service::print::{count, paragraph, table};

use super::Billed;
use crate::cli::exit::CliError;
use crate::cli::out::{self, Money, quiet};
use crate::cli::report::{Format, at, csv};

/// Machines that the table shows: those with the greatest difference. All are in JSON and CSV.
const SHOWN: usize = 20;

/// Parts that the table names for a machine.
const SHOWN_PARTS: usize = 3;

/// A part in words, and what it is.
const fn words(part: Part) -> (&'static str, &'static str) {
    match part {
        Part::Hours => ("hours", "the bill has more or fewer hours, at calculated prices"),
        Part::ListPrice => ("list prices", "the published price on the bill is another"),
        Part::Discount => ("discounts", "negotiated discounts: ContractedCost against ListCost"),
        Part::Price => ("prices", "the price without commitments is another, as of spot"),
        Part::Commitments => ("commitments", "what they pay: EffectiveCost against ContractedCost"),
        Part::NotBilled => ("not on the bill", "the bill has no usage of these machines"),
        Part::UnusedCommitments => ("unused commitments", "on the bill against calculated"),
        Part::OtherCharges => ("other charges", "of Stoker's machines: data transfer, for instance"),
        Part::OtherMachines => ("other machines", "that Stoker does not know"),
        Part::OtherResources => ("other resources", "disks, load balancers and all else"),
        Part::Purchases => ("purchases", "of commitments and subscriptions, as far as they are spread over this time"),
        Part::Credits => ("credits", "ChargeCategory Credit"),
        Part::Taxes => ("taxes", "ChargeCategory Tax"),
        Part::Corrections => ("corrections", "of earlier bills, and ChargeCategory Adjustment"),
        Part::Rounding => ("rounding", "to the micro-dollar, once for each line"),
    }
}

/// Prints a comparison.
pub(super) fn print(format: Format, of: &Billed) -> Result<(), CliError> {
    out::write(&match format {
        Format::Table => text(of),
        Format::Json => out::json(&Json::of(of))?,
        Format::Csv => lines(&of.compared)?,
        Format::Html => return Err(CliError::Usage("--billed: there is no html of it: ask for table, json or csv".to_owned())),
    })
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    from: Timestamp,
    until: Timestamp,
    seconds: i64,
    /// Those of which it is known what nodes did.
    known_seconds: i64,
    total: Amounts,
    machines: Vec<JsonMachine>,
    unused_commitments: Option<Amounts>,
    others: Vec<Other>,
    charges: Charges,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Amounts {
    calculated: Money,
    parts: BTreeMap<&'static str, Money>,
    /// `EffectiveCost`.
    billed: Money,
    difference: Money,
    /// `BilledCost`.
    invoiced: Money,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonMachine {
    id: String,
    pool: String,
    machines: usize,
    is_billed: bool,
    /// Hours with six decimals.
    hours: String,
    billed_hours: Option<String>,
    #[serde(flatten)]
    amounts: Amounts,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Other {
    part: &'static str,
    /// Empty where the bill tells none.
    service: String,
    billed: Money,
    invoiced: Money,
}

/// What became of the charges of the bill.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Charges {
    all: u64,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    /// Of other times, and not counted.
    outside: JsonAside,
    /// What was not counted of those that reach beyond the time.
    cut: JsonAside,
    /// Not counted, as they repeat another.
    repeated: JsonAside,
    /// Whether there were more than can be told from repetitions.
    may_repeat: bool,
    without_offset: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonAside {
    charges: u64,
    effective: Money,
}

impl From<Aside> for JsonAside {
    fn from(Aside { charges, effective }: Aside) -> Self {
        Self { charges, effective: effective.into() }
    }
}

impl From<&Line> for Amounts {
    fn from(line: &Line) -> Self {
        let Line { calculated, parts, billed, invoiced } = line;
        Self {
            calculated: (*calculated).into(),
            parts: parts.iter().map(|(part, amount)| (part.key(), (*amount).into())).collect(),
            billed: (*billed).into(),
            difference: line.difference().into(),
            invoiced: (*invoiced).into(),
        }
    }
}

/// Millionths of hours as a decimal.
fn hours(millionths: i64) -> String {
    Money::from(UsdMicros(millionths)).usd
}

impl Json {
    fn of(Billed { compared, readings, time, known_seconds }: &Billed) -> Self {
        let machine = |of: &Machine| JsonMachine {
            id: of.id.clone(),
            pool: of.pool.to_string(),
            machines: of.machines,
            is_billed: of.is_billed,
            hours: hours(of.hours),
            billed_hours: of.billed_hours.map(hours),
            amounts: (&of.line).into(),
        };
        let other = |(part, service, line): &(Part, String, Line)| Other {
            part: part.key(),
            service: service.clone(),
            billed: line.billed.into(),
            invoiced: line.invoiced.into(),
        };
        Self {
            from: at(time.0),
            until: at(time.1),
            seconds: time.1 - time.0,
            known_seconds: *known_seconds,
            total: (&compared.total).into(),
            machines: compared.machines.iter().map(machine).collect(),
            unused_commitments: compared.unused.as_ref().map(Amounts::from),
            others: compared.others.iter().map(other).collect(),
            charges: Charges {
                all: compared.charges,
                from: compared.reach.map(|(from, _)| at(from)),
                until: compared.reach.map(|(_, until)| at(until)),
                outside: compared.outside.into(),
                cut: compared.cut.into(),
                repeated: compared.repeated.into(),
                may_repeat: compared.is_forgetful,
                without_offset: readings.without_offset,
            },
        }
    }
}

/// The lines as CSV; they add up to the total.
fn lines(of: &Compared) -> Result<String, CliError> {
    let mut writer = Writer::from_writer(Vec::new());
    let head = ["kind", "name", "pool", "hours", "billedHours", "calculatedUsd"].into_iter().map(str::to_owned);
    let parts = Part::ALL.iter().map(|part| format!("{}Usd", part.key()));
    let tail = ["billedUsd", "differenceUsd", "invoicedUsd"].into_iter().map(str::to_owned);
    writer.write_record(head.chain(parts).chain(tail)).map_err(csv::failed)?;
    let mut write = |head: [String; 5], line: &Line| {
        let usd = |money: UsdMicros| Money::from(money).usd;
        let part = |part: &Part| usd(line.parts.get(part).copied().unwrap_or_default());
        let tail = [line.billed, line.difference(), line.invoiced].map(usd);
        let cells = head.into_iter().chain([usd(line.calculated)]).chain(Part::ALL.iter().map(part)).chain(tail);
        writer.write_record(cells).map_err(csv::failed)
    };
    let none = String::new;
    for Machine { id, pool, hours: counted, billed_hours, line, .. } in &of.machines {
        // A blank is no number, and none is what is not known.
        let billed = billed_hours.map_or_else(none, hours);
        write(
            ["machine".to_owned(), csv::cell(id).into_owned(), csv::cell(pool.as_str()).into_owned(), hours(*counted), billed],
            line,
        )?;
    }
    if let Some(line) = &of.unused {
        write(["unusedCommitments".to_owned(), none(), none(), none(), none()], line)?;
    }
    for (part, service, line) in &of.others {
        write([part.key().to_owned(), csv::cell(service).into_owned(), none(), none(), none()], line)?;
    }
    let rounding = rounding(of);
    if rounding.billed.0 != 0 || rounding.invoiced.0 != 0 {
        write([Part::Rounding.key().to_owned(), none(), none(), none(), none()], &rounding)?;
    }
    csv::finish(writer)
}

/// What the total has beyond the sum of the lines, which are rounded each.
fn rounding(of: &Compared) -> Line {
    let machines = of.machines.iter().map(|machine| &machine.line);
    let lines = || machines.clone().chain(of.unused.as_ref()).chain(of.others.iter().map(|(_, _, line)| line));
    let less = |total: UsdMicros, sum: i64| UsdMicros(total.0.saturating_sub(sum));
    let sum = |of: fn(&Line) -> i64| lines().map(of).fold(0, i64::saturating_add);
    let billed = less(of.total.billed, sum(|line| line.billed.0));
    let invoiced = less(of.total.invoiced, sum(|line| line.invoiced.0));
    Line { calculated: UsdMicros(0), parts: BTreeMap::from([(Part::Rounding, billed)]), billed, invoiced }
}

fn text(of: &Billed) -> String {
    let Billed { compared, time, .. } = of;
    let Line { calculated, billed, invoiced, parts } = &compared.total;
    let day = |second: i64| at(second).strftime("%Y-%m-%d %H:%MZ").to_string();
    let mut text = format!("Bill against Stoker from {} to {}\n", day(time.0), day(time.1));
    let more = compared.total.difference();
    let word = if more.0 < 0 { "less" } else { "more" };
    let difference = UsdMicros(more.0.saturating_abs());
    let _ = writeln!(text, "{calculated} calculated, {billed} billed, {difference} {word}; {invoiced} on the invoice\n");
    let row = |word: &str, amount: UsdMicros, what: &str| vec![word.to_owned(), amount.to_string(), what.to_owned()];
    let mut rows = vec![row("calculated", *calculated, "by Stoker, with commitments")];
    rows.extend(parts.iter().map(|(part, amount)| row(words(*part).0, *amount, words(*part).1)));
    rows.push(row("billed", *billed, "EffectiveCost: what was paid ahead is spread over its use"));
    let ahead = UsdMicros(invoiced.0.saturating_sub(billed.0));
    rows.push(row("paid at other times", ahead, "purchases of this time, less what was paid at others"));
    rows.push(row("invoiced", *invoiced, "BilledCost"));
    text += &table(&["WHAT", "AMOUNT", "WHY"], &["AMOUNT"], rows);
    text += &machines(compared);
    text += &others(compared);
    let notes = notes(of);
    if !notes.is_empty() {
        text.push('\n');
    }
    text.extend(notes.iter().map(|(word, what)| paragraph(&format!("{word}:"), what)));
    text
}

fn machines(of: &Compared) -> String {
    if of.machines.is_empty() {
        return String::new();
    }
    let mut by_difference: Vec<&Machine> = of.machines.iter().collect();
    by_difference.sort_by_key(|machine| (std::cmp::Reverse(machine.line.difference().0.unsigned_abs()), &machine.id));
    let tenths = |millionths: i64| {
        let tenths = (i128::from(millionths) + 50_000).div_euclid(100_000);
        format!("{}.{}", tenths / 10, tenths.rem_euclid(10))
    };
    let row = |machine: &&Machine| {
        let Machine { id, pool, hours, billed_hours, line, .. } = *machine;
        let mut parts: Vec<(&Part, &UsdMicros)> = line.parts.iter().collect();
        parts.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.0.unsigned_abs()));
        // What is less than half a cent explains nothing to a person.
        parts.retain(|(_, amount)| amount.0.unsigned_abs() >= 5_000);
        let shown = parts.iter().take(SHOWN_PARTS).map(|(part, amount)| format!("{} {amount}", words(**part).0));
        let more = parts.len().saturating_sub(SHOWN_PARTS);
        let why: Vec<String> = shown.chain((more > 0).then(|| format!("{more} more"))).collect();
        vec![
            quiet(id),
            pool.to_string(),
            tenths(*hours),
            billed_hours.map_or_else(|| "unknown".to_owned(), tenths),
            line.calculated.to_string(),
            line.billed.to_string(),
            line.difference().to_string(),
            if why.is_empty() { "-".to_owned() } else { why.join(", ") },
        ]
    };
    let rows = by_difference.iter().take(SHOWN).map(row).collect();
    let header = ["MACHINE", "POOL", "HOURS", "BILLED-HOURS", "CALCULATED", "BILLED", "MORE", "WHY"];
    let mut text = "\n".to_owned() + &table(&header, &["HOURS", "BILLED-HOURS", "CALCULATED", "BILLED", "MORE"], rows);
    if let Some(more) = of.machines.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {} with less of a difference: -o csv has all", count(more, "machine"));
    }
    text
}

fn others(of: &Compared) -> String {
    if of.others.is_empty() {
        return String::new();
    }
    let mut others: Vec<&(Part, String, Line)> = of.others.iter().collect();
    others.sort_by_key(|(part, service, line)| (*part, std::cmp::Reverse(line.billed.0.unsigned_abs()), service));
    let row = |(part, service, line): &&(Part, String, Line)| {
        let service = if service.is_empty() { "-".to_owned() } else { quiet(service) };
        vec![words(*part).0.to_owned(), line.billed.to_string(), line.invoiced.to_string(), service]
    };
    let rows = others.iter().take(SHOWN).map(row).collect();
    let mut text = "\n".to_owned() + &table(&["BESIDE", "BILLED", "INVOICED", "SERVICE"], &["BILLED", "INVOICED"], rows);
    if let Some(more) = others.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more: -o csv has all");
    }
    text
}

/// What to look at, and what is not known: each with its word.
fn notes(Billed { compared, readings, time, known_seconds }: &Billed) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    let day = |second: i64| at(second).strftime("%Y-%m-%d %H:%MZ").to_string();
    let seconds = time.1 - time.0;
    if *known_seconds < seconds {
        let share = super::super::percent(i128::from(*known_seconds) * 1_000 / i128::from(seconds.max(1)));
        let what = format!("what nodes did is known of {share} of the time; the rest is on the bill and was not calculated");
        notes.push(("unknown", what));
    }
    match compared.reach {
        None => notes.push(("bill", "it has no charges".to_owned())),
        Some((from, until)) if from > time.0 || until < time.1 => {
            let what = format!("its charges are from {} to {}: it may not be complete", day(from), day(until));
            notes.push(("bill", what));
        }
        Some(_) => {}
    }
    let missing = compared.machines.iter().filter(|machine| !machine.is_billed).count();
    if missing > 0 {
        let what =
            format!("{} of Stoker's not on it: of another account or cloud, or not billed yet", count(missing, "machine"));
        notes.push(("bill", what));
    }
    let no_hours = |machine: &&Machine| machine.is_billed && machine.billed_hours.is_none();
    let no_hours = compared.machines.iter().filter(no_hours).count();
    if no_hours > 0 {
        notes.push(("hours", format!("of {} the bill counts no hours; they are in prices", count(no_hours, "machine"))));
    }
    let Compared { outside, cut, repeated, .. } = compared;
    let charges = |of: &Aside| count(of.charges, "charge");
    if outside.charges > 0 {
        notes.push(("left out", format!("{} of other times, {}", charges(outside), outside.effective)));
    }
    if cut.charges > 0 {
        let what = "reaching beyond this time: what of it is within is counted, in proportion to time; the rest is";
        notes.push(("left out", format!("{} {what} {}", charges(cut), cut.effective)));
    }
    if repeated.charges > 0 {
        let what = "repeating another of the same machine in every cell";
        notes.push(("left out", format!("{} {what}, {}", charges(repeated), repeated.effective)));
    }
    if compared.is_forgetful {
        notes.push(("bill", "so many charges of machines that not all could be held against each other".to_owned()));
    }
    if readings.without_offset > 0 {
        let what = "whose time has no offset: taken as UTC, which FOCUS asks for";
        notes.push(("bill", format!("{} {what}", count(readings.without_offset, "charge"))));
    }
    for file in &readings.open_ends {
        notes.push(("bill", format!("{file} does not end with a line end: it may have been cut short")));
    }
    notes
}
