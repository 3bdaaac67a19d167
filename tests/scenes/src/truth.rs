//! What no scene may break, watched from outside: from what pods, machines and probes truly do, by slow and obvious code, and not from
//! what the provider believes.

mod again;
mod floors;
mod taken;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{NodeGroupId, PoolName, RecordId};
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::Pool;

use crate::scene::Scene;

/// What is known of the world and not of the provider.
#[derive(Debug)]
pub struct Truth {
    start: Timestamp,
    pub(crate) broken: Vec<String>,
    /// Nodes whose hardware is broken.
    pub(crate) sick: BTreeSet<String>,
    /// Nodes with a pod, and since when the others are without one.
    busy: BTreeSet<String>,
    free_since: BTreeMap<String, Timestamp>,
    /// The same as far as the provider's watch could see it: of a pod that came and went while it looked at nothing nobody can tell it.
    seen_busy: BTreeSet<String>,
    seen_free_since: BTreeMap<String, Timestamp>,
    /// Since when the provider runs.
    began_at: Timestamp,
    /// When it was last looked, and whether the provider worked then.
    watched: (Timestamp, bool),
    /// Since when probes speak; of those that it did not believe yet, since when the provider can hear them.
    speaks_since: BTreeMap<String, Timestamp>,
    /// Since when probes are silent.
    silent_since: BTreeMap<String, Timestamp>,
    /// What had been asked of the pool when the autoscaler chose a node; `None` of one that no pod could use then.
    chosen: BTreeMap<String, Option<again::Asked>>,
    /// What each pool's floor wants.
    levels: BTreeMap<PoolName, again::Level>,
    /// Nodes that are being lost, since when; and those that came back, which were missed meanwhile.
    losing: BTreeMap<(String, again::Loss), again::Lost>,
    /// When each pool was asked to serve a pod: one that came, or that lost its node.
    pub(crate) came: BTreeMap<String, Vec<Timestamp>>,
    /// Nodes that were free when they were deleted, or when the provider ended them.
    went_free: BTreeSet<String>,
    /// Nodes whose machines have been told to end.
    ending: BTreeSet<String>,
    /// Nodes of which a pod was told to go because the cloud would take them: from then on there is no way back.
    given_back: BTreeSet<String>,
    /// Nodes that the cloud does not take after all, and when the provider last could not have heard of that.
    pub(crate) withdrawn: BTreeMap<String, Timestamp>,
    /// Nodes that a user cordoned or held, and those that are cordoned.
    pub(crate) touched: BTreeSet<String>,
    pub(crate) cordoned: BTreeSet<String>,
    /// Whether the wall was ever set: the provider's clock may run up to 1 % faster since, to meet it.
    pub(crate) wall_was_set: bool,
    given_up: Vec<again::GivenUp>,
    orders: BTreeMap<RecordId, again::Order>,
    /// Nodes that are released, until a pod comes.
    may_go: BTreeSet<String>,
    /// Nodes that were released within the last window, by pool.
    let_go: BTreeMap<PoolName, Vec<(Timestamp, String)>>,
    lacking: BTreeMap<PoolName, floors::Lack>,
    /// Until when the autoscaler leaves groups alone that failed.
    pub(crate) left_alone: BTreeMap<String, Timestamp>,
    looked_at: usize,
    /// What happened, counted.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) asked: u64,
    pub(crate) lost: u64,
    /// Free nodes that went back to spot.
    pub(crate) moved: u64,
}

impl Truth {
    pub(crate) const fn new(start: Timestamp) -> Self {
        Self {
            start,
            broken: Vec::new(),
            sick: BTreeSet::new(),
            busy: BTreeSet::new(),
            free_since: BTreeMap::new(),
            seen_busy: BTreeSet::new(),
            seen_free_since: BTreeMap::new(),
            speaks_since: BTreeMap::new(),
            silent_since: BTreeMap::new(),
            chosen: BTreeMap::new(),
            levels: BTreeMap::new(),
            losing: BTreeMap::new(),
            began_at: start,
            watched: (start, true),
            came: BTreeMap::new(),
            went_free: BTreeSet::new(),
            ending: BTreeSet::new(),
            given_back: BTreeSet::new(),
            withdrawn: BTreeMap::new(),
            touched: BTreeSet::new(),
            cordoned: BTreeSet::new(),
            wall_was_set: false,
            given_up: Vec::new(),
            orders: BTreeMap::new(),
            may_go: BTreeSet::new(),
            let_go: BTreeMap::new(),
            lacking: BTreeMap::new(),
            left_alone: BTreeMap::new(),
            looked_at: 0,
            counts: BTreeMap::new(),
            asked: 0,
            lost: 0,
            moved: 0,
        }
    }

    fn breaks(&mut self, at: Timestamp, what: &str) {
        self.broken.push(format!("{} {what}", crate::timeline::shown(at.duration_since(self.start)).trim_end()));
    }

    /// How long a node has been without a pod.
    pub(crate) fn free_for(&self, node: &str, now: Timestamp) -> SignedDuration {
        let since = self.free_since.get(node).filter(|_| !self.busy.contains(node));
        since.map_or(SignedDuration::ZERO, |since| now.duration_since(*since))
    }

    /// How much time has passed since then by the provider's clock, at most.
    fn passed(&self, since: Timestamp, now: Timestamp) -> SignedDuration {
        let truly = now.duration_since(since);
        if self.wall_was_set { truly + truly / 100 } else { truly }
    }

    /// Counts one more of something.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Something holds a released node again: it has given its turn back.
    fn kept_again(&mut self, node: &str) {
        self.may_go.remove(node);
        for released in self.let_go.values_mut() {
            released.retain(|(_, of)| of != node);
        }
    }

