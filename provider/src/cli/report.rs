//! `stoker report`: what was spent, who held it, and what it went for, from the spans and pods of the journal.

mod before;
mod billed;
mod console;
mod csv;
mod figures;
mod html;
mod picture;
mod table;
mod unit_cost;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use stoker_advice::rollup::HOUR;
use stoker_advice::spend::billed::Comparison;
use stoker_advice::spend::{By, CommitmentCost, DAY, GpuUse, Idle, KeptDay, Lives, Tariff, spread};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_journal::{DAYS_KEPT, Journal, Place, Reader, SPANS_KEPT};
use stoker_service::files;
use stoker_service::price_tables::{self, PriceTables};

use super::args::{JournalArg, NowArg, whole};
use super::commit::last_policy;
use super::exit::{CliError, Exit};
use super::out;
use super::simulate::{BeforeAfter, Tried};
pub(crate) use billed::BillFaults;
pub(super) use console::money;
use figures::{Report, Sums};
pub(super) use table::percent;

/// Days that are reported where nobody asks for others.
const USUAL_DAYS: i64 = 30;

/// Longest time that is reported, in days.
const MOST_DAYS: i64 = DAYS_KEPT.as_secs() / DAY;

/// Reports what was spent: by pool, namespace, workload, label, GPU model, capacity type or zone, and by what nodes did.
///
/// It is based on what the service wrote down in its journal while it ran. Days and months are those of UTC. Time of which nobody knows what
/// nodes did is said, and not filled.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Month to report; of the current one, up to now
    #[arg(long, value_name = "YYYY-MM", value_parser = month, conflicts_with_all = ["days", "year"])]
    month: Option<Date>,
    /// Year to report, month by month; of the current one, up to now
    #[arg(long, value_name = "YYYY", value_parser = year, conflicts_with = "days")]
    year: Option<Date>,
    /// Days to report, today included [default: 30; 14 from a Prometheus]
    #[arg(long, value_name = "N", value_parser = whole(1..=MOST_DAYS), allow_negative_numbers = true)]
    days: Option<i64>,
    /// What to sum by: pool, namespace, workload, label=KEY, model, capacity or zone
    #[arg(long, default_value = "pool", value_parser = by)]
    by: By,
    /// What becomes of nodes that no pod holds: a line of their own, or spread over the pods of their pool and market
    #[arg(long, value_enum, default_value_t)]
    idle: IdleArg,
    /// Plays the GPU pods of that time without Stoker too, on a static fleet of their peak and under Cluster Autoscaler and Karpenter by their
    /// defaults, and says what Stoker saves of that
    #[arg(long, conflicts_with = "focus")]
    before_after: bool,
    /// Policy file of before: played with the same pods, beside the present policy
    #[arg(long, value_name = "FILE", requires = "before_after")]
    policy_before: Option<PathBuf>,
    /// Policy file whose commitments are counted, and which is played [default: the policy that the service used last; one drafted from the
    /// nodes of a Prometheus]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    prometheus: before::PrometheusArgs,
    /// Folder of price tables to use instead of the built-in ones
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    prices_dir: Option<PathBuf>,
    #[command(flatten)]
    journal: JournalArg,
    /// Output format; json has stable fields, and money both in micro-dollars and as decimal text
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Print FOCUS rows by day and machine as CSV instead, for cost tools
    #[arg(long, conflicts_with_all = ["by", "format"])]
    focus: bool,
    /// Compare with what the cloud billed: a FOCUS export of 1.0 or later as CSV, gzipped or not; once for each file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["by", "idle", "focus", "before_after", "unit_cost", "from_prometheus"])]
    billed: Vec<PathBuf>,
    #[command(flatten)]
    now: NowArg,
}

/// How the report is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs: one JSON document.
    Json,
    /// For spreadsheets: the lines alone.
    Csv,
    /// For a browser: a page in one file, with pictures.
    Html,
}

/// What becomes of nodes that no pod holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum IdleArg {
    /// A line of their own.
    #[default]
    Separate,
    /// Spread over the pods of their pool and market.
    Spread,
}

impl From<IdleArg> for Idle {
    fn from(idle: IdleArg) -> Self {
        match idle {
            IdleArg::Separate => Self::Separate,
            IdleArg::Spread => Self::Spread,
        }
    }
}

fn month(text: &str) -> Result<Date, String> {
    let wrong = || "not a month: write it like 2026-11".to_owned();
    let is_month = text.len() == 7 && text.as_bytes().get(4) == Some(&b'-');
    if !is_month {
        return Err(wrong());
    }
    format!("{text}-01").parse().map_err(|_| wrong())
}

