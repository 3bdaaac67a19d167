//! Orders: the autoscaler's mutating calls, accepted or refused as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::base::ids::{NodeGroupId, NodeName, OrderId, ProviderId, RecordId, SessionId};
use crate::base::kinds::Evidence;
use crate::base::sabotage;
use crate::catalogue::Catalogue;
use crate::choose::candidate::Barred;
use crate::choose::rank::Scales;
use crate::facts::snapshot::{ClusterFacts, NodeFacts};
use crate::plan::{Closed, GroupLimits};
use crate::state::memory::{GroupMemory, Memory};
use crate::state::node_verdict::{Reason, Verdict};
use crate::state::record::{PodsSeen, Record, State};

/// Why an order was not accepted. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderRefused {
    /// No group has that id.
    #[error("no node group {0}: call Refresh and NodeGroups for the current list")]
    UnknownGroup(NodeGroupId),
    /// The number makes no sense.
    #[error("delta is {0}: must be {1}")]
    BadDelta(i32, &'static str),
    /// The group may not grow.
    #[error("{group} cannot grow: {why}")]
    Closed {
        /// The group.
        group: NodeGroupId,
        /// Why.
        why: String,
    },
    /// There is not so much room.
    #[error("{group}: {asked} nodes requested, {room} possible: {why}")]
    NoRoom {
        /// The group.
        group: NodeGroupId,
        /// Nodes asked.
        asked: u32,
        /// Nodes there is room for.
        room: u32,
        /// Which limit binds.
        why: String,
    },
}

/// Why a deletion was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRefused {
    /// GPU pods hold the node.
    #[error("{node} is busy: {} use{} its GPUs", .pods.join(", "), if .pods.len() == 1 { "s" } else { "" })]
    Busy {
        /// The node.
        node: String,
        /// The pods, as `namespace/name`.
        pods: Vec<String>,
    },
    /// There is, or may be, work on the node without a pod.
    #[error("{node} is {verdict}: {why}")]
    Guarded {
        /// The node.
        node: String,
        /// What is concluded of it.
        verdict: Verdict,
        /// From what.
        why: Box<Reason>,
    },
    /// A journal was lost a moment ago: nothing is ended but what the cloud takes.
    #[error("{node} stays until {}: the journal was lost, and until then no node is ended", .until.strftime("%H:%MZ"))]
    Cautious {
        /// The node.
        node: String,
        /// Until when.
        until: Timestamp,
    },
    /// The node belongs to another group.
    #[error("{node} belongs to {actual}, not to {asked}")]
    WrongGroup {
        /// The node.
        node: String,
        /// Its group.
        actual: NodeGroupId,
        /// The group that was named.
        asked: NodeGroupId,
    },
}

/// Files an order for `delta` more nodes of a group.
///
/// # Errors
/// Says why the group cannot take all of it; then nothing changed.
pub fn increase(
    memory: &mut Memory,
    scales: &Scales<'_>,
    limits: &GroupLimits,
    group_id: &NodeGroupId,
    delta: i32,
) -> Result<(OrderId, Vec<RecordId>), OrderRefused> {
    let asked = u32::try_from(delta).ok().filter(|n| *n > 0).ok_or(OrderRefused::BadDelta(delta, "greater than zero"))?;
    let closed = |why: String| OrderRefused::Closed { group: group_id.clone(), why };
    // First, since a group that is listed until it is empty is not among the policy's any more.
    if let Some(why @ (Closed::Uncredited { .. } | Closed::Paused(_) | Closed::Journal | Closed::Removed)) = &limits.closed {
        return Err(closed(why.to_string()));
    }
    let Some(group) = scales.catalogue.groups.get(group_id) else {
        return Err(OrderRefused::UnknownGroup(group_id.clone()));
    };
    let mut room = 0;
    let mut reason = None;
    for offer in &group.offers {
        match scales.weigh(group, offer) {
            Ok(eligible) => room = room.max(eligible.room),
            Err(why) => reason = Some(why),
        }
    }
    if room == 0 {
        return Err(closed(reason.map_or_else(|| "it has no offers".to_owned(), |why: Barred| why.to_string())));
    }
    if asked > room {
        let why = scales
            .binding(group)
            .map_or_else(|| "a market that is being retried takes one launch".to_owned(), |b| b.to_string());
        return Err(OrderRefused::NoRoom { group: group_id.clone(), asked, room, why });
    }
    // What other calls have ordered since the last pass counts.
    let floor = memory.target(group_id).saturating_add(asked) <= limits.min;
    let credited_to = memory.session;
    Ok(file(memory, scales.catalogue, group_id, asked, (credited_to, floor), scales.times.now))
}

