use super::*;
use crate::demand::{InstanceType, Pod, Resources, Service};

fn of_type(name: &str, model: &str, gpus: u32, hourly: i64) -> InstanceType {
    let allocatable = Resources { gpus, milli_cpu: 4_000 * gpus, memory_mib: 16_000 * gpus };
    InstanceType { name: name.to_owned(), model: model.to_owned(), allocatable, hourly: UsdMicros(hourly) }
}

fn pod(arrives: f64, runs: f64, gpus: u32) -> Pod {
    let requests = Resources { gpus, milli_cpu: 3_000 * gpus, memory_mib: 10_000 * gpus };
    let service = Service::LatencySensitive;
    Pod { name: format!("{arrives}"), arrives, runs, requests, gpu_milli: 1000, models: Vec::new(), service, pool: None }
}

fn demand(pods: Vec<Pod>) -> Demand {
    let types = vec![of_type("four", "A", 4, 3_600_000), of_type("one", "A", 1, 1_000_000)];
    Demand { types, pods, seconds: 36_000.0 }
}

fn fixed() -> Boots {
    Boots::seeded(1).lasting(300.0, 0.0)
}

#[test]
fn a_node_is_billed_from_its_purchase_to_its_release() {
    let demand = demand(vec![pod(100.0, 1000.0, 1)]);
    // Held for 30 seconds and scanned every 10, bought at 130, ready at 430, empty at 1430, idle for 600 seconds.
    let report = replay(&demand, &Policy::autoscaler(), fixed()).unwrap();
    assert!((report.waits.p50 - 330.0).abs() < 1e-9);
    assert_eq!((report.launches, report.flaps, report.never_started), (1, 0, 0));
    let hours = (1430.0 + 600.0 - 130.0) / 3600.0;
    assert!((report.gpu_hours - hours).abs() < 1e-9, "{}", report.gpu_hours);
    assert_eq!(report.usd.0, 527_777);
    let own = replay(&demand, &Policy::own_choice(0.0), fixed()).unwrap();
    assert!((own.waits.p50 - 302.0).abs() < 1e-9);
    assert_eq!(own.usd.0, 361_111);
}

#[test]
fn the_same_pay_lets_a_dear_node_idle_less() {
    let idle = Idle::EqualPay { pay: 300.0, most: 600.0 };
    let seconds = [0.1, 1.0, 10.0].map(|price| format!("{:.3}", idle.seconds(price)));
    assert_eq!(seconds, ["600.000", "300.000", "30.000"]);
}

#[test]
fn a_least_life_leaves_no_flaps() {
    let pods = (0..20).map(|n| pod(f64::from(n) * 1500.0 + 1.0, 60.0, 1)).collect();
    let demand = demand(pods);
    let policy = Policy::behind_autoscaler(Idle::After { seconds: 0.0 });
    let report = replay(&demand, &policy, fixed()).unwrap();
    assert_eq!((report.launches, report.flaps), (20, 0));
    let flaps = replay(&demand, &Policy { least_life: 0.0, ..policy }, fixed()).unwrap();
    assert_eq!((flaps.launches, flaps.flaps), (20, 20));
    assert!(flaps.usd < report.usd);
}

#[test]
fn a_floor_takes_the_wait_away() {
    let pods = (1..9).map(|n| pod(f64::from(n) * 3000.0, 600.0, 1)).collect();
    let demand = demand(pods);
    let policy = Policy::own_choice(0.0);
    let floor = replay(&demand, &policy.clone().with_floors(&[("one", 1)]), fixed()).unwrap();
    let none = replay(&demand, &policy, fixed()).unwrap();
    // A floor starts with the first look: the first pod waits.
    assert_eq!((floor.waits.p50, none.waits.p50), (0.0, 302.0));
    assert!(floor.usd > none.usd);
    let unknown = replay(&demand, &Policy::own_choice(0.0).with_floors(&[("two", 1)]), fixed()).unwrap_err();
    assert!(unknown.to_string().contains("two"), "{unknown}");
}

