//! Training jobs on spot that comes and goes, in three zones of one region, and in zones that have it more independently.

use anyhow::{Context as _, Result};
use jiff::SignedDuration;
use stoker_core::base::units::{Milli, UsdMicros};
use stoker_sim::demand::{Demand, InstanceType, Pod, Resources, Service};
use stoker_sim::model::Settings;
use stoker_sim::peers::{self, Boots, Looks, Market, Policy, SpotPool};
use stoker_sim::spot_month::availability::{GOOD, GOOD_APART};
use stoker_sim::spot_month::cloud::{SHAPES, SPOT_MILLI, ZONE_GPUS};
use stoker_sim::spot_month::jobs::Saving;
use stoker_sim::spot_month::{Month, Outcome, policy, stoker};

use crate::report::{Report, Table};
use crate::table::{self, dollars, mean};

/// GPUs that the jobs use on average.
const LOAD: f64 = 60.0;
/// Seconds of a step of a market's room.
const STEP: i64 = 60;
/// A job is late when it took a quarter longer than its work and ten minutes more.
const SLACK: f64 = 0.25;
/// Of the days of a month, so many more are watched: the longest job, and whoever lets it wait.
const AFTERWARDS: f64 = 10.0;

/// Who buys.
enum Buyer {
    Peer(Policy),
    Stoker,
}

const fn saving(checkpoint: i64, restart: i64) -> Saving {
    Saving { checkpoint: SignedDuration::from_mins(checkpoint), restart: SignedDuration::from_secs(restart) }
}

/// A checkpoint every 30 min and a restart of 120 s.
const USUAL: Saving = saving(30, 120);
/// Every 15 min, and 60 s.
const QUICK: Saving = saving(15, 60);

/// The same policy, with on-demand nodes left as soon as a zone has spot: a moved job starts again after the usual restart.
fn returning(policy: Policy) -> Policy {
    policy.with_return(Looks::OnDemandNodes, 0.0, USUAL.restart.as_secs_f64())
}

/// What a row shows of a run.
#[derive(Clone, Copy)]
struct Figures {
    usd: f64,
    ratio: f64,
    late_percent: f64,
    interrupted: f64,
}

/// The table.
pub(crate) fn compare(seeds: u64, days: u32, report: &mut Report) -> Result<()> {
    report.line(&format!("\ntraining on spot: jobs of {days} days, {LOAD:.0} GPUs on average; {seeds} seeds"))?;
    report.line("others: a job that lost its node starts again at once, without a restart")?;
    report.line(&format!("{:<52} {:>8} {:>7} {:>7} {:>11}", "policy", "USD", "x bound", "late %", "interrupted"))?;
    let mut tables = Vec::new();
    for (place, zone_law) in [("", &GOOD), ("zones apart: ", &GOOD_APART)] {
        let months: Vec<Month> = (0..seeds).map(|seed| Month::draw(seed, i64::from(days), LOAD, zone_law)).collect();
        let bounds: Vec<f64> = months.iter().map(|month| dollars(month.bound())).collect();
        let least = mean(bounds.iter().copied());
        report.line(&format!("{:<52} {least:>8.0} {:>7.3}", format!("{place}lower bound"), 1.0))?;
        let mut columns = Table::new(&[&format!("{place}× bound"), "late %"]);
        let mut row = |name: &str, buyer: &Buyer, saving: Saving| -> Result<f64> {
            let runs = months.iter().zip(&bounds).map(|(month, bound)| played(month, *bound, buyer, saving, report));
            let runs = runs.collect::<Result<Vec<_>>>()?;
            let of = |value: fn(&Figures) -> f64| mean(runs.iter().map(value));
            let ratio = of(|run| run.ratio);
            let late = of(|run| run.late_percent);
            columns.row(name, &[table::ratio(ratio), format!("{late:.2}")]);
            report.line(&format!(
                "{:<52} {:>8.0} {ratio:>7.3} {late:>7.2} {:>11.0}",
                format!("{place}{name}"),
                of(|run| run.usd),
                of(|run| run.interrupted),
            ))?;
            Ok(ratio)
        };
        row("always on demand", &Buyer::Peer(Policy::own_choice(300.0)), USUAL)?;
        row("spot only", &Buyer::Peer(Policy::spot_only()), USUAL)?;
        let sticky = row("spot, sticky fallback", &Buyer::Peer(Policy::sticky_fallback()), USUAL)?;
        row("spot, leaves the fallback at once", &Buyer::Peer(returning(Policy::sticky_fallback())), USUAL)?;
        row("uniform progress, 10 boots to spare", &Buyer::Peer(Policy::uniform_progress(10.0)), USUAL)?;
        row("uniform progress, leaves the fallback at once", &Buyer::Peer(returning(Policy::uniform_progress(10.0))), USUAL)?;
        let ours = row("Stoker, checkpoint every 30 min", &Buyer::Stoker, USUAL)?;
        row("Stoker, every 15 min, restart 60 s", &Buyer::Stoker, QUICK)?;
        report.verdict(ours < sticky, &format!("{place}Stoker costs less than a sticky fallback"))?;
        tables.push(columns);
    }
    report.keep_table("training", &Table::side_by_side(tables))
}

