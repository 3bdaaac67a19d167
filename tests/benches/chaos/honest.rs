//! An honest client, which asks all the time and measures.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tonic::Status;

use super::common::times::Times;
use super::doors::Doors;

/// Between two calls.
const EVERY: Duration = Duration::from_millis(20);

/// One call: when it began, how long it took, and why it failed.
type Sample = (Instant, Duration, Option<String>);

pub(crate) struct Honest {
    samples: Arc<Mutex<Vec<Sample>>>,
    calls: JoinSet<()>,
}

impl Honest {
    /// Asks until it is ended: the provider for groups and sizes, the expander for the best of none.
    pub(crate) fn run(doors: &Doors) -> Result<Self> {
        let client = doors.client()?;
        let samples = Arc::<Mutex<Vec<Sample>>>::default();
        let mut calls = JoinSet::new();
        let taken = Arc::clone(&samples);
        calls.spawn(async move {
            for n in 0_u64.. {
                let begun = Instant::now();
                let answer: Result<(), Status> = match n % 10 {
                    0 => client.groups().await.map(drop),
                    5 => client.best_options(Vec::new()).await.map(drop),
                    _ => client.target("p.g6-xlarge.us-east-1a").await.map(drop),
                };
                let sample = (begun, begun.elapsed(), answer.err().map(|status| status.to_string()));
                taken.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                tokio::time::sleep(EVERY).await;
            }
        });
        Ok(Self { samples, calls })
    }

    /// The times of all calls that met no restart, and why any of these failed.
    pub(crate) async fn end(mut self, outages: &[(Instant, Instant)]) -> (Times, Vec<String>) {
        self.calls.shutdown().await;
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut times, mut failed) = (Times::default(), Vec::new());
        for (begun, took, error) in samples.iter() {
            if outages.iter().any(|(from, to)| begun <= to && *begun + *took >= *from) {
                continue;
            }
            times.add(*took);
            failed.extend(error.clone());
        }
        println!(
            "honest calls: {}, p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms; {} met a restart",
            times.count(),
            times.p50(),
            times.p99(),
            times.within(1_000),
            samples.len() - times.count()
        );
        (times, failed)
    }
}
