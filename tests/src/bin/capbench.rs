//! `capbench`: what a demand costs under Stoker, under what others run, and at least.
//!
//! ```text
//! capbench [--quick]                    drawn demand that ships with the project
//! capbench --trace FILE [--types FILE]  Alibaba's list of GPU pods of 2023, as W1, W1n and W2
//! ```
//!
//! Every row is played on the same instance types and prices, those of Stoker's own tables. `x bound` is the cost over the lower bound of
//! the same demand, which no policy reaches: it knows the future, and its nodes boot in no time.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use jiff::SignedDuration;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::policy::{Policy, RawPolicy};
use stoker_service::price_tables;
use stoker_sim::bound::fleet::{self, Method};
use stoker_sim::demand::{Demand, InstanceType, Room, openb, synthetic};
use stoker_sim::model::{Scoring, Settings};
use stoker_sim::peers::{self, Boots};
use stoker_sim::simulate::outcome::Waits;
use stoker_sim::simulate::side_by_side::side_by_side;
use stoker_sim::simulate::{Setup, types};

/// Compares Stoker with what others run, and with the least that a demand can cost.
#[derive(Debug, Parser)]
struct Args {
    /// Alibaba's list of GPU pods of 2023 [default: drawn demand]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Instance types in place of those of Stoker's tables: CSV, with the columns that an error names
    #[arg(long, value_name = "FILE")]
    types: Option<PathBuf>,
    /// Seeds of the boots; means are over all of them
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Days of drawn demand
    #[arg(long, value_name = "DAYS", default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..))]
    days: u32,
    /// A few days and one seed, for CI
    #[arg(long, conflicts_with_all = ["trace", "types", "seeds", "days"])]
    quick: bool,
}

/// Models of the demand. The tables call both V100s by one name; a policy here tells them apart.
const MODELS: [&str; 5] = ["T4", "L4", "A10G", "L40S", "V100"];
const LARGE_V100: &str = "V100-32GB";

