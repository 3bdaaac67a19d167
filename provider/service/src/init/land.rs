//! Which pods could run in which pool, by the templates of the pool's groups.

use std::collections::BTreeMap;

use jiff::Timestamp;
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::isolation::has_room;
use stoker_core::catalogue::template::POOL_LABEL;

use super::cluster::{Cluster, POOL_LABELS};
use crate::kube::pending::{Obstacle, PendingRow};

/// Where pods could run.
#[derive(Debug, Default)]
pub(super) struct Landing<'c> {
    /// The pods that could run in each pool, in the order of the policy.
    pub(super) here: Vec<Vec<&'c PendingRow>>,
    /// Whether each pool has a group.
    pub(super) has_groups: Vec<bool>,
    /// The pods that could run in none, by what stands in the way.
    pub(super) nowhere: BTreeMap<String, Vec<&'c PendingRow>>,
}

/// Looks for nodes for each pod.
pub(super) fn land<'c>(cluster: &'c Cluster, catalogue: &Catalogue, now: Timestamp) -> Landing<'c> {
    let pools = &catalogue.policy.pools;
    let mut landing = Landing {
        here: vec![Vec::new(); pools.len()],
        has_groups: pools.iter().map(|pool| catalogue.pool_groups(&pool.name).next().is_some()).collect(),
        nowhere: BTreeMap::new(),
    };
    for pod in &cluster.pods {
        let takes = |group: &Group| pod.admits(&group.template, "") && has_room_for(group, pod, now);
        let mut found = false;
        for (pool, here) in pools.iter().zip(&mut landing.here) {
            if catalogue.pool_groups(&pool.name).any(|group| takes(group)) {
                here.push(pod);
                found = true;
            }
        }
        if !found {
            landing.nowhere.entry(why_not(pod, catalogue, now)).or_default().push(pod);
        }
    }
    landing
}

fn has_room_for(group: &Group, pod: &PendingRow, now: Timestamp) -> bool {
    pod.needs(now).is_some_and(|needs| has_room(&group.template, &needs))
}

/// What keeps a pod off the group that comes nearest: of the pool that it names, if any, with the fewest obstacles.
fn why_not(pod: &PendingRow, catalogue: &Catalogue, now: Timestamp) -> String {
    let wanted = pod.wanted();
    let named: Vec<&str> =
        wanted.iter().filter(|(key, _)| POOL_LABELS.contains(key)).flat_map(|(_, names)| names.clone()).collect();
    let weight = |group: &Group| {
        let is_other = !named.is_empty() && !named.contains(&group.pool.as_str());
        (is_other, pod.obstacles(&group.template, "").count(), !has_room_for(group, pod, now))
    };
    let Some(group) = catalogue.groups.values().min_by_key(|group| weight(group)) else {
        return "no pool gets a node group".to_owned();
    };
    let pool = &group.pool;
    let mut why: Vec<String> = pod.obstacles(&group.template, "").map(|obstacle| in_words(obstacle, pool.as_str())).collect();
    if why.is_empty() {
        why.push(format!("asks for more GPUs, CPU or memory than a node of pool {pool} has"));
    }
    why.join(", and ")
}

fn in_words(obstacle: Obstacle<'_>, pool: &str) -> String {
    match obstacle {
        Obstacle::Selector { key, .. } if POOL_LABELS.contains(&key) => {
            format!("selects {key}, which no node of Stoker's has: select {POOL_LABEL}: {pool} instead")
        }
        Obstacle::Selector { key, value } => format!("selects {key}: {value}, which no node of pool {pool} has"),
        Obstacle::Affinity { key: Some(key) } if POOL_LABELS.contains(&key) => {
            format!("has a node affinity on {key}, which no node of Stoker's has: ask for {POOL_LABEL} In [{pool}] instead")
        }
        Obstacle::Affinity { key: Some(key) } => {
            format!("has a node affinity on {key} that holds on no node of pool {pool}")
        }
        Obstacle::Affinity { key: None } => format!("has a node affinity that holds on no node of pool {pool}"),
        Obstacle::Taint(taint) => {
            format!("does not tolerate {}={}:{} of pool {pool}", taint.key, taint.value, taint.effect.as_str())
        }
    }
}
