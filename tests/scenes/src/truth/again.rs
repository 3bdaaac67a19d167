//! What is bought again: nothing of a shape that was just given up, unless demand rose after that.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{NodeGroupId, PoolName, RecordId};
use stoker_core::state::disruption::DrainReason;

use crate::cloud::Machine;
use crate::scene::Scene;

/// How long after a release nodes of the same shape are not bought again, unless demand rose.
const NOT_AGAIN_WITHIN: SignedDuration = SignedDuration::from_mins(15);

const UNEXPLAINED: &str = "bought again: unexplained";

/// What was asked of a pool by some moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// Pods that came, and that lost their node.
    pods: usize,
    /// By how many nodes in all its floor has risen.
    rises: u32,
    /// Machines that were lost.
    lost: u64,
    /// Free nodes that went back to spot.
    moved: u64,
    at: Timestamp,
}

/// What a pool's floor wants, and by how much in all it has risen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Level {
    wanted: u32,
    rises: u32,
}

/// How a node is being lost. One that is broken may be closed for it, by a user too, or taken back, much later, and is only then
/// replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    /// A user has closed it.
    Cordoned,
    /// It is broken.
    Sick,
    /// Its kubelet is away.
    Away,
    /// It is broken, and closed for it.
    Closed,
    /// It is broken, and goes for it.
    Replaced,
    /// The cloud takes it back.
    Taken,
}

/// Since when a node is or was being lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    since: Timestamp,
    /// Whether it came back.
    over: bool,
}

/// A node that was given up because nothing needed it.
#[derive(Debug, Clone)]
pub(super) struct GivenUp {
    at: Timestamp,
    group: NodeGroupId,
    /// By when it was chosen to go.
    asked: Asked,
}

/// How the world was when something was ordered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    /// When the latest of the pods that waited for a node of the pool had begun to.
    waits_since: Option<Timestamp>,
}

impl Scene {
    pub(super) fn asked_of(&self, pool: &PoolName) -> Asked {
        let pods = self.truth.came.get(pool.as_str()).map_or(0, Vec::len);
        Asked {
            pods,
            rises: self.truth.levels.get(pool).map_or(0, |level| level.rises),
            lost: self.truth.lost,
            moved: self.truth.moved,
            at: self.now,
        }
    }

    /// What floors want, each time anything may be different.
    pub(super) fn notes_floors(&mut self) {
        for floor in &self.autoscaler.provider().accounts.floors {
            let level = self.truth.levels.entry(floor.pool.clone()).or_default();
            level.rises += floor.wanted.saturating_sub(level.wanted);
            level.wanted = floor.wanted;
        }
    }

    /// A node of that group was given up.
    pub(super) fn given_up(&mut self, node: &str, group: NodeGroupId, pool: &PoolName) {
        let asked = self.truth.chosen.get(node).copied().unwrap_or_else(|| Some(self.asked_of(pool)));
        if let Some(asked) = asked {
            self.truth.given_up.push(GivenUp { at: self.now, group, asked });
        } else {
            self.truth.lost += 1;
            self.truth.count("nodes given up that no pod could use");
        }
    }

    /// Whether no pod can begin on a node, for a user has closed it, it is broken, or its kubelet is away.
    pub(super) fn is_unfit(&self, node: &str) -> bool {
        self.truth.cordoned.contains(node) || self.truth.sick.contains(node) || self.ailing.contains(node)
    }

    /// What was ordered and launched since it was last looked.
    pub(super) fn judges_purchases(&mut self) {
        let fresh: Vec<(RecordId, NodeGroupId)> = self
            .desk()
            .memory
            .records
            .iter()
            .filter_map(|(id, record)| {
                let fresh = self.desk().ordered.contains_key(id) && !self.truth.orders.contains_key(id);
                fresh.then(|| (*id, record.group.clone()))
            })
            .collect();
        for (id, group) in fresh {
            let pool = self.desk().catalogue.groups.get(&group).map(|group| group.pool.clone());
            let waiting = self.autoscaler.cluster().all_pods().filter(|pod| pod.node.is_none());
            let of_pool = |pod: &str| {
                self.pods.get(pod).is_some_and(|living| pool.as_ref().is_some_and(|p| living.spec.pool == p.as_str()))
            };
            let waits_since = waiting.filter(|pod| of_pool(&pod.id)).map(|pod| pod.created_at).max();
            self.truth.orders.insert(id, Order { waits_since });
        }
        let fresh = self.desk().cloud.sold.get(self.truth.looked_at..).unwrap_or_default().to_vec();
        self.truth.looked_at += fresh.len();
        for (at, group, record) in fresh {
            self.truth.count("nodes bought");
            self.bought(at, &group, record);
        }
    }

