//! What the autoscaler believes about its groups: targets, instances, nodes, its own requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashSet;

use super::backoff::Backoff;
use super::by_group::{ByGroup, Slot};
use super::ca_client::{CaClient, InstanceError, InstanceInfo};
use super::client::{Client, Listed};
use super::readiness::Census;
use super::report::{Action, LoopError};
use super::seen::Roster;
use super::settings::Settings;
use super::templates::Templates;
use super::time::{after, count};

/// How often the goroutine beside the loop reads the instances of all groups.
pub(super) const CACHE_REFRESH: SignedDuration = SignedDuration::from_mins(2);

/// Nodes asked of a group and not all seen yet.
#[derive(Debug, Clone)]
struct Request {
    group: Slot,
    increase: i32,
    deadline: Timestamp,
}

/// How many nodes of a group there should be.
#[derive(Debug, Clone, Copy)]
struct Range {
    min: i32,
    target: i32,
}

/// A target size that the registered nodes do not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Incorrect {
    registered: i32,
    target: i32,
    since: Timestamp,
}

/// What a look at the groups needs beside the registry itself.
pub(super) struct Scope<'a, D> {
    pub(super) client: &'a mut Client<D>,
    pub(super) settings: &'a Settings,
    pub(super) templates: &'a Templates,
    pub(super) actions: &'a mut Vec<Action>,
    pub(super) now: Timestamp,
}

/// What the autoscaler believes about its groups. All of it is in memory: a restart forgets it.
#[derive(Debug, Clone, Default)]
pub(super) struct Registry {
    /// By the group's id.
    requests: BTreeMap<Arc<str>, Request>,
    backoff: Backoff,
    /// Since when an instance has been seen without a Node, by id.
    unregistered: BTreeMap<String, Timestamp>,
    cache: Instances,
    cache_refreshed: Option<Timestamp>,
    /// Whether the caller runs a loop after every change outside, so that reads between two loops may be skipped.
    pub(super) reports_changes: bool,
    /// Whether the last loop read all instances, and they were as known.
    steady: bool,
    instances: Instances,
    previous_instances: Instances,
    /// How often nodes had changed when the unregistered instances were noted.
    nodes_changed: u64,
    census: Census,
    ranges: ByGroup<Range>,
    incorrect: ByGroup<Incorrect>,
}

/// The instances of each group.
type Instances = ByGroup<Arc<[InstanceInfo]>>;

impl Registry {
    /// Takes in the state of the groups and nodes, and settles the requests: fulfilled, timed out or failed.
    pub(super) async fn update<D: CaClient>(&mut self, scope: &mut Scope<'_, D>, roster: &Roster) -> Result<(), LoopError> {
        let groups = scope.client.node_groups().await;
        let mut targets = ByGroup::default();
        for group in groups.iter() {
            let size = scope.client.target_size(group.slot).await;
            let size = size.map_err(|source| LoopError::TargetSize { group: group.id.to_string(), source })?;
            targets.insert(group.slot, size);
        }
        let instances = self.read_instances(scope, &groups).await?;
        self.previous_instances = std::mem::replace(&mut self.instances, instances);
        self.note_unregistered(roster, scope.now);
        self.census = Census::take(scope, &roster.seen, &self.unregistered).await;
        self.note_ranges(&targets);
        self.settle_requests(scope).await;
        self.note_creation_errors(scope).await;
        self.note_ranges(&targets);
        self.note_incorrect_sizes(&targets, scope.now);
        Ok(())
    }

    async fn read_instances<D: CaClient>(
        &mut self,
        scope: &mut Scope<'_, D>,
        groups: &[Listed],
    ) -> Result<Instances, LoopError> {
        for group in groups {
            if self.is_scaling_up(group) {
                self.cache.remove(group.slot);
            }
        }
        for group in groups {
            if !self.cache.has(group.slot)
                && let Ok(instances) = scope.client.nodes(group.slot).await
            {
                self.cache.insert(group.slot, instances);
            }
        }
        let mut all = ByGroup::default();
        for group in groups {
            let instances = if let Some(known) = self.cache.get(group.slot) {
                Arc::clone(known)
            } else {
                let again = scope.client.nodes(group.slot).await;
                let instances = again.map_err(|source| LoopError::Nodes { group: group.id.to_string(), source })?;
                self.cache.insert(group.slot, Arc::clone(&instances));
                instances
            };
            all.insert(group.slot, instances);
        }
        Ok(all)
    }

