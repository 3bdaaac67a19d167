//! Hot reload of the policy file. A bad file never replaces a good one: the last good policy stays, and the fault is shown.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecursiveMode, Watcher as _};
use stoker_core::catalogue::Catalogue;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::feeds::AllMarketFacts;
use crate::files::{self, read_text};
use crate::fs_events::may_have_changed;
use crate::policy_file;
use crate::publish::telemetry::Metrics;
use crate::suppliers::without_nodes;
use crate::unmatched::{Unmatched, unmatched};

/// The file is read at least so often, whether or not the system told of a change: some network file systems tell nothing.
const POLL: Duration = Duration::from_secs(30);

/// How long after a change the file is read: a ConfigMap update is several renames.
const SETTLE: Duration = Duration::from_millis(100);

/// Why a policy file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("{}: cannot be read", files::shown(.0))]
    Read(PathBuf, #[source] std::io::Error),
    /// It has faults.
    #[error("{0}")]
    Faults(crate::yaml::Faults),
    /// It names another cluster than the one served: keys of machines carry the cluster's name.
    #[error("{}: clusterName changed from {old} to {new}: that needs a restart with a new state directory", .path.display())]
    ClusterChanged {
        /// The file.
        path: PathBuf,
        /// The name served.
        old: String,
        /// The name in the file.
        new: String,
    },
}

/// Reads a policy file.
///
/// # Errors
/// All that is wrong with it.
pub fn read(path: &Path, book: &PriceBook) -> Result<Policy, PolicyError> {
    let text = read_text(path).map_err(|source| PolicyError::Read(path.to_owned(), source))?;
    policy_file::parse(&path.display().to_string(), &text, Some(book)).map_err(PolicyError::Faults)
}

/// Follows a policy file.
pub struct PolicyWatch {
    path: PathBuf,
    book: Arc<PriceBook>,
    policy: watch::Sender<Arc<Policy>>,
    fault: watch::Sender<Option<String>>,
    last_text: Option<String>,
    wake: Arc<Notify>,
    metrics: Metrics,
    clock: Clock,
    markets: watch::Receiver<Arc<AllMarketFacts>>,
}

/// Logs each name in the policy that yields no group, and each pool that its supplier can make no node for.
pub fn warn_of_unmatched(policy: &Arc<Policy>, book: &PriceBook, facts: &AllMarketFacts) {
    let catalogue = Catalogue::derive(policy, book, facts);
    for Unmatched { pool, kind, name, reason } in unmatched(&catalogue, book, facts) {
        tracing::warn!(%pool, %kind, name, reason, "a name in the policy matches nothing");
    }
    for supplier in facts.keys() {
        for said in without_nodes(&catalogue, supplier) {
            tracing::warn!(%supplier, "{said}");
        }
    }
}

impl PolicyWatch {
    /// A watch over `path`, whose content was `policy` a moment ago.
    pub fn new(
        path: PathBuf,
        book: Arc<PriceBook>,
        policy: watch::Sender<Arc<Policy>>,
        wake: Arc<Notify>,
        metrics: Metrics,
        clock: Clock,
        markets: watch::Receiver<Arc<AllMarketFacts>>,
    ) -> Self {
        // Read again at once: it may have changed while the rest of the service started.
        Self { path, book, policy, fault: watch::Sender::new(None), last_text: None, wake, metrics, clock, markets }
    }

    /// What is wrong with the file now; `None` while it is the policy in use.
    pub fn fault(&self) -> watch::Receiver<Option<String>> {
        self.fault.subscribe()
    }

    /// Follows the file until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let bell = Arc::clone(&changed);
        let told = move |event| {
            if may_have_changed(&event) {
                bell.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(told).and_then(|mut watcher| {
            // The directory, not the file: an atomic rename or a ConfigMap's symlink swap replaces the file itself.
            let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            watcher.watch(dir, RecursiveMode::NonRecursive).map(|()| watcher)
        });
        if let Err(error) = &watcher {
            tracing::warn!(%error, "the policy's directory cannot be watched; the file is read every {} s", POLL.as_secs());
        }
        loop {
            self.reload();
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed.notified() => tokio::time::sleep(SETTLE).await,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    fn reload(&mut self) {
        let text = match read_text(&self.path) {
            Ok(text) => text,
            Err(source) => {
                // What it says once it can be read again is news, even if it says what it said.
                self.last_text = None;
                return self.refuse(&PolicyError::Read(self.path.clone(), source), 1);
            }
        };
        if self.last_text.as_ref() == Some(&text) && self.fault.borrow().is_none() {
            return;
        }
        let same_fault = self.last_text.as_ref() == Some(&text);
        self.last_text = Some(text.clone());
        match policy_file::parse(&self.path.display().to_string(), &text, Some(&self.book)) {
            Ok(policy) if policy.cluster != self.policy.borrow().cluster => {
                let old = self.policy.borrow().cluster.to_string();
                let error = PolicyError::ClusterChanged { path: self.path.clone(), old, new: policy.cluster.to_string() };
                self.refuse(&error, 1);
            }
            Ok(policy) => {
                self.fault.send_replace(None);
                self.metrics.policy_taken(self.clock.now());
                let changed = self.policy.send_if_modified(|current| {
                    let changed = **current != policy;
                    if changed {
                        *current = Arc::new(policy);
                    }
                    changed
                });
                if changed {
                    tracing::info!(path = %self.path.display(), "policy reloaded");
                    warn_of_unmatched(&self.policy.borrow(), &self.book, &self.markets.borrow());
                    self.wake.notify_one();
                }
            }
            Err(_) if same_fault => {}
            Err(faults) => {
                let count = faults.iter().count();
                self.refuse(&PolicyError::Faults(faults), count);
            }
        }
    }

    fn refuse(&self, error: &PolicyError, faults: usize) {
        let reason = error.source().map(|reason| format!(": {reason}")).unwrap_or_default();
        let text = format!("{error}{reason}");
        if self.fault.borrow().as_ref() == Some(&text) {
            return;
        }
        tracing::error!(fault = %text, "policy rejected; the last good one stays in use");
        self.metrics.policy_refused(faults);
        self.fault.send_replace(Some(text));
    }
}