/// Files an order: who counts on it while it boots, and whether it is for a floor rather than for pods.
pub(crate) fn file(
    memory: &mut Memory,
    catalogue: &Catalogue,
    group: &NodeGroupId,
    nodes: u32,
    (credited_to, floor): (Option<SessionId>, bool),
    now: Timestamp,
) -> (OrderId, Vec<RecordId>) {
    let order = memory.take_order_id();
    let records: Vec<RecordId> = (0..nodes)
        .map(|_| {
            let id = memory.take_record_id();
            let record = Record {
                id,
                group: group.clone(),
                order: Some(order),
                ordered_at: now,
                credited_to,
                floor,
                attempts: 0,
                placeholder: placeholder(&catalogue.policy.cluster, group, id),
                pods: PodsSeen::NotYet,
                judged: None,
                state: State::Wanted,
            };
            memory.records.insert(id, Arc::new(record));
            id
        })
        .collect();
    remember(memory, catalogue, group);
    if floor {
        lower_raise(memory, catalogue, group, nodes);
    }
    (order, records)
}

/// Lowers the group's raise by the nodes just ordered, so that the rest is not raised elsewhere again: the autoscaler asks one group after
/// the other by what it read before the first.
fn lower_raise(memory: &mut Memory, catalogue: &Catalogue, group: &NodeGroupId, nodes: u32) {
    let pool = catalogue.groups.get(group).map(|group| &group.pool);
    let Some(known) = pool.and_then(|pool| memory.floors.get_mut(pool)) else { return };
    let Some(raised) = known.raised.get(group).copied() else { return };
    let known = Arc::make_mut(known);
    known.unasked = None;
    match raised.saturating_sub(nodes) {
        0 => known.raised.remove(group),
        left => known.raised.insert(group.clone(), left),
    };
}

/// The id that the autoscaler knows a record by before there is a machine. Unique forever: record numbers are never used twice.
pub fn placeholder(cluster: &crate::base::ids::ClusterName, group: &NodeGroupId, id: RecordId) -> ProviderId {
    let number = if sabotage::on("placeholder-reused") { 0 } else { id.0 };
    let text = format!("stoker://{cluster}/{group}/{number}");
    // Cluster names and group ids are at most 63 bytes each, so the whole stays far below the longest id.
    ProviderId::new(&text).unwrap_or_else(|_| unreachable!("two labels and a number fit an id"))
}

/// Keeps the definition of a group that has records, so that it can be listed when its pool is gone from the policy.
pub(crate) fn remember(memory: &mut Memory, catalogue: &Catalogue, group: &NodeGroupId) {
    if memory.groups.contains_key(group) {
        return;
    }
    if let Some(group) = catalogue.groups.get(group) {
        let fresh = GroupMemory { group: Arc::clone(group), unused: 0, unused_order: None, suspended_since: None };
        memory.groups.insert(group.id.clone(), Arc::new(fresh));
    }
}

/// Lowers a group's target by at most `-delta`: only records without a machine are cancelled, the ones that failed first.
/// A machine, registered or booting, is never ended by this call. Clamps rather than refuses: an error here stops the autoscaler.
///
/// # Errors
/// When `delta` is not below zero.
pub fn decrease(memory: &mut Memory, group: &NodeGroupId, delta: i32, now: Timestamp) -> Result<Vec<RecordId>, OrderRefused> {
    if delta >= 0 {
        return Err(OrderRefused::BadDelta(delta, "below zero"));
    }
    let most = if sabotage::on("size-fix-ignored") { 0 } else { usize::try_from(delta.unsigned_abs()).unwrap_or(usize::MAX) };
    let rank = |record: &Record| match &record.state {
        State::Failed { instance: None, .. } => Some(0),
        State::Wanted => Some(1),
        State::Launching { .. } => Some(2),
        State::Booting { .. } if sabotage::on("decrease-ends-booting") => Some(3),
        State::Registered { .. } if sabotage::on("decrease-ends-registered") => Some(4),
        _ => None,
    };
    let mut cancellable: Vec<(u8, RecordId)> = memory
        .records
        .values()
        .filter(|record| record.group == *group)
        .filter_map(|record| rank(record).map(|r| (r, record.id)))
        .collect();
    // Of equals the youngest goes: the oldest has waited longest and is nearest to being supplied.
    cancellable.sort_by_key(|(rank, id)| (*rank, std::cmp::Reverse(*id)));
    let taken: Vec<RecordId> = cancellable.into_iter().take(most).map(|(_, id)| id).collect();
    if sabotage::on("decrease-refuses") && taken.len() < most {
        return Err(OrderRefused::BadDelta(delta, "no more than what is missing"));
    }
    for id in &taken {
        withdraw(memory, *id, now);
    }
    Ok(taken)
}

