use serde_json::{Value, json};

use super::*;
use crate::base::engine_clock::Times;
use crate::base::ids::{Cloud, Region};
use crate::base::kinds::QuotaUnit;
use crate::market::offer::CapacityType::{OnDemand, Spot};
use crate::testing::{Kind, L4, Lots, Row, catalogue, now};

const P4D: Kind = ("p4d.24xlarge", "A100", 8, 96);

/// An L4 at $0.30 on spot and $0.80 on demand.
const ONE_ZONE: [Row; 2] = [(L4, "use1-az1", Spot, 300_000), (L4, "use1-az1", OnDemand, 800_000)];

fn pool(prefer: &Value, limits: &Value) -> Value {
    json!({ "workload": "training", "gpu": { "models": ["L4", "A100"] }, "capacity": { "prefer": prefer }, "limits": limits })
}

fn spot_quota(limit: u32) -> Value {
    json!([{ "name": "L-3819A6DF", "cloud": "aws", "region": "us-east-1", "limit": limit }])
}

/// The choice of so many nodes, and the limits worth lifting.
fn lifted(catalogue: &Catalogue, count: u32) -> (Explanation, Vec<Lift>) {
    let (memory, pool) = (Memory::default(), PoolName::new("pool").unwrap());
    let made = what_if(catalogue, &memory, &pool, None, count, Times::at(now()));
    let lifts = lifts(catalogue, &memory, (&pool, None), &made, Times::at(now()));
    (made, lifts)
}

fn in_words(lift: &Lift) -> String {
    let level = |level: Option<Level>| level.map_or_else(|| "-".to_owned(), |level| level.to_string());
    let Lift { limit, from, to, found, more, cost, gain, exact: _ } = lift;
    format!("{limit} {}..{}: {found} found, {more} more, {cost}, {gain} less", level(*from), level(*to))
}

#[test]
fn a_full_spot_quota_is_told_with_what_raising_it_saves() {
    let catalogue = catalogue(&pool(&json!(["spot", "on-demand"]), &json!({ "maxNodes": 10 })), &spot_quota(8), &ONE_ZONE);
    let (made, lifts) = lifted(&catalogue, 6);
    // 8 vCPU are 2 spot nodes: 2 × 0.30 + 4 × 0.80 = $3.80. With 24 vCPU: 6 × 0.30 = $1.80, $2.00 less.
    let words: Vec<String> = lifts.iter().map(in_words).collect();
    assert_eq!(words, ["quota L-3819A6DF us-east-1 8 vCPU..24 vCPU: 6 found, 0 more, $1.8000, $2.0000 less"]);
    let ended = made.candidates[0].ended_by.as_ref().map(ToString::to_string);
    assert_eq!(ended.as_deref(), Some("quota L-3819A6DF us-east-1: 0 of 8 vCPU left, 8 in flight, one more needs 4"));
    assert_eq!(made.candidates[1].ended_by, None, "what filled the rest has room left");
}

#[test]
fn what_others_use_of_a_quota_and_what_is_kept_back_is_in_the_height_that_it_needs() {
    let mut quota = spot_quota(20);
    (quota[0]["used"], quota[0]["safety"]) = (json!(8), json!(4));
    let catalogue = catalogue(&pool(&json!(["spot", "on-demand"]), &json!({ "maxNodes": 10 })), &quota, &ONE_ZONE);
    // 6 nodes need 24 vCPU beside 12 that are not ours.
    assert_eq!(lifted(&catalogue, 6).1[0].to, Some(Level::Units(36, QuotaUnit::Vcpus)));
}

