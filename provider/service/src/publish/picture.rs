//! The picture of the fleet that `stoker top` draws: pools and nodes in one answer, so lean that it can be asked for every second.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoker_core::base::ids::{NodeName, PoolName, RecordId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::snapshot::ClusterFacts;
use stoker_core::limits::budget::Budget;
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::rules::warm_floor::FloorStands;
use stoker_core::state::cordon::CordonReason;
use stoker_core::state::node_verdict::{Judged, Verdict};
use stoker_core::state::record::{Phase, Record, State};

use crate::publish::view::View;

/// What Stoker supplies, as of its last pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Picture {
    /// The cluster that the policy names.
    pub cluster: String,
    /// When it was asked for, by Stoker's clock.
    pub now: Timestamp,
    /// When it was true.
    pub at: Timestamp,
    /// The budget of all pools together, where there is one.
    pub budget: Option<Budget>,
    /// Every pool of the policy in its order, then those that nodes remain of.
    pub pools: Vec<PoolPicture>,
    /// Every node from its order to its end, in the order of their records.
    pub nodes: Vec<NodePicture>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolPicture {
    /// Its name.
    pub pool: PoolName,
    /// Nodes that have been Ready.
    pub running: u32,
    /// Nodes on their way.
    pub coming: u32,
    /// Target size of its groups.
    pub wanted: u32,
    /// `maxNodes`; `None` where the policy does not name the pool any more.
    pub max: Option<u32>,
    /// How its warm floor stands, where it has one.
    pub floor: Option<FloorStands>,
    /// How its budget stands, where it has one.
    pub budget: Option<Budget>,
    /// What its nodes cost, before commitments.
    pub rate: UsdPerHour,
    /// Why it does not grow: what the consistency check found.
    pub fault: Option<String>,
}

/// A node. What is unknown is `None`, and left out of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePicture {
    /// Its record.
    pub record: RecordId,
    /// Its name in the cluster, else its machine, else the placeholder that stands for it.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// What was bought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// How.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<CapacityType>,
    /// Its price when it was chosen, before commitments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<UsdPerHour>,
    /// A step of its life, in a word.
    pub phase: String,
    /// What is concluded of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// From what, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How busy each GPU or instance was at the last reading, in thousandths; empty without a fresh one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Option<u16>>,
    /// GPU pods on it, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Vec<String>>,
    /// Why it is drained, and how far that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<String>,
    /// Why it takes no new pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<String>,
    /// How it differs from a node that would be made today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<String>,
    /// Why the autoscaler is kept from removing it while it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl Picture {
    /// The picture of a view at `now`: with the pods of the cluster, where one is watched, and how busy GPUs were.
    pub fn of(
        view: &View,
        cluster: Option<&ClusterFacts>,
        mut activity: HashMap<NodeName, Vec<Option<u16>>>,
        now: Timestamp,
    ) -> Self {
        let kept: BTreeMap<RecordId, String> =
            view.accounts.kept.iter().map(|(record, why)| (*record, why.to_string())).collect();
        let mut pools: Vec<PoolPicture> =
            view.catalogue.policy.pools.iter().map(|pool| PoolPicture::of(&pool.name, view)).collect();
        let mut place: HashMap<PoolName, usize> = pools.iter().enumerate().map(|(at, of)| (of.pool.clone(), at)).collect();
        let mut nodes = Vec::with_capacity(view.memory.records.len());
        for record in view.memory.records.values() {
            let mut node = NodePicture::of(record, view, cluster, &mut activity);
            node.kept = kept.get(&record.id).cloned();
            if let Some(name) = &node.pool {
                let at = *place.entry(name.clone()).or_insert_with(|| {
                    pools.push(PoolPicture::of(name, view));
                    pools.len() - 1
                });
                if let Some(pool) = pools.get_mut(at) {
                    pool.count(record, node.rate);
                }
            }
            nodes.push(node);
        }
        let budget = view.accounts.budgets.iter().find(|budget| budget.of.pool().is_none()).cloned();
        Self { cluster: view.catalogue.policy.cluster.to_string(), now, at: view.at, budget, pools, nodes }
    }
}

