//! Looks over Karpenter's objects, and whole companions against a fake API server.

mod fields_set;
mod floors_kept;
mod repairs;

use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, PoolName, Region, ZoneId};
use stoker_core::base::units::{MiB, Milli, Percent, UsdPerHour};
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec};
use stoker_core::market::price::{Entry, Quote, QuoteKind};
use stoker_core::policy::RawPolicy;
use stoker_core::policy::rules::karpenter::{BUDGETS_MARK, LIMITS_MARK, RULES_LABEL, STEERED_LABEL, WINDOW_MARK};
use stoker_core::policy::rules::warm_floor::WarmFloor;
use stoker_fake_apiserver::ApiServer;

use super::floors::FloorKeeper;
use super::marks::FieldMark;
use super::tables::Tables;
use super::write::Writer;
use super::*;

const GPU: &str = "nvidia.com/gpu";
const AWS: &str = "karpenter.k8s.aws";

/// The L4s of AWS.
pub(crate) fn book() -> PriceBook {
    let mut book = PriceBook::new();
    for (name, gpus, vcpus) in [("g6.xlarge", 1, 4), ("g6.2xlarge", 1, 8), ("g6.12xlarge", 4, 48)] {
        book.insert_spec(InstanceSpec {
            cloud: Cloud::new("aws").unwrap(),
            instance_type: InstanceType::new(name).unwrap(),
            gpu_model: GpuModel::new("L4").unwrap(),
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(24),
            vcpus: Some(vcpus),
            memory: Some(MiB::from_gib(16)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
    }
    book
}

/// Quotas of 64 vCPUs on demand and 32 on spot; limits, windows and nodes in use are steered.
pub(crate) fn policy() -> Policy {
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "prod",
        "pools": [{
            "name": "pool", "workload": "inference", "gpu": { "models": ["L4"] },
            "where": { "clouds": ["aws"], "regions": ["us-east-1"] }, "limits": { "maxNodes": 10 },
        }],
        "quotas": [
            { "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 64 },
            { "name": "L-3819A6DF", "cloud": "aws", "region": "us-east-1", "limit": 32 },
        ],
        "karpenter": { "steer": ["limits", "protect", "windows"] },
    }))
    .unwrap();
    Policy::try_from_raw(&raw).unwrap()
}

/// A launched claim of `NodePool` gpu, on demand.
pub(crate) fn claim(number: u32, instance_type: &str, cpu: &str, gpus: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": format!("claim-{number}"), "labels": {
            NODE_POOL: "gpu",
            "node.kubernetes.io/instance-type": instance_type,
            "topology.kubernetes.io/zone": "us-east-1a",
            "topology.kubernetes.io/region": "us-east-1",
            "karpenter.sh/capacity-type": "on-demand",
        } },
        "spec": { "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu" } },
        "status": {
            "providerID": format!("aws:///i-{number}"), "nodeName": format!("node-{number}"),
            "capacity": { "cpu": cpu, "nvidia.com/gpu": gpus },
        },
    })
}

/// A `NodePool` of g6.2xlarge on demand that is steered.
fn node_pool(limits: &Value) -> Value {
    let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": { "name": "gpu", "labels": { STEERED_LABEL: "true" } },
        "spec": { "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu" },
            "requirements": [
                one("node.kubernetes.io/instance-type", "g6.2xlarge"),
                one("karpenter.sh/capacity-type", "on-demand"),
                one("topology.kubernetes.io/region", "us-east-1"),
            ],
        } } },
    });
    if !limits.is_null() {
        pool["spec"]["limits"] = limits.clone();
    }
    pool
}

fn node(number: u32) -> Value {
    let labels = json!({ NODE_POOL: "gpu", "topology.kubernetes.io/region": "us-east-1" });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("node-{number}"), "labels": labels } })
}

