//! The marker: a file beside the journal that tells which journal was here, and how far it went. A
//! journal that is lost, emptied or exchanged for another leaves it behind.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use stoker_core::base::ids::{DecisionId, Incarnation};

use super::error::{StoreError, While as _};
use super::private;
use super::store::Connection;

/// The marker's file in the state directory.
const FILE: &str = "journal.marker";

/// What a start found wrong with the journal as a whole. Orders, windows, drains and spot history
/// may be forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// There was a journal, and there is none or an empty one.
    #[error("the journal was lost or emptied, and a new one was begun")]
    Gone,
    /// The journal is another than the one that was here.
    #[error("the journal is not the one that was here last (a backup was restored)")]
    Other,
    /// The journal ends before it did.
    #[error("the journal ends at {found}, but had reached {marked} (its -wal file was lost or cut)")]
    Cut {
        /// Its last decision.
        found: DecisionId,
        /// The last decision that the marker knows.
        marked: DecisionId,
    },
}

/// What a marker says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marker {
    /// `None` where it is unreadable, or was left by a restored backup.
    incarnation: Option<Incarnation>,
    decision: DecisionId,
}

impl Marker {
    /// What the marker in `dir` says; `None` where there is none.
    pub(super) fn read(dir: &Path) -> Option<Self> {
        let text = match fs::read_to_string(dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            text => text.unwrap_or_default(),
        };
        let mut words = text.split_whitespace();
        let incarnation = words.next().and_then(|name| Incarnation::new(name).ok());
        let decision = DecisionId(words.next().and_then(|number| number.parse().ok()).unwrap_or(0));
        Some(Self { incarnation, decision })
    }

    /// Writes the marker: all of it or nothing.
    pub(super) fn write(dir: &Path, incarnation: &Incarnation, decision: DecisionId) -> io::Result<()> {
        write(dir, &format!("{incarnation} {}\n", decision.0))
    }

    /// What is wrong with the journal of that name, which ends at `found`.
    pub(super) fn loss(&self, incarnation: Option<&Incarnation>, found: DecisionId) -> Option<Loss> {
        match incarnation {
            None if found == DecisionId(0) => Some(Loss::Gone),
            _ if incarnation != self.incarnation.as_ref() => Some(Loss::Other),
            _ if found < self.decision => Some(Loss::Cut { found, marked: self.decision }),
            _ => None,
        }
    }
}

/// Leaves word that the journal in `dir` was restored, so that the next start takes care.
pub(super) fn mark_restored(dir: &Path) -> io::Result<()> {
    write(dir, "- 0\n")
}

fn write(dir: &Path, text: &str) -> io::Result<()> {
    let (path, part) = (dir.join(FILE), dir.join(format!("{FILE}.part")));
    let mut file = private::options().write(true).truncate(true).open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&part, &path)?;
    private::sync(&path)
}

/// The marker's file, for messages.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// Which journal a database is; `None` of one that has no name yet.
pub(super) async fn stored(db: &mut Connection) -> Result<Option<Incarnation>, StoreError> {
    let name: Option<String> = sqlx::query_scalar("SELECT name FROM incarnation")
        .fetch_optional(&mut *db)
        .await
        .during("looking for the journal's name")?;
    let known = |name: String| {
        Incarnation::new(&name).map_err(|_| StoreError::Damaged { what: format!("the journal's name {name:?} is none") })
    };
    name.map(known).transpose()
}

/// Gives a journal a name that none had before.
pub(super) async fn mint(db: &mut Connection) -> Result<Incarnation, StoreError> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| StoreError::Damaged { what: format!("no random number: {error}") })?;
    let name = format!("{:08x}", u32::from_le_bytes(random));
    let minted = Incarnation::new(&name).map_err(|error| StoreError::Damaged { what: error.to_string() })?;
    sqlx::query("INSERT INTO incarnation (id, name) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET name = excluded.name")
        .bind(name)
        .execute(&mut *db)
        .await
        .during("naming the journal")?;
    Ok(minted)
}

/// Says that a journal was made of a backup.
pub(super) async fn restored(db: &mut Connection) -> Result<(), StoreError> {
    sqlx::query("UPDATE incarnation SET restored = 1").execute(&mut *db).await.during("marking a restored journal")?;
    Ok(())
}

/// Whether it says so.
pub(super) async fn is_restored(db: &mut Connection) -> Result<bool, StoreError> {
    let restored: Option<Option<i64>> = sqlx::query_scalar("SELECT restored FROM incarnation")
        .fetch_optional(&mut *db)
        .await
        .during("looking whether the journal was restored")?;
    Ok(restored.flatten().is_some())
}

/// Somebody has heard of it.
pub(super) async fn heard(db: &mut Connection) -> Result<(), StoreError> {
    sqlx::query("UPDATE incarnation SET restored = NULL").execute(&mut *db).await.during("unmarking a restored journal")?;
    Ok(())
}
