//! The command line: what can be asked, and how it is answered.

mod accounts;
mod advise;
mod alerts;
mod args;
mod aws;
mod backup;
mod brief;
mod candidates;
mod certs;
mod clean;
mod commit;
mod completions;
mod console;
mod demand;
mod demo;
mod doctor;
mod estimate;
mod exit;
mod explain;
mod fit;
mod groups;
mod held;
mod idle;
mod init;
mod karpenter;
mod nodes;
mod not_drawn;
mod offers;
mod out;
mod plan;
mod policy;
mod ready;
mod replay;
mod report;
mod seen;
mod serve;
mod side_port;
mod simulate;
mod supplier;
mod suppliers;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use args::StateDirArg;
pub use console::console_text;
pub use exit::{CliError, Exit, NotFound};
pub use serve::ServeArgs;

use stoker_service::publish::telemetry;

/// Supplies GPU nodes to a Kubernetes cluster: decides which instance type, where, and reserved, spot or on-demand, and says why.
#[derive(Debug, Parser)]
#[command(name = "stoker", bin_name = "stoker", version, arg_required_else_help = true, after_help = exit::AFTER_HELP, max_term_width = 120)]
pub struct Cli {
    /// Log one JSON object a line instead of text
    #[arg(long, global = true, env = "STOKER_LOG_JSON", help_heading = "Logging")]
    log_json: bool,
    /// What is logged to standard error, e.g. info or stoker=debug,warn [default: info; warn for one-shot commands, error for demo]
    #[arg(long, global = true, env = "STOKER_LOG", value_name = "FILTER", help_heading = "Logging")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<ServeArgs>),
    Demo(demo::DemoArgs),
    Plan(plan::PlanArgs),
    Simulate(Box<simulate::SimulateArgs>),
    Explain(explain::ExplainArgs),
    Replay(replay::ReplayArgs),
    Offers(offers::OffersArgs),
    Fit(Box<fit::FitArgs>),
    Commit(commit::CommitArgs),
    Estimate(Box<estimate::EstimateArgs>),
    Report(report::ReportArgs),
    Policy(policy::PolicyArgs),
    Init(init::InitArgs),
    Groups(groups::GroupsArgs),
    Nodes(nodes::NodesArgs),
    Top(top::TopArgs),
    Advise(advise::AdviseArgs),
    Doctor(doctor::DoctorArgs),
    Alerts(Box<alerts::AlertsArgs>),
    Dashboard(alerts::DashboardArgs),
    Certs(certs::CertsArgs),
    Ready(ready::ReadyArgs),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    Journal(backup::JournalArgs),
    Suppliers(suppliers::SuppliersArgs),
    Supplier(supplier::SupplierArgs),
    Karpenter(karpenter::KarpenterArgs),
    Aws(aws::AwsArgs),
    Clean(clean::CleanArgs),
    Completions(completions::CompletionsArgs),
}

impl Cli {
    /// Sets logging up.
    ///
    /// # Errors
    /// When the filter does not parse.
    fn init_logs(&self) -> Result<(), CliError> {
        // What a one-shot command has to say is its output; logs are for what goes wrong. In the demo's day things do go wrong, and its
        // table tells them.
        let quiet = match self.command {
            Command::Serve(_) | Command::Supplier(_) => None,
            // A line of log would tear the screen.
            Command::Demo(_) | Command::Top(_) => Some("error"),
            _ => Some("warn"),
        };
        let quiet = quiet.filter(|_| std::env::var_os("RUST_LOG").is_none());
        telemetry::init(self.log_json, self.log.as_deref().or(quiet)).map_err(|error| CliError::Usage(error.to_string()))
    }

    /// Carries the command out.
    ///
    /// # Errors
    /// Says why it could not be.
    async fn run(self) -> Result<Exit, CliError> {
        match self.command {
            Command::Serve(args) => Box::pin(serve::run(*args)).await,
            Command::Demo(args) => Box::pin(demo::run(args)).await,
            Command::Plan(args) => plan::run(&args).await,
            Command::Simulate(args) => Box::pin(simulate::run(&args)).await,
            Command::Explain(args) => explain::run(&args).await,
            Command::Replay(args) => Box::pin(replay::run(&args)).await,
            Command::Offers(args) => offers::run(&args).await,
            Command::Fit(args) => fit::run(&args),
            Command::Commit(args) => commit::run(&args).await,
            Command::Estimate(args) => estimate::run(&args),
            Command::Report(args) => report::run(&args).await,
            Command::Policy(args) => policy::run(&args),
            Command::Init(args) => Box::pin(init::run(&args)).await,
            Command::Groups(args) => groups::run(&args).await,
            Command::Nodes(args) => nodes::run(&args).await,
            Command::Top(args) => top::run(&args).await,
            Command::Advise(args) => Box::pin(advise::run(&args)).await,
            Command::Doctor(args) => doctor::run(&args),
            Command::Alerts(args) => alerts::run(*args),
            Command::Dashboard(args) => alerts::dashboard(&args),
            Command::Certs(args) => certs::run(&args).await,
            Command::Ready(args) => ready::run(&args).await,
            Command::Backup(args) => backup::backup(&args).await,
            Command::Restore(args) => backup::restore(&args).await,
            Command::Journal(args) => backup::journal(&args).await,
            Command::Suppliers(args) => suppliers::run(&args).await,
            Command::Supplier(args) => Box::pin(supplier::run(args)).await,
            Command::Karpenter(args) => Box::pin(karpenter::run(&args)).await,
            Command::Aws(args) => aws::run(&args).await,
            Command::Clean(args) => clean::run(&args).await,
            Command::Completions(args) => completions::run(&args),
        }
    }
}

/// The whole process, by its command line.
pub fn main() -> ExitCode {
    let run = |cli: Cli| {
        cli.init_logs()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::runtime)?;
        runtime.block_on(cli.run())
    };
    finish(run(Cli::parse()))
}

/// The process's exit code; a failure is told on standard error.
fn finish(result: Result<Exit, CliError>) -> ExitCode {
    result
        .unwrap_or_else(|error| {
            exit::report(&error);
            error.exit()
        })
        .into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn without_a_command_it_prints_help() {
        let help = clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        assert_eq!(parsed("stoker").unwrap_err().kind(), help);
        assert!(parsed("stoker --log-json").is_err(), "an option alone starts nothing");
        assert_eq!(parsed("stoker plam").unwrap_err().kind(), clap::error::ErrorKind::InvalidSubcommand);
    }

    #[test]
    fn half_a_set_of_certificates_is_refused() {
        for line in ["serve --tls-cert a", "serve --tls-cert a --tls-key b", "serve --expander-cert a", "serve --client-ca a"] {
            assert!(parsed(&format!("stoker {line}")).is_err(), "{line}");
        }
        assert!(parsed("stoker serve --tls-cert a --tls-key b --client-ca c").is_ok());
    }
}
