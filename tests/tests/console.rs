//! The console in a real Chromium: every page, by keyboard, in dark and light, on a telephone's width, with names that would be markup.
//!
//! `STOKER_DOCS=write` writes the manual's pictures of it anew. axe-core (tests/tests/console) checks contrast, labels and roles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use stoker_core::base::ids::{GpuUuid, NodeName};
use stoker_core::facts::reading::{DriverState, GpuReading, Measured, NodeReading, Permille, Source};
use stoker_fake_apiserver::ApiServer;
use stoker_service::api::console::ConsoleOptions;
use stoker_service::certs::write_tryout;
use stoker_service::listener::{TlsFiles, install_crypto};
use stoker_service::serve::{KubeOptions, Options, PolicySource};
use stoker_simulated::{Simulation, WorldOptions, start};
use stoker_tests::browser::Browser;
use stoker_tests::client::Client;
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

const TOKEN: &str = "a-token-of-this-test";

/// What a pod may be called by whoever writes past the API server's rules.
const HOSTILE: &str = "<img src=x onerror=injected=1>";

/// Largest picture in the manual.
const LARGEST: usize = 150 << 10;

const AXE: &str = include_str!("console/axe.min.js");

const DESK: (u32, u32) = (1200, 760);
const TELEPHONE: (u32, u32) = (400, 760);

/// A node whose GPUs are that busy, read now.
fn reading(levels: &[u16]) -> Result<NodeReading> {
    let gpu = |(at, level): (usize, &u16)| -> Result<_> {
        let utilization = Measured::Known(Permille::new(*level).context("a share")?);
        Ok((GpuUuid::new(format!("GPU-{at}"))?, GpuReading { utilization, ..GpuReading::default() }))
    };
    Ok(NodeReading {
        arrived: Timestamp::now(),
        source: Source::Probe,
        driver: DriverState::Ready,
        counted: Measured::Known(u32::try_from(levels.len())?),
        gpus: levels.iter().enumerate().map(gpu).collect::<Result<_>>()?,
        gates: [].into(),
    })
}

/// A service with nodes of two pools, some at work, and its console behind a token.
struct Fleet {
    running: Simulation,
    api: ApiServer,
    client: Client,
    url: String,
    policy: PathBuf,
    _dir: TempDir,
}

const TRAINING: &str = "training.g6-12xlarge.us-east-1a";
const INFERENCE: &str = "inference.g6-xlarge.us-east-1a";

fn policy_text() -> String {
    let training = Pool { count: 4, ..Pool::new("training") };
    let floor = "  warmFloor: { nodes: 1 }\n".to_owned();
    let text = policy(&[training, Pool { more: floor, ..Pool::new("inference") }]);
    text.replace("pools:\n", "limits: { maxUsdPerHour: 20 }\npools:\n")
}

async fn fleet() -> Result<Fleet> {
    let (dir, api) = (TempDir::new()?, ApiServer::listen(Timestamp::now).await);
    let mut world = market::calm();
    world.boot.median_seconds = 1;
    let (policy, token) = (dir.path().join("policy.yaml"), dir.path().join("token"));
    std::fs::write(&policy, policy_text())?;
    std::fs::write(&token, TOKEN)?;
    let console = ConsoleOptions {
        token_file: Some(token),
        listener: None,
        clients: Vec::new().into(),
        text: stoker::cli::console_text(market::book()),
    };
    let options = market::options(String::new(), dir.path());
    let kube = KubeOptions::Kubeconfig(api.kubeconfig());
    let options = Options { kube, console: Some(console), policy: PolicySource::File(policy.clone()), ..options };
    let running = start(options, WorldOptions { config: world, file: None }).await?;
    let client = Client::connect(running.provider, running.expander).await?;
    client.ready(LONG).await?;
    client.increase(TRAINING, 3).await?;
    client.increase(INFERENCE, 2).await?;
    let url = format!("http://{}/console", running.http);
    Ok(Fleet { running, api, client, url, policy, _dir: dir })
}

