//! Shrinking, first half: which nodes are not needed, since when, and which of them may go now.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::autoscaler::{Autoscaler, Pass};
use super::by_group::{ByGroup, Slot};
use super::ca_client::CaClient;
use super::cluster::{Cluster, NodeView, PodView};
use super::deletion::DELETION_GRACE;
use super::fit::{SimNode, has_label};
use super::seen::Room;
use super::time::after;

/// A node that is not needed.
#[derive(Debug, Clone, Copy)]
struct Unneeded {
    since: Timestamp,
    /// Whether pods would have to move.
    drain: bool,
    /// How long it must have been unneeded; `None` where that could not be read.
    threshold: Option<SignedDuration>,
}

impl Unneeded {
    fn due(&self) -> Option<Timestamp> {
        self.threshold.map(|wait| after(self.since, wait))
    }
}

/// Which nodes are not needed. All of it is in memory: a restart forgets it.
#[derive(Debug, Clone, Default)]
pub(super) struct Planner {
    unneeded: BTreeMap<String, Unneeded>,
    /// Nodes whose pods had nowhere to go, and until when they are not looked at.
    stuck: BTreeMap<String, Timestamp>,
}

impl Planner {
    pub(super) fn forget_unneeded(&mut self) {
        self.unneeded.clear();
    }

    /// When a node will have been unneeded for long enough or is looked at again.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Timestamp> {
        self.unneeded.values().filter_map(Unneeded::due).chain(self.stuck.values().copied())
    }

    /// Whether any node is counted as unneeded.
    pub(super) fn has_unneeded(&self) -> bool {
        !self.unneeded.is_empty()
    }
}

/// A node that may go now.
#[derive(Debug, Clone)]
pub(super) struct Removable {
    pub(super) node: Arc<NodeView>,
    pub(super) group: Slot,
    pub(super) drain: bool,
}

/// A node of a group above its minimum that is not on its way out.
#[derive(Clone, Copy)]
struct Candidate {
    group: Slot,
    /// Its place in the snapshot.
    at: usize,
}

impl<D: CaClient, C: Cluster> Autoscaler<D, C> {
    /// Works out anew which nodes are not needed: little used, not kept, and their pods would fit elsewhere. Answers whether any node
    /// could go at all.
    pub(super) async fn find_unneeded(&mut self, pass: &mut Pass<'_>) -> bool {
        let defaults = self.settings.group_options();
        let early = self.settings.generation.reads_unneeded_time_early();
        self.state.planner.stuck.retain(|_, until| pass.now < *until);
        let mut eligible = Vec::new();
        let (candidates, any) = self.candidates(pass).await;
        for candidate in candidates {
            if self.is_eligible(candidate, pass).await {
                eligible.push(candidate);
            }
        }
        if eligible.is_empty() {
            self.state.planner.unneeded.clear();
            return any;
        }
        // Empty nodes first, then those found unneeded before.
        let unneeded = &self.state.planner.unneeded;
        let (seen, room) = (&pass.roster.seen, &mut pass.roster.room);
        let is_empty = |at: usize| room.nodes.get(at).is_some_and(|node| to_move(node).next().is_none());
        let is_known = |at: usize| seen.get(at).is_some_and(|seen| unneeded.contains_key(&seen.view.name));
        eligible.sort_by_cached_key(|c| (!is_empty(c.at), !is_known(c.at)));

        let deletions = &self.state.deletions;
        let mut goes: Vec<bool> = seen.iter().map(|seen| deletions.contains(&seen.view.name)).collect();
        let mut found = BTreeMap::new();
        for Candidate { group, at } in eligible {
            let Some(seen) = seen.get(at) else { continue };
            let name = seen.view.name.clone();
            let Some(drain) = move_away(room, at, &goes) else {
                self.state.planner.stuck.insert(name, after(pass.now, self.settings.unremovable_recheck));
                continue;
            };
            goes.get_mut(at).into_iter().for_each(|goes| *goes = true);
            let threshold = self.unneeded_time(group, seen.ready).await;
            if early {
                // The original looks once more, to note the time beside the node.
                let _ = self.client.options(group, &defaults).await;
            }
            let since = self.state.planner.unneeded.get(&name).map_or(pass.now, |before| before.since);
            found.insert(name, Unneeded { since, drain, threshold });
        }
        self.state.planner.unneeded = found;
        any
    }

