//! The main part of each page.

pub(super) mod decisions;
pub(super) mod money;
pub(super) mod nodes;
pub(super) mod now;
pub(super) mod policy;
