//! The nodes of the cluster with their pods, kept from loop to loop: of what stays as it is, nothing is counted anew.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};

use super::by_group::Slot;
use super::cluster::{NodeView, PodView, Requests, STARTUP_TAINT_PREFIXES};
use super::fit::{Frame, SimNode};
use super::time::after;

/// How long a node must have been Ready to serve as a template.
pub(super) const STABLE: SignedDuration = SignedDuration::from_mins(1);

/// A node as this loop counts it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) view: Arc<NodeView>,
    /// Whether it counts as Ready: its condition, less starting taints and GPUs that are labelled and not there yet.
    pub(super) ready: bool,
    /// Since when it is marked for deletion.
    pub(super) leaving_since: Option<Timestamp>,
    /// Whether its annotation keeps it.
    pub(super) kept: bool,
    /// Its group, once it is known since the last refresh.
    pub(super) group: OnceLock<Slot>,
}

impl Seen {
    fn new(view: Arc<NodeView>, gpu_label: &str) -> Self {
        let starting = view.taints.iter().any(|t| STARTUP_TAINT_PREFIXES.iter().any(|prefix| t.key.starts_with(prefix)));
        let gpus_missing = !gpu_label.is_empty() && view.labels.contains_key(gpu_label) && view.allocatable.gpus == 0;
        Self {
            ready: view.ready() && !starting && !gpus_missing,
            leaving_since: view.to_be_deleted_since(),
            kept: view.is_kept(),
            group: OnceLock::new(),
            view,
        }
    }

    pub(super) fn is_good_example(&self, now: Timestamp) -> bool {
        let stable = || self.view.ready_since.is_some_and(|since| after(since, STABLE) <= now);
        self.ready && !self.view.unschedulable && self.leaving_since.is_none() && stable()
    }
}

/// Nodes with the pods on them.
#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) nodes: Vec<SimNode>,
    /// The nodes that got a pod since the cluster was looked at, each with what was used of it before; the last is the latest.
    moves: Vec<(usize, Requests)>,
}

impl Room {
    /// Puts the pod on the first node from `from` on that takes it and that `may` allows; answers which it is.
    pub(super) fn first_fit(&mut self, from: usize, pod: &Arc<PodView>, may: impl Fn(usize) -> bool) -> Option<usize> {
        let mut nodes = self.nodes.iter_mut().enumerate().skip(from);
        let (at, node) = nodes.find(|(at, node)| node.takes(pod) && may(*at))?;
        self.moves.push((at, node.used.clone()));
        node.put(pod);
        Some(at)
    }

    /// How many pods were put somewhere.
    pub(super) const fn moved(&self) -> usize {
        self.moves.len()
    }

    /// Takes back all that was put somewhere after the first `moved` pods.
    pub(super) fn take_back(&mut self, moved: usize) {
        while self.moves.len() > moved
            && let Some((at, used)) = self.moves.pop()
        {
            if let Some(node) = self.nodes.get_mut(at) {
                node.pods.pop();
                node.used = used;
            }
        }
    }
}

/// The cluster as it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Roster {
    /// Its nodes.
    pub(super) seen: Vec<Seen>,
    /// The same with their pods.
    pub(super) room: Room,
    /// Its pods.
    pub(super) pods: Vec<Arc<PodView>>,
    /// Pods that are bound to a node that is not there.
    adrift: Vec<Arc<PodView>>,
    gpu_label: Arc<str>,
    sorted: bool,
    /// How often any node came, went or changed.
    pub(super) changes: u64,
}

impl Roster {
    /// Looks at the cluster. Nodes and pods that are shared with the last look are as they were.
    pub(super) fn look(&mut self, views: Vec<Arc<NodeView>>, pods: Vec<Arc<PodView>>, gpu_label: &Arc<str>) {
        self.look_at_nodes(views, gpu_label);
        let mut before = std::mem::take(&mut self.pods).into_iter().peekable();
        let mut gone = Vec::new();
        for pod in &pods {
            while let Some(old) = before.next_if(|old| !Arc::ptr_eq(old, pod) && old.id <= pod.id) {
                gone.push(old);
            }
            if before.next_if(|old| Arc::ptr_eq(old, pod)).is_none() {
                self.adrift.push(Arc::clone(pod));
            }
        }
        gone.extend(before);
        for pod in gone {
            self.drop_pod(&pod);
        }
        for pod in std::mem::take(&mut self.adrift) {
            let Some(name) = &pod.node else { continue };
            match self.place(name).and_then(|at| self.room.nodes.get_mut(at)) {
                Some(node) => node.put(&pod),
                None => self.adrift.push(pod),
            }
        }
        self.pods = pods;
    }

