//! A whole day against the small supplier, driven as a demo drives it.

use std::collections::BTreeMap;

use super::*;
use crate::workload::{PodEvent, Pools, Workload};

const BOOT: SignedDuration = SignedDuration::from_mins(4);

#[derive(Debug, Default)]
struct Day {
    loops: usize,
    /// Longest wait of a pod for a node.
    longest_wait: SignedDuration,
    served: usize,
    peak: i32,
}

/// The pools with a group each; training gets machines with eight GPUs.
fn rig(pools: &Pools) -> Rig {
    let mut rig = Rig::new(Settings::recommended(), &[]);
    for (pool, gpus) in [(&pools.inference, 1), (&pools.training, 8), (&pools.dev, 1), (&pools.batch, 1)] {
        rig.supplier().add_group(pool);
        let group = rig.supplier().group(pool);
        group.max = 60;
        group.template.labels.insert(POOL.to_owned(), pool.clone());
        for has in [&mut group.template.capacity, &mut group.template.allocatable] {
            has.gpus = gpus;
            has.milli_cpu = 4000 * u64::from(gpus);
            has.memory = MiB::from_gib(16 * u64::from(gpus));
        }
    }
    rig
}

fn run(seed: u64) -> (Day, Rig) {
    let pools = Pools::default();
    let mut rig = rig(&pools);
    let midnight = rig.now;
    let mut arrivals: Vec<PodEvent> = Workload::day(seed, &pools);
    arrivals.reverse();
    let mut lifetimes: BTreeMap<String, SignedDuration> = BTreeMap::new();
    let mut ends: Vec<(Timestamp, String)> = Vec::new();
    let mut boots: Vec<Timestamp> = Vec::new();
    let mut day = Day::default();
    // The longest job of the last minute ends by then.
    let end = midnight + SignedDuration::from_hours(38);
    let mut changed = true;
    while rig.now < end {
        let now = rig.now;
        while arrivals.last().is_some_and(|event| midnight + event.at <= now) {
            let PodEvent { pod, lifetime, .. } = arrivals.pop().unwrap();
            lifetimes.insert(pod.id.clone(), lifetime);
            rig.ca.cluster_mut().add_pod(pod, now);
            changed = true;
        }
        for (_, pod) in ends.extract_if(.., |(at, _)| *at <= now) {
            rig.ca.cluster_mut().finish_pod(&pod);
            changed = true;
        }
        if boots.extract_if(.., |at| *at <= now).count() > 0 {
            rig.boot(true);
            changed = true;
        }
        if rig.ca.next_loop(now, changed).is_some_and(|at| at <= now) {
            let report = rig.step();
            rig.sweep();
            day.loops += 1;
            changed = !report.actions.is_empty();
            assert_eq!(report.outcome, Outcome::Done);
            boots.extend((!report.asked().is_empty()).then_some(now + BOOT));
        }
        rig.ca.cluster_mut().schedule();
        let bound: Vec<Arc<PodView>> = rig.ca.cluster().all_pods().filter(|p| p.node.is_some()).cloned().collect();
        for pod in bound {
            // One that moved goes on where it was.
            if let Some(lifetime) = lifetimes.remove(&pod.id) {
                day.served += 1;
                day.longest_wait = day.longest_wait.max(now.duration_since(pod.created_at));
                ends.push((now + lifetime, pod.id.clone()));
                changed = true;
            }
        }
        day.peak = day.peak.max(pools_of(&rig).iter().map(|pool| rig.target(pool)).sum());
        let outside = ends.iter().map(|(at, _)| *at).chain(boots.iter().copied());
        let outside = outside.chain(arrivals.last().map(|event| midnight + event.at));
        rig.now = outside.chain(rig.ca.next_loop(now, changed)).min().unwrap_or(end);
    }
    (day, rig)
}

fn pools_of(rig: &Rig) -> Vec<String> {
    rig.ca.provider().groups.keys().cloned().collect()
}

#[test]
fn a_day_is_served_and_ends_empty() {
    for seed in [1, 2] {
        let (day, rig) = run(seed);
        assert_eq!(day.served, Workload::day(seed, &Pools::default()).len());
        assert!(day.longest_wait < mins(8), "{day:?}");
        assert!((30..90).contains(&day.peak), "{day:?}");
        assert_eq!(pools_of(&rig).iter().map(|pool| rig.target(pool)).sum::<i32>(), 0);
        // Of nearly 14,000 scans.
        assert!(day.loops < 3000, "{day:?}");
    }
}
