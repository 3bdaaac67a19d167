//! `stoker report`: what was spent, who held it, and what it went for, from the spans and pods of the journal.

mod before;
mod billed;
mod console;
mod csv;
mod figures;
mod html;
mod picture;
mod reckon;
mod table;
mod unit_cost;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use jiff::civil::Date;
use stoker_advice::spend::billed::Comparison;
use stoker_advice::spend::{By, DAY, Idle, KeptDay, Tariff};
use stoker_core::policy::Policy;
use stoker_journal::{DAYS_KEPT, Journal, Place, SPANS_KEPT};
use stoker_service::files;
use stoker_service::price_tables::{self, PriceTables};

use super::args::{JournalArg, NowArg, whole};
use super::commit::last_policy;
use super::exit::{CliError, Exit};
use super::out;
use super::simulate::{BeforeAfter, Tried};
pub(crate) use billed::BillFaults;
pub(super) use console::money;
use figures::Report;
use reckon::{Apart, Asked, Billed, Period, Spend, at};
pub(super) use reckon::{LastDays, last_days};
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
    let (period, before) = Period::of((args.month, args.year, args.days), now)?;
    let prices = price_tables::prices(args.prices_dir.as_deref(), now)?;
    let place = args.journal.place()?;
    let reader = Journal::open_read_only(place.clone()).await?;
    let policy = match &args.policy {
        Some(path) => price_tables::policy(Some(path), &prices)?,
        None => last_policy(&reader, &place).await?,
    };
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
    let billed = if args.policy.is_some() { Billed::ByThisPolicy } else { Billed::AsKept };
    let asked = Asked { idle: args.idle.into(), apart, with_use: !is_compared, billed };
    let spend = Spend { reader: &reader, tariff: Tariff::new(Arc::new(policy), Arc::new(prices), now), now };
    let policy = &spend.tariff.policy;
    if args.focus {
        out::write(&csv::focus_head()?)?;
        let rows = |day: KeptDay| out::write_part(&csv::focus(&day, policy.cluster.as_str())?);
        return Ok(exit(spend.reckon(period, asked, rows).await?.known_seconds));
    }
    if is_compared {
        let mut comparison = Comparison::new((period.from, period.until));
        let add = |day: KeptDay| {
            comparison.calculated(&day.rows);
            Ok(ControlFlow::Continue(()))
        };
        let reckoned = spend.reckon(period, asked, add).await?;
        return billed::run(&args.billed, comparison, &reckoned, args.format);
    }
    let by: Vec<&By> = [&args.by].into_iter().chain(args.prometheus.unit_cost.is_some().then_some(&By::Pool)).collect();
    let summed = spend.summed(period, asked, &by).await?;
    let before = spend.summed(before, Asked { with_use: false, ..asked }, &[&args.by]).await?;
    let mut report = Report::of(&summed, &before, &args.by, args.idle.into());
    if args.before_after {
        let tables = PriceTables::load(args.prices_dir.as_deref(), None, now)?;
        report.before_after = Some(before_after(args, policy, &tables, place, period).await?);
    }
    if let Some(url) = &args.prometheus.unit_cost {
        let prometheus = args.prometheus.asker(url)?;
        report.unit_costs = unit_cost::of(&prometheus, policy, &summed).await?;
    }
    match args.format {
        Format::Table => out::write(&table::table_of(&report))?,
        Format::Json => out::write(&out::json(&report)?)?,
        Format::Csv => out::write(&csv::lines(&report)?)?,
        Format::Html => out::write(&html::page(&report)?)?,
    }
    Ok(exit(report.known_seconds))
}

/// Of a time of which nothing is known there is no answer.
const fn exit(known_seconds: i64) -> Exit {
    if known_seconds == 0 { Exit::Short } else { Exit::Done }
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
