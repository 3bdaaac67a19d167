//! Before and after: pods that were there, played under policies and without Stoker, for a report.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use stoker_core::base::units::UsdMicros;
use stoker_journal::Place;
use stoker_service::price_tables::PriceTables;
use stoker_service::print::{Table, count};
use stoker_sim::model::Scoring;
use stoker_sim::simulate::outcome::Outcome;

use super::super::exit::CliError;
use super::baselines::{self, Baseline, dollars, mean, month_of};
use super::figures::{PolicyRow, Run, millionths, rounded};
use super::recorded::{self, Asked, Recorded};
use super::workload::Source;
use super::{BOOT, Played, Rules, SEEDS, Tried, duration, played};

/// What ran while the pods did.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Now {
    /// What it cost in the time that is played.
    pub(in crate::cli) paid: UsdMicros,
    /// Nodes, on average.
    pub(in crate::cli) nodes: f64,
    /// GPU-hours that GPUs worked in that time, where readings tell of all of it.
    pub(in crate::cli) worked_gpu_hours: Option<f64>,
}

/// The same pods under policies, and without Stoker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct BeforeAfter {
    /// What was played.
    workload: String,
    /// How long it was played, in seconds.
    seconds: f64,
    seeds: Vec<u64>,
    /// Nodes that there were, on average; left out where that is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<f64>,
    #[serde(skip)]
    worked_gpu_hours: Option<f64>,
    policies: Vec<After>,
    baselines: Vec<Baseline>,
    /// What was left out, and promises that were broken.
    notes: Vec<String>,
}

/// What a policy makes of the pods: means over the seeds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct After {
    policy: String,
    usd_per_month: f64,
    least_usd_per_month: f64,
    most_usd_per_month: f64,
    /// Nodes, on average over the time.
    nodes: f64,
    /// The most nodes at once, of all seeds.
    most_nodes: u32,
    gpu_hours: f64,
    /// Share of the GPU-hours in which no pod had the GPU.
    idle_percent: f64,
    wait_p95_seconds: f64,
}

impl After {
    fn of(row: &PolicyRow, outcomes: &[&Outcome], seconds: f64) -> Self {
        let month: Vec<f64> = row.runs.iter().map(|run| millionths(run.paid().0) * month_of(seconds)).collect();
        let nodes = |outcome: &Outcome| -> Vec<u32> { outcome.samples.iter().map(|of| of.nodes.values().sum()).collect() };
        let average = |outcome: &&Outcome| mean(&nodes(outcome).into_iter().map(f64::from).collect::<Vec<_>>());
        let over = |of: &dyn Fn(&&Outcome) -> f64| rounded(mean(&outcomes.iter().map(of).collect::<Vec<_>>()));
        Self {
            policy: row.policy.clone(),
            usd_per_month: rounded(mean(&month)),
            least_usd_per_month: rounded(month.iter().copied().fold(f64::INFINITY, f64::min)),
            most_usd_per_month: rounded(month.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            nodes: over(&average),
            most_nodes: outcomes.iter().flat_map(|outcome| nodes(outcome)).max().unwrap_or(0),
            // Seconds over 3,600, by way of millionths.
            gpu_hours: over(&|outcome| millionths(outcome.bill.gpu_seconds) * 1e6 / 3_600.0),
            idle_percent: over(&|outcome| outcome.idle_percent),
            wait_p95_seconds: rounded(mean(&row.runs.iter().map(Run::wait_p95_seconds).collect::<Vec<_>>())),
        }
    }
}

impl BeforeAfter {
    /// Plays the pods that a journal has of a time.
    ///
    /// # Errors
    /// When the journal has none, or none can be played.
    pub(in crate::cli) async fn of_journal(
        policies: &[Tried],
        place: Place,
        (since, until): (Timestamp, Timestamp),
        tables: &PriceTables,
        notes: Vec<String>,
    ) -> Result<Self, CliError> {
        let asked = Asked { since: Some(since), until: Some(until), days: None };
        let recorded = recorded::read(place, &asked).await?;
        Self::of(policies, recorded, None, tables, notes)
    }

