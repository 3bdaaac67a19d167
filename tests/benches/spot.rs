//! A month of training jobs on spot that comes and goes, in three good zones of one region: what Stoker pays behind a stock autoscaler,
//! beside always on demand, spot only and spot with a sticky fallback, over the least that the work can cost; and how late the jobs are.
//! In virtual time, from seeds: the same figures each time, on every machine.

#![expect(clippy::cast_precision_loss, reason = "counts and micro-dollars here are far below 2^52")]

mod common {
    pub(crate) mod report;
}

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use common::report::{Report, is_short};
use jiff::SignedDuration;
use stoker_core::base::units::UsdMicros;
use stoker_sim::model::Settings;
use stoker_sim::spot_month::accounts::Accounts;
use stoker_sim::spot_month::availability::{GOOD, GOOD_APART, ZoneLaw};
use stoker_sim::spot_month::baseline::Baseline;
use stoker_sim::spot_month::jobs::Saving;
use stoker_sim::spot_month::{Month, Outcome, policy, stoker};

const SEEDS: usize = 6;
const DAYS: i64 = 30;
/// Of the short form.
const SHORT_SEEDS: usize = 2;
const SHORT_DAYS: i64 = 7;
/// GPUs that the jobs use on average.
const LOAD: f64 = 60.0;

/// What is played: who buys, and how the jobs save their work.
const ROWS: [(&str, Buyer, Saving, &ZoneLaw); 9] = [
    ("always on demand", Buyer::Other(Baseline::OnDemand), DEFAULT, &GOOD),
    ("spot only", Buyer::Other(Baseline::SpotOnly), DEFAULT, &GOOD),
    ("spot, sticky fallback", Buyer::Other(Baseline::Sticky), DEFAULT, &GOOD),
    ("Stoker", Buyer::Stoker, DEFAULT, &GOOD),
    ("Stoker, checkpoint every 15 min", Buyer::Stoker, saving(15, 120), &GOOD),
    ("Stoker, every 15 min, restart 60 s", Buyer::Stoker, saving(15, 60), &GOOD),
    ("zones apart: sticky fallback", Buyer::Other(Baseline::Sticky), DEFAULT, &GOOD_APART),
    ("zones apart: Stoker", Buyer::Stoker, DEFAULT, &GOOD_APART),
    ("zones apart: every 15 min, 60 s", Buyer::Stoker, saving(15, 60), &GOOD_APART),
];

/// The rows that the bars are for.
const NAMED: [usize; 4] = [3, 5, 7, 8];

/// A checkpoint every 30 min and a restart of 120 s.
const DEFAULT: Saving = saving(30, 120);

const fn saving(checkpoint: i64, restart: i64) -> Saving {
    Saving { checkpoint: SignedDuration::from_mins(checkpoint), restart: SignedDuration::from_secs(restart) }
}

#[derive(Debug, Clone, Copy)]
enum Buyer {
    Other(Baseline),
    Stoker,
}

/// One row played on one seed.
struct Played {
    row: usize,
    /// The least that the work can cost, in micro-dollars.
    bound: f64,
    /// Its cost over the bound.
    ratio: f64,
    late_percent: f64,
    outcome: Outcome,
}

fn main() -> Result<()> {
    let mut report = Report::new("spot");
    let begun = Instant::now();
    let (seeds, days) = if is_short() { (SHORT_SEEDS, SHORT_DAYS) } else { (SEEDS, DAYS) };
    let played = play_all(seeds, days)?;
    println!(
        "{seeds} seeds of {days} days, {LOAD} GPUs on average, three zones of us-west-2; means, and from the least to the most\n"
    );
    println!(
        "{:<36} {:>20} {:>20} {:>8} {:>8} {:>8} {:>8}",
        "", "cost × bound", "late, %", "stopped", "moved", "lost h", "no spot"
    );
    for (row, (name, _, _, _)) in ROWS.iter().enumerate() {
        let of_row: Vec<&Played> = played.iter().filter(|played| played.row == row).collect();
        let mean = |of: fn(&Played) -> f64| of_row.iter().map(|played| of(played)).sum::<f64>() / of_row.len() as f64;
        println!(
            "{name:<36} {:>20} {:>20} {:>8.0} {:>8.0} {:>8.0} {:>7.0}%",
            spread(&of_row, |played| played.ratio, 3),
            spread(&of_row, |played| played.late_percent, 2),
            mean(|played| played.outcome.stopped as f64),
            mean(|played| played.outcome.moved as f64),
            mean(|played| played.outcome.lost_gpu_hours as f64),
            mean(|played| 100.0 * played.outcome.bill.no_spot.0 as f64 / played.outcome.bill.total().0 as f64),
        );
    }
    where_it_went(&played);
    println!(
        "\nstopped: runs that a reclaim ended; lost h: GPU-hours of work not saved by then; no spot: share of the bill that was"
    );
    println!(
        "paid on demand while no zone had spot. Late: a job took 1.25 × its work and ten minutes more. Zones apart: 0.43 is the"
    );
    println!(
        "correlation of the zones' draws, not of their availability as measured. Played in {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    for row in NAMED {
        let of_row: Vec<&Played> = played.iter().filter(|played| played.row == row).collect();
        let mean = |of: fn(&Played) -> f64| of_row.iter().map(|played| of(played)).sum::<f64>() / of_row.len() as f64;
        let (ratio, late) = (mean(|played| played.ratio), mean(|played| played.late_percent));
        let name = ROWS.get(row).map_or("", |(name, ..)| name);
        report.judge(&format!("{name}: cost"), ratio, "× the bound", "≤ 1.20", ratio <= 1.20);
        report.judge(&format!("{name}: late"), late, "%", "≤ 2.5 %", late <= 2.5);
        report.ratio(&format!("row-{row}"), ratio);
    }
    let broken: usize = played.iter().map(|played| played.outcome.broken.len()).sum();
    report.judge("broken promises, of all rows", broken as f64, "", "0", broken == 0);
    report.print();
    Ok(())
}