    fn bought(&mut self, at: Timestamp, group: &NodeGroupId, record: RecordId) {
        let recent = |given: &&GivenUp| given.group == *group && at.duration_since(given.at) < NOT_AGAIN_WITHIN;
        let Some(last) = self.truth.given_up.iter().rfind(recent).cloned() else { return };
        let Some(pool) = self.desk().catalogue.groups.get(group).map(|group| group.pool.clone()) else { return };
        let (asked, before) = (self.asked_of(&pool), last.asked);
        let sold = self.desk().cloud.sold.iter().filter(|(when, of, _)| *when >= last.at && *when <= at && of == group);
        let again = sold.count();
        let rose = usize::try_from(asked.rises - before.rises).unwrap_or(usize::MAX);
        let gone = usize::try_from(asked.lost - before.lost).unwrap_or(usize::MAX);
        let pods = asked.pods - before.pods;
        let failing = self.losing_since(&pool, before.at);
        let waited = self.truth.orders.get(&record).and_then(|order| order.waits_since);
        let moved = self.going_back_to_spot(&pool) + usize::try_from(asked.moved - before.moved).unwrap_or(usize::MAX);
        let why = if waited.is_some_and(|since| since >= before.at) {
            "bought again: a pod came and waited"
        } else if rose > 0 {
            "bought again: the floor rose"
        } else if pods > 0 {
            "bought again: a pod came and took a warm node"
        } else if gone + failing > 0 {
            "bought again: a node was lost, or can be used by no pod"
        } else if moved > 0 {
            "bought again: nodes of the pool's floor go back to spot"
        } else {
            UNEXPLAINED
        };
        self.truth.count(why);
        let enough = pods + rose + gone + failing + moved;
        if again > enough || why == UNEXPLAINED {
            let ago = at.duration_since(last.at).as_secs();
            let what = format!(
                "{group} is bought again {ago} s after a node of it was given up, {again} nodes since then: {pods} pods came, the floor \
                 rose by {rose}, and {gone} machines were lost, {failing} are being lost, {moved} go back to spot"
            );
            self.truth.breaks(at, &what);
        }
    }

    /// How many nodes of a pool go back to spot now: where they were of its floor, it is filled up again.
    fn going_back_to_spot(&self, pool: &PoolName) -> usize {
        let machines = self.desk().cloud.machines.values();
        let of_pool = machines.filter(|machine| self.pool_of_machine(machine).is_some_and(|(of, _)| of.name == *pool));
        of_pool.filter(|machine| self.goes_back_to_spot(machine)).count()
    }

    /// Whether the provider lets a machine go because spot is back.
    pub(crate) fn goes_back_to_spot(&self, machine: &Machine) -> bool {
        self.goes_for(machine, |why| matches!(why, DrainReason::BackToSpot { .. }))
    }

    /// Whether the provider lets a machine go because it is broken.
    fn is_replaced(&self, machine: &Machine) -> bool {
        self.goes_for(machine, |why| matches!(why, DrainReason::Unhealthy { .. }))
    }

    fn goes_for(&self, machine: &Machine, is: impl Fn(&DrainReason) -> bool) -> bool {
        let memory = &self.desk().memory;
        let going = memory.disruptions.iter().filter(|(_, disruption)| is(&disruption.why));
        let mut machines = going.filter_map(|(id, _)| memory.records.get(id)?.instance());
        machines.any(|id| *id == machine.made.provider_id)
    }

    /// Since when which nodes can be used by no pod, or are taken back, and so to be replaced.
    pub(super) fn notes_losses(&mut self) {
        let mut lost = BTreeSet::new();
        for machine in self.desk().cloud.machines.values() {
            let node = machine.made.node_name.as_str();
            let sick = self.truth.sick.contains(node);
            let losses = [
                self.truth.cordoned.contains(node).then_some(Loss::Cordoned),
                sick.then_some(Loss::Sick),
                self.ailing.contains(node).then_some(Loss::Away),
                (sick && self.closed.contains(node)).then_some(Loss::Closed),
                self.is_replaced(machine).then_some(Loss::Replaced),
                machine.reclaim.is_some().then_some(Loss::Taken),
            ];
            lost.extend(losses.into_iter().flatten().map(|loss| (node.to_owned(), loss)));
        }
        for (loss, known) in &mut self.truth.losing {
            known.over |= !lost.contains(loss);
        }
        for loss in lost {
            let known = self.truth.losing.get(&loss).filter(|known| !known.over).copied();
            self.truth.losing.insert(loss, known.unwrap_or(Lost { since: self.now, over: false }));
        }
    }

    /// How many nodes of a pool have been lost since that moment, for a while at least, and are there.
    fn losing_since(&self, pool: &PoolName, at: Timestamp) -> usize {
        let fresh = self.truth.losing.iter().filter(|(_, lost)| lost.since >= at);
        let nodes: BTreeSet<&str> = fresh.map(|((node, _), _)| node.as_str()).collect();
        nodes.into_iter().filter(|node| self.pool_of_node(node).is_some_and(|(of, ..)| of.name == *pool)).count()
    }
}
