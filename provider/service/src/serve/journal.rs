//! Looks a large journal through while it is in use: at a start that would take too long.

use std::error::Error as _;
use std::sync::Arc;

use jiff::SignedDuration;
use stoker_core::plan::JournalFault;
use stoker_journal::{JournalError, Reader};

use crate::clock::Clock;
use crate::publish::Listener as _;
use crate::publish::observer::Observer;

/// When the journal is first looked through: not while a restart has everything else to do.
const FIRST_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// How often from then on. A gigabyte is some seconds of one disk and one core.
const EVERY: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Looks it through now and then, and tells of damage.
pub(super) async fn check(journal: Reader, observer: Arc<Observer>, clock: Clock) {
    clock.sleep(FIRST_AFTER).await;
    loop {
        match journal.check_if_large().await {
            Ok(()) => observer.journal(JournalFault::Damaged, None),
            Err(error @ JournalError::Corrupt { .. }) => {
                let what = error.source().map(|what| format!(" ({what})")).unwrap_or_default();
                observer.journal(JournalFault::Damaged, Some(format!("{error}{what}")));
            }
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the journal could not be looked through"),
        }
        clock.sleep(EVERY).await;
    }
}
