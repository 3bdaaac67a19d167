//! `stoker report`, over a journal that followed a node across midnight.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stoker_advice::rollup::{GpuPod, NodeContext, Owner, PodLabels, Rollup};
use stoker_advice::spend::Tariff;
use stoker_core::base::ids::{GpuUuid, NodeName};
use stoker_core::facts::reading::{DriverState, GpuReading, Measured, NodeReading, Permille, Source};
use stoker_core::facts::snapshot::{ClusterFacts, Cordon, Hold, NodeFacts, Snapshot};
use stoker_core::facts::supply::{Instance, InstanceState, LaunchOutcome};
use stoker_journal::{PodChanges, PodEnd, RecordedPod};
use stoker_service::controllers::kept_days::keep;

use crate::binary::{Ran, folder, golden, stoker};
use crate::journal::{Passes, inventory, launches, made};

fn at(text: &str) -> Timestamp {
    format!("2026-{text}Z").parse().unwrap()
}

/// A cluster in which the machines are Ready since `ready`.
fn joined(instances: &[Instance], ready: Timestamp, now: Timestamp) -> Snapshot {
    let node = |instance: &Instance| NodeFacts {
        name: instance.node_name.clone(),
        provider_id: Some(instance.provider_id.clone()),
        group: None,
        created_at: ready,
        ready_since: Some(ready),
        gpu_pods: ["vision/train-0".to_owned()].into(),
        scale_down_disabled: Hold::None,
        cordon: Cordon::None,
        allocatable: None,
        shown: None,
    };
    let nodes = instances.iter().map(|instance| (instance.node_name.clone(), Arc::new(node(instance)))).collect();
    Snapshot { cluster: Some(Arc::new(ClusterFacts { nodes })), ..inventory(instances, now) }
}

fn pod(namespace: &str, labels: &str, node: &str, since: Timestamp, until: Timestamp) -> RecordedPod {
    RecordedPod {
        uid: format!("uid-{namespace}").into(),
        name: format!("{namespace}/train-0").into(),
        owner_kind: Some("Job".into()),
        owner: Owner { namespace: namespace.into(), name: "train".into() },
        labels: PodLabels::from_text(labels),
        pool: Some("serving".to_owned()),
        models: Vec::new(),
        gpus: Some(1),
        slices: std::iter::empty().collect(),
        milli_cpu: 1_000,
        memory_mib: 1_024,
        node: node.to_owned(),
        created: since,
        bound: since,
        end: Some(PodEnd { at: until, is_seen: true }),
    }
}

/// Readings of the node's GPU from 20:06 to 02:00: 25 % while `vision` holds it, until 01:06, and nothing after that.
fn readings(node: &NodeName) -> Rollup {
    let mut rollup = Rollup::default();
    let owner = Owner { namespace: "vision".into(), name: "train".into() };
    let pod = GpuPod {
        name: "vision/train-0".into(),
        uid: None,
        owner,
        labels: PodLabels::default(),
        units: Some(1),
        started_after: None,
    };
    let times =
        [(at("11-01T20:06:00"), at("11-02T01:06:00"), vec![pod], 250), (at("11-02T01:06:00"), at("11-02T02:00:00"), vec![], 0)];
    for (since, until, pods, level) in times {
        rollup.follow([(node.clone(), Arc::new(NodeContext { bought: None, pods: Some(pods) }))].into());
        let mut now = since;
        while now <= until {
            let utilization = Measured::Known(Permille::new(level).unwrap());
            let uuid = GpuUuid::new("GPU-8f1c2b6e-0000-4000-8000-000000000000").unwrap();
            let reading = NodeReading {
                arrived: now,
                source: Source::Probe,
                driver: DriverState::Ready,
                counted: Measured::Known(1),
                gpus: BTreeMap::from([(uuid, GpuReading { utilization, ..GpuReading::default() })]),
                gates: BTreeMap::new(),
            };
            rollup.take(node, now, &reading);
            now += SignedDuration::from_mins(1);
        }
    }
    rollup
}

