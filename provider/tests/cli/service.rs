//! `stoker groups` and the second instance, against a running service.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::binary::{command, golden, stoker};

/// A service that ends with the test.
pub(crate) struct Service(pub(crate) Child);

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
        &["serve", "--debug", "--log-json", "--policy", "policy.yaml", "--state-dir", state.to_str().unwrap()],
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
    let budget = "budget of pool serving: $0.0000/h of $5.0000/h spent, within budget";
    assert!(shown.out.lines().any(|line| line == budget), "{shown:?}");
    assert_eq!(stoker(&["groups", "--url", &url, "--pool", "nobody"]).code, 5);

    let shown = stoker(&["suppliers", "--url", &url]);
    let supplier = shown.out.lines().find(|line| line.starts_with("simulated  ")).expect(&shown.out);
    assert!(supplier.contains(" simulated ") && supplier.contains(" ago ") && supplier.contains("aws"), "{supplier}");
    let shown: serde_json::Value = serde_json::from_str(&stoker(&["suppliers", "--url", &url, "-o", "json"]).out).unwrap();
    assert_eq!(shown["suppliers"][0]["machines"], 0, "{shown}");
    assert_eq!(shown["refusedAreas"], serde_json::json!([]), "{shown}");

    let second = stoker(&serve);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.err.contains("in use by another Stoker"), "{second:?}");
}

/// A row of the operator's own tables is what the service chooses by, as it is in `plan`.
#[test]
fn the_service_chooses_by_the_price_tables_that_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let tables = dir.path().join("tables");
    std::fs::create_dir(&tables).unwrap();
    let given = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/input/prices");
    for table in std::fs::read_dir(given).unwrap().map(Result::unwrap) {
        let text = std::fs::read_to_string(table.path()).unwrap();
        std::fs::write(tables.join(table.file_name()), text.replace(",0.8048,", ",0.7048,")).unwrap();
    }
    let file = dir.path().join("policy.yaml");
    std::fs::write(&file, policy("use1-az1").replace("limits", "capacity: {prefer: [on-demand]}, limits")).unwrap();
    let (tables, file, state) = (tables.to_str().unwrap(), file.to_str().unwrap(), dir.path().join("state"));
    let plan = stoker(&["plan", "--policy", file, "--prices-dir", tables, "--pool", "dev", "--count", "1"]);
    assert!(plan.out.contains("$0.7048/node-h"), "{plan:?}");

    let on_any_port = ["--provider-listen", "--expander-listen", "--http-listen"].map(|flag| [flag, "127.0.0.1:0"]);
    let serve = ["serve", "--debug", "--log-json", "--prices-dir", tables, "--policy", file, "--state-dir"];
    let serve = [&serve[..], &[state.to_str().unwrap()], on_any_port.as_flattened()].concat();
    let mut service = Service(command(&serve).stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(service.0.stderr.take().unwrap());
    let mut lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let http = lines.find_map(|line| Some(line["http"].as_str()?.to_owned())).expect("the service says where it listens");
    std::thread::spawn(move || lines.count());
    let url = format!("http://{http}");
    let shown = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let shown = stoker(&["groups", "--url", &url, "--all"]);
        shown.out.contains("g6.xlarge").then_some(shown.out)
    });
    let shown = shown.expect("no groups were shown");
    assert!(shown.contains("$0.7048") && !shown.contains("$0.8048"), "{shown}");
}

