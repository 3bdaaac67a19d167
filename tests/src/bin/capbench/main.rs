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
mod serving;
mod stoker;
mod table;
mod training;
mod workloads;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use stoker_sim::demand::openb::Part;

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
    /// Folder for a picture of each demand: cost against waiting
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// A few days and one seed, for CI
    #[arg(long, conflicts_with_all = ["trace", "types", "seeds", "days"])]
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
    let args = Args::parse();
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
    if let Some(dir) = &args.pictures {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let mut sound = true;
    for workload in &workloads {
        let compared = pods::compare(workload, seeds, args.quick)?;
        sound &= compared.sound;
        if let Some(dir) = &args.pictures {
            let file = dir.join(format!("{}.svg", workload.file_name()));
            let drawn = frontier::draw(&workload.name, &compared.series)?;
            std::fs::write(&file, drawn).with_context(|| file.display().to_string())?;
        }
    }
    if args.trace.is_none() {
        sound &= training::compare(seeds, days)?;
        sound &= serving::compare(days)?;
    }
    anyhow::ensure!(sound, "see FAIL above");
    Ok(())
}