/// One node of g6.xlarge, ordered at 20:00 on 1 November, made at 20:01, Ready at 20:06, there until 04:00, when somebody last looked. A
/// pod of `vision` holds it from 20:06 to 01:06, and one of `=SUM(A1)` from 02:06 to 03:06.
async fn follow_a_node(state: &Path) {
    let mut passes = Passes::begin(state).await;
    let order = at("11-01T20:00:00");
    passes.order("serving.g6-xlarge.us-east-1a", 1, order).await;
    let asked = passes.pass(inventory(&[], order), order).await;
    assert_eq!(launches(&asked).len(), 1);
    let booting = made(&asked, at("11-01T20:01:00"), InstanceState::Pending);
    let answered = booting.iter().map(|instance| (instance.key.clone(), LaunchOutcome::Launched(instance.clone()))).collect();
    let now = at("11-01T20:01:00");
    passes.pass(Snapshot { outcomes: answered, ..inventory(&booting, now) }, now).await;
    let running = made(&asked, at("11-01T20:01:00"), InstanceState::Running);
    let ready = at("11-01T20:06:00");
    let mut now = ready;
    while now <= at("11-02T04:00:00") {
        passes.pass(joined(&running, ready, now), now).await;
        now += SignedDuration::from_mins(6);
    }
    let node = running[0].node_name.as_str();
    let came = vec![
        pod("vision", "team=red", node, ready, at("11-02T01:06:00")),
        pod("=SUM(A1)", "team=<script>alert(1)</script>", node, at("11-02T02:06:00"), at("11-02T03:06:00")),
    ];
    let changes = PodChanges { came, ended: BTreeMap::new() };
    passes.journal.pods().write((at("11-01T19:00:00"), at("11-02T04:00:00")), &changes).await.unwrap();
    passes.journal.readings().write(&readings(&running[0].node_name).flush()).await.unwrap();
    passes.journal.close().await;
}

fn number(value: &Value, path: &str) -> i64 {
    value.pointer(path).and_then(Value::as_i64).unwrap()
}

