//! Purchases: the nodes of each order, from the best offers under every limit.

use std::collections::BTreeMap;

use super::is_fresh;
use super::pass::{Changes, Pass, after};
use crate::base::ids::{NodeGroupId, OrderId, RecordId};
use crate::base::sabotage;
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::choose::allocate::{Allocation, Proof, allocate, tell_binding};
use crate::choose::candidate::Barred;
use crate::choose::explanation::Explanation;
use crate::choose::rank::{Scales, retell};
use crate::choose::sensitivity::mark_ends;
use crate::facts::supply::{KeyParts, LaunchRequest, RefusalKind};
use crate::limits::commitment::Reservations;
use crate::limits::usage::{Usage, group_of};
use crate::market::offer::{CapacityType, Market, Offer};
use crate::plan::{Action, Note};
use crate::policy::Policy;
use crate::state::memory::Backoff;
use crate::state::record::{Phase, Purchase, Record, State};

/// Buys what is wanted, order by order. An order that no offer is left for is settled: nothing had, and nothing else on its way to the
/// group → its records fail, so that the autoscaler turns to another group at once; else → the rest is dropped and the group is closed
/// while its markets are shut.
pub(super) fn buy<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let mut wanted: BTreeMap<(Option<OrderId>, NodeGroupId), Vec<RecordId>> = BTreeMap::new();
    for (record, _) in changes.indexed().filter(|(_, entry)| entry.phase == Phase::Wanted) {
        wanted.entry((record.order, record.group.clone())).or_default().push(record.id);
    }
    if wanted.is_empty() {
        return;
    }
    let mut usage = changes.take_usage(pass);
    for ((order, group_id), ids) in wanted {
        let (snapshot, now) = (pass.snapshot, pass.now);
        let fresh = |group: &Group| is_fresh(snapshot, group, now);
        // The order was accepted as a whole, so its own claims must not stand in its way: they are taken out of the count, and each
        // node counts again as it is bought.
        let count = |usage: &mut Usage, pass: &Pass<'_>, changes: &Changes<'_>, add: bool| {
            // What was bought is in the count that the filling returned.
            let records =
                ids.iter().filter_map(|id| changes.memory.records.get(id)).filter(|record| record.purchase().is_none());
            for record in records {
                let Some(group) = group_of(record, &changes.memory, pass.catalogue) else { continue };
                if add {
                    usage.add(record, group, pass.catalogue, pass.wall)
                } else {
                    usage.remove(record, group, pass.catalogue, pass.wall)
                }
            }
        };
        count(&mut usage, pass, changes, false);
        if let Some(group) = pass.catalogue.groups.get(&group_id).cloned() {
            usage = fill_order(pass, changes, &usage, order, &group, &ids, &fresh);
        } else {
            let why = "its pool is no longer in the policy, or no supplier makes its nodes now: see `stoker suppliers`";
            settle(pass, changes, order, &group_id, &ids, RefusalKind::Config, why);
            let asked = u32::try_from(ids.len()).unwrap_or(u32::MAX);
            let group = Some(group_id.clone());
            changes.explanations.push(Explanation {
                order,
                group,
                asked,
                found: 0,
                candidates: Vec::new(),
                proof: Proof::Best,
            });
        }
        count(&mut usage, pass, changes, true);
    }
}

