//! `stoker aws`: what Amazon EC2 needs to know before Stoker buys there, and what Stoker's file for it looks like.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use stoker_aws::Access;
use stoker_aws::check::OfPolicy;
use stoker_aws::config::Config;
use stoker_aws::rights::{Asked, Format, LONGEST_MANAGED_POLICY, Rights};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::supplier::{SupplierKind, SupplierRule};
use stoker_core::policy::{RawPolicy, cluster_name};
use stoker_service::clock::Clock;
use stoker_service::feeds::policy_watch::PolicyError;
use stoker_service::price_tables::{self, PriceTablesError};
use stoker_service::print::table;
use stoker_service::{files, policy_file};

use super::args::{OutputArg, aws_file};
use super::exit::{CliError, Exit};
use super::out;
use super::policy::classes;

/// Rights, events and the file of the supplier for Amazon EC2.
#[derive(Debug, Args)]
pub(super) struct AwsArgs {
    #[command(subcommand)]
    command: AwsCommand,
}

#[derive(Debug, Subcommand)]
enum AwsCommand {
    Check(CheckArgs),
    Policy(PolicyArgs),
    /// Prints the JSON Schema of aws.yaml, for editors
    Schema,
}

/// Holds the file against the account: what is there, what EC2 would allow, and which IAM statement is missing.
///
/// Launches are tried as dry runs. Nothing is made or ended, and no message is taken from a queue.
#[derive(Debug, Args)]
struct CheckArgs {
    /// The file aws.yaml
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// `clusterName` of the policy: machines are tagged with it
    #[arg(long, value_name = "NAME", required_unless_present = "policy")]
    cluster: Option<String>,
    /// Policy file: launches of its pools are tried in each of their markets and zones, 40 in a region at most [default: one of each class]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Role of the nodes, the one in the instance profiles of the file; several times where they differ
    #[arg(long = "node-role", value_name = "NAME", value_parser = role)]
    node_roles: Vec<String>,
    /// Price tables to use instead of the built-in ones: the types that are looked for
    #[arg(long, value_name = "DIR")]
    prices_dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

/// Prints the least IAM policy that Stoker needs with this file, and the queue with EC2's notices.
///
/// Nothing is asked of AWS, and nothing is changed there.
#[derive(Debug, Args)]
struct PolicyArgs {
    /// The file aws.yaml
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// `clusterName` of the policy: machines are tagged with it, and rights end there
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Role of the nodes, the one in the instance profiles of the file; several times where they differ
    #[arg(long = "node-role", value_name = "NAME", value_parser = role)]
    node_roles: Vec<String>,
    #[arg(
        long,
        value_name = "ID",
        default_value = "*",
        value_parser = account,
        help = "Account of the machines, 12 digits. By default any: IAM gives no rights in an account that has not given them itself"
    )]
    account: Account,
    /// What is printed: iam is the policy alone, the others have the queue and its rules too
    #[arg(long, value_enum, default_value = "iam", value_name = "FORMAT")]
    format: PolicyFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyFormat {
    /// JSON
    Iam,
    /// A template in YAML
    Cloudformation,
    /// HCL
    Terraform,
}

/// A role's name, as IAM allows it: with a wildcard or a path the rights would be wider than one role.
fn role(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
    match text {
        text if text.contains(':') => Err("write the name, which follows role/ in the ARN".to_owned()),
        text if !text.is_empty() && text.len() <= 64 && text.chars().all(is_allowed) => Ok(text.to_owned()),
        _ => Err("a role's name has 1 to 64 letters, digits and +=,.@_-".to_owned()),
    }
}

/// An account, or any.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account(Option<String>);

fn account(text: &str) -> Result<Account, String> {
    match text {
        "*" => Ok(Account(None)),
        id if id.len() == 12 && id.chars().all(|c| c.is_ascii_digit()) => Ok(Account(Some(id.to_owned()))),
        _ => Err("an account has 12 digits, such as 111111111111; write * for any".to_owned()),
    }
}

/// Carries the command out.
pub(super) async fn run(args: &AwsArgs) -> Result<Exit, CliError> {
    match &args.command {
        AwsCommand::Check(args) => check(args).await,
        AwsCommand::Policy(args) => policy(args),
        AwsCommand::Schema => out::write(&out::json(&Config::schema())?).map(|()| Exit::Done),
    }
}

/// What was found of an account, and what it lacks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckReport {
    findings: Vec<Row>,
    /// IAM statements without which something does not work.
    missing_statements: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    region: String,
    what: String,
    works: bool,
    told: String,
}

