//! Group limits for the autoscaler: `minSize`, `maxSize` and which groups are listed *now*.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::cleanup::{Blocked, HeldBy};
use super::pass::{Changes, Pass, after};
use super::{is_fresh, minimums};
use crate::base::ids::{NodeGroupId, PoolName};
use crate::base::kinds::{Taint, TaintEffect};
use crate::base::sabotage;
use crate::catalogue::group::{Group, dominates};
use crate::catalogue::isolation::SHAPE_TAINT;
use crate::choose::parts::PriceParts;
use crate::choose::rank::Scales;
use crate::choose::score::supply;
use crate::limits::usage::Usage;
use crate::plan::{Closed, GroupLimits};
use crate::policy::rules::commitment::Commitment;
use crate::state::record::UNCREDITED_AT_MOST;

/// How long a Ready node may stay without a pod before it counts towards suspending its group: three times the slowest scheduler
/// retry of an unschedulable pod (5 min).
pub const UNUSED_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// The limits of every group: those of the catalogue, and those of removed pools until they are empty. `held` is how many nodes of each group
/// are kept from the autoscaler.
pub(super) fn of_groups<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    usage: &Usage,
    held: &HeldBy,
) -> BTreeMap<NodeGroupId, GroupLimits> {
    let uncredited = uncredited(pass, changes);
    let (snapshot, now, wall) = (pass.snapshot, pass.now, pass.wall);
    let fresh = |group: &Group| is_fresh(snapshot, group, now);
    let mut limits = BTreeMap::new();
    {
        let scales = Scales { catalogue: pass.catalogue, memory: &changes.memory, usage, fresh: &fresh, times: pass.times() };
        let mut open: BTreeMap<(&PoolName, &str), Vec<(&Group, i64)>> = BTreeMap::new();
        for (group, held) in pass.catalogue.groups.values().zip(held.listed()) {
            let target = usage.target(&group.id);
            let (mut eligible, barred) = scales.rank([group.as_ref()]);
            let room = eligible.iter().map(|e| e.room).max().unwrap_or(0);
            let priced = group.offers.iter().any(|offer| offer.quote(wall).is_ok());
            let held_back = uncredited.closing(group).filter(|_| !sabotage::on("uncredited-open"));
            let closed = match held_back {
                Some(nodes) => Some(Closed::Uncredited { nodes }),
                None if room == 0 => {
                    Some(Closed::Offers(barred.into_iter().map(|(_, o, why)| (o.market.clone(), why)).collect()))
                }
                None => None,
            };
            let supply = if closed.is_none() { supply(&eligible, room) } else { Vec::new() };
            let next = (closed.is_none()).then(|| eligible.drain(..).next()).flatten().map(|e| e.parts);
            // A commitment soon is full: what it covers now makes no other shape pointless.
            let lasting_price = next.as_ref().map(PriceParts::uncovered);
            if let Some(price) = lasting_price {
                open.entry((&group.pool, group.zone_name.as_str())).or_default().push((group.as_ref(), price.0));
            }
            let next_paid = next.as_ref().map(|parts| parts.cash);
            let next_price = next.map(|parts| parts.effective);
            let max = match &closed {
                Some(_) if sabotage::on("closed-looks-open") => target + 1,
                _ if sabotage::on("max-size-static") => 10.max(target),
                Some(_) => target,
                None => target.saturating_add(room),
            };
            let Blocked { busy, paid, free } = held;
            let listed = priced || target > 0;
            limits.insert(
                group.id.clone(),
                GroupLimits {
                    target,
                    min: 0,
                    max,
                    busy,
                    paid,
                    free,
                    listed,
                    next_price,
                    next_paid,
                    lasting_price,
                    supply,
                    closed,
                },
            );
        }
        unlist_dominated(&open, &mut limits);
    }
    for (id, remembered) in &changes.memory.groups {
        let target = usage.target(id);
        if target > 0 && !pass.catalogue.groups.contains_key(id) {
            let Blocked { busy, paid, free } = held.remembered(id);
            let closed = Some(Closed::Removed);
            let gone = GroupLimits {
                target,
                min: 0,
                max: target,
                busy,
                paid,
                free,
                listed: true,
                next_price: None,
                next_paid: None,
                lasting_price: None,
                supply: Vec::new(),
                closed,
            };
            limits.insert(remembered.group.id.clone(), gone);
        }
    }
    minimums::set(pass, changes, usage, &mut limits);
    let moments = next_moments(pass, changes);
    for at in moments {
        changes.look_again_at(at);
    }
    limits
}

