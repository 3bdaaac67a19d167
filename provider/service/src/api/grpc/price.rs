//! What nodes and pods cost, for the autoscaler's price expander. Money becomes a float here, and only to travel.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use stoker_core::base::units::{MICROS_PER_USD, UsdPerHour};
use stoker_core::catalogue::template::NodeTemplate;
use stoker_core::choose::parts::price_parts;
use stoker_core::market::price::Unpriced;

use crate::kube::pods::Requests;
use crate::publish::view::{GroupView, View};

/// The least that anything costs. A price of nought would make every option score alike, and capacity that is paid for already still
/// ranks before what is not.
const TRIFLE: UsdPerHour = UsdPerHour(1);

/// What kube-scheduler takes a container to need that asks for nothing: a tenth of a core and 200 MB.
const UNASKED_MILLI_CPU: u64 = 100;
const UNASKED_MEMORY: u64 = 200_000_000;

const PICOS_PER_MICRO: u128 = 1_000_000;
const PICOS_PER_USD: f64 = 1e12;
const BYTES_PER_MIB: u128 = 1 << 20;

/// The price of one more node: that of the next one; for a closed group, of the one that the pool would buy first if it could. Never
/// nought.
///
/// # Errors
/// Says why the pool's first choice has no price, where no other has one either.
pub(super) fn node(view: &View, group: &GroupView) -> Result<UsdPerHour, Unpriced> {
    if let Some(price) = group.limits.next_price {
        return Ok(price.max(TRIFLE));
    }
    let mut missing = None;
    for offer in &group.group.offers {
        match price_parts(&view.catalogue, &view.memory, &group.group, offer, view.wall) {
            Ok(parts) => return Ok(parts.effective.max(TRIFLE)),
            Err(why) => missing = missing.or(Some(why)),
        }
    }
    Err(missing.unwrap_or(Unpriced::Unknown))
}

/// What a rate comes to over some hours, in dollars.
#[expect(clippy::cast_precision_loss, reason = "a price on the wire is a float: exact below 9 billion dollars an hour")]
pub(super) fn dollars(rate: UsdPerHour, hours: f64) -> f64 {
    rate.0 as f64 * hours / MICROS_PER_USD as f64
}

/// What one unit costs where it is cheapest, in millionths of a micro-dollar per hour. The same whatever the group, so that the worth of
/// the pods that two options help can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnitPrices {
    milli_cpu: u128,
    mib: u128,
    gpu: u128,
    /// Of GPU resources under other names.
    slices: BTreeMap<String, u128>,
}

impl UnitPrices {
    /// The cheapest of each unit, over nodes with these prices; `None` without any. Never nought.
    pub(super) fn cheapest<'a>(nodes: impl IntoIterator<Item = (UsdPerHour, &'a NodeTemplate)>) -> Option<Self> {
        let mut cheapest: Option<Self> = None;
        for (price, template) in nodes {
            let node = &template.allocatable;
            let price = u128::try_from(price.max(TRIFLE).0).unwrap_or(1) * PICOS_PER_MICRO;
            let each = |units: u64| price.div_ceil(u128::from(units.max(1)));
            let (milli_cpu, mib, gpu) = (each(node.milli_cpu), each(node.memory.0), each(node.gpus.into()));
            let mut least = cheapest.take().unwrap_or(Self { milli_cpu, mib, gpu, slices: BTreeMap::new() });
            least.milli_cpu = least.milli_cpu.min(milli_cpu);
            least.mib = least.mib.min(mib);
            least.gpu = least.gpu.min(gpu);
            for (name, number) in template.slices.iter() {
                let known = least.slices.entry(name.to_owned()).or_insert(u128::MAX);
                *known = each(number).min(*known);
            }
            cheapest = Some(least);
        }
        cheapest
    }

    /// What a pod that needs this much comes to over some hours, in dollars; above nought.
    #[expect(clippy::cast_precision_loss, reason = "a price on the wire is a float")]
    pub(super) fn dollars(&self, needs: &Requests, hours: f64) -> f64 {
        let asked = |amount: u64, unasked: u64| u128::from(if amount == 0 { unasked } else { amount });
        let cpu = asked(needs.milli_cpu, UNASKED_MILLI_CPU).saturating_mul(self.milli_cpu);
        let memory = asked(needs.memory_bytes, UNASKED_MEMORY).saturating_mul(self.mib).div_ceil(BYTES_PER_MIB);
        let gpus = u128::from(needs.gpus).saturating_mul(self.gpu);
        // What no node has counts as a whole GPU does.
        let of_one = |name| self.slices.get(name).copied().unwrap_or(self.gpu);
        let slices = needs.slices.iter().map(|(name, number)| u128::from(number).saturating_mul(of_one(name)));
        let gpus = slices.fold(gpus, u128::saturating_add);
        cpu.saturating_add(memory).saturating_add(gpus) as f64 * hours / PICOS_PER_USD
    }
}

/// The unit prices of a view, worked out once: the price expander asks for thousands of pods in one loop.
#[derive(Debug, Default)]
pub(super) struct UnitPriceCache(ArcSwapOption<(Weak<View>, Arc<UnitPrices>)>);

impl UnitPriceCache {
    /// The unit prices of this view; `None` while no group has a price.
    pub(super) fn of(&self, view: &Arc<View>) -> Option<Arc<UnitPrices>> {
        // The weak pointer keeps the address from being given to another view.
        if let Some((known, prices)) = self.0.load().as_deref()
            && std::ptr::eq(known.as_ptr(), Arc::as_ptr(view))
        {
            return Some(Arc::clone(prices));
        }
        let groups = view.groups.values();
        let nodes = groups.filter_map(|group| Some((node(view, group).ok()?, &group.group.template)));
        let prices = Arc::new(UnitPrices::cheapest(nodes)?);
        self.0.store(Some(Arc::new((Arc::downgrade(view), Arc::clone(&prices)))));
        Some(prices)
    }
}
