//! Cleanup: ends machines, blocks the scale-down of busy nodes, deletes left-over Nodes, suspends
//! groups whose nodes no pod joins.

use std::sync::Arc;

use jiff::SignedDuration;

use super::pass::{Changes, Pass, after};
use super::{UNUSED_AFTER, disrupt, tells_of_now};
use crate::base::ids::{NodeGroupId, ProviderId, RecordId};
use crate::base::index::Lookup;
use crate::base::sabotage;
use crate::catalogue::group::Group;
use crate::facts::snapshot::Hold;
use crate::facts::supply::{InstanceState, KeyText};
use crate::plan::{Action, Ending, FreeNodes, HoldFor, Note};
use crate::state::node_verdict::Verdict;
use crate::state::record::{Phase, PodsSeen, Record, State};

/// Nodes in a row without a pod that suspend a group. Two can be bad luck (the pod was deleted meanwhile); three are a template that
/// does not keep its word.
const UNUSED_NODES: u32 = 3;

/// How long a suspended group stays so before one more node may prove it.
const SUSPENDED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// How old a Node object must be before it is taken to be left over: an inventory lists a new machine with a delay.
const NODE_GRACE: SignedDuration = SignedDuration::from_mins(1);

/// Machines that must end.
pub(super) fn endings<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let snapshot = pass.snapshot;
    let mut actions = Vec::new();
    for (supplier, inventory) in &snapshot.suppliers {
        let Some(inventory) = inventory else { continue };
        for made in changes.strays.iter().filter_map(|machine| inventory.instances.get(machine)) {
            if made.state == InstanceState::Stopping || snapshot.terminating.contains(&made.provider_id) {
                continue;
            }
            let Some(key) = KeyText::read(made.key.as_str()) else { continue };
            if key.cluster != pass.catalogue.policy.cluster.as_str() {
                continue;
            }
            let record = changes.memory.records.get(&key.record);
            let busy = || pass.is_at_work(record.map(|record| &record.group), &made.provider_id);
            let why = match record {
                Some(record) => match &record.state {
                    State::Deleting { .. } if sabotage::on("deleted-not-ended") => continue,
                    State::Deleting { .. } => match disrupt::ending(changes, record) {
                        // No pod but one that ignores that its node is closed can have come meanwhile: it is let run.
                        Some(_) if busy() => continue,
                        Some(why) => why,
                        None => unasked(record, busy()),
                    },
                    State::Booting { instance, .. } | State::Registered { instance, .. } if *instance == made.provider_id => {
                        continue;
                    }
                    State::Launching { purchase, .. } if purchase.key == made.key => continue,
                    // Only the autoscaler's word ends a machine that pods hold.
                    _ if busy() => continue,
                    State::Failed { .. } => Ending::BootTimeout,
                    State::Cancelled { .. } => Ending::Cancelled,
                    State::Wanted | State::Launching { .. } | State::Booting { .. } | State::Registered { .. } => {
                        Ending::Superseded
                    }
                },
                // Adopted if its group is known. If not, it goes only where the cluster shows that nothing runs on it.
                None if is_unused(pass, &made.provider_id) => Ending::Orphaned,
                None => continue,
            };
            actions.push(Action::Terminate { supplier: supplier.clone(), instance: made.provider_id.clone(), why });
        }
    }
    // What was deleted before any inventory listed it must end all the same.
    for (record, _) in changes.indexed().filter(|(_, entry)| entry.phase == Phase::Deleting) {
        let State::Deleting { instance, .. } = &record.state else { continue };
        let Some(group) = pass.group_of(record) else { continue };
        let listed = pass.inventory_of(&record.group).is_some_and(|i| i.instances.contains_key(instance));
        let ours = disrupt::ending(changes, record);
        let spared = ours.is_some() && pass.is_at_work(Some(&record.group), instance);
        if !listed && !spared && !snapshot.terminating.contains(instance) {
            actions.push(Action::Terminate {
                supplier: group.supplier.clone(),
                instance: instance.clone(),
                why: ours.unwrap_or_else(|| unasked(record, pass.is_at_work(Some(&record.group), instance))),
            });
        }
    }
    if changes.caution().is_some() {
        actions.retain(|action| matches!(action, Action::Terminate { why: Ending::Reclaimed | Ending::CapacityEnds, .. }));
    }
    changes.actions.extend(actions);
}

/// Why a record's machine goes that no drain of ours let go. One that joined late after all, and works, goes by the autoscaler's word alone.
fn unasked(record: &Record, busy: bool) -> Ending {
    let late = matches!(record.state, State::Deleting { late: true, .. });
    if late && !busy { Ending::BootTimeout } else { Ending::Deleted }
}

