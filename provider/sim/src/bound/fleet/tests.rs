//! The bound beside the cheapest of all packings of few pods, and worked by hand.

use super::shapes::number;
use super::*;
use crate::demand::{InstanceType, Pod, Resources, Service};
use crate::world::draw::{Seed, Stream};

mod reference;

const MODELS: [&str; 3] = ["T4", "L4", "A10G"];

fn solvers() -> Vec<Solver> {
    vec![
        Solver::Microlp,
        #[cfg(feature = "highs")]
        Solver::Highs,
    ]
}

fn pod(arrives: f64, runs: f64, requests: Resources, models: &[&str]) -> Pod {
    let models = models.iter().map(|model| (*model).to_owned()).collect();
    Pod { name: String::new(), arrives, runs, requests, gpu_milli: 1000, models, service: Service::Other, pool: None }
}

fn of_type(model: &str, allocatable: Resources, hourly: i64) -> InstanceType {
    InstanceType { name: String::new(), model: model.to_owned(), allocatable, hourly: UsdMicros(hourly) }
}

fn small(stream: &mut Stream, most: i64) -> u32 {
    u32::try_from(stream.up_to(most)).unwrap()
}

/// Types of one, four and eight GPUs of each model, and a few pods that run within `hours`.
fn draw(seed: u64, hours: i64) -> Demand {
    let mut stream = Seed(seed).stream("packing", &[], 0);
    let mut types = Vec::new();
    for (model, price) in MODELS.iter().zip([500_000, 800_000, 1_000_000]) {
        for gpus in [1, 1, 1, 4, 8] {
            let milli_cpu = gpus * (3_500 + small(&mut stream, 12_000));
            let room = Resources { gpus, milli_cpu, memory_mib: milli_cpu * (3 + small(&mut stream, 1)) };
            types.push(of_type(model, room, i64::from(gpus) * price + i64::from(milli_cpu) * 20));
        }
    }
    let number = |n: i64| f64::from(i32::try_from(n).unwrap());
    let mut some = |_| {
        let gpus = [1, 1, 1, 2, 3, 4, 5][usize::try_from(stream.up_to(6)).unwrap()];
        let (milli_cpu, memory_mib) = (gpus * small(&mut stream, 9_000), gpus * small(&mut stream, 30_000));
        let room = Resources { gpus, milli_cpu, memory_mib };
        let models: &[&str] = if stream.chance(0.4) { &MODELS[usize::try_from(stream.up_to(2)).unwrap()..] } else { &[] };
        let (arrives, runs) = match hours {
            1 => (0, 3600),
            _ => (stream.up_to(3600 * hours - 1), 1 + stream.up_to(3600)),
        };
        pod(number(arrives), number(runs), room, models)
    };
    let pods = (0..2 + seed % 6).map(&mut some).collect();
    Demand { types, pods, seconds: number(hours) * 3600.0 }
}

/// The price of the cheapest nodes that hold these pods at once, over all ways to part them. Pods that no type can run
/// are left out.
fn cheapest(demand: &Demand, pods: &[&Pod]) -> i64 {
    let pods: Vec<&&Pod> = pods.iter().filter(|pod| !demand.types_for(pod).is_empty()).collect();
    let on_one = |set: usize| {
        let set = pods.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let set: Vec<&&&Pod> = set.map(|(_, pod)| pod).collect();
        let sum = |of: fn(&Resources) -> u32| set.iter().map(|pod| of(&pod.requests)).sum();
        let all = Resources { gpus: sum(|r| r.gpus), milli_cpu: sum(|r| r.milli_cpu), memory_mib: sum(|r| r.memory_mib) };
        let holds = |(index, of): &(usize, &InstanceType)| {
            of.allocatable.holds(&all) && set.iter().all(|pod| demand.types_for(pod).contains(index))
        };
        demand.types.iter().enumerate().filter(holds).map(|(_, of)| of.hourly.0).min()
    };
    let mut best = vec![0];
    for set in 1..1_usize << pods.len() {
        let subsets = (1..=set).filter(|part| part & set == *part);
        best.push(subsets.filter_map(|part| Some(best[set ^ part] + on_one(part)?)).min().unwrap());
    }
    *best.last().unwrap()
}

#[test]
fn no_packing_is_cheaper() {
    for solver in solvers() {
        let mut shares = Vec::new();
        for seed in 0..120 {
            let demand = draw(seed, 1);
            let found = bound(&demand, Method { solver, ..Method::default() }).unwrap();
            let exact = cheapest(&demand, &demand.pods.iter().collect::<Vec<_>>());
            assert!(found.total().0 <= exact, "{solver}, seed {seed}: {} above {exact}", found.total());
            shares.push(dollars(found.total().0) / dollars(exact.max(1)));
        }
        let mean = shares.iter().sum::<f64>() / number(shares.len());
        assert!(mean > 0.93, "{solver}: {mean}");
    }
}

