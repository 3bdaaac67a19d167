//! What a service says that was given no cluster, or one that never answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use super::binary::{command, stoker};
use super::journal::{Passes, inventory};
use super::service::Service;
use super::small;

/// The log of a service on any ports, up to where it says that it serves, and where its side port listens.
fn serve(args: &[&str]) -> (Service, Vec<serde_json::Value>, String) {
    let (service, told, _, http) = serve_and_log(args);
    (service, told, http)
}

/// The same, with what it logs from then on.
fn serve_and_log(args: &[&str]) -> (Service, Vec<serde_json::Value>, mpsc::Receiver<serde_json::Value>, String) {
    let on_any_port = ["--provider-listen", "--expander-listen", "--http-listen"].map(|flag| [flag, "127.0.0.1:0"]);
    let all = [&["serve", "--log-json", "--policy", "doubtful-policy.yaml"], on_any_port.as_flattened(), args].concat();
    let mut service = Service(command(&all).stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(service.0.stderr.take().unwrap());
    let mut told: Vec<serde_json::Value> = Vec::new();
    let mut lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let http = lines.find_map(|line| {
        let http = line["http"].as_str().map(str::to_owned);
        told.push(line);
        http
    });
    let (send, later) = mpsc::channel();
    // Read on: a log that nobody reads would stop the service.
    std::thread::spawn(move || lines.for_each(|line| drop(send.send(line))));
    (service, told, later, http.unwrap())
}

fn readyz(http: &str) -> String {
    let mut stream = TcpStream::connect(http).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_the_policy_needs_and_the_service_lacks_is_one_warning_each_at_the_start() {
    let state = tempfile::tempdir().unwrap();
    let (_service, log, http) = serve(&["--state-dir", state.path().to_str().unwrap()]);
    let needs: Vec<_> = log.iter().filter_map(|line| line["need"].as_str()).collect();
    let [floor, windows, probes] = needs.as_slice() else { panic!("{log:?}") };
    assert!(floor.starts_with("warmFloor of pools serving, notebooks: ") && floor.contains("give it --kubeconfig"), "{floor}");
    assert!(windows.starts_with("stabilization of pool notebooks: ") && windows.contains("give it --kubeconfig"), "{windows}");
    assert!(probes.starts_with("evidence: probe of pool notebooks: ") && probes.contains("--probe-listen"), "{probes}");
    assert!(!readyz(&http).contains("kubernetes"), "no cluster is watched");
    let doctor = small(&["doctor", "--policy", "doubtful-policy.yaml", "--autoscaler-args", "--cloud-provider=externalgrpc"]);
    assert_eq!(doctor.out.matches("note:").count(), 3, "{doctor:?}");
    assert!(doctor.out.contains("warmFloor of pools serving, notebooks: no node is kept warm unless"), "{doctor:?}");
}

/// A kubeconfig of an API server that refuses all connections.
fn dead_api_server(dir: &Path) -> PathBuf {
    let config = dir.join("config");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
                clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n";
    std::fs::write(&config, text).unwrap();
    config
}

#[test]
fn an_api_server_that_never_answered_is_not_ok() {
    let dir = tempfile::tempdir().unwrap();
    let config = dead_api_server(dir.path());
    let state = dir.path().join("state");
    let (_service, log, http) = serve(&["--state-dir", state.to_str().unwrap(), "--kubeconfig", config.to_str().unwrap()]);
    assert!(!log.iter().any(|line| line["need"].as_str().is_some_and(|need| need.starts_with("warmFloor"))), "{log:?}");
    let answer = readyz(&http);
    let never = "not-ready kubernetes: the API server has not listed all nodes and pods since the start";
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(never), "{answer}");
}

/// Its client would log every attempt, and not say why it failed.
#[test]
fn a_dead_api_server_is_told_once_a_watch_and_as_connection_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = dead_api_server(dir.path());
    let state = dir.path().join("state");
    let (_service, mut log, later, http) =
        serve_and_log(&["--state-dir", state.to_str().unwrap(), "--kubeconfig", config.to_str().unwrap()]);
    std::thread::sleep(Duration::from_secs(4));
    let answer = readyz(&http);
    assert!(answer.contains("the API server cannot be reached: connection refused"), "{answer}");
    log.extend(later.try_iter());
    let broke = |line: &&serde_json::Value| line["message"] == "a Kubernetes watch broke; keeping the last facts";
    assert_eq!(log.iter().filter(broke).count(), 2, "{log:?}");
    assert!(log.iter().filter(broke).all(|line| line["error"] == "the API server cannot be reached: connection refused"));
    let loud = |line: &&serde_json::Value| line["level"] == "ERROR";
    assert_eq!(log.iter().find(loud), None);
}

#[tokio::test]
async fn nodes_and_advice_say_why_they_know_nothing() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().to_str().unwrap();
    let now: jiff::Timestamp = "2026-11-01T12:00:00Z".parse().unwrap();
    let mut passes = Passes::begin(state.path()).await;
    let before = stoker(&["nodes", "--state-dir", path]);
    assert!(before.code == 0 && before.out.contains("it records its first when nodes are requested or found"), "{before:?}");
    passes.pass(inventory(&[], now), now).await;
    passes.journal.close().await;
    let why = "the service watches no cluster";
    let nodes = stoker(&["nodes", "--state-dir", path]);
    assert!(
        nodes.out.starts_with("No nodes known:") && nodes.out.contains(why) && nodes.out.contains("--kubeconfig"),
        "{nodes:?}"
    );
    assert!(!nodes.out.contains("0 nodes"), "{nodes:?}");
    let held = stoker(&["nodes", "--by", "owner", "--state-dir", path]);
    assert!(held.out.contains("No readings:") && held.out.contains(why), "{held:?}");
    let advice = small(&["advise", "--policy", "advise.yaml", "--state-dir", path]);
    assert!(advice.code == 4 && advice.out.contains(why), "{advice:?}");
    let json = stoker(&["nodes", "--state-dir", path, "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert!(report["unknownBecause"].as_str().is_some_and(|told| told.starts_with(why)), "{report}");
}