/// Moments at which a limit can change with no new fact.
fn next_moments(pass: &Pass<'_>, changes: &Changes<'_>) -> Vec<jiff::Timestamp> {
    let lapses = pass.catalogue.groups.values().flat_map(|g| &g.offers).filter_map(|offer| {
        let quote = offer.quote(pass.wall).ok()?;
        quote.lapses_at()
    });
    let backoffs = changes.memory.refused.values().chain(changes.memory.refused_areas.values()).map(|b| b.until);
    let coming = changes.indexed().filter(|(_, entry)| entry.phase.is_coming());
    let credits = coming.map(|(record, _)| after(record.ordered_at, UNCREDITED_AT_MOST));
    let stale = pass
        .snapshot
        .suppliers
        .values()
        .flatten()
        .flat_map(|inventory| inventory.moments())
        .map(|as_of| after(as_of, super::STALE_INVENTORY + SignedDuration::from_secs(1)));
    let commitments = pass.catalogue.policy.commitments.iter().flat_map(Commitment::moments);
    let pools = pass.catalogue.policy.pools.iter();
    let off_hours = pools.filter_map(|pool| pool.off_hours.as_ref().and_then(|off| off.at(pass.wall.0).1));
    let on_wall = lapses
        .chain(commitments)
        .chain(pass.catalogue.live_quotas_lapse())
        .chain(off_hours)
        .map(|at| pass.times().when_wall_shows(at));
    on_wall.chain(backoffs).chain(credits).chain(stale).filter(|at| *at > pass.now).collect()
}

/// Of a pool's open groups in one zone, those that another makes pointless are not worth listing, unless they have nodes.
fn unlist_dominated(open: &BTreeMap<(&PoolName, &str), Vec<(&Group, i64)>>, limits: &mut BTreeMap<NodeGroupId, GroupLimits>) {
    for groups in open.values() {
        for &candidate in groups {
            if groups.iter().any(|&other| dominates(other, candidate))
                && let Some(limit) = limits.get_mut(&candidate.0.id)
                && limit.target == 0
            {
                limit.listed = false;
            }
        }
    }
}

/// What is booting that the autoscaler may not count on, by the taints that keep pods from it.
struct Uncredited<'a> {
    by_taints: Vec<(BTreeSet<&'a Taint>, u32)>,
}

impl Uncredited<'_> {
    /// The number of uncredited nodes that could serve the same pods as this group: a pod that tolerates their taints tolerates the
    /// group's, so a restarted autoscaler would buy the same pods a second home here.
    fn closing(&self, group: &Group) -> Option<u32> {
        let within = |taints: &BTreeSet<&Taint>| keeping_away(&group.template.taints).all(|taint| taints.contains(taint));
        let nodes: u32 = self.by_taints.iter().filter(|(taints, _)| within(taints)).map(|(_, n)| *n).sum();
        (nodes > 0).then_some(nodes)
    }
}

/// The taints that keep pods away. A shape's own is none of them: pods of its class tolerate other shapes as well.
fn keeping_away(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    taints.iter().filter(|t| t.effect != TaintEffect::PreferNoSchedule && t.key != SHAPE_TAINT)
}

fn uncredited<'a>(pass: &Pass<'a>, changes: &Changes<'a>) -> Uncredited<'a> {
    let mut by_taints: Vec<(BTreeSet<&Taint>, u32)> = Vec::new();
    for (record, entry) in changes.indexed().filter(|(_, entry)| entry.phase.is_coming()) {
        let Some(group) = entry.group().filter(|_| record.is_uncredited(changes.memory.session, pass.now)) else { continue };
        let taints = keeping_away(&group.template.taints).collect();
        match by_taints.iter_mut().find(|(t, _)| *t == taints) {
            Some((_, n)) => *n += 1,
            None => by_taints.push((taints, 1)),
        }
    }
    Uncredited { by_taints }
}
