//! Nodes through Karpenter, on every cloud that has a Karpenter provider: one standalone `NodeClaim` for each machine.
//!
//! - `claim`: what a `NodeClaim` of Stoker's says, and what one tells.
//! - `carriers`: the `NodePools` that lend their names to claims, each for a `NodeClass`.
//! - `ledger`: which claims there are, and what became of those that are gone. Pure.
//! - [`Karpenter`]: the supplier, which follows claims by a watch and creates and deletes them.
//! - [`companion`]: steers a Karpenter that makes nodes of its own, next to Stoker.
//! - `objects`: Karpenter's objects as they are read.
//!
//! Karpenter's rules that decide this design:
//! - A claim that is not launched keeps Karpenter from all its work. So few are under way at once, and one that is not launched within
//!   a minute is deleted.
//! - A claim that cannot be launched is deleted, and bears no reason. An Event with its uid tells of a lack of capacity.
//! - A claim needs a `NodePool` by whose label providers find it. The carrier is one from which Karpenter itself makes and takes nothing.

mod carriers;
mod claim;
pub mod companion;
mod ledger;
mod objects;
mod supplier;

pub use supplier::Karpenter;