    /// Plays pods under policies and without Stoker.
    ///
    /// # Errors
    /// When none can be played.
    pub(in crate::cli) fn of(
        policies: &[Tried],
        recorded: Recorded,
        now: Option<Now>,
        tables: &PriceTables,
        mut notes: Vec<String>,
    ) -> Result<Self, CliError> {
        let boot = duration(BOOT).unwrap_or(SignedDuration::ZERO);
        let rules = Rules { scoring: Scoring::MostAllocated, boot, no_stock: 0, baselines: true };
        let seeds: Vec<u64> = (1..=SEEDS.into()).collect();
        let Played { demands, outcomes, rows, mut baselines, notes: of_runs } =
            played(policies, &Source::Journal(recorded), None, &seeds, &rules, tables)?;
        notes.extend(of_runs);
        let seconds = demands.seconds;
        if let Some(now) = now {
            baselines.insert(0, Baseline::as_it_was(now.paid, &rows, seconds));
        }
        let after = |(at, row): (usize, &PolicyRow)| {
            let of_policy = demands.of_runs.iter().zip(&outcomes).filter(|(of, _)| of.policy == at);
            After::of(row, &of_policy.map(|(_, outcome)| outcome).collect::<Vec<_>>(), seconds)
        };
        Ok(Self {
            workload: demands.shown,
            seconds,
            seeds,
            nodes: now.map(|now| rounded(now.nodes)),
            worked_gpu_hours: now.and_then(|now| now.worked_gpu_hours),
            policies: rows.iter().enumerate().map(after).collect(),
            baselines,
            notes,
        })
    }

    /// What it comes to, in sentences.
    pub(in crate::cli) fn sentences(&self) -> Vec<String> {
        let Some(after) = self.policies.first() else { return Vec::new() };
        let mut said = Vec::new();
        let before = self.baselines.first();
        let saved = before.and_then(|before| Some((before.usd_per_month(self.seconds), before.saves().next()?)));
        let than = if self.nodes.is_some() { "" } else { " on a static fleet of the peak" };
        let money = saved.map(|(paid, (saved, least, most))| {
            format!(
                "{} a month instead of {}{than}, {} saved ({}..{} over {})",
                dollars(after.usd_per_month),
                dollars(paid),
                dollars(saved),
                dollars(least),
                dollars(most),
                count(self.seeds.len(), "seed")
            )
        });
        match (self.nodes, money) {
            (Some(nodes), Some(money)) => {
                said.push(format!("{nodes:.0} nodes now, {:.0} would do: {money}", after.nodes));
                let room = format!("{:.1} on average, {} at most", after.nodes, after.most_nodes);
                let used = self.worked_gpu_hours.filter(|_| after.gpu_hours > 0.0).map_or_else(String::new, |worked| {
                    format!("; the same work keeps their GPUs busy for {:.1} % of the time", 100.0 * worked / after.gpu_hours)
                });
                said.push(format!("The {:.0} nodes: {room}{used}", after.nodes));
            }
            (None, Some(money)) => said.push(format!("With {}: {money}", after.policy)),
            (_, None) => {}
        }
        said
    }

    /// The policies, and what they are compared with.
    pub(in crate::cli) fn grids(&self) -> Vec<Table> {
        let row = |of: &After| {
            vec![
                of.policy.clone(),
                dollars(of.usd_per_month),
                format!("{}..{}", dollars(of.least_usd_per_month), dollars(of.most_usd_per_month)),
                format!("{:.1}", of.nodes),
                of.most_nodes.to_string(),
                format!("{:.0} %", of.idle_percent),
                format!("{:.0} s", of.wait_p95_seconds),
            ]
        };
        let header = ["PLAYED", "A MONTH", "LEAST..MOST", "NODES", "AT MOST", "IDLE", "WAIT P95"];
        let policies = Table {
            caption: format!("Played: {}", self.workload),
            header: header.map(str::to_owned).to_vec(),
            numbers: 1..6,
            rows: self.policies.iter().map(row).collect(),
        };
        let baselines = (!self.baselines.is_empty()).then(|| baselines::grid(&self.baselines));
        std::iter::once(policies).chain(baselines).collect()
    }

    /// What to know of it: what was left out, and what is assumed.
    pub(in crate::cli) fn notes(&self) -> Vec<(&'static str, String)> {
        let notes = self.notes.iter().map(|note| ("note", note.clone()));
        let assumed = (!self.baselines.is_empty()).then(|| ("assumed", baselines::explained(self.seeds.len())));
        notes.chain(assumed).collect()
    }
}
