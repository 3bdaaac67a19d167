//! Absorption of facts into the records: launch outcomes, the suppliers' inventories, joined nodes,
//! boot deadlines.

mod joined;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::index::IndexEntry;
use super::pass::{Changes, Pass, after};
use super::reclaims;
use crate::base::ids::{LaunchKey, NodeGroupId, RecordId, SupplierName};
use crate::base::sabotage;
use crate::base::units::UsdPerHour;
use crate::decide::orders::placeholder;
use crate::facts::supply::{
    EndedWhy, Instance, InstanceState, KeyText, LaunchOutcome, Observation, Refusal, RefusalKind, RefusedArea,
};
use crate::market::offer::{Market, Offer};
use crate::plan::Note;
use crate::state::memory::{Backoff, GroupMemory};
use crate::state::record::{Phase, PodsSeen, Purchase, Record, State};

pub(super) use joined::registrations;

/// How long a fresh machine may be missing from an inventory that is complete: clouds list what they made with a delay.
const VISIBLE_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// How long a cancelled launch of which nothing is known is waited for before it is taken never to have happened. A machine that
/// appears even later is adopted, so nothing leaks.
const CANCELLED_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// First wait before a launch with an unclear answer is asked again, with the same key.
pub(super) const ASK_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// Longest wait that a supplier may ask for before such a launch is asked again: its record has a boot deadline.
const ASK_AGAIN_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// How launches ended.
pub(super) fn outcomes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    if pass.snapshot.outcomes.is_empty() {
        return;
    }
    let by_key: BTreeMap<LaunchKey, RecordId> = changes
        .memory
        .records
        .values()
        .filter(|r| matches!(r.state, State::Launching { .. } | State::Cancelled { .. }))
        .filter_map(|r| r.purchase().map(|p| (p.key.clone(), r.id)))
        .collect();
    // Sales first: where one batch was served in part, the refusal is the market's last word.
    let (sales, rest): (Vec<_>, Vec<_>) =
        pass.snapshot.outcomes.iter().partition(|(_, outcome)| matches!(outcome, LaunchOutcome::Launched(_)));
    for (key, outcome) in sales.into_iter().chain(rest) {
        let Some(record) = by_key.get(key).and_then(|id| changes.memory.records.get(id)).cloned() else { continue };
        match (&record.state, outcome) {
            (State::Launching { purchase, .. }, LaunchOutcome::Launched(made)) => {
                sold(pass, changes, &record.group, purchase);
                changes.set_state(pass, record.id, booting(purchase, made));
            }
            (State::Cancelled { purchase, .. }, LaunchOutcome::Launched(made)) => {
                changes.set_state(pass, record.id, found_cancelled(pass, &record.group, purchase, made));
            }
            (State::Launching { purchase, since, .. }, LaunchOutcome::Refused(no)) => {
                refused(pass, changes, &record.group, &purchase.market, no, *since);
                changes.set_state(pass, record.id, State::Wanted);
            }
            (State::Cancelled { .. }, LaunchOutcome::Refused(_)) => {
                changes.remove_record(record.id);
            }
            (State::Launching { purchase, since, .. }, LaunchOutcome::Unclear { retry_after, .. }) => {
                let asked_for = retry_after.unwrap_or_default().min(ASK_AGAIN_WITHIN);
                let retry_at = after(pass.now, ASK_AGAIN_AFTER.max(asked_for));
                let state = State::Launching { purchase: purchase.clone(), since: *since, retry_at: Some(retry_at) };
                changes.set_state(pass, record.id, state);
            }
            // Nobody knows whether there is a machine: only inventories from now on can tell.
            (State::Cancelled { purchase, .. }, LaunchOutcome::Unclear { .. }) => {
                let state = State::Cancelled { purchase: purchase.clone(), since: pass.now };
                changes.set_state(pass, record.id, state);
            }
            _ => {}
        }
    }
}

/// A market that sells is not shut, nor is what it is part of. One whose machines did not boot is: selling was never its trouble.
fn sold(pass: &Pass<'_>, changes: &mut Changes<'_>, group: &NodeGroupId, purchase: &Purchase) {
    let market = &purchase.market;
    if changes.memory.refused.get(market).is_some_and(|b| b.kind != RefusalKind::BootTimeout) {
        changes.memory.refused.remove(market);
    }
    if let Some(group) = pass.group(group) {
        let is_of = |area: &RefusedArea| match area {
            RefusedArea::Reservation(place, name) => *place == market.place && purchase.reservation.as_ref() == Some(name),
            area => pass.catalogue.is_in(area, group, market),
        };
        changes.memory.refused_areas.retain(|area, _| !is_of(area));
    }
}