#[test]
fn missing_nodes_are_found_by_the_one_limit_that_keeps_them_away() {
    let limits = json!({ "maxNodes": 2, "maxUsdPerHour": 100 });
    let short = catalogue(&pool(&json!(["on-demand"]), &limits), &json!([]), &ONE_ZONE);
    let words: Vec<String> = lifted(&short, 5).1.iter().map(in_words).collect();
    assert_eq!(words, ["limits.maxNodes 2..5: 5 found, 3 more, $4.0000, $0.0000 less"]);
    // A quota of 2 nodes beside it: neither helps alone.
    let quota = json!([{ "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 8 }]);
    let both = catalogue(&pool(&json!(["on-demand"]), &limits), &quota, &ONE_ZONE);
    assert_eq!(lifted(&both, 5).1, []);
    // $2.00 an hour pay for 2 nodes; 5 cost $4.00.
    let budget = catalogue(&pool(&json!(["on-demand"]), &json!({ "maxNodes": 9, "maxUsdPerHour": 2 })), &json!([]), &ONE_ZONE);
    let words: Vec<String> = lifted(&budget, 5).1.iter().map(in_words).collect();
    assert_eq!(words, ["limits.maxUsdPerHour $2.0000/h..$4.0000/h: 5 found, 3 more, $4.0000, $0.0000 less"]);
}

#[test]
fn a_limit_is_raised_no_higher_than_what_it_brings_needs() {
    // L4 on spot at $0.30 and at $0.80 on demand; half may be spot. A budget of $1.10 pays for one of each, and keeps its last tenth for spot.
    let half = json!({ "prefer": ["spot", "on-demand"], "spot": { "maxShare": "50%" } });
    let mut pool = pool(&json!([]), &json!({ "maxNodes": 9, "maxUsdPerHour": 1.1 }));
    pool["capacity"] = half;
    let lifts = lifted(&catalogue(&pool, &json!([]), &ONE_ZONE), 4).1;
    // Two of each cost $2.20. An on-demand node is bought while less than 90 % is spent, $1.98: that is so for both, the spot nodes last.
    // A budget of which all $2.20 could be on demand, $2.20 ÷ 0.9 = $2.45, is more than is needed.
    assert_eq!((lifts[0].found, lifts[0].to), (4, Some(Level::Rate(UsdPerHour(2_200_000)))), "{lifts:?}");

    // Two types at the same price under a quota each: one whose quota is lifted is taken for all nodes, as the tie goes by name.
    let g5: Kind = ("g5.xlarge", "A10G", 1, 4);
    let p3: Kind = ("p3.2xlarge", "V100", 1, 8);
    let mut pool = self::pool(&json!(["on-demand"]), &json!({ "maxNodes": 9 }));
    pool["gpu"]["models"] = json!(["A10G", "V100"]);
    let quota = |name: &str, limit: u32| json!({ "name": name, "cloud": "aws", "region": "us-east-1", "limit": limit });
    let offers = [(g5, "use1-az1", OnDemand, 1_000_000), (p3, "use1-az1", OnDemand, 1_000_000)];
    let catalogue = catalogue(&pool, &json!([quota("L-DB2E81BA", 4), quota("L-417A185B", 16)]), &offers);
    // Four nodes: one A10G by 4 vCPU and two V100 by 16. Four A10G would need 16 vCPU, but one more is enough: 8.
    let lifts = lifted(&catalogue, 4).1;
    let words: Vec<String> = lifts.iter().map(in_words).collect();
    assert!(
        words.contains(&"quota L-DB2E81BA us-east-1 4 vCPU..8 vCPU: 4 found, 1 more, $4.0000, $0.0000 less".to_owned()),
        "{words:?}"
    );
}

#[test]
fn a_quota_that_the_policy_does_not_list_is_told_with_the_height_to_list_it_at() {
    let offers = [(P4D, "use1-az1", OnDemand, 21_957_642)];
    let catalogue = catalogue(&pool(&json!(["on-demand"]), &json!({ "maxNodes": 9 })), &json!([]), &offers);
    let lifts = lifted(&catalogue, 2).1;
    assert_eq!(
        in_words(&lifts[0]),
        "quota L-417A185B us-east-1 (\"Running On-Demand P instances\"), which the policy does not list, -..192 vCPU: 2 found, 2 more, $43.9153, $0.0000 less"
    );
}

#[test]
fn every_limit_that_binds_is_named() {
    // 8 vCPU and two nodes at most are two nodes of 4 vCPU: neither limit alone leaves room for a third. $9 would.
    let quota = json!([{ "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 8 }]);
    let limits = json!({ "maxNodes": 2, "maxUsdPerHour": 9 });
    let (made, _) = lifted(&catalogue(&pool(&json!(["on-demand"]), &limits), &quota, &ONE_ZONE), 3);
    let words = |bounds: &[Bound]| bounds.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        made.candidates[0].ended_by.as_ref().map(ToString::to_string).as_deref(),
        Some("limits.maxNodes: 2 of 2 nodes in use")
    );
    assert_eq!(
        words(&made.candidates[0].also),
        ["quota L-DB2E81BA us-east-1: 0 of 8 vCPU left, 8 in flight, one more needs 4"]
    );

    // Two of four are all the spot that 8 vCPU hold. That four are all of maxNodes, or of the budget, keeps no more spot away.
    let limits = json!({ "maxNodes": 4, "maxUsdPerHour": 2.5 });
    let (made, _) = lifted(&catalogue(&pool(&json!(["spot", "on-demand"]), &limits), &spot_quota(8), &ONE_ZONE), 4);
    assert_eq!((made.found, made.candidates[0].market.capacity_type), (4, Spot));
    assert!(matches!(made.candidates[0].ended_by, Some(Bound::Quota { .. })), "{:?}", made.candidates[0].ended_by);
    assert_eq!((&made.candidates[0].also, &made.candidates[1].ended_by), (&Vec::new(), &None));

    // A loser's too: 2 vCPU and half a dollar are both too little for a node.
    let quota = json!([{ "name": "L-DB2E81BA", "cloud": "aws", "region": "us-east-1", "limit": 2 }]);
    let limits = json!({ "maxNodes": 2, "maxUsdPerHour": 0.5 });
    let (made, _) = lifted(&catalogue(&pool(&json!(["on-demand"]), &limits), &quota, &ONE_ZONE), 1);
    let loser = &made.candidates[0];
    assert!(matches!(loser.verdict, OfferVerdict::Barred(Barred::Bound(Bound::Budget { .. }))), "{:?}", loser.verdict);
    assert_eq!(words(&loser.also), ["quota L-DB2E81BA us-east-1: 2 of 2 vCPU left, 0 in flight, one more needs 4"]);
}

#[test]
fn a_difference_that_is_not_shown_is_called_none() {
    let by = |micros| OfferVerdict::Dearer { by: UsdPerHour(micros) }.to_string();
    assert_eq!(by(49), "more expensive by less than a hundredth of a cent per node and hour");
    assert_eq!(by(51), "more expensive by $0.0001 per node and hour");
}

#[test]
fn an_order_of_preference_that_costs_is_told() {
    let catalogue = catalogue(&pool(&json!(["on-demand", "spot"]), &json!({ "maxNodes": 9 })), &json!([]), &ONE_ZONE);
    // 3 × (0.80 − 0.30).
    let words: Vec<String> = lifted(&catalogue, 3).1.iter().map(in_words).collect();
    assert_eq!(words, ["capacity.prefer with spot first -..-: 3 found, 0 more, $0.9000, $1.5000 less"]);
}

#[test]
fn other_shapes_are_compared_by_what_they_do() {
    // An A100 node has eight GPUs and is bought for its spot price of $1.00 a GPU; 8 vCPU of quota allow none. Two L4 nodes cost $4.00.
    let offers = [(P4D, "use1-az1", Spot, 8_000_000), (L4, "use1-az1", OnDemand, 2_000_000)];
    let quota = json!([{ "name": "L-7212CCBC", "cloud": "aws", "region": "us-east-1", "limit": 8 }]);
    let catalogue = catalogue(&pool(&json!(["spot", "on-demand"]), &json!({ "maxNodes": 9 })), &quota, &offers);
    let lifts = lifted(&catalogue, 2).1;
    // Two GPUs at $2.00 are $4.00; at $1.00 they would be $2.00.
    let words: Vec<String> = lifts.iter().map(in_words).collect();
    assert_eq!(words, ["quota L-7212CCBC us-east-1 8 vCPU..192 vCPU: 2 found, 0 more, $16.0000, $2.0000 less"]);
}

#[test]
fn a_journal_s_explanation_tells_at_most_how_much() {
    let catalogue = catalogue(&pool(&json!(["spot", "on-demand"]), &json!({ "maxNodes": 10 })), &spot_quota(8), &ONE_ZONE);
    let told = lifts_told(&lifted(&catalogue, 6).0);
    // The 4 on-demand nodes at $0.30: $2.00 less, for 16 vCPU more.
    let words: Vec<String> = told.iter().map(in_words).collect();
    assert_eq!(words, ["quota L-3819A6DF us-east-1 8 vCPU..24 vCPU: 6 found, 0 more, $1.8000, $2.0000 less"]);
    assert!(!told[0].exact);
    let short = catalogue_of_two();
    let words: Vec<String> = lifts_told(&lifted(&short, 5).0).iter().map(in_words).collect();
    assert_eq!(words, ["limits.maxNodes 2..5: 5 found, 3 more, $4.0000, $0.0000 less"]);
}

fn catalogue_of_two() -> Catalogue {
    catalogue(&pool(&json!(["on-demand"]), &json!({ "maxNodes": 2 })), &json!([]), &ONE_ZONE)
}

/// Every limit of the policy lifted in turn, whether a reason names it or not: none brings more than what is told.
#[test]
fn no_single_limit_is_worth_more_than_what_is_told() {
    let mut told = 0;
    for seed in 0..400 {
        let mut lots = Lots(seed);
        let offers: Vec<Row> = ["use1-az1", "use1-az2"]
            .into_iter()
            .flat_map(|zone| [(zone, Spot), (zone, OnDemand)])
            .map(|(zone, how)| (L4, zone, how, i64::from(lots.upto(8) + 1) * 100_000))
            .collect();
        let quota = |name: &str, limit: u32| json!({ "name": name, "cloud": "aws", "region": "us-east-1", "limit": limit });
        let quotas = json!([quota("L-3819A6DF", lots.upto(6) * 4), quota("L-DB2E81BA", lots.upto(6) * 4)]);
        let limits = json!({ "maxNodes": lots.upto(6) + 1, "maxUsdPerHour": f64::from(lots.upto(20) + 1) / 10.0 });
        let prefer = if lots.below(2) == 0 { json!(["spot", "on-demand"]) } else { json!(["on-demand", "spot"]) };
        let catalogue = catalogue(&pool(&prefer, &limits), &quotas, &offers);
        let (made, lifts) = lifted(&catalogue, lots.upto(5) + 1);
        let (memory, pool) = (Memory::default(), PoolName::new("pool").unwrap());
        let plain = |limit: &str| Constraint::Quota {
            name: limit.to_owned(),
            cloud: Cloud::new("aws").unwrap(),
            region: Some(Region::new("us-east-1").unwrap()),
        };
        let all = [plain("L-3819A6DF"), plain("L-DB2E81BA"), Constraint::MaxNodes, Constraint::Budget];
        let found = |limit: &Constraint| {
            let catalogue = catalogue.under(Arc::new(limit.lifted(&catalogue.policy, &pool).unwrap()));
            what_if(&catalogue, &memory, &pool, None, made.asked, Times::at(now())).found
        };
        let most = all.iter().map(found).max().unwrap();
        let best = lifts.iter().map(|lift| lift.found).max().unwrap_or(made.found);
        assert!(best >= most, "seed {seed}: {most} nodes can be had, told are {lifts:?} of {made:?}");
        assert!(lifts.iter().all(|lift| lift.more > 0 || lift.gain > UsdPerHour::ZERO), "seed {seed}: {lifts:?}");
        told += lifts.len();
    }
    assert!(told > 100, "only {told} limits were worth lifting");
}