/// The node is there for 7 h 59 min = 28,740 s: 5 min booting, 6 h held, and the rest, 1 h 54 min, idle. On demand it costs $0.8048 an hour
/// at list: × 28,740 / 3,600 = $6.424987. Readings tell of 5 h 54 min, $4.748320: 3/4 of 5 h and all of 54 min were wasted, 4.65 h or
/// $3.742320.
#[test]
fn a_report_tells_what_was_spent_and_on_whom() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(follow_a_node(state.path()));
    let report = |args: &[&str]| -> Ran {
        let base = ["report", "--state-dir", state.path().to_str().unwrap(), "--prices-dir", "prices"];
        stoker(&[&base[..], &["--now", "2026-11-02T04:00:00Z"], args].concat())
    };
    let ranked = stoker(&[
        "advise",
        "--ranked",
        "--days",
        "7",
        "--state-dir",
        state.path().to_str().unwrap(),
        "--prices-dir",
        "prices",
        "--now",
        "2026-11-02T04:00:00Z",
    ]);
    golden("advise-ranked-spend", &ranked.out);

    let table = report(&["--days", "2"]);
    assert_eq!(table.code, 0, "{table:?}");
    assert!(table.out.lines().all(|line| line.chars().count() <= 120), "{}", table.out);
    golden("report", &table.out);

    let json = report(&["--month", "2026-11", "-o", "json"]).out;
    golden("report-json", &json);
    let all: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((number(&all, "/total/nodeSeconds"), number(&all, "/total/list/microUsd")), (28_740, 6_424_987));
    assert_eq!((number(&all, "/total/read/microUsd"), number(&all, "/total/waste/microUsd")), (4_748_320, 3_742_320));
    let state = |word: &str| {
        let rows = all["byState"].as_array().unwrap();
        rows.iter().find(|row| row["state"] == word).map(|row| row["nodeSeconds"].as_i64().unwrap())
    };
    assert_eq!((state("booting"), state("held"), state("idle")), (Some(300), Some(6 * 3_600), Some(6_840)));
    assert_eq!(number(&all, "/lives/orderToReady/medianSeconds"), 360);

    // By whatever it is summed, the sum is the same.
    for by in ["pool", "namespace", "workload", "label=team", "model", "capacity", "zone"] {
        for idle in ["separate", "spread"] {
            let report: Value =
                serde_json::from_str(&report(&["--month", "2026-11", "--by", by, "--idle", idle, "-o", "json"]).out).unwrap();
            assert_eq!(report["total"], all["total"], "{by} {idle}");
            let lines = report["lines"].as_array().unwrap();
            for money in ["list", "contracted", "effective"] {
                let sum: i64 = lines.iter().map(|line| number(line, &format!("/{money}/microUsd"))).sum();
                assert_eq!(sum, number(&all, &format!("/total/{money}/microUsd")), "{by} {idle} {money}");
            }
        }
    }
    golden("report-namespace", &report(&["--days", "2", "--by", "namespace", "--idle", "spread"]).out);

    // What a spreadsheet would take for a formula is none.
    let csv = report(&["--days", "2", "--by", "namespace", "-o", "csv"]).out;
    assert!(csv.contains("\n'=SUM(A1),"), "{csv}");
    golden("report-csv", &csv);
    let focus = report(&["--days", "2", "--focus"]).out;
    assert!(!focus.contains(",=") && focus.lines().count() > 5, "{focus}");
    golden("report-focus", &focus);

    // What commitments pay is a row of its own: an hour costs $0.8048, and one of two reserved nodes pays for all of it at $0.50; a day
    // later $0.25 of a plan at 62.5 % of the price pay for $0.40 of it, and 49.7 % of the time.
    let paid = report(&["--days", "2", "--focus", "--policy", "report-commitments.yaml"]).out;
    let mut reader = csv::Reader::from_reader(paid.as_bytes());
    let column = reader.headers().unwrap().iter().position(|name| name == "CommitmentDiscountStatus").unwrap();
    assert_eq!(reader.records().filter(|row| &row.as_ref().unwrap()[column] == "Used").count(), 5, "{paid}");
    golden("report-focus-commitments", &paid);

    // A page stands alone, and a label is text in it whatever it is.
    let page = report(&["--days", "2", "--by", "label=team", "-o", "html"]).out;
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !page.contains("<script"), "{page}");
    let asks = ["src=", "href=", "url(", "@import", "<link", "<iframe", "<img"];
    assert!(asks.iter().all(|word| !page.contains(word)), "{page}");
    // The one address is the name of the standard that pictures are in, if anything.
    assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("://"), "{page}");
    for (tag, number) in [("<svg", 2), ("</svg>", 2), ("<table>", 3), ("<caption>", 3), ("role=\"img\"", 2), ("<title", 3)] {
        assert_eq!(page.matches(tag).count(), number, "{tag} in {page}");
    }
    golden("report-html", &page);

    // The pods that were there, played under the policy, under another one and without Stoker.
    let played = report(&["--days", "2", "--before-after", "--policy-before", "simulate-spot.yaml"]);
    assert_eq!((played.code, played.err.as_str()), (0, ""), "{played:?}");
    assert!(played.out.lines().all(|line| line.chars().count() <= 120), "{}", played.out);
    golden("report-before-after", &played.out);
    let page = report(&["--days", "2", "--before-after", "-o", "html"]).out;
    assert!(page.matches("<table>").count() == 5 && page.contains("Karpenter") && !page.contains("<script"), "{page}");
    let told: Value = serde_json::from_str(&report(&["--days", "2", "--before-after", "-o", "json"]).out).unwrap();
    assert_eq!(told["total"], all["total"]);
    assert_eq!(told["beforeAfter"]["baselines"].as_array().unwrap().len(), 3);
    assert_eq!(report(&["--days", "2", "--before-after", "-o", "csv"]).code, 2);

    // Of October nobody knows anything.
    let unknown = report(&["--month", "2026-10"]);
    assert_eq!(unknown.code, 4, "{unknown:?}");
    let page = report(&["--month", "2026-10", "-o", "html"]).out;
    assert!(page.contains("does not know what nodes did") && !page.contains("<svg"), "{page}");
    golden("report-unknown", &unknown.out);
    assert_eq!(report(&["--month", "2026-12"]).code, 2);
}

