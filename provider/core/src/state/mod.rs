//! What one pass leaves to the next: records of nodes and what is remembered about them.

pub mod budget;
pub mod cordon;
pub mod disruption;
pub mod memory;
pub mod node_status;
pub mod node_verdict;
pub mod outdated;
pub mod paused;
pub mod probe_history;
pub mod probe_reclaims;
pub mod record;
pub mod shortfall;
pub mod spot_history;