#[test]
fn no_packing_over_time_is_cheaper() {
    for seed in 0..60 {
        let demand = draw(seed, 3);
        let found = bound(&demand, Method { slot_seconds: 1800.0, ..Method::default() }).unwrap();
        let mut changes: Vec<f64> = demand.pods.iter().flat_map(|pod| [pod.arrives, pod.arrives + pod.runs]).collect();
        changes.push(demand.seconds);
        changes.sort_by(f64::total_cmp);
        changes.retain(|at| *at <= demand.seconds);
        let exact = changes.windows(2).map(|span| {
            let at = f64::midpoint(span[0], span[1]);
            let runs = demand.pods.iter().filter(|pod| pod.arrives <= at && at < pod.arrives + pod.runs);
            dollars(cheapest(&demand, &runs.collect::<Vec<_>>())) * (span[1] - span[0]) / 3600.0
        });
        let exact = exact.sum::<f64>();
        assert!(dollars(found.total().0) <= exact * (1.0 + 1e-9), "seed {seed}: {} above {exact}", found.total());
    }
}

/// Without cuts, and by every solver, the bound is lower or the same.
#[test]
fn cuts_only_raise_it() {
    let plain = Cuts { functions: Vec::new(), integrality: false };
    let functions = Cuts { integrality: false, ..Cuts::default() };
    for seed in 0..60 {
        let demand = draw(seed, 2);
        let with = |cuts: &Cuts, solver| bound(&demand, Method { cuts: cuts.clone(), solver, ..Method::default() });
        let total = |cuts: &Cuts, solver| with(cuts, solver).unwrap().total().0;
        let all = total(&Cuts::default(), Solver::Microlp);
        assert!(total(&plain, Solver::Microlp) <= total(&functions, Solver::Microlp) + 2, "seed {seed}");
        assert!(total(&functions, Solver::Microlp) <= all + 2, "seed {seed}");
        for solver in solvers() {
            let other = total(&Cuts::default(), solver);
            assert!((other - all).abs() <= 2 + all / 100_000, "seed {seed}, {solver}: {other} against {all}");
        }
    }
}

#[test]
fn by_hand() {
    let room = |gpus| Resources { gpus, milli_cpu: gpus * 4_000, memory_mib: gpus * 16_000 };
    let types = vec![of_type("T4", room(1), 500_000), of_type("T4", room(4), 1_600_000)];
    let costs = |pods: Vec<Pod>, method: Method| {
        let demand = Demand { types: types.clone(), pods, seconds: 7_200.0 };
        bound(&demand, method).unwrap()
    };
    let one = |runs| pod(0.0, runs, room(1), &[]);
    // One GPU needs one small node, and for half an hour half of it.
    let found = costs(vec![one(5_400.0)], Method::default());
    assert_eq!(found.hourly, [UsdPerHour(500_000), UsdPerHour(250_000)]);
    assert_eq!((found.total().0, found.static_peak().0), (750_000, 1_000_000));
    // Two pods of three GPUs never share a node of four. Sizes alone would let them: u₁ does not.
    let threes = || vec![pod(0.0, 7_200.0, room(3), &[]), pod(0.0, 7_200.0, room(3), &[])];
    assert_eq!(costs(threes(), Method::default()).hourly, [UsdPerHour(3_200_000); 2]);
    let plain = Cuts { functions: Vec::new(), integrality: false };
    assert_eq!(costs(threes(), Method { cuts: plain, ..Method::default() }).hourly, [UsdPerHour(2_400_000); 2]);
    // A model that nobody sells.
    let nowhere = costs(vec![pod(0.0, 60.0, room(1), &["H100"])], Method::default());
    assert_eq!((nowhere.total().0, nowhere.unplaceable), (0, 1));
    // Half a GPU of each of two pods is one GPU.
    let half = || Pod { gpu_milli: 500, requests: Resources { gpus: 1, ..Resources::default() }, ..one(3_600.0) };
    let shared = Method { gpus: Gpus::Shared, ..Method::default() };
    assert_eq!(costs(vec![half(), half()], shared).hourly, [UsdPerHour(500_000), UsdPerHour(0)]);
    // Whole ones take half of a large node at $0.80, but there is at least one node. So $0.1333 of any node is for
    // presence, and a pod is worth the rest: .5 - .1333 on a small node, (1.6 - .1333) / 4 on a large one.
    assert_eq!(costs(vec![half(), half()], Method::default()).hourly, [UsdPerHour(866_666), UsdPerHour(0)]);
}

#[test]
fn a_commitment_is_charged_for_the_window_alone() {
    let hourly = vec![UsdPerHour(500_000), UsdPerHour(250_000)];
    let found = Bound { hourly, seconds: 5_400.0, unplaceable: 0, method: Method::default() };
    // The last slot has half an hour, in which the rate is that of the first.
    let committed = found.committed(Milli(620));
    assert_eq!((committed.hourly.0, committed.total.0), (500_000, 465_000));
    assert_eq!(found.total().0, 750_000);
}

#[test]
fn the_commitment_is_the_cheapest() {
    let rates = [5, 9, 2, 7, 7, 1, 4, 8, 6, 3].map(|dollars| UsdPerHour(dollars * 1_000_000));
    let found = Bound { hourly: rates.to_vec(), seconds: 36_000.0, unplaceable: 0, method: Method::default() };
    for factor in [0, 150, 400, 620, 950, 1000] {
        let costs = |committed: i64| {
            let exceeds: i64 = rates.iter().map(|rate| (rate.0 - committed).max(0)).sum();
            committed * 10 * factor / 1000 + exceeds
        };
        let committed = found.committed(Milli(u32::try_from(factor).unwrap()));
        assert_eq!(committed.total.0, (0..=10).map(|usd| costs(usd * 1_000_000)).min().unwrap(), "{factor}");
        assert_eq!(costs(committed.hourly.0), committed.total.0);
    }
}
