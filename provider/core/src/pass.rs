//! A pass: decide and check, once. The service, the simulations and the benches all run this one.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;

use crate::base::ids::{DecisionId, NodeGroupId};
use crate::catalogue::Catalogue;
use crate::check::{Verified, check, without_decision};
use crate::decide::decide;
use crate::facts::snapshot::Snapshot;
use crate::plan::{Accounts, Decision, GroupLimits};
use crate::state::memory::Memory;

/// What the last pass left.
#[derive(Debug, Clone, Copy)]
pub struct Before<'a> {
    /// What it remembered.
    pub memory: &'a Memory,
    /// What the autoscaler was shown, and goes on to be shown where no decision can be made.
    pub limits: &'a BTreeMap<NodeGroupId, GroupLimits>,
    /// Likewise.
    pub accounts: &'a Accounts,
}

/// What a pass came to.
#[derive(Debug)]
pub struct Step {
    /// The plan as it may be done, what to remember, and which promises the decision would have broken.
    pub verified: Verified,
    /// When something may differ although no fact does; `None` where nothing does.
    pub next_change_at: Option<Timestamp>,
    /// Whether the facts were taken in. They were not where a rule panicked: the next pass has to hear them again.
    pub absorbed: bool,
}

/// Makes decision number `id` at `now`.
///
/// `look` sees the decision before it is checked, and may spoil it in a test of faults. A panic of a rule is a fault of the fleet: one that
/// would come again in every pass must not become a loop of crashes.
pub fn step(
    before: &Before<'_>,
    (snapshot, catalogue): (&Snapshot, &Catalogue),
    (id, now): (DecisionId, Timestamp),
    look: impl FnOnce(&mut Decision),
) -> Step {
    // Both are pure, so nothing half-changed is left behind.
    let made = catch_unwind(AssertUnwindSafe(|| {
        let mut decision = decide(snapshot, before.memory, catalogue, now);
        look(&mut decision);
        let next_change_at = decision.next_change_at;
        (check(decision, before.memory, snapshot, catalogue, (id, now)), next_change_at)
    }));
    match made {
        Ok((verified, next_change_at)) => Step { verified, next_change_at, absorbed: true },
        Err(panic) => {
            let shown = (before.limits.clone(), before.accounts.clone());
            let verified = without_decision(said(panic.as_ref()), before.memory, shown, (snapshot, catalogue), (id, now));
            Step { verified, next_change_at: None, absorbed: false }
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(said), _) => (*said).to_owned(),
        (None, Some(said)) => said.clone(),
        (None, None) => "it did not say why".to_owned(),
    }
}
