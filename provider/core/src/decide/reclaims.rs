//! Spot history: adds node-hours, notices and reclaims to the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Draft;
use crate::base::ids::ProviderId;
use crate::base::index::LookupSet;
use crate::market::offer::{CapacityType, Market, Place};
use crate::state::memory::Memory;
use crate::state::record::{Record, State};
use crate::state::spot_history::{EXPOSURE_STEP, HALF_LIFE, RegionReclaims, SIBLINGS_WITHIN, SpotHistory};

/// A machine that the cloud will take back. It counts once: now, and not again when it goes, whoever tells of it.
pub(super) fn noticed(draft: &mut Draft<'_>, made: &ProviderId, market: &Market) {
    let known = draft.memory.spot.get(&market.place);
    if market.capacity_type != CapacityType::Spot || known.is_some_and(|known| known.noticed.contains(made)) {
        return;
    }
    history(&mut draft.memory, &market.place, draft.now).noticed.insert(made.clone());
    reclaimed(draft, &market.place);
}

/// A machine that the cloud takes back after all not. Its market is left alone all the same: the cloud was short of it.
pub(super) fn withdrawn(draft: &mut Draft<'_>, made: &ProviderId, market: &Market) {
    if let Some(known) = draft.memory.spot.get_mut(&market.place).filter(|known| known.noticed.contains(made)) {
        let known = Arc::make_mut(known);
        known.noticed.remove(made);
        known.reclaims.0 = known.reclaims.0.saturating_sub(1000);
    }
}

/// A machine that is gone without being asked to go.
pub(super) fn lost(draft: &mut Draft<'_>, made: &ProviderId, market: &Market, launched_at: Timestamp) {
    if market.capacity_type != CapacityType::Spot {
        return;
    }
    let ran = seconds_since(launched_at, &draft.memory, draft.now);
    let known = history(&mut draft.memory, &market.place, draft.now);
    known.exposure = known.exposure.saturating_add(ran);
    if !known.noticed.remove(made) {
        reclaimed(draft, &market.place);
    }
}

/// Counts a reclaim. The types of a zone go together often enough that those that do are one event of the region: else one zone that
/// sells three types would count three times.
fn reclaimed(draft: &mut Draft<'_>, place: &Place) {
    let of_zone = |other: &Place| other.cloud == place.cloud && other.region == place.region && other.zone == place.zone;
    let just_now = |known: &SpotHistory| known.event_at.is_some_and(|at| draft.now < Draft::after(at, SIBLINGS_WITHIN));
    let told = draft.memory.spot.iter().any(|(other, known)| other != place && of_zone(other) && just_now(known));
    if history(&mut draft.memory, place, draft.now).reclaimed(draft.now) && !told {
        let region = draft.memory.reclaims.entry((place.cloud.clone(), place.region.clone())).or_default();
        Arc::make_mut(region).event(draft.now);
    }
}

fn history<'m>(memory: &'m mut Memory, place: &Place, now: Timestamp) -> &'m mut SpotHistory {
    Arc::make_mut(memory.spot.entry(place.clone()).or_insert_with(|| Arc::new(SpotHistory::begun(now))))
}

/// Seconds that a machine has run and that no market's history has yet.
fn seconds_since(launched_at: Timestamp, memory: &Memory, now: Timestamp) -> u64 {
    let from = memory.exposure_at.map_or(launched_at, |counted| counted.max(launched_at));
    u64::try_from(now.duration_since(from).as_secs()).unwrap_or(0)
}

/// Counts the hours of running spot nodes, every [`EXPOSURE_STEP`]; lets what is old count less, and forgets what says nothing any more.
pub(super) fn keep(draft: &mut Draft<'_>) {
    let now = draft.now;
    match draft.memory.exposure_at.map(|at| Draft::after(at, EXPOSURE_STEP)) {
        Some(next) if now < next => draft.look_again_at(next),
        _ => expose(draft),
    }
    for known in draft.memory.spot.values_mut() {
        if Draft::after(known.since, HALF_LIFE) <= now {
            Arc::make_mut(known).age(now);
        }
    }
    if draft.memory.spot.values().any(|known| !known.noticed.is_empty()) {
        let there: LookupSet<_> = draft.memory.records.values().filter_map(|record| record.instance().cloned()).collect();
        for known in draft.memory.spot.values_mut().filter(|known| known.noticed.iter().any(|id| !there.contains(id))) {
            Arc::make_mut(known).noticed.retain(|id| there.contains(id));
        }
    }
    draft.memory.spot.retain(|_, known| !known.is_spent(now));
    draft.memory.reclaims.retain(|_, region| {
        let mut kept = RegionReclaims::clone(region);
        let left = kept.forget(now);
        if kept != **region {
            *region = Arc::new(kept);
        }
        left
    });
    let moments: Vec<Timestamp> = draft
        .memory
        .spot
        .values()
        .flat_map(|known| [Some(Draft::after(known.since, HALF_LIFE)), known.left_alone_until()])
        .chain(draft.memory.reclaims.values().map(|region| region.left_alone_until))
        .flatten()
        .collect();
    for at in moments {
        draft.look_again_at(at);
    }
}

fn expose(draft: &mut Draft<'_>) {
    let mut ran: BTreeMap<&Place, u64> = BTreeMap::new();
    for (market, launched_at) in draft.memory.records.values().filter_map(|record| running(record)) {
        if market.capacity_type == CapacityType::Spot {
            *ran.entry(&market.place).or_default() += seconds_since(launched_at, &draft.memory, draft.now);
        }
    }
    if ran.is_empty() {
        return;
    }
    let ran: Vec<(Place, u64)> = ran.into_iter().map(|(place, seconds)| (place.clone(), seconds)).collect();
    for (place, seconds) in ran {
        let known = history(&mut draft.memory, &place, draft.now);
        known.exposure = known.exposure.saturating_add(seconds);
    }
    draft.memory.exposure_at = Some(draft.now);
    draft.look_again_at(Draft::after(draft.now, EXPOSURE_STEP));
}

/// The market of a machine that runs, and since when it does.
const fn running(record: &Record) -> Option<(&Market, Timestamp)> {
    match &record.state {
        State::Booting { purchase, launched_at, .. } | State::Registered { purchase, launched_at, .. } => {
            Some((&purchase.market, *launched_at))
        }
        _ => None,
    }
}
