//! `stoker aws`: what Amazon EC2 needs to know before Stoker buys there, and what Stoker's file for it looks like.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stoker_aws::config::Config;
use stoker_aws::rights::{Asked, Format, LONGEST_MANAGED_POLICY, Rights};
use stoker_core::base::ids::ClusterName;

use super::exit::{CliError, Exit};
use super::out;

/// Rights, events and the file of the supplier for Amazon EC2.
#[derive(Debug, Args)]
pub(super) struct AwsArgs {
    #[command(subcommand)]
    command: AwsCommand,
}

#[derive(Debug, Subcommand)]
enum AwsCommand {
    Policy(PolicyArgs),
    /// Prints the JSON Schema of aws.yaml, for editors
    Schema,
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
    #[arg(long = "node-role", value_name = "NAME")]
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
pub(super) fn run(args: &AwsArgs) -> Result<Exit, CliError> {
    match &args.command {
        AwsCommand::Policy(args) => policy(args),
        AwsCommand::Schema => out::write(&out::json(&Config::schema())?).map(|()| Exit::Done),
    }
}

fn policy(args: &PolicyArgs) -> Result<Exit, CliError> {
    let config = Config::read(&args.file)?;
    let cluster = args.cluster.as_deref().ok_or_else(|| {
        CliError::Usage("machines are tagged with clusterName of the policy: give it with --cluster NAME".to_owned())
    })?;
    let cluster = ClusterName::new(cluster).map_err(|error| CliError::Usage(format!("--cluster: {error}")))?;
    if args.node_roles.is_empty() {
        let profile = config.instance_profiles().into_iter().next().unwrap_or_default();
        return Err(CliError::Usage(format!(
            "the file names instance profiles and not their roles: give the role with --node-role NAME; `aws iam \
             get-instance-profile --instance-profile-name {profile} --query InstanceProfile.Roles[].RoleName` prints it"
        )));
    }
    if let Some(arn) = args.node_roles.iter().find(|role| role.contains(':')) {
        return Err(CliError::Usage(format!("--node-role {arn}: write the name, which follows role/ in the ARN")));
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