    /// The nodes that may be looked at; and whether there are any of a group above its minimum, those on their way out too.
    async fn candidates(&mut self, pass: &Pass<'_>) -> (Vec<Candidate>, bool) {
        let sizes = self.sizes().await;
        let mut candidates = Vec::new();
        let mut any = false;
        for (at, seen) in pass.roster.seen.iter().enumerate() {
            let Some(group) = self.client.known_group_of_seen(seen).await else { continue };
            let above_min = sizes.get(group).is_some_and(|(size, min)| size > min);
            any |= above_min;
            if above_min && !self.state.deletions.contains(&seen.view.name) {
                candidates.push(Candidate { group, at });
            }
        }
        (candidates, any)
    }

    async fn is_eligible(&mut self, Candidate { group, at }: Candidate, pass: &Pass<'_>) -> bool {
        let Some((seen, node)) = pass.roster.seen.get(at).zip(pass.roster.room.nodes.get(at)) else { return false };
        let leaving = || seen.leaving_since.is_some_and(|since| pass.now.duration_since(since) < DELETION_GRACE);
        if seen.kept || leaving() || self.state.planner.stuck.contains_key(&seen.view.name) {
            return false;
        }
        let defaults = self.settings.group_options();
        let Ok(options) = self.client.options(group, &defaults).await else { return false };
        let gpu_label = self.client.gpu_label().await;
        let used = node.utilization(&gpu_label, options.ignore_daemon_sets);
        // The threshold is a second look at the options.
        let Ok(options) = self.client.options(group, &defaults).await else { return false };
        let gpu = has_label(&node.node, &gpu_label);
        used <= if gpu { options.gpu_utilization_threshold } else { options.utilization_threshold }
    }

    /// The unneeded nodes that may go now, empty ones first: long enough unneeded, and their group stays at its minimum.
    pub(super) async fn removable(&mut self, pass: &Pass<'_>) -> Vec<Removable> {
        let defaults = self.settings.group_options();
        let mut sizes = self.sizes().await;
        self.state.deletions.groups().for_each(|group| sizes.get_mut(group).into_iter().for_each(|(size, _)| *size -= 1));
        let early = self.settings.generation.reads_unneeded_time_early();
        let mut unneeded: Vec<(String, Unneeded)> = self.state.planner.unneeded.clone().into_iter().collect();
        unneeded.sort_by_key(|(_, unneeded)| unneeded.drain);
        let mut removable = Vec::new();
        for (name, unneeded) in unneeded {
            let Some(seen) = pass.roster.place(&name).and_then(|at| pass.roster.seen.get(at)) else { continue };
            let Some(group) = self.client.known_group_of_seen(seen).await else { continue };
            if !early && self.unneeded_time(group, seen.ready).await.is_none() {
                continue;
            }
            if unneeded.due().is_none_or(|due| pass.now < due) {
                continue;
            }
            let Some((size, min)) = sizes.get_mut(group) else { continue };
            if *size > *min {
                *size -= 1;
                // Asked for whether the group goes to nought at once, which is not modelled.
                let _ = self.client.options(group, &defaults).await;
                let node = Arc::clone(&seen.view);
                removable.push(Removable { node, group, drain: unneeded.drain });
            }
        }
        removable
    }

    /// How long a node of the group must have been unneeded; `None` where that could not be read.
    async fn unneeded_time(&mut self, group: Slot, ready: bool) -> Option<SignedDuration> {
        let options = self.client.options(group, &self.settings.group_options()).await.ok()?;
        Some(if ready { options.unneeded } else { options.unready })
    }

    /// Target and minimum of each group whose target could be read.
    async fn sizes(&mut self) -> ByGroup<(i32, i32)> {
        let mut sizes = ByGroup::default();
        for group in self.client.node_groups().await.iter() {
            if let Ok(size) = self.client.target_size(group.slot).await {
                sizes.insert(group.slot, (size, group.min));
            }
        }
        sizes
    }
}

/// The pods that would have to move.
fn to_move(node: &SimNode) -> impl Iterator<Item = &Arc<PodView>> {
    node.pods.iter().filter(|pod| !pod.daemon)
}

/// Moves the pods of a node to others of the cluster, by id, but for those that go. Answers whether there were any; `None` where one may
/// not or cannot go, and then nothing is moved.
fn move_away(room: &mut Room, at: usize, goes: &[bool]) -> Option<bool> {
    let mut pods: Vec<Arc<PodView>> = to_move(room.nodes.get(at)?).cloned().collect();
    if pods.is_empty() {
        return Some(false);
    }
    if pods.iter().any(|pod| !pod.movable) {
        return None;
    }
    pods.sort_by(|a, b| a.id.cmp(&b.id));
    let (before, may) = (room.moved(), |to: usize| to != at && goes.get(to) == Some(&false));
    if pods.iter().all(|pod| room.first_fit(0, pod, may).is_some()) {
        return Some(true);
    }
    room.take_back(before);
    None
}
