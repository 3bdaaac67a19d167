//! The machines that exist, and the names and keys of all that ever did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{ClusterName, IdError, LaunchKey, NodeName, ProviderId};
use stoker_core::facts::supply::{EndedWhy, Instance, InstanceState, LaunchRequest};
use stoker_core::market::offer::Market;

use super::draw::{Seed, lot};
use super::store::{StoredInstance, Window};

/// Longest node name: it is a host name and a label's value.
const MAX_NODE_NAME: usize = 63;
/// Hex digits at the end of a node name.
const TAG_DIGITS: usize = 8;

/// How long it is told why a machine ended.
const TOLD_FOR: SignedDuration = SignedDuration::from_mins(10);

/// One machine that exists.
#[derive(Debug, Clone)]
struct Machine {
    row: StoredInstance,
    /// As its supplier shows it; shared with observations.
    shown: Arc<Instance>,
    /// When it changes next by itself; its entry in the schedule.
    due: Option<Timestamp>,
}

/// The machines that exist, and what may never be used again.
#[derive(Debug, Clone, Default)]
pub(super) struct Machines {
    alive: BTreeMap<LaunchKey, Machine>,
    keys: BTreeMap<ProviderId, LaunchKey>,
    schedule: BTreeSet<(Timestamp, LaunchKey)>,
    in_use: BTreeMap<Market, u32>,
    ended: BTreeSet<LaunchKey>,
    /// Machines that ended lately: when, and why.
    gone: BTreeMap<(Timestamp, ProviderId), EndedWhy>,
    /// The hex digits that ids and node names of all machines ever made were told apart by.
    tags: BTreeSet<u32>,
}

impl Machines {
    /// The machine of that key, if it exists.
    pub(super) fn by_key(&self, key: &LaunchKey) -> Option<&Arc<Instance>> {
        self.alive.get(key).map(|machine| &machine.shown)
    }

    /// The machine of that id, if it exists.
    pub(super) fn by_id(&self, id: &ProviderId) -> Option<&Arc<Instance>> {
        self.by_key(self.keys.get(id)?)
    }

    /// Whether a machine exists and has booted by then.
    pub(super) fn has_booted(&self, id: &ProviderId, now: Timestamp) -> bool {
        let machine = self.keys.get(id).and_then(|key| self.alive.get(key));
        machine.is_some_and(|machine| machine.row.ready_at.is_some_and(|at| at <= now))
    }

    /// The machines of a cluster.
    pub(super) fn of<'a>(&'a self, cluster: &'a ClusterName) -> impl Iterator<Item = &'a Arc<Instance>> {
        self.alive.values().filter(move |machine| machine.row.cluster == *cluster).map(|machine| &machine.shown)
    }

    /// Whether a machine of that key was made and is gone.
    pub(super) fn has_ended(&self, key: &LaunchKey) -> bool {
        self.ended.contains(key)
    }

    /// Machines that take up a market's stock, those on their way out included.
    pub(super) fn in_use(&self, market: &Market) -> u32 {
        self.in_use.get(market).copied().unwrap_or(0)
    }

    /// Names for a new machine that no machine had before: from the seed and its key, and from the next try where they are taken.
    ///
    /// # Errors
    /// When the zone's name makes the id too long.
    pub(super) fn name(&self, seed: Seed, request: &LaunchRequest) -> Result<(ProviderId, NodeName), IdError> {
        let (mut attempt, lot) = (0, lot(&request.key));
        let (bits, tag) = loop {
            let bits = seed.stream("name", &[&lot], attempt).bits();
            let tag = tag(bits);
            if !self.tags.contains(&tag) {
                break (bits, tag);
            }
            attempt += 1;
        };
        // Twelve digits of which the first eight are the node's, so that a person sees which belongs to which.
        let id = ProviderId::new(format!("sim:///{}/i-{:012x}", request.zone_name, bits >> 16))?;
        Ok((id, NodeName::new(node_name(request.market.place.instance_type.as_str(), tag))?))
    }

