//! Every query of the alerts and the dashboard against a real Prometheus, in a cluster where everything is the matter at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stoker::monitoring::{DASHBOARD, RuleFile, Thresholds, rules};
use stoker_fake_apiserver::ApiServer;
use stoker_tests::harness::{Service, Setup};
use stoker_tests::prometheus::{Prometheus, promtool};
use tempfile::TempDir;

use super::exporter::{Exporter, Gpu};

/// A budget nearly spent, a floor unmet by one, a quota nearly full (64 of 68 vCPUs), a commitment nobody uses, training without spot.
const POLICY: &str = "apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: test
pools:
- name: infer
  workload: inference
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [us-east-1], zones: [us-east-1a] }
  capacity: { prefer: [on-demand] }
  limits: { minNodes: 3, maxNodes: 10, maxUsdPerHour: 2 }
- name: serve
  workload: inference
  gpu: { models: [A10G], count: 1 }
  where: { clouds: [aws], regions: [us-east-1], zones: [us-east-1a] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 10 }
- name: train
  workload: training
  gpu: { models: [L4], count: 4 }
  where: { clouds: [aws], regions: [us-east-1], zones: [us-east-1a] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 10 }
quotas:
- { name: L-DB2E81BA, cloud: aws, region: us-east-1, limit: 68 }
commitments:
- { name: ri, cloud: aws, kind: reserved-instance, region: us-east-1, instanceType: g6e.xlarge, nodes: 1, usdPerHour: 0.5 }
";

const ORDERS: [(&str, i32); 3] =
    [("infer.g6-xlarge.us-east-1a", 2), ("serve.g5-xlarge.us-east-1a", 2), ("train.g6-12xlarge.us-east-1a", 1)];

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_mins(2);

const QUIET: Gpu =
    Gpu { utilization: 10, sm: 0.1, used: 1_000, free: 22_000, temperature: 40, power: 80, xid: 0, split: false };

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs prometheus: apt-get install --no-install-recommends prometheus"]
async fn every_query_is_answered_by_a_real_prometheus() -> anyhow::Result<()> {
    let api = ApiServer::listen(Timestamp::now).await;
    let setup = Setup::new(POLICY.to_owned()).world(|world| world.boot.median_seconds = 1).cluster(&api.kubeconfig());
    let service = setup.in_real_time().start().await;
    let exporter = Exporter::start().await?;
    // As they are, but that prices of some weeks are old, and that a test need not wait a minute for each step.
    let mut file = rules(&Thresholds { price_age: SignedDuration::from_hours(24), ..Thresholds::default() });
    for group in &mut file.groups {
        group.interval = "1s".to_owned();
    }
    let dir = TempDir::new()?;
    std::fs::write(dir.path().join("rules.yml"), serde_json::to_string(&file)?)?;
    let now = Timestamp::now();
    backfill(dir.path(), now).await?;
    let targets = [("stoker", service.running().http), ("gpus", exporter.address)];
    let scrapes = targets.map(|(job, address)| {
        format!("- {{ job_name: {job}, honor_labels: true, static_configs: [{{ targets: [\"{address}\"] }}] }}\n")
    });
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [rules.yml]\nscrape_configs:\n{}",
        scrapes.concat()
    );
    let prometheus = Prometheus::start(dir, &config).await?;

    order(&service).await?;
    let by_pool = nodes(&prometheus).await?;
    let (infer, serve, train) = (&by_pool["infer"], &by_pool["serve"], &by_pool["train"]);
    api.bind_gpu_pod("server", &infer[1]);
    // One idle, full, hot, at its limit and broken; one suspect; one saturated; one that waits for data. The second of `serve` tells nothing.
    let broken = Gpu { utilization: 0, used: 22_000, free: 1_000, temperature: 90, power: 290, xid: 79, ..QUIET };
    exporter.tell(&[
        (infer[0].clone(), vec![broken]),
        (infer[1].clone(), vec![Gpu { xid: 63, ..QUIET }]),
        (serve[0].clone(), vec![Gpu { utilization: 99, ..QUIET }]),
        (
            train[0].clone(),
            [vec![Gpu { utilization: 60, sm: 0.3, ..QUIET }; 3], vec![Gpu { sm: 0.3, split: true, ..QUIET }]].concat(),
        ),
    ]);

    let of_rules = file.groups.iter().flat_map(|group| &group.rules).map(|rule| (rule.name(), rule.expr().to_owned()));
    let board: serde_json::Value = serde_json::from_str(DASHBOARD)?;
    let of_board = board["panels"].as_array().into_iter().flatten().flat_map(|panel| {
        let title = panel["title"].as_str().unwrap_or_default();
        let queries = panel["targets"].as_array().into_iter().flatten().filter_map(|target| target["expr"].as_str());
        queries.map(move |query| (title, query.to_owned()))
    });
    let all: Vec<(&str, String)> =
        of_rules.chain(of_board).chain([("the list of pools", "stoker_floor_nodes".to_owned())]).collect();
    for (name, query) in all.iter().filter(|(name, _)| !SILENT.contains(name)) {
        answered(&prometheus, name, query).await?;
    }
    // Alerts are as of their last evaluation.
    let mut tries = 0..60;
    while let Err(why) = evaluated(&prometheus, &file).await {
        tries.next().ok_or(why)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    // A minute before it began, no service told of itself.
    let (_, away) = all.iter().find(|(name, _)| *name == "StokerAway").context("the alert of an absent service")?;
    let answer = prometheus.client.query(away).at(now.as_second() - 60).get().await?;
    ensure!(!answer.data().is_empty(), "{away}");
    prometheus.stop().await
}

