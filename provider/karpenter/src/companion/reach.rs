//! Reach: what nodes a `NodePool` may make, and so which quotas they count against and how large they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stoker_core::base::ids::{Cloud, InstanceType, Region, ZoneId};
use stoker_core::base::kinds::QuotaUnit;
use stoker_core::catalogue::claims::Claims;
use stoker_core::market::labels::CAPACITY_TYPE_LABEL;
use stoker_core::market::offer::{CapacityType, InstanceSpec, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::rules::supplier::{CARRIER_LABEL, CLOUD_LABEL, cloud_of_class};
use stoker_core::policy::{Policy, Quota};
use stoker_service::init::allow;
use stoker_service::kube::Expression;

use super::Inputs;
use super::marks::is_steered;
use crate::claim::INSTANCE_TYPE;
use crate::objects::{NodePool, Template, label};

/// The label of a region.
pub(crate) const REGION: &str = "topology.kubernetes.io/region";

/// What a `NodePool` may make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Makes {
    pub(crate) cloud: Cloud,
    pub(crate) regions: BTreeSet<Region>,
    pub(crate) types: Vec<Arc<InstanceSpec>>,
    pub(crate) capacity_types: Vec<CapacityType>,
}

impl Makes {
    /// That of a `NodePool`, by its requirements. `home` is the region of the cluster, for one that names none.
    ///
    /// # Errors
    /// Why it cannot be steered, and the cure.
    pub(crate) fn of(pool: &NodePool, home: Option<&Region>, book: &PriceBook) -> Result<Self, String> {
        if label(&pool.meta, CARRIER_LABEL) == Some("true") {
            return Err("it is a carrier of Stoker's own: take one of the two labels off".to_owned());
        }
        if pool.spec.replicas.is_some() {
            return Err("spec.replicas is set, and such a NodePool takes no other limit than nodes".to_owned());
        }
        let requirements = &pool.spec.template.spec.requirements;
        let class = pool.spec.template.spec.node_class_ref.as_ref().map_or("", |class| class.group.as_str());
        let cloud = cloud_of_class(class, pool.meta.labels.as_ref())
            .and_then(|cloud| Cloud::new(cloud).ok())
            .ok_or_else(|| format!("its cloud is not known: say it by the label {CLOUD_LABEL}, such as {CLOUD_LABEL}=aws"))?;
        let named = values(requirements, REGION).filter_map(|region| Region::new(region).ok());
        let mut regions: BTreeSet<Region> = named.collect();
        if regions.is_empty() {
            regions.extend(home.cloned());
        }
        if regions.is_empty() {
            return Err(format!("its region is not known: name it in its requirements, by {REGION}"));
        }
        let types = types(requirements, &cloud, book)?;
        Ok(Self { cloud, regions, types, capacity_types: capacity_types(requirements).collect() })
    }
}

/// What each steered `NodePool` may make, or why that is not known.
pub(crate) type Made = BTreeMap<String, Result<Arc<Makes>, String>>;

/// What was read of `NodePools`: it takes all of the price tables, and a `NodePool` hardly ever changes.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pools: BTreeMap<String, (Basis, Result<Arc<Makes>, String>)>,
    /// The region of Karpenter's nodes when it last had any.
    home: Option<Region>,
}

/// What it was read of.
#[derive(Debug, PartialEq, Eq)]
struct Basis {
    labels: Option<BTreeMap<String, String>>,
    template: Template,
    is_static: bool,
    home: Option<Region>,
}

impl Known {
    /// What each steered `NodePool` may make now.
    pub(crate) fn of(&mut self, inputs: &Inputs<'_>) -> Made {
        let Inputs { facts, book, policy, .. } = inputs;
        self.home = facts.home().or_else(|| self.home.take()).or_else(|| only_region(policy));
        let home = &self.home;
        self.pools.retain(|name, _| facts.pools.get(name).is_some_and(is_steered));
        for (name, pool) in facts.pools.iter().filter(|(_, pool)| is_steered(pool)) {
            let basis = Basis {
                labels: pool.meta.labels.clone(),
                template: pool.spec.template.clone(),
                is_static: pool.spec.replicas.is_some(),
                home: home.clone(),
            };
            if self.pools.get(name).is_none_or(|(known, _)| *known != basis) {
                let makes = Makes::of(pool, home.as_ref(), book).map(Arc::new);
                self.pools.insert(name.clone(), (basis, makes));
            }
        }
        self.pools.iter().map(|(name, (_, makes))| (name.clone(), makes.clone())).collect()
    }
}