/// A node that was Ready and goes without ever having had a pod counts towards suspending its group: where the autoscaler's own window
/// is shorter than ours, its word comes first. Of one order only the first counts: a job that its user takes back leaves many. In a pool
/// with a warm floor none does: it may have been free for the floor, which orders through buffers do not say.
fn count_unused(memory: &mut Memory, catalogue: &Catalogue, id: RecordId) {
    let Some(record) = memory.records.get(&id) else { return };
    let may_count = || {
        let pool =
            crate::limits::usage::group_of(record, memory, catalogue).and_then(|group| catalogue.policy.pool(&group.pool));
        pool.is_none_or(|pool| pool.evidence != Evidence::None && pool.warm_floor.is_none())
    };
    let unused = matches!(record.state, State::Registered { ready_at: Some(_), node: Some(_), .. })
        && record.pods == PodsSeen::NotYet
        && !record.floor;
    if !unused || !may_count() {
        return;
    }
    let (group, order) = (record.group.clone(), record.order);
    if let Some(remembered) = memory.groups.get_mut(&group).filter(|known| order.is_none() || known.unused_order != order) {
        let remembered = Arc::make_mut(remembered);
        remembered.unused = remembered.unused.saturating_add(1);
        remembered.unused_order = order;
    }
}

/// Takes a record out of the target, and leaves behind what still has to be ended or found out.
fn withdraw(memory: &mut Memory, id: RecordId, now: Timestamp) {
    let Some(record) = memory.records.get_mut(&id) else { return };
    let next = match &record.state {
        State::Wanted | State::Failed { purchase: None, .. } => None,
        State::Launching { purchase, .. } | State::Failed { purchase: Some(purchase), instance: None, .. } => {
            Some(State::Cancelled { purchase: purchase.clone(), since: now })
        }
        State::Booting { purchase, instance, .. }
        | State::Registered { purchase, instance, .. }
        | State::Failed { purchase: Some(purchase), instance: Some(instance), .. } => {
            // What failed with its machine did not join.
            let late = matches!(record.state, State::Failed { .. });
            Some(State::Deleting { purchase: purchase.clone(), instance: instance.clone(), since: now, late })
        }
        State::Cancelled { .. } | State::Deleting { .. } => return,
    };
    match next {
        Some(state) => Arc::make_mut(record).state = state,
        None => {
            memory.records.remove(&id);
        }
    }
}

/// A node as a deletion names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRef {
    /// Its `spec.providerID`, or for a synthetic node the instance's id.
    pub provider_id: String,
    /// Its name; for a synthetic node the instance's id.
    pub name: String,
}

