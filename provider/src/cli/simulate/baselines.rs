//! What the same pods cost without Stoker, and what each policy saves of that.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use stoker_advice::estimate::MONTH;
use stoker_core::base::units::UsdMicros;
use stoker_service::print::{Table, count};
use stoker_sim::bound::fleet::Method;
use stoker_sim::demand::Demand;
use stoker_sim::peers::Report;
use stoker_sim::simulate::Setup;
use stoker_sim::simulate::baselines::{demand, play, played, static_fleet};

use super::super::exit::CliError;
use super::figures::{PolicyRow, millionths, rounded};

/// The fleet that holds the peak all the time.
const STATIC: &str = "static fleet of the peak";

/// A baseline.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Baseline {
    #[serde(rename = "baseline")]
    name: &'static str,
    /// Means over the seeds.
    paid_usd: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_p95_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launches: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flaps: Option<f64>,
    /// By each policy.
    saved: Vec<Saved>,
}

/// What a policy saves of what a baseline costs; below zero where it costs more.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Saved {
    policy: String,
    percent: f64,
    /// In a month of 730 hours: the mean over the seeds, and the seeds that save least and most.
    usd_per_month: f64,
    least_usd_per_month: f64,
    most_usd_per_month: f64,
}

/// A run of a baseline.
struct Run {
    paid: UsdMicros,
    report: Option<Report>,
}

/// Plays the baselines on the pods of the first policy's runs; `None` where its pools share GPUs.
pub(super) fn baselines(setups: &[&Setup], policies: &[PolicyRow], seconds: f64) -> Result<Option<Vec<Baseline>>, CliError> {
    let method = Method::default();
    let mut runs: BTreeMap<&'static str, Vec<Run>> = BTreeMap::new();
    // Of a file all seeds have the same pods, and one fleet holds them.
    let mut fleets: Vec<(&Arc<Demand>, UsdMicros)> = Vec::new();
    for setup in setups {
        let Some(of) = demand(&setup.catalogue, &setup.demand) else { return Ok(None) };
        let paid = match fleets.iter().find(|(known, _)| Arc::ptr_eq(known, &setup.demand)) {
            Some((_, paid)) => *paid,
            None => static_fleet(&of, &method).map_err(CliError::other)?,
        };
        fleets.push((&setup.demand, paid));
        runs.entry(STATIC).or_default().push(Run { paid, report: None });
        for (name, policy) in played() {
            let report = play(&of, &policy, setup.seed, &setup.world.boot).map_err(CliError::other)?;
            runs.entry(name).or_default().push(Run { paid: report.usd, report: Some(report) });
        }
    }
    let names = [STATIC].into_iter().chain(played().map(|(name, _)| name));
    let baseline = |name: &'static str| Some(Baseline::of(name, runs.get(name)?, policies, seconds));
    Ok(Some(names.filter_map(baseline).collect()))
}

impl Baseline {
    /// What ran when the pods did, and what that cost; nobody tells how long pods waited for it.
    pub(super) fn as_it_was(paid: UsdMicros, policies: &[PolicyRow], seconds: f64) -> Self {
        let seeds = policies.first().map_or(0, |row| row.runs.len());
        let runs: Vec<Run> = (0..seeds).map(|_| Run { paid, report: None }).collect();
        Self::of("what ran", &runs, policies, seconds)
    }

    /// By each policy, what it saves a month: the mean over the seeds, the least and the most.
    pub(super) fn saves(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.saved.iter().map(|of| (of.usd_per_month, of.least_usd_per_month, of.most_usd_per_month))
    }

    /// What it costs in a month of the kind that was played.
    pub(super) fn usd_per_month(&self, seconds: f64) -> f64 {
        rounded(self.paid_usd * month_of(seconds))
    }

    fn of(name: &'static str, runs: &[Run], policies: &[PolicyRow], seconds: f64) -> Self {
        let figure = |of: fn(&Report) -> f64| {
            let figures: Option<Vec<f64>> = runs.iter().map(|run| run.report.as_ref().map(of)).collect();
            figures.map(|figures| rounded(mean(&figures)))
        };
        let paid: Vec<f64> = runs.iter().map(|run| millionths(run.paid.0)).collect();
        let saved = |row: &PolicyRow| {
            let each: Vec<f64> = row.runs.iter().zip(&paid).map(|(run, paid)| paid - millionths(run.paid().0)).collect();
            let month = |saved: f64| rounded(saved * month_of(seconds));
            let all = mean(&paid);
            Saved {
                policy: row.policy.clone(),
                percent: rounded(if all > 0.0 { 100.0 * mean(&each) / all } else { 0.0 }),
                usd_per_month: month(mean(&each)),
                least_usd_per_month: month(each.iter().copied().fold(f64::INFINITY, f64::min)),
                most_usd_per_month: month(each.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            }
        };
        Self {
            name,
            paid_usd: rounded(mean(&paid)),
            idle_percent: figure(Report::idle_percent),
            wait_p95_seconds: figure(|report| report.waits.p95),
            launches: figure(|report| number(report.launches)),
            flaps: figure(|report| number(report.flaps)),
            saved: policies.iter().map(saved).collect(),
        }
    }
}

/// How many times what was played goes into a month.
pub(super) fn month_of(seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "hours of a month")]
    let month = MONTH as f64 * 3600.0;
    if seconds > 0.0 { month / seconds } else { 0.0 }
}

pub(super) fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / number(of.len().max(1))
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// A row a baseline and policy.
pub(super) fn grid(baselines: &[Baseline]) -> Table {
    const HEADER: [&str; 9] = ["BASELINE", "PAID", "IDLE", "WAIT P95", "LAUNCHES", "SAVED", "A MONTH", "LEAST..MOST", "BY"];
    let known = |value: Option<f64>, unit: &str| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}{unit}"));
    let rows = baselines.iter().flat_map(|of| {
        of.saved.iter().map(move |saved| {
            vec![
                of.name.to_owned(),
                format!("${:.2}", of.paid_usd),
                known(of.idle_percent, " %"),
                known(of.wait_p95_seconds, " s"),
                known(of.launches, ""),
                format!("{:.1} %", saved.percent),
                dollars(saved.usd_per_month),
                format!("{}..{}", dollars(saved.least_usd_per_month), dollars(saved.most_usd_per_month)),
                saved.policy.clone(),
            ]
        })
    });
    Table {
        caption: "The same pods without Stoker, and what it saves of that".to_owned(),
        header: HEADER.map(str::to_owned).to_vec(),
        numbers: 1..8,
        rows: rows.collect(),
    }
}

pub(super) fn dollars(usd: f64) -> String {
    if usd < 0.0 { format!("-${:.0}", -usd) } else { format!("${usd:.0}") }
}

/// What is said where there are none.
pub(super) fn none(policy: &str) -> String {
    format!("no baselines: pools of {policy} share GPUs, and baselines hold whole ones")
}

/// What baselines are, below their table.
pub(super) fn explained(seeds: usize) -> String {
    format!(
        "Baselines run the same pods on the on-demand types of the first policy's pools: at least what the cheapest fleet that holds the peak costs all the \
         time, Cluster Autoscaler and Karpenter by their defaults and published rules. A month has {MONTH} hours like those played; least \
         and most are over {}.",
        count(seeds, "seed")
    )
}
