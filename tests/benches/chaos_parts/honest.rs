//! An honest client, which asks all the time and measures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;
use tonic::Status;

use super::doors::Doors;
use crate::common::times::Times;

/// Between two calls.
const EVERY: Duration = Duration::from_millis(20);

/// One call.
struct Sample {
    call: &'static str,
    begun: Instant,
    took: Duration,
    /// Why it failed.
    error: Option<String>,
}

pub(crate) struct Honest {
    samples: Arc<Mutex<Vec<Sample>>>,
    calls: JoinSet<()>,
    /// A thread of its own, so that only what the service does counts.
    runtime: Runtime,
}

impl Honest {
    /// Asks until it is ended: the provider for groups and sizes, the expander for the best of none.
    pub(crate) fn run(doors: &Doors) -> Result<Self> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let handle = runtime.handle().clone();
        let _entered = handle.enter();
        let client = doors.client()?;
        let samples = Arc::<Mutex<Vec<Sample>>>::default();
        let mut calls = JoinSet::new();
        let taken = Arc::clone(&samples);
        let work = async move {
            for n in 0_u64.. {
                let begun = Instant::now();
                let (call, answer): (_, Result<(), Status>) = match n % 10 {
                    0 => ("NodeGroups", client.groups().await.map(drop)),
                    5 => ("BestOptions", client.best_options(Vec::new()).await.map(drop)),
                    _ => ("NodeGroupTargetSize", client.target("p.g6-xlarge.us-east-1a").await.map(drop)),
                };
                let error = answer.err().map(|status| status.to_string());
                let sample = Sample { call, begun, took: begun.elapsed(), error };
                taken.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                tokio::time::sleep(EVERY).await;
            }
        };
        calls.spawn_on(work, &handle);
        Ok(Self { samples, calls, runtime })
    }

    /// The times of all calls that met no restart, and why any of these failed.
    pub(crate) async fn end(mut self, outages: &[(Instant, Instant)]) -> (BTreeMap<&'static str, Times>, Vec<String>) {
        self.calls.shutdown().await;
        self.runtime.shutdown_background();
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let met =
            |sample: &&Sample| outages.iter().any(|(from, to)| sample.begun <= *to && sample.begun + sample.took >= *from);
        println!(
            "\n{:<22} {:>7} {:>9} {:>9} {:>9}  {} of all calls met a restart",
            "honest calls",
            "calls",
            "p50 ms",
            "p99 ms",
            "most ms",
            samples.iter().filter(met).count()
        );
        let (mut times, mut failed) = (BTreeMap::<&str, Times>::new(), Vec::new());
        for sample in samples.iter().filter(|sample| !met(sample)) {
            times.entry(sample.call).or_default().add(sample.took);
            failed.extend(sample.error.clone().map(|error| format!("{}: {error}", sample.call)));
        }
        for (call, times) in &times {
            let count = samples.iter().filter(|sample| sample.call == *call && !met(sample)).count();
            println!("{call:<22} {:>7} {:>9.1} {:>9.1} {:>9.1}", count, times.p50(), times.p99(), times.within(1_000));
        }
        (times, failed)
    }
}
