//! What a simulation found, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;
use stoker_core::base::units::UsdMicros;
use stoker_sim::model::Scoring;
use stoker_sim::simulate::outcome::{Outcome, Violations};

use super::super::out::{Money, text_of};
use super::baselines::{self, Baseline};
use stoker_service::print::{count, paragraph, table, wrapped};

/// Work that may be left to do at the end where the bill is compared with the bound, in millionths.
const MOST_UNDONE_PPM: i64 = 10_000;

/// Policies that a table has next to each other; more go below.
const ACROSS: usize = 3;

/// All that was played.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// What arrived.
    workload: String,
    /// How long it was played, in seconds.
    seconds: f64,
    scoring: &'static str,
    seeds: Vec<u64>,
    policies: Vec<PolicyRow>,
    /// What the same pods cost without Stoker, where that is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    baselines: Vec<Baseline>,
    /// What was left out, and promises that were broken.
    notes: Vec<String>,
}

/// What came of a policy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyRow {
    /// What it is called.
    pub(super) policy: String,
    /// Each figure over the runs.
    summary: Vec<Spread>,
    /// One a seed.
    pub(super) runs: Vec<Run>,
}

/// A figure over the runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spread {
    figure: &'static str,
    unit: &'static str,
    mean: f64,
    /// Of the sample; left out for one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    standard_deviation: Option<f64>,
    /// How many runs have the figure.
    runs: usize,
}

/// What came of a policy with a seed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    seed: u64,
    /// Pods that came.
    pods: usize,
    /// Pods that were done at the end.
    finished: usize,
    /// Pods that waited at the end.
    waiting: u64,
    paid: Money,
    reserved: Money,
    on_demand: Money,
    spot: Money,
    /// The least that any fleet of the policy could pay; `None` where the bound does not apply.
    at_least: Option<Money>,
    /// What was paid, in units of that; `None` where more than a hundredth of the work was left to do at the end, and so not paid for.
    paid_to_least: Option<f64>,
    /// How much of the work was left to do at the end that would have been done had each pod started at once.
    undone_percent: f64,
    idle_percent: f64,
    wait_p50_seconds: f64,
    wait_p95_seconds: f64,
    wait_p99_seconds: f64,
    over_ten_minutes_percent: f64,
    launches: u64,
    /// Launches that found no capacity.
    refused: u64,
    flaps: u64,
    bought_again: u64,
    interruptions: u64,
    lost_gpu_hours: i64,
    late_percent: f64,
    broken_promises: u64,
}

/// How a figure is shown.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Usd,
    Percent,
    Seconds,
    Ratio,
    Count,
}

/// A figure of a run.
struct Figure {
    name: &'static str,
    label: &'static str,
    unit: Unit,
    of: fn(&Run) -> Option<f64>,
}

const FIGURES: [Figure; 20] = [
    Figure { name: "paid", label: "paid", unit: Unit::Usd, of: |run| Some(usd(&run.paid)) },
    Figure { name: "reserved", label: "  reserved", unit: Unit::Usd, of: |run| Some(usd(&run.reserved)) },
    Figure { name: "onDemand", label: "  on-demand", unit: Unit::Usd, of: |run| Some(usd(&run.on_demand)) },
    Figure { name: "spot", label: "  spot", unit: Unit::Usd, of: |run| Some(usd(&run.spot)) },
    Figure { name: "atLeast", label: "lower bound", unit: Unit::Usd, of: |run| run.at_least.as_ref().map(usd) },
    Figure { name: "paidToLeast", label: "paid / lower bound", unit: Unit::Ratio, of: |run| run.paid_to_least },
    Figure { name: "idlePercent", label: "idle GPU-hours", unit: Unit::Percent, of: |run| Some(run.idle_percent) },
    Figure { name: "waitP50Seconds", label: "pod wait p50", unit: Unit::Seconds, of: |run| Some(run.wait_p50_seconds) },
    Figure { name: "waitP95Seconds", label: "  p95", unit: Unit::Seconds, of: |run| Some(run.wait_p95_seconds) },
    Figure { name: "waitP99Seconds", label: "  p99", unit: Unit::Seconds, of: |run| Some(run.wait_p99_seconds) },
    Figure {
        name: "overTenMinutesPercent",
        label: "  over 10 min",
        unit: Unit::Percent,
        of: |run| Some(run.over_ten_minutes_percent),
    },
    Figure { name: "launches", label: "launches", unit: Unit::Count, of: |run| Some(whole(run.launches)) },
    Figure { name: "refused", label: "launches refused", unit: Unit::Count, of: |run| Some(whole(run.refused)) },
    Figure { name: "flaps", label: "flaps", unit: Unit::Count, of: |run| Some(whole(run.flaps)) },
    Figure { name: "boughtAgain", label: "bought again", unit: Unit::Count, of: |run| Some(whole(run.bought_again)) },
    Figure { name: "interruptions", label: "pods interrupted", unit: Unit::Count, of: |run| Some(whole(run.interruptions)) },
    Figure { name: "waiting", label: "pods waiting at the end", unit: Unit::Count, of: |run| Some(whole(run.waiting)) },
    Figure { name: "undonePercent", label: "work undone at the end", unit: Unit::Percent, of: |run| Some(run.undone_percent) },
    Figure { name: "latePercent", label: "pods late", unit: Unit::Percent, of: |run| Some(run.late_percent) },
    Figure { name: "brokenPromises", label: "broken promises", unit: Unit::Count, of: |run| Some(whole(run.broken_promises)) },
];

