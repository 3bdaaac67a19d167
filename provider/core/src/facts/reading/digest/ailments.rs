//! What is wrong with a GPU.

use std::collections::BTreeSet;

use crate::facts::reading::seen::{Ailment, HealthFact};
use crate::facts::reading::{GpuReading, Measured, RemappedRows, Why};

/// What is wrong with a GPU. What is not read each time stands as it was last read.
pub(super) fn ailments(reading: &GpuReading, before: &BTreeSet<Ailment>) -> BTreeSet<Ailment> {
    let mut ailments = BTreeSet::new();
    let mut add = |fact: HealthFact, why: Option<Why>, found: Vec<Ailment>| match why {
        None | Some(Why::NotSupported | Why::NoPermission) => ailments.extend(found),
        Some(Why::NotReported | Why::NotYet) => ailments.extend(before.iter().filter(|ailment| ailment.fact() == fact)),
        Some(why) => {
            ailments.insert(Ailment::Unread(fact, why));
        }
    };
    let action = found(&reading.recovery_action, |action| (*action > 0).then_some(Ailment::RecoveryAction(*action)));
    add(HealthFact::RecoveryAction, why(&reading.recovery_action), action);
    // DCGM tells of the rows and, unless it is switched on, not whether one waits: what was known of that stands.
    let waits = |rows: &RemappedRows| *rows.pending.known().unwrap_or(&before.contains(&Ailment::RemapPending));
    let pending = found(&reading.remapped_rows, |rows| waits(rows).then_some(Ailment::RemapPending));
    let failed = found(&reading.remapped_rows, |rows| rows.failed.then_some(Ailment::RemapFailed));
    add(HealthFact::RemappedRows, why(&reading.remapped_rows), [pending, failed].concat());
    let retired = found(&reading.retired_pages_pending, |pending| pending.then_some(Ailment::RetirementPending));
    add(HealthFact::RetiredPages, why(&reading.retired_pages_pending), retired);
    let errors = |count: u64| (count > 0).then_some(Ailment::UncorrectedErrors(count));
    add(HealthFact::Ecc, why(&reading.ecc), found(&reading.ecc, |ecc| errors(ecc.uncorrected_volatile)));
    let owed = found(&reading.mig, |mig| mig.pending_change.then_some(Ailment::MigChangePending));
    add(HealthFact::Mig, why(&reading.mig), owed);
    ailments
}

fn found<T>(level: &Measured<T>, of: impl Fn(&T) -> Option<Ailment>) -> Vec<Ailment> {
    level.known().and_then(of).into_iter().collect()
}

const fn why<T>(level: &Measured<T>) -> Option<Why> {
    match level {
        Measured::Known(_) => None,
        Measured::Unknown(why) => Some(*why),
    }
}
