//! A whole service and its cluster: what a Node bears of its verdict follows its pods.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use jiff::Timestamp;
use serde_json::Value;
use stoker_fake_apiserver::ApiServer;
use stoker_service::serve::{KubeOptions, Options};
use stoker_simulated::{WorldOptions, start};
use stoker_tests::client::Client;
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

const VERDICT: &str = "stoker.dev/verdict";

/// Waits until the one Node bears this in full.
async fn bears(api: &ApiServer, word: &str, status: &str, reason: &str) -> anyhow::Result<String> {
    let begun = Instant::now();
    loop {
        let nodes = api.nodes();
        if let [node] = nodes.as_slice() {
            let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let of = |kind: &str| conditions.iter().filter(|known| known["type"] == kind).collect::<Vec<&Value>>();
            let told = matches!(of("stoker.dev/GpuFree")[..], [one] if one["status"] == status && one["reason"] == reason);
            if told && node["metadata"]["annotations"][VERDICT] == word {
                ensure!(of("Ready").len() == 1, "its own condition is lost: {node}");
                return Ok(node["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            }
        }
        if begun.elapsed() > LONG {
            bail!("not {word} within {LONG:?}: {nodes:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_bears_its_verdict_from_pod_to_pod() -> anyhow::Result<()> {
    let (dir, api) = (TempDir::new()?, ApiServer::listen(Timestamp::now).await);
    let mut world = market::calm();
    world.boot.median_seconds = 1;
    let kube = KubeOptions::Kubeconfig(api.kubeconfig());
    let options = Options { kube, ..market::options(policy(&[Pool::new("p")]), dir.path()) };
    let running = start(options, WorldOptions { config: world, file: None }).await?;
    let client = Client::connect(running.provider, running.expander).await?;
    client.ready(LONG).await?;
    client.increase("p.g6-xlarge.us-east-1a", 1).await?;
    let node = bears(&api, "warm", "True", "GpuWarm").await?;
    api.bind_gpu_pod("job", &node);
    bears(&api, "busy", "False", "GpuBusy").await?;
    api.end_pod("job");
    bears(&api, "warm", "True", "GpuWarm").await?;
    // Each Event follows what it tells of.
    let told = |reason: &str| api.event_reasons().iter().filter(|told| *told == reason).count();
    let begun = Instant::now();
    while told("GpuWarm") < 2 {
        ensure!(begun.elapsed() < LONG, "{:?}", api.event_reasons());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((told("GpuWarm"), told("GpuBusy")), (2, 1));
    running.stop().await;
    Ok(())
}
