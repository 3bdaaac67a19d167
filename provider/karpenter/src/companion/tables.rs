//! Tables of Karpenter's objects, kept by watches, and what is read off them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::Resource;
use kube::runtime::watcher::Event;
use stoker_core::base::ids::Region;
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::market::labels::CAPACITY_TYPE_LABEL;
use stoker_core::market::offer::CapacityType;
use stoker_core::market::sharing::GPU_RESOURCE;

use super::limits::Units;
use super::reach::REGION;
use crate::claim::INSTANCE_TYPE;
use crate::objects::{NODE_POOL, Node, NodeClaim, NodeOverlay, NodePool, amount, label, name};

/// The taint of a Node that Karpenter is about to end.
const DISRUPTED: &str = "karpenter.sh/disrupted";

/// The objects of one kind, by name.
#[derive(Debug)]
pub(crate) struct Table<K> {
    /// `None` until they were listed once.
    known: Option<BTreeMap<String, K>>,
    /// The list that is being read; it replaces what is known when it is whole.
    listing: BTreeMap<String, K>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self { known: None, listing: BTreeMap::new() }
    }
}

impl<K: Resource<DynamicType = ()>> Table<K> {
    /// An object, to note what was written to it before the watch tells.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut K> {
        self.known.as_mut()?.get_mut(name)
    }

    /// Takes an event of the watch in.
    pub(crate) fn take(&mut self, event: Event<K>) {
        let key = |object: &K| name(object.meta()).to_owned();
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => drop(self.listing.insert(key(&object), object)),
            Event::InitDone => self.known = Some(std::mem::take(&mut self.listing)),
            Event::Apply(object) => {
                let key = key(&object);
                self.known.get_or_insert_default().insert(key, object);
            }
            Event::Delete(object) => {
                if let Some(known) = &mut self.known {
                    known.remove(&key(&object));
                }
            }
        }
    }
}

/// All that is known of Karpenter.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) pools: Table<NodePool>,
    pub(crate) claims: Table<NodeClaim>,
    pub(crate) nodes: Table<Node>,
    pub(crate) overlays: Table<NodeOverlay>,
}

/// The same, where every kind was listed that all levers need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) pools: &'a BTreeMap<String, NodePool>,
    pub(crate) claims: &'a BTreeMap<String, NodeClaim>,
    pub(crate) nodes: &'a BTreeMap<String, Node>,
    /// `None` where nobody has listed them.
    pub(crate) overlays: Option<&'a BTreeMap<String, NodeOverlay>>,
}

impl Tables {
    /// Everything, once it was listed.
    pub(crate) fn facts(&self) -> Option<Facts<'_>> {
        Some(Facts {
            pools: self.pools.known.as_ref()?,
            claims: self.claims.known.as_ref()?,
            nodes: self.nodes.known.as_ref()?,
            overlays: self.overlays.known.as_ref(),
        })
    }
}

/// Whether a claim has a machine.
fn is_launched(claim: &NodeClaim) -> bool {
    !claim.status.provider_id.is_empty()
}

/// What a `NodePool` has.
#[derive(Debug)]
pub(crate) struct Has {
    /// Amounts of its nodes.
    pub(crate) used: Units,
    /// Claims of which Karpenter does not know yet what they get, and counts nothing.
    pub(crate) unlaunched: u64,
}

impl Default for Has {
    fn default() -> Self {
        Self { used: Units::from([("cpu", 0), (GPU_RESOURCE, 0)]), unlaunched: 0 }
    }
}

/// How many machines of Karpenter's each type has that are not Stoker's.
#[derive(Debug, Default)]
pub(crate) struct Launched<'a>(HashMap<&'a str, u32>);

impl Launched<'_> {
    pub(crate) fn of(&self, instance_type: &str) -> u32 {
        self.0.get(instance_type).copied().unwrap_or(0)
    }
}

/// Claims that the decisions may not count yet.
#[derive(Debug, Default)]
pub(crate) struct OnTheirWay<'a> {
    /// Those without a machine.
    waiting: Vec<&'a NodeClaim>,
    launched: Launched<'a>,
}

impl OnTheirWay<'_> {
    /// How many may be on-demand nodes of a type: those that wait, and those launched beyond the `counted` that the decisions know of.
    pub(crate) fn of(&self, instance_type: &str, counted: u32) -> u32 {
        let asked = [(INSTANCE_TYPE, instance_type), (CAPACITY_TYPE_LABEL, CapacityType::OnDemand.as_str())];
        let allows = |claim: &NodeClaim, (key, value): (&str, &str)| {
            let label = [(key.to_owned(), value.to_owned())].into();
            claim.spec.requirements.iter().filter(|one| one.key == key).all(|one| one.holds(&label))
        };
        let may_be = |claim: &&&NodeClaim| asked.into_iter().all(|one| allows(claim, one));
        let waiting = u32::try_from(self.waiting.iter().filter(may_be).count()).unwrap_or(u32::MAX);
        waiting.saturating_add(self.launched.of(instance_type).saturating_sub(counted))
    }
}

impl<'a> Facts<'a> {
    /// The region of Karpenter's nodes, where they are all of one.
    pub(crate) fn home(&self) -> Option<Region> {
        let regions: BTreeSet<&str> = self.nodes.values().filter_map(|node| label(&node.meta, REGION)).collect();
        let mut regions = regions.into_iter();
        regions.next().filter(|_| regions.next().is_none()).and_then(|region| Region::new(region).ok())
    }

