//! What arrives: days of the built-in workload, the pods of a file, or those that a journal has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoker_core::base::ids::GpuModel;
use stoker_core::base::units::UsdMicros;
use stoker_sim::demand::file::{self, Against, Home};
use stoker_sim::demand::openb::{self, Selection};
use stoker_sim::demand::{Demand, InstanceType, Pod, Resources, day, types};
use stoker_sim::workload::Kind;

use super::super::exit::CliError;
use super::Tried;
use super::recorded::Recorded;
use stoker_service::files;
use stoker_service::price_tables::PriceTables;
use stoker_service::print::count;

/// Days that are played of the built-in workload where no number is given.
const DAYS: u32 = 2;
pub(super) const DAY: f64 = 86_400.0;
const HOUR: f64 = 3_600.0;
/// Reasons for which pods are left out that are told, and pods that are named for each.
const REASONS: usize = 8;
const NAMED: usize = 3;

/// Where the pods come from.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    /// Days of the built-in workload.
    Day,
    /// A file of pods.
    File(PathBuf),
    /// Pods that a journal has, or a Prometheus.
    Journal(Recorded),
}

impl Source {
    /// The source of that name.
    pub(super) fn of(name: &Path) -> Self {
        if name == Path::new("day") { Self::Day } else { Self::File(name.to_owned()) }
    }
}

/// The demand of one run.
#[derive(Debug, Clone)]
pub(super) struct OfRun {
    /// Index of the policy.
    pub(super) policy: usize,
    /// What the run's chance is drawn from.
    pub(super) seed: u64,
    /// The pods with their pools under that policy.
    pub(super) demand: Arc<Demand>,
}

/// The demands of all runs: each policy with each seed. Under every policy the pods of a seed are the same but for
/// their pools.
#[derive(Debug, Clone)]
pub(super) struct Demands {
    /// What it is, in words.
    pub(super) shown: String,
    /// How long it lasts, in seconds.
    pub(super) seconds: f64,
    /// Each run's, by policy and then by seed.
    pub(super) of_runs: Vec<OfRun>,
    /// What is left out.
    pub(super) notes: Vec<String>,
}

impl Demands {
    /// The demands that a source gives.
    ///
    /// # Errors
    /// When a file has faults, or no pod can run under every policy.
    pub(super) fn of(
        source: &Source,
        days: Option<u32>,
        seeds: &[u64],
        policies: &[Tried],
        tables: &PriceTables,
    ) -> Result<Self, CliError> {
        match source {
            Source::Day => Self::of_days(days.unwrap_or(DAYS), seeds, policies),
            Source::File(path) => Self::of_file(path, days, seeds, policies, tables),
            Source::Journal(recorded) => Self::of_journal(recorded, seeds, policies),
        }
    }

    fn of_days(days: u32, seeds: &[u64], policies: &[Tried]) -> Result<Self, CliError> {
        let seconds = f64::from(days) * DAY;
        let mut left_out: BTreeMap<(usize, Kind), u32> = BTreeMap::new();
        let mut by_seed: Vec<Vec<(Kind, Pod)>> = seeds.iter().map(|seed| day::days(*seed, days)).collect();
        for (n, tried) in policies.iter().enumerate() {
            let homes = [Kind::Inference, Kind::Training, Kind::Dev, Kind::Batch].map(|kind| (kind, home(tried, kind)));
            let homes = BTreeMap::from(homes);
            for pods in &mut by_seed {
                pods.retain(|(kind, pod)| {
                    let runs =
                        homes.get(kind).and_then(Option::as_ref).is_some_and(|(_, types)| !types.types_for(pod).is_empty());
                    *left_out.entry((n, *kind)).or_default() += u32::from(!runs);
                    runs
                });
            }
        }
        if by_seed.iter().all(Vec::is_empty) {
            return Err(CliError::Usage(
                "no pod of the built-in days can run under every policy: call a pool inference, training, dev or batch, or give \
                 it that workload; or give pods of your own with --workload FILE"
                    .into(),
            ));
        }
        let notes = left_out.into_iter().filter(|(_, pods)| *pods > 0).filter_map(|((n, kind), pods)| {
            let tried = policies.get(n)?;
            let why = match home(tried, kind) {
                Some((pool, _)) => format!("no instance type of pool {pool} in {} holds them", tried.name),
                None => format!("{} has no pool for them", tried.name),
            };
            let word = format!("{kind:?} pod").to_lowercase();
            let pods = count(pods, &word);
            let over = if seeds.len() > 1 { format!(" over {} seeds", seeds.len()) } else { String::new() };
            Some(format!("left out of all runs: {pods}{over}; {why}"))
        });
        let notes = notes.collect();
        let mut of_runs = Vec::new();
        for (policy, tried) in policies.iter().enumerate() {
            for (seed, pods) in seeds.iter().zip(&by_seed) {
                let pool = |kind| day::pool_of(&tried.catalogue.policy, kind).map(str::to_owned);
                let pods = pods.iter().map(|(kind, pod)| Pod { pool: pool(*kind), ..pod.clone() }).collect();
                of_runs.push(OfRun { policy, seed: *seed, demand: demand(tried, pods, seconds) });
            }
        }
        Ok(Self { shown: format!("{} of the built-in workload", count(days, "day")), seconds, of_runs, notes })
    }

