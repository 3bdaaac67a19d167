//! A library that stands where `libnvidia-ml.so.1` does, scripted by a file.
//!
//! Built as a `cdylib` it exports the C symbols that the probe calls, so the shipped binary runs on it unchanged: give it as
//! `--lib-path`, or as `libnvidia-ml.so.1` in a folder of `LD_LIBRARY_PATH`. What it answers is a [`Scenario`], a JSON file named by
//! the environment variable [`SCENARIO_VARIABLE`]. The file is read again when it changes; one that does not parse leaves the last
//! good scenario in force. Write a new one beside it and rename it ([`Scenario::write`] does).
//!
//! As a Rust library it gives tests the scenario's types and some GPUs to begin with.

mod abi;
pub mod scenario;
mod state;

use std::path::PathBuf;

pub use scenario::{Code, Gpu, Level, Scenario};

/// Names the scenario's file.
pub const SCENARIO_VARIABLE: &str = "STOKER_FAKE_NVML";

/// Every call that the library answers, by its symbol: what [`Scenario::errors`] and [`Scenario::hangs`] may name.
pub fn symbols() -> impl Iterator<Item = &'static str> {
    // Where each export stands beside its signature, or nothing compiles.
    let lines = include_str!("abi/signatures.rs").lines();
    lines.filter_map(|line| Some(line.trim().strip_prefix("lib.")?.split_once(" = Ok")?.0))
}

/// The built library, beside the test or program that asks: Cargo builds it with whatever depends on this crate.
pub fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let places = [folder.to_owned(), folder.join("deps"), folder.parent()?.to_owned()];
    places.into_iter().map(|place| place.join("libnvidia_ml.so")).find(|path| path.is_file())
}