/// A launch that was first asked for at `asked_at` came to nothing: what the refusal concerns is left alone.
fn refused(
    pass: &Pass<'_>,
    changes: &mut Changes<'_>,
    group: &NodeGroupId,
    market: &Market,
    no: &Refusal,
    asked_at: Timestamp,
) {
    let area = pass.group(group).and_then(|group| pass.catalogue.refused_area(&no.scope, group, market));
    let before = match &area {
        Some(area) => changes.memory.refused_areas.get(area),
        None => changes.memory.refused.get(market),
    };
    // What was asked before it last said no tells nothing new: one large order is asked in several calls.
    if before.is_some_and(|before| before.since > asked_at) {
        return;
    }
    let backoff = Backoff::after(before.map(AsRef::as_ref), no.kind, no.message.clone(), no.retry_after, pass.now);
    match area {
        Some(area) => changes.memory.refused_areas.insert(area, Arc::new(backoff)),
        None => changes.memory.refused.insert(market.clone(), Arc::new(backoff)),
    };
}

/// A machine that was made.
fn booting(purchase: &Purchase, made: &Instance) -> State {
    State::Booting { purchase: purchase.clone(), instance: made.provider_id.clone(), launched_at: made.launched_at }
}

/// A machine that was made although its order was taken back meanwhile. Before anybody could tell it may have joined, and have been given
/// work: then it stays.
fn found_cancelled(pass: &Pass<'_>, group: &NodeGroupId, purchase: &Purchase, made: &Instance) -> State {
    let at_work = pass.is_at_work(Some(group), &made.provider_id);
    let instance = made.provider_id.clone();
    match pass.node(&instance).filter(|_| at_work) {
        Some(node) => joined::registered(purchase, &instance, made.launched_at, node, pass.now),
        None => State::Deleting { purchase: purchase.clone(), instance, since: pass.now, late: false },
    }
}

/// What the suppliers have.
pub(super) fn inventory<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let snapshot = pass.snapshot;
    for (supplier, inventory) in &snapshot.suppliers {
        let Some(inventory) = inventory else { continue };
        for made in inventory.instances.values() {
            listed(pass, changes, made);
        }
        if inventory.complete {
            missing(pass, changes, supplier, inventory);
        }
    }
}

/// A machine that the inventory lists.
fn listed<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, made: &Arc<Instance>) {
    let Some(key) = KeyText::read(made.key.as_str()) else { return };
    if key.cluster != pass.catalogue.policy.cluster.as_str() {
        return;
    }
    // Whoever it belongs to: its number is never given again.
    changes.memory.next_record = changes.memory.next_record.max(key.record.0.saturating_add(1));
    let reclaimed = matches!(made.state, InstanceState::Reclaiming { .. });
    if !reclaimed && changes.runs_on(key.record, &made.provider_id) {
        return;
    }
    let Some(record) = changes.memory.records.get(&key.record) else {
        changes.strays.insert(made.provider_id.clone());
        adopt(pass, changes, key, made);
        return;
    };
    let own = match &record.state {
        State::Booting { instance, .. } | State::Registered { instance, .. } => *instance == made.provider_id,
        _ => false,
    };
    if !own {
        changes.strays.insert(made.provider_id.clone());
    }
    if let InstanceState::Reclaiming { at } = made.state
        && record.instance() == Some(&made.provider_id)
    {
        changes.notices.listed(record.id, at);
        reclaims::noticed(pass, changes, &made.provider_id, &made.market);
        return;
    }
    match &record.state {
        // The answer to the launch was lost; the inventory tells it.
        State::Launching { purchase, .. } if purchase.key == made.key => {
            let state = booting(purchase, made);
            let (id, group, purchase) = (record.id, record.group.clone(), purchase.clone());
            sold(pass, changes, &group, &purchase);
            changes.set_state(pass, id, state);
        }
        State::Cancelled { purchase, .. } if purchase.key == made.key => {
            let state = found_cancelled(pass, &record.group, purchase, made);
            let id = record.id;
            changes.set_state(pass, id, state);
        }
        // A launch that was given up has made a machine after all: it is known now, and `endings` ends it.
        State::Failed { kind, message, at, purchase: Some(purchase), instance: None } if purchase.key == made.key => {
            let state = State::Failed {
                kind: *kind,
                message: message.clone(),
                at: *at,
                purchase: Some(purchase.clone()),
                instance: Some(made.provider_id.clone()),
            };
            let id = record.id;
            changes.set_state(pass, id, state);
        }
        _ => {}
    }
}

