use super::*;

#[tokio::test]
async fn renewed_files_are_served_and_broken_ones_are_not() {
    let dir = set("cluster-autoscaler");
    let tls = Tls::load(files(dir.path(), true)).unwrap();
    let mut status = tls.status();
    let stop = CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&tls).watch(stop.clone()));
    let served = serve(listener(Security::Tls(Arc::clone(&tls))).await, &["cluster-autoscaler"]);
    let first = on_disk(dir.path());
    assert_eq!(shown(&served, dir.path()).await, first);

    let renewed = set("cluster-autoscaler");
    let key = std::fs::read(dir.path().join("server.key")).unwrap();
    std::fs::write(dir.path().join("server.key"), "no key at all").unwrap();
    timeout(LONG, status.wait_for(Option::is_some)).await.expect("the fault is seen").unwrap();
    let fault = status.borrow().clone().unwrap();
    assert!(fault.contains("server.key: no private key found") && fault.contains("last good ones are in use"), "{fault}");
    assert_eq!(shown(&served, dir.path()).await, first);

    std::fs::write(dir.path().join("server.key"), key).unwrap();
    timeout(LONG, status.wait_for(Option::is_none)).await.expect("the cure is seen").unwrap();
    status.borrow_and_update();

    for name in ["ca.crt", "server.crt", "server.key", "client.crt", "client.key"] {
        std::fs::copy(renewed.path().join(name), dir.path().join(name)).unwrap();
    }
    let newer = tls.not_after();
    wait_until(|| tls.config_is_of(&renewed)).await;
    // Both are good, and the metric of when they expire has to follow.
    timeout(LONG, status.changed()).await.expect("a renewal is told").unwrap();
    assert_eq!(*status.borrow_and_update(), None);
    assert!(tls.not_after() >= newer);
    assert_eq!(shown(&served, renewed.path()).await, on_disk(renewed.path()));
    check(&served, renewed.path(), Some(renewed.path())).await.unwrap();
    stop.cancel();
    timeout(LONG, watching).await.expect("the watch ends").unwrap();
}

#[tokio::test]
async fn a_bad_deny_list_holds_no_certificate_back_and_forgets_nobody() {
    let (dir, renewed) = (set("cluster-autoscaler"), set("cluster-autoscaler"));
    let list = dir.path().join("denied.txt");
    std::fs::write(&list, "0a\n").unwrap();
    let tls = Tls::load(TlsFiles { denied_serials: Some(list.clone()), ..files(dir.path(), true) }).unwrap();
    for name in ["ca.crt", "server.crt", "server.key"] {
        std::fs::copy(renewed.path().join(name), dir.path().join(name)).unwrap();
    }
    for (text, denied) in [(Some("oops!\n0b\n"), "{\"a\", \"b\"}"), (None, "{\"a\", \"b\"}"), (Some("0b\n"), "{\"b\"}")] {
        match text {
            Some(text) => std::fs::write(&list, text).unwrap(),
            None => std::fs::remove_file(&list).unwrap(),
        }
        tls.reload();
        assert!(tls.config_is_of(&renewed), "{text:?}");
        assert_eq!(format!("{:?}", tls.loaded().denied), format!("Denied({denied})"), "{text:?}");
        let told = tls.status().borrow().clone();
        assert_eq!(told.is_some(), text != Some("0b\n"), "{told:?}");
    }
}

impl Tls {
    /// Whether the chain in use is the one of that set.
    fn config_is_of(&self, set: &TempDir) -> bool {
        let of = TlsFiles {
            cert: set.path().join("server.crt"),
            key: set.path().join("server.key"),
            client_ca: None,
            denied_serials: None,
        };
        of.load().is_ok_and(|loaded| loaded.chain == self.loaded().chain)
    }
}

/// Kubernetes mounts a Secret as links to a link to a directory, and renews it by swapping the middle one.
#[cfg(unix)]
#[tokio::test]
async fn a_swapped_link_is_a_renewal() {
    use std::os::unix::fs::symlink;
    let (one, two) = (set("a"), set("b"));
    let mount = TempDir::new().unwrap();
    symlink(one.path(), mount.path().join("..data")).unwrap();
    for name in ["ca.crt", "server.crt", "server.key"] {
        symlink(Path::new("..data").join(name), mount.path().join(name)).unwrap();
    }
    let tls = Tls::load(files(mount.path(), true)).unwrap();
    let wake = Arc::new(tokio::sync::Notify::new());
    let _watcher = tls.watch_directories(&wake);
    symlink(two.path(), mount.path().join("..data_tmp")).unwrap();
    std::fs::rename(mount.path().join("..data_tmp"), mount.path().join("..data")).unwrap();
    timeout(LONG, wake.notified()).await.expect("the swap is told");
    tls.reload();
    assert!(tls.config_is_of(&two));
}

/// No event comes from the directory that is watched here; only the poll can see the change.
#[cfg(unix)]
#[tokio::test]
async fn the_poll_sees_what_no_event_tells() {
    use std::os::unix::fs::symlink;
    let (one, two) = (set("a"), set("b"));
    let mount = TempDir::new().unwrap();
    symlink(one.path(), mount.path().join("certs")).unwrap();
    let tls = Tls::load(files(&mount.path().join("certs"), true)).unwrap();
    let stop = CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&tls).watch_every(Duration::from_millis(100), stop.clone()));
    symlink(two.path(), mount.path().join("new")).unwrap();
    std::fs::rename(mount.path().join("new"), mount.path().join("certs")).unwrap();
    wait_until(|| tls.config_is_of(&two)).await;
    stop.cancel();
    watching.await.unwrap();
}

/// Browsers speak HTTP/1.1 to renewed certificates too.
#[test]
fn a_renewal_changes_no_protocol() {
    let (dir, renewed) = (set("a"), set("b"));
    let tls = Tls::for_browsers(files(dir.path(), true)).unwrap();
    for name in ["ca.crt", "server.crt", "server.key"] {
        std::fs::copy(renewed.path().join(name), dir.path().join(name)).unwrap();
    }
    assert_eq!(tls.config().alpn_protocols, [b"http/1.1"]);
    tls.reload();
    assert!(tls.config_is_of(&renewed));
    assert_eq!(tls.config().alpn_protocols, [b"http/1.1"]);
}

/// Otherwise each reload would be the cause of the next.
#[tokio::test]
async fn reading_the_files_is_no_change_of_them() {
    let dir = set("a");
    let tls = Tls::load(files(dir.path(), true)).unwrap();
    let wake = Arc::new(tokio::sync::Notify::new());
    let _watcher = tls.watch_directories(&wake);
    files(dir.path(), true).load().unwrap();
    assert!(timeout(Duration::from_millis(300), wake.notified()).await.is_err());
    std::fs::write(dir.path().join("server.key"), "").unwrap();
    timeout(LONG, wake.notified()).await.expect("a change is told");
}
