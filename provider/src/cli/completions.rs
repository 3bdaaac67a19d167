//! `stoker completions`: what a shell needs to complete our command lines.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::exit::{CliError, Exit};
use super::{Cli, out};

/// Prints a completion script, e.g. `stoker completions bash > /etc/bash_completion.d/stoker`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Carries the command out.
pub(super) fn run(args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stoker", &mut script);
    out::write(&String::from_utf8_lossy(&script)).map(|()| Exit::Done)
}
