//! What others do with a demand: a simulator of capacity policies that are not ours, event by event.
//!
//! * [`Policy`]: stock autoscalers, the same with class taints, and the two policies that ours is measured against.
//! * [`Boots`]: how long nodes take to boot, drawn or recorded.
//! * [`replay`]: plays a demand under a policy; [`replay_with_spot`] on a [`Market`] with spot pools too.
//! * [`static_peak`]: the fleet that is never given back.
//! * [`Market`]: spot pools with their room over time, and what an interruption costs.
//! * [`Report`]: the bill, the waiting and the churn.
//! * [`serving`]: replicas that follow a rate of requests.
//!
//! # The world
//! Every type can be bought on demand without limit. A node is billed by the second from its purchase to its release,
//! 60 seconds at least, and is ready after its boot. Nodes that are bought for what runs at the start are ready at
//! once. A waiting pod binds to a ready node as soon as one has room. A pod runs as long on any type.
//!
//! A demand's pods must be in the order of their arrivals. Pods that no type can run are left out and counted.

mod boots;
mod buy;
mod consolidate;
mod events;
mod fleet;
mod floors;
mod jobs;
mod market;
mod policy;
pub(crate) mod report;
mod run;
pub mod serving;
mod spot;
#[cfg(test)]
mod tests;

use stoker_core::base::units::UsdMicros;

use crate::bound::money::{dollars, micros};
use crate::demand::Demand;

pub use boots::Boots;
pub use market::{Market, SpotPool};
pub use policy::{Buys, Consolidation, Floor, Idle, Looks, Policy, Scheduler, Spot, WithoutRoom};
pub use report::{Committed, Report, Waits, commit};
use run::Run;

/// A floor names a type that the demand does not offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a floor holds GPUs of {name}, which is not for sale: name one of the demand's types, or remove the floor")]
pub struct UnknownType {
    /// Name of the type.
    pub name: String,
}

/// Plays the demand to its end under the policy.
pub fn replay(demand: &Demand, policy: &Policy, boots: Boots) -> Result<Report, UnknownType> {
    replay_with_spot(demand, policy, boots, Market::none())
}

/// The same where spot pools have room for the pods that may use them.
pub fn replay_with_spot(demand: &Demand, policy: &Policy, boots: Boots, market: Market) -> Result<Report, UnknownType> {
    let by_type = |floor: &Floor| {
        let kind = demand.types.iter().position(|of| of.name == floor.type_name);
        kind.map(|kind| (kind, floor.gpus)).ok_or_else(|| UnknownType { name: floor.type_name.clone() })
    };
    let floors = policy.floors.iter().map(by_type).collect::<Result<_, _>>()?;
    Ok(Run::new(demand, policy, boots, market, floors).play())
}

/// Cost of the fleet that is bought node by node as the demand needs it, if every node were kept the whole time.
pub fn static_peak(demand: &Demand) -> UsdMicros {
    let policy = Policy { idle: Idle::After { seconds: f64::INFINITY }, ..Policy::own_choice(0.0) };
    let report = Run::new(demand, &policy, Boots::at_once(), Market::none(), Vec::new()).play();
    UsdMicros(micros(dollars(report.bought.0) * demand.seconds / 3600.0))
}
