//! Tables of Karpenter's objects, kept by watches, and what is read off them.

use std::collections::{BTreeMap, BTreeSet};

use kube::Resource;
use kube::runtime::watcher::Event;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use stoker_core::base::units::{MiB, Milli};
use stoker_core::catalogue::claims::Claims;
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::foreign::ForeignNodes;
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::Policy;
use stoker_core::policy::rules::supplier::cloud_of_class;

use super::limits::Units;
use super::reach::REGION;
use crate::carriers::ClassRef;
use crate::claim::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE};
use crate::objects::{NODE_POOL, Node, NodeClaim, NodePool, amount, label, name};

/// The label with a zone's id, on AWS.
const ZONE_ID: &str = "topology.k8s.aws/zone-id";

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
}

/// The same, where every kind was listed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) pools: &'a BTreeMap<String, NodePool>,
    pub(crate) claims: &'a BTreeMap<String, NodeClaim>,
    pub(crate) nodes: &'a BTreeMap<String, Node>,
}

impl Tables {
    /// Everything, once it was listed.
    pub(crate) fn facts(&self) -> Option<Facts<'_>> {
        Some(Facts {
            pools: self.pools.known.as_ref()?,
            claims: self.claims.known.as_ref()?,
            nodes: self.nodes.known.as_ref()?,
        })
    }
}

/// Whether a claim has a machine.
fn is_launched(claim: &NodeClaim) -> bool {
    !claim.status.provider_id.is_empty()
}

impl Facts<'_> {
    /// The cloud of all nodes: a cluster has one Karpenter, of one provider.
    fn cloud(&self) -> Option<&str> {
        self.pools.values().find_map(|pool| {
            let class = pool.spec.template.spec.node_class_ref.as_ref()?;
            cloud_of_class(&class.group, pool.meta.labels.as_ref())
        })
    }

    /// The region of Karpenter's nodes, where they are all of one.
    pub(crate) fn home(&self) -> Option<Region> {
        let regions: BTreeSet<&str> = self.nodes.values().filter_map(|node| label(&node.meta, REGION)).collect();
        let mut regions = regions.into_iter();
        regions.next().filter(|_| regions.next().is_none()).and_then(|region| Region::new(region).ok())
    }

    /// What the nodes of a `NodePool` have, as Karpenter counts them: those of claims of whoever, without those that go. What is not launched
    /// yet is covered by the promise under which it was made.
    ///
    /// # Errors
    /// Names a claim of which that cannot be told.
    pub(crate) fn used(&self, pool: &str) -> Result<Units, String> {
        let mut used = Units::from([("cpu", 0), (GPU_RESOURCE, 0)]);
        for claim in self.claims.values().filter(|claim| label(&claim.meta, NODE_POOL) == Some(pool) && is_launched(claim)) {
            let node = self.nodes.get(&claim.status.node_name);
            let goes = claim.meta.deletion_timestamp.is_some()
                || node.is_some_and(|node| node.spec.taints.iter().any(|taint| taint.key == DISRUPTED));
            if goes {
                continue;
            }
            for (resource, sum) in &mut used {
                // A node without GPUs does not name them.
                let of_node = claim.status.capacity.get(*resource).map_or(Some(0).filter(|_| *resource != "cpu"), amount);
                let of_node = of_node
                    .ok_or_else(|| format!("NodeClaim {}: status.capacity does not tell its {resource}", name(&claim.meta)))?;
                *sum = sum.saturating_add(of_node);
            }
        }
        Ok(used)
    }

    /// The nodes that Karpenter has and Stoker's records do not, as far as a quota or a commitment of the policy counts them.
    ///
    /// # Errors
    /// Names a claim that has a machine of which that cannot be told.
    pub(crate) fn nodes(&self, policy: &Policy, book: &PriceBook) -> Result<BTreeMap<Market, ForeignNodes>, String> {
        let mut nodes: BTreeMap<Market, ForeignNodes> = BTreeMap::new();
        let foreign = |claim: &&NodeClaim| label(&claim.meta, CLUSTER_LABEL).is_none() && is_launched(claim);
        for claim in self.claims.values().filter(foreign) {
            let (market, spec) = self.market(claim, book).map_err(|why| format!("NodeClaim {}: {why}", name(&claim.meta)))?;
            let counts = !Claims::of(policy, &market.place, &spec, market.capacity_type).listed.is_empty();
            let kept = || policy.commitments.iter().any(|commitment| commitment.capacity_at(&market.place).is_some());
            if counts || kept() {
                nodes.entry(market).or_insert(ForeignNodes { spec, nodes: 0 }).nodes += 1;
            }
        }
        Ok(nodes)
    }

    /// Where and how a claim's machine was bought, and what it is made of.
    fn market(&self, claim: &NodeClaim, book: &PriceBook) -> Result<(Market, InstanceSpec), String> {
        let told = |key: &str| label(&claim.meta, key).ok_or_else(|| format!("it has a machine and no label {key}"));
        let group = claim.spec.node_class_ref.as_ref().map_or("", |ClassRef { group, .. }| group.as_str());
        let cloud = cloud_of_class(group, claim.meta.labels.as_ref()).or_else(|| self.cloud());
        let cloud = cloud.ok_or("its cloud is not known: say it by the label stoker.dev/cloud of a NodePool")?;
        let cloud = Cloud::new(cloud).map_err(|error| error.to_string())?;
        let zone = label(&claim.meta, ZONE_ID).map_or_else(|| told(ZONE), Ok)?;
        let region = label(&claim.meta, REGION).map(str::to_owned).or_else(|| self.home().map(|home| home.to_string()));
        let place = Place {
            cloud: cloud.clone(),
            region: Region::new(region.ok_or_else(|| format!("no label {REGION}"))?).map_err(|error| error.to_string())?,
            zone: ZoneId::new(zone).map_err(|error| error.to_string())?,
            instance_type: InstanceType::new(told(INSTANCE_TYPE)?).map_err(|error| error.to_string())?,
        };
        let capacity_type = told(CAPACITY_TYPE)?;
        let capacity_type = CapacityType::ALL.into_iter().find(|of| of.as_str() == capacity_type);
        let market = Market { place, capacity_type: capacity_type.ok_or("its capacity type is none that is known")? };
        let spec = match book.spec(&cloud, &market.place.instance_type) {
            Some(spec) => InstanceSpec::clone(spec),
            None => unlisted(claim, &market)?,
        };
        Ok((market, spec))
    }
}

