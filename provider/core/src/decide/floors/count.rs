//! Count of the nodes of pools with a floor, by their role in it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::index::IndexEntry;
use super::super::pass::{Changes, Pass, after};
use crate::base::ids::{InstanceType, NodeGroupId};
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::facts::images;
use crate::policy::Pool;
use crate::policy::rules::warm_floor::{DOUBTED_FOR, Places, WARM_WITHIN, Wanted};
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

/// The nodes of one instance type that are not at work.
#[derive(Debug, Default)]
struct OfType {
    free: u32,
    /// Free nodes that wait for images.
    pulling: u32,
    /// Nodes on their way for the floor.
    coming: u32,
    /// Nodes that count for the floor and are of no use to it.
    doubtful: u32,
    /// Nodes that were of use to it and have not been heard of for long.
    lost: u32,
}

/// The nodes of one pool.
#[derive(Debug, Default)]
pub(in super::super) struct Count<'a> {
    /// Nodes at work.
    pub(in super::super) at_work: u32,
    of_type: BTreeMap<&'a InstanceType, OfType>,
    /// Nodes on their way for pods.
    for_pods: u32,
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
    prices: Vec<(UsdPerHour, &'a InstanceType)>,
}

/// How what a floor wants is filled.
#[derive(Debug, Default)]
pub(in super::super) struct Filled {
    /// By warm nodes.
    pub(in super::super) warm: u32,
    /// By free nodes that wait for images.
    pub(in super::super) pulling: u32,
    /// What free nodes leave to fill, those that wait for images included.
    pub(in super::super) not_free: Places,
    /// By nodes on their way.
    pub(in super::super) coming: u32,
    /// By nodes that are of no use now, and for which nothing is bought.
    pub(in super::super) doubtful: u32,
    /// Nodes that were lost and for which others are bought: as many as the floor wants, and no more.
    pub(in super::super) replaced: u32,
    /// Nodes that were lost beyond those.
    pub(in super::super) unreplaced: u32,
    /// What must come.
    pub(in super::super) missing: Places,
}

impl Count<'_> {
    /// How what is wanted is filled.
    pub(in super::super) fn fill(&self, wanted: &Wanted) -> Filled {
        let of_type = || self.of_type.iter();
        let mut missing = wanted.places();
        let warm = of_type().map(|(of, count)| missing.fill(of, count.free)).sum();
        let pulling = of_type().map(|(of, count)| missing.fill(of, count.pulling)).sum();
        let not_free = missing.clone();
        let coming = of_type().map(|(of, count)| missing.fill(of, count.coming)).sum();
        let doubtful = of_type().map(|(of, count)| missing.fill(of, count.doubtful)).sum();
        let (mut to_replace, mut replaced, mut unreplaced) = (wanted.places(), 0, 0);
        for (of, count) in of_type().filter(|(of, _)| wanted.wants(of)) {
            let bought = to_replace.fill(of, count.lost);
            let beyond = count.lost - bought;
            missing.fill(of, beyond);
            replaced += bought;
            unreplaced += beyond;
        }
        Filled { warm, pulling, not_free, coming, doubtful, replaced, unreplaced, missing }
    }

    /// Warm nodes, whether the floor has a place for them or not.
    pub(in super::super) fn free(&self) -> u32 {
        self.of_type.values().map(|count| count.free).sum()
    }

    /// What the nodes cost that fill what is wanted, the cheapest first.
    pub(in super::super) fn cost(&self, wanted: &Wanted) -> UsdPerHour {
        let mut prices = self.prices.clone();
        prices.sort_unstable();
        let mut places = wanted.places();
        let filling = prices.into_iter().filter(|(_, of)| places.fill(of, 1) > 0);
        filling.fold(UsdPerHour::ZERO, |sum, (price, _)| sum.plus(price))
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
        let of_type = count.of_type.entry(&group.place.instance_type).or_default();
        match part {
            Part::AtWork => count.at_work += 1,
            Part::ForPods => count.for_pods += 1,
            Part::Free => of_type.free += 1,
            Part::Coming => of_type.coming += 1,
            Part::Pulling => of_type.pulling += 1,
            Part::Doubtful => of_type.doubtful += 1,
            Part::Lost => of_type.lost += 1,
            Part::Nothing => continue,
        }
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
        if matches!(part, Part::Free | Part::Coming | Part::Pulling) {
            let price = record.purchase().map(|purchase| purchase.price);
            count.prices.extend(price.map(|price| (price, &group.place.instance_type)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::engine_clock::Wall;
    use crate::policy::rules::warm_floor::{Basis, ByType, DEFAULT_WINDOW, Quantile, WarmFloor};

    /// One of each is kept, and three of one type are lost.
    #[test]
    fn lost_nodes_are_replaced_as_far_as_their_type_is_kept() {
        let [small, large] = ["gpu.1", "gpu.4"].map(|name| InstanceType::new(name).unwrap());
        let by_type: ByType = vec![(small.clone(), 1), (large.clone(), 1)];
        let basis = Basis { at_work: 0, quantile: &by_type, signals: None, off_hours: None, wall: Wall(Timestamp::UNIX_EPOCH) };
        let quantile = Some(Quantile { p: None, window: DEFAULT_WINDOW, horizon: None });
        let wanted = WarmFloor { quantile, ..WarmFloor::default() }.wanted(&basis);
        let count = Count { of_type: [(&small, OfType { lost: 3, ..OfType::default() })].into(), ..Count::default() };
        let filled = count.fill(&wanted);
        assert_eq!((filled.replaced, filled.unreplaced), (1, 2));
        assert_eq!((filled.missing.left(&small), filled.missing.left(&large)), (0, 1), "no more small ones are bought");
    }
}
