//! The probes: the stream that is shipped, with its buffer, its jitter and its patience, over rounds that are made up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use stoker_probe::outbox::Outbox;
use stoker_probe::stream::{self, Access, Backoff, Settings, Status};
use stoker_service::certs::Tryout;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::round::round;

/// How often each sends.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);
/// Of so many rounds of a probe one begins to use a GPU, which is quiet again in the next: 5 such rounds a second over 5,000 probes.
const ROUNDS_A_BURST: u64 = 200;
/// A fleet that is not there by then does not come.
const LONGEST: Duration = Duration::from_mins(3);
/// How often its streams are counted.
const LOOK: Duration = Duration::from_millis(20);
/// How often a probe looks for renewed certificates.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Probes that stream until they are dropped.
pub(crate) struct Fleet {
    streams: Vec<Status>,
    outboxes: Vec<Outbox>,
    sent: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

/// How long it took until half, 99 of 100 and all streams stood, in seconds.
pub(crate) struct Stood {
    pub(crate) half: f64,
    pub(crate) most: f64,
    pub(crate) all: f64,
}

/// Certificates of the service and of each node, of one authority.
pub(crate) fn certificates(dir: &Path, probes: usize) -> Result<()> {
    let names: Vec<String> = (0..probes).map(|probe| format!("probe:{}", node(probe))).collect();
    let client_names: Vec<&str> = names.iter().map(String::as_str).collect();
    Tryout { dir, server_names: &[], client_names: &client_names, address: "localhost:8089", force: false }.write()?;
    Ok(())
}

/// The name of the node on which that probe is.
pub(crate) fn node(probe: usize) -> String {
    format!("node-{probe:04}")
}

/// What shows that the probe is on its node: nothing, or the certificate that is its own.
fn access(certificates: Option<&Path>, probe: usize) -> Access {
    let Some(dir) = certificates else { return Access::Plaintext };
    let own = if probe == 0 { "client".to_owned() } else { format!("client-probe-{}", node(probe)) };
    Access::Certificate { ca: dir.join("ca.crt"), cert: dir.join(format!("{own}.crt")), key: dir.join(format!("{own}.key")) }
}

impl Fleet {
    /// Begins so many probes, evenly over a period; each sends in its own part of it. Over TLS where there are certificates.
    pub(crate) fn start(provider: &str, probes: usize, certificates: Option<&Path>) -> Result<Self> {
        let (mut tasks, sent) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
        let (mut streams, mut outboxes) = (Vec::new(), Vec::new());
        let start = tokio::time::Instant::now();
        for probe in 0..probes {
            let (outbox, status) = (Outbox::new(), Status::default());
            let settings = Settings {
                provider: provider.parse().context("the provider's address")?,
                node: node(probe),
                boot_id: "boot".to_owned(),
                session: u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default(),
                period: PERIOD,
                access: access(certificates, probe),
                backoff: Backoff::default(),
                look_every: LOOK_EVERY,
            };
            let first = start + PERIOD.mul_f64(part(probe, probes));
            // Nobody is asked to confirm anything here.
            let (confirms, _) = mpsc::channel(1);
            let (own, standing) = (outbox.clone(), status.clone());
            tasks.spawn(async move {
                tokio::time::sleep_until(first).await;
                stream::run(settings, own, confirms, standing, CancellationToken::new()).await;
            });
            let (own, count) = (outbox.clone(), Arc::clone(&sent));
            tasks.spawn(async move {
                let mut ticks = tokio::time::interval_at(first + PERIOD, PERIOD);
                // A sampler is late, and does not catch up.
                ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                for sequence in 1_u64.. {
                    ticks.tick().await;
                    let busy = (sequence * 7919 + probe as u64).is_multiple_of(ROUNDS_A_BURST);
                    own.round(round(sequence, probe, busy));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            streams.push(status);
            outboxes.push(outbox);
        }
        Ok(Self { streams, outboxes, sent, _tasks: tasks })
    }

    /// Rounds that were read so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Rounds that the service has not acknowledged, and those that had to make room.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        let fills = self.outboxes.iter().map(Outbox::fill);
        fills.fold((0, 0), |(rounds, thinned), fill| (rounds + fill.rounds, thinned + fill.thinned))
    }

    /// Streams that broke, and tries that came to none, over all probes.
    pub(crate) fn failed(&self) -> u64 {
        self.streams.iter().map(Status::failed).sum()
    }

    /// In words: how many broke or failed since there were `before`, and how one of them did.
    pub(crate) fn failures(&self, before: u64) -> String {
        let count = self.failed().saturating_sub(before);
        match self.streams.iter().find_map(Status::why).filter(|_| count > 0) {
            Some(why) => format!("{count} streams broke or tries failed, such as by: {why}"),
            None => "no stream broke and no try failed".to_owned(),
        }
    }

    /// How often each probe has opened a stream so far, for [`Fleet::stand`].
    pub(crate) fn opened(&self) -> Vec<u64> {
        self.streams.iter().map(Status::opened).collect()
    }

    /// Waits until each probe has a stream that it opened after `before`; how long that took since `since`.
    pub(crate) async fn stand(&self, before: &[u64], since: Instant) -> Result<Stood> {
        let all = self.streams.len();
        let (mut half, mut most) = (None, None);
        loop {
            let stands = |(stream, before): &(&Status, &u64)| stream.connected() && stream.opened() > **before;
            let standing = self.streams.iter().zip(before).filter(stands).count();
            let took = since.elapsed();
            if standing * 2 >= all {
                half.get_or_insert(took);
            }
            if standing * 100 >= all * 99 {
                most.get_or_insert(took);
            }
            if standing == all {
                let seconds = |at: Option<Duration>| at.unwrap_or(took).as_secs_f64();
                return Ok(Stood { half: seconds(half), most: seconds(most), all: took.as_secs_f64() });
            }
            if took > LONGEST {
                let why = self.streams.iter().filter(|stream| !stream.connected()).find_map(Status::why);
                bail!("{standing} of {all} streams stand after {LONGEST:?}; one failed last by: {}", why.unwrap_or_default());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "some thousands")]
fn part(of: usize, all: usize) -> f64 {
    of as f64 / all as f64
}
