//! What would be bought if so many nodes were asked for: the same choice as a pass makes, over a whole pool or one group, without
//! doing anything.

use jiff::Timestamp;

use crate::choose::{Scales, Verdict};
use crate::group::{Group, Menu};
use crate::ids::{NodeGroupId, PoolName};
use crate::lift::mark_ends;
use crate::memory::Memory;
use crate::offer::Market;
use crate::plan::Explanation;
use crate::spot::SpotRules;
use crate::usage::Usage;

/// Weighs every offer of a pool (or of one of its groups) and fills `count` nodes in rank order, under every limit.
pub fn what_if(
    menu: &Menu,
    memory: &Memory,
    pool: &PoolName,
    group: Option<&NodeGroupId>,
    count: u32,
    now: Timestamp,
) -> Explanation {
    let groups: Vec<&Group> =
        menu.pool_groups(pool).map(AsRef::as_ref).filter(|g| group.is_none_or(|id| g.id == *id)).collect();
    let mut usage = Usage::count(memory, menu, now);
    let fresh = |_: &Group| true;
    let before = usage.clone();
    let mut chosen: Vec<(Market, u32)> = Vec::new();
    let mut found = 0;
    // Shares of spot are shares of what is there, so they leave more room with each node.
    let in_steps = menu.policy.pool(pool).and_then(|pool| pool.spot.as_ref()).is_some_and(SpotRules::limits_shares);
    // One offer at a time, as much of it as there is room for at one price, with limits and commitments counted again before the next.
    let mut exhausted: Vec<Market> = Vec::new();
    while found < count {
        let scales = Scales { menu, memory, usage: &usage, fresh: &fresh, now };
        let (eligible, _) = scales.rank(groups.iter().copied());
        let Some(best) = eligible.iter().find(|e| !exhausted.contains(&e.offer.market)) else { break };
        // A market on trial takes one launch, which the records do not show here.
        let on_trial = memory.refused.contains_key(&best.offer.market);
        let nodes = best.room.min(best.alike).min(count - found).min(if in_steps { 1 } else { u32::MAX });
        let used_up = nodes == best.room;
        let (market, price, id) = (best.offer.market.clone(), best.parts.quote.price, best.group.id.clone());
        let Some(group) = menu.groups.get(&id) else { break };
        usage.add_bought(group, &market, price, nodes, menu);
        if on_trial || (used_up && !in_steps) {
            exhausted.push(market.clone());
        }
        match chosen.iter_mut().find(|(m, _)| *m == market) {
            Some((_, n)) => *n += nodes,
            None => chosen.push((market, nodes)),
        }
        found += nodes;
    }
    let scales = Scales { menu, memory, usage: &before, fresh: &fresh, now };
    let (eligible, barred) = scales.rank(groups.iter().copied());
    let mut candidates = scales.explain(&eligible, &barred, &chosen);
    // What the chosen nodes used up bars what ranks before the last of them, or everything if there were not enough: that is the
    // reason to show.
    let last = candidates.iter().rposition(|c| matches!(c.verdict, Verdict::Chosen { .. })).unwrap_or(0);
    let after = Scales { menu, memory, usage: &usage, fresh: &fresh, now };
    for (place, candidate) in candidates.iter_mut().enumerate() {
        let beaten = !matches!(candidate.verdict, Verdict::Chosen { .. } | Verdict::Barred(_));
        let binding = (beaten && (found < count || place < last))
            .then(|| {
                let group = menu.groups.get(&candidate.group)?;
                let offer = group.offers.iter().find(|o| o.market == candidate.market)?;
                after.weigh(group, offer).err()
            })
            .flatten();
        if let Some(why) = binding {
            candidate.verdict = Verdict::Barred(why);
        }
    }
    mark_ends(&after, &mut candidates, found < count);
    Explanation { order: None, group: group.cloned(), asked: count, found, candidates }
}
