//! `stoker groups` and the second instance, against a running service.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use crate::binary::{command, golden, stoker};

/// A service that ends with the test.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn groups_shows_a_running_service_and_no_second_one_starts_beside_it() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("state");
    let on_any_port = ["--provider-listen", "--expander-listen", "--http-listen"].map(|flag| [flag, "127.0.0.1:0"]);
    let serve = [
        &["serve", "--log-json", "--policy", "policy.yaml", "--state-dir", state.to_str().unwrap()],
        on_any_port.as_flattened(),
    ]
    .concat();
    // The small policy prices a zone that the built-in tables know as well.
    let mut service = Service(command(&serve).stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(service.0.stderr.take().unwrap());
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let mut lines = lines.inspect(|line| println!("{line}"));
    let http = lines.find_map(|line| Some(line["http"].as_str()?.to_owned())).expect("the service says where it listens");

    let url = format!("http://{http}");
    let ready = (0..100).any(|_| {
        let shown = stoker(&["groups", "--url", &url, "--pool", "serving", "-o", "json"]);
        std::thread::sleep(std::time::Duration::from_millis(50));
        shown.code == 0
            && serde_json::from_str::<serde_json::Value>(&shown.out).unwrap()["groups"]
                .as_array()
                .is_some_and(|g| !g.is_empty())
    });
    assert!(ready, "no groups were shown");
    let shown = stoker(&["groups", "--url", &url, "--pool", "serving"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let group = shown.out.lines().find(|line| line.starts_with("serving.g6-xlarge.")).expect(&shown.out);
    assert!(group.contains(" g6.xlarge ") && group.contains('$'), "{group}");
    assert_eq!(stoker(&["groups", "--url", &url, "--pool", "nobody"]).code, 5);

    let second = stoker(&serve);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.err.contains("in use by another Stoker"), "{second:?}");
}

#[test]
fn a_service_that_is_not_there_is_no_panic() {
    let nobody = stoker(&["groups", "--url", "http://127.0.0.1:1"]);
    assert_eq!((nobody.code, nobody.out.as_str()), (1, ""));
    golden("groups-nobody", &nobody.err);
}
