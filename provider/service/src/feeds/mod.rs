//! The feeds: what a pass reads. Each publishes its newest value and wakes the loop; a pass takes them all as one snapshot.

pub mod foreign;
mod inputs;
pub mod policy_watch;
pub mod probes;
pub mod prometheus;

pub use inputs::{AllMarketFacts, ClusterFeed, Feeds, Inputs, Latest, MarketFeed, ask};