/// Stoker's pool. Isolation and windows are what the comparison is about; limits never bind.
fn policy(models: &[&str], isolated: bool) -> Result<Arc<Policy>> {
    let isolation = if isolated { "  isolation: { maxCostRatio: 1.0 }\n" } else { "" };
    let text = format!(
        "apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: capbench
defaults: {{ unknownQuota: allow, bootDeadline: 14m }}
pools:
- name: gpu
  workload: batch
  gpu: {{ models: [{}] }}
  where: {{ clouds: [aws], regions: [us-east-1] }}
  capacity: {{ prefer: [on-demand] }}
  limits: {{ maxNodes: 500 }}
  stabilization: {{ scaleDown: 10m, window: equalCost, minimumLife: 15m }}
{isolation}",
        models.join(", ")
    );
    let raw: RawPolicy = serde_saphyr::from_str(&text)?;
    let policy = Policy::try_from_raw(&raw);
    Ok(Arc::new(policy.map_err(|faults| anyhow!("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?))
}

/// The columns of a file of types, in this order.
const COLUMNS: &str = "name,model,gpus,milli_cpu,memory_mib,usd_per_hour";

/// The types of a file.
fn read_types(path: &Path) -> Result<Vec<InstanceType>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines().zip(1..);
    let head = lines.next().map(|(line, _)| line);
    anyhow::ensure!(head == Some(COLUMNS), "{}:1: write the columns {COLUMNS}", path.display());
    let read = |(line, number): (&str, usize)| -> Result<InstanceType> {
        let at = || format!("{}:{number}", path.display());
        let fields: Vec<&str> = line.split(',').collect();
        let [name, model, gpus, milli_cpu, memory_mib, hourly] =
            <[&str; 6]>::try_from(fields).map_err(|found| anyhow!("{}: {} columns for the six", at(), found.len()))?;
        let whole = |text: &str| text.parse::<u32>().with_context(|| format!("{}: {text:?} is no number", at()));
        let allocatable = Room { gpus: whole(gpus)?, milli_cpu: whole(milli_cpu)?, memory_mib: whole(memory_mib)? };
        let hourly = UsdPerHour::parse_usd(hourly).map_err(|error| anyhow!("{}: {error}", at()))?;
        Ok(InstanceType { name: name.to_owned(), model: model.to_owned(), allocatable, hourly: UsdMicros(hourly.0) })
    };
    lines.map(read).collect()
}

/// The types that Stoker's tables have of those models, as they are sold in us-east-1.
fn sold() -> Result<Vec<InstanceType>> {
    let book = price_tables::prices(None, jiff::Timestamp::now())?;
    let catalogue = types::derive(&policy(&MODELS, false)?, &book)?;
    let mut sold = types::instance_types(&catalogue);
    for of in sold.iter_mut().filter(|of| of.name.starts_with("p3dn.")) {
        LARGE_V100.clone_into(&mut of.model);
    }
    Ok(sold)
}

/// A demand by its name.
struct Workload {
    name: String,
    demand: Arc<Demand>,
}

fn workloads(args: &Args, sold: &[InstanceType]) -> Result<Vec<Workload>> {
    let named = |name: &str, demand: Demand| Workload { name: name.to_owned(), demand: Arc::new(demand) };
    let Some(trace) = &args.trace else {
        let days = if args.quick { 3 } else { args.days };
        return Ok(vec![
            named("drawn, mixed", synthetic::mixed(1, days, sold)),
            named("drawn, churn", synthetic::churn(1, days, sold)),
        ]);
    };
    let read = |name: &str, selection: &openb::Selection| -> Result<Workload> {
        let read = openb::read(Path::new(trace), sold, selection).with_context(|| trace.display().to_string())?;
        Ok(named(&format!("{name}, {} pods left out", read.left_out.len()), read.demand))
    };
    Ok(vec![
        read("W1", &openb::Selection::whole())?,
        read("W1n", &openb::Selection::capped())?,
        read("W2", &openb::Selection::churn())?,
    ])
}

/// What a table shows of a run, in the order of its columns: dollars; idle percent; seconds of waiting, p50, p95 and p99; percent that
/// waited for ten minutes; launches; flaps; moves.
type Figures = [f64; 9];

/// One policy, over all seeds.
struct Row {
    name: String,
    runs: Vec<Figures>,
    broken: Vec<String>,
}

impl Row {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), runs: Vec::new(), broken: Vec::new() }
    }

    fn means(&self) -> Figures {
        std::array::from_fn(|column| mean(self.runs.iter().map(|run| run[column])))
    }

    fn usd(&self) -> f64 {
        self.means()[0]
    }

    fn print(&self, bound: f64) {
        let [usd, idle, p50, p95, p99, long, launches, flaps, moves] = self.means();
        let deviation = mean(self.runs.iter().map(|run| (run[0] - usd).powi(2))).sqrt();
        println!(
            "{:<52} {usd:>8.0} {deviation:>6.0} {:>7.3} {idle:>6.1} {p50:>5.0} {p95:>5.0} {p99:>5.0} {long:>6.2} {launches:>8.0} \
             {flaps:>6.0} {moves:>6.0}",
            self.name,
            usd / bound,
        );
        for broken in &self.broken {
            println!("  BROKEN {broken}");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few seeds")]
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[expect(clippy::cast_precision_loss, reason = "amounts here are far below 2^52")]
fn dollars(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "counts of nodes and pods")]
fn peer(demand: &Demand, name: &str, policy: &peers::Policy, seeds: u64) -> Result<Row> {
    let mut row = Row::new(name);
    for seed in 0..seeds {
        let report = peers::replay(demand, policy, Boots::seeded(seed))?;
        let peers::Waits { p50, p95, p99, long_percent, .. } = report.waits;
        let [launches, flaps, moves] = [report.launches, report.flaps, report.moves].map(|count| count as f64);
        let (usd, idle) = (dollars(report.usd.0), report.idle_percent());
        row.runs.push([usd, idle, p50, p95, p99, long_percent, launches, flaps, moves]);
    }
    Ok(row)
}

/// One way to run Stoker.
struct Ours {
    name: &'static str,
    isolated: bool,
    /// Whether the autoscaler's own delays are taken off, so that windows are Stoker's alone.
    undelayed: bool,
    scoring: Scoring,
}

const OURS: [Ours; 5] = [
    Ours { name: "Stoker", isolated: true, undelayed: false, scoring: Scoring::MostAllocated },
    Ours { name: "Stoker, scheduler spreads", isolated: true, undelayed: false, scoring: Scoring::LeastAllocated },
    Ours { name: "Stoker, autoscaler's delays 0", isolated: true, undelayed: true, scoring: Scoring::MostAllocated },
    Ours { name: "Stoker without isolation", isolated: false, undelayed: false, scoring: Scoring::MostAllocated },
    Ours { name: "Stoker without isolation, spreads", isolated: false, undelayed: false, scoring: Scoring::LeastAllocated },
];

#[expect(clippy::cast_precision_loss, reason = "a count of nodes")]
fn ours(workload: &Workload, seeds: u64) -> Result<Vec<Row>> {
    let models: Vec<&str> = MODELS.into_iter().chain([LARGE_V100]).collect();
    let mut setups = Vec::new();
    for ours in &OURS {
        let catalogue = types::catalogue(&policy(&models, ours.isolated)?, &workload.demand.types)?;
        for seed in 0..seeds {
            let mut settings = Settings::recommended();
            if ours.undelayed {
                settings.scale_down_unneeded = SignedDuration::ZERO;
                settings.scale_down_delay_after_add = SignedDuration::ZERO;
            }
            let setup = Setup::new(Arc::clone(&workload.demand), catalogue.clone(), seed);
            setups.push(Setup { settings, scoring: ours.scoring, ..setup });
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shown = std::io::stderr().is_terminal();
    let tell = |done: usize, of: usize| {
        if shown {
            eprint!("\r{done} of {of} runs of Stoker{}", if done == of { "\n" } else { "" });
        }
    };
    let mut outcomes = side_by_side(&setups, threads, tell).into_iter();
    OURS.iter()
        .map(|ours| {
            let mut row = Row::new(ours.name);
            for simulated in outcomes.by_ref().take(usize::try_from(seeds)?) {
                let outcome = simulated?.outcome;
                let Waits { p50, p95, p99, over_ten_minutes_percent: long, .. } = outcome.waits;
                let (launches, flaps) = (outcome.fates.launches as f64, outcome.fates.flaps as f64);
                // It moves no pod: an eviction is a violation.
                let usd = dollars(outcome.total().0);
                row.runs.push([usd, outcome.idle_percent, p50, p95, p99, long, launches, flaps, 0.0]);
                if outcome.violations.any() {
                    row.broken.push(format!("{:?}", outcome.violations));
                }
            }
            Ok(row)
        })
        .collect()
}

/// One table; whether all promises were kept, and Stoker's figure lies between the bound and Cluster Autoscaler's defaults.
fn compare(workload: &Workload, seeds: u64) -> Result<bool> {
    let demand = &workload.demand;
    let begun = Instant::now();
    let bound = fleet::bound(demand, Method::default())?;
    let least = dollars(bound.total().0);
    let days = demand.seconds / 86_400.0;
    println!(
        "\n{}: {} pods in {days:.1} days; seeds 0 to {}; bound by {} in {:.1} s",
        workload.name,
        demand.pods.len(),
        seeds - 1,
        bound.method.solver,
        begun.elapsed().as_secs_f64()
    );
    println!(
        "{:<52} {:>8} {:>6} {:>7} {:>6} {:>5} {:>5} {:>5} {:>6} {:>8} {:>6} {:>6}",
        "policy", "USD", "sd", "x bound", "idle %", "p50", "p95", "p99", ">10m %", "launches", "flaps", "moves"
    );
    let one = |name: &str, usd: f64| println!("{name:<52} {usd:>8.0} {:>6} {:>7.3}", "", usd / least);
    one("lower bound", least);
    one("static fleet of the peak, ideal", dollars(bound.static_peak().0));
    one("static fleet, bought node by node", dollars(peers::static_peak(demand).0));
    let begun = Instant::now();
    let mut defaults = f64::INFINITY;
    for (name, policy) in peers::Policy::published() {
        let row = peer(demand, name, &policy, seeds)?;
        row.print(least);
        if policy == peers::Policy::autoscaler() {
            defaults = row.usd();
        }
        peer(demand, &format!("{name}, spreads"), &policy.spread(), seeds)?.print(least);
    }
    let took = begun.elapsed();
    let begun = Instant::now();
    let rows = ours(workload, seeds)?;
    for row in &rows {
        row.print(least);
    }
    println!("others took {:.1} s, Stoker {:.1} s", took.as_secs_f64(), begun.elapsed().as_secs_f64());
    let kept = rows.iter().all(|row| row.broken.is_empty());
    let above = rows.iter().all(|row| row.usd() > least);
    let below = rows.first().is_some_and(|row| row.usd() < defaults);
    let verdict = |holds: bool| if holds { "ok" } else { "FAIL" };
    println!("{} no promise was broken", verdict(kept));
    println!("{} nothing costs less than the bound", verdict(above));
    println!("{} Stoker costs less than Cluster Autoscaler by its defaults", verdict(below));
    Ok(kept && above && below)
}

fn main() -> Result<()> {
    let args = Args::parse();
    let seeds = if args.quick { 1 } else { args.seeds };
    let mut sound = true;
    let sold = args.types.as_deref().map_or_else(sold, read_types)?;
    for workload in workloads(&args, &sold)? {
        sound &= compare(&workload, seeds)?;
    }
    anyhow::ensure!(sound, "see FAIL above");
    Ok(())
}
