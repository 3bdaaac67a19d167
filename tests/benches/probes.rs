//! 5,000 probes that stream the rounds of 8 GPUs each 5 s to the service: a process of its own, which takes them in, folds them and wakes
//! its loop where something changed, and rolls them up by the hour. Beside it, as the least that it can cost: the same streams to a server
//! that acknowledges each round and throws it away. At the end the service is killed and started anew, and all probes come back at once.
//!
//! `STOKER_BENCH_PROBES=200` takes fewer, as a debug build must; `STOKER_BENCH_TLS=1` takes TLS, with a certificate for each node.

mod common {
    pub(crate) mod report;
    pub(crate) mod service;
    pub(crate) mod times;
}
#[path = "streams/bare.rs"]
mod bare;
#[path = "streams/fleet.rs"]
mod fleet;
#[path = "streams/round.rs"]
mod round;
#[path = "streams/service.rs"]
mod service;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::report::{Report, is_short, short};
use fleet::Fleet;
use prost::Message as _;
use round::{GPUS, round};
use service::{How, Service};
use stoker_proto::probe::{FromProbe, from_probe};

/// Names how many probes there are.
const COUNT: &str = "STOKER_BENCH_PROBES";
/// Whether they come over TLS.
const TLS: &str = "STOKER_BENCH_TLS";

const PROBES: usize = 5_000;
const SHORT_PROBES: usize = 1_000;

/// Until every GPU was found quiet, and the last of the streams stands.
const SETTLE: Duration = Duration::from_secs(25);
const MEASURE: Duration = Duration::from_secs(30);
const SHORT_MEASURE: Duration = Duration::from_secs(15);

fn main() -> Result<()> {
    stoker_service::listener::install_crypto();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match How::from_environment()? {
        Some(how) => runtime.block_on(service::serve(how)),
        None => runtime.block_on(run()),
    }
}

async fn run() -> Result<()> {
    let probes = match std::env::var(COUNT) {
        Ok(count) => count.parse().with_context(|| format!("{COUNT}={count}: not a number of probes"))?,
        Err(_) if is_short() => SHORT_PROBES,
        Err(_) => PROBES,
    };
    let mut report = Report::new("probes");
    let message = FromProbe { kind: Some(from_probe::Kind::Round(round(1, 0, false))) };
    println!("a round of {GPUS} GPUs: {} bytes", message.encoded_len());

    let dir = tempfile::tempdir()?;
    let certificates = std::env::var_os(TLS).is_some().then(|| dir.path().join("certificates"));
    if let Some(certificates) = &certificates {
        fleet::certificates(certificates, probes)?;
    }
    let how = How::first(dir.path(), probes, certificates.as_deref());
    let least = bare_share(&how.bare(), probes).await?;
    let mut service = Service::spawn(&how).await?;
    let before = service.resident("VmRSS")?;
    let begun = Instant::now();
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let fleet = Fleet::start(&format!("{scheme}://{}", service.addr), probes, certificates.as_deref())?;
    let stood = fleet.stand(&vec![0; probes], begun).await?;
    println!("{probes} streams by {scheme} stand after {} s; {}", short(stood.all), fleet.failures(0));
    tokio::time::sleep(SETTLE).await;

    service.ask("begin").await?;
    let failed = fleet.failed();
    let Used { wall, share, per_second } = used(&service, &fleet).await?;
    let told = service.ask("report").await?;
    let figure = |name: &str| -> Result<f64> {
        let word = told.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Ok(word.with_context(|| format!("no {name} in {told:?}"))?.parse()?)
    };
    let (rss, most) = (service.resident("VmRSS")?, service.resident("VmHWM")?);
    ensure!(fleet.failed() == failed, "a stream broke while nothing happened: what was measured is something else");

    println!("\n{:<58} {:>8}", "", "");
    for (what, value) in [
        ("rounds read, a second", per_second),
        ("rounds taken, a second", figure("rounds")? / wall),
        ("CPU of the service, % of a core", share),
        ("  of bare streams, % of a core", least),
        ("  of it the roll-up, % of a core", figure("rollup")? / wall * 100.0),
        ("a write of the roll-up, every 5 min, ms", figure("write")?),
        ("VmRSS without a stream, MB", before),
        ("VmRSS with all streams, MB", rss),
        ("VmHWM, MB", most),
        ("changes seen by decisions", figure("changes")?),
        ("  from sampled to snapshot, p50 ms", figure("p50")?),
        ("  from sampled to snapshot, p99 ms", figure("p99")?),
    ] {
        println!("{what:<58} {:>8}", short(value));
    }
    let back = restart(service, &how, &fleet).await?;
    report.ratio("cpu", share / least);
    if probes != PROBES {
        println!("{probes} probes: the bars are for {PROBES}");
        report.print();
        return Ok(());
    }
    report.judge(
        "CPU at 1,000 rounds a second",
        share,
        "% of a core",
        &format!("≤ 25; bare streams: {}", short(least)),
        share <= 25.0,
    );
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let each = (rss - before) * 1e3 / probes as f64;
    let (bar, words) = if certificates.is_some() { (80.0, "≤ 80 KB with TLS") } else { (70.0, "≤ 70 KB") };
    report.judge("memory of a stream of 8 GPUs", each, "KB", words, each <= bar);
    let p99 = figure("p99")?;
    report.judge("from sampled to snapshot, p99", p99, "ms", "≤ 350; publications are 250 apart", p99 <= 350.0);
    report.judge("every node heard again after a restart", back, "s", "≤ 30", back <= 30.0);
    report.print();
    Ok(())
}