fn is_unused(pass: &Pass<'_>, instance: &ProviderId) -> bool {
    pass.node(instance).is_some() && !pass.is_at_work(None, instance)
}

/// Nodes of a group that are kept from the autoscaler, or could be.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Blocked {
    /// There is, or may be, work on them; or they are unhealthy.
    pub(super) busy: u32,
    /// They are free and paid for.
    pub(super) paid: u32,
    /// The other free ones.
    pub(super) free: FreeNodes,
}

impl Blocked {
    fn note(&mut self, why: HoldFor) {
        match why {
            HoldFor::Pods | HoldFor::Held | HoldFor::Active | HoldFor::Unknown | HoldFor::Unhealthy => self.busy += 1,
            HoldFor::Paid => self.paid += 1,
            HoldFor::Floor => self.free.floor += 1,
            HoldFor::Window { until }
            | HoldFor::MinimumLife { until }
            | HoldFor::Growth { until }
            | HoldFor::Removals { until }
            | HoldFor::Caution { until } => {
                self.free.window += 1;
                self.free.goes_at = Some(self.free.goes_at.map_or(until, |known| known.min(until)));
            }
        }
    }
}

/// How many nodes of each group are kept from the autoscaler, or could be.
pub(super) struct HeldBy {
    /// Of the catalogue's groups, by their place there.
    listed: Vec<Blocked>,
    /// Of groups that are only remembered.
    others: Lookup<NodeGroupId, Blocked>,
}

impl HeldBy {
    fn of(&mut self, at: Option<usize>, id: &NodeGroupId) -> &mut Blocked {
        match at.and_then(|at| self.listed.get_mut(at)) {
            Some(held) => held,
            None => self.others.entry(id.clone()).or_default(),
        }
    }

    /// Those of the catalogue's groups, in its order.
    pub(super) fn listed(&self) -> impl Iterator<Item = Blocked> {
        self.listed.iter().copied()
    }

    /// Those of a group that is only remembered.
    pub(super) fn remembered(&self, id: &NodeGroupId) -> Blocked {
        self.others.get(id).copied().unwrap_or_default()
    }
}

/// Blocks scale-down of nodes that are busy, unknown, unhealthy or `kept`, and removes Stoker's block from all others. A user's own
/// annotation is never touched. Returns how many nodes of each group are blocked.
///
/// An unhealthy node without work is of no use to anybody, so the autoscaler would delete it at once, and whoever asked for it would ask
/// again: one bad driver would cost the whole fleet. Whether and when it goes is its pool's rule alone.
pub(super) fn holds<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, kept: &[(RecordId, HoldFor)]) -> HeldBy {
    let mut kept = kept.iter().peekable();
    let mut actions = Vec::new();
    let mut held = HeldBy { listed: vec![Blocked::default(); pass.catalogue.groups.len()], others: Lookup::default() };
    for (record, entry) in changes.indexed() {
        // Both are in the order of the records.
        let free = kept.next_if(|(id, _)| *id == entry.id).map(|(_, why)| *why);
        let (true, Some(node), Some(owner)) = (entry.phase.is_registered(), entry.node(), entry.hold()) else { continue };
        let guards = changes.guards(entry);
        let verdict = entry.verdict;
        let unhealthy = || (verdict == Some(Verdict::Unhealthy)).then_some(HoldFor::Unhealthy);
        // Of a floor that goes through buffers the autoscaler chooses the nodes.
        let buffers = pass.snapshot.buffers;
        let buffered = || {
            entry.pool().and_then(|(_, pool)| pool.warm_floor.as_ref()).is_some_and(|floor| floor.is_kept_by_buffers(buffers))
        };
        let free = free.filter(|why| *why != HoldFor::Floor || !buffered());
        let cautious = || changes.caution().map(|until| HoldFor::Caution { until });
        let why = guards.or(free).or_else(unhealthy).or_else(cautious);
        let idle = verdict == Some(Verdict::Idle);
        if idle || why.is_some() {
            let held = held.of(entry.owner.and_then(|owner| owner.at), &record.group);
            held.free.idle += u32::from(idle);
            if let Some(why) = why {
                held.note(why);
            }
        }
        match (why, owner) {
            (Some(_), Hold::None) if guards.is_some() && sabotage::on("busy-not-held") => {}
            (Some(why), Hold::None) => actions.push(Action::Hold { node: node.name.clone(), why }),
            // One that is let go keeps what it bears: nobody else is to drain it too.
            (None, Hold::Ours) if changes.memory.is_draining(entry.id) => {}
            (None, Hold::Ours) => actions.push(Action::Release { node: node.name.clone() }),
            _ => {}
        }
    }
    changes.actions.extend(actions);
    held
}