    /// The claims that may be on their way to such `NodePools`, found once for all types.
    pub(crate) fn on_their_way(&self, pools: &BTreeSet<&str>) -> OnTheirWay<'a> {
        let is_waiting =
            |claim: &&NodeClaim| !is_launched(claim) && label(&claim.meta, NODE_POOL).is_some_and(|pool| pools.contains(pool));
        OnTheirWay { waiting: self.claims.values().filter(is_waiting).collect(), launched: self.launched() }
    }

    /// The machines that Karpenter has launched, but for Stoker's.
    pub(crate) fn launched(&self) -> Launched<'a> {
        let mut launched = Launched::default();
        let foreign = |claim: &&NodeClaim| is_launched(claim) && label(&claim.meta, CLUSTER_LABEL).is_none();
        for instance_type in self.claims.values().filter(foreign).filter_map(|claim| label(&claim.meta, INSTANCE_TYPE)) {
            *launched.0.entry(instance_type).or_default() += 1;
        }
        launched
    }

    /// What the nodes of such `NodePools` have, as Karpenter counts them: those of claims of whoever, without those that go.
    pub(crate) fn used<'p>(&self, pools: impl Iterator<Item = &'p str>) -> BTreeMap<&'p str, Has> {
        let mut all: BTreeMap<&str, Has> = pools.map(|pool| (pool, Has::default())).collect();
        for claim in self.claims.values() {
            let Some(has) = label(&claim.meta, NODE_POOL).and_then(|pool| all.get_mut(pool)) else { continue };
            let node = self.nodes.get(&claim.status.node_name);
            let goes = claim.meta.deletion_timestamp.is_some()
                || node.is_some_and(|node| node.spec.taints.iter().any(|taint| taint.key == DISRUPTED));
            // By the Node, and by the claim what its kubelet does not say yet.
            let amount_of = |resource: &str| {
                let of_node = node.and_then(|node| node.status.capacity.get(resource)).and_then(amount).filter(|has| *has > 0);
                of_node.or_else(|| claim.status.capacity.get(resource).and_then(amount))
            };
            if !is_launched(claim) || amount_of("cpu").is_none() {
                has.unlaunched += 1;
            } else if !goes {
                for (resource, sum) in &mut has.used {
                    // A machine without GPUs does not name them.
                    *sum = sum.saturating_add(amount_of(resource).unwrap_or(0));
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::companion::tests::claim;

    fn tables(claims: &[Value], taints: &Value) -> Tables {
        let mut tables = Tables::default();
        let node = json!({ "metadata": { "name": "node-0", "labels": { REGION: "us-east-1" } }, "spec": { "taints": taints } });
        tables.pools.take(Event::InitDone);
        tables.claims.take(Event::Init);
        for claim in claims {
            tables.claims.take(Event::InitApply(serde_json::from_value(claim.clone()).unwrap()));
        }
        assert!(tables.facts().is_none(), "half a list is none");
        tables.claims.take(Event::InitDone);
        tables.nodes.take(Event::InitDone);
        tables.nodes.take(Event::Apply(serde_json::from_value(node).unwrap()));
        tables
    }

    fn with(mut claim: Value, path: &str, value: Value) -> Value {
        *claim.pointer_mut(path).unwrap() = value;
        claim
    }

    #[test]
    fn what_a_pool_uses_is_what_karpenter_counts() {
        let mut going = claim(2, "g6.xlarge", "4", "1");
        going["metadata"]["deletionTimestamp"] = json!("2026-11-25T12:00:00Z");
        let mut ours = claim(3, "g6.xlarge", "4", "1");
        ours["metadata"]["labels"][CLUSTER_LABEL] = json!("prod");
        let waiting = with(claim(4, "g6.xlarge", "4", "1"), "/status/providerID", json!(""));
        let claims = [claim(0, "g6.xlarge", "4", "1"), claim(1, "g6.12xlarge", "48", "4"), going, ours, waiting];
        let of = |taints: Value| tables(&claims, &taints);
        let calm = of(json!([]));
        let facts = calm.facts().unwrap();
        // Whoever made a claim, Karpenter counts it by its label.
        let used = facts.used(["gpu", "other"].into_iter());
        assert_eq!(
            (used["gpu"].used["cpu"], used["gpu"].used[GPU_RESOURCE], used["other"].used["cpu"]),
            (4 + 48 + 4, 1 + 4 + 1, 0)
        );
        assert_eq!(used["gpu"].unlaunched, 1);
        let disrupted = of(json!([{ "key": DISRUPTED, "effect": "NoSchedule" }]));
        assert_eq!(disrupted.facts().unwrap().used(std::iter::once("gpu"))["gpu"].used["cpu"], 48 + 4);
    }

    #[test]
    fn a_machine_of_which_karpenter_counts_nothing_yet_is_on_its_way() {
        let untold = with(claim(0, "g6e.4xlarge", "16", "1"), "/status/capacity", json!({}));
        let tables = tables(&[untold], &json!([]));
        let used = tables.facts().unwrap().used(std::iter::once("gpu"));
        assert_eq!((used["gpu"].used["cpu"], used["gpu"].unlaunched), (0, 1));
    }
}
