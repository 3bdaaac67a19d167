//! What a policy wants of the autoscaler.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use stoker_core::base::ids::PoolName;
use stoker_core::catalogue::isolation::SHAPE_TAINT;
use stoker_core::policy::rules::warm_floor::{Mechanism, WarmFloor};
use stoker_core::policy::{Policy, Pool};

/// What a policy wants of the autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wants {
    /// How long a launched machine may take to join the cluster.
    pub boot_deadline: SignedDuration,
    /// The shortest stabilization window and the pool that has it; `None` where no pool has one.
    pub window: Option<(PoolName, SignedDuration)>,
    /// Nodes kept whatever the demand, as far as the policy says a number.
    pub least_nodes: u64,
    /// A pool whose nodes are to be kept whatever the demand, if only at times.
    pub floor: Option<PoolName>,
    /// A pool whose floor goes through `CapacityBuffer` objects.
    pub buffers: Option<PoolName>,
    /// Nodes never exceeded.
    pub most_nodes: u64,
    /// Keys of the taints that its nodes bear for as long as they live.
    pub taints: BTreeSet<String>,
    /// Whether some pool keeps pods off dear shapes.
    pub isolation: bool,
}

impl Wants {
    /// What this policy wants.
    pub fn of(policy: &Policy) -> Self {
        let pools = || policy.pools.iter();
        let windows = pools().filter_map(|pool| Some((pool.name.clone(), pool.stabilization.as_ref()?.shortest())));
        let isolation = pools().any(|pool| pool.isolation.is_some());
        let own = pools().flat_map(|pool| &pool.taints).map(|taint| taint.key.clone());
        Self {
            boot_deadline: policy.boot_deadline,
            window: windows.min_by_key(|(_, window)| *window),
            least_nodes: pools().map(least).sum(),
            floor: pools().find(|pool| has_floor(pool)).map(|pool| pool.name.clone()),
            buffers: pools().find(|pool| goes_through_buffers(pool)).map(|pool| pool.name.clone()),
            most_nodes: pools().map(|pool| u64::from(pool.limits.max_nodes)).sum(),
            taints: own.chain(isolation.then(|| SHAPE_TAINT.to_owned())).collect(),
            isolation,
        }
    }
}

fn least(pool: &Pool) -> u64 {
    let warm = pool.warm_floor.as_ref().map_or(0, |floor| floor.nodes);
    u64::from(pool.limits.min_nodes.max(warm))
}

fn goes_through_buffers(pool: &Pool) -> bool {
    has_floor(pool) && pool.warm_floor.as_ref().is_some_and(|floor| floor.mechanism == Mechanism::CapacityBuffer)
}

fn has_floor(pool: &Pool) -> bool {
    let wanted = |floor: &WarmFloor| {
        let WarmFloor { nodes, percent_of_busy, quantile, schedule, signals, warm_when: _, mechanism: _ } = floor;
        *nodes > 0 || percent_of_busy.is_some() || quantile.is_some() || !schedule.is_empty() || *signals
    };
    pool.limits.min_nodes > 0 || pool.warm_floor.as_ref().is_some_and(wanted)
}