fn played(month: &Month, bound: f64, buyer: &Buyer, saving: Saving, report: &mut Report) -> Result<Figures> {
    let outcome = match buyer {
        Buyer::Stoker => {
            stoker::replay(month, &policy(saving)?, Settings::recommended(), saving).context("a month of Stoker")?
        }
        Buyer::Peer(policy) => return peer(month, bound, policy, saving),
    };
    outcome.broken.iter().try_for_each(|broken| report.broken(broken))?;
    Ok(Figures::of(&outcome, bound))
}

#[expect(clippy::cast_precision_loss, reason = "counts of jobs")]
impl Figures {
    fn of(outcome: &Outcome, bound: f64) -> Self {
        let usd = dollars(outcome.bill.total());
        let late_percent = outcome.late_ppm as f64 / 10_000.0;
        Self { usd, ratio: usd / bound, late_percent, interrupted: outcome.stopped as f64 }
    }
}

/// A month under a policy of others, in the same zones.
#[expect(clippy::cast_precision_loss, reason = "counts of jobs, and seconds of months")]
fn peer(month: &Month, bound: f64, policy: &Policy, saving: Saving) -> Result<Figures> {
    let last = month.jobs.last().map_or(0, |job| job.arrives) as f64;
    let seconds = last + AFTERWARDS * 86_400.0;
    let types = SHAPES.iter().map(|shape| InstanceType {
        name: shape.name.to_owned(),
        model: "V100".to_owned(),
        allocatable: Resources { gpus: shape.gpus, milli_cpu: shape.vcpus * 1000, memory_mib: 1024 * 61 * shape.gpus },
        hourly: UsdMicros(shape.on_demand.0),
    });
    let pods = month.jobs.iter().enumerate().map(|(number, job)| Pod {
        name: format!("job-{number}"),
        arrives: job.arrives as f64,
        runs: job.work as f64,
        requests: Resources { gpus: job.gpus, milli_cpu: 6_000 * job.gpus, memory_mib: 50_000 * job.gpus },
        gpu_milli: 1000,
        models: Vec::new(),
        service: Service::BestEffort,
        pool: None,
    });
    let demand = Demand { types: types.collect(), pods: pods.collect(), seconds };
    let pools = SPOT_MILLI.iter().enumerate().map(|(zone, price)| SpotPool {
        name: format!("zone {zone}"),
        types: Vec::new(),
        price: Milli(u32::try_from(*price).unwrap_or(1000)),
        step_seconds: STEP as f64,
        room: (0..i64::MAX / STEP)
            .map(|step| step * STEP)
            .take_while(|at| (*at as f64) < seconds)
            .map(|at| room(month, zone, at))
            .collect(),
    });
    let market =
        Market::seeded(pools.collect(), month.seed).with_checkpoints(saving.checkpoint.as_secs_f64()).with_slack(SLACK);
    let report = peers::replay_with_spot(&demand, policy, Boots::seeded(month.seed), market)?;
    let usd = dollars(report.usd);
    Ok(Figures { usd, ratio: usd / bound, late_percent: report.late_percent, interrupted: report.interruptions as f64 })
}

fn room(month: &Month, zone: usize, at: i64) -> u32 {
    if month.availability.is_open(zone, at) { ZONE_GPUS } else { 0 }
}
