//! What is done for pods that wait: those of isolated pools get tolerations for the shapes that the policy admits them to, and one whose
//! selector names what no group has is told so by an Event.
//!
//! Kubernetes lets tolerations be added to a pod and never taken away, so nothing here takes any away. A pod is touched only in a
//! namespace that opts in by the label [`OPT_IN`]. If Stoker is away, pods that have their tolerations are scheduled as ever.

mod near_miss;
mod patch;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use stoker_core::base::ids::InstanceType;
use tokio::sync::Semaphore;
use tokio::time::{interval, timeout};
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::engine::EngineHandle;
use crate::kube::FIELD_MANAGER;
use crate::kube::act::{About, DEADLINE, KubeAct, Severity};
use crate::kube::pending::PendingRow;
use crate::publish::view::View;

/// The label by which a namespace lets its pods be given tolerations, with the value `enabled`.
pub const OPT_IN: &str = "stoker.dev/isolation";
/// The annotation that says which dearer shape was opened for a pod, and what that costs.
pub const OPENED: &str = "stoker.dev/opened-shape";

/// Pods that calls are made about at a time: a slow call keeps few others waiting, and a burst of pods
/// leaves room for the API server's other clients.
const AT_ONCE: usize = 16;

/// Pods that no node was chosen for.
const WAITING: &str = "spec.nodeName=,status.phase=Pending";

/// How often all waiting pods are looked at again: prices, stock and the time that they have waited change without an event of theirs.
const EVERY: Duration = Duration::from_secs(2);

/// Why following waiting pods stopped.
#[derive(Debug, thiserror::Error)]
#[error("a watch of pending pods or of namespaces ended")]
struct Ended;

/// Follows waiting pods for ever; Events about them go out through `events`.
pub async fn run(client: Client, engine: EngineHandle, clock: Clock, events: Arc<KubeAct>) {
    let mut state = State::new(client, events);
    let mut tick = interval(EVERY);
    loop {
        tick.tick().await;
        if let Err(error) = state.follow(&engine, &clock).await {
            warn!(%error, "watching pending pods starts over");
        }
    }
}

fn isolated(view: &View) -> bool {
    view.catalogue.policy.pools.iter().any(|pool| pool.isolation.is_some())
}

/// What a watch knows, by name.
struct Names<T> {
    known: BTreeMap<String, T>,
    /// The list that is being read; it replaces what is known when it is whole.
    listed: BTreeMap<String, T>,
    /// Whether a list was read to its end.
    whole: bool,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listed: BTreeMap::new(), whole: false }
    }
}

impl<T> Names<T> {
    /// Takes an event in; the name of the object that came or changed by it.
    fn apply(&mut self, event: Event<T>, name: impl Fn(&T) -> String) -> Option<String> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.insert(name(&object), object);
            }
            Event::InitDone => {
                self.known = std::mem::take(&mut self.listed);
                self.whole = true;
            }
            Event::Apply(object) => {
                let name = name(&object);
                self.known.insert(name.clone(), object);
                return Some(name);
            }
            Event::Delete(object) => {
                self.known.remove(&name(&object));
            }
        }
        None
    }
}

struct State {
    client: Client,
    events: Arc<KubeAct>,
    /// Namespaces that opted in.
    open: Names<PartialObjectMeta<Namespace>>,
    waiting: Names<PendingRow>,
    /// What each waiting pod was last told, so that it is told once.
    told: BTreeMap<String, String>,
    /// What the log last said of each namespace with waiting pods; of no namespace under the empty name.
    logged: BTreeMap<String, String>,
    /// Pods that a call is made about, or waits to be made.
    under_way: BTreeSet<String>,
    permits: Arc<Semaphore>,
}

/// The end of the calls about a pod.
struct Done {
    pod: String,
    /// The namespace whose pods may not be changed, where the API server said so.
    forbidden: Option<String>,
}

/// Calls about a pod; each of them has a time limit.
type Calls = BoxFuture<'static, Done>;

