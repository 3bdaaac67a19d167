//! The decision of one pass. The same inputs give the same plan, byte for byte.
//!
//! The order of the steps is the order of the calls in [`decide`]: what the world says goes in, then
//! nodes are let go, then what is wanted is bought, then nodes are guarded and cleaned up, then the
//! limits follow from what is left.

mod absorb;
mod budgets;
mod busy;
mod caution;
mod cleanup;
mod disrupt;
mod fill;
mod floors;
mod foreign;
mod images;
mod index;
mod limits;
mod minimums;
mod node_status;
mod notices;
pub mod orders;
mod outdated;
mod pass;
mod reclaims;
#[cfg(test)]
mod tests;
mod verdicts;
mod windows;

use jiff::{SignedDuration, Timestamp};

use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::facts::snapshot::Snapshot;
use crate::facts::supply::Observation;
use crate::plan::{Accounts, Decision, Plan};
use crate::state::memory::Memory;
use pass::{Changes, Pass};

pub use limits::UNUSED_AFTER;
pub use verdicts::{Fault, hardware_fault};

/// An inventory older than this says nothing any more: the feed asks every few seconds, so twenty answers in a row have failed.
pub const STALE_INVENTORY: SignedDuration = SignedDuration::from_mins(2);

/// Decides one pass.
///
/// `snapshot` is what is true, `memory` what the last pass remembered, `catalogue` the policy with its groups and prices.
pub fn decide(snapshot: &Snapshot, memory: &Memory, catalogue: &Catalogue, now: Timestamp) -> Decision {
    let pass = &Pass::new(snapshot, memory, catalogue, now);
    let mut made = Changes::none(pass);
    let changes = &mut made;
    budgets::turn_hours(pass, changes);
    absorb::outcomes(pass, changes);
    absorb::inventory(pass, changes);
    caution::take(pass, changes);
    absorb::registrations(pass, changes);
    absorb::deadlines(pass, changes);
    notices::hear(pass, changes);
    reclaims::keep(pass, changes);
    verdicts::judge(pass, changes);
    outdated::remember(pass, changes);
    images::remember(pass, changes);
    foreign::remember(pass, changes);
    floors::learn(pass, changes);
    // Before anything is bought: what goes in this pass must not widen the shares under which it buys.
    disrupt::nodes(pass, changes);
    floors::look(pass, changes);
    fill::buy(pass, changes);
    fill::ask_again(pass, changes);
    cleanup::endings(pass, changes);
    // From here on nothing that a limit counts changes.
    let usage = changes.take_usage(pass);
    let kept = windows::kept(pass, changes, &usage);
    disrupt::outdated::begin_next(pass, changes, &kept);
    let held = cleanup::holds(pass, changes, &kept);
    cleanup::gone_nodes(pass, changes);
    cleanup::unused_groups(pass, changes);
    let limits = limits::of_groups(pass, changes, &usage, &held);
    let accounts = Accounts { kept, ..budgets::accounts(pass, changes, &usage) };
    let tells = node_status::nodes(pass, changes);
    changes.forget(pass);
    debug_assert!(changes.indexed().all(|(record, entry)| entry.agrees(record)), "a record was changed and its entry was not");
    let Changes { memory, actions, notes, explanations, next_change_at, .. } = made;
    Decision { plan: Plan::new(actions, limits, accounts, notes, explanations, tells), memory, next_change_at }
}

/// Whether a supplier's inventory can be trusted for this group: complete and fresh.
pub fn is_fresh(snapshot: &Snapshot, group: &Group, now: Timestamp) -> bool {
    snapshot
        .suppliers
        .get(&group.supplier)
        .and_then(Option::as_ref)
        .is_some_and(|inventory| inventory.complete && is_recent(inventory.as_of_in(&group.place), now))
}

/// Whether an inventory is complete and fresh, in all of its parts.
fn tells_of_now(inventory: &Observation, now: Timestamp) -> bool {
    inventory.complete && is_recent(inventory.oldest(), now)
}

fn is_recent(as_of: Timestamp, now: Timestamp) -> bool {
    now.duration_since(as_of) <= STALE_INVENTORY
}