const EXPLAINED: &str = "Lower bound: the least that any fleet of the policy's instance types could pay if it knew the future. Where \
                         more than 1 % of the work is undone at the end, which is not paid for, there is no ratio. Flaps: nodes released within 15 min of their order. Bought again: nodes bought within 15 min of the release of \
                         one of their type, with no more demand. Late: done, or still not done, later than 1.25 × their run \
                         time and 10 min. Broken promises, of which there should be none: launches above a quota, pods that \
                         the autoscaler evicted, plans that failed their check, and one where a warm floor lacked nodes for \
                         more than 3 min while none was coming, none was refused and nothing kept them from being bought.";

impl PolicyRow {
    pub(super) fn new(policy: &str) -> Self {
        Self { policy: policy.to_owned(), summary: Vec::new(), runs: Vec::new() }
    }

    fn summed_up(mut self) -> Self {
        self.summary = FIGURES.iter().filter_map(|figure| Spread::of(figure, &self.runs)).collect();
        self
    }
}

impl Run {
    pub(super) const fn paid(&self) -> UsdMicros {
        UsdMicros(self.paid.micro_usd)
    }

    pub(super) const fn wait_p95_seconds(&self) -> f64 {
        self.wait_p95_seconds
    }

    pub(super) fn of(seed: u64, outcome: &Outcome, least: Option<UsdMicros>) -> Self {
        let Outcome { bill, fates, waits, violations, .. } = outcome;
        let paid = outcome.total();
        let ratio = |least: &UsdMicros| rounded(millionths(paid.0) / millionths(least.0));
        Self {
            seed,
            pods: waits.pods,
            finished: outcome.finished,
            waiting: outcome.waiting as u64,
            paid: paid.into(),
            reserved: bill.reserved.into(),
            on_demand: bill.on_demand.into(),
            spot: bill.spot.into(),
            at_least: least.map(Money::from),
            paid_to_least: least.filter(|least| least.0 > 0 && outcome.undone_ppm <= MOST_UNDONE_PPM).as_ref().map(ratio),
            undone_percent: rounded(millionths(outcome.undone_ppm) * 100.0),
            idle_percent: rounded(outcome.idle_percent),
            wait_p50_seconds: rounded(waits.p50),
            wait_p95_seconds: rounded(waits.p95),
            wait_p99_seconds: rounded(waits.p99),
            over_ten_minutes_percent: rounded(waits.over_ten_minutes_percent),
            launches: fates.launches,
            refused: fates.refused,
            flaps: fates.flaps,
            bought_again: outcome.bought_again,
            interruptions: outcome.interruptions,
            lost_gpu_hours: outcome.lost_gpu_hours,
            late_percent: rounded(millionths(outcome.late_ppm) * 100.0),
            broken_promises: violations.above_quota
                + violations.evicted
                + violations.broken.len() as u64
                + u64::from(violations.floor_seconds > 0),
        }
    }
}

/// Which promises were broken, in words.
pub(super) fn broken(policy: &str, seed: u64, violations: &Violations) -> Vec<String> {
    let Violations { above_quota, floor_seconds, evicted, broken } = violations;
    let counts = [
        (*above_quota > 0).then(|| format!("{} above a quota", count(*above_quota, "launch"))),
        (*floor_seconds > 0).then(|| {
            format!("a warm floor lacked nodes for {floor_seconds} s beyond the 3 min that it has, and none was coming")
        }),
        (*evicted > 0).then(|| format!("the autoscaler evicted {}", count(*evicted, "pod"))),
    ];
    // A fault that stays comes again at every pass.
    let first = broken.first().map(|first| match broken.len() {
        1 => first.clone(),
        all => format!("{first}; {} more of the kind", all - 1),
    });
    let told = counts.into_iter().flatten().chain(first);
    told.map(|what| format!("{policy}, seed {seed}: {what}")).collect()
}