/// The region of the policy, where it names one alone.
fn only_region(policy: &Policy) -> Option<Region> {
    let of_pools = policy.pools.iter().flat_map(|pool| &pool.regions);
    let all: BTreeSet<&Region> = of_pools.chain(policy.quotas.iter().filter_map(|quota| quota.region.as_ref())).collect();
    let mut all = all.into_iter();
    all.next().filter(|_| all.next().is_none()).cloned()
}

/// What the nodes of a `NodePool` count against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The quotas that may count its nodes, by their places in the policy.
    pub(crate) quotas: BTreeSet<usize>,
    /// vCPUs of its nodes.
    pub(crate) vcpus: Sizes,
    /// Their GPUs.
    pub(crate) gpus: Sizes,
    /// Types that need more than a quota has, with that quota.
    pub(crate) too_large: BTreeSet<(usize, InstanceType)>,
}

/// The smallest and the largest of some nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Sizes {
    /// Those of no node yet.
    const NONE: Self = Self { least: u64::MAX, most: 0 };

    fn and(self, other: u64) -> Self {
        Self { least: self.least.min(other), most: self.most.max(other) }
    }
}

impl Reach {
    /// What its nodes take of a quota in that unit.
    pub(crate) const fn sizes(&self, unit: QuotaUnit) -> Sizes {
        match unit {
            QuotaUnit::Vcpus => self.vcpus,
            QuotaUnit::Gpus => self.gpus,
        }
    }

    /// That of what a `NodePool` may make.
    ///
    /// # Errors
    /// Why its limits cannot be steered, and the cure.
    pub(crate) fn of(makes: &Makes, policy: &Policy) -> Result<Self, String> {
        let mut reach = Self { quotas: BTreeSet::new(), vcpus: Sizes::NONE, gpus: Sizes::NONE, too_large: BTreeSet::new() };
        for spec in &makes.types {
            let vcpus = spec.vcpus.ok_or_else(|| format!("nobody knows how many vCPUs a {} has", spec.instance_type))?;
            let mut fits = false;
            for (region, capacity_type) in
                makes.regions.iter().flat_map(|region| makes.capacity_types.iter().map(move |of| (region, *of)))
            {
                let zone = ZoneId::new(region.as_str()).map_err(|error| error.to_string())?;
                let (cloud, instance_type) = (makes.cloud.clone(), spec.instance_type.clone());
                let place = Place { cloud, region: region.clone(), zone, instance_type };
                let claims = Claims::of(policy, &place, spec, capacity_type);
                reach.quotas.extend(claims.listed.iter().map(|claim| claim.quota));
                let share = |quota: usize| policy.quotas.get(quota).map_or(0, Quota::share);
                let too_large: Vec<usize> =
                    claims.listed.iter().filter(|claim| claim.units > share(claim.quota)).map(|claim| claim.quota).collect();
                fits |= too_large.is_empty();
                reach.too_large.extend(too_large.into_iter().map(|quota| (quota, spec.instance_type.clone())));
            }
            // What no quota has room for is never made.
            if fits {
                reach.vcpus = reach.vcpus.and(u64::from(vcpus));
                reach.gpus = reach.gpus.and(u64::from(spec.advertised_gpus()));
            }
        }
        if reach.quotas.is_empty() {
            return Err("no quota of the policy counts its nodes: list theirs under quotas".to_owned());
        }
        Ok(reach)
    }
}

/// The resource that a limit of a `NodePool` names for a quota in that unit.
pub(crate) const fn resource(unit: QuotaUnit) -> &'static str {
    match unit {
        QuotaUnit::Vcpus => "cpu",
        QuotaUnit::Gpus => GPU_RESOURCE,
    }
}

/// The values of all requirements of a label with the operator `In`.
fn values<'a>(requirements: &'a [Expression], key: &'a str) -> impl Iterator<Item = &'a str> {
    let of_key = requirements.iter().filter(move |one| one.key == key && one.operator == "In");
    of_key.flat_map(|one| one.values.iter().flatten()).map(String::as_str)
}

/// The capacity types that requirements allow; all where they name none.
fn capacity_types(requirements: &[Expression]) -> impl Iterator<Item = CapacityType> {
    let allows = |of: &CapacityType| {
        let label = [(CAPACITY_TYPE_LABEL.to_owned(), of.as_str().to_owned())].into();
        requirements.iter().filter(|one| one.key == CAPACITY_TYPE_LABEL).all(|one| one.holds(&label))
    };
    CapacityType::ALL.into_iter().filter(allows)
}