    /// The goroutine beside the loop: reads the instances of all groups when they are due. A failed read is taken for none.
    pub(super) async fn refresh_cache<D: CaClient>(
        &mut self,
        client: &mut Client<D>,
        scan_interval: SignedDuration,
        now: Timestamp,
    ) {
        if std::mem::take(&mut self.steady) {
            self.skip_refreshes(scan_interval, now);
        }
        if now < self.next_cache_refresh(now) {
            return;
        }
        self.cache_refreshed = Some(now);
        let groups = client.node_groups().await;
        let known = self.cache.values().count();
        let before = std::mem::take(&mut self.cache);
        let listed = groups.iter().filter(|group| before.has(group.slot)).count();
        self.steady = self.reports_changes && known == listed;
        for group in groups.iter() {
            let instances = client.nodes(group.slot).await.unwrap_or_default();
            self.steady &= before.get(group.slot) == Some(&instances);
            self.cache.insert(group.slot, instances);
        }
    }

    /// Counts the reads as made that were due before `now` and skipped, as nothing had changed: each in the first loop at or after its
    /// moment.
    fn skip_refreshes(&mut self, scan_interval: SignedDuration, now: Timestamp) {
        let Some(last) = self.cache_refreshed else { return };
        let (every, scan) = (CACHE_REFRESH.as_nanos(), scan_interval.as_nanos().max(1));
        let apart = every.div_euclid(scan) + i128::from(every.rem_euclid(scan) > 0);
        let (apart, gone) = (apart * scan, now.duration_since(last).as_nanos());
        let skipped = (gone - 1).div_euclid(apart).max(0) * apart;
        self.cache_refreshed = i64::try_from(skipped).ok().map(|skipped| after(last, SignedDuration::from_nanos(skipped)));
    }

    fn next_cache_refresh(&self, now: Timestamp) -> Timestamp {
        self.cache_refreshed.map_or(now, |at| after(at, CACHE_REFRESH))
    }

    /// Has the instances of a group read again in the next loop.
    pub(super) fn drop_cached(&mut self, group: Slot) {
        self.cache.remove(group);
    }

    fn note_unregistered(&mut self, roster: &Roster, now: Timestamp) {
        let same = |(group, instances): (Slot, &Arc<[InstanceInfo]>)| {
            self.previous_instances.get(group).is_some_and(|before| Arc::ptr_eq(before, instances))
        };
        let changed = std::mem::replace(&mut self.nodes_changed, roster.changes);
        let count = |instances: &Instances| instances.values().count();
        if changed == roster.changes
            && count(&self.instances) == count(&self.previous_instances)
            && self.instances.iter().all(same)
        {
            return;
        }
        let registered: FxHashSet<&str> = roster.seen.iter().map(|seen| seen.view.provider_id.as_str()).collect();
        let missing = self.instances.values().flat_map(|of_group| of_group.iter()).filter(|i| i.expected_to_register());
        self.unregistered = missing
            .filter(|i| !registered.contains(i.id.as_str()))
            .map(|i| (i.id.clone(), self.unregistered.get(&i.id).copied().unwrap_or(now)))
            .collect();
    }

    fn note_ranges(&mut self, targets: &ByGroup<i32>) {
        let mut ranges: ByGroup<Range> = targets
            .iter()
            .map(|(group, target)| {
                let late = self.census.groups.get(group).map_or(0, |r| r.long_unregistered);
                (group, Range { min: target - late, target: *target })
            })
            .collect();
        for request in self.requests.values() {
            if let Some(range) = ranges.get_mut(request.group) {
                range.min -= request.increase;
            }
        }
        self.ranges = ranges;
    }

    async fn settle_requests<D: CaClient>(&mut self, scope: &mut Scope<'_, D>) {
        self.backoff.forget_stale(scope.settings, scope.now);
        let all: Vec<(Arc<str>, Request)> =
            self.requests.iter().map(|(id, request)| (Arc::clone(id), request.clone())).collect();
        for (id, Request { group, increase, deadline }) in all {
            if self.missing(group) <= 0 {
                self.requests.remove(&id);
                continue;
            }
            if scope.now < deadline {
                continue;
            }
            scope.actions.push(Action::RequestTimedOut { group: id.to_string(), increase });
            self.back_off(scope, group);
            if scope.settings.generation.takes_timed_out_requests_back() && increase > 0 {
                // A failure is only logged.
                let _ = scope.client.decrease_target_size(group, -increase).await;
            }
            self.requests.remove(&id);
        }
    }

