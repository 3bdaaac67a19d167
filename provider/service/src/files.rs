//! Files that a user names: read whole, only where they are files, and only of a size that such files have. A device would be read for ever.
//! A pipe is read where a command reads once, and waited for a bounded time.

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Longest file read, in bytes: a hundred times the longest policy anybody would write by hand.
pub const MAX_BYTES: usize = 4 << 20;

/// How long a named pipe is waited for: whoever writes to a shell's `<(command)` has begun already.
pub const PIPE_WAIT: Duration = Duration::from_secs(10);

/// The name of standard input, where it may be read in the place of a file.
const STDIN: &str = "-";

/// The bytes of a file.
///
/// # Errors
/// What the system says; of what is no regular file or too long, that and the cure.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_or(path, "name a regular file")
}

/// The text of a file.
///
/// # Errors
/// As of [`read`]; of a file that is no text, where it is none and the cure.
pub fn read_text(path: &Path) -> io::Result<String> {
    read(path).and_then(text)
}

/// The text of a file or a pipe, such as a shell's `<(command)`, or of standard input where `path` is `-`.
///
/// # Errors
/// As of [`read_text`]; of a pipe that does not end within [`PIPE_WAIT`], that and the cure.
pub fn read_text_or_stdin(path: &Path) -> io::Result<String> {
    let bytes = if is_stdin(path) {
        bounded(io::stdin().lock())
    } else if std::fs::metadata(path)?.file_type().is_fifo() {
        read_pipe(path)
    } else {
        read_or(path, "name a regular file, or pipe it in and name it -")
    };
    bytes.and_then(text)
}

/// The bytes of a pipe. To open it waits for somebody who writes, and to read it for the end: a thread
/// does both, and is left behind where they take too long.
fn read_pipe(path: &Path) -> io::Result<Vec<u8>> {
    let (send, read) = mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || drop(send.send(File::open(path).and_then(bounded))));
    read.recv_timeout(PIPE_WAIT).unwrap_or_else(|_| {
        let message = format!(
            "it is a pipe that did not end within {} s: write to it, or name a regular file, or pipe it in and name it -",
            PIPE_WAIT.as_secs()
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    })
}

/// What a file is called in messages.
pub fn shown(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new(STDIN)
}

fn read_or(path: &Path, cure: &str) -> io::Result<Vec<u8>> {
    // Asked before it is opened: to open a pipe waits for somebody who writes.
    let kind = std::fs::metadata(path)?.file_type();
    if let Some(what) = no_file(kind) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}: {cure}")));
    }
    bounded(File::open(path)?)
}

/// What something is that is no regular file.
fn no_file(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more than is taken tells that there is more.
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    from.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        let message = format!("it is larger than {} MiB: split or shorten it", MAX_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let (before, rest) = error.as_bytes().split_at(at);
        let line = before.split(|byte| *byte == b'\n').count();
        let byte = rest.first().copied().unwrap_or_default();
        let message = format!("line {line}: the byte 0x{byte:02x} at offset {at} is not UTF-8: save the file as UTF-8");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(path: &Path) -> String {
        read(path).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(why(dir.path()), "it is a directory: name a regular file");
        assert_eq!(why(Path::new("/dev/zero")), "it is a device: name a regular file");
        let socket = dir.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(why(&socket), "it is a socket: name a regular file");
        let told = read_text_or_stdin(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(told, "it is a device: name a regular file, or pipe it in and name it -");
        assert_eq!(read(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        // What a name points to counts, as in a mounted ConfigMap.
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_text(&link).unwrap(), "text");
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![b' '; MAX_BYTES]).unwrap();
        assert_eq!(read(&path).unwrap().len(), MAX_BYTES);
        std::fs::write(&path, vec![b' '; MAX_BYTES + 1]).unwrap();
        assert_eq!(why(&path), "it is larger than 4 MiB: split or shorten it");
        std::fs::write(&path, b"a\n\xff").unwrap();
        let told = read_text(&path).unwrap_err().to_string();
        assert_eq!(told, "line 2: the byte 0xff at offset 2 is not UTF-8: save the file as UTF-8");
    }
}
