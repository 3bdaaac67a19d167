//! Runs the built binary in the folder of the inputs, at a fixed time, with nothing of the user's environment.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join("golden")
}

/// The binary with these arguments.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
    command.args(args).current_dir(folder().join("input")).env_clear().env("STOKER_NOW", "2026-11-01T12:00:00Z");
    command.env("XDG_STATE_HOME", std::env::temp_dir().join(format!("stoker-cli-test-{}", std::process::id())));
    command
}

/// Runs it to the end.
pub(crate) fn stoker(args: &[&str]) -> Ran {
    ran(&command(args).stdin(Stdio::null()).output().unwrap())
}

/// How a run ended, and what it said.
pub(crate) fn ran(output: &Output) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Runs it with a standard output whose reader has gone away.
pub(crate) fn with_a_closed_reader(args: &[&str]) -> Ran {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output =
        command(args).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    Ran { code: output.status.code().unwrap(), out: String::new(), err: String::from_utf8(output.stderr).unwrap() }
}

/// Compares with the golden of that name.
pub(crate) fn golden(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder());
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
