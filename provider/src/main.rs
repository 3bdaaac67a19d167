//! `stoker`: supplies GPU nodes to a Kubernetes cluster.

use std::process::ExitCode;

use stoker::cli::{self, Cli, CliError, Exit};

fn main() -> ExitCode {
    let cli = Cli::from_command_line();
    cli::finish(run(cli))
}

fn run(cli: Cli) -> Result<Exit, CliError> {
    cli.init_logs()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::runtime)?;
    runtime.block_on(cli.run())
}
