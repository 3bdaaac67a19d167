//! `stoker plan`: what would be bought if so many nodes were asked for now, and why the rest would not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{Cloud, InstanceType, NodeGroupId, PoolName, Region, ZoneId};
use stoker_core::base::text::nearest;
use stoker_core::base::units::UsdPerHour;
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::derive::LeftOut;
use stoker_core::choose::allocate::Proof;
use stoker_core::choose::sensitivity::lifts;
use stoker_core::choose::what_if::what_if_counted;
use stoker_core::limits::budget::standing;
use stoker_core::policy::{Policy, RawPolicy};
use stoker_core::state::budget::Stage;
use stoker_core::state::memory::Memory;

use super::accounts::{BudgetRow, UseRow};
use super::args::{LiveArg, MarketArgs, NowArg, OutputArg, whole};
use super::brief::{self, LiftRow};
use super::candidates::{CandidateRow, TRANSFER, candidates_table, moves_data, old_prices, unlimited_quotas};
use super::exit::{CliError, Exit, NotFound};
use super::out::{self, Money};
use super::policy::classes;
use stoker_service::feeds::policy_watch::PolicyError;
use stoker_service::price_tables::{EXAMPLE, PriceTables, PriceTablesError, policy_text};
use stoker_service::print::{count, paragraph, table};
use stoker_service::unmatched::Unmatched;
use stoker_service::{files, policy_file};

/// Shows what would be bought if this many nodes were requested now: the chosen offers with their prices, why the others lost, and the most
/// cost-effective limit to raise.
///
/// Nothing is bought, and running nodes are not counted. Prices are those of the tables, with spot prices from the simulated markets.
/// Stock is unknown: a supplier may refuse what is chosen.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Policy file [default: the built-in example]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The pool to buy for
    #[arg(long)]
    pool: String,
    /// One node group of the pool, e.g. inference.g6-xlarge.us-east-1a [default: all of them]
    #[arg(long)]
    group: Option<String>,
    /// How many nodes
    #[arg(long, value_name = "N", value_parser = whole(1_u32..), allow_negative_numbers = true)]
    count: u32,
    /// Show every candidate as a table and everything excluded, not only the most relevant
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    markets: MarketArgs,
    #[command(flatten)]
    live: LiveArg,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

/// What the verdicts rest on. Limits speak of what is held, since a running service says the same of its nodes.
const NOTE: &str = "Running nodes are not counted: what a limit calls in use or in flight are the nodes chosen above. Stock \
                    is unknown: a supplier may refuse what is chosen here.";

