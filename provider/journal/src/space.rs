//! Room on the disk: what is given up for the journal when the disk is full. First the readings,
//! which inform people; then a reserve, with which the journal goes on until somebody has freed
//! space.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, StatVfs, fallocate, fstatvfs, statvfs};

use super::error::{JournalError, StoreError};
use super::place::{Location, Place};
use super::private;
use super::readings::Readings;
use super::store::{Epoch, Store};

/// The reserve's file in the state directory.
const FILE: &str = "reserve";

/// What is kept in reserve: some hours of decisions of a busy fleet. A small volume keeps less.
const RESERVE: u64 = 64 << 20;

/// The part of its volume that the reserve takes at most.
const SHARE: u64 = 16;

/// What can be given up for the journal.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) readings: Arc<Readings>,
    /// `None` of PostgreSQL, whose disk is its own.
    reserve: Option<PathBuf>,
    /// Whether the reserve was given up, or there was no room for it.
    short: AtomicBool,
}

impl Space {
    /// What a journal has. The reserve of a state directory is made when [`renew`](Self::renew) is called.
    pub(super) fn of(place: &Place, epoch: Option<Epoch>) -> Arc<Self> {
        let reserve = match place {
            Place::Directory(dir) => Some(dir.join(FILE)),
            Place::Database(_) => None,
        };
        Arc::new(Self { readings: Readings::of_writer(place, epoch), reserve, short: AtomicBool::new(false) })
    }

    /// Gives something up; whether there was anything.
    pub(super) async fn make(&self) -> bool {
        if self.readings.drop_all().await {
            return true;
        }
        let Some(reserve) = &self.reserve else { return false };
        self.short.store(true, Ordering::Relaxed);
        fs::remove_file(reserve).is_ok()
    }

    /// Whether the reserve is in use, so that the journal alone may write.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Whether something may be written beside the decisions.
    ///
    /// # Errors
    /// When the disk is so full that what is left is kept for decisions, or the journal's file is gone.
    pub(super) fn may_write_beside(&self, store: &Store) -> Result<(), JournalError> {
        let at = store.at();
        if self.is_short() {
            let what = "the disk is nearly full, and what is left of it is kept for decisions".to_owned();
            return Err(JournalError::Full { at: at.clone(), source: StoreError::Damaged { what } });
        }
        match at {
            Location::File(path) if !store.is_in_place() => Err(JournalError::Gone { path: path.clone() }),
            _ => Ok(()),
        }
    }

    /// Makes the reserve where it is missing, once there is room for it and as much again; whether
    /// it is there.
    pub(super) fn renew(&self) -> bool {
        let Some(reserve) = &self.reserve else { return true };
        let stands = match try_renew(reserve) {
            Ok(stands) => stands,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => false,
            // A file system that reserves nothing does without.
            Err(_) => true,
        };
        self.short.store(!stands, Ordering::Relaxed);
        stands
    }
}

fn try_renew(path: &Path) -> io::Result<bool> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let volume = statvfs(dir)?;
    let size = size(&volume);
    if fs::metadata(path).is_ok_and(|found| found.len() >= size) {
        return private::restrict(path).map(|()| true);
    }
    if free(&volume) < 2 * size {
        return Ok(false);
    }
    let file = private::options().write(true).truncate(false).open(path)?;
    let reserved = reserve(&file, size);
    if reserved.is_err() {
        // Half a reserve keeps room from whoever frees some.
        let _ = fs::remove_file(path);
    }
    reserved.map(|()| true)
}

fn reserve(file: &File, size: u64) -> io::Result<()> {
    fallocate(file, FallocateFlags::empty(), 0, size)?;
    // What the volume itself keeps for root must not be in it.
    if fstatvfs(file).is_ok_and(|volume| free(&volume) == 0) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

/// The reserve of a volume.
fn size(volume: &StatVfs) -> u64 {
    RESERVE.min(volume.f_blocks.saturating_mul(volume.f_frsize) / SHARE)
}

/// What is free on a volume for who is not root.
fn free(volume: &StatVfs) -> u64 {
    volume.f_bavail.saturating_mul(volume.f_frsize)
}
