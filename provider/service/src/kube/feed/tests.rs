use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use serde_json::{Value, json};
use stoker_core::base::ids::NodeName;
use stoker_core::facts::snapshot::{Cordon, Hold, NodeFacts};
use stoker_fake_apiserver as fake;
use tokio::time::timeout;

use super::*;

fn node(name: &str, group: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "resourceVersion": "7", "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": { "stoker.dev/cluster": "test", "stoker.dev/group": group },
        },
        "spec": { "providerID": format!("sim://{name}") },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T00:01:00Z" }] },
    })
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "namespace": "ml", "name": name, "resourceVersion": "8" },
        "spec": { "nodeName": node, "containers": [{ "resources": { "requests": { "nvidia.com/gpu": "1" } } }] },
        "status": { "phase": "Pending" },
    })
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node_row(name: &str) -> NodeRow {
    read(node(name, "a.b.c"))
}

fn pod_row(name: &str, node: &str) -> PodRow {
    read(pod(name, node))
}

/// A table with nodes `a` and `b`, and pod `p` on `a`.
fn table() -> Table {
    let mut table = Table::new(Clock::system());
    for event in [Event::Init, Event::InitApply(node_row("a")), Event::InitApply(node_row("b")), Event::InitDone] {
        table.node(event);
    }
    assert_eq!(table.facts(), None, "the pods are not listed yet");
    for event in [Event::Init, Event::InitApply(pod_row("p", "a"))] {
        assert!(!table.pod(event));
    }
    assert_eq!(table.facts(), None, "the pods are not listed completely");
    assert!(table.pod(Event::InitDone));
    table
}

fn node_of(facts: &ClusterFacts, name: &str) -> Arc<NodeFacts> {
    Arc::clone(NodeName::find(&facts.nodes, name).unwrap())
}

fn pods_of(table: &Table, name: &str) -> Vec<String> {
    node_of(&table.facts().unwrap(), name).gpu_pods.iter().cloned().collect()
}

#[test]
fn facts_join_nodes_and_pods() {
    let facts = table().facts().unwrap();
    let expected = NodeFacts {
        name: NodeName::new("a").unwrap(),
        provider_id: Some("sim://a".to_owned().try_into().unwrap()),
        group: Some("a.b.c".to_owned().try_into().unwrap()),
        created_at: "2026-11-01T00:00:00Z".parse().unwrap(),
        ready_since: Some("2026-11-01T00:01:00Z".parse().unwrap()),
        gpu_pods: BTreeSet::from(["ml/p".to_owned()]),
        scale_down_disabled: Hold::None,
        cordon: Cordon::None,
        allocatable: None,
        shown: None,
    };
    assert_eq!(*node_of(&facts, "a"), expected);
    assert!(!node_of(&facts, "b").is_busy());
}

#[test]
fn a_changed_pod_touches_one_node() {
    let mut table = table();
    let before = table.facts().unwrap();
    assert!(table.pod(Event::Apply(pod_row("q", "a"))));
    assert!(!table.pod(Event::Apply(pod_row("q", "a"))), "said twice");
    let after = table.facts().unwrap();
    assert_eq!(node_of(&before, "a").gpu_pods.len(), 1, "what was published stays as it was");
    assert_eq!(node_of(&after, "a").gpu_pods.len(), 2);
    assert!(Arc::ptr_eq(&node_of(&before, "b"), &node_of(&after, "b")));
}

#[test]
fn a_pod_that_ends_or_goes_frees_its_node() {
    let mut table = table();
    let mut ended = pod("p", "a");
    ended["status"]["phase"] = json!("Succeeded");
    assert!(table.pod(Event::Apply(read(ended))));
    assert!(pods_of(&table, "a").is_empty());

    assert!(table.pod(Event::Apply(pod_row("p", "b"))));
    assert_eq!(pods_of(&table, "b"), ["ml/p"]);
    assert!(table.pod(Event::Delete(pod_row("p", "b"))));
    assert!(pods_of(&table, "b").is_empty());
    assert!(!table.pod(Event::Delete(pod_row("p", "b"))));
}

#[test]
fn a_pod_may_be_seen_before_its_node() {
    let mut table = table();
    assert!(!table.pod(Event::Apply(pod_row("early", "c"))), "not a node of ours so far");
    assert!(table.node(Event::Apply(node_row("c"))));
    assert_eq!(pods_of(&table, "c"), ["ml/early"]);
    assert!(table.node(Event::Delete(node_row("c"))));
    assert!(table.node(Event::Apply(node_row("c"))));
    assert_eq!(pods_of(&table, "c"), ["ml/early"]);
}

