//! Limits: quotas, budgets, commitments, and how much of each is in use.

pub mod budget;
pub mod commitment;
pub mod month;
pub mod usage;
