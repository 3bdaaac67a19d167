//! `stoker simulate`: policies on a demand of GPU pods, in virtual time: what each costs, and how long pods wait.

mod baselines;
mod before_after;
mod figures;
mod picture;
mod recorded;
mod workload;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::kinds::Evidence;
use stoker_core::base::units::UsdMicros;
use stoker_core::catalogue::Catalogue;
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::rules::warm_floor::{Mechanism, WarmFloor};
use stoker_core::policy::{Policy, Pool};
use stoker_sim::bound::fleet::Method;
use stoker_sim::demand::Demand;
use stoker_sim::model::Scoring;
use stoker_sim::simulate::least::least;
use stoker_sim::simulate::outcome::Outcome;
use stoker_sim::simulate::region::{Boot, Spot};
use stoker_sim::simulate::side_by_side::side_by_side;
use stoker_sim::simulate::{Setup, World};
use stoker_sim::spot_month::availability::GOOD;

use super::args::{JournalArg, MarketArgs, NowArg, OutputArg, StateDirArg, duration, time, whole};
use super::exit::{CliError, Exit, NotFound};
use super::out;
use baselines::Baseline;
pub(super) use before_after::{BeforeAfter, Now};
use figures::{PolicyRow, Report, Run};
pub(super) use recorded::{Recorded, still_running};
use stoker_service::needs::{Need, needs};
use stoker_service::price_tables::{EXAMPLE, PriceTables};
pub(super) use workload::LeftOut;
use workload::{Demands, Source};

/// How machines boot but for how fast: the spread of what operators report of GPU nodes on AWS.
const BOOT_SIGMA: f64 = 0.4;
/// Median time from the request of a machine until it is Ready, unless another is given.
const BOOT: &str = "270s";
/// Seeds that are played, unless others are given.
const SEEDS: u32 = 3;
/// Spot GPUs that a zone sells while it sells any.
const ZONE_GPUS: u32 = 64;
/// Points of a picture's time axis.
const SAMPLES: i64 = 720;

/// Plays policies on a demand of GPU pods in virtual time, side by side: what each costs, how long pods wait, and how
/// far it is from the least that any fleet could pay.
///
/// The decision is the one that the service makes, behind a model of the Cluster Autoscaler. Prices are those of the
/// tables, and of the simulated markets at --now. Boots, spot capacity and the built-in days are drawn from the seeds: the
/// same seeds give the same result at the same --now.
#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    /// Policy file; repeatable, to compare several [default: the built-in example]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// What arrives: day, for days of the built-in workload drawn from each seed, or a CSV file of GPU pods; also a list of
    /// pods of Alibaba's GPU trace of 2023 (openb)
    #[arg(long, value_name = "day|FILE", default_value = "day")]
    workload: PathBuf,
    /// Plays the GPU pods that a journal has: that of --state-dir, or of this directory or `PostgreSQL` database
    #[arg(long, value_name = "DIR|URL", num_args = 0..=1, default_missing_value = "", conflicts_with = "workload")]
    journal: Option<String>,
    /// Only what the journal has from this time on, e.g. 2026-11-01T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time, requires = "journal", conflicts_with = "days")]
    since: Option<Timestamp>,
    /// Only what the journal has until this time [default: all that it has]
    #[arg(long, value_name = "TIME", value_parser = time, requires = "journal")]
    until: Option<Timestamp>,
    #[command(flatten)]
    state: StateDirArg,
    /// How many days are played [default: 2; of a file all, and an hour more; of a journal its last day]
    #[arg(long, value_name = "N", value_parser = whole(1..=366_u32), allow_negative_numbers = true)]
    days: Option<u32>,
    /// First random seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(0_u64..), allow_negative_numbers = true)]
    seed: u64,
    /// How many seeds are played, from the first on
    #[arg(long, value_name = "N", default_value_t = SEEDS, value_parser = whole(1..=1000_u32), allow_negative_numbers = true)]
    seeds: u32,
    /// How the scheduler chooses among nodes: the fullest first, or the emptiest, which is kube-scheduler's default
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    scoring: ScoringArg,
    /// Median time from the request of a machine until it is Ready
    #[arg(long, value_name = "TIME", default_value = BOOT, value_parser = duration)]
    boot: SignedDuration,
    /// Share of on-demand launches that find no stock, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = whole(0..=100_u32), allow_negative_numbers = true)]
    no_stock: u32,
    /// Plays the same pods without Stoker too: on a static fleet of their peak, and under Cluster Autoscaler and Karpenter by their defaults
    #[arg(long)]
    baselines: bool,
    /// Writes a picture of the first seed: demand, nodes by type and dollars per hour over time
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    markets: MarketArgs,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ScoringArg {
    #[default]
    MostAllocated,
    LeastAllocated,
}

