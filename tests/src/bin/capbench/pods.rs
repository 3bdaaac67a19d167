//! Pods that may run on many types: every policy on the same demand, isolation on and off, and cost against waiting.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use stoker_core::base::units::Milli;
use stoker_sim::bound::fleet::{self, Method};
use stoker_sim::demand::Demand;
use stoker_sim::peers::{self, Boots, Policy};

use crate::frontier::{Point, Series};
use crate::report::{Report, Table};
use crate::stoker::{self, EQUAL_COST, Job, Variant};
use crate::table::{self, COMMITTED, Row, cost, dollars, known, ratio};
use crate::workloads::{MODELS, Workload};

/// Seconds between two samples of a run.
const SAMPLE_EVERY: i64 = 900;

/// Stoker where its scheduler or its autoscaler is set up otherwise.
const WAYS: [Variant; 3] = [
    Variant::DEFAULT,
    Variant::DEFAULT.spread("Stoker, scheduler spreads"),
    Variant::DEFAULT.undelayed("Stoker, autoscaler's delays 0"),
];

/// From the least cost to the least waiting, by what an operator can set. The default is one of them.
const FRONTIER: [Variant; 11] = [
    Variant::tuned("", "2", SHORTEST, "").undelayed("windows of 1 s, delays 0"),
    Variant::tuned("waiting $1", "1", EQUAL_COST, ""),
    Variant::DEFAULT,
    Variant::tuned("waiting $4, 20 min", "4", "window: equalCost, scaleDown: 20m", ""),
    Variant::tuned("waiting $8, 20 min", "8", "window: equalCost, scaleDown: 20m", ""),
    Variant::tuned("1 warm node", "2", EQUAL_COST, "{ nodes: 1 }"),
    Variant::tuned("2 warm nodes", "2", EQUAL_COST, "{ nodes: 2 }"),
    Variant::tuned("floor by quantile", "2", EQUAL_COST, BY_QUANTILE),
    Variant::tuned("", "0.5", SHORTEST, BY_QUANTILE).undelayed("by quantile, waiting $0.50, 1 s, delays 0"),
    Variant::tuned("", "1", SHORTEST, BY_QUANTILE).undelayed("by quantile, waiting $1, 1 s, delays 0"),
    Variant::tuned("", "4", SHORTEST, "{ quantile: { horizon: 3m } }").undelayed("within 3 min, waiting $4, 1 s, delays 0"),
];

/// Nodes may idle no longer than they have to live.
const SHORTEST: &str = "window: fixed, scaleDown: 1s";
/// As many as came at once in the past, of each instance type.
const BY_QUANTILE: &str = "{ quantile: {} }";

/// Of the short form.
const SHORT_FRONTIER: usize = 3;

/// Class taints as a careful team sets them up: a pod stays off types that cost more than so many times its own cheapest.
const CAREFUL: f64 = 1.3;
/// As isolation has them by its default.
const TIGHT: f64 = 1.001;

/// What was found of a demand.
pub(crate) struct Compared {
    /// Each policy's cost, waiting and flaps.
    pub(crate) summary: Table,
    /// Cost with and without isolation.
    pub(crate) isolation: Table,
    /// Cost over the bound against waiting, of Stoker first.
    pub(crate) series: [Series; 2],
}

