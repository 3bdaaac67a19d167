use super::*;
use crate::demand::{InstanceType, Pod, Resources, Service};

/// Steps of the pool in seconds.
const STEP: f64 = 3_600.0;

fn pod(arrives: f64, runs: f64, service: Service) -> Pod {
    let requests = Resources { gpus: 1, milli_cpu: 3_000, memory_mib: 10_000 };
    Pod { name: format!("{arrives}"), arrives, runs, requests, gpu_milli: 1000, models: Vec::new(), service, pool: None }
}

fn demand(pods: Vec<Pod>) -> Demand {
    let allocatable = Resources { gpus: 1, milli_cpu: 4_000, memory_mib: 16_000 };
    let one = InstanceType { name: "one".into(), model: "A".into(), allocatable, hourly: UsdMicros(1_000_000) };
    Demand { types: vec![one], pods, seconds: 36_000.0 }
}

/// A pool at a quarter of the price, with room for so many GPUs in each hour. A reclaimed pod loses half of what it may.
fn market(room: &[u32]) -> Market {
    let pool = SpotPool { name: "a".into(), types: Vec::new(), price: Milli(250), step_seconds: STEP, room: room.to_vec() };
    Market::recorded(vec![pool], Vec::new())
}

fn run(policy: &Policy, pods: Vec<Pod>, room: &[u32]) -> Report {
    replay_with_spot(&demand(pods), policy, Boots::seeded(1).lasting(300.0, 0.0), market(room)).unwrap()
}

#[test]
fn only_best_effort_pods_use_spot() {
    let pods = || vec![pod(100.0, 1_000.0, Service::BestEffort), pod(200.0, 1_000.0, Service::LatencySensitive)];
    let report = run(&Policy::sticky_fallback(), pods(), &[9]);
    assert_eq!((report.launches, report.usd.0 / report.spot_usd.0), (2, 5));
    // Only on-demand nodes count towards a commitment.
    assert_eq!(report.hourly.iter().map(|usd| usd.0).sum::<i64>(), report.usd.0 - report.spot_usd.0);
    let without = run(&Policy::own_choice(300.0), pods(), &[9]);
    assert_eq!(without.spot_usd.0, 0);
}

#[test]
fn a_reclaimed_pod_does_part_of_its_work_again() {
    let best_effort = vec![pod(100.0, 7_000.0, Service::BestEffort)];
    let report = run(&Policy::sticky_fallback(), best_effort, &[1, 0]);
    assert_eq!((report.interruptions, report.launches), (1, 2));
    // Half of the 1,800 seconds between two checkpoints.
    assert!((report.lost_gpu_hours - 0.25).abs() < 1e-9, "{}", report.lost_gpu_hours);
}

#[test]
fn without_a_fallback_a_pod_waits_for_room() {
    let pods = || vec![pod(4_000.0, 1_000.0, Service::BestEffort)];
    let (waits, pays) = (run(&Policy::spot_only(), pods(), &[1, 0, 1]), run(&Policy::sticky_fallback(), pods(), &[1, 0, 1]));
    assert!(waits.waits.p50 > 3_200.0, "{waits:?}");
    assert_eq!((waits.usd, pays.spot_usd.0, pays.waits.p50 < 310.0), (waits.spot_usd, 0, true));
}

#[test]
fn an_on_demand_node_is_left_once_a_pool_has_room() {
    let pods = || vec![pod(4_000.0, 20_000.0, Service::BestEffort)];
    let room = [1, 0, 1, 1, 1, 1, 1, 1, 1, 1];
    let stays = run(&Policy::sticky_fallback(), pods(), &room);
    let returns = Policy::sticky_fallback().with_return(Looks::OnDemandNodes, 300.0, 120.0);
    let leaves = run(&returns, pods(), &room);
    assert_eq!((stays.moves, leaves.moves), (0, 1));
    assert!(leaves.usd.0 * 2 < stays.usd.0, "{} {}", leaves.usd.0, stays.usd.0);
}

#[test]
fn uniform_progress_waits_until_a_pod_falls_behind() {
    let pods = || vec![pod(4_000.0, 10_000.0, Service::BestEffort)];
    let play = |slack: f64| {
        let market = market(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).with_slack(slack);
        let boots = Boots::seeded(1).lasting(300.0, 0.0);
        replay_with_spot(&demand(pods()), &Policy::uniform_progress(2.0), boots, market).unwrap()
    };
    // Any wait puts a pod that has done nothing behind.
    assert!(play(0.25).waits.p50 < 600.0);
    assert_eq!((play(0.25).late_percent, play(0.25).spot_usd.0), (0.0, 0));
}

#[test]
fn uniform_progress_returns_to_spot_after_a_long_boot() {
    // The look after five minutes comes before the node is ready: it has to be made again.
    let pods = vec![pod(6_500.0, 20_000.0, Service::BestEffort)];
    let market = market(&[1, 0, 1, 1, 1, 1, 1, 1, 1, 1]).with_slack(1.0);
    let boots = Boots::seeded(1).lasting(600.0, 0.0);
    let report = replay_with_spot(&demand(pods), &Policy::uniform_progress(2.0), boots, market).unwrap();
    assert_eq!((report.moves, report.spot_usd.0 > 0), (1, true), "{report:?}");
}

#[test]
fn an_interrupted_pod_that_waits_again_is_no_first_start() {
    let report = run(&Policy::spot_only(), vec![pod(100.0, 7_000.0, Service::BestEffort)], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((report.interruptions, report.never_started), (1, 0));
    assert!(report.waits.p99 < 600.0, "{report:?}");
}