/// The autoscaler has its connections however many others are open elsewhere, and few files there
/// may be.
#[cfg(unix)]
#[test]
fn unfinished_requests_on_the_side_port_leave_the_autoscaler_its_files() {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;
    let state = tempfile::tempdir().unwrap();
    let on_any_port = ["--provider-listen", "--expander-listen", "--http-listen"].map(|flag| [flag, "127.0.0.1:0"]);
    let serve = [&["serve", "--log-json", "--state-dir", state.path().to_str().unwrap()], on_any_port.as_flattened()].concat();
    let stoker = command(&serve);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 200 && exec \"$0\" \"$@\""]).arg(stoker.get_program()).args(stoker.get_args());
    limited.envs(stoker.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut service = Service(limited.stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(service.0.stderr.take().unwrap());
    let mut lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let serving = lines.find(|line| line["message"] == "serving").expect("the service says where it listens");
    // Read on: a log that nobody reads would stop the service.
    std::thread::spawn(move || lines.count());
    let at = |listener: &str| serving[listener].as_str().unwrap().to_owned();

    let hostile: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(at("http")).unwrap();
            let _ = stream.write_all(b"GET /metr");
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    for listener in ["provider", "expander"] {
        let mut stream = TcpStream::connect(at(listener)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The preface of HTTP/2 and empty settings; settings come back.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).unwrap_or_else(|error| panic!("{listener}: {error}"));
        assert_eq!(frame[3], 4, "{listener}");
    }
    drop(hostile);
}

/// Whoever reaches the port may speak for any node, and flags of another door cure nothing.
#[test]
fn plaintext_for_probes_is_refused_off_this_machine_with_the_flags_of_their_door() {
    let state = tempfile::tempdir().unwrap();
    let on_any_port = ["--provider-listen", "--expander-listen", "--http-listen"].map(|flag| [flag, "127.0.0.1:0"]);
    let serve = [
        &["serve", "--policy", "policy.yaml", "--state-dir", state.path().to_str().unwrap(), "--probe-listen", "0.0.0.0:0"],
        on_any_port.as_flattened(),
    ]
    .concat();
    let refused = stoker(&serve);
    assert_eq!(refused.code, 2, "{refused:?}");
    for part in ["--probe-listen 0.0.0.0:0", "--probe-cert, --probe-key and --probe-client-ca", "--allow-plaintext"] {
        assert!(refused.err.contains(part), "{part}: {refused:?}");
    }
}

/// What a pool of one zone says; the tables know no zone z.
fn policy(zone: &str) -> String {
    format!(
        "{{apiVersion: stoker.dev/v1alpha1, kind: Policy, clusterName: logged, pools: [{{name: dev, workload: dev, \
         gpu: {{models: [L4], count: 1}}, where: {{clouds: [aws], regions: [us-east-1], zones: [{zone}]}}, limits: {{maxNodes: 1}}}}]}}"
    )
}

#[cfg(unix)]
#[test]
fn the_log_tells_what_is_served_what_became_of_the_policy_and_why_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let (state, file) = (dir.path().join("state"), dir.path().join("policy.yaml"));
    std::fs::write(&file, policy("us-east-1a")).unwrap();
    let (file_name, state_name) = (file.to_str().unwrap(), state.to_str().unwrap());
    let on_any_port = ["--provider-listen", "--expander-listen", "--http-listen"].map(|flag| [flag, "127.0.0.1:0"]);
    let serve =
        [&["serve", "--log-json", "--policy", file_name, "--state-dir", state_name], on_any_port.as_flattened()].concat();
    let mut service = Service(command(&serve).stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(service.0.stderr.take().unwrap());
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let mut lines = lines.inspect(|line| println!("{line}"));
    let mut line = |message: &str| lines.find(|line| line["message"].as_str().is_some_and(|m| m.starts_with(message))).unwrap();

    let resumed = line("resumed from the journal");
    assert_eq!((&resumed["records"], &resumed["machines"]), (&0.into(), &0.into()));
    let serving = line("serving");
    let told = ["policy", "state_dir", "suppliers", "cluster"].map(|field| serving[field].as_str().unwrap());
    assert_eq!(told, [file_name, state_name, "simulated", "none"]);

    std::fs::remove_file(&file).unwrap();
    let gone = line("policy rejected");
    assert!(gone["fault"].as_str().unwrap().contains("cannot be read: No such file"), "{gone}");
    std::fs::write(&file, b"kind: Policy\nname: \xff\n").unwrap();
    let torn = line("policy rejected");
    let said = "line 2: the byte 0xff at offset 19 is not UTF-8: save the file as UTF-8";
    assert!(torn["fault"].as_str().unwrap().ends_with(said), "{torn}");
    std::fs::write(&file, policy("us-east-1z")).unwrap();
    line("policy reloaded");
    let dead = line("a name in the policy matches nothing");
    assert_eq!((&dead["pool"], &dead["kind"], &dead["name"]), (&"dev".into(), &"zone".into(), &"us-east-1z".into()));

    assert!(Command::new("kill").arg(service.0.id().to_string()).status().unwrap().success());
    assert_eq!(line("stopping: no new calls are accepted, running calls are finished")["signal"], "SIGTERM");
    assert!(service.0.wait().unwrap().success());
}

#[test]
fn inside_a_cluster_the_simulated_supplier_must_be_asked_for_whatever_is_watched() {
    let state = tempfile::tempdir().unwrap();
    let serve = ["serve", "--state-dir", state.path().to_str().unwrap()];
    for watched in [&["--no-kubernetes"][..], &["--kubeconfig", "absent"], &[]] {
        let output = command(&[&serve[..], watched].concat()).env("KUBERNETES_SERVICE_HOST", "10.0.0.1").output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{watched:?} {error}");
        assert!(error.contains("Give --simulated-in-cluster"), "{watched:?} {error}");
    }
}

#[test]
fn a_service_that_is_not_there_is_no_panic() {
    let nobody = stoker(&["groups", "--url", "http://127.0.0.1:1"]);
    assert_eq!((nobody.code, nobody.out.as_str()), (1, ""));
    golden("groups-nobody", &nobody.err);
}