fn year(text: &str) -> Result<Date, String> {
    let wrong = || "not a year: write it like 2026".to_owned();
    let is_year = text.len() == 4 && text.bytes().all(|digit| digit.is_ascii_digit());
    if !is_year {
        return Err(wrong());
    }
    format!("{text}-01-01").parse().map_err(|_| wrong())
}

fn by(text: &str) -> Result<By, String> {
    Ok(match text {
        "pool" => By::Pool,
        "namespace" => By::Namespace,
        "workload" => By::Workload,
        "model" => By::Model,
        "capacity" => By::Capacity,
        "zone" => By::Zone,
        _ => match text.strip_prefix("label=") {
            Some(key) if !key.is_empty() => By::Label(key.to_owned()),
            _ => return Err("write pool, namespace, workload, label=KEY, model, capacity or zone".to_owned()),
        },
    })
}

/// A time that is reported, in whole days of UTC but for the last, in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Period {
    from: i64,
    until: i64,
}

impl Period {
    /// The time that is asked for, and the one before it that it is compared with: as much of the month or year before as of this one is
    /// over, or as many days before these.
    fn of(args: &ReportArgs, now: Timestamp) -> Result<(Self, Self), CliError> {
        let (option, begin, months) = match (args.month, args.year) {
            (Some(month), _) => ("--month", month, 1),
            (None, Some(year)) => ("--year", year, 12),
            (None, None) => {
                return Ok(Self::last(args.days.unwrap_or(USUAL_DAYS), now));
            }
        };
        let now = now.as_second();
        let second = |date: Date| date.to_zoned(TimeZone::UTC).map(|at| at.timestamp().as_second());
        let after = |by: i64| begin.checked_add(jiff::Span::new().months(by)).and_then(second);
        let beyond = |_| CliError::Usage(format!("{option}: beyond the times that can be told"));
        let (before, from) = (after(-months).map_err(beyond)?, after(0).map_err(beyond)?);
        let next = after(months).map_err(beyond)?;
        if from > now {
            return Err(CliError::Usage(format!("{option}: {} is to come", begin.strftime("%Y-%m"))));
        }
        let until = next.min(now);
        let until_before = if next <= now { from } else { (before + (now - from)).min(from) };
        Ok((Self { from, until }, Self { from: before, until: until_before }))
    }

    /// So many days, today included, and as many before them.
    fn last(days: i64, now: Timestamp) -> (Self, Self) {
        let (now, length) = (now.as_second(), days * DAY);
        let from = (now.div_euclid(DAY) + 1) * DAY - length;
        (Self { from, until: now }, Self { from: from - length, until: now - length })
    }

    /// Its days, counted from 1970.
    fn days(self) -> std::ops::RangeInclusive<i64> {
        self.from.div_euclid(DAY)..=(self.until - 1).div_euclid(DAY)
    }
}

/// By whose commitments days that were summed up are billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Billed {
    /// By those of their day.
    AsKept,
    /// By those of a policy that was named.
    Anew,
}

/// How far rows are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// As far as days are kept: workloads where they are not too many.
    AsKept,
    /// Every workload.
    Workloads,
    /// Every machine, and every workload on it.
    Machines,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    idle: Idle,
    apart: Apart,
    /// Whether readings are asked what was wasted.
    with_use: bool,
    billed: Billed,
}

/// What was spent in a time, beside its rows.
struct Reckoned {
    period: Period,
    /// Seconds of which it is known what nodes did.
    known_seconds: i64,
    /// Seconds of which it is known which pods there were.
    pods_known_seconds: i64,
    commitments: Vec<CommitmentCost>,
    lives: Lives,
    /// Since when it is known what became of nodes.
    lives_since: i64,
}

/// A day of a time, from the spans of nodes and what pods held.
async fn day(reader: &Reader, tariff: &Tariff, period: Period, day: i64, asked: Asked) -> Result<KeptDay, CliError> {
    let (begin, end) = ((day * DAY).max(period.from), ((day + 1) * DAY).min(period.until));
    let spent = reader.spent(at(begin), at(end)).await?;
    let gpu_use = if asked.with_use { reader.gpu_use(day).await? } else { GpuUse::default() };
    Ok(spent.day(tariff, day, (begin, end), &gpu_use, asked.apart == Apart::Machines))
}

/// Whether the rows of a day that was summed up are as far apart as is asked for.
fn is_apart(kept: &KeptDay, asked: Apart) -> bool {
    match asked {
        Apart::AsKept => true,
        Apart::Workloads => !kept.is_folded(),
        Apart::Machines => false,
    }
}

