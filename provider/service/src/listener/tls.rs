//! Certificates of a listener: loaded once with every fault told, then followed on disk, so that a renewal needs no restart.

mod denied;
mod dial;
mod fault;
mod files;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use notify::{RecursiveMode, Watcher as _};
use rustls::ServerConfig;
use rustls_pki_types::UnixTime;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::connections::{Chain, Connections};
use crate::fs_events::may_have_changed;

pub use dial::DialFiles;
pub use fault::{TlsFault, TlsFaults};
pub use files::{Loaded, TlsFiles};

/// How often the files are read although nothing told that they changed: a mount that sends no events is this late at most.
const POLL: Duration = Duration::from_mins(1);

/// How long to wait after an event: the other files of the same renewal follow within it.
const SETTLE: Duration = Duration::from_millis(250);

/// Names the cryptography that every TLS user of this process shares. Libraries may bring several, and then none is the default.
///
/// Call it first thing in `main`, and in tests; calls after the first do nothing.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Refused only where a default is installed already, and then there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// The certificates in use by one listener.
///
/// # Guarantees
/// A new connection gets the newest files that were good. Files that are not good change nothing but the [status](Tls::status).
///
/// A connection is closed within a minute after its client's certificate has expired or was denied,
/// or its authority was removed.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    /// What is spoken over it, by its name in ALPN.
    protocol: &'static [u8],
    current: ArcSwap<Loaded>,
    status: watch::Sender<Option<String>>,
    tried: Mutex<Tried>,
    /// The connections that began with these certificates, of each listener.
    connections: Mutex<Vec<Weak<Connections>>>,
}

/// What was last tried, good or not: unchanged files are neither parsed nor logged again.
#[derive(Debug)]
struct Tried {
    fingerprint: blake3::Hash,
    refused: Option<String>,
}

impl Tls {
    /// Loads the files for gRPC. They must be good at start.
    ///
    /// # Errors
    /// Every fault of every file.
    pub fn load(files: TlsFiles) -> Result<Arc<Self>, TlsFaults> {
        Self::speaking(b"h2", files)
    }

    /// Loads the files for browsers, which speak HTTP/1.1. They must be good at start.
    ///
    /// # Errors
    /// Every fault of every file.
    pub fn for_browsers(files: TlsFiles) -> Result<Arc<Self>, TlsFaults> {
        Self::speaking(b"http/1.1", files)
    }

    fn speaking(protocol: &'static [u8], files: TlsFiles) -> Result<Arc<Self>, TlsFaults> {
        let contents = files.read();
        let fingerprint = contents.fingerprint();
        let loaded = files.parse_all(contents)?.speaking(protocol);
        let tls = Self {
            files,
            protocol,
            current: ArcSwap::from_pointee(loaded),
            status: watch::Sender::new(None),
            tried: Mutex::new(Tried { fingerprint, refused: None }),
            connections: Mutex::default(),
        };
        tls.report(None);
        Ok(Arc::new(tls))
    }

