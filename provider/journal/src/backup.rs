//! Backups: a copy of the journal while it is in use, and a journal made of one.

use std::fs;
use std::path::{Path, PathBuf};

use super::copy::Copied;
use super::error::{JournalError, StoreError, While as _, is_damage};
use super::place::{Location, Place};
use super::read::Reader;
use super::readings::Readings;
use super::state_lock::StateLock;
use super::store::{Connection, JOURNAL, Store, files, seal, with_suffix};
use super::write::Writer;
use super::{Journal, marker, private};

impl Reader {
    /// Opens a backup to read it.
    pub async fn open_backup(path: &Path) -> Result<Self, JournalError> {
        let store = Store::open_file_read_only(path.to_owned(), &JOURNAL).await.map_err(JournalError::of_backup)?;
        let readings = Readings::of_reader(&Place::from(path.parent().unwrap_or(Path::new("."))));
        Ok(Self { store, readings })
    }

    /// Writes all of the journal, as of one moment, into a new file. Nothing waits for it. Readings
    /// are left out.
    ///
    /// # Errors
    /// Where there is such a file already, or it cannot be written; then nothing is left behind.
    pub async fn backup(&self, to: &Path) -> Result<(), JournalError> {
        if to.exists() {
            return Err(JournalError::Exists { path: to.to_owned() });
        }
        let part = with_suffix(to, ".part");
        let written = self.write_backup(&part, to).await;
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written.map_err(|source| JournalError::Backup { path: to.to_owned(), source })
    }

    async fn write_backup(&self, part: &Path, to: &Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if let Location::Database(_) = self.store.at() {
            let made: Result<(), Box<dyn std::error::Error + Send + Sync>> = async {
                self.copy_journal(&Place::from(part), Copied::AsIs).await?;
                seal(&part.join(JOURNAL.file)).await?;
                Ok(fs::rename(part.join(JOURNAL.file), to)?)
            }
            .await;
            // Where it was never made there is nothing to remove.
            let _ = fs::remove_dir_all(part);
            made?;
        } else {
            let name = part.to_str().ok_or("its name is no text")?;
            private::options().write(true).truncate(true).open(part)?;
            private::restrict(part)?;
            self.store.copy_into(name).await?;
            private::sync(part)?;
            fs::rename(part, to)?;
        }
        private::sync(to)?;
        Ok(())
    }
}

impl Journal {
    /// Makes a backup, of this release or an older one, the journal of a state directory that has none. Orders of which no machine
    /// had come are not carried over: whoever still needs them asks again. The journal gets a name
    /// of its own, and the first start on it takes care.
    ///
    /// # Errors
    /// Where the directory has a journal, or the backup is damaged or none; then nothing changed.
    pub async fn restore(lock: &StateLock, backup: &Path) -> Result<(), JournalError> {
        let path = lock.dir().join(JOURNAL.file);
        if let Some(path) = files(&path).into_iter().find(|file| file.exists()) {
            return Err(JournalError::Exists { path });
        }
        let given = Store::open_file_of_any_release(backup.to_owned(), &JOURNAL).await;
        let (given, _) = given.map_err(JournalError::of_backup)?;
        // Made in a directory of its own: what a crash leaves there is no journal, and goes.
        let part = lock.dir().join("restore.part");
        let _ = fs::remove_dir_all(&part);
        let made = make(&part, &given).await;
        given.close().await;
        let placed = made.and_then(|made| place(lock.dir(), &made, &path).map_err(|source| failed(&path, source)));
        let _ = fs::remove_dir_all(&part);
        placed
    }

    /// Makes a backup the journal of a database that has none, as [`restore`](Self::restore) does for a state directory.
    ///
    /// # Errors
    /// Where there is a journal, or the backup is damaged or none; then nothing changed.
    pub async fn restore_into(to: &Place, backup: &Path) -> Result<(), JournalError> {
        let given = Reader::open_backup(backup).await?;
        let restored = match given.check().await {
            Ok(()) => given.copy_journal(to, Copied::Restored).await.map(drop),
            Err(damaged) => Err(damaged.of_backup()),
        };
        given.close().await;
        restored
    }
}

fn failed(path: &Path, source: std::io::Error) -> JournalError {
    JournalError::Restore { path: path.to_owned(), source }
}

/// Makes a journal of this release's schema of a backup in `dir`, and looks through all of it; its file.
async fn make(dir: &Path, backup: &Store) -> Result<PathBuf, JournalError> {
    let made = dir.join(JOURNAL.file);
    let begin = || private::directory(dir).and_then(|()| private::options().write(true).truncate(true).open(&made).map(drop));
    begin().map_err(|source| failed(&made, source))?;
    // By the database and not byte by byte: a backup that somebody opened may have entries in a file beside it.
    let name = made.to_str().ok_or_else(|| failed(&made, std::io::ErrorKind::InvalidFilename.into()))?;
    backup.copy_into(name).await.map_err(|source| {
        if is_damage(&source) {
            JournalError::opening(backup.at(), source).of_backup()
        } else {
            failed(&made, std::io::Error::other(source))
        }
    })?;
    let place = Place::from(dir);
    let damaged = |error: JournalError| error.of_backup_at(backup.at());
    let store = Store::open(&place, &JOURNAL).await.map_err(damaged)?;
    let finish = async {
        let readings = Readings::of_reader(&place);
        Reader { store: store.clone(), readings }.check().await.map_err(damaged)?;
        let settle = async {
            let mut db = store.write().await?;
            settle(&mut db).await?;
            db.commit().await.during("committing")
        };
        settle.await.map_err(|error| JournalError::writing(&Location::File(made.clone()), error))
    };
    let finished = finish.await;
    // Closed, all of it is in one file.
    store.close().await;
    finished?;
    Ok(made)
}

/// Forgets what was on order, and gives the journal its name.
pub(super) async fn settle(db: &mut Connection) -> Result<(), StoreError> {
    forget_orders(db).await?;
    marker::mint(db).await.map(drop)
}

/// The machines of such orders are found again in the suppliers' inventories. Asked for once more,
/// they would be bought twice.
async fn forget_orders(db: &mut Connection) -> Result<(), StoreError> {
    let mut writer = Writer::restore(db).await?;
    let mut memory = writer.memory().clone();
    memory.records.retain(|_, record| record.instance().is_some());
    writer.remember(db, &memory, None).await.map(drop)
}

fn place(dir: &Path, made: &Path, path: &Path) -> std::io::Result<()> {
    private::sync(made)?;
    // First: a journal that stands beside a marker of its own would be taken for the one that was
    // there.
    marker::mark_restored(dir)?;
    fs::rename(made, path)?;
    private::sync(path)
}
