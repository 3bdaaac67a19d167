//! Nodes with unfit GPUs.

use super::*;

#[test]
fn a_node_with_unfit_gpus_bears_the_condition_that_karpenter_repairs_by_once_no_pod_is_there() {
    let mut policy = policy();
    policy.karpenter.steer = [Lever::Repair].into();
    let (mut book, start) = (book(), Timestamp::UNIX_EPOCH);
    let spec = InstanceSpec::clone(book.specs().find(|spec| spec.instance_type.as_str() == "g6.2xlarge").unwrap());
    book.insert_spec(InstanceSpec { cloud: Cloud::new("gcp").unwrap(), ..spec });
    let seen_with = |xids: &[u32]| {
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
        for code in xids {
            digest.happened(&NodeEvent { arrived: start, at: start, what: Happening::Xid { code: *code, gpu: None } });
        }
        SeenNodes::from([(NodeName::new("node-0").unwrap(), Arc::new(digest.seen().clone()))])
    };
    let (broken, well) = (seen_with(&[79]), seen_with(&[]));
    let mut repair = Repair::default();
    let mut at = |seconds: i64, seen: &SeenNodes, busy: bool, class: &str, condition: Option<(&str, &str)>| {
        let mut pool = node_pool(&Value::Null);
        pool["spec"]["template"]["spec"]["nodeClassRef"]["group"] = json!(class);
        let mut tables = tables(pool, 1);
        if let Some((status, reason)) = condition {
            let mut node = node(0);
            let one = json!({ "type": "AcceleratedHardwareReady", "status": status, "reason": reason });
            node["status"] = json!({ "conditions": [one, { "type": "DiskPressure", "status": "False" }] });
            tables.nodes.take(Event::Apply(serde_json::from_value(node).unwrap()));
        }
        let occupied = if busy { [NodeName::new("node-0").unwrap()].into() } else { BTreeSet::new() };
        let probed = Some(Probed { seen, now: start + jiff::SignedDuration::from_secs(seconds) });
        let (facts, occupied, now) = (tables.facts().unwrap(), Some(&occupied), Instant::now());
        let inputs = Inputs { facts, policy: &policy, book: &book, used: None, occupied, floors: None, probed, now };
        let (made, mut faults) = (reach::Known::default().of(&inputs), Faults::default());
        (repair.plan(&inputs, &made, &mut faults).pop().map(|(_, change)| change), faults)
    };
    let condemn = |why: &str| Some(repair::Change::Condemn { condition: "AcceleratedHardwareReady", why: why.to_owned() });
    let acquit = Some(repair::Change::Acquit { condition: "AcceleratedHardwareReady" });
    let ours = Some(("False", repair::REASON));
    assert_eq!(at(0, &broken, false, AWS, None).0, None);
    assert_eq!(at(299, &broken, false, AWS, None).0, None, "it may be over in five minutes");
    assert_eq!(at(300, &broken, true, AWS, None).0, None, "a pod is waited for");
    assert_eq!(at(301, &broken, false, AWS, None).0, condemn("XID 79 on a GPU"));
    assert_eq!(at(302, &broken, false, AWS, ours).0, None);
    assert_eq!(at(303, &broken, true, AWS, ours).0, acquit, "a pod has come");
    // It is trusted again after five minutes without a fault.
    assert_eq!(at(400, &well, false, AWS, ours).0, None);
    assert_eq!(at(700, &well, false, AWS, ours).0, acquit);
    // Whose condition it is else is nobody's to change.
    at(800, &broken, false, AWS, None);
    let (change, faults) = at(1_200, &broken, false, AWS, Some(("True", "NodeMonitoringAgent")));
    assert!(change.is_none() && faults.0["Node node-0"].contains("XID 79 on a GPU; somebody else keeps"), "{faults:?}");
    assert_eq!(at(1_201, &broken, false, AWS, Some(("False", "NodeMonitoringAgent"))), (None, Faults::default()));
    let (_, faults) = at(1_202, &broken, false, "karpenter.k8s.gcp", None);
    assert!(faults.0.contains_key("NodePool gpu"), "{faults:?}");
}

#[tokio::test]
async fn a_condition_is_set_next_to_those_of_others_and_taken_back() {
    let server = server(&Value::Null);
    server
        .edit("/api/v1/nodes/node-0", |node| node["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True" }] }));
    let (client, condition) = (server.client(), "AcceleratedHardwareReady");
    let writer = Writer::new(&client, false);
    let change = repair::Change::Condemn { condition, why: "XID 79".to_owned() };
    let node: Node = read(&client, "node-0").await;
    let written = writer.set_condition(&node, &change, Timestamp::UNIX_EPOCH).await.unwrap().unwrap();
    assert_eq!(repair::condemned(&written), Some(condition));
    assert!(written.status.condition("Ready").is_some());
    let [row] = &clean(&client, false).await[..] else { panic!() };
    assert_eq!((row.what.as_str(), &row.fault), ("condition AcceleratedHardwareReady", &None));
    let node: Node = read(&client, "node-0").await;
    assert_eq!(repair::condemned(&node), None);
    assert!(node.status.condition("Ready").is_some());
}
