//! Days of the built-in workload as a demand: which pool of a policy runs which pods.

use stoker_core::base::kinds;
use stoker_core::policy::Policy;

use super::{Pod, Resources, Service};
use crate::workload::{Kind, Pools, Workload};
use crate::world::draw::whole;

const DAY: f64 = 86_400.0;

/// The pods of so many days, each drawn anew from the seed, by arrival, with what each is for. They name no pool yet.
pub fn days(seed: u64, days: u32) -> Vec<(Kind, Pod)> {
    let mut pods = Vec::new();
    for day in 0..days {
        let from = f64::from(day) * DAY;
        // Days of one seed are no days of another.
        let drawn = seed.wrapping_mul(1_000_003).wrapping_add(day.into());
        for event in Workload::day(drawn, &Pools::default()) {
            let requests = &event.pod.requests;
            let pod = Pod {
                name: format!("day-{}/{}", day + 1, event.pod.id),
                arrives: from + event.at.as_secs_f64(),
                runs: event.lifetime.as_secs_f64(),
                requests: Resources {
                    gpus: requests.gpus,
                    milli_cpu: u32::try_from(requests.milli_cpu).unwrap_or(u32::MAX),
                    memory_mib: u32::try_from(requests.memory.0).unwrap_or(u32::MAX),
                },
                gpu_milli: 1000,
                models: Vec::new(),
                service: match event.kind {
                    Kind::Inference => Service::LatencySensitive,
                    Kind::Batch => Service::BestEffort,
                    Kind::Training | Kind::Dev => Service::Other,
                },
                pool: None,
            };
            pods.push((event.kind, pod));
        }
    }
    pods.sort_by_key(|(_, pod)| whole(pod.arrives));
    pods
}

/// The pool of a policy that runs pods of a kind: the one that is named by it, else the first with that `workload`.
/// Short jobs run with notebooks where they have no pool of their own.
pub fn pool_of(policy: &Policy, kind: Kind) -> Option<&str> {
    let of = |word: kinds::Workload| {
        let named = policy.pools.iter().find(|pool| pool.name.as_str() == word.as_str());
        named.or_else(|| policy.pools.iter().find(|pool| pool.workload == word)).map(|pool| pool.name.as_str())
    };
    match kind {
        Kind::Inference => of(kinds::Workload::Inference),
        Kind::Training => of(kinds::Workload::Training),
        Kind::Dev => of(kinds::Workload::Dev),
        Kind::Batch => of(kinds::Workload::Batch).or_else(|| of(kinds::Workload::Dev)),
    }
}