/// The node ran for 7.983333 h, and Stoker calculated $6.424987. The bill has 8 h: 16,667 millionths of an hour more are $0.013414. At its
/// list price they are $6.80, which explains $6.80 - $6.424987 - $0.013414 = $0.361599; a discount of 10 % takes $0.68. Data transfer of
/// $0.10 and a credit of $1 leave $5.22. Beside it: a machine of others, $98.32; a disk, $0.50; $0.20 of a plan that nothing used;
/// -$0.12 of corrections; and of $30 of taxes for November, 28 of 720 hours, $1.166667. In all $105.286667, and on the invoice $12 more
/// for the plan and $0.20 less.
#[test]
fn a_bill_is_compared_to_the_micro_dollar() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(follow_a_node(state.path()));
    let report = |args: &[&str]| -> Ran {
        let base = ["report", "--state-dir", state.path().to_str().unwrap(), "--prices-dir", "prices", "--days", "2"];
        stoker(&[&base[..], &["--now", "2026-11-02T04:00:00Z"], args].concat())
    };
    let table = report(&["--billed", "bill.csv"]);
    assert_eq!((table.code, table.err.as_str()), (0, ""), "{table:?}");
    assert!(table.out.lines().all(|line| line.chars().count() <= 120), "{}", table.out);
    golden("report-billed", &table.out);
    let json = report(&["--billed", "bill.csv", "-o", "json"]).out;
    golden("report-billed-json", &json);
    let all: Value = serde_json::from_str(&json).unwrap();
    let part = |of: &str, part: &str| all.pointer(&format!("{of}/parts/{part}/microUsd")).and_then(Value::as_i64);
    let node = "/machines/0";
    assert_eq!((part(node, "hours"), part(node, "listPrice")), (Some(13_414), Some(361_599)));
    assert_eq!(
        (part(node, "discounts"), part(node, "otherCharges"), part(node, "credits")),
        (Some(-680_000), Some(100_000), Some(-1_000_000))
    );
    assert_eq!((number(&all, "/machines/0/billed/microUsd"), part("/total", "taxes")), (5_220_000, Some(1_166_667)));
    assert_eq!(number(&all, "/total/billed/microUsd"), 105_286_667);
    assert_eq!(number(&all, "/total/invoiced/microUsd"), 117_086_667);
    let sum: i64 = all["total"]["parts"].as_object().unwrap().values().map(|part| number(part, "/microUsd")).sum();
    assert_eq!(number(&all, "/total/calculated/microUsd") + sum, 105_286_667);

    let csv = report(&["--billed", "bill.csv", "-o", "csv"]).out;
    assert!(csv.contains(",\"'=HYPERLINK("), "{csv}");
    golden("report-billed-csv", &csv);
    // The lines of the table add up to the total.
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let column = reader.headers().unwrap().iter().position(|name| name == "billedUsd").unwrap();
    let micros = |text: &str| text.replace('.', "").parse::<i64>().unwrap();
    assert_eq!(reader.records().map(|row| micros(&row.unwrap()[column])).sum::<i64>(), 105_286_667);

    // Packed, with a mark of its encoding and small names in its header, it is the same; and Stoker's own rows are a bill that differs in nothing.
    let packed = state.path().join("bill.csv.gz");
    let mut writer = flate2::write::GzEncoder::new(std::fs::File::create(&packed).unwrap(), flate2::Compression::fast());
    let bill = std::fs::read_to_string(folder().join("input/bill.csv")).unwrap();
    let (header, rows) = bill.split_once('\n').unwrap();
    write!(writer, "\u{feff}{}\r\n{rows}", header.to_lowercase()).unwrap();
    writer.finish().unwrap();
    assert_eq!(report(&["--billed", packed.to_str().unwrap(), "-o", "json"]).out, json);
    // When the day is over, as rows are for whole days.
    let over = |args: &[&str]| -> Ran {
        let base = ["report", "--state-dir", state.path().to_str().unwrap(), "--prices-dir", "prices", "--days", "2"];
        stoker(&[&base[..], &["--now", "2026-11-02T23:59:59Z", "--policy", "report-commitments.yaml"], args].concat())
    };
    let own = state.path().join("own.csv");
    let rows = over(&["--focus"]).out.replace("2026-11-03T00:00:00Z", "2026-11-02T23:59:59Z");
    std::fs::write(&own, rows).unwrap();
    let own: Value = serde_json::from_str(&over(&["--billed", own.to_str().unwrap(), "-o", "json"]).out).unwrap();
    assert_eq!(number(&own, "/total/difference/microUsd"), 0, "{own}");
    assert!(number(&own, "/unusedCommitments/billed/microUsd") > 0, "{own}");

    // There is no html of it.
    let html = report(&["--billed", "bill.csv", "-o", "html"]);
    assert_eq!(html.code, 2, "{html:?}");
}