/// What was spent in a time; `each` gets its days. Days that were summed up are taken as they are, by the commitments of their day, unless
/// that is not what was asked for. One day is read after another: a month of a large cluster does not fit into memory.
async fn reckon(
    (reader, now): (&Reader, Timestamp),
    tariff: &Tariff,
    mut period: Period,
    asked: Asked,
    mut each: impl FnMut(KeptDay) -> Result<(), CliError>,
) -> Result<Reckoned, CliError> {
    let spans_since = now.as_second() - SPANS_KEPT.as_secs();
    if period.until < spans_since {
        // A part of a day is not kept.
        period.until = period.until.div_euclid(DAY) * DAY;
    }
    let pods_since = reader.pods_known().await?.0.first().map_or(i64::MIN, |(since, _)| *since);
    let has_spans = |day: i64| day * DAY >= spans_since.max(pods_since);
    let is_kept = |kept: &KeptDay| {
        let (begin, end) = (kept.day * DAY, (kept.day + 1) * DAY);
        asked.billed == Billed::AsKept || tariff.reaching((begin, end)).eq(&kept.billed_by) || !has_spans(kept.day)
    };
    let kept = reader.kept_days(period.from.div_euclid(DAY), period.until.div_euclid(DAY)).await?;
    let mut kept: BTreeMap<i64, KeptDay> = kept.into_iter().filter(is_kept).map(|kept| (kept.day, kept)).collect();
    let mut commitments: BTreeMap<String, CommitmentCost> = BTreeMap::new();
    let (mut known_seconds, mut pods_known_seconds) = (0, 0);
    for number in period.days() {
        let mut of_day = match kept.remove(&number) {
            Some(kept) if is_apart(&kept, asked.apart) => kept,
            Some(kept) => match reader.kept_rows(number).await? {
                Some(rows) => KeptDay { rows, ..kept },
                None if has_spans(number) => day(reader, tariff, period, number, asked).await?,
                // Its pods are forgotten: what is left is what was folded.
                None => kept,
            },
            None => day(reader, tariff, period, number, asked).await?,
        };
        if asked.idle == Idle::Spread {
            if asked.apart != Apart::Machines {
                of_day = of_day.without_machines();
            }
            of_day.rows = spread(&of_day.rows);
        }
        for of_day in &of_day.commitments {
            let sum = commitments.entry(of_day.name.clone());
            sum.and_modify(|sum| *sum = sum.plus(of_day)).or_insert_with(|| of_day.clone());
        }
        known_seconds += of_day.known_seconds;
        pods_known_seconds += of_day.pods_known_seconds;
        each(of_day)?;
    }
    let lives = reader.lives(at(period.from), at(period.until)).await?;
    Ok(Reckoned {
        period,
        known_seconds,
        pods_known_seconds,
        lives: Lives::of(&lives, period.from, period.until),
        lives_since: spans_since.max(period.from),
        commitments: commitments.into_values().collect(),
    })
}

/// What was spent in a time, and the sums of its days.
async fn summed(
    reader: (&Reader, Timestamp),
    tariff: &Tariff,
    period: Period,
    asked: Asked,
    by: &[&By],
) -> Result<(Reckoned, Sums), CliError> {
    let mut sums = Sums::by(by);
    let add = |day: KeptDay| {
        sums.add(&day);
        Ok(())
    };
    let reckoned = reckon(reader, tariff, period, asked, add).await?;
    Ok((reckoned, sums))
}

/// The rows of the last days, the hours among them of which it is known what nodes did, and when they begin.
pub(super) async fn last_days(
    reader: &Reader,
    (policy, prices): (&Arc<Policy>, &Arc<PriceBook>),
    days: i64,
    now: Timestamp,
) -> Result<(Vec<KeptDay>, i64, Timestamp), CliError> {
    let tariff = Tariff::new(Arc::clone(policy), Arc::clone(prices), now);
    let (period, _) = Period::last(days, now);
    let asked = Asked { idle: Idle::Separate, apart: Apart::AsKept, with_use: false, billed: Billed::AsKept };
    let mut days = Vec::new();
    let keep = |day| {
        days.push(day);
        Ok(())
    };
    let reckoned = reckon((reader, now), &tariff, period, asked, keep).await?;
    Ok((days, reckoned.known_seconds / HOUR, at(period.from)))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MIN)
}

