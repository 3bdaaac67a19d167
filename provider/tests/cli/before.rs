//! `stoker report --from-prometheus`, with a Prometheus that answers of a made-up cluster: the articles' 20 H100 at 18 %.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::binary::{Ran, golden, stoker};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const NODES: i64 = 20;
/// Pods that run all the time, and jobs that run from 9 to 17 each day.
const SERVING: i64 = 4;
const JOBS: i64 = 9;

/// What the cluster of a test lacks.
#[expect(clippy::struct_excessive_bools, reason = "one for each kind of series")]
#[derive(Debug, Clone, Copy, Default)]
struct Lacks {
    metrics: bool,
    labels: bool,
    readings: bool,
    pods: bool,
    /// Names of pods are those of kube-state-metrics itself.
    honour: bool,
    /// Room for answers with more points than these, where it has any limit of its own.
    points: Option<i64>,
    /// Everything before this moment.
    before: i64,
    /// Everything from 12:00 to 18:00 of one day.
    gap: Option<i64>,
}

/// Seconds of the day.
const fn of_day(at: i64) -> i64 {
    at.rem_euclid(DAY)
}

const fn works(at: i64) -> bool {
    9 * HOUR <= of_day(at) && of_day(at) < 17 * HOUR
}

/// The value at a moment, and whether something runs then.
type ValueAt = Box<dyn Fn(i64) -> Option<i64>>;
type RunsAt = Box<dyn Fn(i64) -> bool>;

/// The series of a query: labels, and the value at a moment.
type Series = (Value, ValueAt);

fn always(labels: Value, value: i64) -> Series {
    (labels, Box::new(move |_| Some(value)))
}

/// The pods: name, its node, and when it runs.
fn pods() -> Vec<(Value, RunsAt)> {
    let key = |name: String, uid: String| json!({ "namespace": "ml", "pod": name, "uid": uid });
    let serving = (0..SERVING).map(|n| {
        let mut labels = key(format!("serve-{n}"), format!("s{n}"));
        labels["node"] = json!(format!("gpu-{n}"));
        (labels, Box::new(|_| true) as RunsAt)
    });
    // Another pod each day.
    let jobs = (0..JOBS).flat_map(|n| {
        (20_740..20_760).map(move |day| {
            let mut labels = key(format!("train-{day}-{n}"), format!("{day}{n}"));
            labels["node"] = json!(format!("gpu-{}", SERVING + n));
            (labels, Box::new(move |at: i64| at.div_euclid(DAY) == day && works(at)) as RunsAt)
        })
    });
    serving.chain(jobs).collect()
}

fn series(query: &str, lacks: Lacks) -> Vec<Series> {
    let is = |start: &str| query.starts_with(start);
    if query.contains("exported_pod") {
        return if lacks.honour { vec![always(json!({}), 13)] } else { Vec::new() };
    }
    let of_nodes = |more: fn(i64) -> Value| -> Vec<Series> { (0..NODES).map(|n| always(more(n), 1)).collect() };
    match query {
        _ if lacks.metrics && !query.contains("DCGM") || is("count(max by (node) (kube_node_status_capacity{resource=~") => Vec::new(),
        _ if is("count(kube_node_info)") => vec![always(json!({}), NODES)],
        _ if is("count(max by (node)") => vec![always(json!({}), NODES)],
        _ if is("count(sum by") => vec![always(json!({}), SERVING + JOBS)],
        _ if is("max by (node) (") => of_nodes(|n| json!({ "node": format!("gpu-{n}") })),
        _ if query.contains("provider_id") => of_nodes(|n| {
            json!({ "node": format!("gpu-{n}"), "provider_id": format!("aws:///us-east-1a/i-{n}") })
        }),
        _ if is("max by (node, label") && !lacks.labels => of_nodes(|n| {
            json!({
                "node": format!("gpu-{n}"),
                "label_node_kubernetes_io_instance_type": "p5.4xlarge",
                "label_topology_kubernetes_io_region": "us-east-1",
                "label_topology_kubernetes_io_zone": "us-east-1a",
                "label_eks_amazonaws_com_capacity_type": "ON_DEMAND",
            })
        }),
        _ if lacks.pods => Vec::new(),
        _ if is("sum by (namespace, pod, uid, node)") => {
            pods().into_iter().map(|(labels, runs)| (labels, Box::new(move |at| runs(at).then_some(1_i64)) as _)).collect()
        }
        _ if is("sum by (namespace, pod, uid, resource)") => {
            let sizes = pods().into_iter().flat_map(|(labels, runs)| {
                let runs: Arc<dyn Fn(i64) -> bool> = Arc::from(runs);
                [("cpu", 8_i64), ("memory", 64 << 30)].map(|(resource, value)| {
                    let (mut labels, runs) = (labels.clone(), Arc::clone(&runs));
                    labels["resource"] = json!(resource);
                    (labels, Box::new(move |at| runs(at).then_some(value)) as ValueAt)
                })
            });
            sizes.collect()
        }
        // 4 × 45 % and, for a third of the day, 9 × 60 %: 3.6 of 20 GPUs.
        _ if query.contains("DCGM") && !lacks.readings => (0..NODES)
            .flat_map(|n| {
                let busy = move |at: i64| -> i64 { match n {
                    ..SERVING => 450,
                    _ if n < SERVING + JOBS && works(at) => 600,
                    _ => 0,
                } };
                let labels = |figure: &str| json!({ "Hostname": format!("gpu-{n}"), "instance": "10.0.0.1:9400", "stoker_figure": figure });
                [(labels("busy"), Box::new(move |at| Some(busy(at))) as _), always(labels("gpus"), 1)]
            })
            .collect(),
        _ => Vec::new(),
    }
}

