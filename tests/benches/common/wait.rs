//! Waiting for something to be there.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Waits until so many of something are there; the time that it took.
pub(crate) async fn until(what: &str, count: impl Fn() -> usize, wanted: usize, within: Duration) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        let there = count();
        if there >= wanted {
            return Ok(begun.elapsed());
        }
        ensure!(begun.elapsed() < within, "{what}: {there} of {wanted} after {} s", within.as_secs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
