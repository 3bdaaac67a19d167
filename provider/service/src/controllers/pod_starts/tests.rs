use jiff::Timestamp;
use stoker_advice::rollup::{GpuPod, Owner, PodLabels};
use stoker_core::base::ids::NodeName;
use stoker_core::facts::snapshot::{Cordon, Hold, NodeFacts};

use super::*;
use crate::kube::feed::BoundGpuPod;
use crate::price_tables::PriceTables;
use crate::publish::view::GroupView;

const STARTS: Duration = Duration::from_secs(70);

fn pod(name: &str, uid: &str, started_after: Option<Duration>) -> (Arc<str>, BoundGpuPod) {
    let name: Arc<str> = Arc::from(name);
    let owner = Owner::of("ml", "x", None, None);
    let pod = GpuPod {
        name: Arc::clone(&name),
        uid: Some(uid.into()),
        owner,
        labels: PodLabels::default(),
        units: Some(1),
        started_after,
    };
    (name, BoundGpuPod { pod, asks: Arc::default() })
}

#[test]
fn a_pod_counts_once_when_it_has_started_and_what_ran_before_does_not() {
    let now: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
    let price_tables = PriceTables::load(None, None, now).unwrap();
    let catalogue = Arc::new(price_tables.catalogue(price_tables.policy(None).unwrap()));
    let group = Arc::clone(catalogue.groups.values().find(|group| group.pool.as_str() == "inference").unwrap());
    let mut view = View::starting(now, catalogue);
    view.groups.insert(group.id.clone(), Arc::new(GroupView::empty(&group)));
    let name = NodeName::new("n").unwrap();
    let node = NodeFacts {
        name: name.clone(),
        provider_id: None,
        group: Some(group.id.clone()),
        created_at: now,
        ready_since: Some(now),
        gpu_pods: ["ml/old", "ml/new"].map(str::to_owned).into(),
        scale_down_disabled: Hold::None,
        cordon: Cordon::None,
        allocatable: None,
        shown: None,
    };
    let cluster = ClusterFacts { nodes: [(name, Arc::new(node))].into() };
    let mut starts = Starts::default();
    let mut started = |pods: &[(Arc<str>, BoundGpuPod)]| starts.since_last(&cluster, &pods.iter().cloned().collect(), &view);
    let old = pod("ml/old", "u1", Some(STARTS));
    assert_eq!(started(&[old.clone(), pod("ml/new", "u2", None)]), []);
    let new = pod("ml/new", "u2", Some(STARTS));
    assert_eq!(started(&[old.clone(), new.clone()]), [(group.pool.clone(), STARTS)]);
    assert_eq!(started(&[old.clone(), new]), []);
    let again = pod("ml/new", "u3", Some(STARTS));
    assert_eq!(started(&[old, again]), [(group.pool.clone(), STARTS)], "another pod of that name");
}