/// Where Stoker's bills went, in percent of the bound. That boots too, and nothing of it is idle, free or done again.
fn where_it_went(played: &[Played]) {
    type Account = fn(&Accounts) -> UsdMicros;
    const ACCOUNTS: [(&str, Account); 8] = [
        ("boots", |all| all.boots),
        ("idle", |all| all.idle),
        ("free GPUs", |all| all.free_gpus),
        ("restarts", |all| all.restarts),
        ("on spot", |all| all.on_spot),
        ("no spot", |all| all.no_spot),
        ("no room", |all| all.no_room),
        ("with room", |all| all.with_room),
    ];
    print!("\n{:<36}", "% of the bound");
    for (name, _) in ACCOUNTS {
        print!(" {name:>9}");
    }
    println!();
    for (row, (name, buyer, _, _)) in ROWS.iter().enumerate() {
        if !matches!(buyer, Buyer::Stoker) {
            continue;
        }
        print!("{name:<36}");
        for (_, of) in ACCOUNTS {
            let of_row = played.iter().filter(|played| played.row == row);
            let share = |played: &Played| Some(100.0 * of(played.outcome.accounts.as_ref()?).0 as f64 / played.bound);
            let shares: Vec<f64> = of_row.filter_map(share).collect();
            print!(" {:>9.1}", shares.iter().sum::<f64>() / shares.len() as f64);
        }
        println!();
    }
    println!("no spot, no room, with room: work on demand while no zone had spot, zones had it and were full, or one had room");
}

/// The months of all seeds, each with its bound, which takes as long as to play one.
fn months(zone_law: &ZoneLaw, seeds: usize, days: i64) -> Vec<(Month, f64)> {
    let draw = |seed| {
        let month = Month::draw(seed as u64, days, LOAD, zone_law);
        let bound = month.bound().0 as f64;
        (month, bound)
    };
    std::thread::scope(|scope| {
        let drawn: Vec<_> = (1..=seeds).map(|seed| scope.spawn(move || draw(seed))).collect();
        drawn.into_iter().filter_map(|month| month.join().ok()).collect()
    })
}

/// Plays every row on every seed, on all cores.
fn play_all(seeds: usize, days: i64) -> Result<Vec<Played>> {
    let (good, apart) = (months(&GOOD, seeds, days), months(&GOOD_APART, seeds, days));
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (row, seed) = (n / seeds, n % seeds);
            let Some((_, buyer, saving, zone_law)) = ROWS.get(row) else { return Ok(()) };
            let months = if *zone_law == &GOOD { &good } else { &apart };
            let Some((month, bound)) = months.get(seed) else { return Ok(()) };
            let outcome = match buyer {
                Buyer::Other(baseline) => month.baseline(*baseline, *saving),
                Buyer::Stoker => stoker::replay(month, &policy(*saving)?, Settings::recommended(), *saving)?,
            };
            let ratio = outcome.bill.total().0 as f64 / bound;
            let late_percent = outcome.late_ppm as f64 / 10_000.0;
            done.lock().unwrap_or_else(PoisonError::into_inner).push(Played {
                row,
                bound: *bound,
                ratio,
                late_percent,
                outcome,
            });
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a replay panicked"))))
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn spread(played: &[&Played], of: fn(&Played) -> f64, digits: usize) -> String {
    let mut all: Vec<f64> = played.iter().map(|played| of(played)).collect();
    all.sort_by(f64::total_cmp);
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    match (all.first(), all.last()) {
        (Some(least), Some(most)) => format!("{mean:.digits$} ({least:.digits$} to {most:.digits$})"),
        _ => String::new(),
    }
}
