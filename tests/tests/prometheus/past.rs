//! `stoker report --from-prometheus` against a real Prometheus: two days of the articles' 20 H100 at 18 %, beside another cluster.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use stoker_tests::prometheus::{Prometheus, promtool};
use tempfile::TempDir;

const NOW: &str = "2026-11-01T12:00:00Z";
const DAY: i64 = 86_400;
/// From then until then nothing was scraped, in seconds before the end: two hours.
const GAP: std::ops::Range<i64> = DAY - 7_200..DAY;

/// The exposition of a cluster over two days, a sample a minute: one series after the other.
struct Text {
    text: String,
    end: i64,
}

impl Text {
    /// A series of a metric, where it has a value so many seconds before the end.
    fn series(&mut self, series: &str, value: impl Fn(i64) -> Option<f64>) {
        for ago in (0..2 * DAY / 60).rev().map(|minute| minute * 60 + 30).filter(|ago| !GAP.contains(ago)) {
            if let Some(value) = value(ago) {
                writeln!(self.text, "{series} {value} {}", self.end - ago).unwrap();
            }
        }
    }
}

/// Node 0 to 6 have a pod each, from its own minute on; node 7 had one that has ended, and that is not deleted yet.
fn blocks(end: i64) -> String {
    let mut all = Text { text: String::new(), end };
    let cluster = "cluster=\"prod\"";
    let always = |value: f64| move |_: i64| Some(value);
    for n in 0..20 {
        let node = format!("node=\"ip-10-0-0-{n}.ec2.internal\"");
        // Two replicas of kube-state-metrics tell the same.
        for replica in 0..2 {
            let of = format!("{node},{cluster},instance=\"ksm-{replica}\"");
            all.series(&format!("kube_node_info{{{of},provider_id=\"aws:///us-east-1a/i-{n}\"}}"), always(1.0));
            all.series(&format!("kube_node_status_capacity{{{of},resource=\"nvidia_com_gpu\",unit=\"integer\"}}"), always(1.0));
            let labels = "label_node_kubernetes_io_instance_type=\"p5.4xlarge\",label_topology_kubernetes_io_region=\"us-east-1\",\
                          label_topology_kubernetes_io_zone=\"us-east-1a\",label_eks_amazonaws_com_capacity_type=\"ON_DEMAND\"";
            all.series(&format!("kube_node_labels{{{of},{labels}}}"), always(1.0));
        }
        // 3.6 of 20 GPUs: 6 × 51 % and 54 %. Time-slicing copies the level to each pod. The exporter names the host without its domain.
        let level = [54.0, 51.0, 51.0, 51.0, 51.0, 51.0, 51.0].get(n).copied().unwrap_or(0.0);
        for pod in ["a", "b"] {
            let of = format!("gpu=\"0\",UUID=\"GPU-{n}\",Hostname=\"ip-10-0-0-{n}\",{cluster},pod=\"{pod}\"");
            all.series(&format!("DCGM_FI_DEV_GPU_UTIL{{{of}}}"), always(level));
        }
    }
    for n in 0..8 {
        let pod = format!("namespace=\"ml\",pod=\"serve-{n}\",uid=\"u{n}\",{cluster}");
        let node = format!("container=\"vllm\",node=\"ip-10-0-0-{n}.ec2.internal\"");
        let requests = [("nvidia_com_gpu", 1.0), ("cpu", 8.0), ("memory", 68_719_476_736.0)];
        for (resource, value) in requests {
            all.series(
                &format!("kube_pod_container_resource_requests{{{pod},{node},resource=\"{resource}\",unit=\"integer\"}}"),
                always(value),
            );
        }
        let phase = |phase: &str| format!("kube_pod_status_phase{{{pod},phase=\"{phase}\"}}");
        let runs = f64::from(u8::from(n < 7));
        all.series(&phase("Running"), always(runs));
        all.series(&phase("Succeeded"), always(1.0 - runs));
        all.series(&phase("Pending"), always(0.0));
    }
    // Another cluster in the same Prometheus, of which less is known.
    for n in 0..5 {
        let of = format!("node=\"other-{n}\",cluster=\"other\"");
        all.series(&format!("kube_node_info{{{of}}}"), always(1.0));
        all.series(&format!("kube_node_status_allocatable{{{of},resource=\"nvidia_com_gpu\",unit=\"integer\"}}"), always(8.0));
    }
    all.text + "# EOF\n"
}

