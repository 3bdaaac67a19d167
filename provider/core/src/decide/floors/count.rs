//! Count of the nodes of pools with a floor, by their role in it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::index::IndexEntry;
use super::super::pass::{Changes, Pass, after};
use crate::base::ids::NodeGroupId;
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::facts::images;
use crate::policy::Pool;
use crate::policy::rules::warm_floor::{DOUBTED_FOR, WARM_WITHIN};
use crate::state::node_verdict::{Judged, Reason, Verdict};
use crate::state::record::{Phase, Record, State};

/// What a record is to its pool's floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// At work, or for all that is known: it was taken from the floor, which is filled up again.
    AtWork,
    /// Warm.
    Free,
    /// On its way for the floor.
    Coming,
    /// Free, and without the images that count: on its way for the floor too, but there, so held like any free node.
    Pulling,
    /// On its way for pods, which will take it.
    ForPods,
    /// Of no use to a pod now, though none holds it: unhealthy, closed to new pods, or for a moment not Ready or not heard of. It counts for
    /// the floor until it goes: what becomes of it is not the floor's to say.
    Doubtful,
    /// Not Ready or not heard of for [`DOUBTED_FOR`].
    Lost,
    /// None of these: it goes, or could not be had.
    Nothing,
}

/// The nodes of one pool.
#[derive(Debug, Default)]
pub(in super::super) struct Count<'a> {
    /// Nodes at work.
    pub(in super::super) at_work: u32,
    /// Warm nodes.
    pub(in super::super) free: u32,
    /// Nodes on their way for the floor, with those that wait for images.
    pub(in super::super) coming: u32,
    /// Free nodes that wait for images.
    pub(in super::super) pulling: u32,
    /// Nodes on their way for pods.
    for_pods: u32,
    /// Nodes that count for the floor and are of no use to it.
    pub(in super::super) doubtful: u32,
    /// Nodes that were of use to it and have not been heard of for long.
    lost: u32,
    /// Nodes on their way for the floor that have been Ready for [`WARM_WITHIN`], and what the first of them waits for.
    pub(in super::super) late: u32,
    pub(in super::super) late_for: Option<Reason>,
    /// When the first of these counts changes by itself.
    changes_at: Option<Timestamp>,
    /// GPU pods.
    pods: u32,
    /// Nodes on their way for the floor that are not Ready yet, by group.
    pub(in super::super) coming_here: BTreeMap<&'a NodeGroupId, u32>,
    /// What each node bought for the floor or free costs.
    pub(in super::super) prices: Vec<UsdPerHour>,
}

impl Count<'_> {
    /// How many nodes must come for so many warm ones.
    pub(in super::super) fn missing(&self, wanted: u32) -> u32 {
        let counted = self.doubtful.saturating_add(self.unreplaced(wanted));
        wanted.saturating_sub(self.free).saturating_sub(self.coming).saturating_sub(counted)
    }

    /// How many of the lost nodes count, so that no others are bought in their place.
    pub(in super::super) const fn unreplaced(&self, wanted: u32) -> u32 {
        self.lost.saturating_sub(wanted)
    }

    /// When the counts change by themselves; `None` where they will not.
    pub(super) const fn changes_at(&self) -> Option<Timestamp> {
        self.changes_at
    }

    fn changes(&mut self, at: Timestamp) {
        self.changes_at = Some(self.changes_at.map_or(at, |first| first.min(at)));
    }

    /// The nodes that so many replicas would fill, less what runs and what is on its way for pods. A node takes as many as a busy one of the
    /// pool holds now, rounded down; while none is busy, as many as there are GPUs or slices on its smallest.
    pub(super) fn nodes_for(&self, replicas: u32, catalogue: &Catalogue, pool: &Pool) -> u32 {
        let of_a_node = self.pods.checked_div(self.at_work).filter(|pods| *pods > 0);
        let of_a_node = of_a_node.or_else(|| catalogue.pool_groups(&pool.name).map(|group| group.units()).min());
        replicas.saturating_sub(self.pods).div_ceil(of_a_node.unwrap_or(1).max(1)).saturating_sub(self.for_pods)
    }
}

