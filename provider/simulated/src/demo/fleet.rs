//! The same day on a fleet that never changes: for each pool and pod size, as many on-demand nodes as the day's peak needs.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::catalogue::template;
use stoker_core::market::offer::CapacityType;
use stoker_core::market::price::{Entry, PriceBook};
use stoker_core::policy::{Policy, Pool};
use stoker_sim::model::{PodSpec, Requests};
use stoker_sim::workload::PodEvent;

/// What the fleet costs, and of what it is.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// The bill of the day.
    pub(super) cost: UsdMicros,
    /// Nodes by instance type.
    pub(super) nodes: BTreeMap<String, u32>,
}

/// A fleet of on-demand nodes, sized for the peak of pods that want to run at once, on the cheapest type per pod.
pub(super) fn static_on_demand(policy: &Policy, book: &PriceBook, pods: &[PodEvent], length: SignedDuration) -> Fleet {
    let mut fleet = Fleet::default();
    for pool in &policy.pools {
        let mut sizes: BTreeMap<Requests, Vec<&PodEvent>> = BTreeMap::new();
        for event in pods.iter().filter(|event| of_pool(&event.pod, pool)) {
            sizes.entry(event.pod.requests.clone()).or_default().push(event);
        }
        for (requests, events) in sizes {
            let Some((name, price, per_node)) = cheapest(pool, book, &requests) else { continue };
            let nodes = peak(&events).div_ceil(per_node);
            *fleet.nodes.entry(name).or_default() += nodes;
            fleet.cost = fleet.cost.plus(price.times(nodes).over_seconds(length.as_secs()));
        }
    }
    fleet
}

fn of_pool(pod: &PodSpec, pool: &Pool) -> bool {
    pod.node_selector.get(template::POOL_LABEL).is_none_or(|name| name == pool.name.as_str())
}

/// Most pods that want to run at once.
fn peak(events: &[&PodEvent]) -> u32 {
    let mut changes: Vec<(SignedDuration, i32)> =
        events.iter().flat_map(|e| [(e.at, 1), (e.at.saturating_add(e.lifetime), -1)]).collect();
    // At the same moment, who leaves makes room first.
    changes.sort_unstable();
    let mut now = 0;
    let peak = changes.into_iter().map(|(_, change)| {
        now += change;
        now
    });
    u32::try_from(peak.max().unwrap_or(0)).unwrap_or(0)
}

/// The on-demand type that serves one such pod for the least, with its price and how many such pods fit.
fn cheapest(pool: &Pool, book: &PriceBook, pod: &Requests) -> Option<(String, UsdPerHour, u32)> {
    let mut best: Option<(u128, String, UsdPerHour, u32)> = None;
    for (market, entry) in book.entries() {
        let place = &market.place;
        let Entry::Price(quote) = entry else { continue };
        if market.capacity_type != CapacityType::OnDemand
            || !pool.clouds.contains(&place.cloud)
            || !pool.regions.contains(&place.region)
        {
            continue;
        }
        let Some(spec) = book.spec(&place.cloud, &place.instance_type) else { continue };
        let allowed = pool.models.contains(&spec.gpu_model)
            && (pool.gpu_counts.is_empty() || pool.gpu_counts.contains(&spec.advertised_gpus()))
            && spec.memory_per_advertised_gpu() >= pool.min_gpu_memory
            && (pool.instance_types.is_empty() || pool.instance_types.iter().any(|p| p.matches(&place.instance_type)));
        let Some((_, free)) = template::resources(spec).filter(|_| allowed) else { continue };
        let fit = (u64::from(free.gpus) / u64::from(pod.gpus.max(1)))
            .min(free.milli_cpu / pod.milli_cpu.max(1))
            .min(free.memory.0 / pod.memory.0.max(1));
        let Ok(fit) = u32::try_from(fit) else { continue };
        if fit == 0 || quote.price.0 <= 0 {
            continue;
        }
        // Micro-dollars per pod, scaled so that the division loses nothing that matters.
        let score = u128::from(quote.price.0.unsigned_abs()) * 1_000_000 / u128::from(fit);
        if best.as_ref().is_none_or(|(s, ..)| score < *s) {
            best = Some((score, place.instance_type.to_string(), quote.price, fit));
        }
    }
    best.map(|(_, name, price, fit)| (name, price, fit))
}