/// Runs the report; its exit code, output and what it said.
async fn report(url: &str, args: &[&str]) -> (Option<i32>, Value, String) {
    let prices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../provider/tests/golden/input/h100");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shipped-stoker"));
    command.args(["report", "--from-prometheus", url, "--days", "2", "-o", "json", "--prices-dir"]).arg(prices).args(args);
    command.env_clear().env("STOKER_NOW", NOW);
    let ran = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    (ran.status.code(), serde_json::from_slice(&ran.stdout).unwrap_or_default(), err)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus: apt-get install --no-install-recommends prometheus"]
async fn a_cluster_without_stoker_is_reported_and_played() {
    stoker_service::listener::install_crypto();
    let dir = TempDir::new().unwrap();
    let end = NOW.parse::<jiff::Timestamp>().unwrap().as_second();
    std::fs::write(dir.path().join("earlier"), blocks(end)).unwrap();
    promtool(&["tsdb", "create-blocks-from", "openmetrics", "earlier", "data"], dir.path()).await.unwrap();
    let prometheus = Prometheus::start(dir, "{}").await.unwrap();

    let (code, told, err) = report(&prometheus.url, &["--match", "cluster=prod"]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "{told}");
    // Two days less the two hours of the gap, of which Prometheus fills five minutes, as it looks back that far.
    let known = told["knownSeconds"].as_i64().unwrap();
    assert!((2 * DAY - 7_200..=2 * DAY - 7_200 + 360).contains(&known), "{known}");
    let total = &told["total"];
    let of = |name: &str| total[name].as_i64().unwrap();
    assert_eq!((of("nodeSeconds"), of("gpuSeconds"), of("heldGpuSeconds")), (20 * known, 20 * known, 7 * known));
    // Of each node whole seconds count.
    let worked = 20 * known * 18 / 100;
    assert!(of("readGpuSeconds") == 20 * known && (worked - 20..=worked).contains(&of("workedGpuSeconds")), "{total}");
    // 20 × $6.88 × 730 h, and 82 % of it.
    let month = |name: &str| total[name]["microUsd"].as_i64().unwrap();
    assert_eq!((month("costPerMonth"), month("wastePerMonth")), (100_448_000_000, 82_367_360_000));
    let after = &told["beforeAfter"]["policies"][0];
    assert_eq!(
        (&after["nodes"], &after["mostNodes"], &after["usdPerMonth"]),
        (&json!(7.0), &json!(7), &json!(35_156.8)),
        "{after}"
    );
    let saved = &told["beforeAfter"]["baselines"][0]["saved"][0];
    assert_eq!((&saved["usdPerMonth"], &saved["percent"]), (&json!(65_291.2), &json!(65.0)), "{saved}");
    assert_eq!((&told["pods"], &told["byType"][0]["gpuModel"]), (&json!(7), &json!("H100")));

    let (code, told, err) = report(&prometheus.url, &["--match", "cluster=other"]).await;
    assert_eq!((code, err.as_str(), &told["total"]["cost"]), (Some(4), "", &Value::Null), "{told}");
    assert_eq!((&told["nodes"]["average"], &told["total"]["workedGpuSeconds"]), (&json!(5.0), &Value::Null));
    let notes = told["notes"].to_string();
    for missing in ["kube_node_labels", "provider_id", "kube_pod_container_resource_requests", "DCGM_FI_DEV_GPU_UTIL"] {
        assert!(notes.contains(missing), "{missing}: {notes}");
    }

    let (code, _, err) = report(&prometheus.url, &["--match", "cluster=none"]).await;
    assert!(code == Some(1) && err.contains("no series of kube-state-metrics"), "{code:?} {err}");
    prometheus.stop().await.unwrap();
}