/// Counts the nodes of every pool that keeps a floor, by the pool's place in the policy.
pub(in super::super) fn count<'a>(pass: &Pass<'a>, changes: &Changes<'a>) -> Vec<Count<'a>> {
    let mut counts: Vec<Count<'a>> = pass.catalogue.policy.pools.iter().map(|_| Count::default()).collect();
    for (record, entry) in changes.indexed() {
        let (Some((at, pool)), Some(group)) = (entry.pool(), entry.group()) else { continue };
        let Some(count) = counts.get_mut(at).filter(|_| pool.warm_floor.is_some()) else { continue };
        count.pods = count.pods.saturating_add(entry.pods());
        let part = match part(record, entry) {
            Part::Doubtful => match doubted_until(record) {
                Some(until) if until <= pass.now => Part::Lost,
                Some(until) => {
                    count.changes(until);
                    Part::Doubtful
                }
                None => Part::Doubtful,
            },
            // What lacks images is on its way: it is waited for, and nothing is bought in its place.
            Part::Free if pool.waits_for_images() && !has_images(pass, changes, pool, entry) => Part::Pulling,
            part => part,
        };
        let tally = match part {
            Part::AtWork => &mut count.at_work,
            Part::Free => &mut count.free,
            Part::Coming | Part::Pulling => &mut count.coming,
            Part::ForPods => &mut count.for_pods,
            Part::Doubtful => &mut count.doubtful,
            Part::Lost => &mut count.lost,
            Part::Nothing => continue,
        };
        *tally = tally.saturating_add(1);
        if part == Part::Coming {
            *count.coming_here.entry(&group.id).or_default() += 1;
            match awaited_until(record) {
                Some((at, _)) if at > pass.now => count.changes(at),
                Some((_, why)) => {
                    count.late = count.late.saturating_add(1);
                    count.late_for.get_or_insert_with(|| why.clone());
                }
                None => {}
            }
        }
        count.pulling = count.pulling.saturating_add(u32::from(part == Part::Pulling));
        if matches!(part, Part::Free | Part::Coming | Part::Pulling) {
            count.prices.extend(record.purchase().map(|purchase| purchase.price));
        }
    }
    counts
}

/// Whether the images that the pool's pods use are on a node, as far as it can be told.
fn has_images(pass: &Pass<'_>, changes: &Changes<'_>, pool: &Pool, entry: &IndexEntry<'_>) -> bool {
    let on_node = entry.node().and_then(|node| pass.snapshot.images.get(&node.name));
    let used = changes.memory.images.get(&pool.name);
    images::pulled(on_node.map(AsRef::as_ref), used.map(AsRef::as_ref)).is_enough()
}

fn part(record: &Record, entry: &IndexEntry<'_>) -> Part {
    let coming = if record.floor { Part::Coming } else { Part::ForPods };
    let held_by_pods = || if entry.is_busy() { Part::AtWork } else { Part::Doubtful };
    match (entry.phase, entry.verdict) {
        // Closed by somebody else, and not because it may go.
        (_, Some(Verdict::Draining)) if is_closed(record) => Part::Doubtful,
        (Phase::Failed | Phase::Cancelled | Phase::Deleting, _) | (_, Some(Verdict::Draining)) => Part::Nothing,
        (_, Some(Verdict::Busy | Verdict::Held)) | (Phase::Started, None) => Part::AtWork,
        (_, Some(Verdict::Unknown | Verdict::Unhealthy)) => held_by_pods(),
        (_, Some(Verdict::Warm | Verdict::Idle)) if entry.cordon().is_closed() => Part::Doubtful,
        (_, Some(Verdict::Warm | Verdict::Idle)) => Part::Free,
        // It was Ready once, and its kubelet may be back in seconds.
        (Phase::Started, Some(Verdict::Booting)) if is_not_ready(record) => Part::Doubtful,
        (_, Some(Verdict::Booting) | None) => coming,
    }
}

/// Until when a doubtful node is waited for; `None` where something else decides what becomes of it.
pub(in super::super) fn doubted_until(record: &Record) -> Option<Timestamp> {
    let judged = record.judged.as_ref()?;
    let away = judged.verdict == Verdict::Unknown || is_not_ready(record);
    away.then(|| after(judged.since, DOUBTED_FOR))
}

/// Until when a node that is Ready is given to be warm, and what it waits for; `None` of one that is not Ready.
fn awaited_until(record: &Record) -> Option<(Timestamp, &Reason)> {
    let State::Registered { ready_at: Some(ready_at), .. } = &record.state else { return None };
    let judged = record.judged.as_ref().filter(|judged| !judged.is_not_ready())?;
    Some((after(*ready_at, WARM_WITHIN), &judged.why))
}

fn is_not_ready(record: &Record) -> bool {
    record.judged.as_ref().is_some_and(Judged::is_not_ready)
}

fn is_closed(record: &Record) -> bool {
    record.judged.as_ref().is_some_and(|judged| matches!(judged.why, Reason::Closed { released: false, .. }))
}