impl From<ScoringArg> for Scoring {
    fn from(arg: ScoringArg) -> Self {
        match arg {
            ScoringArg::MostAllocated => Self::MostAllocated,
            ScoringArg::LeastAllocated => Self::LeastAllocated,
        }
    }
}

/// A policy that is played.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    /// What it is called.
    name: String,
    /// The policy with its groups.
    pub(super) catalogue: Catalogue,
}

impl Tried {
    /// The policy as it is played; what of it is not goes to `notes`.
    pub(super) fn of(
        name: &str,
        policy: Policy,
        tables: &PriceTables,
        notes: &mut Vec<String>,
        cure: Option<String>,
    ) -> Result<Self, CliError> {
        let policy = playable(policy, name, notes);
        let catalogue = Catalogue::derive(&Arc::new(policy), &tables.prices, &tables.facts);
        if catalogue.groups.is_empty() {
            return Err(CliError::NotFound(NotFound { what: "node group", name: String::new(), place: name.to_owned(), cure }));
        }
        Ok(Self { name: name.to_owned(), catalogue })
    }

    /// The policy of a file, or the built-in example.
    pub(super) fn of_file(file: Option<&Path>, tables: &PriceTables, notes: &mut Vec<String>) -> Result<Self, CliError> {
        let name = file.map_or_else(|| EXAMPLE.to_owned(), stoker_service::files::shown);
        let cure = file.map(|file| format!("`stoker policy check {}` says why", file.display()));
        Self::of(&name, tables.policy(file)?, tables, notes, cure)
    }
}

/// How it is played.
#[derive(Debug, Clone, Copy)]
struct Rules {
    scoring: Scoring,
    boot: SignedDuration,
    /// Launches on demand that find no stock, in percent.
    no_stock: u32,
    baselines: bool,
}

/// What came of it.
#[derive(Debug)]
struct Played {
    demands: Demands,
    /// Each run's, in the order of the demands.
    outcomes: Vec<Outcome>,
    rows: Vec<PolicyRow>,
    /// What the same pods cost without Stoker, where that is asked for.
    baselines: Vec<Baseline>,
    notes: Vec<String>,
}

/// Plays policies with the demand that a source gives.
fn played(
    policies: &[Tried],
    source: &Source,
    days: Option<u32>,
    seeds: &[u64],
    rules: &Rules,
    tables: &PriceTables,
) -> Result<Played, CliError> {
    let demands = Demands::of(source, days, seeds, policies, tables)?;
    let mut notes = demands.notes.clone();
    let setups = demands.of_runs.iter().map(|of| rules.setup(of, policies)).collect::<Option<Vec<_>>>();
    let setups = setups.ok_or_else(|| CliError::other("a run of a policy that is not played"))?;
    let (outcomes, bounds) = play(&setups)?;
    let mut rows: Vec<PolicyRow> = policies.iter().map(|tried| PolicyRow::new(&tried.name)).collect();
    for ((of, outcome), least) in demands.of_runs.iter().zip(&outcomes).zip(bounds) {
        if let Some(row) = rows.get_mut(of.policy) {
            notes.extend(figures::broken(&row.policy, of.seed, &outcome.violations));
            row.runs.push(Run::of(of.seed, outcome, least));
        }
    }
    let first: Vec<&Setup> =
        demands.of_runs.iter().zip(&setups).filter(|(of, _)| of.policy == 0).map(|(_, setup)| setup).collect();
    let baselines = if rules.baselines { baselines::baselines(&first, &rows, demands.seconds)? } else { Some(Vec::new()) };
    if baselines.is_none() {
        notes.push(baselines::none(rows.first().map_or("", |row| row.policy.as_str())));
    }
    Ok(Played { demands, outcomes, rows, baselines: baselines.unwrap_or_default(), notes })
}