/// Tables of one pool and as many nodes of it.
fn tables(pool: Value, nodes: u32) -> Tables {
    let mut tables = Tables::default();
    tables.pools.take(Event::Apply(serde_json::from_value(pool).unwrap()));
    tables.claims.take(Event::InitDone);
    tables.nodes.take(Event::InitDone);
    for number in 0..nodes {
        tables.claims.take(Event::Apply(serde_json::from_value(claim(number, "g6.2xlarge", "8", "1")).unwrap()));
        tables.nodes.take(Event::Apply(serde_json::from_value(node(number)).unwrap()));
    }
    tables
}

/// A look while the decisions count two nodes, of Stoker's and of Karpenter's, and what it was promised.
fn look(state: &mut State, tables: &Tables, promised: Option<&Promises>, now: Instant) -> Look {
    let (policy, book, occupied) = (policy(), book(), [NodeName::new("node-0").unwrap()].into());
    let facts = tables.facts().unwrap();
    let used = promised.map(|promised| Used { held: vec![16, 0], promised: promised.clone(), ..Used::default() });
    state.look(&Inputs { used: used.as_ref(), occupied: Some(&occupied), ..Inputs::of(facts, &policy, &book, now) })
}

/// A pool as it is once a mark was written to it.
fn limited(tables: &mut Tables, mark: &LimitsMark, limits: &Value) {
    let mut pool = node_pool(limits);
    pool["metadata"]["annotations"] = json!({ LIMITS_MARK: serde_json::to_string(mark).unwrap() });
    tables.pools.take(Event::Apply(serde_json::from_value(pool).unwrap()));
}

#[test]
fn limits_are_promised_first_and_set_when_the_decisions_count_the_promise() {
    let (tables, mut state, now) = (tables(node_pool(&json!({ "cpu": "1k" })), 1), State::default(), Instant::now());
    let unknown = look(&mut state, &tables, None, now);
    assert_eq!((unknown.promised, unknown.limits), (Some(Promises::new()), vec![]), "its nodes do not count yet");
    let first = look(&mut state, &tables, Some(&Promises::new()), now);
    assert!(first.limits.is_empty(), "nobody counts it yet: {first:?}");
    let promised = first.promised.unwrap();
    assert_eq!(promised.values().copied().collect::<Vec<_>>(), [16]);
    let second = look(&mut state, &tables, Some(&promised), now);
    let [(name, mark)] = &second.limits[..] else { panic!("{second:?}") };
    assert_eq!((name.as_str(), mark.set["cpu"]), ("gpu", 24));
    assert_eq!(mark.was, Some(serde_json::from_value(json!({ "cpu": "1k" })).unwrap()));
    // Set and unchanged, nothing more is written.
    let mut set = tables;
    limited(&mut set, mark, &json!({ "cpu": "24" }));
    let third = look(&mut state, &set, Some(&promised), now);
    assert!(third.limits.is_empty() && third.given_back.is_empty() && third.faults.0.is_empty(), "{third:?}");
    assert_eq!(third.promised.unwrap(), promised);
}

#[test]
fn a_promise_counts_on_for_a_while_after_the_limit_fell() {
    let (mut tables, mut state, now) = (tables(node_pool(&json!({ "cpu": "40" })), 1), State::default(), Instant::now());
    let mark = LimitsMark { set: [("cpu".to_owned(), 40)].into(), was: None, why: String::new() };
    limited(&mut tables, &mark, &json!({ "cpu": "40" }));
    let (none, promised) = (Promises::new(), |look: &Look| look.promised.as_ref().unwrap().values().sum::<u64>());
    // 32 may be had under the limit: after a restart that counts, though nobody remembers it.
    assert_eq!(promised(&look(&mut state, &tables, None, now)), 32);
    let first = look(&mut state, &tables, Some(&none), now);
    let [(_, lower)] = &first.limits[..] else { panic!("{first:?}") };
    assert_eq!((promised(&first), lower.set["cpu"], &lower.was), (32, 24, &None));
    limited(&mut tables, &lower.clone(), &json!({ "cpu": "24" }));
    assert_eq!(promised(&look(&mut state, &tables, Some(&none), now + Duration::from_secs(14))), 32);
    assert_eq!(promised(&look(&mut state, &tables, Some(&none), now + Duration::from_secs(30))), 16);
}

