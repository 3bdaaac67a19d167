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

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use stoker_core::base::ids::InstanceType;
use tokio::time::interval;
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::engine::EngineHandle;
use crate::kube::FIELD_MANAGER;
use crate::kube::act::{About, KubeAct, Severity};
use crate::kube::pending::PendingRow;
use crate::publish::view::View;

/// The label by which a namespace lets its pods be given tolerations, with the value `enabled`.
pub const OPT_IN: &str = "stoker.dev/isolation";
/// The annotation that says which dearer shape was opened for a pod, and what that costs.
pub const OPENED: &str = "stoker.dev/opened-shape";

/// Things said once and remembered: above it the cluster has other troubles, and nothing more is said.
const MOST_TOLD: usize = 10_000;

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
    let mut state = State { client, events, open: Names::default(), waiting: Names::default(), told: BTreeSet::new() };
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

fn key(pod: &PendingRow) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
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
    /// What was said already, so that it is said once.
    told: BTreeSet<String>,
}

impl State {
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
        loop {
            let touched = tokio::select! {
                event = namespaces.next() => match event.ok_or(Ended)? {
                    Ok(event) => { self.open.apply(event, ResourceExt::name_any); None }
                    // Without these no pod gets a toleration: that must be seen.
                    Err(error) => { self.once(&format!("namespaces cannot be watched, see manifests/isolation: {error}")); None }
                },
                event = pods.next() => match event.ok_or(Ended)? {
                    Ok(event) => self.waiting.apply(event, key),
                    Err(error) => { debug!(%error, "the watch of pending pods broke and is restarted"); None }
                },
                _ = tick.tick() => {
                    let view = Arc::clone(&engine.view());
                    if isolated(&view) != isolates {
                        return Ok(());
                    }
                    let all: Vec<String> = self.waiting.known.keys().cloned().collect();
                    for key in all {
                        self.look_at(&key, &view, clock.times().wall.0).await;
                    }
                    None
                },
            };
            if let Some(key) = touched {
                let view = Arc::clone(&engine.view());
                self.look_at(&key, &view, clock.times().wall.0).await;
            }
        }
    }

    /// Says something in the log, the first time.
    fn once(&mut self, what: &str) {
        if self.told.len() < MOST_TOLD && self.told.insert(what.to_owned()) {
            warn!("{what}");
        }
    }

    async fn look_at(&mut self, key: &str, view: &View, now: Timestamp) {
        if view.ready.is_err() {
            return;
        }
        self.tell_near_miss(key, view).await;
        self.admit(key, view, now).await;
    }

    /// Tells by an Event on the pod that its selector names what no group has.
    async fn tell_near_miss(&mut self, key: &str, view: &View) {
        let Some(pod) = self.waiting.known.get(key) else { return };
        let Some(miss) = near_miss::near_miss(pod, view) else { return };
        if self.told.len() < MOST_TOLD && self.told.insert(format!("{key} {miss}")) {
            self.events.event(About::Pod(&pod.meta), Severity::Warning, "NoSuchNode", &miss).await;
        }
    }

    /// Gives a waiting pod the tolerations that it lacks.
    async fn admit(&mut self, key: &str, view: &View, now: Timestamp) {
        let Some(pod) = self.waiting.known.get(key) else { return };
        let namespace = pod.namespace().unwrap_or_default();
        let lacking = patch::lacking(pod, view, now);
        if lacking.is_empty() {
            return;
        }
        if !self.open.whole {
            return;
        }
        if !self.open.known.contains_key(&namespace) {
            self.once(&format!(
                "pods in {namespace} wait for an isolated pool and get no tolerations: label the namespace {OPT_IN}=enabled"
            ));
            return;
        }
        let api = Api::<PendingRow>::namespaced(self.client.clone(), &namespace);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&pod.name_any(), &params, &Patch::Merge(patch::patch(pod, &lacking))).await {
            Ok(_) => {
                let shapes: Vec<&str> = lacking.keys().map(InstanceType::as_str).collect();
                info!(pod = key, ?shapes, "a pending pod may use these instance types");
            }
            // It changed or went meanwhile, and the watch tells so next.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                debug!(pod = key, error = status.message, "may not add tolerations to a pending pod");
                self.once(&format!(
                    "Stoker may not change pods in {namespace}, so they get no tolerations: \
                     kubectl -n {namespace} apply -f manifests/isolation"
                ));
            }
            Err(error) => warn!(pod = key, %error, "cannot add tolerations to a pending pod"),
        }
    }
}