/// Carries the command out.
pub(super) async fn run(args: &SimulateArgs) -> Result<Exit, CliError> {
    let is_svg = |path: &PathBuf| path.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg"));
    if let Some(path) = args.picture.as_ref().filter(|path| !is_svg(path)) {
        return Err(CliError::Usage(format!("--picture {}: pictures are SVG; give a name that ends in .svg", path.display())));
    }
    let folder = |path: &PathBuf| path.parent().is_none_or(|dir| dir.as_os_str().is_empty() || dir.is_dir());
    if let Some(path) = args.picture.as_ref().filter(|path| !folder(path)) {
        return Err(CliError::Usage(format!("--picture {}: its folder is not there; make it first", path.display())));
    }
    let tables = PriceTables::load(args.markets.prices_dir.as_deref(), args.markets.world.as_deref(), args.now.now())?;
    let (policies, mut notes) = args.policies(&tables)?;
    let Some(last) = args.seed.checked_add(u64::from(args.seeds) - 1) else {
        return Err(CliError::Usage(format!(
            "--seed {}: {} seeds from it on go above the largest, {}",
            args.seed,
            args.seeds,
            u64::MAX
        )));
    };
    let seeds: Vec<u64> = (args.seed..=last).collect();
    let rules = Rules { scoring: args.scoring.into(), boot: args.boot, no_stock: args.no_stock, baselines: args.baselines };
    let played = played(&policies, &args.source().await?, args.days, &seeds, &rules, &tables)?;
    let Played { demands, outcomes, rows, baselines, notes: of_runs } = played;
    notes.extend(of_runs);
    let report = Report::new(demands.shown, rules.scoring, demands.seconds, &seeds, rows, baselines, notes);
    out::print(args.output.format, &report, Report::table)?;
    if let Some(path) = &args.picture {
        let columns: Vec<picture::Column<'_>> = (0..policies.len())
            .filter_map(|n| {
                let run = demands.of_runs.iter().position(|of| of.policy == n)?;
                let (tried, outcome) = (policies.get(n)?, outcomes.get(run)?);
                Some(picture::Column { name: &tried.name, outcome, gpus: gpus_of(&tried.catalogue) })
            })
            .collect();
        let drawn = picture::draw(&columns, args.seed).map_err(|why| CliError::other(format!("the picture: {why}")))?;
        let failed = CliError::failed(format!("--picture {}: cannot be written", path.display()));
        std::fs::write(path, drawn).map_err(failed)?;
    }
    Ok(Exit::Done)
}

impl SimulateArgs {
    /// Where the pods come from.
    async fn source(&self) -> Result<Source, CliError> {
        let Some(named) = &self.journal else { return Ok(Source::of(&self.workload)) };
        let place = JournalArg::place_named(named, &self.state)?;
        let asked = recorded::Asked { since: self.since, until: self.until, days: self.days };
        recorded::read(place, &asked).await.map(Source::Journal)
    }

    /// The policies as they are played, and what of them is not.
    fn policies(&self, tables: &PriceTables) -> Result<(Vec<Tried>, Vec<String>), CliError> {
        let mut notes = Vec::new();
        let files: Vec<Option<&Path>> = match self.policy.as_slice() {
            [] => vec![None],
            files => files.iter().map(|file| Some(file.as_path())).collect(),
        };
        let tried = files.into_iter().map(|file| Tried::of_file(file, tables, &mut notes)).collect::<Result<Vec<_>, _>>()?;
        Ok((tried, notes))
    }
}

impl Rules {
    /// The setup of a run; `None` where there is no such policy.
    fn setup(&self, of: &workload::OfRun, policies: &[Tried]) -> Option<Setup> {
        let catalogue = &policies.get(of.policy)?.catalogue;
        let mut setup = Setup::new(Arc::clone(&of.demand), catalogue.clone(), of.seed);
        let seconds = seconds(&of.demand);
        // Of all policies, so that a zone has spot at the same times under each.
        let places = policies.iter().flat_map(|tried| tried.catalogue.groups.values().map(|group| &group.place));
        let buys_spot = catalogue.policy.pools.iter().any(|pool| pool.prefer.contains(&CapacityType::Spot));
        setup.scoring = self.scoring;
        setup.sample_every = (seconds / SAMPLES).max(60);
        setup.world = World {
            boot: Boot::LogNormal { median: self.boot.as_secs_f64(), sigma: BOOT_SIGMA },
            spot: buys_spot.then(|| Spot::draw(of.seed, &GOOD, places, seconds, ZONE_GPUS)),
            refused_milli: self.no_stock * 10,
            ..World::default()
        };
        Some(setup)
    }
}

