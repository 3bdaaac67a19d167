//! `stoker init` against a cluster: what it prints, and that it changes nothing.

use std::path::Path;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::Value;
use stoker_fake_apiserver::{ApiServer, failure};

use super::binary::{Ran, golden, stoker};
use super::small;

/// The cluster of that file.
async fn cluster(name: &str) -> ApiServer {
    let server = ApiServer::listen(|| Timestamp::UNIX_EPOCH).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/input/clusters").join(format!("{name}.yaml"));
    let list: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for object in list["items"].as_array().unwrap() {
        let name = object["metadata"]["name"].as_str().unwrap();
        let place = match object["kind"].as_str().unwrap() {
            "Node" => format!("/api/v1/nodes/{name}"),
            "Pod" => format!("/api/v1/namespaces/{}/pods/{name}", object["metadata"]["namespace"].as_str().unwrap()),
            "NodePool" => format!("/apis/karpenter.sh/v1/nodepools/{name}"),
            "EC2NodeClass" => format!("/apis/karpenter.k8s.aws/v1/ec2nodeclasses/{name}"),
            other => format!("/apis/unknown/v1/{other}/{name}"),
        };
        server.seed(&place, object.clone());
    }
    // More pages than one.
    server.page_by(2);
    server
}

/// Has it serve Karpenter's kinds.
fn serve_karpenter(server: &ApiServer) {
    for kind in ["nodepools", "ec2nodeclasses"] {
        server.serve_kind(kind);
    }
}

/// Drafts a policy from it, with the small tables.
fn init(server: &ApiServer, from: &str) -> Ran {
    let kubeconfig = server.kubeconfig();
    let ran = small(&["init", from, "--kubeconfig", kubeconfig.to_str().unwrap(), "--cluster", "prod"]);
    assert!(server.take_writes().is_empty());
    assert!(server.asked().keys().all(|asked| asked.starts_with("GET ")), "{:?}", server.asked());
    ran
}

/// The policy that is drafted, which `policy check` finds sound.
async fn drafted(name: &str, from: &str) {
    let server = cluster(name).await;
    if from == "--from-karpenter" {
        serve_karpenter(&server);
    }
    let ran = init(&server, from);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines = ran.out.lines().filter(|line| line.starts_with('#'));
    assert!(lines.clone().all(|line| line.chars().count() <= 100), "{}", ran.out);
    golden(&format!("init-{name}"), &format!("{}\n--- standard error\n{}", ran.out, ran.err));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yaml");
    std::fs::write(&file, &ran.out).unwrap();
    let check = small(&["policy", "check", file.to_str().unwrap()]);
    assert_eq!((check.code, check.err.as_str()), (0, ""), "{check:?}\n{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_drafted_from_karpenter_s_node_pools() {
    drafted("eks", "--from-karpenter").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_drafted_from_gpu_nodes() {
    drafted("gke", "--from-nodes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_drafted_from_gpu_pods() {
    drafted("pods", "--from-pods").await;
}

/// Every source gives a policy for each of these clusters, or says why not, also by the whole price tables.
#[tokio::test(flavor = "multi_thread")]
async fn every_source_reads_every_cluster() {
    for name in ["eks", "gke", "pods"] {
        let server = cluster(name).await;
        serve_karpenter(&server);
        let kubeconfig = server.kubeconfig();
        for from in ["--from-karpenter", "--from-nodes", "--from-pods"] {
            let ran = stoker(&["init", from, "--kubeconfig", kubeconfig.to_str().unwrap()]);
            assert!(ran.code == 0 || ran.code == 5, "{name} {from} {ran:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_with_its_cure() {
    let server = cluster("pods").await;
    let kubeconfig = server.kubeconfig();
    let ran = |args: &[&str]| stoker(&[&["init", "--kubeconfig", kubeconfig.to_str().unwrap()], args].concat());
    let mut told = Vec::new();
    let mut tell = |code: i32, args: &[&str]| {
        let ran = ran(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?} {ran:?}");
        told.push(format!("$ stoker init {}\n{}", args.join(" "), ran.err));
    };
    tell(2, &[]);
    tell(2, &["--from-nodes", "--from-pods"]);
    tell(2, &["--from-pods", "--cluster", "Prod_1"]);
    tell(5, &["--from-nodes"]);
    tell(1, &["--from-karpenter"]);
    server.answer(|_, call| {
        let is_pods = call.method == Method::GET && call.path.ends_with("/pods");
        is_pods.then(|| failure(StatusCode::FORBIDDEN, "Forbidden"))
    });
    tell(1, &["--from-pods"]);
    golden("init-slips", &told.join("\n"));
}