impl Fleet {
    /// Waits until there are so many Nodes; their names, by pool.
    async fn nodes(&self, count: usize) -> Result<Vec<(String, String)>> {
        let begun = Instant::now();
        loop {
            let nodes: BTreeSet<(String, String)> = self
                .api
                .nodes()
                .iter()
                .filter_map(|node| {
                    let text = |value: &Value| value.as_str().map(str::to_owned);
                    Some((text(&node["metadata"]["labels"]["stoker.dev/pool"])?, text(&node["metadata"]["name"])?))
                })
                .collect();
            if nodes.len() >= count {
                return Ok(nodes.into_iter().collect());
            }
            ensure!(begun.elapsed() < LONG, "only {} nodes", nodes.len());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Reports how busy the nodes' GPUs are; one node is not read.
    fn read(&self, nodes: &[(String, String)]) -> Result<()> {
        for (at, (pool, name)) in nodes.iter().enumerate().skip(1) {
            let levels: &[u16] = match (pool.as_str(), at % 2) {
                ("training", 0) => &[910, 940, 880, 1000],
                ("training", _) => &[620, 20, 710, 0],
                _ => &[430],
            };
            // A node that its keeper has not heard of yet is read a moment later.
            let _ = self.running.readings.take(&NodeName::new(name)?, reading(levels)?, Vec::new());
        }
        Ok(())
    }
}

/// Where the manual's pictures are.
fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../provider/docs/pictures")
}

/// Takes a picture, for the manual where that is written.
fn take(browser: &mut Browser, name: &str) -> Result<()> {
    // What moved has come to rest.
    std::thread::sleep(Duration::from_millis(300));
    let picture = browser.picture()?;
    ensure!(picture.len() > 5_000 && picture.len() <= LARGEST, "{name}: {} bytes", picture.len());
    let dir = if std::env::var("STOKER_DOCS").is_ok_and(|value| value == "write") {
        pictures()
    } else {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
    };
    std::fs::write(dir.join(format!("console-{name}.png")), picture)?;
    Ok(())
}

/// What axe finds against a page, by rule.
fn faults(browser: &mut Browser) -> Result<Vec<String>> {
    if browser.evaluate("typeof axe")? != "object" {
        browser.evaluate(&format!("{AXE};0"))?;
    }
    let tags = json!(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]);
    let script = format!(
        "axe.run({{ runOnly: {tags} }}).then(found => ({{ violations: found.violations.map(one => one.id + ': ' + \
                          one.nodes.map(node => node.html + ' ' + node.failureSummary).join(' | ')), passes: found.passes.length }}))"
    );
    let found = browser.evaluate(&script)?;
    ensure!(found["passes"].as_u64() > Some(10), "axe looked at nothing: {found}");
    Ok(serde_json::from_value(found["violations"].clone())?)
}

