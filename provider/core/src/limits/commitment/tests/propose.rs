//! What is proposed from hourly use, by hand.

use super::*;
use crate::base::engine_clock::Wall;
use crate::base::kinds::CommitmentKind;
use crate::base::units::{MiB, Percent};
use crate::market::price::TermRates;

/// The book with rates for a year and for three, in cents an hour.
fn rated(rates: &[(&str, &str, &str, CommitmentKind, i64, i64)]) -> PriceBook {
    let mut book = book();
    for (cloud, region, instance_type, kind, one_year, three_years) in rates {
        let of = place(cloud, region, "any", instance_type);
        let rate = |cents: i64| Some(UsdPerHour(cents * 10_000));
        let rates = TermRates {
            kind: *kind,
            one_year: rate(*one_year),
            three_years: rate(*three_years),
            as_of: None,
            source: "test".into(),
        };
        book.insert_terms(of.cloud, of.region, of.instance_type, rates);
    }
    book
}

/// So many nodes all through an hour of which so many seconds are known.
fn hour(known: u32, nodes: &[(&Place, CapacityType, u64)]) -> UsedHour {
    let used = |(place, capacity_type, nodes): &(&Place, CapacityType, u64)| {
        (Market { place: (*place).clone(), capacity_type: *capacity_type }, nodes * u64::from(known))
    };
    UsedHour { known, node_seconds: nodes.iter().map(used).collect() }
}

fn policy(commitments: Value) -> Arc<Policy> {
    Fleet::with(commitments).catalogue.policy
}

fn half(advice: &Advice) -> UsdPerHour {
    advice.if_use_falls.iter().find(|fall| fall.by == Percent(50)).unwrap().saved
}

/// Ten nodes of $2 in two zones in 100 hours, two in 100 more; one reserved instance is there already, so 9 and 1 are left, 5 on average,
/// and the cap is 3.
///
/// For a year at $1.30 a node pays that is used 65 % of the time: one. It covers 1 of 5 and saves 2 − 1.30 = $0.70. With half the use it
/// is used half in half of the hours: 0.75 × 2 − 1.30 = $0.20.
/// For three at $0.80 a node pays from 40 % on: nine do, three are advised. They cover (1 + 3) ÷ 2 of 5, are used 4 of 6 and
/// save 2 × 2 − 3 × 0.80 = $1.60; with half the use (0.5 + 3) ÷ 2 × 2 − 2.40 = $1.10.
#[test]
fn reserved_instances_are_proposed_for_what_is_not_covered_yet() {
    let (a, b) = (place("aws", "east", "az1", "g6.xlarge"), place("aws", "east", "az2", "g6.xlarge"));
    let busy = hour(3_600, &[(&a, OD, 6), (&b, OD, 4), (&a, CapacityType::Spot, 50)]);
    let quiet = hour(3_240, &[(&b, OD, 2)]);
    // Not an hour that is known: it says nothing, however much it holds.
    let mut hours = vec![hour(3_239, &[(&a, OD, 1_000)]); 50];
    hours.extend(vec![busy; 100]);
    hours.extend(vec![quiet; 100]);
    let prices = rated(&[("aws", "east", "g6.xlarge", CommitmentKind::ReservedInstance, 130, 80)]);
    let found = propose(&hours, &prices, &policy(json!([ri("ri", 1, "1.2")])), Ask::default(), Wall(now())).unwrap();
    assert_eq!((found.known_hours, found.used, found.covered_already), (200, dollars("12"), dollars("2")));
    let [year, three] = found.proposals.as_slice() else { panic!("{:?}", found.proposals) };
    let numbers = |p: &Proposal| {
        let a = &p.advice;
        (p.term, a.commit, p.rate(), a.covers, a.utilization, a.saved, a.break_even, half(a))
    };
    let year_by_hand = (Term::OneYear, 1, dollars("1.3"), Milli(200), Milli(1000), dollars("0.7"), Milli(650), dollars("0.2"));
    assert_eq!(numbers(year), year_by_hand);
    let three_by_hand =
        (Term::ThreeYears, 3, dollars("2.4"), Milli(400), Milli(666), dollars("1.6"), Milli(400), dollars("1.1"));
    assert_eq!(numbers(three), three_by_hand);
    let plans = [CommitmentKind::Ec2SavingsPlan, CommitmentKind::ComputeSavingsPlan];
    let cloud = Cloud::new("aws").unwrap();
    assert_eq!(found.left_out, plans.map(|kind| Unsized::NoRates { cloud: cloud.clone(), kind }).into());
}

