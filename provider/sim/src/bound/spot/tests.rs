//! The bound beside all fleets of small cases, and the flow beside the linear program.

use super::*;
use crate::world::draw::{Seed, Stream};
use stoker_core::base::units::UsdPerHour;

mod reference;

const NODE: Node = Node { hourly: UsdPerHour(3_600_000), boot_seconds: 300, reserved: Some(Milli(620)) };

fn small(stream: &mut Stream, most: i64) -> u32 {
    u32::try_from(stream.up_to(most)).unwrap()
}

fn draw(seed: u64, steps: usize, peak: i64, pools: usize) -> (Replicas, Vec<Pool>) {
    let mut stream = Seed(seed).stream("spot", &[], 0);
    let needed = (0..steps).map(|_| small(&mut stream, peak)).collect();
    let pool = |stream: &mut Stream| {
        let room = (0..steps).map(|_| if stream.chance(0.6) { small(stream, peak) } else { 0 }).collect();
        Pool { name: String::new(), price: Milli(200 + small(stream, 200)), step_seconds: 600, room }
    };
    (Replicas { needed, step_seconds: 600 }, (0..pools).map(|_| pool(&mut stream)).collect())
}

fn total(demand: &Replicas, pools: &[Pool], steps: u32, method: Method) -> i64 {
    bound(demand, &NODE, pools, steps, method).unwrap().total.0
}

/// The least over all whole numbers of nodes in each tier and step, with one pool.
fn over_all_fleets(demand: &Replicas, pool: &Pool) -> i64 {
    let peak = i64::from(*demand.needed.iter().max().unwrap());
    let steps = i64::try_from(demand.needed.len()).unwrap();
    let price = |share: i64, seconds: i64| 3_600_000 * share * seconds / 3_600_000;
    let spot = i64::from(pool.price.0);
    let with = |reserved: i64| {
        // Of each number of nodes on demand and on spot, what it cost to get there.
        let mut costs = vec![(0, 0, 0)];
        for (needed, room) in demand.needed.iter().zip(&pool.room) {
            let rest = i64::from(*needed) - reserved;
            let all = (0..=peak).flat_map(|x| (0..=i64::from(*room)).map(move |s| (x, s)));
            let here = all.filter(|(x, s)| x + s >= rest);
            costs = here
                .map(|(x, s)| {
                    let boot = |share, rise: i64| price(share, 300) * rise.max(0);
                    let boots = |x0: i64, s0: i64| boot(1000, x - x0) + boot(spot, s - s0);
                    let before = costs.iter().map(|(x0, s0, cost)| cost + boots(*x0, *s0)).min().unwrap();
                    (x, s, before + price(1000, 600) * x + price(spot, 600) * s)
                })
                .collect();
        }
        price(620, 600) * steps * reserved + costs.iter().map(|(_, _, cost)| cost).min().unwrap()
    };
    (0..=peak).map(with).min().unwrap()
}

#[test]
fn it_is_the_cheapest_of_all_fleets() {
    for seed in 0..20 {
        let (demand, pools) = draw(seed, 10, 4, 1);
        let cheapest = over_all_fleets(&demand, &pools[0]);
        assert_eq!(total(&demand, &pools, 1, Method::Flow), cheapest, "seed {seed}");
    }
}

fn solvers() -> Vec<Solver> {
    vec![
        Solver::Microlp,
        #[cfg(feature = "highs")]
        Solver::Highs,
    ]
}

#[test]
fn flow_and_program_agree() {
    for seed in 0..20 {
        let (demand, pools) = draw(seed, 40, 6, 2);
        for steps in [1, 3] {
            let flow = total(&demand, &pools, steps, Method::Flow);
            for solver in solvers() {
                let program = total(&demand, &pools, steps, Method::Linear(solver));
                let off = (flow - program).abs();
                assert!(off <= 2 + flow / 1_000_000, "seed {seed}, {solver}: {flow} against {program}");
            }
        }
    }
}

#[test]
fn by_hand() {
    let demand = |needed: &[u32]| Replicas { needed: needed.to_vec(), step_seconds: 600 };
    let pool = |room: &[u32]| {
        let (name, room) = (String::new(), room.to_vec());
        vec![Pool { name, price: Milli(300), step_seconds: 600, room }]
    };
    let costs = |needed: &[u32], room: &[u32], steps| total(&demand(needed), &pool(room), steps, Method::Flow);
    // A second costs a thousand micro-dollars on demand and 300 on spot, a boot is 300 s.
    // Four steps on spot: 2,400 s and a boot.
    assert_eq!(costs(&[1, 1, 1, 1], &[1], 1), 300 * 2_700);
    // Without spot all of it is reserved: .62 × 2,400 s is less than 2,700 s.
    assert_eq!(costs(&[1, 1, 1, 1], &[0], 1), 620 * 2_400);
    // The mean of two steps is half a replica, for half the price.
    assert_eq!(costs(&[1, 0, 0, 1], &[1], 2), 300 * 2_700 / 2);
    // The room of a slot is its largest.
    assert_eq!(costs(&[1, 1, 1, 1], &[0, 1], 2), 300 * 2_700);
}
