//! The lock on the state directory: one Stoker per state directory, however many are started.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use crate::private;

/// The file in the state directory that is locked. It is never removed: whoever made a new one while another holds the old one
/// would hold a lock too.
const LOCK_FILE: &str = "lock";

/// Why there is no lock. Nothing else was changed.
#[derive(Debug, thiserror::Error)]
pub enum StateLockError {
    /// The state directory is not there and cannot be made.
    #[error("state directory {}: could not be created; give one that this user may write to", dir.display())]
    Directory {
        /// The state directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The lock cannot be opened or taken.
    #[error("state directory {}: its lock could not be taken; name a directory on a local disk that this user may write to", dir.display())]
    Lock {
        /// The state directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another Stoker works here.
    #[error(
        "state directory {}: in use by another Stoker{}; two on one directory would buy every node twice: stop that one, or \
         give this one its own directory",
        dir.display(), .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Held {
        /// The state directory.
        dir: PathBuf,
        /// The other one's process, as it noted it.
        pid: Option<u32>,
    },
}

impl StateLockError {
    /// A word for metrics and logs.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Directory { .. } => "directory",
            Self::Lock { .. } => "lock",
            Self::Held { .. } => "held",
        }
    }
}

/// The lock on a state directory. Held for life: it ends with this value, or with the process, however that ends.
#[derive(Debug)]
pub struct StateLock {
    dir: PathBuf,
    /// The lock is the system's and lasts as long as this file is open.
    _lock: File,
}

impl StateLock {
    /// Locks `dir`, which is made if it is not there.
    pub fn take(dir: &Path) -> Result<Self, StateLockError> {
        private::directory(dir).map_err(|source| StateLockError::Directory { dir: dir.to_owned(), source })?;
        let failed = |source| StateLockError::Lock { dir: dir.to_owned(), source };
        let path = dir.join(LOCK_FILE);
        let mut lock = private::options().read(true).write(true).truncate(false).open(&path).map_err(failed)?;
        private::restrict(&path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StateLockError::Held { dir: dir.to_owned(), pid: noted(&mut lock) }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        match note(&mut lock) {
            // On a full disk the service goes on from what the journal keeps in reserve. The number
            // is for people alone.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            noted => noted.map_err(failed)?,
        }
        Ok(Self { dir: dir.to_owned(), _lock: lock })
    }

    /// The directory it is for.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The process that the holder noted; `None` where it has not done so yet.
fn noted(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    // A line is all there is; more would not be ours.
    lock.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn note(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())?;
    lock.flush()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_second_is_refused_with_place_process_and_cure() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("stoker");
        let first = StateLock::take(&dir).unwrap();
        assert_eq!(first.dir(), dir);
        let refused = StateLock::take(&dir).unwrap_err();
        assert!(matches!(refused, StateLockError::Held { pid: Some(pid), .. } if pid == std::process::id()), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains(dir.to_str().unwrap()) && text.contains("its own directory"), "{text}");
        drop(first);
        StateLock::take(&dir).unwrap();
    }

    #[test]
    fn a_longer_pid_of_the_last_holder_leaves_nothing_behind() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(LOCK_FILE), "99999999999999999999\n").unwrap();
        let _lock = StateLock::take(state.path()).unwrap();
        let text = fs::read_to_string(state.path().join(LOCK_FILE)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn two_directories_have_a_lock_each() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let _a = StateLock::take(a.path()).unwrap();
        let _b = StateLock::take(b.path()).unwrap();
    }

    #[test]
    fn what_cannot_be_a_directory_is_refused_by_name() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = StateLock::take(&file.join("state")).unwrap_err();
        assert_eq!(refused.label(), "directory");
        assert!(refused.to_string().contains("file/state"), "{refused}");
    }
}
