//! What is bought again: nothing of a shape that was just given up, unless demand rose after that.

use jiff::{SignedDuration, Timestamp};
use stoker_core::ids::{NodeGroupId, PoolName, RecordId};
use stoker_core::leaving::LeaveFor;

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
    /// Nodes that its floor wants.
    floor: u32,
    /// Machines that were lost.
    lost: u64,
    /// Free nodes that went back to spot.
    moved: u64,
    at: Timestamp,
}

/// A node that was given up because nothing needed it.
#[derive(Debug, Clone)]
pub(super) struct GivenUp {
    at: Timestamp,
    group: NodeGroupId,
    /// By when it was chosen to go.
    asked: Asked,
    /// Whether a user had closed it.
    touched: bool,
}

/// How the world was when something was ordered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    /// When the latest of the pods that waited for a node of the pool had begun to.
    waits_since: Option<Timestamp>,
}

impl Scene {
    pub(super) fn asked_of(&self, pool: &PoolName) -> Asked {
        let floors = self.desk().accounts.floors.iter().filter(|floor| floor.pool == *pool);
        let pods = self.truth.came.get(pool.as_str()).map_or(0, Vec::len);
        Asked {
            pods,
            floor: floors.map(|floor| floor.wanted).sum(),
            lost: self.truth.lost,
            moved: self.truth.moved,
            at: self.now,
        }
    }

    /// A node of that group was given up.
    pub(super) fn given_up(&mut self, node: &str, group: NodeGroupId, pool: &PoolName) {
        let asked = self.truth.chosen.get(node).copied().unwrap_or_else(|| self.asked_of(pool));
        let touched = self.truth.touched.contains(node);
        self.truth.given_up.push(GivenUp { at: self.now, group, asked, touched });
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
            let pool = self.desk().menu.groups.get(&group).map(|group| group.pool.clone());
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
        let Some(pool) = self.desk().menu.groups.get(group).map(|group| group.pool.clone()) else { return };
        let (asked, before) = (self.asked_of(&pool), last.asked);
        let sold = self.desk().cloud.sold.iter().filter(|(when, of, _)| *when >= last.at && *when <= at && of == group);
        let again = sold.count();
        let rose = usize::try_from(asked.floor.saturating_sub(before.floor)).unwrap_or(usize::MAX);
        let gone = usize::try_from(asked.lost - before.lost).unwrap_or(usize::MAX);
        let pods = asked.pods - before.pods;
        let failing = self.losing(&pool);
        let waited = self.truth.orders.get(&record).and_then(|order| order.waits_since);
        let moved = self.going_back_to_spot(&pool) + usize::try_from(asked.moved - before.moved).unwrap_or(usize::MAX);
        let why = if waited.is_some_and(|since| since >= before.at) {
            "bought again: a pod came and waited"
        } else if rose > 0 {
            "bought again: the floor rose"
        } else if pods > 0 {
            "bought again: a pod came and took a warm node"
        } else if gone + failing > 0 {
            "bought again: a node was lost"
        } else if moved > 0 {
            "bought again: nodes of the pool's floor go back to spot"
        } else if last.touched {
            "bought again: a user had closed the node that went"
        } else {
            UNEXPLAINED
        };
        self.truth.count(why);
        let enough = pods + rose + gone + usize::from(last.touched) + failing + moved;
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
        let memory = &self.desk().memory;
        let to_spot = memory.leaving.iter().filter(|(_, leaving)| matches!(leaving.why, LeaveFor::BackToSpot { .. }));
        let mut machines = to_spot.filter_map(|(id, _)| memory.records.get(id)?.instance());
        machines.any(|id| *id == machine.made.provider_id)
    }

    /// How many nodes of a pool are broken, or taken back, and so to be replaced.
    fn losing(&self, pool: &PoolName) -> usize {
        let machines = self.desk().cloud.machines.values();
        let of_pool = machines.filter(|machine| self.pool_of_machine(machine).is_some_and(|(of, _)| of.name == *pool));
        let sick = |node: &str| self.truth.sick.contains(node);
        of_pool.filter(|machine| machine.reclaim.is_some() || sick(machine.made.node_name.as_str())).count()
    }
}
