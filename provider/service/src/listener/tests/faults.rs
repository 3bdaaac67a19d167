use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};

use super::*;
use crate::certs::Tryout;

/// The faults of the set in `dir`, one a line, without the directory.
fn faults(dir: &Path) -> Vec<String> {
    let told = files(dir, true).load().unwrap_err();
    let prefix = format!("{}/", dir.display());
    told.0.iter().map(|fault| fault.to_string().replace(&prefix, "")).collect()
}

#[test]
fn all_faults_are_told_at_once_each_with_its_cure() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("server.key"), "").unwrap();
    std::fs::write(dir.path().join("ca.crt"), [0x30, 0x82, 0xff, 0xfe]).unwrap();
    let told = faults(dir.path());
    assert_eq!(told.len(), 3, "{told:#?}");
    assert!(told[0].starts_with("server.crt: cannot be read: there is no such file"), "{told:#?}");
    assert!(told[1].starts_with("server.key: no private key found: expects PEM PKCS#8"), "{told:#?}");
    assert!(told[1].ends_with("the file is empty"), "{told:#?}");
    assert!(told[2].starts_with("ca.crt: no certificate found") && told[2].contains("binary"), "{told:#?}");
}

#[test]
fn a_key_of_another_certificate_is_told() {
    let (dir, other) = (set("a"), set("b"));
    std::fs::copy(other.path().join("server.key"), dir.path().join("server.key")).unwrap();
    let told = faults(dir.path());
    assert!(
        told.len() == 1 && told[0].starts_with("server.key: the key does not match the first certificate of server.crt"),
        "{told:#?}"
    );

    let dir = set("a");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    std::fs::write(dir.path().join("server.crt"), read("ca.crt") + &read("server.crt")).unwrap();
    let told = faults(dir.path());
    assert!(told.iter().any(|t| t.contains("it matches certificate 2: put that one first")), "{told:#?}");
}

#[test]
fn swapped_and_encrypted_and_torn_files_are_told() {
    let dir = set("a");
    let path = |name: &str| dir.path().join(name);
    let key = std::fs::read_to_string(path("server.key")).unwrap();
    std::fs::write(path("server.key"), std::fs::read(path("server.crt")).unwrap()).unwrap();
    assert!(faults(dir.path())[0].ends_with("the file contains CERTIFICATE"), "{:?}", faults(dir.path()));
    std::fs::write(path("server.key"), key.replace("PRIVATE", "ENCRYPTED PRIVATE")).unwrap();
    assert!(faults(dir.path())[0].contains("the private key is encrypted"), "{:?}", faults(dir.path()));
    std::fs::write(path("server.key"), &key[..key.len() - 30]).unwrap();
    assert!(faults(dir.path())[0].contains("cut short"), "{:?}", faults(dir.path()));
    std::fs::write(path("server.key"), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    assert!(faults(dir.path())[0].contains("the private key cannot be used"), "{:?}", faults(dir.path()));
    std::fs::write(path("server.crt"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    assert!(faults(dir.path())[0].contains("server.crt: certificate 1 cannot be used"), "{:?}", faults(dir.path()));
}

/// Puts a self-signed server certificate into `dir`.
fn own_certificate(dir: &Path, change: impl FnOnce(&mut CertificateParams)) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    change(&mut params);
    std::fs::write(dir.join("server.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(dir.join("server.key"), key.serialize_pem()).unwrap();
}

#[test]
fn a_certificate_that_clients_would_refuse_is_told() {
    let dir = set("a");
    own_certificate(dir.path(), |params| {
        params.subject_alt_names.clear();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let told = faults(dir.path());
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("subject alternative names"), "{told:#?}");
    assert!(told[1].contains("serverAuth"), "{told:#?}");
}

#[test]
fn an_expired_certificate_is_served_with_a_warning_that_has_the_date() {
    let dir = set("a");
    own_certificate(dir.path(), |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let tls = Tls::load(files(dir.path(), true)).unwrap();
    let status = tls.status().borrow().clone().unwrap();
    assert!(status.contains("server.crt: certificate 1 expired at 2021-01-01T00:00:00Z"), "{status}");

    let loaded = files(dir.path(), true).load().unwrap();
    let early = loaded.warnings("2019-06-01T00:00:00Z".parse().unwrap());
    assert!(early.len() == 1 && early[0].contains("not valid before 2020-01-01T00:00:00Z"), "{early:?}");
    assert!(loaded.warnings("2020-06-01T00:00:00Z".parse().unwrap()).is_empty());
}

#[test]
fn a_tryout_lasts_a_year() {
    let dir = set("a");
    let until = files(dir.path(), true).load().unwrap().not_after().unwrap();
    let left = until.duration_since(Timestamp::now());
    assert!(left > SignedDuration::from_hours(364 * 24) && left <= SignedDuration::from_hours(365 * 24), "{left}");
}

#[test]
fn the_server_is_named_by_what_is_asked_for() {
    install_crypto();
    let dir = TempDir::new().unwrap();
    let names = ["stoker.kube-system.svc".to_owned(), "10.1.2.3".to_owned()];
    let address = "stoker.kube-system.svc:8086";
    Tryout { dir: dir.path(), server_names: &names, client_names: &["ca"], address, force: false }.write().unwrap();
    let der = on_disk(dir.path());
    let parsed = rustls::server::ParsedCertificate::try_from(&der).unwrap();
    for name in ["localhost", "127.0.0.1", "::1", "stoker.kube-system.svc", "10.1.2.3"] {
        rustls::client::verify_server_name(&parsed, &ServerName::try_from(name).unwrap()).unwrap();
    }
}
