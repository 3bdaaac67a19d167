//! What a cloud says of the machine under a node.

use super::super::is_recent;
use super::{Fault, Pass};
use crate::state::node_verdict::{Reason, Verdict};
use crate::state::record::{Record, State};

/// How a record's machine is, as its supplier tells.
pub(super) enum Condition {
    /// It is impaired.
    Impaired(Reason),
    /// Nothing is said to be wrong with it.
    Well,
    /// Nobody can tell now: that is neither.
    Unknown,
}

impl Condition {
    /// As the newest inventory tells.
    pub(super) fn of(pass: &Pass<'_>, record: &Record) -> Self {
        let State::Registered { instance, purchase, .. } = &record.state else { return Self::Unknown };
        // It is asked of every node, and makes no difference to one that is well while no machine is called impaired.
        let is_unhealthy = record.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Unhealthy);
        if !is_unhealthy && pass.snapshot.suppliers.values().flatten().all(|listed| listed.impaired.is_empty()) {
            return Self::Unknown;
        }
        let place = &purchase.market.place;
        let told = pass.inventory_of(&record.group);
        let Some(told) = told.filter(|told| is_recent(told.as_of_in(place), pass.now) && told.is_sure_of(place)) else {
            return Self::Unknown;
        };
        told.impaired.get(instance).map_or(Self::Well, |why| Self::Impaired(Reason::Impaired { why: why.clone() }))
    }

    /// What is wrong with it. Suppliers tell only what lasts.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self {
            Self::Impaired(why) => Some(Fault { why: why.clone(), certain: true }),
            Self::Well | Self::Unknown => None,
        }
    }
}