    /// Time has passed. While the provider does not work it hears no probe, and goes on to believe those that it did.
    fn passes_time(&mut self, works: bool, now: Timestamp) {
        let (before, worked) = std::mem::replace(&mut self.watched, (now, works));
        if !worked {
            let doubted =
                self.speaks_since.values_mut().filter(|since| before.duration_since(**since) <= taken::BELIEVED_AFTER);
            doubted.for_each(|since| *since += now.duration_since(before));
        }
    }

    /// The provider begins anew.
    pub(crate) const fn provider_begins(&mut self, now: Timestamp) {
        self.began_at = now;
    }

    /// A pool is asked to serve one more pod.
    pub(crate) fn asks(&mut self, pool: &str, now: Timestamp) {
        self.came.entry(pool.to_owned()).or_default().push(now);
    }

    pub(crate) fn joined(&mut self, node: &str, now: Timestamp) {
        self.free_since.insert(node.to_owned(), now);
        self.seen_free_since.insert(node.to_owned(), now);
        self.count("nodes joined");
    }

    pub(crate) fn removed(&mut self, node: &str) {
        self.free_since.remove(node);
        self.seen_free_since.remove(node);
        self.busy.remove(node);
        self.seen_busy.remove(node);
        self.silent_since.remove(node);
        self.speaks_since.remove(node);
        self.sick.remove(node);
        self.touched.remove(node);
        self.cordoned.remove(node);
        self.chosen.remove(node);
        self.withdrawn.remove(node);
        self.went_free.remove(node);
        self.ending.remove(node);
        self.given_back.remove(node);
    }

    pub(crate) fn evicted_by_autoscaler(&mut self, pod: &str, node: &str, now: Timestamp) {
        self.count("pods evicted by the autoscaler");
        self.breaks(now, &format!("the autoscaler's scale-down evicted {pod} from {node}"));
    }

    pub(crate) fn machine_gone(&mut self, node: &str, reclaimed: bool, pods: &[String], now: Timestamp) {
        if reclaimed {
            self.count("machines taken back");
            self.lost += 1;
        } else {
            self.count("machines ended");
            if !pods.is_empty() && self.went_free.contains(node) {
                // The autoscaler did not hear that its deletion was taken, or a user opened the node again, and the scheduler was quick.
                self.count("machines ended under a pod that came after their end was asked for");
            } else if !pods.is_empty() {
                self.breaks(now, &format!("the machine of {node} was ended under {}", pods.join(", ")));
            }
        }
        if self.sick.contains(node) {
            self.lost += 1;
        }
    }

    /// Notes who has pods. `all`: of the world; `provider`: whether the provider sees it.
    fn notes_pods(&mut self, all: &BTreeSet<String>, provider: bool, now: Timestamp) {
        let note = |busy: &mut BTreeSet<String>, since: &mut BTreeMap<String, Timestamp>| {
            for (node, since) in since {
                if all.contains(node) {
                    busy.insert(node.clone());
                } else if busy.remove(node) {
                    *since = now;
                }
            }
        };
        note(&mut self.busy, &mut self.free_since);
        if provider {
            note(&mut self.seen_busy, &mut self.seen_free_since);
        }
    }
}

impl Scene {
    fn pool_of_node(&self, node: &str) -> Option<(&Pool, NodeGroupId, CapacityType)> {
        let machine = self.desk().cloud.of_node(node)?;
        let (pool, group) = self.pool_of_machine(machine)?;
        Some((pool, group, machine.made.market.capacity_type))
    }

    fn pool_of_machine(&self, machine: &crate::cloud::Machine) -> Option<(&Pool, NodeGroupId)> {
        let group = machine.made.key.as_str().split('/').nth(1)?;
        let catalogue = &self.desk().catalogue;
        let group = NodeGroupId::find(&catalogue.groups, group)?;
        Some((catalogue.policy.pool(&group.pool)?, group.id.clone()))
    }

    /// Notes which machines were told to end while their nodes were free, or before they had joined: what asked for those lacks them.
    fn notes_ends(&mut self) {
        let told = self.desk().cloud.machines.values().filter(|machine| machine.ends_at.is_some());
        let told: Vec<String> = told.map(|machine| machine.made.node_name.to_string()).collect();
        for node in told {
            if !self.truth.ending.insert(node.clone()) {
                continue;
            }
            self.truth.lost += u64::from(!self.truth.free_since.contains_key(&node));
            if !self.has_pods(&node) {
                self.truth.went_free.insert(node);
            }
        }
    }

    /// Looks at the world after each step.
    pub(crate) fn truth_watches(&mut self) {
        let now = self.now;
        let busy: BTreeSet<String> = self.autoscaler.cluster().all_pods().filter_map(|pod| pod.node.clone()).collect();
        let sees = self.desk().works();
        self.truth.passes_time(sees, now);
        for node in std::mem::take(&mut self.desk_mut().kept_again) {
            self.truth.kept_again(node.as_str());
        }
        self.truth.may_go.retain(|node| !sees || !busy.contains(node));
        self.notes_ends();
        self.judges_releases();
        self.judges_taken();
        self.truth.notes_pods(&busy, sees, now);
        for (node, probe) in &self.probes {
            if probe.online {
                self.truth.silent_since.remove(node);
                self.truth.speaks_since.entry(node.clone()).or_insert(now);
            } else {
                self.truth.speaks_since.remove(node);
                self.truth.silent_since.entry(node.clone()).or_insert(now);
            }
        }
        self.notes_withdrawals();
        self.notes_losses();
        self.notes_floors();
        self.floors_fill();
        self.judges_purchases();
    }
}
