//! `stoker nodes`: what there is, what it costs, who holds it and what its GPUs do.

mod row;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use stoker_advice::rollup::{HOUR, Latest, Occupancy};
use stoker_advice::workload::Observed;
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::reading::{Measured, Permille};
use stoker_core::facts::snapshot::{ClusterFacts, NodeFacts};
use stoker_core::state::memory::Memory;
use stoker_core::state::node_verdict::Verdict;
use stoker_core::state::record::State;

use super::args::{JournalArg, NowArg, OutputArg, whole};
use super::exit::{CliError, Exit, NotFound};
use super::held::{self, HeldBy};
use super::idle::{self, By, IdleRow};
use super::out::{self, Money};
use super::seen::Seen;
use row::{NodeRow, NodeState};
use stoker_journal::{Journal, Reader};
use stoker_service::needs::READ_GPUS;
use stoker_service::print::{count, paragraph, table};

/// Lists the nodes: pool, type, zone, capacity type, GPU bars, $/h and owner; or idle allocated GPUs by owner.
///
/// It reads the journal of the service, running or not. GPU use is as of the service's last write, which is every five minutes; after
/// eleven minutes without a write it is unknown. A bar is a GPU: its utilization under GPU, its memory under MEM, and -
/// where it is unknown. VERDICT is the state of a node and how long it has been so; without readings it follows from the node's pods.
#[derive(Debug, Args)]
pub(super) struct NodesArgs {
    /// Only those of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only those with this verdict: booting, warm, idle, busy, held, unhealthy, draining or unknown
    #[arg(long, value_parser = held::verdict)]
    verdict: Option<Verdict>,
    /// Only outdated ones, with what differs from a node that would be made today
    #[arg(long)]
    outdated: bool,
    /// Sort order
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Instead of nodes, how long GPUs were allocated and idle: by owner (the workload), namespace or label=NAME (a label of its pods)
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["sort", "pool", "verdict", "outdated"])]
    by: Option<By>,
    /// How many hours --by looks back
    #[arg(long, value_name = "N", default_value_t = 24, requires = "by", value_parser = whole(1..=720_i64), allow_negative_numbers = true)]
    hours: i64,
    #[command(flatten)]
    journal: JournalArg,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