/// The tables of one demand.
pub(crate) fn compare(workload: &Workload, seeds: u64, short: bool, report: &mut Report) -> Result<Compared> {
    let demand = &workload.demand;
    let begun = Instant::now();
    let bound = fleet::bound(demand, Method::default())?;
    let (least, committed) = (dollars(bound.total()), dollars(bound.committed(COMMITTED).total));
    eprintln!("{}: bound in {:.1} s", workload.name, begun.elapsed().as_secs_f64());
    report.line(&format!(
        "\n{}: {} pods in {:.1} days; {seeds} seeds; bound by {}",
        workload.name,
        demand.pods.len(),
        demand.seconds / 86_400.0,
        bound.method.solver,
    ))?;
    report.line(&format!("commit: with a commitment that costs {} of its value, over the bound with one", share(COMMITTED)))?;
    table::head(report)?;
    let name = &workload.short;
    let mut summary = Table::new(&[&format!("{name} × bound"), "p95 s", "flaps", "bought again"]);
    let fixed = [
        ("lower bound", least),
        ("static fleet of the peak, ideal", dollars(bound.static_peak())),
        ("static fleet, bought node by node", dollars(peers::static_peak(demand))),
    ];
    for (name, usd) in fixed {
        cost(report, name, usd, least)?;
        summary.row(name, &[ratio(usd / least), String::new(), String::new()]);
    }

    let begun = Instant::now();
    let mut others = Vec::new();
    for (name, policy) in Policy::published() {
        let row = peer(demand, name, &policy, seeds)?;
        row.print(report, least, committed)?;
        others.push((policy, row));
    }
    let took = begun.elapsed();
    let begun = Instant::now();
    let frontier = if short { &FRONTIER[..SHORT_FRONTIER] } else { &FRONTIER[..] };
    let variants: Vec<Variant> =
        WAYS.into_iter().chain(frontier.iter().copied().filter(|of| of.name != WAYS[0].name)).collect();
    let variants = [variants, vec![Variant::SHARED, Variant::SHARED.spread("Stoker without isolation, spreads")]].concat();
    let rows = ours(demand, &variants, seeds)?;
    for row in &rows {
        row.print(report, least, committed)?;
    }
    for row in others.iter().map(|(_, row)| row).chain(&rows) {
        let means = row.means();
        let counts = [means.flaps, means.again].map(known);
        let [flaps, again] = counts;
        let cells = [ratio(means.usd / least), format!("{:.0}", means.p95), flaps, again];
        summary.row(&row.name, &cells);
    }
    let found = |name: &str| rows.iter().find(|row| row.name == name).context("a row of Stoker");
    let default = found(Variant::DEFAULT.name)?;
    eprintln!("others took {:.1} s, Stoker {:.1} s", took.as_secs_f64(), begun.elapsed().as_secs_f64());

    let isolation = isolation(workload, seeds, least, &found, report)?;
    let defaults = others.iter().find(|(policy, _)| *policy == Policy::autoscaler()).context("the autoscaler's defaults")?;
    report.verdict(rows.iter().all(|row| row.broken.is_empty()), "no promise was broken")?;
    report.verdict(rows.iter().all(|row| row.means().flaps == 0.0), "no node was given back within 15 minutes")?;
    let all = others.iter().map(|(_, row)| row).chain(&rows).flat_map(|row| &row.runs);
    report.verdict(all.into_iter().all(|run| run.usd > least), "no run costs less than the bound")?;
    let cheaper = default.means().usd < defaults.1.means().usd;
    report.verdict(cheaper, "Stoker costs less than Cluster Autoscaler by its defaults")?;

    let point = |row: &Row| {
        let means = row.means();
        Point {
            name: row.name.clone(),
            wait: means.p95,
            ratio: means.usd / least,
            is_default: row.name == Variant::DEFAULT.name,
        }
    };
    let on_frontier = rows.iter().filter(|row| frontier.iter().any(|of| of.name == row.name)).map(point).collect();
    let others = others.iter().map(|(_, row)| point(row)).collect();
    Ok(Compared { summary, isolation, series: [Series::new("Stoker", on_frontier), Series::new("others", others)] })
}

fn share(of: Milli) -> String {
    format!("{:.2}", f64::from(of.0) / 1000.0)
}

/// What others run.
fn peer(demand: &Demand, name: &str, policy: &Policy, seeds: u64) -> Result<Row> {
    let runs = (0..seeds).map(|seed| peers::replay(demand, policy, Boots::seeded(seed)));
    Ok(Row::of_peers(name, &runs.collect::<Result<Vec<_>, _>>()?))
}

fn ours(demand: &Arc<Demand>, variants: &[Variant], seeds: u64) -> Result<Vec<Row>> {
    let job = |variant: &Variant| Job { variant: *variant, demand, models: &MODELS, sample_every: SAMPLE_EVERY };
    let outcomes = stoker::play(&variants.iter().map(job).collect::<Vec<_>>(), seeds)?;
    Ok(variants.iter().zip(outcomes).map(|(variant, outcomes)| Row::of_stoker(variant.name, &outcomes)).collect())
}

/// Each policy with and without class taints, where the scheduler packs and where it spreads.
fn isolation<'a>(
    workload: &Workload,
    seeds: u64,
    least: f64,
    ours: &dyn Fn(&str) -> Result<&'a Row>,
    report: &mut Report,
) -> Result<Table> {
    report.line(&format!(
        "\n{:<46} {:>15} {:>15} {:>15} {:>15}",
        "isolation, x bound", "off, packs", "off, spreads", "on, packs", "on, spreads"
    ))?;
    let mut table = Table::new(&[&format!("{} off, packs", workload.short), "off, spreads", "on, packs", "on, spreads"]);
    let mut line = |name: &str, of: [f64; 4]| {
        let [off, off_spread, on, on_spread] = of;
        table.row(name, &of.map(ratio));
        report.line(&format!("{name:<46} {off:>15.3} {off_spread:>15.3} {on:>15.3} {on_spread:>15.3}"))
    };
    let isolable = [
        ("Cluster Autoscaler", Policy::autoscaler(), CAREFUL),
        ("Cluster Autoscaler by price", Policy::autoscaler_by_price(), CAREFUL),
        ("Karpenter", Policy::karpenter(0.0), CAREFUL),
        ("Karpenter after 10 min", Policy::karpenter(600.0), CAREFUL),
        ("own choice, 5 min", Policy::own_choice(300.0), TIGHT),
    ];
    for (name, policy, most) in isolable {
        let ratio = |policy: &Policy| Ok::<_, anyhow::Error>(peer(&workload.demand, name, policy, seeds)?.means().usd / least);
        let tainted = policy.clone().with_taints(most);
        line(name, [ratio(&policy)?, ratio(&policy.spread())?, ratio(&tainted)?, ratio(&tainted.spread())?])?;
    }
    let ratio = |name: &str| Ok::<_, anyhow::Error>(ours(name)?.means().usd / least);
    let names = [Variant::SHARED.name, "Stoker without isolation, spreads", WAYS[0].name, WAYS[1].name];
    let [off, off_spread, on, on_spread] = names.map(ratio);
    line("Stoker", [off?, off_spread?, on?, on_spread?])?;
    Ok(table)
}