    /// What a connection that begins now is served with.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.load().config)
    }

    /// Has these connections closed once their clients' certificates are good no more.
    pub(super) fn check_connections(&self, connections: &Arc<Connections>) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(connections));
    }

    /// Checks the certificates of standing connections as if they came now.
    fn close_bad(&self) {
        let loaded = self.loaded();
        let Some(verifier) = &loaded.verifier else { return };
        let now = UnixTime::now();
        let bad = |chain: &Chain| {
            let (own, intermediates) = chain.split_first()?;
            verifier.verify_client_cert(own, intermediates, now).err().map(|error| error.to_string())
        };
        let standing: Vec<_> =
            self.connections.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
        for (remote, why) in standing.iter().flat_map(|connections| connections.close_bad(bad)) {
            tracing::warn!(%remote, "connection closed: its client certificate is good no more: {why}");
        }
    }

    /// What is in use.
    pub fn loaded(&self) -> Arc<Loaded> {
        self.current.load_full()
    }

    /// When the chain in use ends.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.current.load().not_after()
    }

    /// What is wrong: files on disk that were refused (the last good ones are in use), or a chain in use that has expired.
    pub fn status(&self) -> watch::Receiver<Option<String>> {
        self.status.subscribe()
    }

    /// Follows the files until `stop`.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        self.watch_every(POLL, stop).await;
    }

    /// [`watch`](Self::watch) with another poll than once a minute.
    pub(super) async fn watch_every(self: Arc<Self>, poll: Duration, stop: CancellationToken) {
        let wake = Arc::new(Notify::new());
        // Held: events stop when it is dropped.
        let _watcher = self.watch_directories(&wake);
        let mut tick = tokio::time::interval(poll);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // The first tick is at once: it catches what changed between loading and watching.
            tokio::select! {
                () = stop.cancelled() => return,
                () = wake.notified() => tokio::time::sleep(SETTLE).await,
                _ = tick.tick() => {}
            }
            let this = Arc::clone(&self);
            // Reading may hang on a network mount; that must not hold up a worker.
            if tokio::task::spawn_blocking(move || this.reload()).await.is_err() {
                tracing::error!("reading the certificates failed unexpectedly; they are read again in {poll:?}");
            }
        }
    }

    pub(super) fn watch_directories(&self, wake: &Arc<Notify>) -> Option<notify::RecommendedWatcher> {
        let wake = Arc::clone(wake);
        let told = move |event: notify::Result<notify::Event>| {
            if may_have_changed(&event) {
                wake.notify_one();
            }
        };
        let mut watcher = match notify::recommended_watcher(told) {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(%error, "certificate files cannot be watched; they are read every {POLL:?} instead");
                return None;
            }
        };
        // The directories, not the files: Kubernetes renews a mounted Secret by swapping a link beside them.
        for directory in self.directories() {
            if let Err(error) = watcher.watch(&directory, RecursiveMode::NonRecursive) {
                tracing::warn!(directory = %directory.display(), %error, "cannot be watched; certificates there are read every {POLL:?} instead");
            }
        }
        Some(watcher)
    }

    fn directories(&self) -> Vec<PathBuf> {
        let TlsFiles { cert, key, client_ca, denied_serials } = &self.files;
        let parent = |path: &Path| match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut directories: Vec<PathBuf> = [Some(cert), Some(key), client_ca.as_ref(), denied_serials.as_ref()]
            .into_iter()
            .flatten()
            .map(|p| parent(p))
            .collect();
        directories.sort();
        directories.dedup();
        directories
    }

    /// Reads the files and takes them if they changed and are good.
    pub(super) fn reload(&self) {
        let contents = self.files.read();
        let fingerprint = contents.fingerprint();
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.fingerprint != fingerprint {
            tried.fingerprint = fingerprint;
            tried.refused = match self.files.parse(contents, &self.current.load().denied) {
                Ok((loaded, of_list)) => {
                    let until = loaded.not_after().map(|t| t.to_string());
                    tracing::info!(cert = %self.files.cert.display(), until, "certificates reloaded; new connections get them");
                    self.current.store(Arc::new(loaded.speaking(self.protocol)));
                    // What is known of them changed, also where both are good: when they expire.
                    self.status.send_modify(|_| ());
                    (!of_list.0.is_empty()).then(|| {
                        tracing::error!(faults = %of_list, "the deny list has errors; its other lines and those of before count");
                        format!("the deny list has errors, its other lines and those of before count: {of_list}")
                    })
                }
                Err(faults) => {
                    tracing::error!(%faults, "new certificates rejected; the last good ones stay in use");
                    Some(format!("new certificates rejected, the last good ones are in use: {faults}"))
                }
            };
        }
        // Also where nothing changed: what is in use may have expired since, and what clients
        // showed.
        self.report(tried.refused.as_deref());
        drop(tried);
        self.close_bad();
    }

    fn report(&self, refused: Option<&str>) {
        let warnings = self.current.load().warnings(Timestamp::now());
        let mut parts: Vec<String> = refused.map(str::to_owned).into_iter().collect();
        parts.extend(warnings.iter().cloned());
        let status = (!parts.is_empty()).then(|| parts.join("; "));
        let changed = self.status.send_if_modified(|old| {
            let changed = *old != status;
            *old = status;
            changed
        });
        if changed {
            for warning in warnings {
                tracing::warn!("{warning}");
            }
        }
    }
}