/// An order of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By pool, then by name
    #[default]
    Pool,
    /// By name
    Name,
    /// Most expensive first
    Price,
    /// Least used GPUs first, unknown ones last
    Utilization,
    /// By state
    State,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodesReport {
    at: Timestamp,
    /// When the pods were last seen by a decision; `None` before the first.
    decided_at: Option<Timestamp>,
    /// Why the pods are not known, and what to do; `None` where they are.
    unknown_because: Option<String>,
    /// Nodes that there are, shown or not.
    of: usize,
    nodes: Vec<NodeRow>,
    total: Totals,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    nodes: usize,
    per_hour: Money,
    /// Of nodes of which it is unknown whether a GPU pod holds them: in neither of the two below.
    unknown_per_hour: Money,
    /// Of nodes that no GPU pod holds.
    free_per_hour: Money,
    /// Of GPUs that a pod holds and that did nothing when they were last read.
    held_idle_per_hour: Money,
    /// Of nodes whose verdict is held.
    held_per_hour: Money,
    /// GPUs of busy nodes of which it is not known what they do.
    unread_gpus: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HeldReport {
    at: Timestamp,
    /// Hours looked at, and those with readings.
    hours: i64,
    known_hours: usize,
    held: Vec<IdleRow>,
    /// Why nothing was read, and what to do; `None` where something was.
    unknown_because: Option<String>,
}

/// Carries the command out.
pub(super) async fn run(args: &NodesArgs) -> Result<Exit, CliError> {
    let now = args.now.now();
    let reader = Journal::open_read_only(args.journal.place()?).await?;
    if let Some(by) = &args.by {
        let observed = observed(&reader, now, args.hours).await?;
        idle::label_is_known(&observed, by).map_err(CliError::NotFound)?;
        let nodes = nodes_of(&reader, now).await?;
        let held = idle::rows(&observed, by, nodes.held_by().named(by));
        let unread = || nodes.unknown_because.unwrap_or_else(|| format!("no GPU readings: {READ_GPUS}"));
        let unknown_because = held.is_empty().then(unread);
        let report = HeldReport { at: now, hours: args.hours, known_hours: observed.known_hours(), held, unknown_because };
        out::print(args.output.format, &report, HeldReport::table)?;
        return Ok(Exit::Done);
    }
    let mut report = nodes_of(&reader, now).await?;
    if let Some(pool) = &args.pool {
        let is_known = report.nodes.iter().any(|row| row.pool.as_ref().is_some_and(|known| known.as_str() == pool));
        if !is_known {
            let place = args.journal.place()?.to_string();
            return Err(CliError::NotFound(NotFound { what: "node of pool", name: pool.clone(), place, cure: None }));
        }
        report.nodes.retain(|row| row.pool.as_ref().is_some_and(|known| known.as_str() == pool));
    }
    if let Some(verdict) = args.verdict {
        report.nodes.retain(|row| row.verdict.as_ref().is_some_and(|shown| shown.verdict == verdict));
    }
    if args.outdated {
        report.nodes.retain(|row| row.outdated.is_some());
    }
    report.total = totals(&report.nodes);
    report.sort(args.sort);
    out::print(args.output.format, &report, if args.outdated { NodesReport::outdated } else { NodesReport::table })?;
    Ok(Exit::Done)
}

/// What there is, by the journal.
async fn nodes_of(reader: &Reader, now: Timestamp) -> Result<NodesReport, CliError> {
    let memory = reader.memory().await?;
    let latest = reader.latest_readings().await?;
    let seen = Seen::last(reader).await?;
    let report = NodesReport::of(&memory, seen.cluster(), &latest, now);
    Ok(NodesReport { decided_at: seen.at(), unknown_because: seen.blind(), ..report })
}

/// What was read in the whole hours before `now`, and in the one that it is in.
pub(super) async fn observed(reader: &Reader, now: Timestamp, hours: i64) -> Result<Observed, CliError> {
    let end = now.as_second().div_euclid(HOUR) + 1;
    let mut observed = Observed::default();
    reader.each_reading_hour(end - 1 - hours, end, |row| observed.add(&row)).await?;
    Ok(observed)
}

impl NodesReport {
    fn of(memory: &Memory, cluster: Option<&ClusterFacts>, latest: &BTreeMap<NodeName, Latest>, now: Timestamp) -> Self {
        let nodes = cluster.map(|cluster| &cluster.nodes);
        let by_machine: BTreeMap<&ProviderId, &Arc<NodeFacts>> =
            nodes.into_iter().flatten().filter_map(|(_, facts)| Some((facts.provider_id.as_ref()?, facts))).collect();
        let rows = memory.records.values().filter_map(|record| {
            let machine = record.instance()?;
            let facts = by_machine.get(machine).copied();
            let name = facts.map(|facts| &facts.name).or(match &record.state {
                State::Registered { node, .. } => node.as_ref(),
                _ => None,
            });
            let read = name.and_then(|name| latest.get(name));
            NodeRow::of(record, memory, name, facts.map(AsRef::as_ref), read, now)
        });
        let nodes: Vec<NodeRow> = rows.collect();
        Self { at: now, decided_at: None, unknown_because: None, of: nodes.len(), total: totals(&nodes), nodes }
    }

    /// What held nodes cost, by who holds them.
    fn held_by(&self) -> HeldBy {
        let mut held = HeldBy::default();
        for row in self.nodes.iter().filter(|row| row.is_held()) {
            held.add(row.price, row.gpus.iter().map(|gpu| &gpu.latest.holder), row.held_by.as_deref().unwrap_or_default());
        }
        held
    }

    fn sort(&mut self, sort: Sort) {
        let mean = |row: &NodeRow| mean(row.gpus.iter().map(|gpu| gpu.latest.busy()));
        self.nodes.sort_by(|a, b| {
            let names = (&a.pool, &a.node).cmp(&(&b.pool, &b.node));
            match sort {
                Sort::Pool => names,
                Sort::Name => a.node.cmp(&b.node),
                Sort::Price => b.price.cmp(&a.price).then(names),
                Sort::State => a.state.cmp(&b.state).then(names),
                Sort::Utilization => (mean(a).is_none(), mean(a)).cmp(&(mean(b).is_none(), mean(b))).then(names),
            }
        });
    }

    /// The age of the oldest levels that are shown; `None` where none are.
    fn oldest(&self) -> Option<SignedDuration> {
        let shown = self.nodes.iter().filter(|row| !row.gpus.is_empty());
        shown.filter_map(|row| Some(self.at.duration_since(row.read_at?))).max()
    }

    /// What a table says where it has no row.
    fn nothing(&self) -> String {
        match (self.of, &self.unknown_because) {
            (0, Some(why)) => paragraph("No nodes known:", why),
            (0, None) => "No nodes\n".to_owned(),
            (of, _) => format!("None of {} matches\n", count(of, "node")),
        }
    }

    /// Outdated nodes, with what differs.
    fn outdated(&self) -> String {
        const HEADER: [&str; 6] = ["NODE", "POOL", "TYPE", "SINCE", "VERDICT", "WHY"];
        let outdated = self.nodes.iter().filter_map(|row| Some((row, row.outdated.as_ref()?)));
        let rows: Vec<_> = outdated
            .map(|(row, outdated)| {
                let stands =
                    row.verdict.as_ref().map_or_else(|| row.state.as_str().to_owned(), |verdict| verdict.cell(self.at));
                vec![
                    row.node.clone(),
                    row.pool.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
                    row.instance_type.to_string(),
                    outdated.since.strftime("%Y-%m-%d %H:%MZ").to_string(),
                    if outdated.replacing { format!("{stands}, being replaced") } else { stands },
                    outdated.message.clone(),
                ]
            })
            .collect();
        match (rows.is_empty(), self.of) {
            (true, 1..) => format!("None of {} is outdated\n", count(self.of, "node")),
            (true, 0) => self.nothing(),
            (false, _) => {
                let note = "free ones are replaced one at a time once their windows are over; nodes with pods by the pool's \
                            outdated.maintenance and outdated.deadline; outdated.paused stops it";
                table(&HEADER, &[], rows) + &paragraph("note:", note)
            }
        }
    }

    fn table(&self) -> String {
        const HEADER: [&str; 10] = ["NODE", "POOL", "TYPE", "ZONE", "CAPACITY", "GPU", "MEM", "$/H", "VERDICT", "OWNER"];
        if self.nodes.is_empty() {
            return self.nothing();
        }
        let rows = self.nodes.iter().map(|row| {
            let held = match &row.held_by {
                None => "not known".to_owned(),
                Some(pods) if pods.is_empty() => "nobody".to_owned(),
                Some(pods) => pods.join(" "),
            };
            let memory = row.gpus.iter().map(|gpu| gpu.memory_permille.and_then(Permille::new));
            vec![
                row.node.clone(),
                row.pool.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
                row.instance_type.to_string(),
                row.zone.clone(),
                row.capacity_type.to_string(),
                bars(row.gpus.iter().map(|gpu| gpu.latest.busy().known().copied()).collect()),
                bars(memory.collect()),
                row.price.to_string(),
                row.verdict.as_ref().map_or_else(|| row.state.as_str().to_owned(), |verdict| verdict.cell(self.at)),
                held,
            ]
        });
        let mut text = table(&HEADER, &["$/H"], rows.collect());
        let Totals { nodes, per_hour, unknown_per_hour, free_per_hour, held_idle_per_hour, held_per_hour, unread_gpus } =
            &self.total;
        let [all, unknown, free, idle, held] = [per_hour, unknown_per_hour, free_per_hour, held_idle_per_hour, held_per_hour]
            .map(|money| UsdPerHour(money.micro_usd));
        let nodes = count(*nodes, "node");
        let split = match unknown {
            UsdPerHour::ZERO => format!("Unallocated: {free}/h; allocated but idle: {idle}/h"),
            _ if unknown == all => "Unallocated, and allocated but idle: unknown".to_owned(),
            _ => format!("Unallocated: {free}/h; allocated but idle: {idle}/h; unknown: {unknown}/h"),
        };
        let _ = writeln!(text, "{nodes}, {all}/h. {split}");
        if let Some(why) = &self.unknown_because {
            text.push_str(&paragraph("note:", why));
        }
        if held > UsdPerHour::ZERO {
            let of_whom = "nodes with verdict held (pods occupy them and do nothing) cost";
            text.push_str(&paragraph("note:", &format!("{of_whom} {held}/h; --by owner shows whose they are")));
        }
        if let Some(age) = self.oldest() {
            let minutes = (age.as_secs().max(0) + 59) / 60;
            text.push_str(&paragraph("note:", &format!("GPU levels are from the last write, up to {minutes} min old")));
        }
        if *unread_gpus > 0 {
            let gpus = count(*unread_gpus, "GPU");
            let not_read = if *unread_gpus == 1 {
                "has no readings: whether it is busy"
            } else {
                "have no readings: whether they are busy"
            };
            text.push_str(&paragraph("note:", &format!("{gpus} of busy nodes {not_read} is not known (-o json says why)")));
        }
        text
    }
}

/// A bar a GPU, and the mean of those that are known.
pub(super) fn bars(levels: Vec<Option<Permille>>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if levels.is_empty() {
        return "-".to_owned();
    }
    let bar = |level: &Option<Permille>| match level {
        None => '-',
        // Nothing at all is no bar.
        Some(level) if level.get() == 0 => '_',
        Some(level) => BARS.get(usize::from((level.get() - 1) / 125)).copied().unwrap_or('█'),
    };
    let shown: String = levels.iter().map(bar).collect();
    let known = levels.into_iter().flatten().map(Measured::Known);
    mean(known).map_or_else(|| shown.clone(), |mean| format!("{shown} {}%", (mean + 5) / 10))
}

/// The mean of the levels that are known, in thousandths.
fn mean(levels: impl Iterator<Item = Measured<Permille>>) -> Option<u64> {
    let known: Vec<u64> = levels.filter_map(|level| level.known().map(|level| u64::from(level.get()))).collect();
    known.iter().sum::<u64>().checked_div(u64::try_from(known.len()).ok()?)
}

fn totals(nodes: &[NodeRow]) -> Totals {
    let sum = |of: &dyn Fn(&NodeRow) -> UsdPerHour| nodes.iter().fold(UsdPerHour::ZERO, |sum, row| sum.plus(of(row)));
    let held_idle =
        |row: &NodeRow| row.gpus.iter().filter(|gpu| gpu.is_held_idle()).fold(UsdPerHour::ZERO, |sum, gpu| sum.plus(gpu.price));
    let unread = |row: &NodeRow| match (row.state, row.gpus.is_empty()) {
        (NodeState::Busy, true) => 1,
        (NodeState::Busy, false) => row.gpus.iter().filter(|gpu| gpu.latest.activity == Occupancy::Unknown).count(),
        _ => 0,
    };
    Totals {
        nodes: nodes.len(),
        per_hour: sum(&|row| row.price).into(),
        unknown_per_hour: sum(&|row| if row.state == NodeState::Unknown { row.price } else { UsdPerHour::ZERO }).into(),
        free_per_hour: sum(&|row| if row.state == NodeState::Free { row.price } else { UsdPerHour::ZERO }).into(),
        held_idle_per_hour: sum(&held_idle).into(),
        held_per_hour: sum(&|row| if row.is_held() { row.price } else { UsdPerHour::ZERO }).into(),
        unread_gpus: nodes.iter().map(unread).sum(),
    }
}

impl HeldReport {
    fn table(&self) -> String {
        let hours = count(self.hours.unsigned_abs(), "hour");
        let mut text = format!("GPUs allocated in the last {hours}: readings in {} of them\n", self.known_hours);
        if let Some(why) = &self.unknown_because {
            return text + &paragraph("No readings:", why);
        }
        text.push_str(&idle::shown(&self.held));
        let note = "ALLOCATED IDLE: ran no kernel, but kept something in memory. EMPTY: neither. IDLE $: the cost of both, \
                    at what nodes cost when they were bought. UNKNOWN does not count as idle.";
        text + &paragraph("note:", note)
    }
}
