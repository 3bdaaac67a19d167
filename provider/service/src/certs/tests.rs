use std::collections::BTreeMap;

use tempfile::TempDir;

use super::*;

const FILES: [&str; 6] = ["ca.crt", "client.crt", "client.key", "cloud-config.yaml", "server.crt", "server.key"];

fn listed(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    listed(dir).into_iter().map(|name| (name.clone(), fs::read(dir.join(name)).unwrap())).collect()
}

#[test]
fn the_set_is_complete_and_its_keys_are_private() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("new/certs");
    let written = write_tryout(&dir, &[], "cluster-autoscaler").unwrap();
    assert_eq!(listed(&dir), FILES);
    assert_eq!(written.server_key, dir.join("server.key"));
    #[cfg(unix)]
    for name in FILES {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o077;
        assert_eq!(mode == 0, ["client.key", "server.key"].contains(&name), "{name} {mode:o}");
    }
}

#[test]
fn the_autoscalers_configuration_names_the_files() {
    let dir = TempDir::new().unwrap();
    let written = write_tryout(dir.path(), &[], "cluster-autoscaler").unwrap();
    let config: BTreeMap<String, String> = serde_saphyr::from_str(&fs::read_to_string(written.cloud_config).unwrap()).unwrap();
    assert_eq!(config["address"], "localhost:8086");
    for (key, file) in [("key", &written.clients[0].key), ("cert", &written.clients[0].cert), ("cacert", &written.ca)] {
        assert_eq!(Path::new(&config[key]), file);
    }
    assert_eq!(config.len(), 4);
}

#[test]
fn what_is_there_stays_unless_forced() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("server.key"), "precious").unwrap();
    let refused = write_tryout(dir.path(), &[], "a").unwrap_err();
    assert!(refused.to_string().contains("server.key") && refused.to_string().contains("--force"), "{refused}");
    assert_eq!(listed(dir.path()), ["server.key"]);
    assert_eq!(fs::read(dir.path().join("server.key")).unwrap(), b"precious");

    let forced = Tryout { dir: dir.path(), server_names: &[], client_names: &["a"], address: DEFAULT_ADDRESS, force: true };
    forced.write().unwrap();
    let first = content(dir.path());
    assert_eq!(listed(dir.path()), FILES);
    forced.write().unwrap();
    let second = content(dir.path());
    assert!(FILES.iter().filter(|name| **name != "cloud-config.yaml").all(|name| first[*name] != second[*name]));
}

fn outputs() -> Vec<Output> {
    ["one", "two", "three"].map(|name| Output { name: name.to_owned(), text: format!("new {name}"), secret: false }).into()
}

#[test]
fn a_file_that_comes_to_be_meanwhile_undoes_the_rest() {
    let dir = TempDir::new().unwrap();
    let staging = Staging::new(dir.path()).unwrap();
    for output in outputs() {
        staging.stage(&output).unwrap();
    }
    fs::write(dir.path().join("three"), "theirs").unwrap();
    let refused = staging.publish(dir.path(), &outputs(), false).unwrap_err();
    assert!(matches!(refused, CertsError::Exists { .. }), "{refused:?}");
    drop(staging);
    assert_eq!(content(dir.path()), BTreeMap::from([("three".to_owned(), b"theirs".to_vec())]));
}

#[test]
fn a_failure_half_way_puts_the_old_files_back() {
    let dir = TempDir::new().unwrap();
    for name in ["one", "two"] {
        fs::write(dir.path().join(name), format!("old {name}")).unwrap();
    }
    let before = content(dir.path());
    let staging = Staging::new(dir.path()).unwrap();
    for output in outputs() {
        staging.stage(&output).unwrap();
    }
    fs::remove_file(staging.new.join("three")).unwrap();
    let failed = staging.publish(dir.path(), &outputs(), true).unwrap_err();
    assert!(matches!(failed, CertsError::Write { .. }), "{failed:?}");
    drop(staging);
    assert_eq!(content(dir.path()), before);
}

#[test]
fn names_that_no_certificate_can_hold_are_refused_before_anything_is_written() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("certs");
    for name in ["", "host:8086", "a b", "müller", "a..b", "https://host"] {
        let refused = write_tryout(&dir, &[name.to_owned()], "a").unwrap_err();
        assert!(matches!(refused, CertsError::Name { .. }), "{name:?} {refused:?}");
    }
    for name in ["", "a b", "spiffe://a b", "x".repeat(64).as_str()] {
        let refused = write_tryout(&dir, &[], name).unwrap_err();
        assert!(refused.to_string().contains("e.g. cluster-autoscaler"), "{name:?} {refused}");
    }
    assert!(!dir.exists());
}

#[test]
fn an_address_that_the_certificate_would_not_name_is_refused() {
    let dir = TempDir::new().unwrap();
    let with = |address| Tryout { dir: dir.path(), server_names: &[], client_names: &["a"], address, force: false }.write();
    assert!(matches!(with("localhost"), Err(CertsError::Address { .. })));
    assert!(matches!(with("localhost:http"), Err(CertsError::Address { .. })));
    let unnamed = with("stoker.svc:8086").unwrap_err();
    assert!(unnamed.to_string().contains("\"stoker.svc\""), "{unnamed}");
    with("[::1]:8086").unwrap();
}

#[test]
fn each_client_has_files_of_its_own() {
    let dir = TempDir::new().unwrap();
    let with = |client_names: &[&str]| {
        Tryout { dir: dir.path(), server_names: &[], client_names, address: DEFAULT_ADDRESS, force: true }.write()
    };
    let written = with(&["probe:gpu-1", "probe:gpu-2", "ca"]).unwrap();
    let keys: Vec<_> = written.clients.iter().map(|client| client.key.strip_prefix(dir.path()).unwrap()).collect();
    assert_eq!(keys, ["client.key", "client-probe-gpu-2.key", "client-ca.key"].map(Path::new));
    let pems: std::collections::BTreeSet<_> = written.clients.iter().map(|client| fs::read(&client.key).unwrap()).collect();
    assert_eq!(pems.len(), 3);
    let config = fs::read_to_string(written.cloud_config).unwrap();
    assert!(config.contains("client-ca.key") && config.contains("client-ca.crt"), "{config}");
    for same in [["a", "b", "b"], ["a", "probe:b", "probe-b"], ["a", "b", "a"]] {
        assert!(matches!(with(&same), Err(CertsError::Name { .. })), "{same:?}");
    }
}
