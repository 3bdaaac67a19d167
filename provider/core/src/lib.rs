//! The decision: what to buy, when to let go, and why.
//!
//! This crate is pure: no clock, no I/O, no async, no floats for money. Time, facts, prices and policy come in as values; a plan, its
//! reasons and a new memory go out.

#![deny(clippy::float_arithmetic)]

pub mod advise;
pub mod allocate;
pub mod aside;
pub mod back;
pub mod budget;
pub mod calendar;
pub mod check;
pub mod choose;
pub mod commitment;
pub mod decide;
pub mod demand;
pub mod filling;
pub mod fit;
pub mod floor;
mod fnv;
pub mod group;
pub mod health;
pub mod ids;
pub mod images;
pub mod interruption;
pub mod isolation;
pub mod lately;
pub mod leaving;
pub mod lift;
mod lookup;
pub mod memory;
pub mod offer;
pub mod orders;
mod pairs;
pub mod plan;
pub mod policy;
pub mod price;
pub mod quota;
pub mod reading;
pub mod record;
pub mod rollup;
pub mod sabotage;
pub mod score;
pub mod sharing;
pub mod sight;
pub mod snapshot;
pub mod spot;
pub mod supply;
pub mod template;
#[cfg(test)]
mod testing;
pub mod told;
pub mod transfer;
pub mod units;
pub mod usage;
pub mod verdict;
pub mod warnings;
pub mod watched;
pub mod whatif;
pub mod window;
