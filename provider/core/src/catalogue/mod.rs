//! The catalogue: node groups and their templates, derived from the policy and the prices.

pub mod claims;
pub mod group;
pub mod isolation;
pub(crate) mod reach;
pub mod template;