/// On an address of its own the console asks for a client certificate, and the side port does not have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_opens_the_console() -> Result<()> {
    install_crypto();
    let (certs, dir) = (TempDir::new()?, TempDir::new()?);
    write_tryout(certs.path(), &[], "ops")?;
    let file = |name: &str| certs.path().join(name);
    let files =
        TlsFiles { cert: file("server.crt"), key: file("server.key"), client_ca: Some(file("ca.crt")), denied_serials: None };
    let listener = Some((([127, 0, 0, 1], 0).into(), files));
    let console = ConsoleOptions {
        token_file: None,
        listener,
        clients: Vec::new().into(),
        text: stoker::cli::console_text(market::book()),
    };
    let options = Options { console: Some(console), ..market::options(policy_text(), dir.path()) };
    let running = start(options, WorldOptions { config: market::calm(), file: None }).await?;
    let url = format!("https://localhost:{}", running.console.context("no address of its own")?.port());

    let root = reqwest::Certificate::from_pem(&std::fs::read(file("ca.crt"))?)?;
    let client = || reqwest::Client::builder().tls_certs_only([root.clone()]).redirect(reqwest::redirect::Policy::none());
    let identity = [std::fs::read(file("client.crt"))?, std::fs::read(file("client.key"))?].concat();
    let known = client().identity(reqwest::Identity::from_pem(&identity)?).build()?;
    let page = known.get(format!("{url}/console")).send().await?;
    ensure!(page.status() == 200, "{page:?}");
    let text = page.text().await?;
    ensure!(text.contains("inference") && !text.contains("Sign out"), "{text}");
    // Nothing else is there.
    let metrics = known.get(format!("{url}/metrics")).send().await?;
    ensure!(metrics.status() == 303 && metrics.headers()["location"] == "/console", "{metrics:?}");

    let stranger = client().build()?.get(format!("{url}/console")).send().await;
    ensure!(stranger.is_err(), "{stranger:?}");
    let beside = reqwest::get(format!("http://{}/console", running.http)).await?;
    ensure!(beside.status() == 404, "{beside:?}");
    let metrics = reqwest::get(format!("http://{}/metrics", running.http)).await?.text().await?;
    ensure!(metrics.contains("stoker_certificate_fault{listener=\"console\"} 0"), "{metrics}");
    running.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn people_read_the_console_in_a_real_browser() -> Result<()> {
    let Some(program) = Browser::find()? else {
        eprintln!(
            "\n*** SKIPPED: no Chromium on this machine, so nobody looked at the console (STOKER_E2E_CHROMIUM names one) ***\n"
        );
        return Ok(());
    };
    let fleet = fleet().await?;
    let nodes = fleet.nodes(5).await?;
    let mut browser = Browser::start(&program)?;
    browser.look(DESK, "light")?;

    // Without the token nothing is shown; with it, typed on the keyboard, all is.
    browser.open(&format!("{}/nodes", fleet.url))?;
    ensure!(browser.evaluate("location.pathname")? == "/console/login", "it asks for the token");
    ensure!(faults(&mut browser)?.is_empty(), "{:?}", faults(&mut browser)?);
    browser.waits("document.activeElement.id === 'token'")?;
    browser.type_text("not-the-token-of-this-test")?;
    browser.press("Enter")?;
    browser.waits("document.querySelector('[role=alert]')?.innerText === 'That is not the token.'")?;
    browser.waits("document.activeElement.id === 'token'")?;
    // The browser itself notes the refusal, and nothing else.
    let refused = browser.complaints();
    ensure!(refused.iter().all(|line| line.contains("403")), "{refused:?}");
    browser.type_text(TOKEN)?;
    browser.press("Enter")?;
    browser.waits("location.pathname === '/console' && document.getElementById('state')?.innerText === 'Live'")?;
    ensure!(browser.evaluate("document.cookie")? == "", "no script reads the session");

    // Work begins, under a name that would be markup.
    fleet.api.bind_gpu_pod("llama-0", &nodes.iter().rfind(|(pool, _)| pool == "training").context("a node")?.1);
    let (_, inference) = nodes.iter().find(|(pool, _)| pool == "inference").context("a node")?;
    fleet.api.bind_gpu_pod(HOSTILE, inference);
    let begun = Instant::now();
    browser.evaluate("window.stays = true")?;
    while browser.evaluate("document.body.innerText.includes('busy')")? != true {
        ensure!(begun.elapsed() < LONG, "no update shows the work: {}", browser.evaluate("document.body.innerText")?);
        fleet.read(&nodes)?;
        std::thread::sleep(Duration::from_millis(500));
    }
    ensure!(browser.evaluate("window.stays")? == true, "the page was not loaded again");
    ensure!(browser.evaluate("document.querySelectorAll('canvas').length")? == 1, "the last hour is drawn");

    // By keyboard: the first stop leads past the head.
    browser.open(&fleet.url)?;
    browser.press("Tab")?;
    ensure!(browser.evaluate("document.activeElement.innerText")? == "Skip to the page", "the first stop");
    browser.press("Enter")?;
    browser.waits("document.activeElement.id === 'live'")?;

    for (name, heading) in
        [("Now", "test now"), ("Nodes", "Nodes"), ("Decisions", "Decisions"), ("Money", "Money"), ("Policy", "Policy")]
    {
        fleet.read(&nodes)?;
        // Its link is followed as a keyboard does.
        browser
            .evaluate(&format!("[...document.querySelectorAll('nav a')].find(link => link.innerText === '{name}').focus()"))?;
        browser.press("Enter")?;
        browser.waits(&format!(
            "document.querySelector('h1')?.innerText === '{heading}' && document.getElementById('state')?.innerText === 'Live'"
        ))?;
        ensure!(browser.evaluate("document.querySelector('[aria-current=page]').innerText")? == name, "{name} is marked");
        if name == "Nodes" {
            browser.waits("document.body.innerText.includes('43 %') && document.body.innerText.includes('llama-0')")?;
            let hostile = browser.evaluate(&format!("document.body.innerText.includes({})", json!(HOSTILE)))?;
            ensure!(hostile == true && browser.evaluate("typeof injected")? == "undefined", "a name is text");
            ensure!(browser.evaluate("document.querySelectorAll('img').length")? == 0, "a name makes no element");
            // The manual shows a name as people give it.
            fleet.api.end_pod(HOSTILE);
            fleet.api.bind_gpu_pod("chat-7f6c9", inference);
            browser.waits("document.body.innerText.includes('chat-7f6c9') && !document.body.innerText.includes('onerror')")?;
        }
        if name == "Money" {
            browser.waits("document.querySelectorAll('canvas').length === 1")?;
        }
        for scheme in ["light", "dark"] {
            browser.look(DESK, scheme)?;
            // Colours of charts are taken anew.
            std::thread::sleep(Duration::from_millis(300));
            let found = faults(&mut browser)?;
            ensure!(found.is_empty(), "{name}, {scheme}: {found:#?}");
        }
        if name == "Now" {
            take(&mut browser, "now-dark")?;
        }
        browser.look(TELEPHONE, "light")?;
        browser.waits("document.documentElement.scrollWidth <= 400")?;
        let found = faults(&mut browser)?;
        ensure!(found.is_empty(), "{name}, on a telephone: {found:#?}");
        if name == "Nodes" {
            take(&mut browser, "nodes-400")?;
        }
        browser.look(DESK, "light")?;
        take(&mut browser, &name.to_lowercase())?;
    }

    // A decision is a link away, and says why.
    browser.evaluate("[...document.querySelectorAll('nav a')].find(link => link.innerText === 'Decisions').click()")?;
    browser.waits("document.querySelector('ol.line a') !== null")?;
    browser.evaluate(
        "[...document.querySelectorAll('ol.line li')].find(one => one.innerText.includes('chosen')).querySelector('a').click()",
    )?;
    browser.waits("document.querySelector('pre')?.innerText.includes('asked    order')")?;
    let found = faults(&mut browser)?;
    ensure!(found.is_empty(), "a decision: {found:#?}");

    // A policy that is refused is shown at once, above the last good one; and what is typed meanwhile is kept.
    browser.evaluate("[...document.querySelectorAll('nav a')].find(link => link.innerText === 'Policy').click()")?;
    browser.waits("document.body.innerText.includes('the file has no errors')")?;
    std::fs::write(&fleet.policy, policy_text().replace("maxUsdPerHour: 20", "maxUsdPerHour: many"))?;
    browser.waits(
        "document.body.innerText.includes('The file has errors') && document.body.innerText.includes('maxUsdPerHour: 20')",
    )?;
    let found = faults(&mut browser)?;
    ensure!(found.is_empty(), "a policy with errors: {found:#?}");
    std::fs::write(&fleet.policy, policy_text())?;

    // A filter is kept in the address; what has the focus keeps it over updates, also when a new stream begins.
    browser.open(&format!("{}/nodes?pool=inference", fleet.url))?;
    browser.waits("document.getElementById('state')?.innerText === 'Live'")?;
    browser.evaluate("document.querySelector('input[name=q]').focus()")?;
    browser.type_text("g6")?;
    let before = browser.evaluate("document.querySelectorAll('tbody tr').length")?;
    fleet.client.increase(INFERENCE, 1).await?;
    browser.waits(&format!("document.querySelectorAll('tbody tr').length === {}", before.as_u64().context("a count")? + 1))?;
    ensure!(browser.evaluate("document.activeElement.value")? == "g6", "what is typed is kept");
    let streams = |browser: &Browser| browser.asked().iter().filter(|url| url.contains("/console/events")).count();
    let (begun, so_far) = (Instant::now(), streams(&browser));
    while streams(&browser) == so_far {
        ensure!(begun.elapsed() < LONG, "the stream is not opened again");
        browser.evaluate("0")?;
        std::thread::sleep(Duration::from_millis(500));
    }
    browser.waits("document.getElementById('state')?.innerText === 'Live'")?;

    // Updates can be stopped.
    browser.evaluate("document.getElementById('pause').focus()")?;
    browser.press("Space")?;
    browser.waits("document.getElementById('state').innerText === 'Paused'")?;

    let complaints = browser.complaints();
    ensure!(complaints.len() == refused.len(), "the log of the browser: {complaints:#?}");
    let (host, asked) = (format!("http://{}/console", fleet.running.http), browser.asked());
    let others: Vec<_> = asked.iter().filter(|url| !url.starts_with(&host) && !url.starts_with("about:")).collect();
    ensure!(others.is_empty() && asked.len() > 20, "of {} addresses: {others:?}", asked.len());
    println!("{} requests, all to {host}; axe-core found nothing", asked.len());

    drop(browser);
    let Fleet { running, .. } = fleet;
    running.stop().await;
    Ok(())
}