    async fn note_creation_errors<D: CaClient>(&mut self, scope: &mut Scope<'_, D>) {
        for group in scope.client.node_groups().await.iter() {
            let (before, instances) = (self.previous_instances.get(group.slot), self.instances.get(group.slot));
            if before.zip(instances).is_some_and(|(before, instances)| Arc::ptr_eq(before, instances)) {
                continue;
            }
            let seen: BTreeSet<&str> = failed(before).map(|(instance, _)| instance.id.as_str()).collect();
            let mut fresh: BTreeMap<(String, i32), (i32, InstanceError)> = BTreeMap::new();
            for (_, error) in failed(instances).filter(|(i, _)| !seen.contains(i.id.as_str())) {
                fresh.entry((error.code.clone(), error.class)).or_insert_with(|| (0, error.clone())).0 += 1;
            }
            for (instances, error) in fresh.into_values() {
                if self.is_scaling_up(group) {
                    scope.actions.push(Action::CreationFailed { group: group.id.to_string(), instances, error });
                    self.register(scope, group.slot, -instances).await;
                    self.back_off(scope, group.slot);
                }
            }
        }
    }

    fn note_incorrect_sizes(&mut self, targets: &ByGroup<i32>, now: Timestamp) {
        let mut incorrect = ByGroup::default();
        for (group, target) in targets.iter() {
            let Some(r) = self.census.groups.get(group) else { continue };
            let listed = r.unregistered + r.long_unregistered;
            if r.registered > *target || r.registered < target - listed {
                let found = Incorrect { registered: r.registered, target: *target, since: now };
                let known = self.incorrect.get(group).copied().filter(|old| Incorrect { since: now, ..*old } == found);
                incorrect.insert(group, known.unwrap_or(found));
            }
        }
        self.incorrect = incorrect;
    }

    /// Reads the target sizes again, after something was asked for or deleted.
    pub(super) async fn recalculate<D: CaClient>(&mut self, client: &mut Client<D>) {
        let groups = client.node_groups().await;
        let mut targets = ByGroup::default();
        for group in groups.iter() {
            let Ok(size) = client.target_size(group.slot).await else {
                // As in the original, one failure makes all targets nought until the next loop.
                targets = groups.iter().map(|g| (g.slot, 0)).collect();
                break;
            };
            targets.insert(group.slot, size);
        }
        self.note_ranges(&targets);
    }

    /// Notes that a group was asked for more nodes, or that some of those asked for failed.
    pub(super) async fn register<D: CaClient>(&mut self, scope: &mut Scope<'_, D>, group: Slot, delta: i32) {
        let Ok(options) = scope.client.options(group, &scope.settings.group_options()).await else { return };
        let deadline = after(scope.now, options.max_node_provision);
        let id = scope.client.name(group);
        match self.requests.get_mut(&id) {
            None if delta > 0 => {
                self.requests.insert(id, Request { group, increase: delta, deadline });
            }
            None => {}
            Some(request) if request.increase + delta <= 0 => {
                self.requests.remove(&id);
            }
            Some(request) => {
                request.increase += delta;
                if delta > 0 {
                    request.deadline = deadline;
                }
            }
        }
    }

    /// Leaves a group alone for a while. A group without a template is never left alone.
    pub(super) fn back_off<D: CaClient>(&mut self, scope: &mut Scope<'_, D>, group: Slot) {
        if scope.templates.get(group).is_some() {
            let until = self.backoff.fail(group, scope.settings, scope.now);
            scope.actions.push(Action::BackedOff { group: scope.client.name(group).to_string(), until });
        }
    }

    /// Nodes that the target counts and that are neither Ready, nor broken, nor given up.
    fn missing(&self, group: Slot) -> i32 {
        let Some(range) = self.ranges.get(group) else { return 0 };
        self.census.groups.get(group).map_or(range.target, |r| range.target - (r.ready + r.unready + r.long_unregistered))
    }

    fn is_scaling_up(&self, group: &Listed) -> bool {
        self.missing(group.slot) > 0 && self.requests.contains_key(&group.id)
    }

