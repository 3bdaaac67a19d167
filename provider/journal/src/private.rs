//! Files and directories that only their owner may read: they tell pod names, owners and spend.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const OWNERS_DIRECTORY: u32 = 0o700;
const OWNERS_FILE: u32 = 0o600;

/// Rights of everybody but the owner.
const OTHERS: u32 = 0o077;

/// A directory that all share, such as `/tmp`: only its files are Stoker's own.
const STICKY: u32 = 0o1000;

/// Makes a directory with its parents. Of one that is there, rights of others are taken away.
///
/// # Errors
/// What the system says.
pub fn directory(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(OWNERS_DIRECTORY).create(dir)?;
    restrict(dir)
}

/// How to open a file that nobody else may read once it is made.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(OWNERS_FILE);
    options
}

/// Takes the rights of others away from a file or directory; leaves it as it is where it is another
/// user's.
///
/// # Errors
/// What the system says.
pub fn restrict(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OTHERS == 0 || mode & STICKY != 0 {
        return Ok(());
    }
    match fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) {
        // The root of a volume is root's, and what is in it is Stoker's.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        restricted => restricted,
    }
}

/// Makes sure that what was written of a file, and its name, outlive a power cut.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    // The parent of a bare file name is empty: it stands for this directory.
    let dir = path.parent().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    dir.map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Which file this is, whatever name it has by now.
pub(crate) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_new_directory_is_the_owners_and_so_is_an_old_one_from_now_on() {
        let parent = tempdir().unwrap();
        let dir = parent.path().join("a/b");
        directory(&dir).unwrap();
        assert_eq!(mode(&dir), 0o700);
        fs::set_permissions(&dir, Permissions::from_mode(0o2775)).unwrap();
        directory(&dir).unwrap();
        assert_eq!(mode(&dir), 0o2700);
    }

    #[test]
    fn a_directory_that_all_share_stays_shared() {
        let parent = tempdir().unwrap();
        let dir = parent.path().join("tmp");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o1777)).unwrap();
        directory(&dir).unwrap();
        assert_eq!(mode(&dir), 0o1777);
    }

    #[test]
    fn a_file_that_others_may_read_is_the_owners_from_now_on() {
        let dir = tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        options().write(true).open(&new).unwrap();
        fs::write(&old, "").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
        restrict(&old).unwrap();
        assert_eq!([mode(&new), mode(&old)], [0o600; 2]);
    }
}
