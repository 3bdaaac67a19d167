//! Lapses: pools that hear none of their probes. The nodes are not the cause then, and their pods
//! are the evidence.
//!
//! A pool's probes have lapsed when none of the expected probes has been heard for
//! [`LAPSED_AFTER`], and most of them, at least two, fell silent within [`LAPSED_WITHIN`] of the
//! last one or were never heard. Expected are probes that were heard before, and those of nodes
//! that have been Ready for [`START_WITHIN`]. A probe that fell silent alone makes its node
//! unknown.
//!
//! The probes are back when half of the expected ones have been heard for [`BACK_FOR`].

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::pass::{Changes, Pass, after};
use super::look::Look;
use crate::base::ids::PoolName;
use crate::plan::Note;
use crate::state::probe_history::{BACK_FOR, LAPSED_AFTER, LAPSED_WITHIN, ProbeHistory, START_WITHIN};

/// The probes of one pool.
#[derive(Default)]
struct Probes {
    awaited: usize,
    heard: usize,
    /// Heard for long enough to be believed.
    back: usize,
    never_heard: usize,
    /// Since when those are silent that were heard before.
    silent_since: Vec<Timestamp>,
}

/// Since when the probes of each pool have lapsed, of those that have.
pub(super) struct Lapses(BTreeMap<PoolName, Timestamp>);

impl Lapses {
    /// Whether a node's probe is silent for the same cause as all others of its pool.
    pub(super) fn cover(&self, pool: &PoolName, node: &ProbeHistory) -> bool {
        let Some(silent) = node.silent_since else { return false };
        let began = |lapse: &Timestamp| after(silent, LAPSED_WITHIN) >= *lapse;
        self.0.get(pool).is_some_and(|lapse| !node.heard || began(lapse))
    }
}

/// Finds the pools whose probes have lapsed, and tells of it when it begins and when it ends.
pub(super) fn of_pools<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, looks: &[Look<'_>]) -> Lapses {
    let now = pass.now;
    let mut by_place: Vec<(&PoolName, Probes)> =
        pass.catalogue.policy.pools.iter().map(|pool| (&pool.name, Probes::default())).collect();
    let mut due = Vec::new();
    for look in looks {
        let known = &look.history;
        let late = look.ready_at.is_some_and(|at| after(at, START_WITHIN) <= now);
        if !known.heard && !late {
            continue;
        }
        let Some((_, probes)) = by_place.get_mut(look.pool_at) else { continue };
        probes.awaited += 1;
        match known.silent_since {
            None => {
                probes.heard += 1;
                let believed = look.heard_since().map(|since| after(since, BACK_FOR));
                match believed {
                    Some(at) if at > now => due.push(at),
                    _ => probes.back += 1,
                }
            }
            Some(_) if !known.heard => probes.never_heard += 1,
            Some(since) => probes.silent_since.push(since),
        }
    }
    let pools: BTreeMap<&PoolName, Probes> = by_place.into_iter().filter(|(_, probes)| probes.awaited > 0).collect();
    for (pool, probes) in &pools {
        let known = changes.memory.lapsed.get(*pool).copied();
        match known {
            Some(_) if probes.back * 2 >= probes.awaited => {
                changes.memory.lapsed.remove(*pool);
                changes.notes.push(Note::ProbesBack {
                    pool: (*pool).clone(),
                    heard: count(probes.heard),
                    of: count(probes.awaited),
                });
            }
            Some(_) => {}
            None => match probes.lapse(now) {
                Some((since, at)) if at <= now => {
                    changes.memory.lapsed.insert((*pool).clone(), since);
                    changes.notes.push(Note::ProbesLapsed { pool: (*pool).clone(), nodes: count(probes.awaited), since });
                }
                Some((_, at)) => due.push(at),
                None => {}
            },
        }
    }
    changes.memory.lapsed.retain(|pool, _| pools.contains_key(pool));
    for at in due {
        changes.look_again_at(at);
    }
    Lapses(changes.memory.lapsed.clone())
}

impl Probes {
    /// Since when they have lapsed, and when that counts; `None` where they have not.
    fn lapse(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        if self.heard > 0 {
            return None;
        }
        let last = self.silent_since.iter().max().copied();
        let with_it = |since: &&Timestamp| last.is_some_and(|last| after(**since, LAPSED_WITHIN) >= last);
        let together = self.silent_since.iter().filter(with_it).count() + self.never_heard;
        let alike = together >= 2 && together * 2 > self.awaited;
        alike.then(|| last.map_or((now, now), |last| (last, after(last, LAPSED_AFTER))))
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