    /// The nodes that count as coming, by the ids of their groups.
    pub(super) async fn upcoming<D: CaClient>(&self, scope: &mut Scope<'_, D>) -> BTreeMap<Arc<str>, Upcoming> {
        let mut upcoming = BTreeMap::new();
        for Listed { slot, id, .. } in scope.client.node_groups().await.iter() {
            let missing = self.missing(*slot);
            let unknown = || {
                scope.settings.generation.upcoming_needs_own_request()
                    && (!self.requests.contains_key(id) || self.left_alone_until(*slot, scope.templates, scope.now).is_some())
            };
            if missing > 0 && !unknown() {
                let not_started = self.census.groups.get(*slot).map(|r| r.not_started.clone()).unwrap_or_default();
                upcoming.insert(Arc::clone(id), Upcoming { group: *slot, nodes: missing, not_started });
            }
        }
        upcoming
    }

    /// Whether so few of a group's nodes are Ready that it is not touched.
    pub(super) fn is_unhealthy(&self, group: Slot, settings: &Settings) -> bool {
        let Some(range) = self.ranges.get(group) else { return true };
        let Some(r) = self.census.groups.get(group) else {
            return !(range.target == 0 || (range.min == 0 && range.target > 0));
        };
        let lacking = (range.min - r.ready).max(0);
        let known = r.ready + r.unready + count(r.not_started.len());
        lacking > settings.ok_total_unready_count && lacking * 100 > settings.max_total_unready_percentage * known
    }

    /// Until when a group is left alone; `None` where it is not.
    pub(super) fn left_alone_until(&self, group: Slot, templates: &Templates, now: Timestamp) -> Option<Timestamp> {
        templates.get(group).and_then(|_| self.backoff.until(group, now))
    }

    /// Whether so many nodes of the cluster are broken that nothing is scaled.
    pub(super) fn is_cluster_unhealthy(&self, settings: &Settings) -> bool {
        let broken = self.census.total.unready;
        broken > settings.ok_total_unready_count
            && broken * 100 > settings.max_total_unready_percentage * self.census.total.registered
    }

    /// Instances without a Node, and since when they were seen so.
    pub(super) fn unregistered(&self) -> Vec<(String, Timestamp)> {
        self.unregistered.iter().map(|(id, since)| (id.clone(), *since)).collect()
    }

    /// Instances that could not be created, by the ids of their groups.
    pub(super) fn failed_instances<D: CaClient>(&self, client: &Client<D>) -> BTreeMap<Arc<str>, (Slot, Vec<String>)> {
        let mut all = BTreeMap::new();
        for (group, instances) in self.instances.iter() {
            let ids: Vec<String> = failed(Some(instances)).map(|(i, _)| i.id.clone()).collect();
            if !ids.is_empty() {
                all.insert(client.name(group), (group, ids));
            }
        }
        all
    }

    /// How far the registered nodes of a group have been from its target, and since when.
    pub(super) fn size_gap(&self, group: Slot) -> Option<(i32, Timestamp)> {
        self.incorrect.get(group).map(|i| (i.registered - i.target, i.since))
    }

    /// When something here may change without anything happening outside.
    pub(super) fn deadlines(&self, settings: &Settings, now: Timestamp) -> Vec<Timestamp> {
        let late = |since: &Timestamp| after(*since, settings.max_node_provision);
        let mut at: Vec<Timestamp> = (!self.steady).then(|| self.next_cache_refresh(now)).into_iter().collect();
        at.extend(self.requests.values().map(|r| r.deadline));
        at.extend(self.unregistered.values().map(late));
        at.extend(self.incorrect.values().map(|i| late(&i.since)));
        at.extend(self.backoff.ends());
        at
    }
}

/// The nodes of a group that count as coming.
#[derive(Debug, Clone)]
pub(super) struct Upcoming {
    pub(super) group: Slot,
    /// How many.
    pub(super) nodes: i32,
    /// Those of them that have registered already.
    pub(super) not_started: Vec<String>,
}

fn failed(instances: Option<&Arc<[InstanceInfo]>>) -> impl Iterator<Item = (&InstanceInfo, &InstanceError)> {
    instances.into_iter().flat_map(|of_group| of_group.iter()).filter_map(|i| i.creation_error().map(|error| (i, error)))
}