impl State {
    fn new(client: Client, events: Arc<KubeAct>) -> Self {
        Self {
            client,
            events,
            open: Names::default(),
            waiting: Names::default(),
            told: BTreeMap::new(),
            logged: BTreeMap::new(),
            under_way: BTreeSet::new(),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Until isolation is begun or ended by the policy: without it, namespaces are nobody's business.
    async fn follow(&mut self, engine: &EngineHandle, clock: &Clock) -> Result<(), Ended> {
        let isolates = isolated(&engine.view());
        let opted_in = watcher::Config::default().labels(&format!("{OPT_IN}=enabled"));
        let mut namespaces = if isolates {
            watcher(Api::all(self.client.clone()), opted_in).default_backoff().boxed()
        } else {
            stream::pending().boxed()
        };
        let pending = watcher::Config::default().fields(WAITING);
        let mut pods = pin!(watcher(Api::<PendingRow>::all(self.client.clone()), pending).default_backoff());
        let mut tick = interval(EVERY);
        // Dropped unfinished where this returns: what they were about is looked at again.
        let mut calls: FuturesUnordered<Calls> = FuturesUnordered::new();
        self.under_way.clear();
        loop {
            let touched: Vec<String> = tokio::select! {
                event = namespaces.next() => {
                    match event.ok_or(Ended)? {
                        Ok(event) => drop(self.open.apply(event, ResourceExt::name_any)),
                        // Without these no pod gets a toleration: that must be seen.
                        Err(error) => {
                            self.log_once("", format!("namespaces cannot be watched, see manifests/isolation: {error}"));
                        }
                    }
                    continue;
                }
                Some(done) = calls.next() => {
                    self.ended(done);
                    continue;
                }
                event = pods.next() => match event.ok_or(Ended)? {
                    Ok(event) => self.waiting.apply(event, PendingRow::key).into_iter().collect(),
                    Err(error) => { debug!(%error, "the watch of pending pods broke and is restarted"); continue }
                },
                _ = tick.tick() => {
                    if isolated(&engine.view()) != isolates {
                        return Ok(());
                    }
                    self.forget();
                    self.waiting.known.keys().cloned().collect()
                },
            };
            let view = Arc::clone(&engine.view());
            let now = clock.times().wall.0;
            calls.extend(touched.iter().filter_map(|key| self.look_at(key, &view, now)));
        }
    }

    /// Forgets what was said of pods that wait no more, and of namespaces without any that does.
    fn forget(&mut self) {
        let Self { told, logged, waiting: Names { known, .. }, .. } = self;
        told.retain(|pod, _| known.contains_key(pod));
        let namespaces: BTreeSet<&str> = known.keys().filter_map(|pod| pod.split('/').next()).collect();
        logged.retain(|namespace, _| namespace.is_empty() || namespaces.contains(namespace.as_str()));
    }

    /// Says something of a namespace in the log, unless that was the last thing said of it.
    fn log_once(&mut self, namespace: &str, what: String) {
        if self.logged.get(namespace) != Some(&what) {
            warn!("{what}");
            self.logged.insert(namespace.to_owned(), what);
        }
    }

    /// The calls that a waiting pod needs now; `None` where it needs none, or some are made already.
    fn look_at(&mut self, key: &str, view: &View, now: Timestamp) -> Option<Calls> {
        if view.ready.is_err() || self.under_way.contains(key) {
            return None;
        }
        let pod = self.waiting.known.get(key)?;
        let meta = pod.meta.clone();
        let miss = near_miss::near_miss(pod, view).filter(|miss| self.told.get(key) != Some(miss));
        let change = self.change(key, view, now);
        if miss.is_none() && change.is_none() {
            return None;
        }
        self.told.extend(miss.clone().map(|miss| (key.to_owned(), miss)));
        self.under_way.insert(key.to_owned());
        let (events, permits, pod) = (Arc::clone(&self.events), Arc::clone(&self.permits), key.to_owned());
        Some(Box::pin(async move {
            // Those that wait are served in order. The semaphore is never closed.
            let _permit = permits.acquire().await;
            if let Some(miss) = miss {
                events.event(About::Pod(&meta), Severity::Warning, "NoSuchNode", &miss).await;
            }
            let forbidden = match change {
                Some(change) => change.make(&pod).await,
                None => None,
            };
            Done { pod, forbidden }
        }))
    }

    /// The change that gives a waiting pod the tolerations that it lacks; `None` where it lacks none, or may have none.
    fn change(&mut self, key: &str, view: &View, now: Timestamp) -> Option<Change> {
        let pod = self.waiting.known.get(key)?;
        let lacking = patch::lacking(pod, view, now);
        if lacking.is_empty() || !self.open.whole {
            return None;
        }
        let namespace = pod.namespace().unwrap_or_default();
        if !self.open.known.contains_key(&namespace) {
            let what = format!(
                "pods in {namespace} wait for an isolated pool and get no tolerations: label the namespace {OPT_IN}=enabled"
            );
            self.log_once(&namespace, what);
            return None;
        }
        let api = Api::namespaced(self.client.clone(), &namespace);
        let shapes = lacking.keys().cloned().collect();
        Some(Change { api, name: pod.name_any(), namespace, patch: patch::patch(pod, &lacking), shapes })
    }

    /// Takes in how calls ended.
    fn ended(&mut self, Done { pod, forbidden }: Done) {
        self.under_way.remove(&pod);
        if let Some(namespace) = forbidden {
            let what = format!(
                "Stoker may not change pods in {namespace}, so they get no tolerations: \
                 kubectl -n {namespace} apply -f manifests/isolation"
            );
            self.log_once(&namespace, what);
        }
    }
}

/// A change to a waiting pod.
struct Change {
    api: Api<PendingRow>,
    name: String,
    namespace: String,
    patch: Value,
    /// What the pod may use by it.
    shapes: Vec<InstanceType>,
}

impl Change {
    /// Makes it, within [`DEADLINE`]; the namespace, where the API server does not allow it. A change that fails otherwise is tried again
    /// when the pod is looked at next.
    async fn make(self, pod: &str) -> Option<String> {
        let Self { api, name, namespace, patch, shapes } = self;
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match timeout(DEADLINE, api.patch(&name, &params, &Patch::Merge(patch))).await {
            Ok(Ok(_)) => info!(pod, ?shapes, "a pending pod may use these instance types"),
            // It changed or went meanwhile, and the watch tells so next.
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_not_found() => {}
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                debug!(pod, error = status.message, "may not add tolerations to a pending pod");
                return Some(namespace);
            }
            Ok(Err(error)) => warn!(pod, %error, "cannot add tolerations to a pending pod"),
            Err(_) => warn!(pod, "cannot add tolerations to a pending pod: no answer within {} s", DEADLINE.as_secs()),
        }
        None
    }
}

#[cfg(test)]
mod tests;