#[test]
fn three_rewrites_by_somebody_else_end_it() {
    let (mut tables, mut state, now) = (tables(node_pool(&json!({ "cpu": "1k" })), 1), State::default(), Instant::now());
    let mut counted = look(&mut state, &tables, Some(&Promises::new()), now).promised.unwrap();
    for round in 0..3 {
        let made = look(&mut state, &tables, Some(&counted), now);
        let [(_, mark)] = &made.limits[..] else { panic!("{round}: {made:?}") };
        limited(&mut tables, mark, &json!({ "cpu": "24" }));
        counted = look(&mut state, &tables, Some(&counted), now).promised.unwrap();
        limited(&mut tables, mark, &json!({ "cpu": "1k" }));
    }
    let made = look(&mut state, &tables, Some(&counted), now);
    assert!(made.limits.is_empty() && made.given_back.is_empty());
    assert!(made.faults.0["NodePool gpu"].contains("rewritten 3 times by somebody else"), "{:?}", made.faults);
    // It begins anew where the label was taken off.
    let mut unsteered = node_pool(&json!({ "cpu": "1k" }));
    unsteered["metadata"]["labels"] = json!({});
    tables.pools.take(Event::Apply(serde_json::from_value(unsteered).unwrap()));
    look(&mut state, &tables, Some(&counted), now);
    tables.pools.take(Event::Apply(serde_json::from_value(node_pool(&json!({ "cpu": "1k" }))).unwrap()));
    assert_eq!(look(&mut state, &tables, Some(&counted), now).limits.len(), 1);
}

#[test]
fn rewrites_count_of_one_object_also_within_a_look_and_not_for_ever() {
    let (mut rewrites, now) = (Rewrites::default(), Instant::now());
    assert!(rewrites.is_of(Some("a")) && rewrites.is_of(Some("a")) && !rewrites.is_of(Some("b")));
    // Whoever reverts at once is never seen with the field as it was set.
    for _ in 0..2 {
        rewrites.wrote();
        rewrites.note(false, "f", now).unwrap();
    }
    rewrites.wrote();
    assert!(rewrites.note(false, "f", now).unwrap_err().contains("rewritten 3 times"));
    // What Stoker gave back itself was rewritten by nobody.
    let mut own = Rewrites::default();
    for _ in 0..5 {
        own.note(true, "f", now).unwrap();
        own.gave_back();
        own.note(false, "f", now).unwrap();
    }
    let mut calm = Rewrites::default();
    for _ in 0..2 {
        calm.note(true, "f", now).unwrap();
        calm.note(false, "f", now).unwrap();
    }
    calm.note(true, "f", now).unwrap();
    calm.note(true, "f", now + Duration::from_hours(24)).unwrap();
    calm.note(false, "f", now + Duration::from_hours(24)).unwrap();
    assert!(!calm.is_over(), "what stood for a day forgets");
}

#[test]
fn a_resource_that_no_quota_counts_any_more_goes_back_to_its_owner_first() {
    let (mut tables, mut state, now) =
        (tables(node_pool(&json!({ "cpu": "16", "nvidia.com/gpu": "2" })), 1), State::default(), Instant::now());
    let was = Some(serde_json::from_value(json!({ "cpu": "1k", "nvidia.com/gpu": "8" })).unwrap());
    let set = [("cpu".to_owned(), 16), (GPU.to_owned(), 2)].into();
    let mark = LimitsMark { set, was, why: String::new() };
    limited(&mut tables, &mark, &json!({ "cpu": "16", "nvidia.com/gpu": "2" }));
    let made = look(&mut state, &tables, Some(&Promises::new()), now);
    assert_eq!(made.given_back, [("gpu".to_owned(), mark)]);
    assert!(made.limits.is_empty());
}

#[test]
fn what_waits_for_a_machine_is_promised_too() {
    let (mut tables, mut state) = (tables(node_pool(&json!({ "cpu": "1k" })), 1), State::default());
    for number in 10..15 {
        let mut waits = claim(number, "g6.2xlarge", "8", "1");
        waits["status"] = json!({});
        tables.claims.take(Event::Apply(serde_json::from_value(waits).unwrap()));
    }
    let made = look(&mut state, &tables, Some(&Promises::new()), Instant::now());
    assert_eq!(made.promised.unwrap().values().copied().collect::<Vec<_>>(), [40]);
}

