//! The decision behind the autoscaler model without a service, in virtual time.
//!
//! * [`desk`]: passes of `decide` and `check`, and what becomes of their actions.
//! * [`cloud`]: what the desk buys from.
//! * [`play`]: the cluster, its scheduler and kubelets, and the model of the autoscaler in front of a desk, from event to event.
//!
//! The functions here answer the autoscaler's calls of the decision's own state, for every world that plays it without a service.

mod ca_client;
pub mod cloud;
pub mod desk;
pub(crate) mod isolation;
pub mod play;

use std::collections::BTreeMap;

use stoker_core::base::ids::NodeGroupId;
use stoker_core::base::units::Work;
use stoker_core::catalogue::Catalogue;
use stoker_core::choose::score::{Asked, Score, Way};
use stoker_core::plan::GroupLimits;
use stoker_core::state::memory::Memory;
use stoker_core::state::record::State;

use crate::model::{ExpanderOption, GroupInfo, InstanceError, InstanceInfo, InstanceState};

/// The limits of every group.
pub type Limits = BTreeMap<NodeGroupId, GroupLimits>;

/// The gRPC status numbers of refusals.
const INVALID: i32 = 3;
const NOT_FOUND: i32 = 5;
const PRECONDITION: i32 = 9;

/// A count as the wire has it.
pub fn size(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The groups that are worth listing.
pub fn listing(limits: &Limits) -> Vec<NodeGroupId> {
    limits.iter().filter(|(_, limits)| limits.listed).map(|(id, _)| id.clone()).collect()
}

/// Those groups as they stand now.
pub fn groups(listing: &[NodeGroupId], limits: &Limits) -> Vec<GroupInfo> {
    let info = |id: &NodeGroupId| {
        let limits = limits.get(id)?;
        Some(GroupInfo { id: id.to_string(), min: size(limits.min), max: size(limits.max) })
    };
    listing.iter().filter_map(info).collect()
}

/// The instances of a group.
pub fn instances(memory: &Memory, group: &str) -> Vec<InstanceInfo> {
    // Ids are compared by their address.
    let Ok(group) = NodeGroupId::new(group) else { return Vec::new() };
    let shown = memory.records.values().filter(|record| record.group == group).filter_map(|record| {
        let (state, error) = match &record.state {
            State::Cancelled { .. } => return None,
            State::Wanted | State::Launching { .. } | State::Booting { .. } => (InstanceState::Creating, None),
            State::Registered { .. } => (InstanceState::Running, None),
            State::Deleting { .. } => (InstanceState::Deleting, None),
            State::Failed { kind, message, .. } => {
                let error = InstanceError { code: kind.code().to_owned(), message: message.clone(), class: 1 };
                (InstanceState::Creating, Some(error))
            }
        };
        Some(InstanceInfo { id: record.shown_id().to_string(), state, error })
    });
    shown.collect()
}

/// The option that the service's expander would take; all of them where it ranks none.
pub fn best_options(options: &[ExpanderOption], catalogue: &Catalogue, limits: &Limits) -> Vec<String> {
    let score = |option: &ExpanderOption| {
        let asked = Asked {
            gpus: option.pods.iter().map(|pod| pod.requests.gpus).sum(),
            pods: u32::try_from(option.pods.len()).ok()?,
            speed: Work(0),
        };
        Score::of(&Way {
            group: NodeGroupId::find(&catalogue.groups, &option.group)?,
            supply: &NodeGroupId::find(limits, &option.group)?.supply,
            nodes: u32::try_from(option.node_count).ok()?,
            asked,
        })
    };
    let best = options.iter().filter_map(score).min();
    best.map_or_else(|| options.iter().map(|o| o.group.clone()).collect(), |best| vec![best.group.to_string()])
}
