use std::collections::BTreeMap;

use jiff::SignedDuration;
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::Resources;
use stoker_core::market::sharing::Slices;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn node(name: &str, gpus: u32) -> NodeView {
    let has = Resources { milli_cpu: 8000, memory: MiB::from_gib(32), ephemeral: MiB::from_gib(100), pods: 3, gpus };
    NodeView {
        name: name.into(),
        provider_id: format!("sim://{name}"),
        labels: Arc::new([("pool".to_owned(), "p".to_owned())].into()),
        annotations: Arc::default(),
        taints: vec![Taint { key: "gpu".into(), value: "true".into(), effect: TaintEffect::NoSchedule }],
        unschedulable: false,
        ready_since: Some(at(0)),
        created_at: at(0),
        allocatable: has,
        capacity: has,
        slices: Slices::default(),
    }
}

fn pod(name: &str, gpus: u32) -> PodSpec {
    PodSpec {
        id: name.into(),
        requests: Requests { milli_cpu: 1000, memory: MiB::from_gib(1), gpus, ..Requests::default() },
        node_selector: BTreeMap::new(),
        node_affinity: BTreeMap::new(),
        tolerations: vec![Toleration::of_key("gpu")],
        movable: true,
    }
}

fn cluster(scoring: Scoring) -> MemoryCluster {
    let mut cluster = MemoryCluster::new(scoring);
    cluster.add_node(node("a", 4));
    cluster.add_node(node("b", 2));
    cluster
}

fn bound(cluster: &MemoryCluster, pod: &str) -> Option<String> {
    cluster.pod(pod).and_then(|pod| pod.node.clone())
}

#[test]
fn the_scheduler_fills_or_spreads_or_takes_the_first() {
    for (scoring, expected) in [(Scoring::MostAllocated, "b"), (Scoring::FirstFit, "a"), (Scoring::LeastAllocated, "a")] {
        let mut cluster = cluster(scoring);
        cluster.add_pod(pod("w", 1), at(1));
        assert_eq!(cluster.schedule(), [("w".to_owned(), expected.to_owned())]);
        assert!(cluster.schedule().is_empty());
    }
}

#[test]
fn a_pod_without_a_place_is_marked_until_there_is_one() {
    let mut cluster = cluster(Scoring::MostAllocated);
    cluster.add_pod(pod("w", 8), at(1));
    assert!(!cluster.pod("w").unwrap().is_waiting(), "not before the scheduler tried");
    cluster.schedule();
    assert!(cluster.pod("w").unwrap().is_waiting());
    cluster.add_node(node("c", 8));
    cluster.schedule();
    assert_eq!(bound(&cluster, "w").as_deref(), Some("c"));
}

#[test]
fn selectors_taints_readiness_and_the_number_of_pods_decide() {
    let mut cluster = MemoryCluster::new(Scoring::MostAllocated);
    cluster.add_node(node("a", 4));
    cluster.add_pod(PodSpec { tolerations: Vec::new(), ..pod("tainted", 1) }, at(1));
    cluster.add_pod(PodSpec { node_selector: [("pool".into(), "q".into())].into(), ..pod("elsewhere", 1) }, at(1));
    assert!(cluster.schedule().is_empty());
    for name in ["1", "2", "3", "4"] {
        cluster.add_pod(pod(name, 0), at(2));
    }
    cluster.set_ready("a", None);
    assert!(cluster.schedule().is_empty());
    cluster.set_ready("a", Some(at(3)));
    assert_eq!(cluster.schedule().len(), 3, "three pods a node");
}

#[test]
fn the_oldest_pod_is_served_first() {
    let mut cluster = cluster(Scoring::FirstFit);
    cluster.add_pod(pod("young", 4), at(9));
    cluster.add_pod(pod("old", 4), at(1));
    assert_eq!(cluster.schedule(), [("old".to_owned(), "a".to_owned())]);
}

#[test]
fn pods_of_a_lost_node_wait_again() {
    let mut cluster = cluster(Scoring::FirstFit);
    cluster.add_pod(pod("w", 1), at(1));
    cluster.schedule();
    assert_eq!(cluster.remove_node("a", at(50)), ["w"]);
    let pod = cluster.pod("w").unwrap();
    assert_eq!((pod.node.as_ref(), pod.created_at), (None, at(50)));
    assert!(cluster.remove_node("a", at(51)).is_empty());
    cluster.schedule();
    assert_eq!(bound(&cluster, "w").as_deref(), Some("b"));
}

#[test]
fn a_pod_that_ended_frees_its_place() {
    let mut cluster = cluster(Scoring::FirstFit);
    cluster.add_pod(pod("1", 4), at(1));
    cluster.add_pod(pod("2", 4), at(2));
    cluster.schedule();
    assert!(cluster.finish_pod("1").is_some());
    assert_eq!(cluster.schedule(), [("2".to_owned(), "a".to_owned())]);
}

#[test]
fn required_affinity_allows_any_of_its_values() {
    let mut cluster = MemoryCluster::new(Scoring::FirstFit);
    cluster.add_node(node("a", 4));
    let wants = |values: &[&str]| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        BTreeMap::from([("pool".to_owned(), values)])
    };
    cluster.add_pod(PodSpec { node_affinity: wants(&["q", "r"]), ..pod("elsewhere", 1) }, at(1));
    cluster.add_pod(PodSpec { node_affinity: wants(&["q", "p"]), ..pod("here", 1) }, at(1));
    assert_eq!(cluster.schedule(), [("here".to_owned(), "a".to_owned())]);
}

/// A pod that was marked and gets another toleration is tried again.
#[test]
fn a_pod_that_bears_more_is_tried_again() {
    let mut cluster = MemoryCluster::new(Scoring::FirstFit);
    cluster.add_node(node("a", 4));
    cluster.add_pod(PodSpec { tolerations: Vec::new(), ..pod("w", 1) }, at(1));
    assert!(cluster.schedule().is_empty());
    cluster.tolerate("w", [Toleration::of_key("gpu")]);
    assert_eq!(cluster.schedule().len(), 1);
}
