use serde_json::{Value, json};

use super::*;
use crate::base::engine_clock::Wall;
use crate::market::offer::CapacityType::OnDemand;
use crate::testing::{L4, Row, catalogue, now};

/// An L4 at $0.80 on demand.
const ONE_ZONE: [Row; 1] = [(L4, "use1-az1", OnDemand, 800_000)];

fn pool(limits: &Value) -> Value {
    json!({ "workload": "training", "gpu": { "models": ["L4"] }, "capacity": { "prefer": ["on-demand"] }, "limits": limits })
}

fn told(limits: &Value, quotas: &Value) -> Vec<String> {
    warnings(&catalogue(&pool(limits), quotas, &ONE_ZONE), Wall(now())).iter().map(ToString::to_string).collect()
}

fn quota(limit: u32, used: u32) -> Value {
    json!([{ "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": limit, "used": used }])
}

#[test]
fn a_floor_that_its_limits_do_not_let_through_is_told() {
    // Three nodes are 12 vCPU and $2.40.
    let floor = |usd: f64| json!({ "minNodes": 3, "maxNodes": 9, "maxUsdPerHour": usd });
    assert_eq!(told(&floor(2.4), &quota(36, 0)), Vec::<String>::new());
    assert_eq!(
        told(&floor(2.3), &quota(36, 0)),
        ["pool pool: only 2 of limits.minNodes 3 can be bought (limits.maxUsdPerHour: $1.6000/h of $2.3000/h spent, one \
          more costs $0.8000/h): lower it, or raise the limit that prevents it"]
    );
    // The budget and the quota stop the second.
    assert_eq!(
        told(&floor(1.0), &quota(4, 0)),
        [
            "pool pool: only 1 of limits.minNodes 3 can be bought (limits.maxUsdPerHour: $0.8000/h of $1.0000/h spent, one more costs \
          $0.8000/h; quota L-DB2E81BA us-east-1: 0 of 4 vCPU left, 4 in flight, one more needs 4): lower it, or raise the limit that prevents it"
        ]
    );
    // None at all: what bars the one offer.
    let none = told(&floor(2.4), &quota(3, 0));
    assert_eq!(none.len(), 1);
    assert!(
        none[0].contains("only 0 of limits.minNodes 3 can be bought (quota L-DB2E81BA us-east-1: 3 of 3 vCPU left"),
        "{none:?}"
    );
}

