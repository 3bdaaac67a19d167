//! `stoker advise`: what a month of readings says of each workload, and what would do the same for less.

mod ranked;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use stoker_advice::spend::without_gpu;
use stoker_advice::workload::{self, Class, Inputs, Interval, LEAST_DAYS, Suggestion, Used, WorkloadAdvice};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, InstanceType, PoolName, Region, ZoneId};
use stoker_core::base::units::{Milli, Ppm, UsdMicros};
use stoker_core::limits::commitment::{Ask, propose};
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::rules::advise::Thresholds;

use super::args::{JournalArg, MarketArgs, NowArg, OutputArg, whole};
use super::commit::last_policy;
use super::exit::{CliError, Exit};
use super::idle::{self, By, IdleRow};
use super::nodes::observed;
use super::out::{self, Money};
use super::report::last_days;
use super::seen::Seen;
use ranked::{Found, Ranked};
use stoker_journal::Journal;
use stoker_service::needs::READ_GPUS;
use stoker_service::price_tables::{self, PriceTables, PriceTablesError};
use stoker_service::print::{count, paragraph, table};
use words::{arithmetic, assumptions, length, ppm, shown, spread};

/// Longest history that is kept, in days.
const MOST_DAYS: i64 = 30;

/// Rows of idle GPUs that the table shows; -o json has them all.
const MOST_IDLE: usize = 12;

