//! Lower bounds on what any policy pays for a demand.
//!
//! * [`fleet`]: bound for pods on a catalogue of instance types, on demand and with a commitment.
//! * [`levels`]: exact optimum for replicas that each fill one node.
//! * [`spot`]: bound for such replicas with reserved, on-demand and spot nodes.
//! * [`Solver`]: solver of the linear programs behind them.
//!
//! Every result names the solver and the cuts that produced it.

pub mod fleet;
pub(crate) mod flow;
pub mod levels;
mod linear;
pub(crate) mod money;
pub mod spot;

pub use linear::{Solver, Unsolved};
