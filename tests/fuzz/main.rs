//! The inputs that the fuzzers keep, played once each: a defect that was found stays cured, and a
//! target whose input has another form by now is noticed.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and its helpers stand outside of it"
)]

mod seeds;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

/// Most that the kept inputs may take in the tree, in bytes.
const MOST_BYTES: u64 = 1 << 20;

fn kept(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn replay(name: &str) {
    let target = targets::ALL.iter().find(|target| target.name == name).unwrap();
    let files = kept(name);
    assert!(!files.is_empty(), "nothing is kept of {name}");
    for file in files {
        // Shown where the target fails.
        println!("{}", file.display());
        (target.run)(&fs::read(&file).unwrap());
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_is_played() {
            assert_eq!(targets::ALL.map(|target| target.name), [$(stringify!($name)),*]);
        }
    };
}

replays! { policy prices provider expander probes prometheus kubernetes journal }

#[test]
fn what_is_kept_is_small() {
    let files = targets::ALL.iter().flat_map(|target| kept(target.name));
    let bytes: u64 = files.map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(bytes < MOST_BYTES, "{bytes} bytes: run tests/fuzz.sh --keep");
}

/// Else no input would ever be accepted.
#[test]
fn the_tables_that_an_input_lacks_are_right() {
    let tables = targets::prices::TABLES.map(|(name, text)| (name, text.as_bytes()));
    let book = stoker_pricing::load(tables, targets::prices::LATEST).unwrap();
    assert_eq!(book.entries().count(), 2);
}

/// Else a journal would never be restored.
#[test]
fn the_first_journal_is_restored_with_its_nodes() {
    let text = fs::read_to_string(kept("journal").pop().unwrap().with_file_name("seed-whole")).unwrap();
    let memory = targets::journal::memory_of(&text).unwrap();
    assert!(!memory.records.is_empty());
}
