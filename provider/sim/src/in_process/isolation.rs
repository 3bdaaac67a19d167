//! The tolerations that waiting pods of isolated pools are given, as the service's controller gives them, but at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::kinds::Taint;
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::isolation::{Admitted, PodNeeds, SHAPE_TAINT, Shape, admitted, shape_taint};
use stoker_core::policy::Pool;

use super::cloud::Cloud;
use super::desk::Desk;
use super::play::Shapes;
use crate::model::{Autoscaler, MemoryCluster, NodeAffinity, PodView, Requests, Toleration};

/// How soon a pod is looked at again whose price class is sold out: what it may use grows with its wait.
const SOLD_OUT_LOOK: SignedDuration = SignedDuration::from_secs(10);

/// Pods that may use the same shapes.
type Kind = (Requests, BTreeMap<String, String>, NodeAffinity);

/// What waiting pods were given.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    /// Whether any pool is isolated.
    on: bool,
    /// When the play began. A pod that was there before was not kept waiting by it, so its wait counts from then.
    start: Timestamp,
    /// When a pod is to be looked at again whose own class is sold out.
    pub(super) again: Option<Timestamp>,
    /// What pods of a kind may use while the groups stand as they did in that state of the desk.
    known: BTreeMap<Kind, Vec<Toleration>>,
    known_of: u64,
    /// How often a pod had come to wait when all of those that waited were last looked at.
    looked_at: u64,
    /// The pods that were given all of it in that state.
    seen: BTreeSet<String>,
    /// Pods whose own class is sold out, since they were last looked at.
    sold_out: BTreeSet<String>,
}

impl Isolation {
    pub(super) fn of(catalogue: &Catalogue, start: Timestamp) -> Self {
        Self { on: catalogue.policy.pools.iter().any(|pool| pool.isolation.is_some()), start, ..Self::default() }
    }

    /// Gives the waiting pods the tolerations that they lack. Answers which got any.
    pub(super) fn admit<C: Cloud + Send>(
        &mut self,
        autoscaler: &mut Autoscaler<Desk<C>, MemoryCluster>,
        now: Timestamp,
    ) -> Vec<String> {
        if !self.on {
            return Vec::new();
        }
        let groups = autoscaler.provider().groups_changed;
        let fresh = self.known_of != groups;
        if fresh {
            (self.known_of, self.known) = (groups, BTreeMap::new());
            self.seen.clear();
            self.sold_out.clear();
        }
        let due = self.again.is_some_and(|at| at <= now);
        if due {
            self.again = None;
            self.sold_out.clear();
        }
        let queued = autoscaler.cluster().queued();
        if std::mem::replace(&mut self.looked_at, queued) == queued && !fresh && !due {
            return Vec::new();
        }
        let mut given = Vec::new();
        for pod in autoscaler.cluster().waiting() {
            if self.seen.contains(&pod.id) || self.sold_out.contains(&pod.id) {
                continue;
            }
            let kind = (pod.requests.clone(), pod.node_selector.clone(), pod.node_affinity.clone());
            let (more, sold_out) = if let Some(known) = self.known.get(&kind) {
                (known.clone(), false)
            } else {
                let (shapes, sold_out) = shapes(autoscaler.provider(), pod, self.start, now);
                (shapes.keys().map(|shape| toleration(&shape_taint(shape))).collect(), sold_out)
            };
            if sold_out {
                // What it may use depends on how long it has waited.
                self.again.get_or_insert(next_look(now));
                self.sold_out.insert(pod.id.clone());
            } else {
                self.seen.insert(pod.id.clone());
                self.known.entry(kind).or_insert_with(|| more.clone());
            }
            let lacking: Vec<Toleration> = more.into_iter().filter(|one| !pod.tolerations.contains(one)).collect();
            if !lacking.is_empty() {
                given.push((pod.id.clone(), lacking));
            }
        }
        for (pod, lacking) in &given {
            autoscaler.cluster_mut().tolerate(pod, lacking.iter().cloned());
        }
        given.into_iter().map(|(pod, _)| pod).collect()
    }
}

/// When pods are looked at again whose class is sold out: at full steps, whatever else happens.
fn next_look(now: Timestamp) -> Timestamp {
    let step = SOLD_OUT_LOOK.as_secs();
    Timestamp::from_second((now.as_second().div_euclid(step) + 1) * step).unwrap_or(Timestamp::MAX)
}

fn toleration(taint: &Taint) -> Toleration {
    Toleration { key: Some(taint.key.clone()), value: Some(taint.value.clone()), effect: Some(taint.effect) }
}

/// What a pod asks for that has waited so long.
pub(crate) fn needs(requests: &Requests, waited: SignedDuration) -> PodNeeds {
    PodNeeds {
        milli_cpu: requests.milli_cpu,
        memory_bytes: requests.memory.bytes(),
        gpus: requests.gpus,
        slices: requests.slices.clone(),
        waited,
    }
}

/// The shapes that a pod may use, and whether none of its own class can be had.
fn shapes<C>(desk: &Desk<C>, pod: &PodView, start: Timestamp, now: Timestamp) -> (Shapes, bool) {
    let needs = needs(&pod.requests, now.duration_since(pod.created_at.max(start)));
    let mut all = Shapes::new();
    let mut sold_out = false;
    for pool in &desk.catalogue.policy.pools {
        let Some(rules) = pool.isolation else { continue };
        let shapes = of_pool(desk, pool, pod, now);
        let may = admitted(&needs, &shapes, rules, pool.waiting);
        let open = |shape: &Shape<'_>| {
            shape.open && may.get(&shape.group.place.instance_type).is_some_and(|why| *why == Admitted::InClass)
        };
        sold_out |= !may.is_empty() && !shapes.iter().any(open);
        all.extend(may);
    }
    (all, sold_out)
}

fn of_pool<'d, C>(desk: &'d Desk<C>, pool: &Pool, pod: &PodView, now: Timestamp) -> Vec<Shape<'d>> {
    let groups = desk.catalogue.pool_groups(&pool.name);
    let shape = |group: &'d Arc<Group>| {
        let limits = desk.limits.get(&group.id).filter(|_| pod.admits(&group.template, SHAPE_TAINT))?;
        limits.shape(group, &desk.catalogue, &desk.memory, Wall(now))
    };
    groups.filter_map(shape).collect()
}