async fn answer(State(lacks): State<Lacks>, form: String) -> (StatusCode, Json<Value>) {
    let asked: BTreeMap<String, String> = form_urlencoded::parse(form.as_bytes()).into_owned().collect();
    let number = |name: &str| asked[name].parse::<i64>().unwrap();
    let (start, end, step) = (number("start"), number("end"), number("step"));
    assert!((end - start) / step < 11_000, "Prometheus would refuse that: {asked:?}");
    if lacks.points.is_some_and(|most| (end - start) / step > most) {
        let error = "query processing would load too many samples into memory in query execution";
        let refused = json!({ "status": "error", "errorType": "execution", "error": error });
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(refused));
    }
    let is_there = |at: &i64| {
        *at >= lacks.before
            && !lacks.gap.is_some_and(|day| at.div_euclid(DAY) == day && (12 * HOUR..18 * HOUR).contains(&of_day(*at)))
    };
    let times: Vec<i64> = (start..=end).step_by(usize::try_from(step).unwrap()).filter(is_there).collect();
    let result = series(&asked["query"], lacks).into_iter().filter_map(|(metric, value)| {
        let values: Vec<Value> = times.iter().filter_map(|at| Some(json!([at, value(*at)?.to_string()]))).collect();
        (!values.is_empty()).then(|| json!({ "metric": metric, "values": values }))
    });
    let data = json!({ "resultType": "matrix", "result": result.collect::<Vec<_>>() });
    (StatusCode::OK, Json(json!({ "status": "success", "data": data })))
}

/// Runs the command with a Prometheus whose cluster lacks something; 1 November 2026 is day 20,758.
fn report(lacks: Lacks, args: &[&str]) -> Ran {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/api/v1/query_range", post(answer)).with_state(lacks);
    let _server = runtime.spawn(async move { axum::serve(listener, app).await });
    stoker(&[&["report", "--from-prometheus", &url, "--prices-dir", "h100"], args].concat())
}

fn value(lacks: Lacks, args: &[&str]) -> (Ran, Value) {
    let ran = report(lacks, &[&["-o", "json"], args].concat());
    let value = serde_json::from_str(&ran.out).unwrap_or_default();
    (ran, value)
}

fn micros(of: &Value) -> i64 {
    of["microUsd"].as_i64().unwrap()
}

/// 20 nodes × $6.88 × 730 h = $100,448 a month, of which 82 % are wasted: $82,367.36. What ran needs seven on average: 4 + 9 × 8 h / 24 h.
///
/// The articles have the seven at 72 % and $35K. Seven H100 are $35,156.80, and the work of 20 at 18 % keeps seven busy for 51.4 % of the
/// time: 3.6 / 7. Stoker's are a little more than seven, as nodes boot and wait before they go.
#[test]
fn twenty_h100_at_18_percent_become_seven() {
    let ran = report(Lacks::default(), &[]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 120), "{}", ran.out);
    golden("report-before", &ran.out);
    let (_, told) = value(Lacks::default(), &[]);
    let total = &told["total"];
    assert_eq!((&told["nodes"]["average"], &told["nodes"]["most"]), (&json!(20.0), &json!(20)));
    assert_eq!((micros(&total["costPerMonth"]), micros(&total["wastePerMonth"])), (100_448_000_000, 82_367_360_000));
    let gpu_seconds = 20 * 14 * DAY;
    assert_eq!((&total["gpuSeconds"], &total["heldGpuSeconds"]), (&json!(gpu_seconds), &json!(gpu_seconds * 35 / 100)));
    assert_eq!(total["workedGpuSeconds"], json!(gpu_seconds * 18 / 100));
    let played = &told["beforeAfter"];
    let after = &played["policies"][0];
    let month = after["usdPerMonth"].as_f64().unwrap();
    assert!((35_156.8..38_000.0).contains(&month), "{after}");
    assert!((7.0..7.5).contains(&after["nodes"].as_f64().unwrap()) && after["mostNodes"] == json!(13), "{after}");
    let names: Vec<&str> = played["baselines"].as_array().unwrap().iter().map(|of| of["baseline"].as_str().unwrap()).collect();
    assert_eq!(names, ["what ran", "static fleet of the peak", "Cluster Autoscaler", "Karpenter"]);
    let saved = &played["baselines"][0]["saved"][0];
    assert!((saved["usdPerMonth"].as_f64().unwrap() - (100_448.0 - month)).abs() < 1.0, "{saved}");
    // Thirteen hold the peak: 13 × $6.88 × 14 × 24 h.
    assert_eq!(played["baselines"][1]["paidUsd"], json!(30_051.84));
}