impl PoolPicture {
    fn of(name: &PoolName, view: &View) -> Self {
        let of_policy = view.catalogue.policy.pools.iter().find(|pool| pool.name == *name);
        let of_pool = |fault: &&stoker_core::state::paused::StandingFault| fault.concern.pool().is_none_or(|pool| pool == name);
        Self {
            pool: name.clone(),
            running: 0,
            coming: 0,
            wanted: 0,
            max: of_policy.map(|pool| pool.limits.max_nodes),
            floor: view.accounts.floors.iter().find(|floor| floor.pool == *name).cloned(),
            budget: view.accounts.budgets.iter().find(|budget| budget.of.pool() == Some(name)).cloned(),
            rate: UsdPerHour::ZERO,
            fault: view.memory.faults.iter().find(of_pool).map(ToString::to_string),
        }
    }

    fn count(&mut self, record: &Record, rate: Option<UsdPerHour>) {
        self.running += u32::from(record.phase() == Phase::Started);
        self.coming += u32::from(record.is_coming());
        self.wanted += u32::from(record.counts());
        self.rate = self.rate.plus(rate.unwrap_or_default());
    }
}

impl NodePicture {
    fn of(
        record: &Record,
        view: &View,
        cluster: Option<&ClusterFacts>,
        activity: &mut HashMap<NodeName, Vec<Option<u16>>>,
    ) -> Self {
        let name = match &record.state {
            State::Registered { node, .. } => node.as_ref(),
            _ => None,
        };
        let facts = name.and_then(|name| cluster?.nodes.get(name));
        let group = view.catalogue.group_or_remembered(&record.group, &view.memory);
        let place = record.purchase().map(|purchase| &purchase.market.place).or(group.map(|group| &group.place));
        let zone = group.map(|group| group.zone_name.to_string()).or_else(|| place.map(|place| place.zone.to_string()));
        let (verdict, since, why) = match &record.judged {
            Some(Judged { verdict, why, since }) => (Some(*verdict), Some(*since), Some(why.to_string())),
            None => (None, None, None),
        };
        let cordoned = view.memory.cordons.get(&record.id).filter(|cordoned| cordoned.is_closed()).map(|cordoned| {
            match (cordoned.why, &why) {
                (CordonReason::Unhealthy, Some(hardware)) => format!("{}: {hardware}", cordoned.why),
                _ => cordoned.why.to_string(),
            }
        });
        Self {
            record: record.id,
            name: name.map_or_else(|| record.shown_id().to_string(), ToString::to_string),
            group: record.group.to_string(),
            pool: group.map(|group| group.pool.clone()),
            instance_type: place.map(|place| place.instance_type.to_string()),
            zone,
            capacity_type: record.purchase().map(|purchase| purchase.market.capacity_type),
            rate: record.purchase().map(|purchase| purchase.price),
            phase: word(record.phase()).to_owned(),
            verdict,
            since,
            why,
            gpus: name.and_then(|name| activity.remove(name)).unwrap_or_default(),
            held_by: facts.map(|facts| facts.gpu_pods.iter().cloned().collect()),
            drained: view.memory.drain_of(record.id).map(|drain| format!("{}; {}", drain.why, drain.stage)),
            cordoned,
            outdated: view.memory.outdated.get(&record.id).map(|outdated| outdated.why.to_string()),
            kept: None,
        }
    }
}

/// A step of a node's life as it is shown.
const fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Wanted => "wanted",
        Phase::Launching => "launching",
        Phase::Booting => "booting",
        Phase::Joined => "joined",
        Phase::Started => "running",
        Phase::Failed => "failed",
        Phase::Cancelled => "cancelled",
        Phase::Deleting => "ending",
    }
}
