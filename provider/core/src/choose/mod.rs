//! The choice of offers: which are eligible, in which order, and how many nodes of each to buy.

pub mod allocate;
pub mod candidate;
pub mod explanation;
pub mod feasibility;
pub mod parts;
pub mod rank;
pub mod score;
pub mod sensitivity;
pub mod solver;
pub mod spot_return;
pub mod what_if;
