//! The provider that the fleet's probes speak to, with a cluster and simulated machines whose names they bear.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use jiff::Timestamp;
use stoker_core::facts::reading::Measured;
use stoker_core::facts::reading::seen::{Activity, Ailment, Seen};
use stoker_fake_apiserver::ApiServer;
use stoker_service::feeds::prometheus::Connection;
use stoker_service::serve::{KubeOptions, Options, ProbeListenerOptions, Running};
use stoker_simulated::{Simulation, WorldOptions, start};
use stoker_tests::client::Client;
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_mins(2);

const GROUP: &str = "p.g6-xlarge.us-east-1a";

/// The moments of each node's rounds that a provider took, over all its lives.
pub(crate) type Books = Arc<Mutex<BTreeMap<String, BTreeSet<Timestamp>>>>;

/// Starts a provider on what it left in `dir`. Prometheus is asked as often as may be.
pub(crate) async fn provider(
    dir: &Path,
    kube: KubeOptions,
    prometheus: Option<Connection>,
    books: &Books,
) -> anyhow::Result<Simulation> {
    let pool = Pool { max_nodes: 50, ..Pool::new("p") };
    let mut world = market::calm();
    world.boot.median_seconds = 1;
    let text = policy(&[pool]) + "prometheus: { interval: 5s, staleAfter: 15s }\n";
    let probes = Some(ProbeListenerOptions::loopback());
    let options = Options { probes, kube, prometheus, ..market::options(text, dir) };
    let world = WorldOptions { config: world, file: Some(dir.join("world.jsonl")) };
    let running = start(options, world).await?;
    let books = Arc::clone(books);
    running.readings.follow(move |taken| {
        if taken.reading.is_some() {
            let mut books = books.lock().unwrap_or_else(PoisonError::into_inner);
            books.entry(taken.node.to_string()).or_default().insert(taken.at);
        }
    });
    Ok(running)
}

/// Orders so many nodes; their names, once the cluster has them.
pub(crate) async fn order(running: &Running, api: &ApiServer, nodes: usize) -> anyhow::Result<Vec<String>> {
    let client = Client::connect(running.provider, running.expander).await?;
    client.ready(LONG).await?;
    client.increase(GROUP, i32::try_from(nodes)?).await?;
    let names = || -> Vec<String> {
        let ready = |node: &&serde_json::Value| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|is| is["type"] == "Ready" && is["status"] == "True")
        };
        let nodes = api.nodes();
        nodes.iter().filter(ready).filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned)).collect()
    };
    until("the nodes that were ordered", || if names().len() == nodes { Ok(()) } else { Err(names().len().to_string()) })
        .await?;
    Ok(names())
}

/// Waits until `holds`, or says what does not.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> Result<(), String>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while let Err(why) = holds() {
        if begun.elapsed() > LONG {
            bail!("{what}: not within {LONG:?}: {why}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// What was seen of a node, in words, less when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// By UUID.
    pub(crate) gpus: BTreeMap<String, ToldGpu>,
    /// With the GPU of each.
    pub(crate) xids: BTreeSet<(u32, Option<String>)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToldGpu {
    pub(crate) activity: String,
    pub(crate) instances: Vec<String>,
    pub(crate) ailments: Vec<Ailment>,
}

impl Told {
    pub(crate) fn of(seen: &Seen) -> Self {
        let word = |activity: &Activity| match activity {
            Activity::Active { .. } => "active".to_owned(),
            Activity::Quiet { .. } => "quiet".to_owned(),
            Activity::Unknown { why, .. } => format!("unknown: {why:?}"),
        };
        let gpu = |seen: &stoker_core::facts::reading::seen::SeenGpu| ToldGpu {
            activity: word(&seen.activity),
            instances: seen.instances.values().map(word).collect(),
            // Which sources read which facts of health differs.
            ailments: seen.ailments.iter().filter(|ailment| !matches!(ailment, Ailment::Unread(..))).copied().collect(),
        };
        Self {
            gpus: seen.gpus.iter().map(|(uuid, seen)| (uuid.to_string(), gpu(seen))).collect(),
            xids: seen.xids.kinds.iter().map(|xid| (xid.code, xid.gpu.as_ref().map(ToString::to_string))).collect(),
        }
    }

    /// Less why something is unknown: each source has words of its own for it.
    #[must_use]
    pub(crate) fn less_reasons(mut self) -> Self {
        for gpu in self.gpus.values_mut() {
            for word in std::iter::once(&mut gpu.activity).chain(&mut gpu.instances) {
                word.truncate(word.find(':').unwrap_or(word.len()));
            }
        }
        self
    }
}

/// What a provider has seen, by node; its drivers as well.
pub(crate) fn told(running: &Running) -> BTreeMap<String, Told> {
    running.readings.seen().borrow().iter().map(|(node, seen)| (node.to_string(), Told::of(seen))).collect()
}

/// How a node's driver stood.
pub(crate) fn driver(running: &Running, node: &str) -> String {
    let seen = running.readings.seen();
    let seen = seen.borrow();
    let driver = seen.iter().find(|(name, _)| name.as_str() == node).map(|(_, seen)| seen.driver);
    match driver {
        Some(Measured::Known(state)) => format!("{state:?}"),
        other => format!("{other:?}"),
    }
}