async fn check(args: &CheckArgs) -> Result<Exit, CliError> {
    let config = aws_file("--file", &args.file)?;
    let named = args.cluster.as_deref().map(cluster_name).transpose();
    let named = named.map_err(|why| CliError::Usage(format!("--cluster {why}")))?;
    let clock = Clock::system();
    let book = price_tables::prices(args.prices_dir.as_deref(), clock.now())?;
    let of_policy = args.policy.as_deref().map(|file| of_policy(file, &args.file, &config, &book)).transpose()?;
    let of_file = of_policy.as_ref().map(|of| &of.policy.cluster);
    let differs = named.as_ref().zip(of_file).filter(|(named, of_file)| named != of_file);
    let differs = differs.map(|(named, of_file)| Row {
        region: "-".to_owned(),
        what: "clusterName".to_owned(),
        works: false,
        told: format!("is {of_file} in the policy, and --cluster {named}: machines are tagged with the policy's, so give that"),
    });
    let cluster = named.as_ref().or(of_file).cloned();
    let cluster = cluster.ok_or_else(|| CliError::Usage("give --cluster NAME, or --policy FILE".to_owned()))?;
    let access = Access::of_system(clock).map_err(|why| CliError::Usage(format!("no calls can be made: {why}")))?;
    let found = stoker_aws::check::check(&config, &cluster, &book, &access, of_policy.as_ref()).await;
    let found = found.map_err(CliError::other)?;
    let denied: BTreeSet<&str> = found.iter().filter_map(|one| one.denied.as_deref()).collect();
    let missing_statements = if denied.is_empty() {
        Vec::new()
    } else {
        let role = "ROLE-OF-THE-NODES".to_owned();
        let node_roles = if args.node_roles.is_empty() { vec![role] } else { args.node_roles.clone() };
        let rights = Rights::of(&config, &Asked { cluster, account: None, node_roles });
        rights.map_err(|error| CliError::Usage(error.to_string()))?.statements_for(&denied)
    };
    let findings = found.into_iter().map(|one| Row {
        region: one.region.to_string(),
        what: one.what,
        works: one.told.is_ok(),
        told: one.told.unwrap_or_else(|why| why),
    });
    let report = CheckReport { findings: differs.into_iter().chain(findings).collect(), missing_statements };
    out::print(args.output.format, &report, CheckReport::table)?;
    Ok(if report.findings.iter().all(|row| row.works) { Exit::Done } else { Exit::Failed })
}

/// The policy of a file, and its supplier that `aws` is the file of. What `stoker policy check` would find is a fault here too.
fn of_policy(file: &Path, aws: &Path, config: &Config, book: &PriceBook) -> Result<OfPolicy, CliError> {
    let (name, text) = (files::shown(file), price_tables::policy_text(file).map_err(PriceTablesError::from)?);
    let more = |raw: &RawPolicy| classes::held(raw, Some(config)).faults;
    let read = policy_file::parse_with_doubts(&name, &text, Some(book), more);
    let (read, _) = read.map_err(|faults| PriceTablesError::from(PolicyError::Faults(faults)))?;
    let of_aws = |one: &&SupplierRule| matches!(one.kind, SupplierKind::Aws { .. });
    let names_it = |one: &&SupplierRule| match &one.kind {
        SupplierKind::Aws { config } => Path::new(config).file_name() == aws.file_name(),
        _ => false,
    };
    let suppliers: Vec<_> = read.value.suppliers.iter().filter(of_aws).collect();
    let supplier = match suppliers[..] {
        [only] => Some(only),
        _ => suppliers.iter().copied().find(names_it),
    };
    let supplier = supplier.map(|one| one.name.clone()).ok_or_else(|| {
        CliError::Usage(format!(
            "--policy {name}: no supplier of kind aws has {} as config: write one under suppliers",
            files::shown(aws)
        ))
    })?;
    Ok(OfPolicy { policy: Arc::new(read.value), supplier })
}

impl CheckReport {
    fn table(&self) -> String {
        let row = |row: &Row| {
            let works = if row.works { "ok" } else { "FAILED" };
            vec![works.to_owned(), row.region.clone(), row.what.clone(), row.told.clone()]
        };
        let mut text = table(&["", "REGION", "WHAT", "FOUND"], &[], self.findings.iter().map(row).collect());
        let failed = self.findings.iter().filter(|row| !row.works).count();
        let works = self.findings.len() - failed;
        let _ = writeln!(text, "\n{works} ok, {failed} failed");
        if !self.missing_statements.is_empty() {
            text += "\nIAM statements that allow what was refused, to be added to Stoker's role:\n\n";
            text += &self.missing_statements.join(",\n");
            text.push('\n');
        }
        text
    }
}

fn policy(args: &PolicyArgs) -> Result<Exit, CliError> {
    let config = aws_file("--file", &args.file)?;
    let cluster = args.cluster.as_deref().ok_or_else(|| {
        CliError::Usage("machines are tagged with clusterName of the policy: give it with --cluster NAME".to_owned())
    })?;
    let cluster = cluster_name(cluster).map_err(|why| CliError::Usage(format!("--cluster {why}")))?;
    if args.node_roles.is_empty() {
        let profile = config.instance_profiles().into_iter().next().unwrap_or_default();
        return Err(CliError::Usage(format!(
            "the file names instance profiles and not their roles: give the role with --node-role NAME; `aws iam \
             get-instance-profile --instance-profile-name {profile} --query InstanceProfile.Roles[].RoleName` prints it"
        )));
    }
    let asked = Asked { cluster, account: args.account.0.clone(), node_roles: args.node_roles.clone() };
    let rights = Rights::of(&config, &asked).map_err(|error| CliError::Usage(error.to_string()))?;
    out::write(&rights.text(match args.format {
        PolicyFormat::Iam => Format::Iam,
        PolicyFormat::Cloudformation => Format::CloudFormation,
        PolicyFormat::Terraform => Format::Terraform,
    }))?;
    let length = rights.policy_length();
    if length > LONGEST_MANAGED_POLICY {
        tracing::warn!(
            "the policy has {length} characters, and IAM takes {LONGEST_MANAGED_POLICY}: write it into the role itself, which \
             takes 10240, or split the file by region"
        );
    }
    Ok(Exit::Done)
}
