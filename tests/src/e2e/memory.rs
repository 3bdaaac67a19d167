//! How much memory Stoker holds for a large cluster.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::bench::{Bench, Release, Setup};
use super::cluster::{Cluster, eventually};
use super::files::{CALM, Files};

/// Nodes of the cluster; each has four GPUs.
const NODES: usize = 5_000;
/// GPU pods of the cluster: every GPU is in use.
const PODS: usize = 20_000;
/// What Stoker may hold.
const BAR: u64 = 100_000;
/// Requests under way at a time.
const AT_ONCE: usize = 16;
/// How long registering may take.
const WITHIN: Duration = Duration::from_mins(8);
/// Long enough for every watch to have been begun anew, and some passes over everything.
const QUIET: Duration = Duration::from_secs(40);

const WORLD: &str = "stock: { plenty: 100000 }\n";
const LARGE: Files = Files { big: 5_000, world: WORLD, ..CALM };

/// Measures it, and says whether it keeps below the bar.
///
/// # Errors
/// When the cluster cannot be filled.
pub async fn measure(setup: Arc<Setup>, release: Arc<Release>, cluster: Cluster, dir: &Path) -> anyhow::Result<bool> {
    let mut bench = Bench::prepare(setup, release, cluster.clone(), &LARGE, dir).await?;
    bench.start_stoker().await?;
    let alone = bench.stoker_memory()?;
    bench.kill_stoker().await?;
    bench.give_machines(&machines())?;
    bench.start_stoker().await?;
    let start = Instant::now();
    eventually("nodes registered", WITHIN, async || {
        let nodes = cluster.ours_ready().await?;
        println!("{nodes:6} nodes, {:4.0} s", start.elapsed().as_secs_f64());
        tokio::time::sleep(Duration::from_secs(4)).await;
        Ok(if nodes == NODES { Ok(()) } else { Err(format!("{nodes} nodes")) })
    })
    .await?;
    let made = AtomicUsize::new(0);
    stream::iter(0..PODS)
        .map(Ok::<_, anyhow::Error>)
        .try_for_each_concurrent(AT_ONCE, |n| {
            let (cluster, made) = (&cluster, &made);
            async move {
                cluster.bound_pod(&format!("p{n}"), &node_name(n % NODES)).await?;
                let made = made.fetch_add(1, Ordering::Relaxed) + 1;
                if made.is_multiple_of(PODS / 10) {
                    println!("{made:6} pods, {:5.0} s", start.elapsed().as_secs_f64());
                }
                Ok(())
            }
        })
        .await?;
    tokio::time::sleep(QUIET).await;
    // What it holds after it lived through all that, and what the same takes when it starts with it.
    let grown = bench.stoker_memory()?;
    bench.kill_stoker().await?;
    bench.start_stoker().await?;
    tokio::time::sleep(QUIET).await;
    let fresh = bench.stoker_memory()?;
    bench.stop().await?;
    println!("memory of stoker with {NODES} nodes and {PODS} GPU pods, all of which came while it ran: {:.1} MB", mb(grown));
    println!(
        "the same after a restart: {:.1} MB; with an empty cluster: {:.1} MB; bar: {:.0} MB",
        mb(fresh),
        mb(alone),
        mb(BAR)
    );
    Ok(grown <= BAR && fresh <= BAR)
}

/// Kernel kilobytes as megabytes, for people.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mb(kib: u64) -> f64 {
    kib as f64 / 1000.0
}

fn node_name(n: usize) -> String {
    format!("g6-12xlarge-{n:08x}")
}

/// The simulated cloud's books: machines that have run for a while.
fn machines() -> String {
    let since = Timestamp::now();
    let mut rows = format!("{}\n", json!({ "start": since }));
    for n in 0..NODES {
        let row = json!({
            "key": format!("e2e/big.g6-12xlarge.us-east-1a/{n}/1"),
            "cluster": "e2e",
            "providerId": format!("sim:///us-east-1a/i-{n:012x}"),
            "nodeName": node_name(n),
            "market": {
                "cloud": "aws",
                "region": "us-east-1",
                "zone": "use1-az1",
                "instance_type": "g6.12xlarge",
                "capacity_type": "on-demand",
            },
            "launchedAt": since,
            "readyAt": since,
            "reclaim": null,
            "stopping": null,
        });
        // Into a string: it cannot fail.
        let _ = writeln!(rows, "{row}");
    }
    rows
}