/// Kills the service and starts it anew, while the probes go on; seconds from the kill until it has heard of every node.
async fn restart(service: Service, how: &How, fleet: &Fleet) -> Result<f64> {
    let (opened, failed) = (fleet.opened(), fleet.failed());
    let addr = service.addr;
    let killed = Instant::now();
    service.kill().await?;
    let mut service = Service::spawn(&how.again(addr)).await?;
    let served = killed.elapsed().as_secs_f64();
    let stood = fleet.stand(&opened, killed).await?;
    service.heard_of_all(fleet.opened().len()).await?;
    let heard = killed.elapsed().as_secs_f64();
    // What was read meanwhile waits with the probes; as it was not long, none of it had to make room.
    let (_, thinned) = fleet.waiting();
    ensure!(thinned == 0, "{thinned} rounds were thinned out over a restart of some seconds");
    println!("\nafter a restart, from the kill, s: served again {}", short(served));
    for (what, seconds) in [
        ("half of the streams stand", stood.half),
        ("99 of 100 stand", stood.most),
        ("all stand", stood.all),
        ("every node is heard", heard),
    ] {
        println!("{what:<58} {:>8}", short(seconds));
    }
    println!("{}", fleet.failures(failed));
    service.kill().await?;
    Ok(heard)
}

/// What was used of a processor while it was watched.
struct Used {
    /// Seconds watched.
    wall: f64,
    /// Percent of a core.
    share: f64,
    /// Rounds that were sent, a second.
    per_second: f64,
}

/// Watches a server that takes a fleet's rounds.
async fn used(service: &Service, fleet: &Fleet) -> Result<Used> {
    let (cpu, at, rounds) = (service.cpu()?, Instant::now(), fleet.rounds());
    tokio::time::sleep(if is_short() { SHORT_MEASURE } else { MEASURE }).await;
    let wall = at.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "some tens of thousands")]
    let per_second = (fleet.rounds() - rounds) as f64 / wall;
    Ok(Used { wall, share: (service.cpu()? - cpu) / wall * 100.0, per_second })
}

/// Percent of a core that bare streams of so many probes use.
async fn bare_share(how: &How, probes: usize) -> Result<f64> {
    let server = Service::spawn(how).await?;
    let fleet = Fleet::start(&format!("http://{}", server.addr), probes, None)?;
    fleet.stand(&vec![0; probes], Instant::now()).await?;
    let used = used(&server, &fleet).await?;
    drop(fleet);
    server.kill().await?;
    Ok(used.share)
}
