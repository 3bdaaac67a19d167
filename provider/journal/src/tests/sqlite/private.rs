//! Nobody but the owner reads what is in the state directory.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn modes(dir: &Path) -> Vec<(String, u32)> {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut modes: Vec<_> = files.map(|file| (file.file_name().into_string().unwrap(), mode(&file.path()))).collect();
    modes.push((".".to_owned(), mode(dir)));
    modes
}

#[tokio::test]
async fn all_files_are_the_owners_also_those_that_others_could_read() {
    let dir = tempdir().unwrap();
    let state = dir.path().join("state");
    for _ in 0..2 {
        let lock = state_lock::StateLock::take(&state).unwrap();
        let (journal, _) = reopened(&state).await;
        World::new().session(&journal).await.unwrap();
        let shown = modes(&state);
        assert!(shown.len() >= 6, "{shown:?}");
        for (name, mode) in shown {
            assert_eq!(mode, if name == "." { 0o700 } else { 0o600 }, "{name}");
        }
        drop((journal, lock));
        // As releases before left them.
        for (name, _) in modes(&state) {
            let open = if name == "." { 0o755 } else { 0o644 };
            fs::set_permissions(state.join(name), fs::Permissions::from_mode(open)).unwrap();
        }
    }
}