/// What a type is made of that the price tables do not have, by what the claim got.
fn unlisted(claim: &NodeClaim, market: &Market) -> Result<InstanceSpec, String> {
    let has = |resource: &str| claim.status.capacity.get(resource).and_then(amount).and_then(|n| u32::try_from(n).ok());
    let vcpus = has("cpu").ok_or("status.capacity does not tell its cpu")?;
    let gpus = has(GPU_RESOURCE).unwrap_or(0);
    let model = if gpus == 0 { "none" } else { "unknown" };
    Ok(InstanceSpec {
        cloud: market.place.cloud.clone(),
        instance_type: market.place.instance_type.clone(),
        gpu_model: GpuModel::new(model).map_err(|error| error.to_string())?,
        gpus: Milli(gpus.saturating_mul(1000)),
        gpu_memory: MiB(0),
        vcpus: Some(vcpus),
        memory: None,
        arch: Arch::Amd64,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::companion::tests::{book, claim, policy};

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
    fn nodes_are_counted_by_market_and_those_on_their_way_out_are_not_used() {
        let mut going = claim(2, "g6.xlarge", "4", "1");
        going["metadata"]["deletionTimestamp"] = json!("2026-11-25T12:00:00Z");
        let mut ours = claim(3, "g6.xlarge", "4", "1");
        ours["metadata"]["labels"][CLUSTER_LABEL] = json!("prod");
        let waiting = with(claim(4, "g6.xlarge", "4", "1"), "/status/providerID", json!(""));
        let claims = [claim(0, "g6.xlarge", "4", "1"), claim(1, "g6.12xlarge", "48", "4"), going, ours, waiting];
        let of = |taints: Value| tables(&claims, &taints);
        let calm = of(json!([]));
        let facts = calm.facts().unwrap();
        let counted: BTreeMap<String, u32> = facts
            .nodes(&policy(), &book())
            .unwrap()
            .into_iter()
            .map(|(market, some)| (market.place.instance_type.to_string(), some.nodes))
            .collect();
        assert_eq!(counted, [("g6.12xlarge".to_owned(), 1), ("g6.xlarge".to_owned(), 2)].into());
        // Whoever made a claim, Karpenter counts it by its label.
        assert_eq!(facts.used("gpu").unwrap()["cpu"], 4 + 48 + 4);
        assert_eq!(facts.used("gpu").unwrap()[GPU_RESOURCE], 1 + 4 + 1);
        assert_eq!(facts.used("other").unwrap()["cpu"], 0);
        let disrupted = of(json!([{ "key": DISRUPTED, "effect": "NoSchedule" }]));
        assert_eq!(disrupted.facts().unwrap().used("gpu").unwrap()["cpu"], 48 + 4);
    }

    #[test]
    fn a_type_without_a_price_counts_by_what_its_claim_got_and_one_that_says_nothing_is_unknown() {
        let nodes = |claim: Value| {
            let tables = tables(&[claim], &json!([]));
            tables.facts().unwrap().nodes(&policy(), &book())
        };
        let counted = nodes(claim(0, "g6e.4xlarge", "16", "1")).unwrap();
        let (_, some) = counted.first_key_value().unwrap();
        assert_eq!((some.spec.vcpus, some.spec.gpus), (Some(16), Milli(1000)));
        // Neither quota counts it.
        assert_eq!(nodes(claim(0, "m5.large", "2", "0")).unwrap(), BTreeMap::new());
        let untold = with(claim(0, "g6e.4xlarge", "16", "1"), "/status/capacity", json!({}));
        assert_eq!(nodes(untold).unwrap_err(), "NodeClaim claim-0: status.capacity does not tell its cpu");
    }
}