/// Advises, per workload: how much of its GPUs it uses, the cheapest that would do, how often to write checkpoints, which allocated GPUs are idle.
///
/// It is based on the readings that the service kept, and needs a week of them for a workload. It advises and never acts.
#[derive(Debug, Args)]
pub(super) struct AdviseArgs {
    /// How far to look back, in days
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = whole(7..=MOST_DAYS), allow_negative_numbers = true)]
    days: i64,
    /// Show how each figure is calculated
    #[arg(long)]
    explain: bool,
    /// List every measure that would save, by dollars a month: its evidence, its risk, and the change of the policy
    #[arg(long, conflicts_with = "explain")]
    ranked: bool,
    /// Write the policy with the measure into this file, which must not be there yet, and print the difference
    #[arg(long, value_name = "FILE", requires = "ranked", requires = "policy")]
    apply: Option<PathBuf>,
    /// Which measure, by its rank
    #[arg(long, value_name = "RANK", default_value_t = 1, requires = "apply", value_parser = whole(1..=i64::from(u16::MAX)))]
    measure: i64,
    /// Policy file with the rules and thresholds to apply [default: the policy that the service used last]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    markets: MarketArgs,
    #[command(flatten)]
    journal: JournalArg,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AdviseReport {
    at: Timestamp,
    days: i64,
    /// Hours with readings; averages are over them.
    known_hours: usize,
    thresholds: Thresholds,
    /// Dearest first.
    workloads: Vec<WorkloadRow>,
    /// Workloads of which nothing is said, and why.
    refused: Vec<RefusedRow>,
    /// GPUs that did nothing, by owner.
    idle: Vec<IdleRow>,
    assumptions: Vec<String>,
    /// Why no workload is known, and what to do; `None` where one is, or some are too young.
    unknown_because: Option<String>,
    #[serde(skip)]
    explained: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RefusedRow {
    owner: String,
    pool: PoolName,
    why: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadRow {
    owner: String,
    pool: PoolName,
    known_days: usize,
    class: Class,
    #[serde(flatten)]
    used: Used,
    instance_types: Vec<InstanceType>,
    capacity_type: CapacityType,
    gpus_per_pod: u32,
    /// Pods on average, in thousandths.
    pods_milli: u32,
    per_pod: Money,
    per_month: Money,
    /// `None` where `stay` says why.
    cheapest: Option<SuggestionRow>,
    stay: Option<String>,
    /// The cheapest as the policy stands, where that is another one.
    as_the_policy_stands: Option<SuggestionRow>,
    checkpoints: Option<IntervalRow>,
    /// How each figure comes about.
    arithmetic: Vec<String>,
    #[serde(skip)]
    shown: [String; 2],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SuggestionRow {
    cloud: Cloud,
    region: Region,
    zone: ZoneId,
    instance_type: InstanceType,
    capacity_type: CapacityType,
    gpus_per_pod: u32,
    /// `whole`, a MIG profile, or turns.
    layout: String,
    per_node: Money,
    pods_per_node: u32,
    per_pod: Money,
    per_month: Money,
    saved_per_month: Money,
    /// What the policy would have to say for it.
    policy_changes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct IntervalRow {
    every_seconds: i64,
    best_seconds: i64,
    cost_seconds: i64,
    hazard_per_node_hour: String,
    wasted_ppm: u32,
    least_ppm: u32,
    spot_per_month: Money,
    saved_per_month: Money,
}

/// Carries the command out.
pub(super) async fn run(args: &AdviseArgs) -> Result<Exit, CliError> {
    let now = args.now.now();
    let price_tables = PriceTables::load(args.markets.prices_dir.as_deref(), args.markets.world.as_deref(), now)?;
    let place = args.journal.place()?;
    let reader = Journal::open_read_only(place.clone()).await?;
    let policy = match &args.policy {
        Some(path) => price_tables.policy(Some(path))?,
        None => last_policy(&reader, &place).await?,
    };
    let wide = workload::everything(&policy, &price_tables.prices, &price_tables.facts);
    let catalogue = price_tables.catalogue(policy);
    let memory = reader.memory().await?;
    let observed = observed(&reader, now, args.days * 24).await?;
    let inputs = Inputs { catalogue: &catalogue, wide: &wide, book: &price_tables.prices, memory: &memory, now };
    let advice = workload::advise(&observed, &inputs);
    if args.ranked {
        let (days, policy) = (args.days, &catalogue.policy);
        let since = now.saturating_sub(SignedDuration::from_hours(days * 24)).unwrap_or(Timestamp::MIN);
        let used = reader.used_between(since, now).await?;
        let all = Ask { kind: None, term: None, discount: None };
        // Too little use to advise on is none to commit to.
        let proposals =
            propose(&used, &price_tables.prices, policy, all, Wall(now)).map_or_else(|_| Vec::new(), |found| found.proposals);
        let spent = last_days(&reader, (policy, &price_tables.prices), days, now).await?;
        // A world that is named is asked; else the suppliers' facts as the service had them last.
        let latest = if args.markets.world.is_some() { BTreeMap::new() } else { reader.last_market_facts().await? };
        let ranked = Ranked::of(&Found {
            policy,
            prices: &price_tables.quoted(policy, latest, now),
            workloads: &advice.workloads,
            idle: &idle::rows(&observed, &By::Owner, BTreeMap::new()),
            proposals: &proposals,
            lives: &reader.lives(spent.since, now).await?,
            without_gpu: &without_gpu(reader.pods_on_free_nodes(spent.since, now).await?),
            spent,
            now,
        });
        return args.tell(&ranked, &price_tables);
    }
    let too_little = advice.too_little.iter().map(|(owner, pool, days)| RefusedRow {
        owner: owner.to_string(),
        pool: pool.clone(),
        why: format!("{days} days of readings, and a week is needed: {} more", LEAST_DAYS.saturating_sub(*days)),
    });
    let unknown = advice.unknown.iter().map(|(owner, pool, why)| RefusedRow {
        owner: owner.to_string(),
        pool: pool.clone(),
        why: (*why).to_owned(),
    });
    let thresholds = catalogue.policy.advise;
    let refused: Vec<_> = too_little.chain(unknown).collect();
    let unknown_because = if advice.workloads.is_empty() && refused.is_empty() {
        let unread = || (observed.known_hours() == 0).then(|| format!("no GPU readings: {READ_GPUS}"));
        Seen::last(&reader).await?.blind().or_else(unread)
    } else {
        None
    };
    let report = AdviseReport {
        at: now,
        days: args.days,
        known_hours: observed.known_hours(),
        thresholds,
        workloads: advice.workloads.iter().map(|one| WorkloadRow::of(one, thresholds)).collect(),
        refused,
        unknown_because,
        idle: idle::rows(&observed, &By::Owner, BTreeMap::new()),
        assumptions: assumptions(thresholds),
        explained: args.explain,
    };
    out::print(args.output.format, &report, AdviseReport::table)?;
    Ok(if report.workloads.is_empty() { Exit::Short } else { Exit::Done })
}

impl AdviseArgs {
    /// Prints the list, or applies one of it.
    fn tell(&self, ranked: &Ranked, price_tables: &PriceTables) -> Result<Exit, CliError> {
        let (Some(to), Some(from), false) = (&self.apply, &self.policy, ranked.measures.is_empty()) else {
            out::print(self.output.format, ranked, Ranked::table)?;
            return Ok(if ranked.measures.is_empty() { Exit::Short } else { Exit::Done });
        };
        let at = usize::try_from(self.measure).ok().and_then(|rank| rank.checked_sub(1));
        let measure = at.and_then(|at| ranked.measures.get(at)).ok_or_else(|| {
            let known = count(ranked.measures.len(), "measure");
            CliError::Usage(format!("--measure: there is no rank {}: {known} would save", self.measure))
        })?;
        let text = price_tables::policy_text(from).map_err(PriceTablesError::from)?;
        out::write(&ranked::apply(measure, from, &text, to, &price_tables.prices)?)?;
        Ok(Exit::Done)
    }
}

impl WorkloadRow {
    fn of(advice: &WorkloadAdvice, thresholds: Thresholds) -> Self {
        let WorkloadAdvice {
            owner,
            pool,
            known_days,
            levels,
            class,
            now,
            cheapest,
            as_it_stands,
            checkpoints,
            quantized: _,
            held: _,
        } = advice;
        let suggested = cheapest.as_ref().map_or_else(
            |_| String::new(),
            |one| {
                let changes: Vec<String> = one.changes.iter().map(ToString::to_string).collect();
                let changes = if changes.is_empty() { String::new() } else { format!("; policy: {}", changes.join(", ")) };
                shown(one) + &changes
            },
        );
        let types: Vec<_> = now.instance_types.iter().map(ToString::to_string).collect();
        Self {
            owner: owner.to_string(),
            pool: pool.clone(),
            known_days: *known_days,
            class: *class,
            used: levels.clone(),
            instance_types: now.instance_types.clone(),
            capacity_type: now.capacity_type,
            gpus_per_pod: now.gpus,
            pods_milli: now.pods.0,
            per_pod: now.per_pod.into(),
            per_month: now.per_month.into(),
            cheapest: cheapest.as_ref().ok().map(SuggestionRow::from),
            stay: cheapest.as_ref().err().map(ToString::to_string),
            as_the_policy_stands: as_it_stands.as_ref().map(SuggestionRow::from),
            checkpoints: checkpoints.as_ref().map(IntervalRow::from),
            arithmetic: arithmetic(advice, thresholds),
            shown: [format!("{} of {} {}", now.gpus, types.join(", "), now.capacity_type), suggested],
        }
    }
}

impl From<&Suggestion> for SuggestionRow {
    fn from(of: &Suggestion) -> Self {
        let place = &of.market.place;
        Self {
            cloud: place.cloud.clone(),
            region: place.region.clone(),
            zone: place.zone.clone(),
            instance_type: place.instance_type.clone(),
            capacity_type: of.market.capacity_type,
            gpus_per_pod: of.gpus,
            layout: of.layout.to_string(),
            per_node: of.node.into(),
            pods_per_node: of.pods_per_node,
            per_pod: of.per_pod.into(),
            per_month: of.per_month.into(),
            saved_per_month: of.saved.into(),
            policy_changes: of.changes.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&Interval> for IntervalRow {
    fn from(of: &Interval) -> Self {
        Self {
            every_seconds: of.every.as_secs(),
            best_seconds: of.best.as_secs(),
            cost_seconds: of.cost.as_secs(),
            hazard_per_node_hour: of.hazard.to_string(),
            wasted_ppm: of.wasted.0,
            least_ppm: of.least.0,
            spot_per_month: of.spot_per_month.into(),
            saved_per_month: of.saved.into(),
        }
    }
}

impl AdviseReport {
    fn table(&self) -> String {
        let mut text = format!(
            "Readings of the last {} days before {}: in {} of {} hours\n\n",
            self.days,
            self.at.strftime("%Y-%m-%d %H:%MZ"),
            self.known_hours,
            self.days * 24
        );
        if self.workloads.is_empty() {
            text.push_str("Not enough readings for any workload.\n");
            if let Some(why) = &self.unknown_because {
                text.push_str(&paragraph("because", why));
            }
        } else {
            text.push_str(&self.workloads_table());
            text.push_str(&paragraph(
                "note:",
                "COMPUTE is SM activity, or utilization where that was not read; it and MEMORY are p50/p95/peak in percent. PODS is their \
                 average number.",
            ));
        }
        for row in self.workloads.iter().filter(|_| self.explained) {
            let _ = write!(text, "\n{} in {}\n", row.owner, row.pool);
            for line in &row.arithmetic {
                text.push_str(&paragraph(" ", line));
            }
        }
        let spot: Vec<_> = self.workloads.iter().filter_map(|row| Some((row, row.checkpoints.as_ref()?))).collect();
        if !spot.is_empty() {
            text.push_str("\nCheckpoints on spot\n");
            text.push_str(&checkpoints(&spot));
        }
        if !self.idle.is_empty() {
            text.push_str("\nAllocated but idle\n");
            text.push_str(&idle::shown(self.idle.get(..MOST_IDLE).unwrap_or(&self.idle)));
            if self.idle.len() > MOST_IDLE {
                let _ = writeln!(text, "and {} more: -o json has them", self.idle.len() - MOST_IDLE);
            }
        }
        for RefusedRow { owner, pool, why } in &self.refused {
            text.push_str(&paragraph("no advice:", &format!("{owner} in {pool}: {why}")));
        }
        if self.explained {
            text.push_str("\nAssumptions\n");
            for line in &self.assumptions {
                text.push_str(&paragraph("-", line));
            }
        } else if !self.workloads.is_empty() {
            text.push_str(&paragraph("note:", "an estimate; --explain shows the arithmetic and what it assumes."));
        }
        text
    }

    /// What each workload uses and costs, and below it what would do for less.
    fn workloads_table(&self) -> String {
        let header = ["WORKLOAD", "POOL", "CLASS", "COMPUTE", "MEMORY", "PODS", "$/MONTH", "ON"];
        let rows = self.workloads.iter().map(|row| {
            vec![
                row.owner.clone(),
                row.pool.to_string(),
                row.class.as_str().to_owned(),
                spread(row.used.compute()),
                spread(row.used.memory),
                Milli(row.pods_milli).to_string(),
                UsdMicros(row.per_month.micro_usd).to_string(),
                row.shown[0].clone(),
            ]
        });
        let mut text = table(&header, &["PODS", "$/MONTH"], rows.collect());
        let saving: Vec<_> = self.workloads.iter().filter_map(|row| Some((row, row.cheapest.as_ref()?))).collect();
        if !saving.is_empty() {
            text.push_str("\nThe cheapest that fits\n");
            let rows = saving.into_iter().map(|(row, one)| {
                let [_, suggested] = row.shown.clone();
                let [month, saved] = [&one.per_month, &one.saved_per_month].map(|money| UsdMicros(money.micro_usd).to_string());
                vec![row.owner.clone(), month, saved, suggested]
            });
            text.push_str(&table(&["WORKLOAD", "$/MONTH", "SAVES", "ON"], &["$/MONTH", "SAVES"], rows.collect()));
        }
        for row in &self.workloads {
            if let Some(why) = &row.stay {
                text.push_str(&paragraph("stays:", &format!("{} in {}: {why}", row.owner, row.pool)));
            }
        }
        text
    }
}

fn checkpoints(rows: &[(&WorkloadRow, &IntervalRow)]) -> String {
    let header = ["EVERY", "BEST", "RECLAIMS/NODE-H", "WASTES", "WASTES AT BEST", "SPOT/MONTH", "SAVES", "WORKLOAD"];
    let cells = rows.iter().map(|(row, of)| {
        let seconds = |seconds: i64| length(SignedDuration::from_secs(seconds));
        vec![
            seconds(of.every_seconds),
            seconds(of.best_seconds),
            of.hazard_per_node_hour.clone(),
            ppm(Ppm(of.wasted_ppm)),
            ppm(Ppm(of.least_ppm)),
            UsdMicros(of.spot_per_month.micro_usd).to_string(),
            UsdMicros(of.saved_per_month.micro_usd).to_string(),
            format!("{} in {}", row.owner, row.pool),
        ]
    });
    table(&header, &header[..7], cells.collect())
}
