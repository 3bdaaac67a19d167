//! What arrives: days of the built-in workload, or the pods of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoker_core::base::ids::GpuModel;
use stoker_sim::demand::file::{self, Against};
use stoker_sim::demand::{Demand, Pod, day};
use stoker_sim::simulate::types;
use stoker_sim::workload::Kind;

use super::super::exit::CliError;
use super::Tried;
use stoker_service::files;
use stoker_service::price_tables::PriceTables;
use stoker_service::print::count;

/// Days that are played of the built-in workload where no number is given.
const DAYS: u32 = 2;
const DAY: f64 = 86_400.0;
const HOUR: f64 = 3_600.0;

/// Where the pods come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Days of the built-in workload.
    Day,
    /// A file of pods.
    File(PathBuf),
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
            Some(format!("left out of all runs: {pods}; {why}"))
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
        let models: BTreeSet<&str> = tables.prices.gpu_models().map(GpuModel::as_str).collect();
        let against: Vec<Against<'_>> =
            policies.iter().map(|tried| Against { policy: &tried.name, catalogue: &tried.catalogue }).collect();
        let shown = files::shown(path);
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
        let mut of_runs = Vec::new();
        for (policy, tried) in policies.iter().enumerate() {
            let demand = demand(tried, pods.clone(), seconds);
            of_runs.extend(seeds.iter().map(|seed| OfRun { policy, seed: *seed, demand: Arc::clone(&demand) }));
        }
        Ok(Self { shown, seconds, of_runs, notes })
    }
}

fn demand(tried: &Tried, pods: Vec<Pod>, seconds: f64) -> Arc<Demand> {
    Arc::new(Demand { types: types::instance_types(&tried.catalogue), pods, seconds })
}

/// The pool that runs pods of a kind, and its instance types.
fn home(tried: &Tried, kind: Kind) -> Option<(&str, Demand)> {
    let pool = day::pool_of(&tried.catalogue.policy, kind)?;
    Some((pool, Demand { types: types::cheapest_of(&tried.catalogue, pool), pods: Vec::new(), seconds: 0.0 }))
}