#[test]
fn what_is_not_known_is_said_and_not_filled() {
    let end = "2026-11-01T12:00:00Z".parse::<Timestamp>().unwrap().as_second();
    // Six days of fourteen are kept, and six hours of one are missing.
    let lacks = Lacks { before: end - 6 * DAY, gap: Some(20_755), ..Lacks::default() };
    let (ran, told) = value(lacks, &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!((&told["seconds"], &told["knownSeconds"]), (&json!(14 * DAY), &json!(6 * DAY - 6 * HOUR)));
    assert_eq!(told["knownSince"], "2026-10-26T12:00:00Z");
    assert_eq!(micros(&told["total"]["costPerMonth"]), 100_448_000_000, "a month is like the time that is known");
    assert_eq!(told["beforeAfter"]["seconds"], json!(518_400.0 - 21_600.0));
    let notes = told["notes"].to_string();
    assert!(
        notes.contains("nothing of the time before 2026-10-26T12:00:00Z") && notes.contains("1 time without samples"),
        "{notes}"
    );

    // Without readings nobody knows what was wasted.
    let (ran, told) = value(Lacks { readings: true, ..Lacks::default() }, &["--days", "2"]);
    assert_eq!((ran.code, &told["total"]["waste"], &told["total"]["workedGpuSeconds"]), (0, &Value::Null, &Value::Null));
    assert!(told["notes"].to_string().contains("dcgm-exporter"), "{}", told["notes"]);

    // Without labels nobody knows what it cost, nor what policy could run it.
    let lacks = Lacks { labels: true, ..Lacks::default() };
    let (ran, told) = value(lacks, &["--days", "2"]);
    assert_eq!((ran.code, &told["total"]["cost"], &told["beforeAfter"]), (4, &Value::Null, &Value::Null), "{ran:?}");
    assert!(told["notes"].to_string().contains("--metric-labels-allowlist=nodes=["), "{}", told["notes"]);
    golden("report-before-unknown", &report(lacks, &["--days", "2"]).out);

    // Nobody knows of any pod.
    let (ran, told) = value(Lacks { pods: true, ..Lacks::default() }, &["--days", "2"]);
    assert_eq!((ran.code, &told["total"]["heldGpuSeconds"], &told["pods"]), (4, &Value::Null, &json!(0)), "{ran:?}");
}

#[test]
fn a_prometheus_that_can_answer_little_at_once_is_asked_more_often() {
    let two_days = |lacks| report(lacks, &["--days", "2"]).out;
    assert_eq!(two_days(Lacks { points: Some(700), ..Lacks::default() }), two_days(Lacks::default()));
    let never = report(Lacks { points: Some(-1), ..Lacks::default() }, &["--days", "2"]);
    assert!(never.code == 1 && never.err.contains("too many samples"), "{never:?}");
}

#[test]
fn a_prometheus_that_cannot_tell_says_what_to_do() {
    let mut told = Vec::new();
    let slips: [(i32, Lacks, &[&str]); 5] = [
        (1, Lacks { metrics: true, ..Lacks::default() }, &[]),
        (1, Lacks { honour: true, ..Lacks::default() }, &[]),
        (2, Lacks::default(), &["-o", "html"]),
        (2, Lacks::default(), &["--match", "a b=c"]),
        (2, Lacks::default(), &["--month", "2026-10"]),
    ];
    for (code, lacks, args) in slips {
        let ran = report(lacks, args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?} {ran:?}");
        told.push(format!("$ stoker report --from-prometheus URL {}\n{}", args.join(" "), ran.err));
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = stoker(&["report", "--from-prometheus", &format!("http://user:secret@{nobody}")]);
    assert!(ran.code == 1 && ran.err.contains("Prometheus cannot be reached") && !ran.err.contains("secret"), "{ran:?}");
    let ran = stoker(&["report", "--from-prometheus", "prometheus:9090"]);
    assert!(ran.code == 1 && ran.err.contains("write it like http://"), "{ran:?}");
    golden("report-before-slips", &told.join("\n"));
}
