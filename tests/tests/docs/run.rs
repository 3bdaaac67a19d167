//! Runs what a page shows. After the mark comes a block `sh`, and after that, if it prints anything, a block `text`:
//!
//! ````text
//! <!-- run -->
//! ```sh
//! stoker policy check my-policy.yaml
//! ```
//! ```text
//! my-policy.yaml: valid, 1 pool
//! ```
//! ````
//!
//! The blocks of a page run one after the other in one folder, which has `manifests` in it and each block that follows `<!-- file: NAME -->`.
//! A command that ends with another code than 0 says so: `<!-- run: exit 3 -->`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::page::{Page, root};

/// What stands before a block that is run.
pub(crate) const MARK: &str = "<!-- run";
const FILE: &str = "<!-- file: ";
/// What stands before a block that is the golden of a test.
pub(crate) const GOLDEN: &str = "<!-- golden: ";
/// What stands before a table that a benchmark wrote.
pub(crate) const TABLE: &str = "<!-- table: ";

/// The page as it reads with the output of this binary.
pub(crate) fn with_output(page: &Page) -> String {
    let home = TempDir::new().unwrap();
    symlink(root().join("manifests"), home.path().join("manifests")).unwrap();
    let mut lines = page.text.lines().peekable();
    let mut out: Vec<String> = Vec::new();
    while let Some(line) = lines.next() {
        out.push(line.to_owned());
        let mark = line.trim_start();
        if let Some(name) = mark.strip_prefix(FILE).and_then(|rest| rest.strip_suffix(" -->")) {
            fs::write(home.path().join(name), block(&mut lines, &mut out)).unwrap();
        } else if mark.starts_with(MARK) {
            let script = block(&mut lines, &mut out);
            let (code, text) = run(&script, home.path());
            let wanted = mark.split_once("exit ").map_or(0, |(_, code)| code.trim_end_matches(" -->").parse().unwrap());
            assert_eq!(code, wanted, "{}: {script}\n{text}", page.path);
            // What is shown now is passed over.
            while lines.next_if(|line| line.is_empty()).is_some() {}
            if lines.next_if(|line| *line == "```text").is_some() {
                for line in lines.by_ref() {
                    if line == "```" {
                        break;
                    }
                }
                while lines.next_if(|line| line.is_empty()).is_some() {}
            }
            out.push(String::new());
            if !text.trim().is_empty() {
                out.extend(["```text", text.trim_end(), "```", ""].map(str::to_owned));
            }
        }
    }
    out.join("\n") + "\n"
}

/// The page with the golden that it names in the block after each mark `<!-- golden: PATH -->`, and the table after each
/// `<!-- table: PATH -->`.
pub(crate) fn with_goldens(page: &Page) -> String {
    let mut lines = page.text.lines().peekable();
    let mut out: Vec<String> = Vec::new();
    while let Some(line) = lines.next() {
        out.push(line.to_owned());
        if let Some(path) = line.strip_prefix(TABLE).and_then(|rest| rest.strip_suffix(" -->")) {
            while lines.next_if(|line| line.is_empty() || line.starts_with('|')).is_some() {}
            let table = fs::read_to_string(root().join(path)).unwrap();
            out.extend([String::new(), table]);
            continue;
        }
        let Some(path) = line.strip_prefix(GOLDEN).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        block(&mut lines, &mut Vec::new());
        let golden = fs::read_to_string(root().join(path)).unwrap();
        // Its head ends at the second rule.
        let text = golden.splitn(3, "---\n").nth(2).unwrap();
        out.extend(["```text", text.trim_end(), "```"].map(str::to_owned));
    }
    out.join("\n") + "\n"
}

/// The text of the next fenced block, which is passed on.
fn block<'a>(lines: &mut impl Iterator<Item = &'a str>, out: &mut Vec<String>) -> String {
    let mut text = String::new();
    let mut fences = 0;
    for line in lines {
        out.push(line.to_owned());
        if line.starts_with("```") {
            fences += 1;
        } else if fences == 1 {
            text.push_str(line);
            text.push('\n');
        }
        if fences == 2 {
            break;
        }
    }
    text
}

/// Runs it, and gives its exit code and all that it printed.
fn run(script: &str, home: &Path) -> (i32, String) {
    let bin = home.join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_shipped-stoker"), bin.join("stoker")).unwrap();
    }
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .current_dir(home)
        .env_clear()
        .env("PATH", path)
        .env("HOME", home)
        .env("STOKER_NOW", "2026-11-01T12:00:00Z")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text.replace(home.to_str().unwrap(), "."))
}
