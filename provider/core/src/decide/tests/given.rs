//! Verdicts that a test gives, whatever the rest of its world says: what follows from a verdict is tested without what leads to it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::Draft;
use crate::ids::RecordId;
use crate::verdict::{Judged, Reason, Verdict};

/// What is concluded of each node, since when.
pub(super) type Verdicts = BTreeMap<RecordId, (Verdict, Timestamp)>;

thread_local! {
    static GIVEN: RefCell<Verdicts> = const { RefCell::new(Verdicts::new()) };
}

/// From now on, on this thread.
pub(super) fn set(verdicts: &Verdicts) {
    GIVEN.with_borrow_mut(|given| given.clone_from(verdicts));
}

/// Judges what the test gave a verdict of, and what is not on its way already.
pub(in super::super) fn judge(draft: &mut Draft<'_>) {
    let given = GIVEN.with_borrow(Clone::clone);
    for (id, (verdict, since)) in given {
        let Some(record) = draft.memory.records.get_mut(&id) else { continue };
        if record.judged.as_ref().is_some_and(|judged| judged.verdict != Verdict::Draining) {
            let why = if verdict == Verdict::Booting { Reason::Awaited } else { Reason::Pods };
            Arc::make_mut(record).judged = Some(Judged { verdict, why, since });
        }
    }
}
