//! Nodes with unfit GPUs.

use stoker_core::facts::reading::digest::Digest;
use stoker_core::facts::reading::{DriverState, Happening, Measured, NodeEvent, NodeReading, Source};
use stoker_service::feeds::probes::SeenNodes;

use super::*;

fn named(number: u32) -> NodeName {
    NodeName::new(format!("node-{number}")).unwrap()
}

/// What probes have seen of a Node with that error, or with none.
fn seen(xid: Option<u32>) -> Arc<stoker_core::facts::reading::seen::Seen> {
    let start = Timestamp::UNIX_EPOCH;
    let mut digest = Digest::new(Source::Probe, start);
    let reading = NodeReading {
        arrived: start,
        source: Source::Probe,
        driver: DriverState::Ready,
        counted: Measured::Known(0),
        gpus: BTreeMap::new(),
        gates: BTreeMap::new(),
    };
    digest.read(&reading, None);
    if let Some(code) = xid {
        digest.happened(&NodeEvent { arrived: start, at: start, what: Happening::Xid { code, gpu: None } });
    }
    Arc::new(digest.seen().clone())
}

/// A cluster whose nodes are repaired.
struct Ward {
    repair: Repair,
    book: PriceBook,
    policy: Policy,
    class: &'static str,
    /// As many Nodes.
    nodes: u32,
    /// Those with an error.
    broken: BTreeSet<u32>,
    /// Those with GPU pods.
    busy: BTreeSet<u32>,
    /// The conditions that Nodes bear, by status and reason.
    conditions: BTreeMap<u32, (&'static str, &'static str)>,
}

impl Ward {
    fn of(nodes: u32) -> Self {
        let (mut policy, mut book) = (policy(), book());
        policy.karpenter.steer = [Lever::Repair].into();
        let spec = InstanceSpec::clone(book.specs().find(|spec| spec.instance_type.as_str() == "g6.2xlarge").unwrap());
        book.insert_spec(InstanceSpec { cloud: Cloud::new("gcp").unwrap(), ..spec });
        let (broken, busy, conditions) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { repair: Repair::default(), book, policy, class: AWS, nodes, broken, busy, conditions }
    }

    fn at(&mut self, seconds: i64) -> (Vec<(String, repair::Change)>, Faults) {
        let mut pool = node_pool(&Value::Null);
        pool["spec"]["template"]["spec"]["nodeClassRef"]["group"] = json!(self.class);
        let mut tables = tables(pool, self.nodes);
        for (number, (status, reason)) in &self.conditions {
            let mut node = node(*number);
            let one = json!({ "type": "AcceleratedHardwareReady", "status": status, "reason": reason });
            node["status"] = json!({ "conditions": [one, { "type": "DiskPressure", "status": "False" }] });
            tables.nodes.take(Event::Apply(serde_json::from_value(node).unwrap()));
        }
        let seen: SeenNodes =
            (0..self.nodes).map(|number| (named(number), seen(self.broken.contains(&number).then_some(79)))).collect();
        let occupied: BTreeSet<_> = self.busy.iter().map(|number| named(*number)).collect();
        let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(seconds);
        let inputs = Inputs {
            occupied: Some(&occupied),
            probed: Some(Probed { seen: &seen, now }),
            ..Inputs::of(tables.facts().unwrap(), &self.policy, &self.book, Instant::now())
        };
        let (made, mut faults) = (reach::Known::default().of(&inputs), Faults::default());
        (self.repair.plan(&inputs, &made, &mut faults), faults)
    }
}

const CONDITION: &str = "AcceleratedHardwareReady";
const OURS: (&str, &str) = ("False", repair::REASON);

fn condemned(number: u32) -> (String, repair::Change) {
    (format!("node-{number}"), repair::Change::Set { condition: CONDITION, why: "XID 79 on a GPU".to_owned() })
}

fn acquitted(number: u32) -> (String, repair::Change) {
    (format!("node-{number}"), repair::Change::Clear { condition: CONDITION })
}

