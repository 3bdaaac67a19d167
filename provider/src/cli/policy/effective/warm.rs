//! Floors and off-hours as the file has them.

use stoker_core::base::calendar::{OffHours, Slot};
use stoker_core::policy::rules::warm_floor::{Quantile, WarmFloor};
use stoker_core::policy::{HeldThen, RawFloorSlot, RawOffHours, RawQuantile, RawSlot, RawWarmFloor};

use super::length;

pub(super) fn floor(floor: &WarmFloor) -> RawWarmFloor {
    let WarmFloor { nodes, percent_of_busy, quantile: of, schedule, signals, warm_when, mechanism } = floor;
    RawWarmFloor {
        nodes: Some(*nodes),
        percent_of_busy: percent_of_busy.map(|share| share.to_string()),
        quantile: of.as_ref().map(quantile),
        schedule: schedule.iter().map(|(times, nodes)| floor_slot(times, *nodes)).collect(),
        signals: Some(*signals),
        warm_when: Some(*warm_when),
        mechanism: Some(*mechanism),
    }
}

fn quantile(Quantile { p, window, horizon }: &Quantile) -> RawQuantile {
    RawQuantile { p: p.map(|p| p.to_string()), window: Some(length(*window)), horizon: horizon.map(length) }
}

fn floor_slot(times: &Slot, nodes: u32) -> RawFloorSlot {
    let RawSlot { cron, time_zone, length } = slot(times);
    RawFloorSlot { cron, time_zone, length, nodes }
}

pub(super) fn slot(Slot { cron, time_zone, length: lasts }: &Slot) -> RawSlot {
    RawSlot { cron: cron.to_string(), time_zone: Some(time_zone.as_str().to_owned()), length: length(*lasts) }
}

pub(super) fn off_hours(off: &OffHours) -> RawOffHours {
    let OffHours { slots, max_nodes, evict_held_after } = off;
    RawOffHours {
        schedule: slots.iter().map(slot).collect(),
        max_nodes: *max_nodes,
        held: Some(if evict_held_after.is_some() { HeldThen::Evict } else { HeldThen::Keep }),
        grace: evict_held_after.map(length),
    }
}