/// Every fault at once, with its line and its cure, and nothing on standard output.
#[test]
fn a_bill_that_cannot_be_compared_is_refused_by_line() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { Passes::begin(state.path()).await.journal.close().await });
    let file = state.path().join("bill.csv");
    let path = file.to_str().unwrap();
    let said = |bill: &[u8]| -> String {
        std::fs::write(&file, bill).unwrap();
        let base = ["report", "--state-dir", state.path().to_str().unwrap(), "--prices-dir", "prices", "--days", "2"];
        let policy = ["--policy", "report-commitments.yaml"];
        let ran = stoker(&[&base[..], &policy, &["--now", "2026-11-02T04:00:00Z", "--billed", path]].concat());
        assert!(ran.code == 3 && ran.out.is_empty(), "{ran:?}");
        ran.err.replace(path, "bill.csv")
    };
    let head = "BilledCost,EffectiveCost,ListCost,ContractedCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,\
                ResourceId\n";
    let (from, until) = ("2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z");
    let faults = said(
        format!(
            "{head}1,1,1,1,EUR,Usage,{from},{until},i-0\n1,1,1,1,EUR,Usage,{from},{until},i-0\n\
             \"1,5\",,abc,1,USD,Fee,yesterday,{until},i-0\n1,1,1,1,USD,Usage,{until},{from},i-0\n{head}1,1,1,1,USD,Usage,{fr}",
            fr = "2026-11"
        )
        .as_bytes(),
    );
    golden("report-billed-faults", &faults);
    // What the file is not is said by its first line.
    let mut others = String::new();
    for (name, bill) in [
        ("empty", &b""[..]),
        ("parquet", b"PAR1\x15\x04"),
        ("zip", b"PK\x03\x04"),
        ("utf-16", b"\xff\xfeB\0"),
        ("CUR", b"identity_line_item_id,line_item_unblended_cost\n"),
        ("FOCUS 0.5", b"BilledCost,ChargeType,ChargePeriodStart,ChargePeriodEnd,ResourceId,BillingCurrency\n"),
        ("columns", b"BilledCost,EffectiveCost,ListCost,BillingCurrency,ChargeCategory,ResourceId\n"),
        ("twice", b"billedCost,billedcost,EffectiveCost,ListCost,ContractedCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,ResourceId\n"),
        ("gzip cut short", b"\x1f\x8b\x08\0\0\0\0\0"),
        ("quote", &[head.as_bytes(), b"1,1,1,1,USD,Usage,2026-11-01T00:00:00Z,2026-11-02T00:00:00Z,\"i-0\n"].concat()),
    ] {
        others += name;
        others += ": ";
        others += &said(bill);
    }
    golden("report-billed-no-bills", &others);
    let base = ["report", "--state-dir", state.path().to_str().unwrap(), "--prices-dir", "prices"];
    let missing = stoker(&[&base[..], &["--policy", "report-commitments.yaml", "--billed", "no.csv"]].concat());
    assert!(missing.code == 3 && missing.err.contains("--billed no.csv"), "{missing:?}");
}

