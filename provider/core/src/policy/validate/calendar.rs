//! Schedules, and what off-hours do.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::stretches::{REFERENCE, cover_every_hour, length_around};
use super::windows::LONGEST;
use super::{Faults, optional};
use crate::base::calendar::{Cron, OffHours, Slot, Zone};
use crate::base::kinds::Evidence;
use crate::base::text::{self, read_length};
use crate::policy::rules::stabilization::Stabilization;
use crate::policy::{HeldThen, Path, RawOffHours, RawPool, RawStabilization};

/// Longest slot: what is on for longer is how things are, and not a time of the week.
const MAX_SLOT: SignedDuration = SignedDuration::from_hours(31 * 24);
/// How long after an Event a forgotten notebook is closed, where the policy does not say: time to run to the desk and save.
const DEFAULT_GRACE: SignedDuration = SignedDuration::from_mins(15);
/// Shortest grace time: a person must have seen the Event.
const MIN_GRACE: SignedDuration = SignedDuration::from_mins(1);
/// Longest grace time: off-hours are over by then.
const MAX_GRACE: SignedDuration = SignedDuration::from_hours(24);

/// The zone of schedules that name none.
pub(super) fn default_zone(faults: &mut Faults, path: &Path, text: Option<&str>) -> Zone {
    text.and_then(|text| zone(faults, path, text)).unwrap_or_else(Zone::utc)
}

fn zone(faults: &mut Faults, path: &Path, text: &str) -> Option<Zone> {
    faults.keep(path, Zone::parse(text).map_err(|error| error.to_string()))
}

/// What a schedule is read with.
pub(super) struct Reader<'a> {
    /// The zone of slots that name none.
    zone: &'a Zone,
    /// How long a free node of the pool is kept, and the field that says so.
    window: (SignedDuration, &'static str),
    /// The field of the slots.
    field: &'static str,
    /// How many were read so far.
    read: usize,
    /// The first of each kind.
    seen: BTreeMap<(String, String), usize>,
}

impl<'a> Reader<'a> {
    /// For slots in which nodes go: a free one stays for its window at any time.
    pub(super) fn of_off_hours(pool: &RawPool, zone: &'a Zone) -> Self {
        let [scale_down, ..] = windows(pool);
        Self { zone, window: scale_down, field: "schedule", read: 0, seen: BTreeMap::new() }
    }

    /// For slots in which nodes with pods go, which no window keeps.
    pub(super) const fn of_maintenance(zone: &'a Zone) -> Self {
        Self { zone, window: (SignedDuration::ZERO, ""), field: "maintenance", read: 0, seen: BTreeMap::new() }
    }

    /// For slots that buy nodes: what is bought when one begins stays for as long as the longest of all windows.
    pub(super) fn of_floor(pool: &RawPool, zone: &'a Zone) -> Self {
        let [first, rest @ ..] = windows(pool);
        let longest = rest.into_iter().fold(first, |longest, next| if next.0 > longest.0 { next } else { longest });
        Self { zone, window: longest, field: "schedule", read: 0, seen: BTreeMap::new() }
    }

    /// The next slot of a schedule.
    pub(super) fn slot(
        &mut self,
        faults: &mut Faults,
        path: &Path,
        cron: &str,
        time_zone: Option<&str>,
        length: &str,
    ) -> Option<Slot> {
        let at = self.read;
        self.read += 1;
        let read = faults.keep(&path.key("cron"), Cron::parse(cron).map_err(|error| error.to_string()));
        let time_zone = match time_zone {
            Some(text) => zone(faults, &path.key("timeZone"), text),
            None => Some(self.zone.clone()),
        };
        let field = path.key("for");
        let text = length;
        let length = faults.keep(&field, read_length(text));
        let told = faults.0.len();
        if let Some(length) = length {
            if length <= SignedDuration::ZERO {
                faults.add(&field, format!("{text} is zero: write how long it lasts, such as 10h"));
            } else if length < self.window.0 {
                let why = "so what it changes would hardly show: lengthen it, or shorten that";
                let (window, name) = (text::length(self.window.0), self.window.1);
                faults.add(&field, format!("{text} is shorter than the stabilization.{name} window of {window}, {why}"));
            } else if length > MAX_SLOT {
                faults.add(
                    &field,
                    format!("{text} is above 31d: shorten it, or write what applies at all times outside the schedule"),
                );
            }
        }
        let slot = Slot { cron: read?, time_zone: time_zone?, length: length.filter(|_| faults.0.len() == told)? };
        let begins = (slot.cron.to_string(), slot.time_zone.as_str().to_owned());
        if let Some(earlier) = self.seen.get(&begins) {
            faults.add(path, format!("starts whenever {}[{earlier}] does: join the two, or change one", self.field));
        } else if slot.is_endless(REFERENCE) {
            faults.add(
                &field,
                format!("{text} lasts until its next start and so never ends: shorten it, or let it start less often"),
            );
        }
        self.seen.entry(begins).or_insert(at);
        Some(slot)
    }
}