    fn look_at_nodes(&mut self, views: Vec<Arc<NodeView>>, gpu_label: &Arc<str>) {
        let alike = *self.gpu_label == **gpu_label;
        self.gpu_label = Arc::clone(gpu_label);
        let nodes = std::mem::take(&mut self.room.nodes);
        let mut before = std::mem::take(&mut self.seen).into_iter().zip(nodes).peekable();
        let mut moved = false;
        for view in views {
            let same = |(seen, _): &(Seen, SimNode)| alike && Arc::ptr_eq(&seen.view, &view);
            if let Some((seen, node)) = before.next_if(same) {
                self.seen.push(seen);
                self.room.nodes.push(node);
                continue;
            }
            self.changes += 1;
            while let Some((_, node)) = before.next_if(|(seen, _)| seen.view.name < view.name) {
                self.adrift.extend(node.pods);
                moved = true;
            }
            let known = before.next_if(|(seen, _)| seen.view.name == view.name);
            moved |= known.is_none();
            let seen = Seen::new(view, gpu_label);
            let frame = Frame::of(&seen.view, seen.ready);
            if let Some((known, node)) = known {
                if let Some(group) = known.group.get().filter(|_| known.view.provider_id == seen.view.provider_id) {
                    seen.group.get_or_init(|| *group);
                }
                self.room.nodes.push(SimNode { frame: Arc::new(frame), ..node });
            } else {
                self.room.nodes.push(SimNode::new(frame, Requests::default()));
            }
            self.seen.push(seen);
        }
        for (_, node) in before {
            self.adrift.extend(node.pods);
            moved = true;
        }
        if moved {
            self.changes += 1;
            self.sorted = self.seen.is_sorted_by(|a, b| a.view.name < b.view.name);
        }
    }

    /// A pod is not there any more as it was.
    fn drop_pod(&mut self, pod: &Arc<PodView>) {
        let Some(name) = &pod.node else { return };
        let there = |on: &Vec<Arc<PodView>>| on.iter().position(|other| Arc::ptr_eq(other, pod));
        if let Some(node) = self.place(name).and_then(|at| self.room.nodes.get_mut(at))
            && let Some(at) = there(&node.pods)
        {
            node.pods.remove(at);
            node.used = node.pods.iter().fold(Requests::default(), |sum, pod| sum.plus(&pod.requests));
        } else if let Some(at) = there(&self.adrift) {
            self.adrift.swap_remove(at);
        }
    }

    /// Where a node stands.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        if self.sorted {
            self.seen.binary_search_by(|seen| seen.view.name.as_str().cmp(name)).ok()
        } else {
            self.seen.iter().position(|seen| seen.view.name == name)
        }
    }

    /// After a refresh: forgets the groups of the nodes of these machines; of all for `None`.
    pub(super) fn forget_groups(&mut self, machines: Option<&BTreeSet<String>>) {
        if machines.is_some_and(BTreeSet::is_empty) {
            return;
        }
        for seen in &mut self.seen {
            if machines.is_none_or(|machines| machines.contains(&seen.view.provider_id)) {
                seen.group.take();
            }
        }
    }

    /// Forgets the pods that were put somewhere, and the nodes that are not there.
    pub(super) fn clear_up(&mut self) {
        self.room.take_back(0);
        self.room.nodes.truncate(self.seen.len());
    }

    /// The same cluster without these nodes.
    pub(super) fn without(&self, names: &BTreeSet<&String>) -> Self {
        let stays = |(seen, _): &(&Seen, &SimNode)| !names.contains(&seen.view.name);
        let both = self.seen.iter().zip(&self.room.nodes).filter(stays).map(|(seen, node)| (seen.clone(), node.clone()));
        let (seen, nodes) = both.unzip();
        Self { seen, room: Room { nodes, moves: Vec::new() }, sorted: self.sorted, ..Self::default() }
    }

    /// The node as it was last looked at, found by walking beside the caller: `at` is where the walk stands.
    pub(super) fn beside<'s>(&'s self, at: &mut usize, view: &NodeView) -> Option<&'s Seen> {
        while let Some(seen) = self.seen.get(*at).filter(|seen| seen.view.name <= view.name) {
            *at += 1;
            if seen.view.name == view.name {
                return Some(seen);
            }
        }
        None
    }
}