/// Deletes nodes of a group: all of them, or none where one of them must not go. Unknown and already deleted ids are fine: the
/// autoscaler cancels the same missing node more than once.
///
/// # Errors
/// Names the first node that must not go, and why.
pub fn delete(
    memory: &mut Memory,
    catalogue: &Catalogue,
    cluster: Option<&ClusterFacts>,
    group: &NodeGroupId,
    nodes: &[NodeRef],
    now: Timestamp,
) -> Result<Vec<RecordId>, DeleteRefused> {
    let mut going = BTreeSet::new();
    for node in nodes {
        let Some(record) = find(memory, cluster, node).filter(|record| record.counts()) else {
            if sabotage::on("target-is-a-counter") {
                going.extend(memory.records.values().find(|r| r.group == *group && r.counts()).map(|r| r.id));
            }
            if sabotage::on("delete-refuses-unknown") {
                return Err(DeleteRefused::Busy { node: node.name.clone(), pods: Vec::new() });
            }
            continue;
        };
        if sabotage::on("delete-refuses-failed") && matches!(record.state, State::Failed { .. }) {
            return Err(DeleteRefused::Busy { node: node.name.clone(), pods: Vec::new() });
        }
        if record.group != *group {
            return Err(DeleteRefused::WrongGroup {
                node: node.name.clone(),
                actual: record.group.clone(),
                asked: group.clone(),
            });
        }
        if let Some(until) = memory.caution(now).filter(|_| record.instance().is_some()) {
            return Err(DeleteRefused::Cautious { node: node.name.clone(), until });
        }
        if let Some(facts) = facts_of(record, cluster).filter(|_| record.may_run()) {
            let evidence = crate::limits::usage::group_of(record, memory, catalogue)
                .and_then(|g| catalogue.policy.pool(&g.pool))
                .map_or(Evidence::Pods, |pool| pool.evidence);
            let by_pods = evidence != Evidence::None;
            if sabotage::on("batch-in-parts") && by_pods && facts.is_busy() {
                continue;
            }
            if by_pods && facts.is_busy() && !sabotage::on("busy-deleted") {
                return Err(DeleteRefused::Busy {
                    node: facts.name.to_string(),
                    pods: facts.gpu_pods.iter().cloned().collect(),
                });
            }
            if let Some((verdict, why)) = guarded(record, memory).filter(|_| evidence == Evidence::Probe) {
                return Err(DeleteRefused::Guarded { node: facts.name.to_string(), verdict, why: Box::new(why) });
            }
        }
        going.insert(record.id);
    }
    if !sabotage::on("delete-not-lowered") {
        for id in &going {
            count_unused(memory, catalogue, *id);
            withdraw(memory, *id, now);
        }
    }
    Ok(going.into_iter().collect())
}

/// What speaks against deleting a node of a pool with probes on which no pod is. While its probe, or this service, comes back, its
/// verdict stands, and does not prove that nothing has begun since. Nor does it once somebody has closed the node, as the autoscaler does
/// before it deletes it.
fn guarded(record: &Record, memory: &Memory) -> Option<(Verdict, Reason)> {
    let judged = record.judged.as_ref()?;
    let untold = memory.probe_history.get(&record.id).is_some_and(|known| known.is_untold());
    let closed = matches!(judged.why, Reason::Closed { .. });
    match judged.verdict {
        Verdict::Busy | Verdict::Held | Verdict::Unknown => Some((judged.verdict, judged.why.clone())),
        Verdict::Warm | Verdict::Idle if untold => Some((Verdict::Unknown, Reason::Awaited)),
        Verdict::Draining if untold && closed => Some((Verdict::Unknown, Reason::Awaited)),
        Verdict::Warm | Verdict::Idle | Verdict::Booting | Verdict::Unhealthy | Verdict::Draining => None,
    }
}

fn find<'a>(memory: &'a Memory, cluster: Option<&ClusterFacts>, node: &NodeRef) -> Option<&'a Record> {
    let named = |id: &str| {
        let known = |r: &&Arc<Record>| !sabotage::on("ids-need-nodes") || matches!(r.state, State::Registered { .. });
        let mut records = memory.records.values().filter(known);
        records.find(|r| r.placeholder.as_str() == id || r.instance().is_some_and(|i| i.as_str() == id))
    };
    // A machine that is named by its id is that one or none: a host's name may have been given to a new machine meanwhile.
    if !node.provider_id.is_empty() && node.provider_id != node.name {
        return named(&node.provider_id).map(AsRef::as_ref);
    }
    named(&node.name)
        .or_else(|| {
            let facts = NodeName::find(&cluster?.nodes, &node.name)?;
            named(facts.provider_id.as_ref()?.as_str())
        })
        .map(AsRef::as_ref)
}

fn facts_of<'a>(record: &Record, cluster: Option<&'a ClusterFacts>) -> Option<&'a NodeFacts> {
    let instance = record.instance()?;
    let cluster = cluster?;
    if let State::Registered { node: Some(node), .. } = &record.state
        && let Some(facts) = cluster.nodes.get(node)
    {
        return Some(facts);
    }
    cluster.nodes.values().find(|n| n.provider_id.as_ref() == Some(instance)).map(AsRef::as_ref)
}

/// Begins a session of the autoscaler: what is coming now was asked for by nobody that this session remembers.
pub fn begin_session(memory: &mut Memory) -> SessionId {
    let session = SessionId(memory.session.map_or(1, |last| last.0.saturating_add(1)));
    memory.session = Some(session);
    if sabotage::on("restart-credited") {
        memory.records.values_mut().for_each(|record| Arc::make_mut(record).credited_to = Some(session));
    }
    session
}