/// Fills one order; `usage` is without its claims. Returns it with what was bought.
fn fill_order<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    usage: &Usage,
    order: Option<OrderId>,
    group: &Group,
    ids: &[RecordId],
    fresh: &dyn Fn(&Group) -> bool,
) -> Usage {
    let (catalogue, now, wall) = (pass.catalogue, pass.now, pass.wall);
    let asked = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    // The choice is explained as it stood before the order: what bars an offer then is not what the order itself used up.
    let scales = Scales { catalogue, memory: &changes.memory, usage, fresh, times: pass.times() };
    let (eligible, barred) = scales.rank([group]);
    let before = scales.explain(&eligible, &barred, &[]);
    let allocation = allocate(&scales, &[group], asked);
    let wished = allocation.found();
    let Allocation { runs, proof, usage: all_bought } = allocation;
    let is_again = |id: &RecordId| changes.memory.records.get(id).is_some_and(|record| record.attempts > 0);
    let elsewhere = ids.iter().any(is_again).then(|| best_elsewhere(&scales, group)).flatten();
    let bought: Vec<(Market, UsdPerHour, bool, u32)> = runs
        .iter()
        .map(|run| {
            let own = eligible.iter().find(|e| e.offer.market == run.offer.market).map_or(usize::MAX, |e| e.rank.preference);
            (run.offer.market.clone(), run.price, elsewhere.is_some_and(|best| best < own), run.nodes)
        })
        .collect();
    let mut chosen: Vec<(Market, u32)> = Vec::new();
    let mut left = Vec::new();
    let mut markets =
        bought.iter().flat_map(|(market, price, better, nodes)| (0..*nodes).map(move |_| (market, *price, *better)));
    for id in ids {
        let again = changes.memory.records.get(id).is_some_and(|record| record.attempts > 0);
        let bought = markets.next().filter(|(_, _, better)| !(again && *better));
        let bought = bought.filter(|(market, price, _)| launch(pass, changes, group, *id, market, *price));
        let Some((market, ..)) = bought else {
            left.push(*id);
            continue;
        };
        match chosen.iter_mut().find(|(m, _)| m == market) {
            Some((_, n)) => *n += 1,
            None => chosen.push((market.clone(), 1)),
        }
    }
    let found: u32 = chosen.iter().map(|(_, n)| *n).sum();
    let filled = if found == wished {
        all_bought
    } else {
        let bought = ids.iter().filter(|id| !left.contains(id)).filter_map(|id| changes.memory.records.get(id));
        bought.fold(usage.clone(), |mut filled, record| {
            filled.add(record, group, catalogue, wall);
            filled
        })
    };
    let mut candidates = retell(before, &chosen);
    let bought = Scales { catalogue, memory: &changes.memory, usage: &filled, fresh, times: pass.times() };
    tell_binding(&mut candidates, &bought, !left.is_empty());
    mark_ends(&bought, &mut candidates, !left.is_empty());
    if !left.is_empty() {
        let (_, barred) = bought.rank([group]);
        let reason = why_nothing(catalogue, &barred, changes, group);
        // Nothing waits forever for an inventory to come back or a trial to end: past the boot deadline the autoscaler is told.
        let waiting = barred.iter().any(|(_, _, why)| matches!(why, Barred::OnTrial | Barred::SupplierStale));
        let ordered = left.iter().filter_map(|id| changes.memory.records.get(id)).map(|record| record.ordered_at).min();
        let deadline = ordered.map(|at| after(at, catalogue.policy.boot_deadline)).filter(|_| waiting);
        if let Some(deadline) = deadline {
            changes.look_again_at(deadline);
        }
        if !waiting || deadline.is_some_and(|at| at <= now) {
            settle(pass, changes, order, &group.id, &left, reason.0, &reason.1);
        }
    }
    changes.explanations.push(Explanation { order, group: Some(group.id.clone()), asked, found, candidates, proof });
    filled
}

/// How much the pool prefers, at best, a way in which another of its groups sells nodes of the same type now.
///
/// An order that its own market refused ends where that is better than what is left to it: the autoscaler asks the other group at once. An
/// order that comes while the market is known to be shut does not, so that a pod that can only run in this zone gets its node.
fn best_elsewhere(scales: &Scales<'_>, group: &Group) -> Option<usize> {
    let others = scales.catalogue.pool_groups(&group.pool).filter(|other| other.id != group.id && other.spec == group.spec);
    others
        .flat_map(|other| other.offers.iter().filter_map(|offer| scales.weigh(other, offer).ok()))
        .map(|e| e.rank.preference)
        .min()
}

/// Writes down that a record is being launched; whether it could be.
fn launch<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    group: &Group,
    id: RecordId,
    market: &Market,
    price: UsdPerHour,
) -> bool {
    let Some(record) = changes.memory.records.get(&id) else { return false };
    let attempt = record.attempts.saturating_add(1);
    let cluster = pass.catalogue.policy.cluster.clone();
    let incarnation = changes.memory.incarnation.clone();
    let Ok(key) = (KeyParts { cluster, group: group.id.clone(), incarnation, record: id, attempt }).key() else {
        return false;
    };
    let Policy { boot_deadline, commitments, .. } = pass.catalogue.policy.as_ref();
    let kept = (market.capacity_type == CapacityType::Reserved)
        .then(|| Reservations::next_at(&market.place, commitments, &changes.memory, pass.times()));
    let reservation = kept.flatten().map(str::to_owned);
    let purchase = Purchase { key, market: market.clone(), price, boot_within: *boot_deadline, reservation };
    changes.edit(pass, id, |record| {
        record.attempts = attempt;
        record.state = State::Launching { purchase, since: pass.now, retry_at: None };
    });
    true
}