#[test]
fn a_heartbeat_is_no_change() {
    let mut table = table();
    let mut again = node("a", "a.b.c");
    again["metadata"]["resourceVersion"] = json!("99");
    again["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-11-01T09:00:00Z");
    assert!(!table.node(Event::Apply(read(again.clone()))));
    again["status"]["conditions"][0]["status"] = json!("Unknown");
    assert!(table.node(Event::Apply(read(again))));
    assert_eq!(pods_of(&table, "a"), ["ml/p"]);
}

#[test]
fn a_verdict_that_a_node_bears_is_known_and_wakes_nobody() {
    let mut table = table();
    let mut told = node("a", "a.b.c");
    told["metadata"]["annotations"] = json!({ "stoker.dev/verdict": "busy" });
    assert!(!table.node(Event::Apply(read(told.clone()))));
    assert_eq!((table.take_bears(), table.take_bears()), (true, false));
    let facts = node_of(&table.facts().unwrap(), "a");
    assert_eq!(facts.shown.as_ref().unwrap().word.as_deref(), Some("busy"));
    assert!(!table.node(Event::Apply(read(told.clone()))));
    assert!(!table.take_bears(), "said twice");
    told["spec"]["unschedulable"] = json!(true);
    assert!(table.node(Event::Apply(read(told))));
    assert_eq!((table.take_bears(), pods_of(&table, "a")), (false, vec!["ml/p".to_owned()]));
}