/// What keeps a free node of a pool, as far as it can be read: its window first.
fn windows(pool: &RawPool) -> [(SignedDuration, &'static str); 3] {
    let absent = RawStabilization::default();
    let written = pool.stabilization.as_ref().unwrap_or(&absent);
    let usual = Stabilization::of(pool.workload);
    // One that is too long is told itself, once and not again with each slot.
    let read = |text: &str| read_length(text).ok().filter(|length| *length <= LONGEST);
    let of = |text: &Option<String>, usual| text.as_deref().and_then(read).unwrap_or(usual);
    [
        (of(&written.scale_down, usual.scale_down), "scaleDown"),
        (of(&written.minimum_life, usual.minimum_life), "minimumLife"),
        (of(&written.after_scale_up, usual.after_scale_up), "afterScaleUp"),
    ]
}

/// When the pool is not worked with. `None` is a fault, `Some(None)` never.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn off_hours(faults: &mut Faults, path: &Path, raw: &RawPool, zone: &Zone) -> Option<Option<OffHours>> {
    optional(raw.off_hours.as_ref(), |off| read(faults, &path.key("offHours"), raw, off, zone))
}

fn read(faults: &mut Faults, path: &Path, pool: &RawPool, raw: &RawOffHours, zone: &Zone) -> Option<OffHours> {
    let schedule = path.key("schedule");
    let told = faults.0.len();
    if raw.schedule.is_empty() {
        faults.add(&schedule, "is empty: name at least one time, or remove offHours");
    }
    let mut reader = Reader::of_off_hours(pool, zone);
    let slots: Vec<_> = raw
        .schedule
        .iter()
        .enumerate()
        .map(|(at, slot)| reader.slot(faults, &schedule.index(at), &slot.cron, slot.time_zone.as_deref(), &slot.length))
        .collect();
    let (least, most) = (pool.limits.min_nodes.unwrap_or(0), pool.limits.max_nodes);
    match raw.max_nodes {
        Some(nodes) if nodes < least => {
            let why =
                format!("{nodes} is below limits.minNodes {least}, which are kept at all times: lower those, or raise it");
            faults.add(&path.key("maxNodes"), why);
        }
        Some(nodes) if nodes >= most => {
            let why = format!("{nodes} is not below limits.maxNodes {most}, so it changes nothing: lower it or remove it");
            faults.add(&path.key("maxNodes"), why);
        }
        None if raw.held.unwrap_or_default() == HeldThen::Keep => {
            faults.add(path, "changes nothing: write maxNodes, or held: evict");
        }
        _ => {}
    }
    let grace = raw.grace.as_deref().map(|text| (text, faults.keep(&path.key("grace"), read_length(text))));
    let evict = raw.held == Some(HeldThen::Evict);
    match grace {
        Some(_) if !evict => faults.add(&path.key("grace"), "applies to held: evict only: remove it, or write that"),
        Some((text, Some(length))) if length < MIN_GRACE => {
            faults.add(&path.key("grace"), format!("{text} is below 1m: raise it, nobody would have seen the Event"));
        }
        Some((text, Some(length))) if length > MAX_GRACE => {
            faults.add(&path.key("grace"), format!("{text} is above 24h: lower it, off-hours would be over"));
        }
        _ => {}
    }
    if evict && pool.evidence.unwrap_or(Evidence::Pods) != Evidence::Probe {
        faults
            .add(&path.key("held"), "evict needs evidence: probe: nothing else can tell a forgotten notebook from a busy one");
    }
    let evict_held_after = evict.then(|| grace.and_then(|(_, length)| length).unwrap_or(DEFAULT_GRACE));
    let off = OffHours { slots: slots.into_iter().collect::<Option<_>>()?, max_nodes: raw.max_nodes, evict_held_after };
    if faults.0.len() == told {
        without_end(faults, path, pool, &off);
        too_short_for_grace(faults, &schedule, &off);
    }
    Some(off)
}

/// Reports slots that follow each other without end. Held nodes may be given up at all times; a limit that always holds is the pool's own.
fn without_end(faults: &mut Faults, path: &Path, pool: &RawPool, off: &OffHours) {
    let Some(most) = off.max_nodes.filter(|_| cover_every_hour(off)) else { return };
    let floor = pool.warm_floor.as_ref().and_then(|floor| floor.nodes).filter(|nodes| *nodes > most);
    let floor = floor.map(|nodes| format!(", and warmFloor.nodes {nodes} is never kept")).unwrap_or_default();
    let cure = "leave a time out, or write limits.maxNodes";
    faults.add(&path.key("schedule"), format!("covers every hour, so maxNodes {most} always applies{floor}: {cure}"));
}

/// Reports slots that are over before a held node could be let go in them.
fn too_short_for_grace(faults: &mut Faults, schedule: &Path, off: &OffHours) {
    let Some(grace) = off.evict_held_after else { return };
    for (at, slot) in off.slots.iter().enumerate() {
        let length = length_around(off, slot);
        if length <= grace {
            let why = "so no idle pod is evicted in it: lengthen it, or shorten that";
            let message = format!("{} is no longer than offHours.grace, {}, {why}", text::length(length), text::length(grace));
            faults.add(&schedule.index(at).key("for"), message);
        }
    }
}
