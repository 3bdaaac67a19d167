//! Spot history: adds node-hours, notices and reclaims to the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::pass::{Changes, Pass, after};
use crate::base::ids::ProviderId;
use crate::base::index::LookupSet;
use crate::market::offer::{CapacityType, Market, Place};
use crate::state::memory::Memory;
use crate::state::probe_reclaims::CLOSES_AGAIN_AFTER;
use crate::state::record::{Record, State};
use crate::state::spot_history::{EXPOSURE_STEP, HALF_LIFE, RegionReclaims, SIBLINGS_WITHIN, SpotHistory};

/// A machine that the cloud will take back. It counts once: now, and not again when it goes, whoever tells of it.
pub(super) fn noticed<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, made: &ProviderId, market: &Market) {
    let known = changes.memory.spot.get(&market.place);
    if market.capacity_type != CapacityType::Spot || known.is_some_and(|known| known.noticed.contains(made)) {
        return;
    }
    history(&mut changes.memory, &market.place, pass.now).noticed.insert(made.clone());
    reclaimed(pass, changes, &market.place);
}

/// A machine that only its probe calls taken back. Probes alone close a market at most once in [`CLOSES_AGAIN_AFTER`]; later ones
/// count when the supplier confirms them, or when the machine goes.
pub(super) fn noticed_by_probe<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, made: &ProviderId, market: &Market) {
    let known = changes.memory.spot.get(&market.place);
    let closed_at = known.and_then(|known| known.closed_by_probe_at);
    let since = |by| closed_at.is_some_and(|at| pass.now < after(at, by));
    if since(CLOSES_AGAIN_AFTER) && !since(SIBLINGS_WITHIN) {
        return;
    }
    noticed(pass, changes, made, market);
    if let (false, Some(known)) = (since(SIBLINGS_WITHIN), changes.memory.spot.get_mut(&market.place)) {
        Arc::make_mut(known).closed_by_probe_at = Some(pass.now);
    }
}

/// A reclaim notice that was withdrawn. The market is left alone all the same: the cloud was short of it.
pub(super) fn withdrawn(changes: &mut Changes<'_>, made: &ProviderId, market: &Market) {
    if let Some(known) = changes.memory.spot.get_mut(&market.place).filter(|known| known.noticed.contains(made)) {
        let known = Arc::make_mut(known);
        known.noticed.remove(made);
        known.reclaims.0 = known.reclaims.0.saturating_sub(1000);
    }
}

/// A machine that is gone without being asked to go.
pub(super) fn lost<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    made: &ProviderId,
    market: &Market,
    launched_at: Timestamp,
    taken: bool,
) {
    if market.capacity_type != CapacityType::Spot {
        return;
    }
    let ran = seconds_since(launched_at, &changes.memory, pass.now);
    let known = history(&mut changes.memory, &market.place, pass.now);
    known.exposure = known.exposure.saturating_add(ran);
    if !known.noticed.remove(made) && taken {
        reclaimed(pass, changes, &market.place);
    }
}

/// Counts a reclaim. The types of a zone go together often enough that those that do are one event of the region: else one zone that
/// sells three types would count three times.
fn reclaimed<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, place: &Place) {
    let of_zone = |other: &Place| other.cloud == place.cloud && other.region == place.region && other.zone == place.zone;
    let just_now = |known: &SpotHistory| known.event_at.is_some_and(|at| pass.now < after(at, SIBLINGS_WITHIN));
    let told = changes.memory.spot.iter().any(|(other, known)| other != place && of_zone(other) && just_now(known));
    if history(&mut changes.memory, place, pass.now).reclaimed(pass.now) && !told {
        let region = changes.memory.reclaims.entry((place.cloud.clone(), place.region.clone())).or_default();
        Arc::make_mut(region).event(pass.now);
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
pub(super) fn keep<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let now = pass.now;
    match changes.memory.exposure_at.map(|at| after(at, EXPOSURE_STEP)) {
        Some(next) if now < next => changes.look_again_at(next),
        _ => expose(pass, changes),
    }
    for known in changes.memory.spot.values_mut() {
        if after(known.since, HALF_LIFE) <= now {
            Arc::make_mut(known).age(now);
        }
    }
    if changes.memory.spot.values().any(|known| !known.noticed.is_empty()) {
        let there: LookupSet<_> = changes.memory.records.values().filter_map(|record| record.instance().cloned()).collect();
        for known in changes.memory.spot.values_mut().filter(|known| known.noticed.iter().any(|id| !there.contains(id))) {
            Arc::make_mut(known).noticed.retain(|id| there.contains(id));
        }
    }
    changes.memory.spot.retain(|_, known| !known.is_spent(now));
    changes.memory.reclaims.retain(|_, region| {
        let mut kept = RegionReclaims::clone(region);
        let left = kept.forget(now);
        if kept != **region {
            *region = Arc::new(kept);
        }
        left
    });
    let moments: Vec<Timestamp> = changes
        .memory
        .spot
        .values()
        .flat_map(|known| [Some(after(known.since, HALF_LIFE)), known.left_alone_until()])
        .chain(changes.memory.reclaims.values().map(|region| region.left_alone_until))
        .flatten()
        .collect();
    for at in moments {
        changes.look_again_at(at);
    }
}

fn expose<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let mut ran: BTreeMap<&Place, u64> = BTreeMap::new();
    let spot = changes.indexed().filter(|(_, entry)| entry.capacity == Some(CapacityType::Spot));
    for (market, launched_at) in spot.filter_map(|(record, _)| running(record)) {
        *ran.entry(&market.place).or_default() += seconds_since(launched_at, &changes.memory, pass.now);
    }
    if ran.is_empty() {
        return;
    }
    let ran: Vec<(Place, u64)> = ran.into_iter().map(|(place, seconds)| (place.clone(), seconds)).collect();
    for (place, seconds) in ran {
        let known = history(&mut changes.memory, &place, pass.now);
        known.exposure = known.exposure.saturating_add(seconds);
    }
    changes.memory.exposure_at = Some(pass.now);
    changes.look_again_at(after(pass.now, EXPOSURE_STEP));
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