#[test]
fn a_new_list_replaces_the_old_one_as_a_whole() {
    let mut table = table();
    let before = table.facts().unwrap();
    for event in [Event::Init, Event::InitApply(node_row("b")), Event::InitApply(node_row("c"))] {
        assert!(!table.node(event));
        assert_eq!(table.facts().as_ref(), Some(&before));
    }
    // A pod that is bound while the nodes are listed is not lost.
    assert!(!table.pod(Event::Apply(pod_row("r", "c"))));
    assert!(table.node(Event::InitDone));
    let after = table.facts().unwrap();
    assert_eq!(after.nodes.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(pods_of(&table, "c"), ["ml/r"]);
    assert!(Arc::ptr_eq(&node_of(&before, "b"), &node_of(&after, "b")));

    for event in [Event::Init, Event::InitApply(pod_row("s", "b"))] {
        assert!(!table.pod(event));
        assert_eq!(table.facts().as_ref(), Some(&after));
    }
    assert!(table.pod(Event::InitDone));
    assert_eq!((pods_of(&table, "b"), pods_of(&table, "c")), (vec!["ml/s".to_owned()], vec![]));

    // The same list again changes nothing.
    for event in [Event::Init, Event::InitApply(pod_row("s", "b")), Event::InitDone] {
        assert!(!table.pod(event));
    }
}

#[test]
fn a_list_that_was_cut_off_is_forgotten() {
    let mut table = table();
    for event in [Event::Init, Event::InitApply(pod_row("stale", "b")), Event::Init, Event::InitApply(pod_row("p", "a"))] {
        assert!(!table.pod(event));
    }
    assert!(!table.pod(Event::InitDone));
    assert!(pods_of(&table, "b").is_empty());
}

#[test]
fn a_node_that_cannot_be_ours_is_left_out() {
    let mut table = table();
    let mut odd = node("odd", "a.b.c");
    odd["metadata"]["creationTimestamp"] = json!(null);
    assert!(!table.node(Event::Apply(read(odd))));
    let mut vague = node("vague", "a\nb");
    vague["spec"] = json!({});
    assert!(table.node(Event::Apply(read(vague))));
    let facts = node_of(&table.facts().unwrap(), "vague");
    assert_eq!((&facts.group, &facts.provider_id), (&None, &None));
}

const LONG: Duration = Duration::from_mins(10);

async fn next(feed: &KubeFeed) -> Arc<ClusterFacts> {
    let mut facts = feed.facts();
    timeout(LONG, facts.changed()).await.unwrap().unwrap();
    facts.borrow().clone().unwrap()
}

fn cluster() -> ClusterName {
    ClusterName::new("test").unwrap()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_the_last_page() {
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    let client = fake::client(move |call| {
        let held = Arc::clone(&held);
        async move {
            let pods = call.path == "/api/v1/pods";
            match (call.is_watch(), call.param("continue")) {
                (true, _) if pods => fake::watch(vec![json!({ "type": "ADDED", "object": pod("live", "b") })]),
                (true, _) => fake::watch(vec![]),
                (false, None) if pods => {
                    assert!(call.param("fieldSelector").unwrap().contains("spec.nodeName"));
                    fake::page(&[pod("first", "a")], Some("more"))
                }
                (false, Some(_)) => {
                    held.notified().await;
                    fake::page(&[pod("second", "a")], None)
                }
                (false, None) => {
                    assert!(call.param("labelSelector").unwrap().contains("stoker.dev/cluster=test"));
                    fake::page(&[node("a", "a.b.c"), node("b", "a.b.c")], None)
                }
            }
        }
    });
    let wake = Arc::new(Notify::new());
    let (feed, task) = KubeFeed::start(&client, &cluster(), Arc::clone(&wake));
    let task = tokio::spawn(task);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(feed.latest(), None);
    assert!(!feed.healthy());
    let told = feed.standing().unwrap_err().to_string();
    assert_eq!(told, "the API server has not listed all nodes and pods since the start 5 s ago: no answer yet");

    gate.notify_one();
    let facts = next(&feed).await;
    timeout(LONG, wake.notified()).await.unwrap();
    assert_eq!(node_of(&facts, "a").gpu_pods.len(), 2);
    // Within the debounce, what the watch told at once is in the first value.
    assert!(node_of(&facts, "b").is_busy());
    assert!(feed.healthy());
    assert_eq!((feed.broken(), feed.standing()), (None, Ok(())));
    task.abort();
}

/// A server that never answered is not a good one, though no watch of it stood that could have broken.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_answered_is_told() {
    let client = fake::client(|_| std::future::pending());
    let (feed, task) = KubeFeed::start(&client, &cluster(), Arc::new(Notify::new()));
    let task = tokio::spawn(task);
    tokio::time::sleep(Duration::from_mins(2)).await;
    let told = feed.standing().unwrap_err().to_string();
    assert!(
        told.starts_with("the API server has not listed all nodes and pods since the start 120 s ago: the watch of "),
        "{told}"
    );
    assert!(told.contains("no answer within 20s"), "{told}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_keeps_the_facts_and_is_told() {
    let down = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&down);
    let client = fake::client(move |call| {
        let down = state.load(Ordering::Relaxed);
        async move {
            match (call.is_watch(), down) {
                (_, true) => fake::failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
                // Open until the client gives it up as dead.
                (true, false) => fake::watch(vec![]),
                (false, false) if call.path == "/api/v1/nodes" => fake::page(&[node("a", "a.b.c")], None),
                (false, false) => fake::page(&[], None),
            }
        }
    });
    let (feed, task) = KubeFeed::start(&client, &cluster(), Arc::new(Notify::new()));
    let task = tokio::spawn(task);
    let facts = next(&feed).await;

    // A cluster where nothing happens is not a broken one.
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(feed.healthy());
    assert!(feed.age() <= Duration::from_secs(36), "{:?}", feed.age());

    down.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(5)).await;
    let broken = feed.broken().unwrap();
    assert!(broken.to_string().contains("InternalError"), "{broken}");
    assert_eq!(feed.standing(), Err(Shaky::Broken(broken)));
    assert!(!feed.healthy());
    assert!(feed.age() > Duration::from_mins(4));
    assert_eq!(feed.latest().as_ref(), Some(&facts));

    down.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(feed.broken(), None);
    assert!(feed.healthy());
    assert_eq!(feed.latest(), Some(facts));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_noticed() {
    let hung = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&hung);
    let client = fake::client(move |call| {
        let hung = state.load(Ordering::Relaxed);
        async move {
            match (hung, call.is_watch()) {
                (true, _) => std::future::pending().await,
                (false, true) => fake::watch(vec![]),
                (false, false) => fake::page(&[], None),
            }
        }
    });
    let (feed, task) = KubeFeed::start(&client, &cluster(), Arc::new(Notify::new()));
    let task = tokio::spawn(task);
    next(&feed).await;
    hung.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(feed.broken().unwrap().error.contains("no answer within 20s"), "{:?}", feed.broken());
    assert!(!feed.healthy());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_gap_in_the_watch_lists_anew() {
    let gone = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&gone);
    let client = fake::client(move |call| {
        let state = Arc::clone(&state);
        async move {
            let nodes = call.path == "/api/v1/nodes";
            match (call.is_watch(), nodes) {
                (true, true) if !state.swap(true, Ordering::Relaxed) => fake::watch(vec![json!({
                    "type": "ERROR", "object": { "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "old" },
                })]),
                (true, _) => fake::watch(vec![]),
                (false, true) if state.load(Ordering::Relaxed) => fake::page(&[node("b", "a.b.c")], None),
                (false, true) => fake::page(&[node("a", "a.b.c")], None),
                (false, false) => fake::page(&[], None),
            }
        }
    });
    let (feed, task) = KubeFeed::start(&client, &cluster(), Arc::new(Notify::new()));
    let task = tokio::spawn(task);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let names: Vec<_> = feed.latest().unwrap().nodes.keys().cloned().collect();
    assert_eq!(names, [NodeName::new("b").unwrap()]);
    assert_eq!(feed.broken(), None);
    task.abort();
}

fn plain(name: &str, node: &str) -> Value {
    let mut object = pod(name, node);
    object["metadata"]["uid"] = json!(format!("uid-{name}"));
    object["spec"]["containers"] = json!([{ "resources": { "requests": { "cpu": "1" } } }]);
    object
}

#[tokio::test]
async fn pods_without_gpu_are_told_of_on_nodes_of_ours_only() {
    let client = fake::client(|call| async move {
        match (call.path.as_str(), call.is_watch()) {
            ("/api/v1/nodes", false) => fake::page(&[node("a", "a.b.c")], None),
            ("/api/v1/pods", false) => fake::page(&[pod("gpu", "a"), plain("web", "a"), plain("far", "elsewhere")], None),
            ("/api/v1/pods", true) => fake::watch(vec![
                json!({ "type": "ADDED", "object": plain("late", "a") }),
                json!({ "type": "ADDED", "object": plain("other", "elsewhere") }),
            ]),
            _ => fake::watch(Vec::new()),
        }
    });
    let (feed, run) = KubeFeed::start(&client, &"test".to_owned().try_into().unwrap(), Arc::default());
    let running = tokio::spawn(run);
    let mut guests = feed.guests();
    let both = guests.wait_for(|guests| guests.len() == 2);
    let both = timeout(Duration::from_secs(5), both).await.unwrap().unwrap().clone();
    let told: Vec<_> = both.iter().map(|(key, guest)| (key.as_str(), guest.node.as_str(), guest.meta.uid.as_deref())).collect();
    assert_eq!(told, [("ml/late", "a", Some("uid-late")), ("ml/web", "a", Some("uid-web"))]);
    running.abort();
}

#[test]
fn a_guest_that_ends_or_goes_is_forgotten() {
    let mut gathered = Gathered::default();
    let ours = |node: &NodeName| node.as_str() == "a";
    let row = |name: &str, node: &str| -> PodRow { read(plain(name, node)) };
    assert!(gathered.pod(&Event::Apply(row("p", "a")), ours));
    assert!(!gathered.pod(&Event::Apply(row("p", "a")), ours), "said twice");
    assert!(!gathered.pod(&Event::Apply(row("q", "b")), ours));
    let mut ended = plain("p", "a");
    ended["status"]["phase"] = json!("Succeeded");
    assert!(gathered.pod(&Event::Apply(read(ended)), ours));
    assert!(gathered.known().is_empty());
    // Before the nodes are known, any may be ours.
    for event in [Event::Init, Event::InitApply(row("p", "a")), Event::InitApply(row("q", "b"))] {
        assert!(!gathered.pod(&event, |_| true));
    }
    assert!(gathered.pod(&Event::InitDone, |_| true));
    assert!(gathered.nodes_listed(ours));
    assert_eq!(gathered.known().into_keys().collect::<Vec<_>>(), ["ml/p"]);
    assert!(gathered.pod(&Event::Delete(row("p", "a")), ours));
}

#[test]
fn gpu_pods_are_known_with_their_owners_as_long_as_they_hold_a_node() {
    let mut claims = Claims::default();
    for event in [Event::Init, Event::InitApply(pod_row("p", "a")), Event::InitApply(read(plain("sidecar", "a")))] {
        assert!(!claims.pod(&event));
    }
    assert!(claims.known().is_empty(), "half a list is none");
    assert!(claims.pod(&Event::InitDone));
    let known = claims.known();
    let [one] = known.values().collect::<Vec<_>>()[..] else { panic!("{known:?}") };
    assert_eq!((one.pod.name.as_ref(), one.pod.owner.to_string(), one.pod.units), ("ml/p", "ml/p".to_owned(), Some(1)));
    assert!(!claims.pod(&Event::Apply(pod_row("p", "a"))), "nothing changed");
    assert!(claims.pod(&Event::Apply(pod_row("q", "b"))) && claims.known().len() == 2);
    assert!(claims.pod(&Event::Delete(pod_row("q", "b"))) && claims.known().len() == 1);
    // One that ended holds nothing.
    let mut ended = pod("p", "a");
    ended["status"]["phase"] = json!("Succeeded");
    assert!(claims.pod(&Event::Apply(read(ended))) && claims.known().is_empty());
}
