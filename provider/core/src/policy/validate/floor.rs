//! Warm floors.

use jiff::{SignedDuration, Timestamp};

use super::calendar::Reader;
use super::stretches::{CHANGES, REFERENCE, YEAR};
use super::{Faults, grammar, optional};
use crate::base::calendar::{OffHours, Slot, Zone};
use crate::base::kinds::Evidence;
use crate::base::text::read_length;
use crate::base::units::Percent;
use crate::policy::rules::warm_floor::{DEFAULT_WINDOW, LONGEST_WINDOW, Quantile, SHORTEST_WINDOW, WarmFloor};
use crate::policy::{Path, RawPool, RawQuantile, RawWarmFloor};

/// Shortest horizon: no machine boots faster.
const MIN_HORIZON: SignedDuration = SignedDuration::from_mins(1);
/// Longest horizon: no boot takes longer than the longest boot deadline.
const MAX_HORIZON: SignedDuration = super::MAX_BOOT_DEADLINE;

/// What the pool keeps warm. `None` is a fault, `Some(None)` nothing.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn warm_floor(faults: &mut Faults, path: &Path, raw: &RawPool, zone: &Zone) -> Option<Option<WarmFloor>> {
    optional(raw.warm_floor.as_ref(), |floor| read(faults, &path.key("warmFloor"), raw, floor, zone))
}

fn read(faults: &mut Faults, path: &Path, pool: &RawPool, raw: &RawWarmFloor, zone: &Zone) -> Option<WarmFloor> {
    let signals = raw.signals.unwrap_or(false);
    if raw.nodes.is_none() && raw.percent_of_busy.is_none() && raw.quantile.is_none() && raw.schedule.is_empty() && !signals {
        faults.add(path, "asks for nothing: write nodes, percentOfBusy, quantile, schedule or signals: true, or remove it");
    }
    if pool.evidence == Some(Evidence::None) {
        faults.add(path, "needs to know which nodes are free, which evidence: none never shows: write evidence: pods or probe");
    }
    let fits = |faults: &mut Faults, path: &Path, nodes: u32| {
        let most = pool.limits.max_nodes;
        if nodes > most {
            faults.add(path, format!("{nodes} is above limits.maxNodes {most}: lower it or raise that"));
        }
    };
    if let Some(nodes) = raw.nodes {
        fits(faults, &path.key("nodes"), nodes);
    }
    let share_path = path.key("percentOfBusy");
    let percent_of_busy = optional(raw.percent_of_busy.as_deref(), |text| {
        let share = faults.keep(&share_path, grammar::percent(text))?;
        if share == Percent(0) {
            faults.add(&share_path, "is 0%: name a share, or remove it");
        }
        Some(share)
    });
    let quantile = optional(raw.quantile.as_ref(), |raw| quantile(faults, &path.key("quantile"), raw));
    let schedule_path = path.key("schedule");
    let mut reader = Reader::of_floor(pool, zone);
    let schedule: Vec<_> = raw
        .schedule
        .iter()
        .enumerate()
        .map(|(at, slot)| {
            let path = schedule_path.index(at);
            fits(faults, &path.key("nodes"), slot.nodes);
            let read = reader.slot(faults, &path, &slot.cron, slot.time_zone.as_deref(), &slot.length);
            Some((read?, slot.nodes))
        })
        .collect();
    if signals && pool.signals.is_empty() {
        faults.add(&path.key("signals"), "has no signals to follow: list the pool's signals, or remove it");
    }
    Some(WarmFloor {
        nodes: raw.nodes.unwrap_or(0),
        percent_of_busy: percent_of_busy?,
        quantile: quantile?,
        schedule: schedule.into_iter().collect::<Option<_>>()?,
        signals,
        warm_when: raw.warm_when.unwrap_or_default(),
        mechanism: raw.mechanism.unwrap_or_default(),
    })
}

fn quantile(faults: &mut Faults, path: &Path, raw: &RawQuantile) -> Option<Quantile> {
    let p_path = path.key("p");
    let p = optional(raw.p.as_deref(), |text| {
        let p = faults.keep(&p_path, grammar::percent(text))?;
        if p == Percent(0) || p == Percent::ALL {
            faults.add(&p_path, format!("{text} is not above 0% and below 100%: write it like 95%"));
        }
        Some(p)
    });
    let window_path = path.key("window");
    let window = match raw.window.as_deref() {
        None => Some(DEFAULT_WINDOW),
        Some(text) => faults.keep(&window_path, read_length(text)).inspect(|window| {
            if *window < SHORTEST_WINDOW {
                faults.add(&window_path, format!("{text} is below 1d: raise it, part of a day does not represent the rest"));
            } else if *window > LONGEST_WINDOW {
                faults.add(&window_path, format!("{text} is above 30d: lower it, no more is remembered"));
            }
        }),
    };
    let horizon_path = path.key("horizon");
    let horizon = optional(raw.horizon.as_deref(), |text| {
        let horizon = faults.keep(&horizon_path, read_length(text))?;
        if horizon < MIN_HORIZON {
            faults.add(&horizon_path, format!("{text} is below 1m: raise it, no machine boots so fast"));
        } else if horizon > MAX_HORIZON {
            faults.add(&horizon_path, format!("{text} is above 1h: lower it, no boot is waited for so long"));
        }
        Some(horizon)
    });
    Some(Quantile { p: p?, window: window?, horizon: horizon? })
}

/// Reports slots that ask for nodes while off-hours allow none so many.
pub(super) fn contradictions(faults: &mut Faults, path: &Path, floor: Option<&WarmFloor>, off: Option<&OffHours>) {
    let (Some(floor), Some(off)) = (floor, off) else { return };
    let Some(most) = off.max_nodes else { return };
    for (at, (slot, nodes)) in floor.schedule.iter().enumerate().filter(|(_, (_, nodes))| *nodes > most) {
        if let Some(both) = both_on(slot, off) {
            let when = slot.time_zone.show(both);
            let why =
                format!("asks for {nodes} nodes while offHours.maxNodes is {most}, for one from {when}: change one of them");
            faults.add(&path.key("warmFloor").key("schedule").index(at), why);
        }
    }
}

/// The first time within a year at which both are on.
fn both_on(slot: &Slot, off: &OffHours) -> Option<Timestamp> {
    let mut now = REFERENCE;
    for _ in 0..CHANGES {
        let ((slot_on, slot_next), (off_on, off_next)) = (slot.at(now), off.at(now));
        if slot_on && off_on {
            return Some(now);
        }
        now = slot_next.into_iter().chain(off_next).min().filter(|next| next.duration_since(REFERENCE) < YEAR)?;
    }
    None
}
