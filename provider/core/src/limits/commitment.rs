//! Use of commitments: what they cover, and what one more node costs.
//!
//! Covered nodes cost nothing more until the commitment is full.

mod alike;
mod bill;
mod cover;
mod ending;
mod history;
mod marginal;
mod propose;
mod reach;
mod release;
mod reservations;
mod size;
#[cfg(test)]
mod tests;
mod tranche;

pub(crate) use alike::Alike;
pub use bill::{PaidBy, RanNodes, Settled, settle};
pub use cover::{Amount, Committed, Line, LineCover, Use};
pub use ending::nodes_on_ending;
pub use history::UsedHour;
pub use marginal::{CoveredBy, Marginal, NoSlot};
pub use propose::{Ask, Proposal, Proposals, SIZED, Scope, Term, Unsized, propose};
pub use release::{PaidFor, release_order};
pub use reservations::Reservations;
pub use size::{Advice, Shortfall, TooLittleUse, Unit, advise};
pub use tranche::{Tranche, Tranches};