impl Spread {
    /// `None` where no run has the figure.
    fn of(figure: &Figure, runs: &[Run]) -> Option<Self> {
        let values: Vec<f64> = runs.iter().filter_map(figure.of).collect();
        if values.is_empty() {
            return None;
        }
        let of = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        let mean = values.iter().sum::<f64>() / of(values.len().max(1));
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (values.len() > 1).then(|| (squares / of(values.len() - 1)).sqrt());
        let unit = match figure.unit {
            Unit::Usd => "usd",
            Unit::Percent => "percent",
            Unit::Seconds => "seconds",
            Unit::Ratio => "ratio",
            Unit::Count => "count",
        };
        Some(Self {
            figure: figure.name,
            unit,
            mean: rounded(mean),
            standard_deviation: deviation.map(rounded),
            runs: values.len(),
        })
    }

    fn shown(&self, unit: Unit, of: usize) -> String {
        let figure = |value: f64| match unit {
            Unit::Usd | Unit::Ratio => format!("{value:.2}"),
            Unit::Percent => format!("{value:.1}"),
            Unit::Count if self.standard_deviation.is_some() => format!("{value:.1}"),
            Unit::Seconds | Unit::Count => format!("{value:.0}"),
        };
        let (before, after) = match unit {
            Unit::Usd => ("$", ""),
            Unit::Percent => ("", " %"),
            Unit::Seconds => ("", " s"),
            Unit::Ratio | Unit::Count => ("", ""),
        };
        let deviation = self.standard_deviation.map_or_else(String::new, |deviation| format!(" ± {}", figure(deviation)));
        let some = if self.runs < of { format!(" ({} of {of})", self.runs) } else { String::new() };
        format!("{before}{}{deviation}{after}{some}", figure(self.mean))
    }
}

impl Report {
    pub(super) fn new(
        workload: String,
        scoring: Scoring,
        seconds: f64,
        seeds: &[u64],
        policies: Vec<PolicyRow>,
        baselines: Vec<Baseline>,
        notes: Vec<String>,
    ) -> Self {
        let scoring = match scoring {
            Scoring::MostAllocated => "most-allocated",
            Scoring::LeastAllocated => "least-allocated",
            Scoring::FirstFit => "first-fit",
        };
        let policies = policies.into_iter().map(PolicyRow::summed_up).collect();
        Self { workload, seconds, scoring, seeds: seeds.to_vec(), policies, baselines, notes }
    }

    /// A column a policy, a row a figure.
    pub(super) fn table(&self) -> String {
        let pods: usize = self.policies.first().into_iter().flat_map(|row| &row.runs).map(|run| run.pods).sum();
        let pods = count((pods / self.seeds.len().max(1)) as u64, "GPU pod");
        let of = match self.seeds.as_slice() {
            [first, .., last] => format!("{pods} a run, seeds {first} to {last}: mean ± standard deviation"),
            [only] => format!("{pods}, seed {only}"),
            [] => pods,
        };
        let mut text = format!("{}, {of}\n\n", self.workload);
        for policies in self.policies.chunks(ACROSS) {
            let names: Vec<&str> = policies.iter().map(|row| row.policy.as_str()).collect();
            let header: Vec<&str> = std::iter::once("").chain(names.iter().copied()).collect();
            let row = |figure: &Figure| {
                let of = |row: &PolicyRow| {
                    Spread::of(figure, &row.runs).map_or_else(|| "-".to_owned(), |of| of.shown(figure.unit, row.runs.len()))
                };
                std::iter::once(figure.label.to_owned()).chain(policies.iter().map(of)).collect()
            };
            let _ = writeln!(text, "{}", table(&header, &names, FIGURES.iter().map(row).collect()));
        }
        if !self.baselines.is_empty() {
            let _ = writeln!(text, "{}", text_of(baselines::grid(&self.baselines)));
        }
        for note in &self.notes {
            text.push_str(&paragraph("note:", note));
        }
        text.push_str(&wrapped("", EXPLAINED));
        if !self.baselines.is_empty() {
            text.push('\n');
            text.push_str(&wrapped("", &baselines::explained(self.seeds.len())));
        }
        text
    }
}

fn usd(money: &Money) -> f64 {
    millionths(money.micro_usd)
}

pub(super) fn millionths(of: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "sums of money here are far below 2^53 micro-dollars")]
    let of = of as f64;
    of / 1e6
}

fn whole(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// To three decimals.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
