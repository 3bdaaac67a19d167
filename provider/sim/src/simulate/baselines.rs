//! What the same pods cost without Stoker: on a static fleet of their peak, and under what others run by default.

use std::collections::BTreeMap;

use stoker_core::base::units::UsdMicros;
use stoker_core::catalogue::Catalogue;

use super::region::Boot;
use crate::bound::Unsolved;
use crate::bound::fleet::{Method, bound};
use crate::demand::{Demand, InstanceType, Pod, types};
use crate::peers::{self, Boots, Policy, Report, UnknownType};

/// The baselines that are played, by their names.
pub fn played() -> [(&'static str, Policy); 2] {
    [("Cluster Autoscaler", Policy::autoscaler()), ("Karpenter", Policy::karpenter(0.0))]
}

/// The pods with the GPU models that their pools take, on the on-demand types of all pools of a policy. Pods of several pools may then share
/// a node, so a baseline costs no more than it would with nodes apart.
///
/// `None` where a pool that has pods shares its GPUs, as baselines hold whole ones.
pub fn demand(catalogue: &Catalogue, demand: &Demand) -> Option<Demand> {
    let policy = &catalogue.policy;
    let first = policy.pools.first()?;
    let pool = |pod: &Pod| match &pod.pool {
        Some(name) => policy.pools.iter().find(|pool| pool.name.as_str() == name.as_str()),
        None => Some(first),
    };
    let sold: BTreeMap<&str, Vec<InstanceType>> =
        policy.pools.iter().map(|pool| (pool.name.as_str(), types::instance_types_of(catalogue, pool.name.as_str()))).collect();
    let mut pods = Vec::with_capacity(demand.pods.len());
    for pod in &demand.pods {
        let of = pool(pod)?;
        if of.sharing.is_some() {
            return None;
        }
        let takes = sold.get(of.name.as_str())?.iter().map(|of| &of.model);
        let models = takes.filter(|model| pod.models.is_empty() || pod.models.contains(model)).cloned().collect();
        pods.push(Pod { models, pool: None, ..pod.clone() });
    }
    Some(Demand { types: types::instance_types(catalogue), pods, seconds: demand.seconds })
}

/// What the cheapest fleet costs that is there all the time and holds the peak of the demand.
///
/// # Errors
/// Where the fleet is not found.
pub fn static_fleet(demand: &Demand, method: &Method) -> Result<UsdMicros, Unsolved> {
    Ok(bound(demand, method.clone())?.static_peak())
}

/// Plays the demand under a baseline, with machines that boot as the world says.
///
/// # Errors
/// Where the baseline has a floor of a type that is not sold; those of [`played`] have none.
pub fn play(demand: &Demand, policy: &Policy, seed: u64, boot: &Boot) -> Result<Report, UnknownType> {
    let boots = match boot {
        Boot::LogNormal { median, sigma } => Boots::seeded(seed).lasting(*median, *sigma),
        Boot::Given(seconds) => Boots::at_once().lasting(seconds.first().copied().unwrap_or(0.0), 0.0),
    };
    peers::replay(demand, policy, boots)
}