#[test]
fn a_warm_floor_that_its_limits_do_not_let_through_is_told() {
    let warm = |off: Value| {
        let mut pool = pool(&json!({ "minNodes": 1, "maxNodes": 9, "maxUsdPerHour": 1.7 }));
        pool["warmFloor"] = json!({ "nodes": 3 });
        pool["offHours"] = off;
        let told = warnings(&catalogue(&pool, &json!([]), &ONE_ZONE), Wall(now()));
        told.iter().map(|warning| warning.to_string()[..60].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(warm(Value::Null), ["pool pool: only 2 of warmFloor.nodes 3 can be bought (limits"]);
    // In its off-hours a pool is not to have them.
    let nearly_always = json!({ "schedule": [{ "cron": "0 * * * *", "for": "59m" }], "maxNodes": 1 });
    assert_eq!(warm(nearly_always), Vec::<String>::new());
}

#[test]
fn what_commitments_pay_for_is_counted_in_a_floor() {
    let catalogue = catalogue(&pool(&json!({ "minNodes": 3, "maxNodes": 9, "maxUsdPerHour": 1.7 })), &json!([]), &ONE_ZONE);
    assert_eq!(warnings(&catalogue, Wall(now())).len(), 1, "$2.40 are above $1.70");
    let covered = |until: Value| {
        let mut policy = Policy::clone(&catalogue.policy);
        let raw = json!([{ "name": "ri", "cloud": "aws", "kind": "reserved-instance", "region": "us-east-1",
                           "instanceType": "g6.xlarge", "nodes": 1, "usdPerHour": 0.5, "until": until }]);
        policy.commitments = crate::testing::commitments(&raw);
        warnings(&catalogue.under(std::sync::Arc::new(policy)), Wall(now())).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(covered(json!("2027-01-01T00:00:00Z")), Vec::<String>::new(), "two nodes cost cash: $1.60");
    let ended = covered(json!("2026-10-01T00:00:00Z"));
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert_eq!(
        ended[1],
        "commitment ri ended at 2026-10-01T00:00:00Z and no longer counts: remove it, or write when its successor ends"
    );
}

#[test]
fn floors_that_fit_one_by_one_are_told_where_they_do_not_fit_together() {
    let catalogue = catalogue(&pool(&json!({ "minNodes": 2, "maxNodes": 3 })), &quota(12, 0), &ONE_ZONE);
    let mut policy = Policy::clone(&catalogue.policy);
    let mut other = policy.pools[0].clone();
    other.name = PoolName::new("other").unwrap();
    policy.pools.push(other);
    let catalogue = crate::testing::catalogue_of(policy, &ONE_ZONE);
    // Two nodes of each are 16 vCPU; 12 hold three.
    assert_eq!(
        warnings(&catalogue, Wall(now())),
        [Warning::FloorBesideOthers { pool: PoolName::new("other").unwrap(), field: "limits.minNodes", min: 2, found: 1 }]
    );
}

#[test]
fn a_quota_that_others_overdraw_is_told() {
    assert_eq!(
        told(&json!({ "maxNodes": 9 }), &quota(8, 12))[1..],
        [
            "quota L-DB2E81BA us-east-1: used 12 is above its limit of 8 vCPU, so nothing is bought under it: write what the cloud shows for both"
        ]
    );
    assert!(!told(&json!({ "maxNodes": 9 }), &quota(8, 8)).iter().any(|warning| warning.contains("above its limit")));
}

#[test]
fn a_pool_that_can_buy_nothing_is_told() {
    let reserved = json!({ "workload": "training", "gpu": { "models": ["L4"] }, "capacity": { "prefer": ["reserved"] }, "limits": { "maxNodes": 9 } });
    let told_of = |pool: &Value| {
        let told = warnings(&catalogue(pool, &json!([]), &ONE_ZONE), Wall(now()));
        told.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        told_of(&reserved),
        [
            "pool pool: no node can ever be bought (no reservation covers it: add one under commitments): change what prevents it, or \
          remove the pool"
        ]
    );
    let poor = told_of(&pool(&json!({ "maxNodes": 9, "maxUsdPerHour": 0.5 })));
    assert!(poor.len() == 1 && poor[0].contains("no node can ever be bought (limits.maxUsdPerHour"), "{poor:?}");
    // All of the quota is kept back.
    let safety = json!([{ "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 8, "safety": 8 }]);
    let kept = told(&json!({ "maxNodes": 9 }), &safety);
    assert!(kept.len() == 1 && kept[0].contains("no node can ever be bought (quota L-DB2E81BA"), "{kept:?}");
}

#[test]
fn a_pool_that_never_comes_to_its_most_nodes_is_told_unless_money_is_what_stops_it() {
    assert_eq!(told(&json!({ "maxNodes": 9, "maxUsdPerHour": 1.6 }), &quota(36, 0)), Vec::<String>::new());
    let two = told(&json!({ "maxNodes": 40, "maxUsdPerHour": 1.6 }), &quota(8, 0));
    assert!(
        two.len() == 1 && two[0].starts_with("pool pool: only 2 of limits.maxNodes 40 can be bought (quota L-DB2E81BA"),
        "{two:?}"
    );
    // A fifth of the pool in each market, and there is one market.
    let spot = json!({ "workload": "training", "gpu": { "models": ["L4"] },
                       "capacity": { "prefer": ["spot"], "spot": { "maxMarketShare": "20%" } }, "limits": { "maxNodes": 10 } });
    let told = warnings(&catalogue(&spot, &json!([]), &[(L4, "use1-az1", CapacityType::Spot, 300_000)]), Wall(now()));
    assert!(matches!(&told[..], [Warning::MaxNodes { max: 10, found: 1, .. }]), "{told:?}");
}

#[test]
fn a_save_that_a_notice_leaves_no_time_for_is_told() {
    let told = |save: &str, clouds: &[&str]| {
        let raw = json!({
            "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test",
            "pools": [{ "name": "pool", "workload": "training", "gpu": { "models": ["L4"] },
                        "where": { "clouds": clouds, "regions": ["us-east-1"] },
                        "capacity": { "prefer": ["spot"], "spot": { "checkpointSave": save } }, "limits": { "maxNodes": 9 } }],
        });
        let policy = Policy::try_from_raw(&serde_json::from_value(raw).unwrap()).unwrap();
        let catalogue = crate::testing::catalogue_of(policy, &[(L4, "use1-az1", CapacityType::Spot, 300_000)]);
        warnings(&catalogue, Wall(now())).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(told("110s", &["aws"]), Vec::<String>::new());
    assert_eq!(told("20s", &["aws", "gcp", "azure"]), Vec::<String>::new());
    let long = told("111s", &["aws"]);
    assert_eq!(
        long,
        ["pool pool: capacity.spot.checkpointSave, 111 s, is above the 110 s that a reclaim on aws leaves, so each is \
          assumed to lose all work since the last checkpoint, up to 30 min: save faster, write checkpoints more often, or \
          remove aws from where.clouds"]
    );
    assert_eq!(told("111s", &["aws", "gcp", "coreweave"]), long, "the others sell no spot here");
}
