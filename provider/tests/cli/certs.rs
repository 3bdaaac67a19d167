//! `stoker certs` in a cluster, and `stoker ready` by what it makes.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use jiff::Timestamp;
use stoker_fake_apiserver::ApiServer;

use super::binary::{command, stoker};
use super::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_filled_once_and_left_alone_and_a_wrong_name_is_refused() {
    let server = ApiServer::listen(Timestamp::now).await;
    server.serve_kind("secrets");
    let kubeconfig = server.kubeconfig();
    let certs = |more: &[&str]| stoker(&[&["certs", "--kubeconfig", kubeconfig.to_str().unwrap()], more].concat());
    let wanted = ["--write-secret", "gpu/stoker-tls", "--server-name", "stoker.gpu.svc"];
    let made = certs(&wanted);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.out.contains("made, because there was none\nwritten     gpu/stoker-tls\n"), "{made:?}");
    assert!(made.out.contains("restart an autoscaler"), "{made:?}");
    let left = certs(&wanted);
    assert!(left.code == 0 && left.out.ends_with("left as they are\n") && left.out.lines().count() == 1, "{left:?}");
    let renewed = certs(&[&wanted[..], &["--force"]].concat());
    assert!(renewed.out.contains("made, because asked for"), "{renewed:?}");
    for (bad, words) in [
        (&["--write-secret", "stoker-tls"][..], "give NAMESPACE/NAME"),
        (&[][..], "--dir <DIR>|--write-secret <NAMESPACE/NAME>"),
        (&["--dir", "x", "--write-secret", "a/b"][..], "cannot be used with"),
        (&["--dir", "x", "--write-ca", "a/b"][..], "cannot be used with"),
    ] {
        let ran = certs(bad);
        assert!(ran.code == 2 && (ran.err.contains(words) || ran.err.contains("--write-secret")), "{bad:?}: {ran:?}");
    }
}

#[test]
fn ready_asks_the_side_port_and_the_expander_with_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    assert_eq!(stoker(&["certs", "--dir", &path("certs")]).code, 0);
    let (cert, key, state) = (path("certs/server.crt"), path("certs/server.key"), path("state"));
    let serve = [
        &["serve", "--log-json", "--state-dir", &state, "--expander-cert", &cert, "--expander-key", &key][..],
        ["--provider-listen", "--expander-listen", "--http-listen"].map(|flag| [flag, "127.0.0.1:0"]).as_flattened(),
    ]
    .concat();
    let mut service = Service(command(&serve).stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(service.0.stderr.take().unwrap());
    let mut lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let serving = lines.find(|line| line["http"].is_string()).expect("the service says where it listens");
    std::thread::spawn(move || lines.count());
    let (url, expander) = (format!("http://{}", serving["http"].as_str().unwrap()), serving["expander"].as_str().unwrap());
    let ca = path("certs/ca.crt");
    let ask = ["ready", "--url", &url, "--within", "20s", "--expander", expander, "--expander-ca", &ca];
    let ready = stoker(&ask);
    assert_eq!(
        (ready.code, ready.out),
        (0, format!("ready     {url}/readyz\nexpander  {expander} answers\n")),
        "{}",
        ready.err
    );

    // Another authority's certificate is none of it.
    assert_eq!(stoker(&["certs", "--dir", &path("others")]).code, 0);
    let ca = path("others/ca.crt");
    let refused = stoker(&["ready", "--url", &url, "--expander", expander, "--expander-ca", &ca]);
    assert!(refused.code == 1 && refused.err.contains("the expander does not answer"), "{refused:?}");
    drop(service);
    let away = stoker(&["ready", "--url", &url]);
    assert!(away.code == 1 && away.err.contains("is `stoker serve` running"), "{away:?}");
    assert_eq!(stoker(&["ready", "--expander", expander]).code, 2);
}