/// Carries the command out.
pub(super) async fn run(args: &ReportArgs) -> Result<Exit, CliError> {
    if let Some(url) = &args.prometheus.from_prometheus {
        return before::run(args, url).await;
    }
    let beside = [("--before-after", args.before_after), ("--unit-cost", args.prometheus.unit_cost.is_some())];
    if let Some((option, _)) = beside.iter().find(|(_, is_asked)| *is_asked && args.format == Format::Csv) {
        return Err(CliError::Usage(format!("{option}: csv has the lines alone; use -o json, html or table")));
    }
    let now = args.now.now();
    let (period, before) = Period::of(args, now)?;
    let prices = price_tables::prices(args.prices_dir.as_deref(), now)?;
    let place = args.journal.place()?;
    let reader = Journal::open_read_only(place.clone()).await?;
    let policy = match &args.policy {
        Some(path) => price_tables::policy(Some(path), &prices)?,
        None => last_policy(&reader, &place).await?,
    };
    let tariff = Tariff::new(Arc::new(policy), Arc::new(prices), now);
    let is_compared = !args.billed.is_empty();
    let apart = match args.by {
        _ if args.focus || is_compared => Apart::Machines,
        By::Workload | By::Label(_) => Apart::Workloads,
        By::Pool | By::Namespace | By::Model | By::Capacity | By::Zone => Apart::AsKept,
    };
    if apart == Apart::Machines && period.from < now.as_second() - SPANS_KEPT.as_secs() {
        let kept = SPANS_KEPT.as_secs() / DAY;
        let option = if args.focus { "--focus" } else { "--billed" };
        return Err(CliError::Usage(format!("{option}: machines are told apart for {kept} days only: ask for later ones")));
    }
    let billed = if args.policy.is_some() { Billed::Anew } else { Billed::AsKept };
    let asked = Asked { idle: args.idle.into(), apart, with_use: !is_compared, billed };
    if args.focus {
        out::write(&csv::focus_head()?)?;
        let rows = |day: KeptDay| out::write(&csv::focus(&day, &tariff.policy)?);
        let reckoned = reckon((&reader, now), &tariff, period, asked, rows).await?;
        return Ok(if reckoned.known_seconds == 0 { Exit::Short } else { Exit::Done });
    }
    if is_compared {
        let mut comparison = Comparison::new((period.from, period.until));
        let add = |day: KeptDay| {
            comparison.calculated(&day.rows);
            Ok(())
        };
        let reckoned = reckon((&reader, now), &tariff, period, asked, add).await?;
        return billed::run(&args.billed, comparison, &reckoned, args.format);
    }
    let by: Vec<&By> = [&args.by].into_iter().chain(args.prometheus.unit_cost.is_some().then_some(&By::Pool)).collect();
    let (reckoned, sums) = summed((&reader, now), &tariff, period, asked, &by).await?;
    let before = summed((&reader, now), &tariff, before, Asked { with_use: false, ..asked }, &[&args.by]).await?;
    let mut report = Report::of((&reckoned, &sums), (&before.0, &before.1), &args.by, args.idle.into());
    if args.before_after {
        let tables = PriceTables::load(args.prices_dir.as_deref(), None, now)?;
        report.before_after = Some(before_after(args, &tariff.policy, &tables, place, period).await?);
    }
    if let Some(url) = &args.prometheus.unit_cost {
        let prometheus = args.prometheus.asker(url)?;
        report.unit_costs = unit_cost::of(&prometheus, &tariff.policy, &reckoned, &sums).await?;
    }
    let exit = if report.known_seconds == 0 { Exit::Short } else { Exit::Done };
    match args.format {
        Format::Table => out::write(&table::table_of(&report))?,
        Format::Json => out::write(&out::json(&report)?)?,
        Format::Csv => out::write(&csv::lines(&report)?)?,
        Format::Html => out::write(&html::page(&report)?)?,
    }
    Ok(exit)
}

/// The pods of the time played under the policy, the one of before, and without Stoker.
async fn before_after(
    args: &ReportArgs,
    policy: &Policy,
    tables: &PriceTables,
    place: Place,
    period: Period,
) -> Result<BeforeAfter, CliError> {
    let mut notes = Vec::new();
    let name = args.policy.as_deref().map_or_else(|| "the policy used last".to_owned(), files::shown);
    let mut policies = vec![Tried::of(&name, policy.clone(), tables, &mut notes, None)?];
    if let Some(file) = &args.policy_before {
        policies.push(Tried::of_file(Some(file), tables, &mut notes)?);
    }
    BeforeAfter::of_journal(&policies, place, (at(period.from), at(period.until)), tables, notes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_and_what_to_sum_by_are_read_strictly() {
        assert_eq!(month("2026-11").unwrap(), jiff::civil::date(2026, 11, 1));
        assert!(["2026-13", "2026-1", "11-2026", "2026-11-01", "20260-1", ""].iter().all(|text| month(text).is_err()));
        assert_eq!(year("2026").unwrap(), jiff::civil::date(2026, 1, 1));
        assert!(["26", "2026-01", "+026", ""].iter().all(|text| year(text).is_err()));
        assert_eq!(by("label=team").unwrap(), By::Label("team".to_owned()));
        assert!(["label=", "labels", "Pool", ""].iter().all(|text| by(text).is_err()));
    }
}