    /// Adds a machine, or one that is gone already, as it is at `now`. Returns it as its supplier shows it.
    pub(super) fn insert(&mut self, row: StoredInstance, now: Timestamp) -> Arc<Instance> {
        if let Some(bits) = tail_bits(&row.provider_id) {
            self.tags.insert(tag(bits << 16));
        }
        let state = row.state_at(now);
        let shown = Arc::new(row.shown(state.unwrap_or(InstanceState::Stopping)));
        if state.is_none() {
            self.gone.extend(row.ended().map(|(at, why)| ((at, row.provider_id.clone()), why)));
            self.ended.insert(row.key.clone());
            return shown;
        }
        let key = row.key.clone();
        let due = row.next_change(now);
        self.keys.insert(row.provider_id.clone(), key.clone());
        *self.in_use.entry(row.market.clone()).or_default() += 1;
        self.alive.insert(key.clone(), Machine { row, shown: Arc::clone(&shown), due });
        self.schedule.extend(due.map(|at| (at, key)));
        shown
    }

    /// Tells a machine to end. Returns its row if that is news.
    pub(super) fn stop(&mut self, id: &ProviderId, stopping: Window, now: Timestamp) -> Option<StoredInstance> {
        let key = self.keys.get(id)?.clone();
        let machine = self.alive.get_mut(&key)?;
        if machine.row.stopping.is_some() {
            return None;
        }
        machine.row.stopping = Some(stopping);
        let row = machine.row.clone();
        if let Some(at) = machine.due.take() {
            self.schedule.remove(&(at, key.clone()));
        }
        self.refresh(&key, now);
        Some(row)
    }

    /// Brings all machines to `now`. Says whether any changed.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        let mut changed = false;
        while self.schedule.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.schedule.pop_first() {
                self.refresh(&key, now);
                changed = true;
            }
        }
        changed
    }

    /// Why machines ended that ended lately.
    pub(super) fn gone(&mut self, now: Timestamp) -> BTreeMap<ProviderId, EndedWhy> {
        self.gone.retain(|(at, _), _| now.duration_since(*at) <= TOLD_FOR);
        self.gone.iter().map(|((_, machine), why)| (machine.clone(), *why)).collect()
    }

    /// When the next machine changes by itself.
    pub(super) fn next_change(&self) -> Option<Timestamp> {
        self.schedule.first().map(|(at, _)| *at)
    }

    /// Brings one machine, which has no entry in the schedule, to `now`.
    fn refresh(&mut self, key: &LaunchKey, now: Timestamp) {
        let Some(machine) = self.alive.get_mut(key) else { return };
        if let Some(state) = machine.row.state_at(now) {
            Arc::make_mut(&mut machine.shown).state = state;
            machine.due = machine.row.next_change(now);
            self.schedule.extend(machine.due.map(|at| (at, key.clone())));
        } else if let Some(gone) = self.alive.remove(key) {
            self.keys.remove(&gone.row.provider_id);
            if let Some(count) = self.in_use.get_mut(&gone.row.market) {
                *count = count.saturating_sub(1);
            }
            self.gone.extend(gone.row.ended().map(|(at, why)| ((at, gone.row.provider_id.clone()), why)));
            self.ended.insert(gone.row.key);
        }
    }
}

/// The first 32 bits.
fn tag(bits: u64) -> u32 {
    u32::try_from(bits >> 32).unwrap_or(u32::MAX)
}

/// The bits that an id's last twelve hex digits were made from.
fn tail_bits(id: &ProviderId) -> Option<u64> {
    u64::from_str_radix(id.as_str().rsplit_once("/i-")?.1, 16).ok()
}

/// `g6.xlarge` and a tag as a name that Kubernetes accepts: `g6-xlarge-0123abcd`.
fn node_name(instance_type: &str, tag: u32) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let stem: String = instance_type.chars().map(plain).take(MAX_NODE_NAME - TAG_DIGITS - 1).collect();
    let stem = stem.trim_matches('-');
    if stem.is_empty() { format!("node-{tag:08x}") } else { format!("{stem}-{tag:08x}") }
}
