//! `stoker top` in a real terminal, against a service that runs on simulated markets and a small API server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http::StatusCode;
use jiff::Timestamp;
use stoker_core::base::ids::{GpuUuid, NodeName};
use stoker_core::facts::reading::{DriverState, GpuReading, Measured, NodeReading, Permille, Source};
use stoker_fake_apiserver::ApiServer;
use stoker_service::serve::{KubeOptions, Options};
use stoker_simulated::{WorldOptions, start};
use stoker_tests::client::Client;
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::terminal::Terminal;
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// A node whose one GPU is that busy, read now.
fn reading(thousandths: u16) -> anyhow::Result<NodeReading> {
    let level = Permille::new(thousandths).context("a share")?;
    let gpu = GpuReading { utilization: Measured::Known(level), ..GpuReading::default() };
    Ok(NodeReading {
        arrived: Timestamp::now(),
        source: Source::Probe,
        driver: DriverState::Ready,
        counted: Measured::Known(1),
        gpus: [(GpuUuid::new("GPU-1")?, gpu)].into(),
        gates: [].into(),
    })
}

/// One picture, for a pipe.
async fn once(url: &str) -> std::io::Result<std::process::Output> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_shipped-stoker"));
    command.args(["top", "--url", url]).output().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_says_who_leads() -> anyhow::Result<()> {
    let ready = || async { (StatusCode::SERVICE_UNAVAILABLE, "not ready\nnot-ready leader: a standby: stoker-b leads\n") };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let app = axum::Router::new().route("/readyz", axum::routing::get(ready));
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let said = String::from_utf8(once(&url).await?.stderr)?;
    ensure!(said.contains("is not ready: leader: a standby: stoker-b leads"), "{said}");
    serving.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_watches_filters_and_explains_nodes_that_come() -> anyhow::Result<()> {
    let (dir, api) = (TempDir::new()?, ApiServer::listen(Timestamp::now).await);
    let mut world = market::calm();
    world.boot.median_seconds = 1;
    let kube = KubeOptions::Kubeconfig(api.kubeconfig());
    let pools = [Pool::new("p"), Pool { zones: "us-east-1b", ..Pool::new("q") }];
    let options = Options { kube, debug: true, ..market::options(policy(&pools), dir.path()) };
    let state_dir = options.state_dir.display().to_string();
    let running = start(options, WorldOptions { config: world, file: None }).await?;
    let url = format!("http://{}", running.http);
    let program = Path::new(env!("CARGO_BIN_EXE_shipped-stoker"));
    let terminal = Terminal::run(program, &["top", "--url", &url, "--every", "1s", "--state-dir", &state_dir], (100, 30))?;
    terminal.shows(|screen| screen.contains("no nodes") && screen.contains("ready"), LONG)?;

    let client = Client::connect(running.provider, running.expander).await?;
    client.ready(LONG).await?;
    client.increase("p.g6-xlarge.us-east-1a", 2).await?;
    client.increase("q.g6-xlarge.us-east-1b", 1).await?;
    terminal.shows(|screen| screen.matches("warm").count() > 3, LONG)?;
    let node = api.nodes().iter().find_map(|node| {
        let name = node["metadata"]["name"].as_str()?;
        (node["metadata"]["labels"]["stoker.dev/pool"] == "q").then(|| name.to_owned())
    });
    let node = node.context("a node of pool q")?;
    api.bind_gpu_pod("job", &node);
    let screen = terminal.shows(|screen| screen.contains("busy") && screen.contains("default/job"), LONG)?;
    ensure!(screen.contains("test  $2.70/h  ready"), "three nodes at $0.90:\n{screen}");
    // The keeper of readings hears of a node within seconds; until then a reading of it counts for nothing.
    let (name, begun) = (NodeName::new(&node)?, Instant::now());
    while !terminal.screen()?.contains("▄ 43%") {
        ensure!(begun.elapsed() < LONG, "no bar:\n{}", terminal.screen()?);
        let _ = running.readings.take(&name, reading(430)?, Vec::new());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    for key in ["/", "q", ".", "g", "6", "Enter"] {
        terminal.press(key)?;
    }
    terminal.shows(|screen| screen.contains("1 of 3 nodes with \"q.g6\""), LONG)?;
    terminal.press("Enter")?;
    // What the view knows, and then what the journal does.
    let about = format!("node {node}");
    terminal.shows(|screen| screen.contains(&about) && screen.contains("held by   default/job"), LONG)?;
    terminal.shows(|screen| screen.contains("asked    order o"), LONG)?;

    let piped = once(&url).await?;
    let printed = String::from_utf8(piped.stdout)?;
    ensure!(piped.status.success() && printed.contains("test  $2.70/h  ready") && printed.contains(&node), "{printed}");

    running.stop().await;
    terminal.press("Escape")?;
    terminal.shows(|screen| screen.contains("no picture for") && screen.contains(&node), LONG)?;
    terminal.press("q")?;
    let begun = Instant::now();
    while !terminal.ended() {
        ensure!(begun.elapsed() < LONG, "it does not end:\n{}", terminal.screen()?);
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
