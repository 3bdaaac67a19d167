//! The inputs to begin with, made of our own examples and messages. `tests/fuzz.sh --seeds` writes them anew.

use std::fs;
use std::path::Path;

use jiff::SignedDuration;
use k8s_pb::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption};
use stoker_proto::externalgrpc::{
    ExternalGrpcNode, NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest, NodeGroupForNodeRequest,
    NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest, PricingNodePriceRequest, PricingPodPriceRequest,
};
use stoker_proto::probe::{
    Driver, Event, FromProbe, Gate, Gpu, Interruption, Memory, Mig, MigDevice, Process, Processes, QuietAnswer, Round, Xid,
    driver, event, from_probe, gate, interruption,
};
use stoker_proto::{Bytes, Timestamp};
use stoker_tests::market;

use crate::targets::journal::TABLES;
use crate::targets::{probes, provider, service};

#[test]
#[ignore = "writes the seeds into the tree"]
fn seeds_are_written() {
    policies();
    tables();
    calls();
    options();
    streams();
    answers();
    objects();
    rows();
}

fn write(target: &str, name: &str, bytes: impl AsRef<[u8]>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("seed-{name}")), bytes).unwrap();
}

/// Parts as `targets::parts` reads them.
fn list(parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let each = parts.into_iter().flat_map(|part| {
        let length = u16::try_from(part.len()).unwrap().to_le_bytes();
        length.into_iter().chain(part)
    });
    each.collect()
}

fn policies() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/examples");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if text.contains("kind: Policy") {
            // Comments say nothing to a parser.
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let bare: String = lines.flat_map(|line| [line, "\n"]).collect();
            write("policy", path.file_name().unwrap().to_str().unwrap(), bare);
        }
    }
    let more = stoker_tests::policy::Pool {
        more: "  unhealthy: { maxUnavailable: 1 }\n  warmFloor: { nodes: 1 }\n  offHours: { schedule: '0 20 * * 1-5' }\n"
            .to_owned(),
        ..stoker_tests::policy::Pool::new("p")
    };
    write("policy", "small", stoker_tests::policy::policy(&[more]));
}

fn tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pricing/tables");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            let rows: String = text.lines().take(6).flat_map(|line| [line, "\n"]).collect();
            write("prices", &name, format!("== {name}\n{rows}"));
        }
    }
    let whole = crate::targets::prices::TABLES.map(|(name, text)| format!("== {name}\n{text}"));
    write("prices", "whole", whole.concat());
}

fn pod(name: &str, requests: &[(&str, &str)]) -> Bytes {
    let amounts = requests.iter().map(|(k, v)| ((*k).to_owned(), Quantity { string: Some((*v).to_owned()) })).collect();
    let resources = Some(ResourceRequirements { requests: amounts, ..Default::default() });
    let metadata = ObjectMeta { name: Some(name.to_owned()), namespace: Some("ml".to_owned()), ..Default::default() };
    let spec = Some(PodSpec { containers: vec![Container { resources, ..Default::default() }], ..Default::default() });
    Bytes::from(Pod { metadata: Some(metadata), spec, ..Default::default() }.encode_to_vec())
}

fn calls() {
    let call = |method: &str, message: Vec<u8>| {
        let number = provider::METHODS.iter().position(|known| *known == method).unwrap();
        let mut call = vec![u8::try_from(number).unwrap()];
        call.extend(message);
        call
    };
    let group = service::GROUPS[0].to_owned();
    let node = ExternalGrpcNode { name: "n".to_owned(), provider_id: format!("sim://{group}/1"), ..Default::default() };
    let times = (Some(Timestamp { seconds: 1_793_606_400, nanos: 0 }), Some(Timestamp { seconds: 1_793_610_000, nanos: 0 }));
    let example = ExternalGrpcNode { name: format!("template-node-for-{group}-1"), ..Default::default() };
    let node_price =
        PricingNodePriceRequest { node: Some(example), start_timestamp: times.0, end_timestamp: times.1, ..Default::default() };
    let pod_price = PricingPodPriceRequest {
        pod_bytes: pod("a", &[("cpu", "500m"), ("memory", "1.5Gi"), ("nvidia.com/gpu", "1")]),
        start_timestamp: times.0,
        end_timestamp: times.1,
        ..Default::default()
    };
    let increase = NodeGroupIncreaseSizeRequest { id: group.clone(), delta: 1 };
    let decrease = NodeGroupDecreaseTargetSizeRequest { id: group.clone(), delta: -1 };
    let delete = NodeGroupDeleteNodesRequest { id: group.clone(), nodes: vec![node.clone()] };
    let of_group = NodeGroupNodesRequest { id: group.clone() }.encode_to_vec();
    let owner = NodeGroupForNodeRequest { node: Some(node) };
    for empty in ["NodeGroups", "GPULabel", "GetAvailableGPUTypes", "Cleanup", "Refresh"] {
        write("provider", empty, list([call(empty, Vec::new())]));
    }
    for one in ["NodeGroupTargetSize", "NodeGroupNodes", "NodeGroupTemplateNodeInfo", "NodeGroupGetOptions"] {
        write("provider", one, list([call(one, of_group.clone())]));
    }
    write("provider", "owner", list([call("NodeGroupForNode", owner.encode_to_vec())]));
    write("provider", "node-price", list([call("PricingNodePrice", node_price.encode_to_vec())]));
    write("provider", "pod-price", list([call("PricingPodPrice", pod_price.encode_to_vec())]));
    write("provider", "delete", list([call("NodeGroupDeleteNodes", delete.encode_to_vec())]));
    let there_and_back = [
        call("Refresh", Vec::new()),
        call("NodeGroupIncreaseSize", increase.encode_to_vec()),
        call("NodeGroupTargetSize", of_group.clone()),
        call("NodeGroupDecreaseTargetSize", decrease.encode_to_vec()),
        call("NodeGroups", Vec::new()),
    ];
    write("provider", "there-and-back", list(there_and_back));
}

