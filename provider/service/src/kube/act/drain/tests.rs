use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use serde_json::Value;
use stoker_fake_apiserver::{ApiServer, Call, failure};

use super::*;
use crate::kube::SYSTEM_NAMESPACES;

const NODE: &str = "/api/v1/nodes/n";

fn path(pod: &str) -> String {
    format!("/api/v1/namespaces/ml/pods/{pod}")
}

/// A server with one Node and its pods.
struct Server {
    api: ApiServer,
    /// Pods that a disruption budget protects.
    protected: Arc<Mutex<Vec<&'static str>>>,
    writes: Mutex<Vec<Call>>,
}

impl Server {
    fn new(pods: &[Value]) -> Self {
        let api = ApiServer::new(jiff::Timestamp::now);
        api.put(NODE, json!({ "metadata": { "annotations": {} }, "spec": { "providerID": "sim://1" } }));
        for pod in pods {
            api.put(&path(pod["metadata"]["name"].as_str().unwrap()), pod.clone());
        }
        let protected = Arc::<Mutex<Vec<&'static str>>>::default();
        let budget = Arc::clone(&protected);
        api.answer(move |_, call| {
            match call.method {
                Method::GET if call.path == "/api/v1/pods" => {
                    let wanted = "spec.nodeName=n,status.phase!=Succeeded,status.phase!=Failed";
                    assert_eq!(call.param("fieldSelector"), Some(wanted));
                }
                Method::GET => {}
                Method::PATCH => assert!(call.body["metadata"]["resourceVersion"].is_string(), "{}", call.body),
                Method::POST => {
                    assert!(call.body["deleteOptions"]["preconditions"]["uid"].is_string(), "{}", call.body);
                    if budget.lock().unwrap().iter().any(|pod| call.path == format!("{}/eviction", path(pod))) {
                        return Some(failure(StatusCode::TOO_MANY_REQUESTS, "the budget forbids it"));
                    }
                }
                Method::DELETE => assert!(call.body["preconditions"]["uid"].is_string(), "{}", call.body),
                ref other => panic!("{other}"),
            }
            None
        });
        Self { api, protected, writes: Mutex::default() }
    }

    fn act(&self) -> KubeAct {
        KubeAct::new(&self.api.client(), "default")
    }

    /// Each pod that was told to go: how, and with how many seconds where not its own.
    fn told(&self) -> Vec<(String, &'static str, Option<u64>)> {
        let mut writes = self.writes.lock().unwrap();
        writes.extend(self.api.take_writes());
        let name = |path: &str| path.trim_end_matches("/eviction").rsplit('/').next().unwrap().to_owned();
        let told = writes.iter().filter_map(|call| match call.method {
            Method::POST => Some((name(&call.path), "evicted", call.body["deleteOptions"]["gracePeriodSeconds"].as_u64())),
            Method::DELETE => Some((name(&call.path), "deleted", call.body["gracePeriodSeconds"].as_u64())),
            _ => None,
        });
        told.collect()
    }

    /// The same, by name; of each the last.
    fn given(&self) -> Vec<(String, &'static str, Option<u64>)> {
        let given: BTreeMap<_, _> = self.told().into_iter().map(|(name, how, seconds)| (name, (how, seconds))).collect();
        given.into_iter().map(|(name, (how, seconds))| (name, how, seconds)).collect()
    }

    /// The evicted, in order.
    fn evictions(&self) -> Vec<String> {
        self.told().into_iter().filter(|(_, how, _)| *how == "evicted").map(|(name, ..)| name).collect()
    }

    /// Whether the node is closed, and whether it bears our mark.
    fn closed(&self) -> (bool, bool) {
        let node = self.api.get(NODE).unwrap();
        (node["spec"]["unschedulable"] == true, node["metadata"]["annotations"][DRAINING] == "true")
    }
}