/// Why nothing is left to try, as a class and in words: the first refusal there was, else the first limit that binds.
fn why_nothing(
    catalogue: &Catalogue,
    barred: &[(&Group, &Offer, Barred)],
    changes: &Changes<'_>,
    group: &Group,
) -> (RefusalKind, String) {
    let mut refusals = group.offers.iter().filter_map(|offer| changes.memory.refusal(&offer.market, group, catalogue));
    if let Some(refused) = refusals.next() {
        let Backoff { kind, message, .. } = refused.backoff;
        let what = refused.area.map_or_else(|| refused.market.to_string(), ToString::to_string);
        return (*kind, format!("{what}: {message}"));
    }
    let binds = barred.iter().map(|(_, _, why)| why).find(|why| matches!(why, Barred::Bound(_)));
    let kind = match binds.or_else(|| barred.first().map(|(_, _, why)| why)) {
        Some(Barred::Bound(_)) => RefusalKind::QuotaExceeded,
        Some(Barred::Unpriced(_) | Barred::Suspended { .. }) => RefusalKind::Config,
        _ => RefusalKind::OutOfCapacity,
    };
    let message = barred.iter().map(|(_, offer, why)| format!("{}: {why}", offer.market)).collect::<Vec<_>>().join("; ");
    (kind, if message.is_empty() { "no offer is left to try".to_owned() } else { message })
}

/// Settles the records of an order that no offer is left for.
fn settle<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    order: Option<OrderId>,
    group: &NodeGroupId,
    left: &[RecordId],
    kind: RefusalKind,
    message: &str,
) {
    let others = || changes.memory.records.values().filter(|r| r.group == *group && !left.contains(&r.id));
    let sibling = |r: &Record| order.is_some() && r.order == order;
    // An error in a group makes the autoscaler forget all that is on its way there, whichever order it came with.
    let coming = |r: &Record| r.is_coming() && !sabotage::on("coming-by-order");
    let had = others().any(|r| match r.state {
        State::Booting { .. } | State::Registered { .. } => sibling(r) || coming(r),
        _ => false,
    });
    let open = others().any(|r| match r.state {
        State::Launching { .. } => sibling(r) || coming(r),
        State::Wanted => sibling(r),
        _ => false,
    });
    let nodes = u32::try_from(left.len()).unwrap_or(u32::MAX);
    // What the autoscaler did not ask for it need not see fail.
    let own = left.iter().filter_map(|id| changes.memory.records.get(id)).all(|record| record.credited_to.is_none());
    if sabotage::on("stock-out-waits") {
        return;
    }
    if own || (had && !sabotage::on("part-as-placeholders")) || sabotage::on("failed-dropped") {
        for id in left {
            changes.remove_record(*id);
        }
        changes.notes.push(Note::OrderShort { order, group: group.clone(), nodes, message: message.to_owned() });
    } else if !open {
        for id in left {
            let state = State::Failed { kind, message: message.to_owned(), at: pass.now, purchase: None, instance: None };
            changes.set_state(pass, *id, state);
        }
        let note = Note::OrderFailed { order, group: group.clone(), nodes, kind, message: message.to_owned() };
        changes.notes.push(note);
    }
    // Otherwise a launch is still open: its outcome decides between the two, in the pass that it wakes.
}

/// Asks for every launch that is written down and not under way: in this pass's choices, after a crash, after an unclear answer. The
/// key is the same each time, so nothing is bought twice.
pub(super) fn ask_again<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let mut launches = Vec::new();
    let mut retries = Vec::new();
    for (record, _) in changes.indexed().filter(|(_, entry)| entry.phase == Phase::Launching) {
        let State::Launching { purchase, retry_at, .. } = &record.state else { continue };
        if pass.snapshot.launching.contains(&purchase.key) {
            continue;
        }
        if let Some(at) = retry_at.filter(|at| *at > pass.now) {
            retries.push(at);
            continue;
        }
        let Some(group) = pass.group_of(record) else { continue };
        launches.push(Action::Launch {
            record: record.id,
            supplier: group.supplier.clone(),
            request: LaunchRequest {
                key: purchase.key.clone(),
                group: group.id.clone(),
                market: purchase.market.clone(),
                zone_name: group.zone_name.clone(),
                reservation: purchase.reservation.clone(),
            },
            price: purchase.price,
        });
    }
    changes.actions.extend(launches);
    for at in retries {
        changes.look_again_at(at);
    }
}