fn options() {
    let pods =
        || vec![pod("a", &[("nvidia.com/gpu", "1")]), pod("b", &[("cpu", "2"), ("memory", "4Gi"), ("nvidia.com/gpu", "2")])];
    let [p, q] = service::GROUPS.map(str::to_owned);
    let option = |id: &str, count, pods: Vec<Bytes>| ExpanderOption {
        node_group_id: id.to_owned(),
        node_count: count,
        pod_bytes: pods,
        ..Default::default()
    };
    let request = |options| BestOptionsRequest { options, ..Default::default() }.encode_to_vec();
    write("expander", "none", request(Vec::new()));
    write("expander", "two", request(vec![option(&p, 1, pods()), option(&q, 2, pods())]));
    write("expander", "served", request(vec![option(&p, 1, pods()[..1].to_vec())]));
    write("expander", "unknown", request(vec![option("nobody", 1, pods()), option(&q, -1, Vec::new())]));
    let mut legacy = option(&q, 1, Vec::new());
    legacy.pod = pods();
    write("expander", "legacy", request(vec![legacy, option(&p, 3, Vec::new())]));
}

fn streams() {
    let at = Some(Timestamp { seconds: market::start().as_second(), nanos: 0 });
    let process = |pid| Process { pid, memory_bytes: Some(1 << 30), pod_uid: "uid".to_owned(), ..Process::default() };
    let memory = Some(Memory { used_bytes: 1 << 30, total_bytes: 24 << 30, reserved_bytes: 1 << 20 });
    let device = MigDevice { uuid: "MIG-1".to_owned(), name: "1g.10gb".to_owned(), memory, ..MigDevice::default() };
    let gpu = |uuid: &str| Gpu {
        uuid: uuid.to_owned(),
        name: "NVIDIA L4".to_owned(),
        memory,
        utilization: Some(500),
        power_mw: Some(70_000),
        temperature_c: Some(45),
        processes: Some(Processes { compute: vec![process(1), process(2)] }),
        mig: Some(Mig { enabled: true, devices: vec![device.clone()], ..Mig::default() }),
        ..Gpu::default()
    };
    let round = |sequence| {
        from_probe::Kind::Round(Round {
            took_us: 900,
            sequence,
            at,
            driver: Some(Driver { state: driver::State::Ready.into(), ..Driver::default() }),
            gpus_counted: Some(2),
            gpus: vec![gpu("GPU-a"), gpu("GPU-b")],
            gates: vec![Gate { kind: gate::Kind::Driver.into(), result: gate::Result::Passed.into(), detail: String::new() }],
        })
    };
    let happened = |number, kind| from_probe::Kind::Event(Event { number, at, kind: Some(kind) });
    let xid = event::Kind::Xid(Xid { code: 79, gpu_uuid: "GPU-a".to_owned(), ..Xid::default() });
    let notice = Interruption { kind: interruption::Kind::Reclaim.into(), deadline: at, ..Interruption::default() };
    let quiet = match round(3) {
        from_probe::Kind::Round(round) => from_probe::Kind::Quiet(QuietAnswer { nonce: 1, round: Some(round) }),
        other => other,
    };
    let message = |kind| FromProbe { kind: Some(kind) }.encode_to_vec();
    let greeted = |first: u8, kinds: Vec<from_probe::Kind>| {
        let mut input = vec![first];
        input.extend(list(kinds.into_iter().map(message)));
        input
    };
    write("probes", "round", greeted(1, vec![round(1)]));
    write("probes", "rounds", greeted(1, vec![round(1), round(2), round(2)]));
    write("probes", "events", greeted(1, vec![happened(1, xid), happened(2, event::Kind::Interruption(notice)), round(1)]));
    write("probes", "quiet", greeted(1, vec![quiet]));
    write("probes", "hello", greeted(0, vec![probes::hello().kind.unwrap(), round(1)]));
}