/// What data transfer is, where there is any: a column of the table, a part of the price in the short form.
const DATA_NOTE: &str = "is what it costs a node to read the pool's data, spread over the time between two reads. Offers are \
                         ranked with it; prices, totals and budgets exclude it.";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanReport {
    at: Timestamp,
    policy: String,
    pool: PoolName,
    group: Option<NodeGroupId>,
    /// Nodes asked for.
    asked: u32,
    /// Nodes that an offer was found for.
    found: u32,
    /// What the nodes found add to the bill together per hour: their prices, less what commitments pay of them.
    total: Money,
    /// The same without commitments.
    list_total: Money,
    /// The pool's budget and that of all pools, with these nodes bought.
    budgets: Vec<BudgetRow>,
    /// How much of each commitment these nodes use.
    commitments: Vec<UseRow>,
    /// Every offer weighed: the chosen and the eligible in rank order, then the barred.
    candidates: Vec<CandidateRow>,
    /// Limits worth lifting, the best first: each alone would find missing nodes, or find the same capacity for less.
    lifts: Vec<LiftRow>,
    /// Places that the pool names but gets no group in.
    left_out: Vec<LeftOutRow>,
    /// Names that the pool lists and that yield it no group.
    unmatched: Vec<Unmatched>,
    warnings: Vec<String>,
    /// How good the choice is known to be; left out where no other is better.
    #[serde(skip_serializing_if = "Proof::is_best")]
    proof: Proof,
    #[serde(skip)]
    total_line: String,
    #[serde(skip)]
    all: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeftOutRow {
    cloud: Cloud,
    region: Region,
    zone: ZoneId,
    instance_type: InstanceType,
    reason: String,
}

/// Carries the command out.
pub(super) async fn run(args: &PlanArgs) -> Result<Exit, CliError> {
    let now = args.now.now();
    let price_tables = PriceTables::load(args.markets.prices_dir.as_deref(), args.markets.world.as_deref(), now)?;
    let price_tables = args.live.ask(price_tables).await?;
    let (policy, mut warnings) = read(args.policy.as_deref(), &price_tables)?;
    let catalogue = price_tables.catalogue(policy);
    let source = args.policy.as_ref().map_or_else(|| EXAMPLE.to_owned(), |path| path.display().to_string());
    let pool = find_pool(&catalogue, &args.pool, &source)?;
    let group = args.group.as_deref().map(|text| find_group(&catalogue, &pool, text)).transpose()?;
    // A cluster without any node, neither Stoker's nor of others.
    let empty = Memory { foreign: Some(Arc::default()), ..Memory::default() };
    let (explanation, usage) = what_if_counted(&catalogue, &empty, &pool, group.as_ref(), args.count, Times::at(now));
    let lifts = lifts(&catalogue, &empty, (&pool, group.as_ref()), &explanation, Times::at(now));
    let candidates: Vec<_> =
        explanation.candidates.iter().map(|candidate| CandidateRow::of(candidate, now).by(&catalogue)).collect();
    let left_out = match &group {
        Some(_) => Vec::new(),
        None => catalogue.left_out.iter().filter(|left| left.pool == pool).map(LeftOutRow::of).collect(),
    };
    let unmatched = match &group {
        Some(_) => Vec::new(),
        None => price_tables.unmatched(&catalogue).into_iter().filter(|name| name.pool == pool).collect(),
    };
    let cash = usage.total_cash();
    let list = usage.spend.values().fold(UsdPerHour::ZERO, |sum, prices| sum.plus(*prices));
    let of_commitments = if list == cash { String::new() } else { format!(", {list}/h without commitments") };
    let budgets =
        standing(&usage, &catalogue, Wall(now)).into_iter().filter(|budget| budget.of.pool().is_none_or(|of| *of == pool));
    let budgets = budgets.map(BudgetRow::from).collect();
    warnings.extend(old_prices(&candidates));
    let short = explanation.found < args.count;
    let report = PlanReport {
        at: now,
        policy: source,
        pool,
        group,
        asked: args.count,
        found: explanation.found,
        total: cash.into(),
        list_total: list.into(),
        budgets,
        commitments: usage.committed.uses(&catalogue.policy.commitments).into_iter().map(UseRow::from).collect(),
        warnings,
        proof: explanation.proof,
        total_line: format!("{} of {} found, {cash}/h together{of_commitments}", explanation.found, count(args.count, "node")),
        candidates,
        lifts: lifts.into_iter().map(LiftRow::of).collect(),
        left_out,
        unmatched,
        all: args.all,
    };
    out::print(args.output.format, &report, PlanReport::table)?;
    Ok(if short { Exit::Short } else { Exit::Done })
}

/// The policy, and what no node can be made by as far as the files of its suppliers are here.
fn read(file: Option<&Path>, price_tables: &PriceTables) -> Result<(Policy, Vec<String>), CliError> {
    let Some(file) = file else { return Ok((price_tables.policy(None)?, Vec::new())) };
    let (name, text) = (files::shown(file), policy_text(file).map_err(PriceTablesError::from)?);
    let mut faults = Vec::new();
    let held = |raw: &RawPolicy| {
        faults = classes::held(raw, None).faults;
        Vec::new()
    };
    let read = policy_file::parse_with_doubts(&name, &text, Some(&price_tables.prices), held);
    let (read, _) = read.map_err(|faults| PriceTablesError::from(PolicyError::Faults(faults)))?;
    let faults = read.told(&name, &text, faults);
    let warnings = faults.iter().map(|fault| format!("{name}:{}:{}: {}", fault.line, fault.column, fault.message)).collect();
    Ok((read.value, warnings))
}

fn find_pool(catalogue: &Catalogue, text: &str, policy: &str) -> Result<PoolName, CliError> {
    let names = || catalogue.policy.pools.iter().map(|pool| pool.name.as_str());
    catalogue.policy.pools.iter().map(|pool| &pool.name).find(|name| name.as_str() == text).cloned().ok_or_else(|| {
        let cure = match nearest(text, names()) {
            Some(name) => format!("did you mean {name}?"),
            None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
        };
        CliError::NotFound(NotFound { what: "pool", name: text.to_owned(), place: policy.to_owned(), cure: Some(cure) })
    })
}

fn find_group(catalogue: &Catalogue, pool: &PoolName, text: &str) -> Result<NodeGroupId, CliError> {
    catalogue.pool_groups(pool).map(|group| &group.id).find(|id| id.as_str() == text).cloned().ok_or_else(|| {
        let near = nearest(text, catalogue.pool_groups(pool).map(|group| group.id.as_str()));
        let cure = near.map_or_else(|| "omit --group to see them all".to_owned(), |id| format!("did you mean {id}?"));
        CliError::NotFound(NotFound { what: "group", name: text.to_owned(), place: format!("pool {pool}"), cure: Some(cure) })
    })
}

impl LeftOutRow {
    fn of(left: &LeftOut) -> Self {
        Self {
            cloud: left.place.cloud.clone(),
            region: left.place.region.clone(),
            zone: left.place.zone.clone(),
            instance_type: left.place.instance_type.clone(),
            reason: left.why.to_string(),
        }
    }
}

impl PlanReport {
    fn table(&self) -> String {
        let mut text = String::new();
        let of = self.group.as_ref().map_or_else(|| format!("pool {}", self.pool), |group| format!("group {group}"));
        let asked = count(self.asked, "node");
        let _ = writeln!(text, "{asked} of {of} by {}, as of {}", self.policy, self.at.strftime("%Y-%m-%d %H:%M:%SZ"));
        if self.candidates.is_empty() {
            text.push_str("No instance type in any zone fits this pool.\n");
        } else if self.all {
            text.push_str(&candidates_table(&self.candidates));
            text.push('\n');
        } else {
            brief::tell(&mut text, &self.candidates);
        }
        brief::line(&mut text, "total", &self.total_line);
        let missing = self.found < self.asked && !self.candidates.is_empty();
        brief::tell_lifts(&mut text, &self.lifts, missing.then_some(&self.candidates[..]));
        if !self.proof.is_best() {
            text.push_str(&paragraph("note:", &self.proof.to_string()));
        }
        for commitment in self.commitments.iter().filter(|commitment| commitment.is_left) {
            text.push_str(&paragraph("unused:", &commitment.to_string()));
        }
        for budget in self.budgets.iter().filter(|budget| budget.stage != Stage::Ample) {
            text.push_str(&paragraph("budget:", &budget.to_string()));
        }
        if let Some(quotas) = unlimited_quotas(&self.candidates) {
            text.push_str(&paragraph("unlimited:", &quotas));
        }
        text.push_str(&paragraph("note:", NOTE));
        if moves_data(&self.candidates) {
            let named = if self.all { TRANSFER } else { "data transfer" };
            text.push_str(&paragraph("note:", &format!("{named} {DATA_NOTE}")));
        }
        for warning in &self.warnings {
            text.push_str(&paragraph("warning:", warning));
        }
        text.push_str(&self.left_out_table());
        text
    }

    /// The places left out, by reason; only how many where they are not all asked for and there are others.
    fn left_out_table(&self) -> String {
        let mut reasons: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
        for row in &self.left_out {
            let (places, types) = reasons.entry(&row.reason).or_default();
            *places += 1;
            types.insert(row.instance_type.as_str());
        }
        let mut text = String::new();
        if !self.all && !self.candidates.is_empty() && !reasons.is_empty() {
            let [places, reasons] = [(self.left_out.len(), "place"), (reasons.len(), "reason")].map(|(n, of)| count(n, of));
            brief::line(&mut text, "excluded", &format!("{places} for {reasons}; shown with --all"));
        } else if !reasons.is_empty() {
            let rows = reasons.into_iter().map(|(reason, (places, types))| {
                vec![places.to_string(), reason.to_owned(), types.into_iter().collect::<Vec<_>>().join(" ")]
            });
            text.push_str("\nexcluded:\n");
            text.push_str(&table(&["PLACES", "REASON", "INSTANCE TYPES"], &["PLACES"], rows.collect()));
        }
        for Unmatched { pool: _, kind, name, reason } in &self.unmatched {
            text.push_str(&paragraph("no group for", &format!("{kind} {name}: {reason}")));
        }
        text
    }
}
