//! What goes on where no decision could be made because a rule panicked.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::begun::is_listed_reclaimed;
use super::found::Found;
use super::{Verified, Violation, contain};
use crate::base::ids::{DecisionId, NodeGroupId};
use crate::base::kinds::Evidence;
use crate::catalogue::Catalogue;
use crate::facts::snapshot::{Hold, Snapshot};
use crate::market::interruption::{gone_by, longest_notice};
use crate::plan::{Accounts, Action, Ending, Evict, GroupLimits, HoldFor, Plan};
use crate::state::disruption::{Disruption, Stage};
use crate::state::memory::Memory;
use crate::state::record::{Record, State};

/// What is done where no decision could be made: a fault of the fleet. Nothing is learnt and nothing grows. Nodes with GPU pods are held,
/// nodes that the cloud takes back are emptied, and what the autoscaler deleted is ended.
///
/// `shown` is what the last decision showed of groups and accounts, `message` what the panic said.
pub fn without_decision(
    message: String,
    before: &Memory,
    shown: (BTreeMap<NodeGroupId, GroupLimits>, Accounts),
    (snapshot, catalogue): (&Snapshot, &Catalogue),
    (id, now): (DecisionId, Timestamp),
) -> Verified {
    let mut actions = Vec::new();
    for record in before.records.values() {
        if before.caution(now).is_none() {
            actions.extend(ending(record, before, snapshot, catalogue));
        }
        actions.extend(on_node(record, before, snapshot, catalogue, now));
    }
    let (mut limits, accounts) = shown;
    // Before the first decision of a process nothing was shown: a group that is left out would be none of Stoker's to the autoscaler.
    for group in catalogue.groups.keys().chain(before.groups.keys()) {
        limits.entry(group.clone()).or_insert_with(|| {
            let min = before.target(group);
            GroupLimits { min, listed: min > 0, ..GroupLimits::default() }
        });
    }
    let mut plan = Plan::new(actions, limits, accounts, Vec::new(), Vec::new(), Vec::new());
    let mut memory = before.clone();
    let mut found = Found::new(catalogue);
    found.fleet(Violation::Panicked(message));
    contain::remember(&mut plan, &mut memory, before, &found, (id, now));
    Verified { plan: plan.into_checked(), memory, findings: found.findings }
}

/// What the autoscaler deleted ends.
fn ending(record: &Record, before: &Memory, snapshot: &Snapshot, catalogue: &Catalogue) -> Option<Action> {
    let State::Deleting { instance, .. } = &record.state else { return None };
    // One that Stoker ends by its own decision waits for the next sound one.
    let own = before.disruptions.get(&record.id).is_some_and(|disruption| disruption.stage == Stage::Ending);
    if own || snapshot.terminating.contains(instance) {
        return None;
    }
    let supplier = catalogue.group_or_remembered(&record.group, before)?.supplier.clone();
    Some(Action::Terminate { supplier, instance: instance.clone(), why: Ending::Deleted })
}

/// A node that the cloud takes back is emptied, and one with GPU pods is held.
fn on_node(record: &Record, before: &Memory, snapshot: &Snapshot, catalogue: &Catalogue, now: Timestamp) -> Vec<Action> {
    let State::Registered { node: Some(name), instance, purchase, .. } = &record.state else { return Vec::new() };
    let facts = snapshot.cluster.as_ref().and_then(|cluster| cluster.nodes.get(name));
    let Some(node) = facts.filter(|node| node.provider_id.as_ref() == Some(instance)) else { return Vec::new() };
    let mut actions = Vec::new();
    let pool = catalogue.group_or_remembered(&record.group, before).and_then(|group| catalogue.policy.pool(&group.pool));
    let works = !node.gpu_pods.is_empty() && pool.is_none_or(|pool| pool.evidence != Evidence::None);
    if works && node.scale_down_disabled == Hold::None {
        actions.push(Action::Hold { node: name.clone(), why: HoldFor::Pods });
    }
    let known = before.drain_of(record.id).and_then(Disruption::gone_by);
    // How many may go on the word of probes alone is a decision.
    if known.is_some() || is_listed_reclaimed(instance, snapshot) {
        let latest = now.saturating_add(longest_notice(&purchase.market)).unwrap_or(Timestamp::MAX);
        let (record, provider_id) = (record.id, instance.clone());
        let gone_by = Some(known.unwrap_or_else(|| gone_by(latest)));
        actions.push(Action::Drain { record, node: name.clone(), provider_id, evict: Evict::All, gone_by });
    }
    actions
}