fn pod(name: &str, owner: Option<&str>, gpus: u32) -> Value {
    let owners = owner.map(|kind| json!([{ "kind": kind, "controller": true, "name": "o", "uid": "o" }]));
    json!({
        "metadata": { "name": name, "ownerReferences": owners, "annotations": {} },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } } }] },
        "status": { "phase": "Running" },
    })
}

fn name() -> NodeName {
    NodeName::new("n").unwrap()
}

fn machine(id: &str) -> ProviderId {
    ProviderId::new(id).unwrap()
}

async fn drained(server: &Server, evict: Evict) -> Emptied {
    let act = server.act();
    let closed = act.close(&name(), &machine("sim://1"), evict).await.unwrap();
    assert!(matches!(closed, Outcome::Done | Outcome::Already));
    act.evict_pods(&name(), evict, None).await.unwrap()
}

/// All of them, with so many seconds left.
async fn hurried(server: &Server, seconds: i64) -> Emptied {
    server.act().evict_pods(&name(), Evict::All, Some(SignedDuration::from_secs(seconds))).await.unwrap()
}

/// A pod that takes so many seconds to end.
fn slow_pod(name: &str, grace: u32) -> Value {
    let mut pod = pod(name, Some("Job"), 1);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(grace);
    pod
}

#[tokio::test]
async fn a_node_is_closed_under_our_mark_and_opened_again_once() {
    let server = Server::new(&[]);
    let act = server.act();
    assert_eq!(act.close(&name(), &machine("sim://2"), Evict::All).await.unwrap(), Outcome::NotOurs);
    assert_eq!(server.closed(), (false, false));
    assert_eq!(act.close(&name(), &machine("sim://1"), Evict::Movable).await.unwrap(), Outcome::Done);
    assert_eq!(act.close(&name(), &machine("sim://1"), Evict::Movable).await.unwrap(), Outcome::Already);
    assert_eq!(server.closed(), (true, true));
    assert_eq!(act.uncordon(&name(), &machine("sim://2")).await.unwrap(), Outcome::NotOurs);
    assert_eq!(act.uncordon(&name(), &machine("sim://1")).await.unwrap(), Outcome::Done);
    assert_eq!(act.uncordon(&name(), &machine("sim://1")).await.unwrap(), Outcome::Already);
    assert_eq!(server.closed(), (false, false));
}

#[tokio::test]
async fn a_node_that_somebody_else_closed_stays_theirs() {
    let server = Server::new(&[]);
    server.api.edit(NODE, |node| node["spec"]["unschedulable"] = json!(true));
    let act = server.act();
    assert_eq!(act.close(&name(), &machine("sim://1"), Evict::All).await.unwrap(), Outcome::Already);
    assert_eq!(act.uncordon(&name(), &machine("sim://1")).await.unwrap(), Outcome::NotOurs);
    assert_eq!(server.closed(), (true, false));
}