/// Alerts that say nothing here: the service is there and sound, without an API server nothing is concluded of nodes, and no Karpenter
/// is steered.
const SILENT: [&str; 14] = [
    "StokerAutoscalerSilent",
    "StokerAway",
    "StokerCertificateExpires",
    "StokerConsistencyCheckFailed",
    "StokerDiskLow",
    "StokerFeedOld",
    "StokerJournalFault",
    "StokerNodesUnhealthy",
    "StokerPassesFailing",
    "StokerPodsWithoutGpu",
    "StokerPolicyRejected",
    "StokerReadingsStopped",
    "StokerSteeringFailed",
    "StokerTemplateTooLarge",
];

/// What the rules recorded over the last day, and over the day a week before it: a busy GPU-hour cost half as much then.
async fn backfill(dir: &Path, now: Timestamp) -> anyhow::Result<()> {
    const DAY: i64 = 86_400;
    let mut text = String::new();
    let levels = [
        ("stoker:pool_gpu_utilization:percent{pool=\"infer\",workload=\"inference\"}", 20, 20),
        ("stoker:pool_gpus_measured:count{pool=\"infer\",workload=\"inference\"}", 2, 2),
        ("stoker:pool_gpus_idle:count{pool=\"infer\",workload=\"inference\"}", 1, 1),
        ("stoker:pool_spend:usd_per_hour{pool=\"infer\"}", 1, 2),
        ("stoker:pool_gpus_busy:count{pool=\"infer\"}", 1, 1),
    ];
    for (series, then, lately) in levels {
        for (ago, level) in [(8 * DAY, then), (DAY, lately)] {
            for second in (ago - DAY + 120..ago).rev().step_by(60) {
                writeln!(text, "{series} {level} {}", now.as_second() - second)?;
            }
        }
    }
    text.push_str("# EOF\n");
    std::fs::write(dir.join("earlier"), text)?;
    promtool(&["tsdb", "create-blocks-from", "openmetrics", "earlier", "data"], dir).await?;
    Ok(())
}

async fn order(service: &Service) -> anyhow::Result<()> {
    let client = service.client();
    let listed = async {
        while client.refresh().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, listed).await.context("the service gets ready")?;
    for (group, nodes) in ORDERS {
        client.increase(group, nodes).await.with_context(|| group.to_owned())?;
    }
    Ok(())
}

/// The names of the nodes of each pool, once all have joined, as Prometheus knows them.
async fn nodes(prometheus: &Prometheus) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let wanted = ORDERS.iter().map(|(_, nodes)| usize::try_from(*nodes)).sum::<Result<usize, _>>()?;
    let joined = async {
        loop {
            if prometheus.series("stoker_node_info").await? == wanted {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LONG, joined).await.context("the nodes join")??;
    let answer = prometheus.client.query("sort(stoker_node_info)").get().await?;
    let mut by_pool: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for series in answer.data().as_vector().context("a vector")? {
        let label = |name: &str| series.metric().get(name).cloned().unwrap_or_default();
        by_pool.entry(label("pool")).or_default().push(label("node"));
    }
    Ok(by_pool)
}

/// Waits until a query has a series. What Grafana fills in is filled in.
async fn answered(prometheus: &Prometheus, name: &str, query: &str) -> anyhow::Result<()> {
    let query = query.replace("$pool", ".*").replace("$__rate_interval", "10s");
    let some = async {
        loop {
            if prometheus.series(&query).await.with_context(|| name.to_owned())? > 0 {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LONG, some).await.map_err(|_| anyhow::anyhow!("{name} has no series: {query}"))?
}

/// Whether Prometheus evaluates every rule without an error, and every alert but the [`SILENT`] has something to say, in words.
async fn evaluated(prometheus: &Prometheus, file: &RuleFile) -> anyhow::Result<()> {
    let answer: Value = serde_json::from_str(&prometheus.client.rules().get_raw().await?.text().await?)?;
    let groups = answer["data"]["groups"].as_array().context("groups")?;
    let of = |group: &Value| group["rules"].as_array().cloned().unwrap_or_default();
    let all: Vec<Value> = groups.iter().flat_map(of).collect();
    ensure!(all.len() == file.groups.iter().map(|group| group.rules.len()).sum::<usize>(), "{} rules", all.len());
    for rule in &all {
        ensure!(rule["health"] == "ok", "{rule}");
        let alerts = rule["alerts"].as_array().cloned().unwrap_or_default();
        let silent = rule["name"].as_str().is_some_and(|name| SILENT.contains(&name));
        if rule["type"] == "alerting" && !silent && alerts.is_empty() {
            bail!("no alert of {rule}");
        }
        for alert in alerts {
            let summary = alert["annotations"]["summary"].as_str().unwrap_or_default();
            ensure!(!summary.is_empty() && !summary.contains(['<', '{']), "{alert}");
        }
    }
    Ok(())
}
