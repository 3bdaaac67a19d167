use super::*;
use crate::policy::Prometheus;
use crate::policy::rules::demand::Amount;

fn prometheus(value: Value) -> RawPolicy {
    with("/prometheus", value)
}

fn signals(value: Value) -> RawPolicy {
    with("/pools/1/signals", value)
}

#[test]
fn prometheus_is_asked_as_is_usual_unless_the_policy_says_otherwise() {
    let read = |raw: &RawPolicy| Policy::try_from_raw(raw).expect("no faults").prometheus;
    let usual = read(&with("/kind", json!("Policy")));
    assert_eq!((usual.interval.as_secs(), usual.stale_after.as_secs()), (15, 90));
    assert_eq!(usual.node_labels, ["Hostname", "hostname", "node", "instance"]);
    assert_eq!(read(&prometheus(json!({}))), usual);
    let own =
        json!({"interval": "30s", "staleAfter": "2m", "nodeLabels": ["exported_node"], "matchLabels": {"cluster": "prod"}});
    let expected = Prometheus {
        interval: SignedDuration::from_secs(30),
        stale_after: SignedDuration::from_secs(120),
        node_labels: vec!["exported_node".into()],
        match_labels: [("cluster".into(), "prod".into())].into(),
    };
    assert_eq!(read(&prometheus(own)), expected);
}

#[test]
fn faults_of_how_prometheus_is_asked_name_the_cure() {
    for (block, said) in [
        (json!({"interval": "4s"}), "prometheus.interval 4s is below 5s: raise it, exporters are hardly scraped faster"),
        (json!({"interval": "61s"}), "prometheus.interval 61s is above 1m: lower it, a reading is valid for 90 s at most"),
        (
            json!({"interval": "1m", "staleAfter": "30s"}),
            "prometheus.staleAfter 30s is not above the interval of 60s, so all would be unknown between rounds: raise it",
        ),
        (
            json!({"staleAfter": "11m"}),
            "prometheus.staleAfter 11m is above 10m: lower it, a node that is gone would still count as it was",
        ),
        (
            json!({"nodeLabels": ["node name"]}),
            "prometheus.nodeLabels[0] \"node name\" is not a label of Prometheus: write letters, digits and '_', such as Hostname",
        ),
        (json!({"nodeLabels": ["node", "node"]}), "prometheus.nodeLabels[1] \"node\" is listed twice: remove one"),
        (json!({"matchLabels": {"cluster": ""}}), "prometheus.matchLabels.cluster is empty: give a name"),
    ] {
        assert_eq!(faults(&prometheus(block)), [said]);
    }
}

#[test]
fn signals_are_kept_in_order_with_exact_amounts() {
    let raw = signals(json!([
        {"name": "queueDepth", "query": " sum(queue) ", "perReplica": 8},
        {"name": "qps", "query": "sum(rate(requests_total[1m]))", "perReplica": 0.5},
    ]));
    let policy = Policy::try_from_raw(&raw).expect("no faults");
    let [depth, qps] = policy.pools[1].signals.as_slice() else { panic!("two signals") };
    assert_eq!((depth.name.as_str(), depth.query.as_str(), depth.per_replica), ("queueDepth", "sum(queue)", Amount(8_000_000)));
    assert_eq!((qps.name.as_str(), qps.per_replica), ("qps", Amount(500_000)));
}

#[test]
fn faults_of_signals_name_the_cure() {
    let one = |name: &str, query: &str, per: Value| json!({"name": name, "query": query, "perReplica": per});
    for (list, said) in [
        (
            json!([one("a", "x", json!(1)), one("a", "y", json!(1))]),
            "pools[1].signals[1].name \"a\" is the name of signals[0] too: give each its own",
        ),
        (
            json!([one("queue depth", "x", json!(1))]),
            "pools[1].signals[0].name \"queue depth\" has other than letters, digits, '-' and '_': write it like queueDepth",
        ),
        (json!([one("a", " ", json!(1))]), "pools[1].signals[0].query is empty: write the PromQL that gives the signal"),
        (
            json!([one("a", "x", json!(0))]),
            "pools[1].signals[0].perReplica 0 is zero: write how much one replica takes, above 0",
        ),
        (
            json!([one("a", "x", json!(-2))]),
            "pools[1].signals[0].perReplica -2 is negative: write how much one replica takes, above 0",
        ),
        (
            json!([one("a", "x", json!(1e15))]),
            "pools[1].signals[0].perReplica 1000000000000000.0 is not a plain number up to a million million: write it like 8 or 0.5",
        ),
        (
            json!([one("a", &"x".repeat(4097), json!(1))]),
            "pools[1].signals[0].query has 4097 bytes, more than 4096: make it a recording rule and name that",
        ),
    ] {
        assert_eq!(faults(&signals(list)), [said]);
    }
    let many: Vec<_> = (0..17).map(|number| one(&format!("s{number}"), "x", json!(1))).collect();
    let said = "pools[1].signals has 17 signals, more than 16: join some into one query, as with max()";
    assert_eq!(faults(&signals(json!(many))), [said]);
}
