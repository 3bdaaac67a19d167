//! Tables of policies: a row each, with its means over all seeds.

use anyhow::Result;
use stoker_core::base::units::{Milli, UsdMicros};
use stoker_sim::peers::{self, commit};
use stoker_sim::simulate::outcome::Outcome;

use crate::report::Report;

/// What a commitment costs of its on-demand value: assumed, near what a reserved p3.2xlarge costs for a year (1.82 of 3.06 dollars).
pub(crate) const COMMITTED: Milli = Milli(620);

/// What a table shows of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) usd: f64,
    /// With the commitment that the first week's cost suggests.
    pub(crate) committed: f64,
    pub(crate) idle_percent: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    /// Percent of the pods that waited for ten minutes.
    pub(crate) long_percent: f64,
    pub(crate) launches: f64,
    pub(crate) flaps: f64,
    /// Nodes bought within 15 min after one of their type went, with no more demand; not counted of others.
    pub(crate) again: f64,
    pub(crate) moves: f64,
    /// Nodes given up before they were Ready; not counted of others, which wait for every boot.
    pub(crate) unready: f64,
}

#[expect(clippy::cast_precision_loss, reason = "counts of nodes and pods")]
impl Figures {
    pub(crate) fn of_peer(report: &peers::Report) -> Self {
        Self {
            usd: dollars(report.usd),
            committed: dollars(report.commit(COMMITTED).total),
            idle_percent: report.idle_percent(),
            p50: report.waits.p50,
            p95: report.waits.p95,
            p99: report.waits.p99,
            long_percent: report.waits.long_percent,
            launches: report.launches as f64,
            flaps: report.flaps as f64,
            again: f64::NAN,
            moves: report.moves as f64,
            unready: f64::NAN,
        }
    }

    pub(crate) fn of_stoker(outcome: &Outcome) -> Self {
        let usd = outcome.total();
        Self {
            usd: dollars(usd),
            committed: dollars(commit(&hourly(outcome), usd, COMMITTED).total),
            idle_percent: outcome.idle_percent,
            p50: outcome.waits.p50,
            p95: outcome.waits.p95,
            p99: outcome.waits.p99,
            long_percent: outcome.waits.over_ten_minutes_percent,
            launches: outcome.fates.launches as f64,
            flaps: outcome.fates.flaps as f64,
            again: outcome.bought_again as f64,
            moves: outcome.interruptions as f64,
            unready: outcome.fates.given_up as f64,
        }
    }

    fn mean(runs: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| mean(runs.iter().map(value));
        Self {
            usd: of(|run| run.usd),
            committed: of(|run| run.committed),
            idle_percent: of(|run| run.idle_percent),
            p50: of(|run| run.p50),
            p95: of(|run| run.p95),
            p99: of(|run| run.p99),
            long_percent: of(|run| run.long_percent),
            launches: of(|run| run.launches),
            flaps: of(|run| run.flaps),
            again: of(|run| run.again),
            moves: of(|run| run.moves),
            unready: of(|run| run.unready),
        }
    }
}

/// What the nodes of each hour cost, by samples that are the same time apart.
fn hourly(outcome: &Outcome) -> Vec<UsdMicros> {
    let mut hours: Vec<(i64, i64)> = Vec::new();
    for sample in &outcome.samples {
        let Ok(hour) = usize::try_from(sample.at / 3600) else { continue };
        hours.resize(hours.len().max(hour + 1), (0, 0));
        if let Some((total, samples)) = hours.get_mut(hour) {
            *total += sample.hourly.0;
            *samples += 1;
        }
    }
    hours.into_iter().map(|(total, samples)| UsdMicros(total / samples.max(1))).collect()
}

/// One policy, over all seeds.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) runs: Vec<Figures>,
    /// Promises that were broken.
    pub(crate) broken: Vec<String>,
}

impl Row {
    pub(crate) fn of_peers(name: &str, reports: &[peers::Report]) -> Self {
        Self { name: name.to_owned(), runs: reports.iter().map(Figures::of_peer).collect(), broken: Vec::new() }
    }

    pub(crate) fn of_stoker(name: &str, outcomes: &[Outcome]) -> Self {
        Self {
            name: name.to_owned(),
            runs: outcomes.iter().map(Figures::of_stoker).collect(),
            broken: outcomes.iter().filter_map(broken).collect(),
        }
    }

    pub(crate) fn means(&self) -> Figures {
        Figures::mean(&self.runs)
    }

    pub(crate) fn print(&self, report: &mut Report, least: f64, committed: f64) -> Result<()> {
        let means = self.means();
        let squares: f64 = self.runs.iter().map(|run| (run.usd - means.usd).powi(2)).sum();
        #[expect(clippy::cast_precision_loss, reason = "runs are few")]
        let deviation = (squares / self.runs.len().saturating_sub(1).max(1) as f64).sqrt();
        let (again, unready) = (known(means.again), known(means.unready));
        report.line(&format!(
            "{:<46} {:>7.0} {deviation:>5.0} {:>7.3} {:>7.3} {:>6.1} {:>4.0} {:>4.0} {:>4.0} {:>6.2} {:>8.0} {:>6.0} {again:>5} {unready:>7} {:>6.0}",
            self.name,
            means.usd,
            means.usd / least,
            means.committed / committed,
            means.idle_percent,
            means.p50,
            means.p95,
            means.p99,
            means.long_percent,
            means.launches,
            means.flaps,
            means.moves,
        ))?;
        self.broken.iter().try_for_each(|broken| report.broken(broken))?;
        Ok(())
    }
}

/// A count; nothing where it is unknown.
pub(crate) fn known(count: f64) -> String {
    if count.is_nan() { String::new() } else { format!("{count:.0}") }
}

/// Promises that a run broke.
pub(crate) fn broken(outcome: &Outcome) -> Option<String> {
    outcome.violations.any().then(|| format!("{:?}", outcome.violations))
}

/// The line above the rows.
pub(crate) fn head(report: &mut Report) -> Result<()> {
    Ok(report.line(&format!(
        "{:<46} {:>7} {:>5} {:>7} {:>7} {:>6} {:>4} {:>4} {:>4} {:>6} {:>8} {:>6} {:>5} {:>7} {:>6}",
        "policy",
        "USD",
        "sd",
        "x bound",
        "commit",
        "idle %",
        "p50",
        "p95",
        "p99",
        ">10m %",
        "launches",
        "flaps",
        "again",
        "unready",
        "moves"
    ))?)
}

/// A line that has a cost alone.
pub(crate) fn cost(report: &mut Report, name: &str, usd: f64, least: f64) -> Result<()> {
    Ok(report.line(&format!("{name:<46} {usd:>7.0} {:>5} {:>7.3}", "", usd / least))?)
}

#[expect(clippy::cast_precision_loss, reason = "a few seeds")]
pub(crate) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[expect(clippy::cast_precision_loss, reason = "amounts here are far below 2^52")]
pub(crate) fn dollars(micros: UsdMicros) -> f64 {
    micros.0 as f64 / 1e6
}

/// With three decimals.
pub(crate) fn ratio(of: f64) -> String {
    format!("{of:.3}")
}