#[test]
fn a_node_with_unfit_gpus_bears_the_condition_that_karpenter_repairs_by_once_no_pod_is_there() {
    let mut ward = Ward { broken: [0].into(), ..Ward::of(1) };
    assert_eq!(ward.at(0), (vec![], Faults::default()));
    assert_eq!(ward.at(299).0, [], "it may be over in five minutes");
    ward.busy = [0].into();
    let (changes, faults) = ward.at(300);
    assert!(changes.is_empty() && faults.0["Node node-0"].contains("(XID 79 on a GPU), and it is not repaired"), "{faults:?}");
    ward.busy.clear();
    assert_eq!(ward.at(301).0, [], "the next pod may come at once");
    assert_eq!(ward.at(421).0, [condemned(0)]);
    ward.conditions = [(0, OURS)].into();
    assert_eq!(ward.at(422), (vec![], Faults::default()));
    ward.busy = [0].into();
    assert_eq!(ward.at(423).0, [acquitted(0)], "a pod has come");
    (ward.busy, ward.conditions) = (BTreeSet::new(), BTreeMap::new());
    assert_eq!(ward.at(424).0, []);
    assert_eq!(ward.at(544).0, [condemned(0)]);
    // It is trusted again after five minutes without a fault, also by a Stoker that was started meanwhile.
    (ward.conditions, ward.broken) = ([(0, OURS)].into(), BTreeSet::new());
    ward.repair = Repair::default();
    assert_eq!(ward.at(600).0, []);
    assert_eq!(ward.at(899).0, []);
    assert_eq!(ward.at(900).0, [acquitted(0)]);
}

#[test]
fn whose_condition_it_is_else_is_nobodys_to_change() {
    let mut ward = Ward { broken: [0].into(), ..Ward::of(1) };
    ward.at(0);
    ward.conditions = [(0, ("True", "NodeMonitoringAgent"))].into();
    let (changes, faults) = ward.at(400);
    assert!(changes.is_empty() && faults.0["Node node-0"].contains("somebody else keeps its condition"), "{faults:?}");
    ward.conditions = [(0, ("False", "NodeMonitoringAgent"))].into();
    assert_eq!(ward.at(401), (vec![], Faults::default()));
    ward.conditions.clear();
    ward.class = "karpenter.k8s.gcp";
    assert!(ward.at(402).1.0["NodePool gpu"].contains("replaces none for its GPUs"));
}

#[test]
fn few_are_given_up_at_once_and_none_where_many_are_unhealthy() {
    let mut ward = Ward { broken: [0, 1].into(), ..Ward::of(20) };
    ward.at(0);
    assert_eq!(ward.at(300).0, [condemned(0), condemned(1)]);
    ward.conditions = [(0, OURS), (1, OURS)].into();
    // Two an hour, by the defaults of `unhealthy.maxReplacements`.
    ward.broken.insert(2);
    ward.at(301);
    let (changes, faults) = ward.at(700);
    assert!(changes.is_empty() && faults.0["NodePool gpu"].contains("3 of its 20 nodes are unhealthy, 2 were given up"));
    let mut many = Ward { broken: (0..5).collect(), ..Ward::of(20) };
    many.at(0);
    assert!(many.at(300).0.is_empty(), "more than a fifth is hardly their hardware");
}

#[tokio::test]
async fn a_condition_is_set_next_to_those_of_others_and_taken_back() {
    let server = server(&Value::Null);
    server.edit("/api/v1/nodes/node-0", |node| {
        node["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    });
    let client = server.client();
    let writer = Writer::new(&client, false);
    let change = repair::Change::Set { condition: CONDITION, why: "XID 79".to_owned() };
    let node: Node = read(&client, "node-0").await;
    let written = writer.set_condition(&node, &change, Timestamp::UNIX_EPOCH).await.unwrap().unwrap();
    assert_eq!(repair::own_condition(&written), Some(CONDITION));
    assert!(written.status.condition("Ready").is_some());
    let [row] = &clean(&client, false).await[..] else { panic!() };
    assert_eq!((row.what.as_str(), &row.fault), ("condition AcceleratedHardwareReady", &None));
    let node: Node = read(&client, "node-0").await;
    assert_eq!(repair::own_condition(&node), None);
    assert!(node.status.condition("Ready").is_some());
}
