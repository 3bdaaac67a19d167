//! What the autoscaler believes about its groups: targets, instances, nodes, its own requests.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::backoff::Backoff;
use super::ca_client::{CaClient, InstanceError, InstanceInfo};
use super::client::Client;
use super::readiness::Census;
use super::report::{Action, LoopError};
use super::settings::Settings;
use super::templates::{Seen, Templates};
use super::time::{after, count};

/// How often the goroutine beside the loop reads the instances of all groups.
pub(super) const CACHE_REFRESH: SignedDuration = SignedDuration::from_mins(2);

/// Nodes asked of a group and not all seen yet.
#[derive(Debug, Clone)]
struct Request {
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
    requests: BTreeMap<String, Request>,
    backoff: Backoff,
    /// Since when an instance has been seen without a Node, by id.
    unregistered: BTreeMap<String, Timestamp>,
    cache: BTreeMap<String, Vec<InstanceInfo>>,
    cache_refreshed: Option<Timestamp>,
    /// Whether the caller runs a loop after every change outside, so that reads between two loops may be skipped.
    pub(super) told_of_changes: bool,
    /// Whether the last loop read all instances, and they were as known.
    steady: bool,
    instances: BTreeMap<String, Vec<InstanceInfo>>,
    previous_instances: BTreeMap<String, Vec<InstanceInfo>>,
    census: Census,
    ranges: BTreeMap<String, Range>,
    incorrect: BTreeMap<String, Incorrect>,
}

