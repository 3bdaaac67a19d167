//! The decision: what to buy, when to release it, and why.
//!
//! This crate is pure: no clock, no I/O, no async, no floats for money. Time, facts, prices and
//! policy come in as values; a plan, its reasons and a new memory come out.
//!
//! The folders, in the order of the flow; each imports only folders above it:
//!
//! - [`base`]: ids, units, calendars, kinds, text.
//! - [`market`]: what clouds sell: offers, prices, GPU sharing, data transfer, interruptions.
//! - [`policy`]: what the operator allows: parsing, validation, lint, rules per pool.
//! - [`facts`]: what suppliers, the cluster and probes report.
//! - [`catalogue`]: node groups and their templates, derived from policy and prices.
//! - [`state`]: what one pass leaves to the next.
//! - [`limits`]: use of quotas, budgets and commitments.
//! - [`choose`]: which offers to buy, in which order, how many nodes of each.
//! - [`plan`]: actions, limits for the autoscaler, and reasons.
//! - [`decide`]: the steps of a pass.
//! - [`check`]: the promises, judged independently of `decide`.
//! - [`pass`]: both, once: the loop of the service, the simulations and the benches.

#![deny(clippy::float_arithmetic)]

// What the tests share with those of other crates names this crate as they do.
#[cfg(test)]
extern crate self as stoker_core;

pub mod base;
pub mod catalogue;
pub mod check;
pub mod choose;
#[cfg(test)]
#[path = "../../../tests/scenes/src/conclusions.rs"]
mod conclusions;
pub mod decide;
pub mod facts;
pub mod limits;
pub mod market;
pub mod pass;
pub mod plan;
pub mod policy;
pub mod state;
#[cfg(test)]
mod testing;
