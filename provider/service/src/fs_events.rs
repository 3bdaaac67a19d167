//! Files that others change while we run.

use notify::EventKind;
use notify::event::{AccessKind, AccessMode};

/// Whether an event may mean that a file has changed. Reading it is an event too, and a reader that woke itself would read for ever.
pub(crate) fn may_have_changed(event: &notify::Result<notify::Event>) -> bool {
    let only_read =
        |kind: EventKind| matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write));
    !event.as_ref().is_ok_and(|event| only_read(event.kind))
}

#[cfg(test)]
mod tests {
    use notify::event::ModifyKind;

    use super::*;

    #[test]
    fn reading_a_file_does_not_change_it_and_all_else_may() {
        let of = |kind| may_have_changed(&Ok(notify::Event::new(kind)));
        assert!(!of(EventKind::Access(AccessKind::Open(AccessMode::Any))));
        assert!(!of(EventKind::Access(AccessKind::Close(AccessMode::Read))));
        assert!(of(EventKind::Access(AccessKind::Close(AccessMode::Write))));
        assert!(of(EventKind::Modify(ModifyKind::Any)));
        assert!(may_have_changed(&Err(notify::Error::generic("events were lost"))));
    }
}