#[test]
fn what_is_steered_no_more_is_given_back_and_nodes_in_use_are_protected() {
    let (mut tables, mut state, now) = (tables(node_pool(&Value::Null), 2), State::default(), Instant::now());
    assert_eq!(look(&mut state, &tables, None, now).nodes, [("node-0".to_owned(), Change::Protect)]);
    let mark = LimitsMark { set: [("cpu".to_owned(), 24)].into(), was: None, why: String::new() };
    limited(&mut tables, &mark, &json!({ "cpu": "24" }));
    let mut pool: Value = node_pool(&json!({ "cpu": "24" }));
    pool["metadata"] = json!({ "name": "gpu", "annotations": { LIMITS_MARK: serde_json::to_string(&mark).unwrap() } });
    tables.pools.take(Event::Apply(serde_json::from_value(pool).unwrap()));
    let off = look(&mut state, &tables, None, now);
    assert_eq!(off.given_back, [("gpu".to_owned(), mark)]);
    assert!(off.nodes.is_empty() && off.promised.unwrap().is_empty());
}

#[test]
fn a_machine_that_karpenter_does_not_count_yet_stops_nothing() {
    let (mut tables, mut state) = (tables(node_pool(&json!({ "cpu": "1k" })), 1), State::default());
    let mut untold = claim(7, "g6.2xlarge", "8", "1");
    untold["status"]["capacity"] = json!({});
    tables.claims.take(Event::Apply(serde_json::from_value(untold).unwrap()));
    let made = look(&mut state, &tables, Some(&Promises::new()), Instant::now());
    assert!(made.faults.0.is_empty(), "{:?}", made.faults);
    assert_eq!(made.promised.unwrap().values().copied().collect::<Vec<_>>(), [16]);
}

const POOL: &str = "/apis/karpenter.sh/v1/nodepools/gpu";

fn server(limits: &Value) -> ApiServer {
    let server = ApiServer::new(Timestamp::now);
    for plural in ["nodepools", "nodeclaims", "leases"] {
        server.serve_kind(plural);
    }
    server.put(POOL, node_pool(limits));
    server.put("/api/v1/nodes/node-0", node(0));
    server
}

async fn read<K>(client: &Client, name: &str) -> K
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    K::Scope: Send,
{
    Api::<K>::all(client.clone()).get(name).await.unwrap()
}

#[tokio::test]
async fn what_is_written_is_given_back_whole() {
    for limits in [Value::Null, json!({ "cpu": "1k", "memory": "4Ti" })] {
        let server = server(&limits);
        let client = server.client();
        let writer = Writer::new(&client, false);
        let before: NodePool = read(&client, "gpu").await;
        let mark = LimitsMark {
            set: [("cpu".to_owned(), 16)].into(),
            was: super::before(None, before.spec.limits.as_ref()),
            why: "quota".into(),
        };
        let written = writer.limit(&before, &mark).await.unwrap().unwrap();
        assert_eq!(written.spec.limits.as_ref().unwrap()["cpu"], json!("16"));
        assert_eq!(LimitsMark::of(&written).unwrap(), Some(mark));
        let sets = [json!("900s"), json!([{ "nodes": "20%" }]), json!(100)];
        for (field, set) in Field::ALL.into_iter().zip(sets) {
            let mark = FieldMark { set, was: field.of(&before).cloned(), why: String::new() };
            let written = writer.set_field(&read(&client, "gpu").await, field, &mark).await.unwrap().unwrap();
            assert_eq!((FieldMark::of(field, &written), mark.stands(field, &written)), (Ok(Some(mark)), true));
        }
        let protected = writer.protect(&read(&client, "node-0").await).await.unwrap().unwrap();
        assert_eq!(Guard::of(&protected), Guard::Ours);
        let shown = clean(&client, true).await;
        assert_eq!(
            shown.iter().map(|row| row.object.as_str()).collect::<Vec<_>>(),
            ["NodePool gpu", "NodePool gpu", "NodePool gpu", "NodePool gpu", "Node node-0"]
        );
        assert_eq!(Guard::of(&read(&client, "node-0").await), Guard::Ours, "nothing was changed yet");
        let cleaned = clean(&client, false).await;
        assert_eq!(cleaned.len(), 5);
        assert!(cleaned.iter().all(|row| row.fault.is_none()), "{cleaned:?}");
        let after: NodePool = read(&client, "gpu").await;
        for field in Field::ALL {
            assert_eq!((field.of(&after), FieldMark::of(field, &after)), (field.of(&before), Ok(None)));
        }
        assert_eq!(
            (after.spec.limits, LimitsMark::of(&NodePool { spec: before.spec.clone(), ..after })),
            (before.spec.limits, Ok(None))
        );
        let node: Node = read(&client, "node-0").await;
        assert_eq!(Guard::of(&node), Guard::None);
        assert_eq!(clean(&client, false).await, []);
    }
}

