//! Caution: for ten minutes after a journal was lost nothing is ended or drained but what the cloud
//! takes.
//!
//! What was forgotten with the journal (orders, windows, drains, spot history) cannot be told from
//! what never was. Facts about machines, pods and probes come back within minutes.

use super::pass::{Changes, Pass, after};
use crate::plan::{JournalFault, Note};
use crate::state::memory::CAUTION;

/// Begins caution where a fleet is found without any memory of it, and ends it in time.
pub(super) fn take(pass: &Pass<'_>, changes: &mut Changes<'_>) {
    match changes.memory.cautious_until {
        Some(until) if until <= pass.now => changes.memory.cautious_until = None,
        Some(until) => changes.look_again_at(until),
        None => begin(pass, changes),
    }
}

fn begin(pass: &Pass<'_>, changes: &mut Changes<'_>) {
    let before = pass.before;
    let new = before.next_record == 0 && before.records.is_empty() && before.orphans.is_empty();
    let machines = changes.memory.records.values().filter(|record| record.instance().is_some()).count();
    let found = machines + changes.memory.orphans.len();
    if !new || found == 0 {
        return;
    }
    let until = after(pass.now, CAUTION);
    changes.memory.cautious_until = Some(until);
    changes.look_again_at(until);
    let fault = JournalFault::Lost;
    let machines =
        if found == 1 { "1 machine of this cluster is".to_owned() } else { format!("{found} machines of this cluster are") };
    let message = format!("the journal is new, but {machines} running already");
    changes.notes.push(Note::Journal { fault, message, until: Some(until) });
}
