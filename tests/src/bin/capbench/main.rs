//! `capbench`: what a demand costs under Stoker, under what others run, and at least.
//!
//! ```text
//! capbench [--quick]                    drawn demand that ships with the project
//! capbench --trace FILE [--types FILE]  Alibaba's list of GPU pods of 2023, as W1, W1n and W2
//! ```
//!
//! Every row of a table is played on the same instance types and prices, those of Stoker's own tables. `x bound` is the cost over the lower
//! bound of the same demand. It knows the future, and its nodes boot in no time; serving has the least that its boots allow.

mod frontier;
mod pods;
mod report;
mod serving;
mod stoker;
mod table;
mod training;
mod workloads;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use stoker_service::print::NotWritten;
use stoker_sim::demand::openb::Part;

use report::{Report, Table};

/// Compares Stoker with what others run, and with the least that a demand can cost.
#[derive(Debug, Parser)]
struct Args {
    /// Alibaba's list of GPU pods of 2023 [default: drawn demand]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Half of the list to play, by when pods arrive: choose a policy on one, judge it on the other
    #[arg(long, requires = "trace")]
    half: Option<Half>,
    /// Instance types in place of those of Stoker's tables: CSV, with the columns that an error names
    #[arg(long, value_name = "FILE")]
    types: Option<PathBuf>,
    /// Seeds of the boots; means are over all of them
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Days of drawn demand
    #[arg(long, value_name = "DAYS", default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..))]
    days: u32,
    /// Folder for what is printed, tables for a page, and a picture of each demand: cost against waiting
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A few days and one seed, for CI
    #[arg(long, conflicts_with_all = ["trace", "half", "types", "seeds", "days"])]
    quick: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Half {
    First,
    Second,
}

/// Days that are played in the short form.
const QUICK_DAYS: u32 = 3;

fn main() -> Result<()> {
    match compare(&Args::parse()) {
        // As with `| head`.
        Err(error) if error.downcast_ref::<NotWritten>().is_some_and(NotWritten::is_enough) => Ok(()),
        done => done,
    }
}

fn compare(args: &Args) -> Result<()> {
    let (seeds, days) = if args.quick { (1, QUICK_DAYS) } else { (args.seeds, args.days) };
    let sold = args.types.as_deref().map_or_else(|| workloads::sold(&workloads::MODELS), workloads::read_types)?;
    let part = match args.half {
        None => Part::Whole,
        Some(Half::First) => Part::FirstHalf,
        Some(Half::Second) => Part::SecondHalf,
    };
    let workloads = match &args.trace {
        Some(trace) => workloads::of_trace(trace, part, &sold)?,
        None => workloads::drawn(days, &sold),
    };
    let mut report = Report::new(args.out.clone())?;
    let [mut summary, mut isolation] = [const { Vec::new() }; 2];
    for workload in &workloads {
        let compared = pods::compare(workload, seeds, args.quick, &mut report)?;
        report.keep(&format!("{}.svg", workload.short), &frontier::draw(&workload.name, &compared.series)?)?;
        summary.push(compared.summary);
        isolation.push(compared.isolation);
    }
    for (name, tables) in [("pods", summary), ("isolation", isolation)] {
        report.keep_table(name, &Table::side_by_side(tables))?;
    }
    if args.trace.is_none() {
        training::compare(seeds, days, &mut report)?;
        serving::compare(days, &mut report)?;
    }
    report.finish()
}