#[tokio::test]
async fn a_node_that_somebody_opened_after_us_stays_open_but_where_its_machine_ends() {
    let server = Server::new(&[]);
    server.api.edit(NODE, |node| node["metadata"]["annotations"] = json!({ DRAINING: "true" }));
    let act = server.act();
    assert_eq!(act.close(&name(), &machine("sim://2"), Evict::Movable).await.unwrap(), Outcome::NotOurs);
    assert_eq!(act.close(&name(), &machine("sim://1"), Evict::Movable).await.unwrap(), Outcome::Reopened);
    assert_eq!(act.close(&name(), &machine("sim://1"), Evict::All).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn a_node_that_is_closed_after_our_mark_was_taken_off_stays_closed() {
    let server = Server::new(&[]);
    let act = server.act();
    assert_eq!(act.close(&name(), &machine("sim://1"), Evict::Movable).await.unwrap(), Outcome::Done);
    // Opened by hand: our mark stays on it.
    server.api.edit(NODE, |node| node["spec"]["unschedulable"] = json!(false));
    assert_eq!(act.uncordon(&name(), &machine("sim://1")).await.unwrap(), Outcome::Done);
    assert_eq!(server.closed(), (false, false));
    // Closed by hand.
    server.api.edit(NODE, |node| node["spec"]["unschedulable"] = json!(true));
    assert_eq!(act.uncordon(&name(), &machine("sim://1")).await.unwrap(), Outcome::NotOurs);
    assert_eq!(server.closed(), (true, false));
}

#[tokio::test]
async fn pods_are_told_once_and_counted_until_they_are_gone() {
    let mirror = {
        let mut pod = pod("mirror", None, 0);
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
        pod
    };
    let server = Server::new(&[
        pod("train-0", Some("Job"), 1),
        pod("side", Some("ReplicaSet"), 0),
        pod("plugin", Some("DaemonSet"), 1),
        mirror,
    ]);
    assert_eq!(drained(&server, Evict::Movable).await, Emptied { evicted: 2, left: 2, stuck: None });
    assert_eq!(drained(&server, Evict::Movable).await, Emptied { evicted: 0, left: 2, stuck: None }, "on their way out");
    assert_eq!(server.evictions(), ["side", "train-0"]);
    for gone in ["side", "train-0"] {
        server.api.remove(&path(gone));
    }
    assert_eq!(drained(&server, Evict::Movable).await, Emptied { evicted: 0, left: 0, stuck: None });
}

#[tokio::test]
async fn a_pod_that_claims_something_keeps_a_node_that_seemed_idle() {
    let mut claiming = pod("dra", Some("Job"), 0);
    claiming["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimName": "one" }]);
    let server = Server::new(&[claiming]);
    let stuck = Some(Stuck::NotNow("ml/dra was scheduled meanwhile".to_owned()));
    assert_eq!(drained(&server, Evict::WithoutGpu).await, Emptied { evicted: 0, left: 1, stuck });
    assert!(server.evictions().is_empty());
}

#[tokio::test]
async fn a_disruption_budget_is_obeyed_and_asked_again() {
    let server = Server::new(&[pod("a", Some("Job"), 1), pod("b", Some("Job"), 1)]);
    *server.protected.lock().unwrap() = vec!["a"];
    let stuck = Some(Stuck::NotNow("ml/a: the budget forbids it".to_owned()));
    assert_eq!(drained(&server, Evict::All).await, Emptied { evicted: 1, left: 2, stuck });
    server.protected.lock().unwrap().clear();
    assert_eq!(drained(&server, Evict::All).await, Emptied { evicted: 1, left: 2, stuck: None });
    assert_eq!(server.evictions(), ["b", "a"]);
}

#[tokio::test]
async fn a_pod_that_may_not_be_moved_keeps_its_node_but_where_the_machine_ends() {
    let annotated = |key: &str, value: &str| {
        let mut pod = pod("fixed", Some("Job"), 1);
        pod["metadata"]["annotations"] = json!({ key: value });
        pod
    };
    for (fixed, why) in [
        (pod("fixed", None, 1), "has no controller that would recreate it"),
        (
            annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
            "is annotated cluster-autoscaler.kubernetes.io/safe-to-evict=false",
        ),
        (annotated("karpenter.sh/do-not-disrupt", "true"), "is annotated karpenter.sh/do-not-disrupt=true"),
    ] {
        let server = Server::new(&[pod("a", Some("Job"), 1), fixed]);
        let stuck = Some(Stuck::Never(format!("ml/fixed {why}")));
        assert_eq!(drained(&server, Evict::Movable).await, Emptied { evicted: 0, left: 2, stuck });
        assert!(server.evictions().is_empty(), "none of them is told");
        assert_eq!(drained(&server, Evict::All).await.evicted, 2);
    }
}