/// The policy without what a simulation has nothing to play with: suppliers other than the simulated one, probes,
/// Prometheus.
fn playable(mut policy: Policy, name: &str, notes: &mut Vec<String>) -> Policy {
    for need in needs(&policy) {
        let (field, pools) = match need {
            Need::Readings(pools) => ("evidence: probe", pools),
            Need::Signals(pools) => ("demand signals", pools),
            Need::Cluster(_) | Need::Windows(_) | Need::Isolation(_) => continue,
        };
        let pools: Vec<String> = pools.iter().map(ToString::to_string).collect();
        notes
            .push(format!("not played: {field} of {} in {name}; no GPU is read, and no Prometheus is asked", pools.join(", ")));
    }
    let with = |what: fn(&WarmFloor) -> bool| -> Vec<&str> {
        let has = |pool: &&Pool| pool.warm_floor.as_ref().is_some_and(what);
        policy.pools.iter().filter(has).map(|pool| pool.name.as_str()).collect()
    };
    let (buffered, learning) =
        (with(|floor| floor.mechanism == Mechanism::CapacityBuffer), with(|floor| floor.quantile.is_some()));
    if !buffered.is_empty() {
        let pools = buffered.join(", ");
        notes.push(format!(
            "played as mechanism: minSize: the warm floor of {pools} in {name}; a simulation serves no capacity buffers"
        ));
    }
    if !learning.is_empty() {
        let pools = learning.join(", ");
        notes.push(format!(
            "the quantile floor of {pools} in {name} knows nothing of the time before the start, and asks for nothing in the first day"
        ));
    }
    if !policy.commitments.is_empty() {
        notes.push(format!("reserved capacity of {name} is paid for while it is used; no other commitment is taken off"));
    }
    policy.suppliers.clear();
    for pool in &mut policy.pools {
        pool.supplier = None;
        pool.node_class = None;
        pool.evidence = Evidence::Pods;
        pool.signals.clear();
        if let Some(floor) = &mut pool.warm_floor {
            floor.mechanism = Mechanism::MinSize;
        }
    }
    policy
}

/// Plays all setups, as many at a time as there are processors, and bounds each from below.
fn play(setups: &[Setup]) -> Result<(Vec<Outcome>, Vec<Option<UsdMicros>>), CliError> {
    let bar = ProgressBar::new(setups.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("runs");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let made = side_by_side(setups, threads, |_, done| bar.set_position(done as u64));
    let outcomes = made.into_iter().map(|made| Ok(made.map_err(CliError::other)?.outcome)).collect::<Result<_, CliError>>()?;
    bar.set_message("lower bounds");
    let bounds = bounds(setups, threads)?;
    bar.finish_and_clear();
    Ok((outcomes, bounds))
}

/// The bound of each setup; runs of a policy on the same pods have the same.
fn bounds(setups: &[Setup], threads: usize) -> Result<Vec<Option<UsdMicros>>, CliError> {
    let first = |n: usize| {
        let same = |one: &Setup, other: &Setup| {
            Arc::ptr_eq(&one.demand, &other.demand) && Arc::ptr_eq(&one.catalogue.policy, &other.catalogue.policy)
        };
        setups.iter().position(|one| setups.get(n).is_some_and(|this| same(one, this))).unwrap_or(n)
    };
    let firsts: Vec<usize> = (0..setups.len()).map(first).collect();
    let wanted: Vec<usize> = (0..setups.len()).filter(|n| firsts.get(*n) == Some(n)).collect();
    let method = Method::default();
    let of = |n: &usize| setups.get(*n).map(|setup| (*n, least(&setup.catalogue, &setup.demand, &method)));
    let made: BTreeMap<usize, _> = thread::scope(|scope| {
        let chunks = wanted.chunks(wanted.len().div_ceil(threads).max(1));
        let running: Vec<_> =
            chunks.map(|chunk| scope.spawn(move || chunk.iter().filter_map(of).collect::<Vec<_>>())).collect();
        running.into_iter().flat_map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let bound = |n: &usize| made.get(n).cloned().transpose().map(Option::flatten).map_err(CliError::other);
    firsts.iter().map(bound).collect()
}

fn seconds(demand: &Demand) -> i64 {
    SignedDuration::try_from_secs_f64(demand.seconds).map_or(0, |length| length.as_secs())
}

/// GPUs that pods can request of a node of each instance type.
fn gpus_of(catalogue: &Catalogue) -> BTreeMap<String, u32> {
    let of = |group: &Arc<stoker_core::catalogue::group::Group>| {
        (group.place.instance_type.to_string(), group.template.allocatable.gpus)
    };
    catalogue.groups.values().map(of).collect()
}
