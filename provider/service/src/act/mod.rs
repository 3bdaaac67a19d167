//! Doing what a checked plan says: launches and terminations at suppliers, changes to Nodes, and the status that Nodes carry.

mod executor;
mod permit;
mod status_writer;

pub use executor::{Executor, UnderWay};
pub use permit::Permit;
