//! Warm floors.

use super::*;

/// Policies whose pool keeps two nodes warm, steered by floors.
fn with_floor() -> Policy {
    let mut policy = policy();
    policy.pools[0].warm_floor = Some(WarmFloor { nodes: 2, ..WarmFloor::default() });
    policy.karpenter.steer = [Lever::Floors].into();
    policy
}

#[tokio::test(start_paused = true)]
async fn a_floor_is_a_buffer_that_follows_it_and_goes_with_the_label() {
    let server = server(&Value::Null);
    for plural in ["capacitybuffers", "podtemplates"] {
        server.serve_kind(plural);
    }
    let (client, policy, book) = (server.client(), with_floor(), book());
    let (mut buffers, writer) = (FloorKeeper::new(&client), Writer::new(&client, false));
    let floors = |wanted| {
        let pool = PoolName::new("pool").unwrap();
        let (why, blocked) = (String::new(), None);
        vec![FloorStands { pool, wanted, why, warm: 0, coming: 0, usd_per_hour: UsdPerHour(0), unmet_since: None, blocked }]
    };
    let look = |labels: Value, floors: Option<&[FloorStands]>| {
        let mut pool = node_pool(&Value::Null);
        pool["metadata"]["labels"] = labels;
        pool["spec"]["template"]["spec"]["taints"] = json!([{ "key": "nvidia.com/gpu", "effect": "NoSchedule" }]);
        let tables = tables(pool, 0);
        let facts = tables.facts().unwrap();
        let inputs = Inputs { floors, ..Inputs::of(facts, &policy, &book, Instant::now()) };
        State::default().look(&inputs).floors
    };
    let named = || json!({ STEERED_LABEL: "true", RULES_LABEL: "pool" });
    let of = |plural: &str, group: &str| format!("/{group}/namespaces/default/{plural}/stoker-floor.gpu");
    let buffer = || server.get(&of("capacitybuffers", "apis/autoscaling.x-k8s.io/v1beta1"));
    let template = || server.get(&of("podtemplates", "api/v1"));
    assert!(look(json!({ STEERED_LABEL: "true" }), Some(&floors(2))).is_empty(), "no pool lends its rules");
    for (wanted, nodes) in [(Some(floors(2)), 2), (None, 2), (Some(floors(5)), 5)] {
        buffers.keep(&look(named(), wanted.as_deref()), &writer, Instant::now()).await;
        assert_eq!(buffer().unwrap()["spec"]["replicas"], nodes);
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    // Whoever rewrites it wins after three times.
    let path = of("capacitybuffers", "apis/autoscaling.x-k8s.io/v1beta1");
    for round in 0..3 {
        server.edit(&path, |buffer| buffer["spec"]["replicas"] = json!(1));
        let faults = buffers.keep(&look(named(), Some(&floors(5))), &writer, Instant::now()).await;
        assert_eq!(faults.0.is_empty(), round < 2, "{faults:?}");
        assert_eq!(buffer().unwrap()["spec"]["replicas"], if round < 2 { 5 } else { 1 });
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    buffers.keep(&BTreeMap::new(), &writer, Instant::now()).await;
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(10)).await;
        buffers.keep(&look(named(), Some(&floors(5))), &writer, Instant::now()).await;
    }
    let pod = template().unwrap()["template"]["spec"].clone();
    assert_eq!(pod["nodeSelector"], json!({ NODE_POOL: "gpu" }));
    assert_eq!(pod["tolerations"], json!([{ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }]));
    assert_eq!(pod["containers"][0]["resources"]["requests"], json!({ GPU: "1" }));
    tokio::time::advance(Duration::from_mins(1)).await;
    let ignored = buffers.keep(&look(named(), Some(&floors(5))), &writer, Instant::now()).await;
    assert!(ignored.0["CapacityBuffer stoker-floor.gpu"].contains("CapacityBuffer=true"), "{ignored:?}");
    tokio::time::advance(Duration::from_secs(10)).await;
    buffers.keep(&look(json!({}), Some(&floors(5))), &writer, Instant::now()).await;
    assert_eq!((buffer(), template()), (None, None));
}
