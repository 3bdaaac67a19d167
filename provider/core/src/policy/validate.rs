//! Placeholder until the rules land.
use super::{Fault, Policy, RawPolicy};
pub(super) fn policy(_raw: &RawPolicy) -> Result<Policy, Vec<Fault>> {
    Err(Vec::new())
}