    fn of_file(
        path: &Path,
        days: Option<u32>,
        seeds: &[u64],
        policies: &[Tried],
        tables: &PriceTables,
    ) -> Result<Self, CliError> {
        let read = files::read_text_or_stdin(path);
        let text = read.map_err(|source| CliError::NoFile { flag: "--workload", path: path.to_owned(), source })?;
        let shown = files::shown(path);
        if openb::is_trace(&text) {
            return Self::of_trace(&shown, &text, days, seeds, policies);
        }
        let models: BTreeSet<&str> = tables.prices.gpu_models().map(GpuModel::as_str).collect();
        let against: Vec<Against<'_>> = policies.iter().map(against).collect();
        let mut pods = file::read(&shown, &text, &models, &against)?;
        let last = pods.iter().map(|pod| pod.arrives + pod.runs).fold(0.0, f64::max);
        let seconds = days.map_or_else(|| (last / HOUR).ceil() * HOUR + HOUR, |days| f64::from(days) * DAY);
        let all = pods.len();
        pods.retain(|pod| pod.arrives < seconds);
        let mut notes = Vec::new();
        if pods.is_empty() {
            let days = count(days.unwrap_or_default(), "day");
            return Err(CliError::Usage(format!("no pod of {shown} arrives in the first {days}: give more --days")));
        } else if pods.len() < all {
            notes.push(format!("left out of all runs: {} that arrive after the end", count((all - pods.len()) as u64, "pod")));
        }
        Ok(Self { shown, seconds, of_runs: of_runs(&pods, seconds, seeds, policies), notes })
    }

    /// The published trace, from its dense part on.
    fn of_trace(shown: &str, text: &str, days: Option<u32>, seeds: &[u64], policies: &[Tried]) -> Result<Self, CliError> {
        // One that holds any pod of each model: what a policy has for them is looked at below, pod by pod.
        let holds_all = Resources { gpus: u32::MAX, milli_cpu: u32::MAX, memory_mib: u32::MAX };
        let any = |(_, model): &(&str, &str)| InstanceType {
            name: (*model).to_owned(),
            model: (*model).to_owned(),
            allocatable: holds_all,
            hourly: UsdMicros(0),
        };
        let any: Vec<InstanceType> = openb::MODELS.iter().map(any).collect();
        let whole = Selection::whole();
        let mut notes = Vec::new();
        // A part of the trace may end before that.
        let trace = match openb::parse(text, &any, &whole) {
            Ok(trace) => {
                notes.push(format!("{shown} is played from its day {:.0} on", whole.starts / DAY));
                trace
            }
            Err(_) => openb::parse(text, &any, &Selection { starts: 0.0, ..whole }).map_err(|faults| {
                let fault = |fault: openb::Fault| file::Fault { line: fault.line, message: fault.what.to_string() };
                file::Faults::new(shown, faults.into_iter().map(fault).collect())
            })?,
        };
        let seconds = days.map_or(trace.demand.seconds, |days| trace.demand.seconds.min(f64::from(days) * DAY));
        let mut pods = trace.demand.pods;
        pods.retain(|pod| pod.arrives < seconds);
        Self::of_pods(shown, seconds, (pods, LeftOut::default(), notes), seeds, policies)
    }

