//! The least that any fleet of a policy pays for a demand, whatever decides.

use stoker_core::base::units::UsdMicros;
use stoker_core::catalogue::Catalogue;

use crate::bound::Unsolved;
use crate::bound::fleet::{Method, bound};
use crate::demand::{Demand, Pod, types};

/// Bounds the bill from below: the sum over the policy's pools of the [fleet bound](crate::bound::fleet) on the pool's
/// pods and instance types, each type for the least that any way of buying it costs which the pool takes. Pools share
/// no nodes, so the sum is a bound too.
///
/// `None` where a pool that has pods shares its GPUs, since the bound counts whole ones.
///
/// A policy that lets pods wait moves their work, so it pays less in the hours in which they wait, and more after them.
/// What it moves past the end of the demand it does not pay at all.
pub fn least(catalogue: &Catalogue, demand: &Demand, method: &Method) -> Result<Option<UsdMicros>, Unsolved> {
    let mut sum = UsdMicros(0);
    for (n, pool) in catalogue.policy.pools.iter().enumerate() {
        let name = pool.name.as_str();
        let is_here = |pod: &&Pod| pod.pool.as_deref().map_or(n == 0, |wanted| wanted == name);
        let pods: Vec<Pod> = demand.pods.iter().filter(is_here).cloned().collect();
        if pods.is_empty() {
            continue;
        }
        if pool.sharing.is_some() {
            return Ok(None);
        }
        let of_pool = Demand { types: types::cheapest_of(catalogue, name), pods, seconds: demand.seconds };
        sum = sum.plus(bound(&of_pool, method.clone())?.total());
    }
    Ok(Some(sum))
}