/// Node objects of machines that are gone, by fresh inventories: an old one does not list what was made since, and one that does not
/// cover the group's region never did.
pub(super) fn gone_nodes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    if changes.caution().is_some() {
        return;
    }
    let mut actions = Vec::new();
    for (provider_id, node) in pass.machines.unlisted.iter().copied() {
        let settled = after(node.created_at, NODE_GRACE);
        let inventories = &pass.snapshot.suppliers;
        let gone = !inventories.is_empty()
            && inventories
                .values()
                .all(|inventory| inventory.as_ref().is_some_and(|i| tells_of_now(i, pass.now) && i.oldest() >= settled));
        let group = || pass.catalogue.group_or_remembered(node.group.as_ref()?, &changes.memory);
        let covers = |group: &Group| {
            let inventory = inventories.get(&group.supplier).and_then(Option::as_ref);
            inventory.is_some_and(|inventory| inventory.covered.region(&group.place).is_some())
        };
        let gone = gone && group().is_none_or(|group| covers(group));
        let mut records = changes.memory.records.values();
        let mut counted = || records.any(|record| record.may_run() && record.instance() == Some(provider_id));
        if gone && !counted() && !sabotage::on("dead-nodes-stay") {
            actions.push(Action::RemoveNode { node: node.name.clone(), provider_id: provider_id.clone() });
        }
    }
    changes.actions.extend(actions);
}

/// Groups whose new nodes, several in a row, no pod joins are suspended: their template promises what their nodes do not keep, and the
/// autoscaler would buy from them forever. While a pool's floor wants free nodes, a free one is there for it, whoever asked for it.
pub(super) fn unused_groups<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    if pass.snapshot.cluster.is_none() {
        return;
    }
    let mut late: Vec<RecordId> = Vec::new();
    let mut of_floors: Vec<RecordId> = Vec::new();
    let mut waits = Vec::new();
    for (record, entry) in changes.indexed().filter(|(_, entry)| entry.pods_seen == PodsSeen::NotYet) {
        let State::Registered { ready_at: Some(ready), .. } = &record.state else { continue };
        if record.floor || !entry.is_judged() {
            continue;
        }
        let deadline = after(*ready, UNUSED_AFTER);
        let floor = entry.pool().and_then(|(at, _)| changes.floors.get(at)?.as_ref());
        match (pass.now >= deadline, floor) {
            (false, _) => waits.push(deadline),
            // Buffers, and orders for more than a floor lacks, do not say which nodes are for the floor. It wants such ones, so this is one.
            (true, Some(wanted)) if entry.group().is_some_and(|group| wanted.wants(&group.place.instance_type)) => {
                of_floors.push(record.id);
            }
            (true, _) => late.push(record.id),
        }
    }
    for at in waits {
        changes.look_again_at(at);
    }
    for id in of_floors {
        changes.edit(pass, id, |record| record.floor = true);
    }
    for id in late {
        changes.edit(pass, id, |record| record.pods = PodsSeen::TooLate);
        let Some(record) = changes.memory.records.get(&id) else { continue };
        let Some(remembered) = changes.memory.groups.get_mut(&record.group) else { continue };
        let remembered = Arc::make_mut(remembered);
        remembered.unused = remembered.unused.saturating_add(1);
    }
    for (group, remembered) in &mut changes.memory.groups {
        if remembered.unused >= UNUSED_NODES && remembered.suspended_since.is_none() {
            let remembered = Arc::make_mut(remembered);
            remembered.suspended_since = Some(pass.now);
            changes.notes.push(Note::Suspended { group: group.clone(), nodes: remembered.unused });
        }
    }
    let resuming: Vec<_> = changes
        .memory
        .groups
        .iter()
        .filter_map(|(id, g)| g.suspended_since.map(|at| (id.clone(), after(at, SUSPENDED_FOR))))
        .collect();
    for (group, until) in resuming {
        if pass.now < until {
            changes.look_again_at(until);
        } else if let Some(remembered) = changes.memory.groups.get_mut(&group) {
            let remembered = Arc::make_mut(remembered);
            remembered.suspended_since = None;
            // One more unused node suspends it again.
            remembered.unused = UNUSED_NODES - 1;
            changes.notes.push(Note::Resumed { group });
        }
    }
}