/// Days that are over are summed up, and tell the same when their spans and pods are forgotten; what became of nodes is not kept.
#[test]
fn days_outlive_their_spans_and_pods() {
    let state = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = |now: &str, args: &[&str]| -> Value {
        let base = ["report", "--state-dir", state.path().to_str().unwrap(), "--prices-dir", "prices", "-o", "json"];
        serde_json::from_str(&stoker(&[&base[..], &["--now", now], args].concat()).out).unwrap()
    };
    runtime.block_on(follow_a_node(state.path()));
    let month = ["--month", "2026-11", "--by", "namespace"];
    let with_spans = report("2026-12-01T00:00:00Z", &month);
    runtime.block_on(async {
        let passes = Passes::begin(state.path()).await;
        let (reader, days) = (passes.journal.reader(), passes.journal.days());
        let tariff =
            Tariff::new(Arc::clone(&passes.catalogue.policy), Arc::clone(&passes.price_tables.prices), at("11-03T00:00:00"));
        // The second day is not settled yet.
        keep(&reader, &days, &tariff, at("11-03T00:30:00")).await.unwrap();
        assert_eq!(reader.kept_days(0, 40_000).await.unwrap().len(), 1);
        keep(&reader, &days, &tariff, at("11-03T01:00:00")).await.unwrap();
        let kept = reader.kept_days(0, 40_000).await.unwrap();
        assert_eq!(kept.len(), 2);
        keep(&reader, &days, &tariff, at("11-04T01:00:00")).await.unwrap();
        assert_eq!(reader.kept_days(0, 40_000).await.unwrap(), kept);
        while passes.journal.prune(at("12-31T23:00:00"), SignedDuration::from_hours(24)).await.unwrap().more {}
        assert!(reader.spent(Timestamp::UNIX_EPOCH, at("11-02T00:00:00")).await.unwrap().pods.is_empty());
        passes.journal.close().await;
    });
    let kept = report("2027-02-01T00:00:00Z", &month);
    for same in ["total", "lines", "byState", "byCapacity", "byDay", "byMonth", "knownSeconds", "podsKnownSeconds"] {
        assert_eq!(kept[same], with_spans[same], "{same}");
    }
    let year = report("2027-02-01T00:00:00Z", &["--year", "2026"]);
    assert_eq!(year["total"], with_spans["total"]);
    let months = year["byMonth"].as_array().unwrap();
    assert_eq!((months.len(), months[10]["month"].as_str().unwrap()), (12, "2026-11"));
    assert_eq!(months[10]["effective"], with_spans["total"]["effective"]);
    assert_eq!(year["livesSince"], "2026-11-23T00:00:00Z");
    let focus = ["report", "--state-dir", state.path().to_str().unwrap(), "--prices-dir", "prices", "--focus"];
    let too_old = stoker(&[&focus[..], &["--now", "2027-02-01T00:00:00Z", "--year", "2026"]].concat());
    assert!(too_old.code == 2 && too_old.err.contains("70 days"), "{too_old:?}");
}