fn answers() {
    let (now, gpu) = (market::start().as_second(), "GPU-1");
    let vector =
        |rows: serde_json::Value| json!({"status": "success", "data": {"resultType": "vector", "result": rows}}).to_string();
    let whose = json!({"UUID": gpu, "Hostname": "gpu-1", "gpu": "0", "modelName": "NVIDIA L4", "pci_bus_id": "00:01"});
    let stamps = vector(json!([
        {"metric": whose, "value": [now, (now - 5).to_string()]},
        {"metric": {"uuid": "GPU-2", "instance": "gpu-2:9400", "GPU_I_ID": "1", "GPU_I_PROFILE": "1g.10gb"}, "value": [now, (now - 1).to_string()]},
    ]));
    let level = |value: &str| {
        vector(json!([
            {"metric": {"UUID": gpu}, "value": [now, value]},
            {"metric": {"uuid": "GPU-2", "GPU_I_ID": "1"}, "value": [now, value]},
        ]))
    };
    let xids = vector(json!([{"metric": {"UUID": gpu, "xid": "79"}, "value": [now, "2"]}]));
    write("prometheus", "round", [stamps.clone(), level("1"), level("0.5"), level("100")].join("\n"));
    let mut all = vec![stamps];
    all.extend((0..34).map(|number| level(&(number % 3).to_string())));
    all.push(xids);
    write("prometheus", "whole", all.join("\n"));
    write(
        "prometheus",
        "scalar",
        json!({"status": "success", "data": {"resultType": "scalar", "result": [now, "17.5"]}}).to_string(),
    );
    write("prometheus", "error", json!({"status": "error", "errorType": "timeout", "error": "query timed out"}).to_string());
}

fn objects() {
    let node = json!({
        "metadata": {
            "name": "n1", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-10-01T00:00:00Z",
            "labels": {"stoker.dev/cluster": "test", "stoker.dev/node-group": service::GROUPS[0]},
            "annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
                "stoker.dev/scale-down-blocked": "true", "stoker.dev/verdict": "busy", "stoker.dev/draining": "true"},
        },
        "spec": {"providerID": "sim://1", "unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-10-01T00:05:00Z"},
                {"type": "stoker.dev/GPUHealthy", "status": "False", "reason": "GpuBusy", "message": "m",
                 "lastTransitionTime": "2026-10-01T00:06:00Z", "lastHeartbeatTime": "2026-10-01T00:06:01Z"}],
            "images": [{"names": ["registry/app@sha256:00", "registry/app:1"], "sizeBytes": 5}],
        },
    });
    let pod = json!({
        "metadata": {"name": "p1", "namespace": "ml", "uid": "v", "resourceVersion": "8", "labels": {"app.kubernetes.io/name": "train"},
            "ownerReferences": [{"kind": "Job", "name": "train", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [{"image": "registry/app:1",
            "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "500m"}, "limits": {"nvidia.com/gpu": 1}}}],
            "initContainers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "2"}}}], "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running"},
    });
    let guest = json!({"metadata": {"name": "p2", "namespace": "ml"}, "spec": {"nodeName": "n1", "containers": [{}]}});
    write("kubernetes", "both", format!("{node}\n{pod}\n{guest}"));
    write("kubernetes", "node", node.to_string());
    write("kubernetes", "pod", pod.to_string());
    write("kubernetes", "quantities", "500m\n1.5Gi\n2e3\n0.1\n123Mi\n1n\n-1\n+2\n1E\n.5\n1e-3\n129M");
}

fn rows() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lines = runtime.block_on(async {
        let service = stoker_tests::harness::Setup::new(stoker_tests::policy::policy(&[stoker_tests::policy::Pool::new("p")]))
            .start()
            .await;
        service.client().refresh().await.unwrap();
        service.client().increase(service::GROUPS[0], 2).await.unwrap();
        service.pass(SignedDuration::from_secs(200)).await;
        service.client().decrease(service::GROUPS[0], -1).await.unwrap();
        service.settle().await;
        let options = SqliteConnectOptions::new().filename(service.state_dir().join("journal.db")).read_only(true);
        let mut db = options.connect().await.unwrap();
        let mut lines = Vec::new();
        for table in TABLES {
            let columns: Vec<String> = table.columns.iter().map(|name| format!("CAST({name} AS TEXT)")).collect();
            let all = format!("SELECT {} FROM {} LIMIT 12", columns.join(", "), table.name);
            for row in sqlx::query(AssertSqlSafe(all)).fetch_all(&mut db).await.unwrap() {
                let cell = |at| row.get::<Option<String>, _>(at).unwrap_or_default();
                let cells: Vec<String> = (0..table.columns.len()).map(cell).collect();
                lines.push(format!("{}\t{}", table.name, cells.join("\t")));
            }
        }
        lines
    });
    // Whole, and without prices, which are most of it.
    write("journal", "whole", lines.join("\n"));
    let small: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.starts_with("content\t2")).collect();
    write("journal", "without-prices", small.join("\n"));
    let memory: Vec<&str> =
        small.iter().copied().filter(|line| line.starts_with("step\tmemory") || line.starts_with("accepted")).collect();
    write("journal", "memory", memory.join("\n"));
}
