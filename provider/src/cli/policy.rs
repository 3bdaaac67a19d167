//! `stoker policy`: is a policy file sound, what does it say in full, and how is one written.

pub(super) mod classes;
mod effective;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::UsdPerHour;
use stoker_core::catalogue::Catalogue;
use stoker_core::choose::feasibility::warnings;
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::rules::month::MonthBudget;
use stoker_core::policy::{Policy, Pool, RawPolicy};

use super::args::{MarketArgs, NowArg, OutputArg, aws_file};
use super::exit::{self, CliError, Exit};
use super::out::{self, Format, Money};
use classes::Held;
pub(super) use effective::effective;
use stoker_aws::config::Config;
use stoker_service::clock::Clock;
use stoker_service::feeds::policy_watch::PolicyError;
use stoker_service::files;
use stoker_service::policy_file;
use stoker_service::price_tables::{self, EXAMPLE, PriceTables, PriceTablesError};
use stoker_service::print::{count, paragraph, table};
use stoker_service::unmatched::Unmatched;
use stoker_service::yaml::{self, Faults, FileFault};

/// Checks, shows and describes policy files.
#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Reports every error of a policy file with its line, or what the policy allows
    Check(CheckArgs),
    /// Prints the JSON Schema of the policy file, for editors
    Schema,
    /// Prints the policy with every default filled in; the output is a policy file itself
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[arg(
        required = true,
        value_name = "FILE",
        help = "Policy files, or manifests of ConfigMaps that hold policies; - for standard input"
    )]
    files: Vec<PathBuf>,
    /// File aws.yaml as it is here, which Stoker reads at `config` of the supplier: node classes and regions of pools are looked up in it
    #[arg(long, value_name = "FILE")]
    aws_file: Option<PathBuf>,
    #[command(flatten)]
    markets: MarketArgs,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Policy file; - for standard input [default: the built-in example]
    file: Option<PathBuf>,
    /// Folder of price tables whose names the policy may use [default: the built-in ones]
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    prices_dir: Option<PathBuf>,
    /// How it is printed
    #[arg(short = 'o', long = "output", value_enum, default_value = "yaml", value_name = "FORMAT")]
    format: ShowFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ShowFormat {
    Yaml,
    Json,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckReport {
    file: String,
    ok: bool,
    faults: Vec<FaultRow>,
    pools: Vec<PoolRow>,
    /// What all pools together may spend.
    max_per_hour: Option<Money>,
    /// What they may spend in a calendar month.
    max_per_month: Option<Money>,
    /// Names that yield no group; each is a warning too.
    unmatched: Vec<Unmatched>,
    warnings: Vec<String>,
    #[serde(skip)]
    overall: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FaultRow {
    line: usize,
    column: usize,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolRow {
    pool: PoolName,
    /// Node groups that the pool gives.
    groups: usize,
    /// Places that it names but gets no group in.
    left_out: usize,
    min_nodes: u32,
    max_nodes: u32,
    max_per_hour: Option<Money>,
    max_per_month: Option<Money>,
    capacity_types: Vec<CapacityType>,
    #[serde(skip)]
    budget: String,
}

/// Carries the command out.
pub(super) fn run(args: &PolicyArgs) -> Result<Exit, CliError> {
    match &args.command {
        PolicyCommand::Check(args) => check(args),
        PolicyCommand::Schema => out::write(&out::json(&policy_file::schema())?).map(|()| Exit::Done),
        PolicyCommand::Show(args) => show(args),
    }
}

fn check(args: &CheckArgs) -> Result<Exit, CliError> {
    let now = args.now.now();
    let price_tables = PriceTables::load(args.markets.prices_dir.as_deref(), args.markets.world.as_deref(), now)?;
    let aws = args.aws_file.as_deref().map(|file| aws_file("--aws-file", file)).transpose()?;
    let (mut reports, mut failures) = (Vec::new(), Vec::new());
    for file in &args.files {
        match check_file(file, &price_tables, Wall(now), aws.as_ref()) {
            Ok(checked) => {
                for policy in checked {
                    match policy {
                        Ok(report) => reports.push(report),
                        // A program finds faults in the report, a person on standard error.
                        Err(faults) if args.output.format != Format::Table => reports.push(CheckReport::faulty(&faults)),
                        Err(faults) => failures.push(PriceTablesError::from(PolicyError::Faults(faults)).into()),
                    }
                }
            }
            Err(error) => failures.push(error),
        }
    }
    match reports.as_slice() {
        [] => {}
        [one] => out::print(args.output.format, one, CheckReport::table)?,
        many => {
            out::print(args.output.format, &many, |many| many.iter().map(CheckReport::table).collect::<Vec<_>>().join("\n"))?
        }
    }
    // The last is told, and counts, as that of any command.
    let last = failures.pop();
    failures.iter().for_each(exit::report);
    match last {
        Some(error) => Err(error),
        None if reports.iter().all(|report| report.ok) => Ok(Exit::Done),
        None => Ok(Exit::BadFile),
    }
}

/// What is to be said of each policy of a file: one, or those of a ConfigMap.
fn check_file(
    file: &Path,
    price_tables: &PriceTables,
    wall: Wall,
    aws: Option<&Config>,
) -> Result<Vec<Result<CheckReport, Faults>>, CliError> {
    let (name, text) = (files::shown(file), price_tables::policy_text(file).map_err(PriceTablesError::from)?);
    let Some(held) = yaml::held_policies(&name, &text) else {
        return Ok(vec![check_text(file, (&name, &text), price_tables, wall, aws)]);
    };
    if held.is_empty() {
        return Err(CliError::NoPolicy(name));
    }
    Ok(held.iter().map(|held| check_text(file, (&held.name, &held.text), price_tables, wall, aws)).collect())
}

fn check_text(
    file: &Path,
    (name, text): (&str, &str),
    price_tables: &PriceTables,
    wall: Wall,
    aws: Option<&Config>,
) -> Result<CheckReport, Faults> {
    let mut of_suppliers = Vec::new();
    let held = |raw: &RawPolicy| {
        let Held { faults, doubts } = classes::held(raw, aws);
        of_suppliers = doubts;
        faults
    };
    let (read, doubts) = policy_file::parse_with_doubts(name, text, Some(&price_tables.prices), held)?;
    let of_suppliers = read.told(name, text, of_suppliers);
    let catalogue = price_tables.catalogue(read.value.clone());
    let placed = |doubt: &FileFault| format!("{name}:{}:{}: {}", doubt.line, doubt.column, doubt.message);
    let cannot = warnings(&catalogue, wall).into_iter().map(|warning| match warning.place(&catalogue.policy) {
        Some(path) => {
            let at = read.position(&path);
            format!("{name}:{}:{}: {warning}", at.line, at.column)
        }
        None => warning.to_string(),
    });
    let told = of_suppliers.iter().chain(&doubts).map(placed).chain(cannot);
    Ok(CheckReport::sound(file, &catalogue, price_tables.unmatched(&catalogue), told))
}

fn show(args: &ShowArgs) -> Result<Exit, CliError> {
    let prices = price_tables::prices(args.prices_dir.as_deref(), Clock::system().now())?;
    let raw = effective(&price_tables::policy(args.file.as_deref(), &prices)?);
    let text = match args.format {
        ShowFormat::Json => out::json(&raw)?,
        ShowFormat::Yaml => {
            let name = args.file.as_ref().map_or_else(|| EXAMPLE.to_owned(), |path| files::shown(path));
            // A file's name may hold a line break, which would end the comment.
            format!("# {} with every default filled in.\n{}", name.escape_debug(), out::yaml(&raw)?)
        }
    };
    out::write(&text).map(|()| Exit::Done)
}

impl CheckReport {
    fn faulty(faults: &Faults) -> Self {
        let row = |fault: &FileFault| FaultRow { line: fault.line, column: fault.column, message: fault.message.clone() };
        Self {
            file: faults.file_name().to_owned(),
            ok: false,
            faults: faults.iter().map(row).collect(),
            pools: Vec::new(),
            max_per_hour: None,
            max_per_month: None,
            unmatched: Vec::new(),
            warnings: Vec::new(),
            overall: None,
        }
    }

    fn sound(file: &Path, catalogue: &Catalogue, unmatched: Vec<Unmatched>, told: impl Iterator<Item = String>) -> Self {
        let pools: Vec<_> = catalogue.policy.pools.iter().map(|pool| PoolRow::of(pool, catalogue)).collect();
        let empty = pools.iter().filter(|row| row.groups == 0 && row.max_nodes > 0);
        let warning = |row: &PoolRow| {
            let pool = &row.pool;
            let plan = format!("stoker plan --policy {} --pool {pool} --count 1", file.display());
            format!("nothing fits pool {pool}, so it never gets a node: `{plan}` shows why each instance type is excluded")
        };
        let Policy { max_usd_per_hour, month, .. } = &*catalogue.policy;
        let warnings = empty.map(warning).chain(unmatched.iter().map(ToString::to_string)).chain(told).collect();
        Self {
            file: files::shown(file),
            ok: true,
            faults: Vec::new(),
            pools,
            max_per_hour: max_usd_per_hour.map(Money::from),
            max_per_month: month.map(|budget| budget.limit.into()),
            overall: budget(*max_usd_per_hour, *month).map(|budget| format!("all pools together: at most {budget}\n")),
            unmatched,
            warnings,
        }
    }

    fn table(&self) -> String {
        let rows = self.pools.iter().map(|row| {
            vec![
                row.pool.to_string(),
                row.groups.to_string(),
                row.left_out.to_string(),
                format!("{}..{}", row.min_nodes, row.max_nodes),
                row.budget.clone(),
                row.capacity_types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            ]
        });
        let header = ["POOL", "GROUPS", "EXCLUDED", "NODES", "BUDGET", "CAPACITY"];
        let pools = count(self.pools.len(), "pool");
        let mut text = format!(
            "{}: valid, {pools}\n\n{}",
            self.file,
            table(&header, &["GROUPS", "EXCLUDED", "NODES", "BUDGET"], rows.collect())
        );
        text.push_str(self.overall.as_deref().unwrap_or_default());
        for warning in &self.warnings {
            text.push_str(&paragraph("warning:", warning));
        }
        text
    }
}

impl PoolRow {
    fn of(pool: &Pool, catalogue: &Catalogue) -> Self {
        let limits = &pool.limits;
        Self {
            pool: pool.name.clone(),
            groups: catalogue.pool_groups(&pool.name).count(),
            left_out: catalogue.left_out.iter().filter(|left| left.pool == pool.name).count(),
            min_nodes: limits.min_nodes,
            max_nodes: limits.max_nodes,
            max_per_hour: limits.max_usd_per_hour.map(Money::from),
            max_per_month: limits.month.map(|budget| budget.limit.into()),
            capacity_types: pool.prefer.clone(),
            budget: budget(limits.max_usd_per_hour, limits.month).unwrap_or_else(|| "no limit".to_owned()),
        }
    }
}

/// What may be spent, in words; `None` where there is no limit.
fn budget(per_hour: Option<UsdPerHour>, month: Option<MonthBudget>) -> Option<String> {
    let limits = [per_hour.map(|rate| format!("{rate}/h")), month.map(|budget| format!("{} a month", budget.limit))];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    (!limits.is_empty()).then(|| limits.join(", "))
}