#[test]
fn taints_keep_a_pod_off_a_dear_type() {
    let mut small = pod(4000.0, 20_000.0, 1);
    small.models = vec!["A".to_owned(), "B".to_owned()];
    let mut dear = pod(100.0, 5000.0, 1);
    dear.models = vec!["B".to_owned()];
    let mut demand = demand(vec![dear, small]);
    demand.types.push(of_type("dear", "B", 2, 8_000_000));
    let policy = Policy::own_choice(300.0);
    let squats = replay(&demand, &policy, fixed()).unwrap();
    let apart = replay(&demand, &policy.with_taints(1.3), fixed()).unwrap();
    assert_eq!((squats.launches, apart.launches), (1, 2));
    assert!(apart.usd.0 * 2 < squats.usd.0);
    // The price of not squatting is a boot.
    assert_eq!((squats.waits.p99 > 290.0, apart.waits.p50), (true, 302.0));
}

#[test]
fn consolidation_merges_half_empty_nodes() {
    let pods = vec![pod(0.0, 1000.0, 3), pod(0.0, 30_000.0, 1), pod(2000.0, 30_000.0, 1), pod(4000.0, 30_000.0, 1)];
    let demand = demand(pods);
    let plain = replay(&demand, &Policy::karpenter_when_empty(), fixed()).unwrap();
    let merged = replay(&demand, &Policy::karpenter(0.0), fixed()).unwrap();
    assert_eq!(plain.moves, 0);
    assert!(merged.moves > 0 && merged.usd < plain.usd, "{merged:?}");
}

#[test]
fn a_job_that_counted_on_a_replacement_is_placed_when_others_take_it() {
    let of_models = |pod: Pod, models: &[&str]| Pod { models: models.iter().map(|of| (*of).to_owned()).collect(), ..pod };
    // The second pod moves to the small node that replaces the large one, and the third has counted on that node while it
    // booted.
    let pods = vec![
        of_models(pod(0.0, 1000.0, 3), &["A"]),
        of_models(pod(0.0, 30_000.0, 1), &["A", "B"]),
        of_models(pod(1100.0, 1000.0, 1), &["B"]),
    ];
    let types = vec![of_type("four", "A", 4, 3_600_000), of_type("one", "B", 1, 1_000_000)];
    let report = replay(&Demand { types, pods, seconds: 36_000.0 }, &Policy::karpenter(0.0), fixed()).unwrap();
    assert_eq!((report.moves, report.launches, report.never_started), (1, 3, 0), "{report:?}");
}

#[test]
fn the_static_peak_keeps_every_node() {
    let demand = demand(vec![pod(0.0, 100.0, 1), pod(10.0, 100.0, 1), pod(5000.0, 100.0, 1)]);
    assert_eq!(static_peak(&demand).0, 20_000_000);
}

#[test]
fn a_commitment_is_chosen_from_the_first_week() {
    let demand = demand(vec![pod(0.0, 36_000.0, 1)]);
    let report = replay(&demand, &Policy::own_choice(0.0), fixed()).unwrap();
    assert_eq!(report.usd.0, 10_000_000);
    let committed = report.commit(Milli(620));
    assert_eq!((committed.hourly.0, committed.total.0), (1_000_000, 6_200_000));
}

#[test]
fn a_pod_that_no_type_can_run_is_left_out() {
    let report = replay(&demand(vec![pod(0.0, 100.0, 9)]), &Policy::autoscaler(), fixed()).unwrap();
    assert_eq!((report.unplaceable, report.launches, report.usd.0), (1, 0, 0));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let demand = demand((0..50).map(|n| pod(f64::from(n) * 400.0, 700.0, 1)).collect());
    let run = |seed| replay(&demand, &Policy::autoscaler(), Boots::seeded(seed)).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