#[tokio::test]
async fn a_write_over_a_change_that_was_not_seen_is_not_made() {
    let server = server(&json!({ "cpu": "1k" }));
    let (client, mark) = (server.client(), LimitsMark { set: [("cpu".to_owned(), 16)].into(), was: None, why: String::new() });
    let seen: NodePool = read(&client, "gpu").await;
    server.edit(POOL, |pool| pool["spec"]["limits"] = json!({ "cpu": "2k" }));
    assert!(Writer::new(&client, false).limit(&seen, &mark).await.unwrap().is_none());
    let now: NodePool = read(&client, "gpu").await;
    assert_eq!(now.spec.limits.unwrap()["cpu"], json!("2k"));
}

#[tokio::test]
async fn the_lease_tells_for_how_long_nobody_looked_after_the_marks() {
    let server = server(&Value::Null);
    let client = server.client();
    let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
    assert_eq!(unattended_for(&client, now).await, Ok(None));
    Writer::new(&client, false).beat("stoker-0", now).await.unwrap();
    let later = now + jiff::SignedDuration::from_mins(15);
    assert_eq!(unattended_for(&client, later).await, Ok(Some(jiff::SignedDuration::from_mins(15))));
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_with_the_object_and_the_cure() {
    let server = server(&Value::Null);
    server.answer(|_, call| {
        let writes = call.method == http::Method::PATCH;
        writes.then(|| stoker_fake_apiserver::failure(http::StatusCode::FORBIDDEN, "Forbidden"))
    });
    let client = server.client();
    let told = Writer::new(&client, false).protect(&read(&client, "node-0").await).await.unwrap_err();
    assert!(told.starts_with("Node node-0 cannot be written:") && told.contains("manifests/karpenter/steering.yaml"), "{told}");
}

#[tokio::test]
async fn what_cannot_be_cleaned_keeps_nothing_else_from_it_and_a_dry_run_tells_of_it() {
    let server = server(&Value::Null);
    let client = server.client();
    let protected = Writer::new(&client, false).protect(&read(&client, "node-0").await).await.unwrap();
    assert!(protected.is_some());
    let forbid = |plural: &'static str, method: http::Method| {
        server.answer(move |_, call| {
            let forbidden = call.path.contains(plural) && call.method == method;
            forbidden.then(|| stoker_fake_apiserver::failure(http::StatusCode::FORBIDDEN, "Forbidden"))
        });
    };
    forbid("nodes", http::Method::PATCH);
    let told = clean(&client, true).await;
    assert!(matches!(&told[..], [row] if row.fault.as_ref().is_some_and(|why| why.contains("steering.yaml"))), "{told:?}");
    forbid("nodepools", http::Method::GET);
    let cleaned = clean(&client, false).await;
    let rows: Vec<_> = cleaned.iter().map(|row| (row.object.as_str(), row.fault.is_some())).collect();
    assert_eq!(rows, [("NodePools", true), ("Node node-0", false)]);
}
