//! The pages of the command line: every command and option of both binaries, and the exit codes.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use crate::page::GENERATED;

pub(crate) fn commands() -> String {
    let mut page = format!(
        "{GENERATED}\n# Commands\n\n`stoker` and `stoker-probe` say the same with `--help`. An option can be set by the \
         environment\nvariable in its row. [Exit codes](exit-codes.md) have a page of their own.\n"
    );
    for mut command in [stoker::cli::Cli::command(), stoker_probe::cli::Cli::command()] {
        command.build();
        of(&command, "", &mut page);
    }
    page
}

fn of(command: &Command, parent: &str, page: &mut String) {
    let name = format!("{parent}{}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace("\n       ", "\n");
    // The usage names the parents only where clap has built them in.
    let _ = write!(page, "\n## {name}\n\n{}\n\n```text\n{usage}\n```\n", wrapped(&about));
    let options: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()))
        // What every command has is told of the first.
        .filter(|arg| parent.is_empty() || !arg.is_global_set())
        .collect();
    if !options.is_empty() {
        page.push_str("\n| option | what it does | default | variable |\n|---|---|---|---|\n");
    }
    for arg in options {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let values = arg.get_possible_values();
        let values = if values.is_empty() || !arg.get_action().takes_values() {
            String::new()
        } else {
            let names: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
            format!(" One of {}.", names.join(", "))
        };
        let default: Vec<String> =
            arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        let default = if arg.get_action().takes_values() { default.join(", ") } else { String::new() };
        let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let _ = writeln!(page, "| `{}` | {}{values} | {default} | {variable} |", shown(arg), cell(&help));
    }
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        of(sub, &format!("{name} "), page);
    }
}

/// An option as one writes it.
fn shown(arg: &Arg) -> String {
    let value = || {
        let names = arg.get_value_names().map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
        format!("<{}>", names.unwrap_or_else(|| vec![arg.get_id().to_string().to_uppercase()]).join("> <"))
    };
    let flags: Vec<String> = arg
        .get_short()
        .map(|short| format!("-{short}"))
        .into_iter()
        .chain(arg.get_long().map(|long| format!("--{long}")))
        .collect();
    match (flags.is_empty(), arg.get_action().takes_values()) {
        (true, _) => value(),
        (false, true) => format!("{} {}", flags.join(", "), value()),
        (false, false) => flags.join(", "),
    }
}

/// Text that fits a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    escaped(&text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|"))
}

/// Text in which no `<` outside of code begins a tag.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(n, part)| if n % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}

/// Text in lines that fit a page.
pub(crate) fn wrapped(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let mut lines = vec![String::new()];
        for word in paragraph.split_whitespace() {
            if lines.last().is_some_and(|line| !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 100) {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines.join("\n")
    });
    escaped(&paragraphs.collect::<Vec<_>>().join("\n\n"))
}

pub(crate) fn exit_codes() -> String {
    let help = stoker::cli::Cli::command().get_after_help().map(ToString::to_string).unwrap_or_default();
    let (codes, more) = help.split_once("\n\n").unwrap();
    let mut page =
        format!("{GENERATED}\n# Exit codes\n\nScripts may rely on these numbers.\n\n| code | meaning |\n|---|---|\n");
    for line in codes.lines().skip(1) {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        let _ = writeln!(page, "| {code} | {} |", cell(meaning));
    }
    let _ = write!(page, "\n{}\n", wrapped(more));
    page
}
