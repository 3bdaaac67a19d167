//! Probes that prove their node by tokens which the real API server made and reviews.

use std::time::Duration;

use anyhow::ensure;
use stoker_probe::outbox::Outbox;
use stoker_probe::stream::{self, Access, Backoff, Settings, Status};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{CPU_NODE, eventually};

/// A probe that tries to open a stream with that token; it ends when dropped.
struct Probe {
    status: Status,
    _stop: DropGuard,
}

fn probe(bench: &Bench, node: &str, token: &str) -> anyhow::Result<Probe> {
    let (provider, ca) = bench.probe_door();
    let settings = Settings {
        provider: provider.parse()?,
        node: node.to_owned(),
        boot_id: "boot".to_owned(),
        session: 1,
        period: Duration::from_secs(1),
        access: Access::Token { ca, token: bench.file(&format!("token-of-{node}"), token)? },
        backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(1)),
        look_every: Duration::from_secs(30),
    };
    let (status, stop) = (Status::default(), CancellationToken::new());
    let (confirms, _) = mpsc::channel(1);
    tokio::spawn(stream::run(settings, Outbox::new(), confirms, status.clone(), stop.clone()));
    Ok(Probe { status, _stop: stop.drop_guard() })
}

async fn refused(probe: &Probe, because: &str) -> anyhow::Result<()> {
    eventually(&format!("refusal: {because}"), Duration::from_secs(20), async || {
        let why = probe.status.why().unwrap_or_default();
        Ok(if why.contains(because) { Ok(()) } else { Err(format!("{} streams; {why}", probe.status.opened())) })
    })
    .await?;
    ensure!(probe.status.opened() == 0, "a stream was opened");
    Ok(())
}

/// A token of the probe's pod opens a stream for the node that the pod runs on; for another node it opens none, nor does a token that is
/// bound to no pod, nor one of another account or for another audience.
pub(super) async fn tokens(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("work", ONE).await?;
    let node = bench.cluster.bound(&["work"], SCALED).await?.remove(0);
    let pod = bench.cluster.probe_pod(&node).await?;
    let token = bench.cluster.token("stoker-probe", "stoker-probe", Some(&pod)).await?;

    let own = probe(bench, &node, &token)?;
    eventually("stream by the pod's token", Duration::from_secs(20), async || {
        let why = own.status.why().unwrap_or_default();
        Ok(if own.status.connected() { Ok(()) } else { Err(why) })
    })
    .await?;
    // A first attempt may have come before Stoker knew the node.
    let failed = own.status.failed();
    refused(&probe(bench, CPU_NODE, &token)?, "may report for its own node only").await?;
    let unbound = bench.cluster.token("stoker-probe", "stoker-probe", None).await?;
    refused(&probe(bench, &node, &unbound)?, "does not say on which node").await?;
    let other = bench.cluster.token("default", "stoker-probe", None).await?;
    refused(&probe(bench, &node, &other)?, "probes run as").await?;
    let for_another = bench.cluster.token("stoker-probe", "somebody-else", Some(&pod)).await?;
    refused(&probe(bench, &node, &for_another)?, "not authentic").await?;
    // Nothing of that ended the stream that stands.
    ensure!(own.status.connected() && own.status.failed() == failed, "the node's own stream broke");
    bench.cluster.remove_probe_pod().await
}