/// A machine of Stoker's without a record: the state was lost, or a launch that was taken never to have happened did happen.
fn adopt<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, key: KeyText<'_>, made: &Arc<Instance>) {
    let Ok(id) = NodeGroupId::new(key.group) else { return };
    if made.state == InstanceState::Stopping {
        return;
    }
    let Some(group) = pass.group(&id).cloned() else {
        if changes.memory.orphans.insert(made.provider_id.clone()) {
            changes.notes.push(Note::Orphan { instance: made.provider_id.clone(), group: id });
        }
        return;
    };
    // Without a price of its own today, budgets count the most expensive way to buy such a node: unknown is never free.
    let price = |offer: &Offer| offer.quote(pass.wall).ok().map(|quote| quote.price);
    let own = group.offers.iter().filter(|offer| offer.market == made.market).find_map(price);
    let price = own.or_else(|| group.offers.iter().filter_map(price).max()).unwrap_or(UsdPerHour(i64::MAX / 1_000_000));
    let purchase = Purchase {
        key: made.key.clone(),
        market: made.market.clone(),
        price,
        boot_within: pass.catalogue.policy.boot_deadline,
        reservation: None,
    };
    let record = Record {
        id: key.record,
        group: id.clone(),
        order: None,
        ordered_at: made.launched_at,
        credited_to: None,
        floor: false,
        attempts: key.attempt,
        placeholder: placeholder(&pass.catalogue.policy.cluster, &id, key.record),
        pods: PodsSeen::NotYet,
        judged: None,
        state: booting(&purchase, made),
    };
    changes
        .memory
        .groups
        .entry(id.clone())
        .or_insert_with(|| Arc::new(GroupMemory { group, unused: 0, unused_order: None, suspended_since: None }));
    changes.add_record(pass, record);
    changes.notes.push(Note::Adopted { group: id, instance: made.provider_id.clone() });
}

/// Records whose machine a complete inventory does not list.
fn missing<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, supplier: &SupplierName, inventory: &Observation) {
    let late = |purchase: &Purchase, at| inventory.as_of_in(&purchase.market.place) >= after(at, VISIBLE_WITHIN);
    let mut gone = Vec::new();
    let mut emptied = Vec::new();
    for (record, entry) in changes.indexed() {
        let there = || record.instance().is_some_and(|i| pass.lists(supplier, i));
        if entry.is_listed_by(supplier) || entry.group().is_none_or(|group| group.supplier != *supplier) || there() {
            continue;
        }
        match &record.state {
            State::Booting { purchase, instance, launched_at } if late(purchase, boots_since(record, *launched_at)) => {
                gone.push((record.id, Some((instance.clone(), purchase.market.clone(), *launched_at))));
            }
            State::Registered { purchase, instance, launched_at, at, .. } if late(purchase, *at) => {
                gone.push((record.id, Some((instance.clone(), purchase.market.clone(), *launched_at))));
            }
            // A machine that was cancelled while it was being made may not be listed yet.
            State::Deleting { purchase, since, .. } if late(purchase, *since) => gone.push((record.id, None)),
            State::Cancelled { purchase, since }
                if !pass.snapshot.launching.contains(&purchase.key)
                    && inventory.as_of_in(&purchase.market.place) >= after(*since, CANCELLED_WITHIN)
                    && !inventory.instances.values().any(|made| made.key == purchase.key) =>
            {
                gone.push((record.id, None));
            }
            State::Failed { purchase: Some(purchase), instance: Some(_), at, .. } if late(purchase, *at) => {
                emptied.push(record.id);
            }
            _ => {}
        }
    }
    for (id, lost) in gone {
        if sabotage::on("spot-refilled") && lost.is_some() {
            changes.set_state(pass, id, State::Wanted);
            continue;
        }
        let Some(record) = changes.remove_record(id) else { continue };
        if let Some((instance, market, launched_at)) = lost {
            let why = inventory.ended.get(&instance).copied();
            // Where nobody knows why, the cloud most likely took it.
            let taken = why.is_none_or(|why| why == EndedWhy::Reclaimed);
            reclaims::lost(pass, changes, &instance, &market, launched_at, taken);
            changes.notes.push(Note::Lost { group: record.group.clone(), instance, market, launched_at, why });
        }
    }
    for id in emptied {
        changes.edit(pass, id, |record| {
            if let State::Failed { purchase, .. } = &mut record.state {
                // The machine is gone and nothing more can come of that key. The id stays: the autoscaler knows the failure by it.
                *purchase = None;
            }
        });
    }
}