/// One node of eight GPUs and two of one, $1 a GPU: ten GPUs. They cost 5 + 2 × 0.75 = $6.50 committed, $0.65 a GPU. 70 % of ten are
/// seven, which save 7 × 0.35 = $2.45.
#[test]
fn committed_use_counts_gpus_of_every_type_with_the_model() {
    let (eight, one) = (place("gcp", "us", "us-a", "g2-8"), place("gcp", "us", "us-a", "g2-1"));
    let hours = vec![hour(3_600, &[(&eight, OD, 1), (&one, OD, 2)]); 168];
    let kind = CommitmentKind::CommittedUse;
    let prices = rated(&[("gcp", "us", "g2-8", kind, 500, 400), ("gcp", "us", "g2-1", kind, 75, 50)]);
    let ask = Ask { term: Some(Term::OneYear), ..Ask::default() };
    let found = propose(&hours, &prices, &policy(json!([])), ask, Wall(now())).unwrap();
    let [only] = found.proposals.as_slice() else { panic!("{:?}", found.proposals) };
    assert_eq!(
        only.scope,
        Scope::Gpus { region: eight.region.clone(), model: GpuModel::new("L4").unwrap(), memory: MiB::from_gib(24) }
    );
    assert_eq!((only.unit.committed, only.advice.commit, only.advice.saved), (dollars("0.65"), 7, dollars("2.45")));
}

/// Two nodes of $4 at $3.32: a plan for 70 % of $8, 560 cents of on-demand value, costs 5.60 × 0.83 = $4.648 an hour and saves $0.952. At
/// half the use it pays for $4 of it and loses 4.648 − 4 = $0.648.
#[test]
fn a_plan_is_sized_in_spend_and_its_loss_is_told() {
    let node = place("azure", "eu", "eu", "NC24");
    let hours = vec![hour(3_600, &[(&node, OD, 2)]); 168];
    let prices = rated(&[("azure", "eu", "NC24", CommitmentKind::SavingsPlan, 332, 248)]);
    let ask = Ask { kind: Some(CommitmentKind::SavingsPlan), term: Some(Term::OneYear), discount: None };
    let found = propose(&hours, &prices, &policy(json!([])), ask, Wall(now())).unwrap();
    let [only] = found.proposals.as_slice() else { panic!("{:?}", found.proposals) };
    assert_eq!((only.advice.commit, only.rate(), only.advice.saved), (560, dollars("4.648"), dollars("0.952")));
    assert_eq!((half(&only.advice), only.advice.break_even), (UsdPerHour(-648_000), Milli(830)));
}

/// The operator's own 30 % for a plan whose rates no table tells: a family of its own for g5 and g6.
#[test]
fn an_offer_of_the_operators_own_stands_in_for_rates_that_nobody_tells() {
    let (g6, g5) = (place("aws", "east", "az1", "g6.xlarge"), place("aws", "east", "az1", "g5.xlarge"));
    let hours = vec![hour(3_600, &[(&g6, OD, 1), (&g5, OD, 1)]); 168];
    let kind = Some(CommitmentKind::Ec2SavingsPlan);
    let ask = Ask { kind, term: Some(Term::ThreeYears), discount: Some(Milli(300)) };
    let found = propose(&hours, &book(), &policy(json!([])), ask, Wall(now())).unwrap();
    let told: Vec<_> = found.proposals.iter().map(|p| (p.scope.clone(), p.advice.commit, p.advice.saved)).collect();
    let family = |family: &str| Scope::Family { region: g6.region.clone(), family: family.into() };
    assert_eq!(told, [(family("g5"), 280, dollars("0.84")), (family("g6"), 140, dollars("0.42"))]);
}

/// Kept capacity that is billed on demand can have a discount; what is paid ahead, or is no longer in the policy, cannot.
#[test]
fn kept_capacity_counts_where_it_is_billed_on_demand() {
    let node = place("aws", "east", "az1", "g6.xlarge");
    let hours = vec![hour(3_600, &[(&node, KEPT, 2)]); 168];
    let used = |commitments: Value| propose(&hours, &book(), &policy(commitments), Ask::default(), Wall(now())).unwrap().used;
    let kept = json!({"name": "odcr", "cloud": "aws", "kind": "capacity-reservation", "region": "east", "zone": "az1",
                      "instanceType": "g6.xlarge", "nodes": 2});
    assert_eq!([used(json!([kept])), used(json!([]))], [dollars("4"), FREE]);
}

#[test]
fn too_little_history_is_told_and_unknown_hours_are_not_idle_ones() {
    let mut hours = vec![hour(3_600, &[]); 167];
    hours.extend(vec![UsedHour::default(); 500]);
    let refused = propose(&hours, &book(), &policy(json!([])), Ask::default(), Wall(now())).unwrap_err();
    assert_eq!(refused, TooLittleUse { hours: 167 });
    hours.push(hour(3_600, &[]));
    let found = propose(&hours, &book(), &policy(json!([])), Ask::default(), Wall(now())).unwrap();
    assert_eq!((found.known_hours, found.used, found.proposals.len()), (168, FREE, 0));
}