/// The instance types that requirements allow.
///
/// # Errors
/// They may allow types that the price tables do not have: how large those are nobody knows.
fn types(requirements: &[Expression], cloud: &Cloud, book: &PriceBook) -> Result<Vec<Arc<InstanceSpec>>, String> {
    let all: Vec<&Arc<InstanceSpec>> = book.specs().filter(|spec| spec.cloud == *cloud).collect();
    if all.is_empty() {
        let known: BTreeSet<&str> = book.specs().map(|spec| spec.cloud.as_str()).collect();
        let known: Vec<&str> = known.into_iter().collect();
        return Err(format!(
            "no price table is of cloud {cloud}: name another by the label {CLOUD_LABEL}, of {}",
            known.join(", ")
        ));
    }
    let mut unknown =
        values(requirements, INSTANCE_TYPE).filter(|name| !all.iter().any(|spec| spec.instance_type.as_str() == *name));
    if let Some(name) = unknown.next() {
        return Err(format!("the price tables have no GPU type {name}: take it out of the requirements"));
    }
    let of_gpus = |one: &&Expression| {
        let by_name = ["instance-type", "instance-family", "sku-name", "sku-family"];
        one.operator == "In" && by_name.iter().any(|end| one.key.ends_with(end))
            || one.key.contains("gpu") && ["In", "Exists", "Gt", "Gte"].contains(&one.operator.as_str())
    };
    if !requirements.iter().any(|one| of_gpus(&one)) {
        return Err("it may make nodes of any type: name GPU types in its requirements".to_owned());
    }
    let types: Vec<_> = all.into_iter().filter(|spec| allow(requirements.iter(), spec, book)).cloned().collect();
    if types.is_empty() {
        return Err("its requirements allow no GPU type of the price tables".to_owned());
    }
    Ok(types)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::companion::tests::{book, policy};

    fn reach(labels: &Value, spec: &Value) -> Result<Reach, String> {
        let pool = json!({ "metadata": { "name": "gpu", "labels": labels }, "spec": spec });
        let (pool, book) = (serde_json::from_value(pool).unwrap(), book());
        Reach::of(&Makes::of(&pool, Region::new("us-east-1").ok().as_ref(), &book)?, &policy())
    }

    fn by(requirements: &Value) -> Result<Reach, String> {
        let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu" });
        reach(&json!({}), &json!({ "template": { "spec": { "nodeClassRef": class, "requirements": requirements } } }))
    }

    fn one(key: &str, values: &[&str]) -> Value {
        json!({ "key": key, "operator": "In", "values": values })
    }

    #[test]
    fn a_pool_reaches_the_quotas_of_all_that_it_may_make() {
        let family = "karpenter.k8s.aws/instance-family";
        let g6 = by(&json!([one(family, &["g6"]), one(CAPACITY_TYPE_LABEL, &["on-demand"])])).unwrap();
        assert_eq!(
            (g6.quotas.into_iter().collect::<Vec<_>>(), g6.vcpus, g6.gpus),
            (vec![0], Sizes { least: 4, most: 48 }, Sizes { least: 1, most: 4 })
        );
        let spot = by(&json!([one(INSTANCE_TYPE, &["g6.xlarge"]), one(CAPACITY_TYPE_LABEL, &["spot"])])).unwrap();
        assert_eq!(
            (spot.quotas.into_iter().collect::<Vec<_>>(), spot.vcpus, spot.gpus),
            (vec![1], Sizes { least: 4, most: 4 }, Sizes { least: 1, most: 1 })
        );
        // One that names no capacity type may make any.
        let any = by(&json!([one(INSTANCE_TYPE, &["g6.xlarge"])])).unwrap();
        assert_eq!(any.quotas.into_iter().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn what_cannot_be_told_is_not_steered() {
        for (requirements, why) in [
            (json!([]), "it may make nodes of any type"),
            (json!([one(INSTANCE_TYPE, &["g6.xlarge", "g99.xlarge"])]), "no GPU type g99.xlarge"),
            (json!([one("karpenter.k8s.aws/instance-family", &["m5"])]), "allow no GPU type"),
            (json!([one(INSTANCE_TYPE, &["g6.xlarge"]), one(REGION, &["eu-west-1"])]), "no quota of the policy"),
        ] {
            assert!(by(&requirements).unwrap_err().contains(why), "{why}");
        }
        let carrier = reach(&json!({ CARRIER_LABEL: "true" }), &json!({}));
        assert!(carrier.unwrap_err().contains("carrier"));
        assert!(reach(&json!({}), &json!({ "replicas": 2 })).unwrap_err().contains("spec.replicas"));
        assert!(reach(&json!({}), &json!({})).unwrap_err().contains(CLOUD_LABEL));
    }
}
