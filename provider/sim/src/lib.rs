//! The simulated world, the autoscaler model and workloads.

pub mod bound;
pub mod demand;
pub mod in_process;
pub mod model;
pub mod peers;
pub mod simulate;
pub mod spot_month;
pub mod workload;
pub mod world;

/// Whether a test of the reference has to be left out, as nobody named the files that it reads: they are no part of the
/// project. It says so even where a passing test's output is not shown.
#[cfg(test)]
fn is_skipped(variable: &str) -> bool {
    use std::io::Write as _;
    let skipped = std::env::var_os(variable).is_none();
    if skipped {
        writeln!(std::io::stderr(), "skipped: {variable} names no folder with the reference's files").unwrap();
    }
    skipped
}