    fn of_journal(recorded: &Recorded, seeds: &[u64], policies: &[Tried]) -> Result<Self, CliError> {
        let Recorded { shown, seconds, pods, left_out, notes } = recorded;
        Self::of_pods(shown, *seconds, (pods.clone(), left_out.clone(), notes.clone()), seeds, policies)
    }

    /// Those of the pods that can run under every policy.
    fn of_pods(
        shown: &str,
        seconds: f64,
        (pods, mut left_out, mut notes): (Vec<Pod>, LeftOut, Vec<String>),
        seeds: &[u64],
        policies: &[Tried],
    ) -> Result<Self, CliError> {
        let pods = left_out.retain(pods, policies);
        let left_out = left_out.notes();
        if pods.is_empty() {
            let why = if left_out.is_empty() { "none was there at that time".to_owned() } else { left_out.join("; ") };
            return Err(CliError::Usage(format!("{shown}: no GPU pod that can be played: {why}")));
        }
        notes.extend(left_out);
        Ok(Self { shown: shown.to_owned(), seconds, of_runs: of_runs(&pods, seconds, seeds, policies), notes })
    }
}

/// Pods that are in no run, by why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct LeftOut(BTreeMap<String, Vec<String>>);

impl LeftOut {
    pub(in crate::cli) fn add(&mut self, why: String, pod: &str) {
        self.0.entry(why).or_default().push(pod.to_owned());
    }

    /// The pods that can run under every policy; the others are left out.
    fn retain(&mut self, mut pods: Vec<Pod>, policies: &[Tried]) -> Vec<Pod> {
        let home = |tried| Home::of(&against(tried));
        let homes: Vec<Home<'_>> = policies.iter().map(home).collect();
        pods.retain(|pod| match homes.iter().find_map(|home| home.fault(pod)) {
            Some(why) => {
                self.add(why, &pod.name);
                false
            }
            None => true,
        });
        pods
    }

    /// What is said of them, the most first.
    fn notes(&self) -> Vec<String> {
        let mut by_number: Vec<(&String, &Vec<String>)> = self.0.iter().collect();
        by_number.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
        let (first, rest) = by_number.split_at(by_number.len().min(REASONS));
        let said = first.iter().map(|(why, pods)| {
            let named = pods.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if pods.len() > NAMED { ", ..." } else { "" };
            format!("left out of all runs: {} ({named}{more}): {why}", count(pods.len() as u64, "pod"))
        });
        let rest: usize = rest.iter().map(|(_, pods)| pods.len()).sum();
        let more = (rest > 0)
            .then(|| format!("left out of all runs: {} for other reasons of the kind", count(rest as u64, "more pod")));
        said.chain(more).collect()
    }
}

/// The same pods in all runs.
fn of_runs(pods: &[Pod], seconds: f64, seeds: &[u64], policies: &[Tried]) -> Vec<OfRun> {
    let mut of_runs = Vec::new();
    for (policy, tried) in policies.iter().enumerate() {
        let demand = demand(tried, pods.to_vec(), seconds);
        of_runs.extend(seeds.iter().map(|seed| OfRun { policy, seed: *seed, demand: Arc::clone(&demand) }));
    }
    of_runs
}

fn against(tried: &Tried) -> Against<'_> {
    Against { policy: &tried.name, catalogue: &tried.catalogue }
}

fn demand(tried: &Tried, pods: Vec<Pod>, seconds: f64) -> Arc<Demand> {
    Arc::new(Demand { types: types::instance_types(&tried.catalogue), pods, seconds })
}

/// The pool that runs pods of a kind, and its instance types.
fn home(tried: &Tried, kind: Kind) -> Option<(&str, Demand)> {
    let pool = day::pool_of(&tried.catalogue.policy, kind)?;
    Some((pool, Demand { types: types::cheapest_of(&tried.catalogue, pool), pods: Vec::new(), seconds: 0.0 }))
}