/// When a record's machine must have joined the cluster; `None` where nothing is waited for.
fn boot_deadline(record: &Record) -> Option<Timestamp> {
    match &record.state {
        State::Booting { purchase, launched_at, .. } => Some(after(boots_since(record, *launched_at), purchase.boot_within)),
        State::Launching { purchase, since, .. } => Some(after(*since, purchase.boot_within)),
        _ => None,
    }
}

/// Since when a machine has been booting: the supplier's clock may be far behind ours, and a machine is not launched before it is ordered.
fn boots_since(record: &Record, launched_at: Timestamp) -> Timestamp {
    launched_at.max(record.ordered_at)
}

/// Machines that did not join in time, and launches that nobody ever answered.
pub(super) fn deadlines<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    if changes.caution().is_some() {
        return;
    }
    let open = |entry: &IndexEntry<'_>| matches!(entry.phase, Phase::Launching | Phase::Booting);
    let waits = |record: &Arc<Record>| boot_deadline(record).map(|deadline| (deadline, Arc::clone(record)));
    let waiting = changes.indexed().filter(|(_, entry)| open(entry)).filter_map(|(record, _)| waits(record));
    let records: Vec<(Timestamp, Arc<Record>)> = waiting.collect();
    if records.is_empty() {
        return;
    }
    // An error in a group makes the autoscaler forget all that is on its way there, and buy that again elsewhere.
    let in_time =
        |record: &&Arc<Record>| record.is_coming() && boot_deadline(record).is_none_or(|deadline| pass.now < deadline);
    let coming = changes.indexed().filter(|(_, entry)| entry.phase.is_coming());
    let hopeful: BTreeSet<NodeGroupId> =
        coming.map(|(record, _)| record).filter(in_time).map(|record| record.group.clone()).collect();
    for (deadline, record) in records {
        let (start, purchase, instance, message) = match &record.state {
            State::Booting { purchase, instance, launched_at } => {
                let allowed = purchase.boot_within.as_secs();
                let message = format!("{instance} did not join the cluster within {allowed} s of its launch");
                (boots_since(&record, *launched_at), purchase, Some(instance.clone()), message)
            }
            State::Launching { purchase, since, .. } => {
                let allowed = purchase.boot_within.as_secs();
                let message = format!("the supplier did not report within {allowed} s whether {} was created", purchase.key);
                (*since, purchase, None, message)
            }
            _ => continue,
        };
        if pass.now < deadline || sabotage::on("boot-deadline-off") {
            changes.look_again_at(deadline);
            continue;
        }
        changes.notes.push(Note::BootTimeout { group: record.group.clone(), instance: instance.clone() });
        if instance.is_some() {
            // Left alone like a market without stock: the same dead machines would be bought again forever.
            let no = Refusal::of_market(RefusalKind::BootTimeout, message.clone());
            refused(pass, changes, &record.group, &purchase.market, &no, start);
        }
        let (purchase, since) = (purchase.clone(), pass.now);
        let dropped = hopeful.contains(&record.group) && !sabotage::on("late-beside-hopeful-fails");
        let state = match instance {
            Some(instance) if dropped => State::Deleting { purchase, instance, since, late: true },
            None if dropped => State::Cancelled { purchase, since },
            instance => {
                State::Failed { kind: RefusalKind::BootTimeout, message, at: since, purchase: Some(purchase), instance }
            }
        };
        changes.set_state(pass, record.id, state);
    }
}
