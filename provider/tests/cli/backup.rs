//! A journal that is backed up while the service runs, lost, and restored.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStderr, Stdio};

use crate::binary::{command, golden, stoker};
use crate::journal::write_a_story;
use crate::service::Service;

/// A service on a state directory, and its log.
struct Served {
    _service: Service,
    http: String,
    log: Lines<BufReader<ChildStderr>>,
}

impl Served {
    fn on(state: &Path) -> Self {
        let on_any_port = ["--provider-listen", "--expander-listen", "--http-listen"].map(|flag| [flag, "127.0.0.1:0"]);
        let serve = ["serve", "--log-json", "--policy", "policy.yaml", "--state-dir", state.to_str().unwrap()];
        let args = [&serve[..], on_any_port.as_flattened()].concat();
        let mut service = Service(command(&args).stderr(Stdio::piped()).spawn().unwrap());
        let mut log = BufReader::new(service.0.stderr.take().unwrap()).lines();
        let http = log
            .by_ref()
            .map(|line| line.unwrap())
            .inspect(|line| println!("{line}"))
            .find_map(|line| Some(serde_json::from_str::<serde_json::Value>(&line).ok()?["http"].as_str()?.to_owned()));
        Self { _service: service, http: http.unwrap(), log }
    }

    /// What `/readyz` says, once it says that.
    fn readyz(&self, wanted: &str) -> String {
        let mut said = String::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(&self.http).unwrap();
            write!(stream, "GET /readyz HTTP/1.0\r\n\r\n").unwrap();
            said.clear();
            stream.read_to_string(&mut said).unwrap();
            if said.contains(wanted) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(said.contains(wanted), "never {wanted:?}: {said}");
        said
    }

    fn logged(&mut self, message: &str) {
        let line = self.log.by_ref().map(|line| line.unwrap()).find(|line| line.contains(message));
        assert!(line.is_some(), "{message}");
    }
}

#[test]
fn a_lost_journal_is_an_alarm_and_a_backup_brings_its_machines_back() {
    let dir = tempfile::tempdir().unwrap();
    let (state, backup) = (dir.path().join("state"), dir.path().join("journal.backup"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(write_a_story(&state));
    let place = dir.path().to_str().unwrap();
    let [at, file] = [&state, &backup].map(|path| path.to_str().unwrap());
    // The last decision is the service's own where it makes one first.
    let made = stoker(&["backup", file, "--state-dir", at]);
    assert_eq!(made.code, 0, "{made:?}");
    golden("backup", &made.out.replace(place, "DIR"));
    let again = stoker(&["backup", file, "--state-dir", at]);
    assert_eq!(again.code, 1, "{again:?}");
    golden("backup-exists", &again.err.replace(place, "DIR"));
    assert_eq!(stoker(&["backup", file, "--state-dir", place]).code, 5);

    let served = Served::on(&state);
    served.readyz("HTTP/1.0 200");
    let live = dir.path().join("live.backup");
    assert_eq!(stoker(&["backup", live.to_str().unwrap(), "--state-dir", at]).code, 0, "while the service runs");
    assert_eq!(stoker(&["restore", file, "--state-dir", at]).code, 1, "but not restored under it");
    drop(served);

    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _ = std::fs::remove_file(state.join(name));
    }
    let mut served = Served::on(&state);
    let said = served.readyz("it was lost or replaced");
    assert!(said.starts_with("HTTP/1.0 200") && said.contains("degraded  journal"), "{said}");
    served.logged("the journal was lost or emptied");
    drop(served);

    let refused = stoker(&["restore", file, "--state-dir", at]);
    assert_eq!(refused.code, 1, "{refused:?}");
    golden("restore-exists", &refused.err.replace(place, "DIR"));
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _ = std::fs::remove_file(state.join(name));
    }
    let restored = stoker(&["restore", file, "--state-dir", at]);
    assert_eq!(restored.code, 0, "{restored:?}");
    golden("restore", &restored.out.replace(place, "DIR"));
    let explained = stoker(&["explain", "d1", "--state-dir", at]);
    assert_eq!(explained.code, 0, "{explained:?}");
    let mut served = Served::on(&state);
    served.readyz("it was lost or replaced");
    served.logged("a backup was restored");
}

#[test]
fn a_pipe_in_the_journals_place_keeps_no_command_waiting() {
    let state = tempfile::tempdir().unwrap();
    let pipe = state.path().join("journal.db");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let at = state.path().to_str().unwrap();
    for args in [&["nodes"][..], &["explain", "d1"], &["commit"], &["advise"], &["backup", "never"], &["serve"]] {
        let mut child = command(&[args, &["--state-dir", at]].concat());
        let mut child = Service(child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let ended = (0..200).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            child.0.try_wait().unwrap()
        });
        let mut error = String::new();
        assert_eq!(ended.and_then(|status| status.code()), Some(1), "{args:?}");
        child.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert!(error.contains("is a pipe, a device or a directory"), "{args:?}: {error}");
    }
}