impl Registry {
    /// Takes in the state of the groups and nodes, and settles the requests: fulfilled, timed out or failed.
    pub(super) async fn update<D: CaClient>(&mut self, scope: &mut Scope<'_, D>, nodes: &[Seen]) -> Result<(), LoopError> {
        let groups = scope.client.node_groups().await;
        let mut targets = BTreeMap::new();
        for group in groups.iter() {
            let size = scope.client.target_size(&group.id).await;
            let size = size.map_err(|source| LoopError::TargetSize { group: group.id.clone(), source })?;
            targets.insert(group.id.clone(), size);
        }
        let instances = self.read_instances(scope).await?;
        self.previous_instances = std::mem::replace(&mut self.instances, instances);
        self.note_unregistered(nodes, scope.now);
        self.census = Census::take(scope, nodes, &self.unregistered).await;
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
    ) -> Result<BTreeMap<String, Vec<InstanceInfo>>, LoopError> {
        let groups = scope.client.node_groups().await;
        for group in groups.iter() {
            if self.is_scaling_up(&group.id) {
                self.cache.remove(&group.id);
            }
        }
        for group in groups.iter() {
            if !self.cache.contains_key(&group.id)
                && let Ok(instances) = scope.client.nodes(&group.id).await
            {
                self.cache.insert(group.id.clone(), instances);
            }
        }
        let mut all = BTreeMap::new();
        for group in groups.iter() {
            if !self.cache.contains_key(&group.id) {
                let again = scope.client.nodes(&group.id).await;
                let instances = again.map_err(|source| LoopError::Nodes { group: group.id.clone(), source })?;
                self.cache.insert(group.id.clone(), instances);
            }
            all.insert(group.id.clone(), self.cache.get(&group.id).cloned().unwrap_or_default());
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
        let known = self.cache.len();
        self.cache.retain(|id, _| groups.iter().any(|g| g.id == *id));
        self.steady = self.told_of_changes && known == self.cache.len();
        for group in groups.iter() {
            let instances = client.nodes(&group.id).await.unwrap_or_default();
            self.steady &= self.cache.get(&group.id) == Some(&instances);
            self.cache.insert(group.id.clone(), instances);
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
    pub(super) fn drop_cached(&mut self, group: &str) {
        self.cache.remove(group);
    }

    fn note_unregistered(&mut self, nodes: &[Seen], now: Timestamp) {
        let registered: BTreeSet<&str> = nodes.iter().map(|seen| seen.view.provider_id.as_str()).collect();
        let missing = self.instances.values().flatten().filter(|i| i.expected_to_register());
        self.unregistered = missing
            .filter(|i| !registered.contains(i.id.as_str()))
            .map(|i| (i.id.clone(), self.unregistered.get(&i.id).copied().unwrap_or(now)))
            .collect();
    }

    fn note_ranges(&mut self, targets: &BTreeMap<String, i32>) {
        self.ranges = targets
            .iter()
            .map(|(id, target)| {
                let late = self.census.groups.get(id).map_or(0, |r| r.long_unregistered);
                let asked = self.requests.get(id).map_or(0, |r| r.increase);
                (id.clone(), Range { min: target - late - asked, target: *target })
            })
            .collect();
    }

    async fn settle_requests<D: CaClient>(&mut self, scope: &mut Scope<'_, D>) {
        self.backoff.forget_stale(scope.settings, scope.now);
        let ids: Vec<String> = self.requests.keys().cloned().collect();
        for id in ids {
            if self.missing(&id) <= 0 {
                self.requests.remove(&id);
                continue;
            }
            let Some(request) = self.requests.get(&id).filter(|r| r.deadline <= scope.now) else { continue };
            let increase = request.increase;
            scope.actions.push(Action::RequestTimedOut { group: id.clone(), increase });
            self.back_off(scope, &id);
            if scope.settings.generation.takes_timed_out_requests_back() && increase > 0 {
                // A failure is only logged.
                let _ = scope.client.decrease_target_size(&id, -increase).await;
            }
            self.requests.remove(&id);
        }
    }

    async fn note_creation_errors<D: CaClient>(&mut self, scope: &mut Scope<'_, D>) {
        for group in scope.client.node_groups().await.iter() {
            let seen: BTreeSet<String> =
                failed(self.previous_instances.get(&group.id)).map(|(instance, _)| instance.id.clone()).collect();
            let mut fresh: BTreeMap<(String, i32), (i32, InstanceError)> = BTreeMap::new();
            for (_, error) in failed(self.instances.get(&group.id)).filter(|(i, _)| !seen.contains(&i.id)) {
                fresh.entry((error.code.clone(), error.class)).or_insert_with(|| (0, error.clone())).0 += 1;
            }
            for (instances, error) in fresh.into_values() {
                if self.is_scaling_up(&group.id) {
                    scope.actions.push(Action::CreationFailed { group: group.id.clone(), instances, error });
                    self.register(scope, &group.id, -instances).await;
                    self.back_off(scope, &group.id);
                }
            }
        }
    }

    fn note_incorrect_sizes(&mut self, targets: &BTreeMap<String, i32>, now: Timestamp) {
        let mut incorrect = BTreeMap::new();
        for (id, target) in targets {
            let Some(r) = self.census.groups.get(id) else { continue };
            let listed = r.unregistered + r.long_unregistered;
            if r.registered > *target || r.registered < target - listed {
                let found = Incorrect { registered: r.registered, target: *target, since: now };
                let known = self.incorrect.get(id).copied().filter(|old| Incorrect { since: now, ..*old } == found);
                incorrect.insert(id.clone(), known.unwrap_or(found));
            }
        }
        self.incorrect = incorrect;
    }

    /// Reads the target sizes again, after something was asked for or deleted.
    pub(super) async fn recalculate<D: CaClient>(&mut self, client: &mut Client<D>) {
        let groups = client.node_groups().await;
        let mut targets = BTreeMap::new();
        for group in groups.iter() {
            let Ok(size) = client.target_size(&group.id).await else {
                // As in the original, one failure makes all targets nought until the next loop.
                targets = groups.iter().map(|g| (g.id.clone(), 0)).collect();
                break;
            };
            targets.insert(group.id.clone(), size);
        }
        self.note_ranges(&targets);
    }

    /// Notes that a group was asked for more nodes, or that some of those asked for failed.
    pub(super) async fn register<D: CaClient>(&mut self, scope: &mut Scope<'_, D>, group: &str, delta: i32) {
        let Ok(options) = scope.client.options(group, &scope.settings.group_options()).await else { return };
        let deadline = after(scope.now, options.max_node_provision);
        match self.requests.get_mut(group) {
            None if delta > 0 => {
                self.requests.insert(group.to_owned(), Request { increase: delta, deadline });
            }
            None => {}
            Some(request) if request.increase + delta <= 0 => {
                self.requests.remove(group);
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
    pub(super) fn back_off<D: CaClient>(&mut self, scope: &mut Scope<'_, D>, group: &str) {
        if scope.templates.get(group).is_some() {
            let until = self.backoff.fail(group, scope.settings, scope.now);
            scope.actions.push(Action::BackedOff { group: group.to_owned(), until });
        }
    }

    /// Nodes that the target counts and that are neither Ready, nor broken, nor given up.
    fn missing(&self, group: &str) -> i32 {
        let Some(range) = self.ranges.get(group) else { return 0 };
        self.census.groups.get(group).map_or(range.target, |r| range.target - (r.ready + r.unready + r.long_unregistered))
    }

    fn is_scaling_up(&self, group: &str) -> bool {
        self.requests.contains_key(group) && self.missing(group) > 0
    }

    /// The nodes that count as coming.
    pub(super) async fn upcoming<D: CaClient>(&self, scope: &mut Scope<'_, D>) -> BTreeMap<String, Upcoming> {
        let mut upcoming = BTreeMap::new();
        for group in scope.client.node_groups().await.iter() {
            let missing = self.missing(&group.id);
            let unknown = scope.settings.generation.upcoming_needs_own_request()
                && (!self.requests.contains_key(&group.id)
                    || self.left_alone_until(&group.id, scope.templates, scope.now).is_some());
            if missing > 0 && !unknown {
                let not_started = self.census.groups.get(&group.id).map(|r| r.not_started.clone()).unwrap_or_default();
                upcoming.insert(group.id.clone(), Upcoming { nodes: missing, not_started });
            }
        }
        upcoming
    }

    /// Whether so few of a group's nodes are Ready that it is not touched.
    pub(super) fn is_unhealthy(&self, group: &str, settings: &Settings) -> bool {
        let Some(range) = self.ranges.get(group) else { return true };
        let Some(r) = self.census.groups.get(group) else {
            return !(range.target == 0 || (range.min == 0 && range.target > 0));
        };
        let lacking = (range.min - r.ready).max(0);
        let known = r.ready + r.unready + count(r.not_started.len());
        lacking > settings.ok_total_unready_count && lacking * 100 > settings.max_total_unready_percentage * known
    }

    /// Until when a group is left alone; `None` where it is not.
    pub(super) fn left_alone_until(&self, group: &str, templates: &Templates, now: Timestamp) -> Option<Timestamp> {
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

    /// Instances that could not be created, by group.
    pub(super) fn failed_instances(&self) -> BTreeMap<String, Vec<String>> {
        let ids = |instances| failed(Some(instances)).map(|(i, _)| i.id.clone()).collect::<Vec<_>>();
        let all = self.instances.iter().map(|(group, instances)| (group.clone(), ids(instances)));
        all.filter(|(_, ids)| !ids.is_empty()).collect()
    }

    /// How far the registered nodes of a group have been from its target, and since when.
    pub(super) fn size_gap(&self, group: &str) -> Option<(i32, Timestamp)> {
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
    /// How many.
    pub(super) nodes: i32,
    /// Those of them that have registered already.
    pub(super) not_started: Vec<String>,
}

fn failed(instances: Option<&Vec<InstanceInfo>>) -> impl Iterator<Item = (&InstanceInfo, &InstanceError)> {
    instances.into_iter().flatten().filter_map(|i| i.creation_error().map(|error| (i, error)))
}