#[tokio::test]
async fn a_pod_of_a_system_namespace_is_never_told_to_go() {
    for namespace in SYSTEM_NAMESPACES {
        let server = Server::new(&[pod("a", Some("Job"), 1)]);
        server.api.put(&format!("/api/v1/namespaces/{namespace}/pods/dns"), pod("dns", Some("ReplicaSet"), 0));
        let stuck = Some(Stuck::Never(format!("{namespace}/dns is of a system namespace")));
        assert_eq!(drained(&server, Evict::Movable).await, Emptied { evicted: 0, left: 2, stuck });
        // Where the machine ends it ends with it, late or not.
        assert_eq!(drained(&server, Evict::All).await, Emptied { evicted: 1, left: 2, stuck: None });
        assert_eq!(hurried(&server, 1).await.stuck, None);
        assert!(server.told().iter().all(|(name, ..)| name == "a"), "{:?}", server.told());
    }
}

#[tokio::test]
async fn a_pod_with_a_gpu_that_has_come_meanwhile_keeps_an_idle_node() {
    let server = Server::new(&[pod("late", Some("Job"), 1), pod("side", Some("Job"), 0)]);
    let stuck = Some(Stuck::NotNow("ml/late was scheduled meanwhile".to_owned()));
    assert_eq!(drained(&server, Evict::WithoutGpu).await, Emptied { evicted: 0, left: 2, stuck });
    server.api.remove(&path("late"));
    assert_eq!(drained(&server, Evict::WithoutGpu).await, Emptied { evicted: 1, left: 1, stuck: None });
}

#[tokio::test]
async fn pods_of_a_machine_that_ends_get_what_is_left_of_its_time_and_no_more_than_their_own() {
    let server = Server::new(&[slow_pod("quick", 30), slow_pod("slow", 600), pod("usual", Some("Job"), 1)]);
    assert_eq!(hurried(&server, 110).await, Emptied { evicted: 3, left: 3, stuck: None });
    // What has passed since is less than a second, and seconds are cut: 110 or 109.
    let given = server.given();
    assert_eq!(given[0], ("quick".to_owned(), "evicted", None));
    assert!(matches!(given[1], (_, "evicted", Some(109 | 110))), "{given:?}");
    assert_eq!(given[2], ("usual".to_owned(), "evicted", None), "30 s where it does not say");
    let late = Server::new(&[slow_pod("late", 30), slow_pod("at-once", 0)]);
    hurried(&late, -5).await;
    let given = late.given();
    assert_eq!(given[0], ("at-once".to_owned(), "evicted", None));
    assert_eq!(given[1], ("late".to_owned(), "evicted", Some(1)), "never nought: that would end it without a word");
}

#[tokio::test]
async fn a_budget_is_obeyed_until_waiting_would_cost_a_pod_of_its_own_time() {
    let server = Server::new(&[slow_pod("short", 5), slow_pod("long", 60)]);
    *server.protected.lock().unwrap() = vec!["short", "long"];
    // In ten seconds there are 70 left, enough for the longer one.
    let stuck = Some(Stuck::NotNow("ml/long: the budget forbids it".to_owned()));
    assert_eq!(hurried(&server, 80).await, Emptied { evicted: 0, left: 2, stuck });
    // In ten seconds there would be 55 left of its 60.
    let stuck = Some(Stuck::NotNow("ml/short: the budget forbids it".to_owned()));
    assert_eq!(hurried(&server, 65).await, Emptied { evicted: 1, left: 2, stuck });
    assert_eq!(server.given(), [("long".to_owned(), "deleted", None)], "with all of its time");
    assert_eq!(hurried(&server, 3).await, Emptied { evicted: 1, left: 2, stuck: None });
    assert!(matches!(server.given()[1], (_, "deleted", Some(2 | 3))), "{:?}", server.given());
    assert!(server.evictions().is_empty());
}

#[tokio::test]
async fn a_node_that_is_only_closed_keeps_its_pods() {
    let server = Server::new(&[pod("a", Some("Job"), 1), pod("plugin", Some("DaemonSet"), 1)]);
    assert_eq!(drained(&server, Evict::Nobody).await, Emptied { evicted: 0, left: 1, stuck: None });
    assert_eq!(server.closed(), (true, true));
    assert!(server.evictions().is_empty());
}
