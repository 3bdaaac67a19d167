//! Adds tolerations to waiting GPU pods, for the shapes that the policy's isolation admits them to.
//!
//! Kubernetes lets tolerations be added to a pod and never taken away, so nothing here takes any away. A pod is touched only in a
//! namespace that opts in by the label [`OPT_IN`]. If Stoker is away, pods that have their tolerations are scheduled as ever.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stoker_core::choose::price_parts;
use stoker_core::ids::InstanceType;
use stoker_core::isolation::{Admitted, PodNeeds, SHAPE_TAINT, Shape, admitted, shape_taint};
use tokio::time::interval;
use tracing::{debug, info, warn};

use super::FIELD_MANAGER;
use super::pending::PendingRow;
use crate::clock::Clock;
use crate::engine::EngineHandle;
use crate::view::{GroupView, View};

/// The label by which a namespace lets its pods be given tolerations, with the value `enabled`.
pub const OPT_IN: &str = "stoker.dev/isolation";
/// The annotation that says which dearer shape was opened for a pod, and what that costs.
pub const OPENED: &str = "stoker.dev/opened-shape";

/// Pods that no node was chosen for.
const WAITING: &str = "spec.nodeName=,status.phase=Pending";

/// How often all waiting pods are looked at again: prices, stock and the time that they have waited change without an event of theirs.
const EVERY: Duration = Duration::from_secs(2);

/// Why isolation stopped.
#[derive(Debug, thiserror::Error)]
#[error("a watch of waiting pods or of namespaces ended")]
struct Ended;

/// Follows waiting pods for ever and gives them tolerations while any pool is isolated.
pub async fn run(client: Client, engine: EngineHandle, clock: Clock) {
    let mut tick = interval(EVERY);
    loop {
        tick.tick().await;
        if !isolated(&engine.view()) {
            continue;
        }
        if let Err(error) = follow(&client, &engine, &clock).await {
            warn!(%error, "isolation starts over");
        }
    }
}

fn isolated(view: &View) -> bool {
    view.menu.policy.pools.iter().any(|pool| pool.isolation.is_some())
}

/// Until no pool is isolated any more.
async fn follow(client: &Client, engine: &EngineHandle, clock: &Clock) -> Result<(), Ended> {
    let opted_in = watcher::Config::default().labels(&format!("{OPT_IN}=enabled"));
    let mut namespaces = pin!(watcher(Api::<PartialObjectMeta<Namespace>>::all(client.clone()), opted_in).default_backoff());
    let pending = watcher::Config::default().fields(WAITING);
    let mut pods = pin!(watcher(Api::<PendingRow>::all(client.clone()), pending).default_backoff());
    let mut state = State { client: client.clone(), open: Names::default(), waiting: Names::default(), told: BTreeSet::new() };
    let mut tick = interval(EVERY);
    loop {
        let touched = tokio::select! {
            event = namespaces.next() => match event.ok_or(Ended)? {
                Ok(event) => { state.open.apply(event, |namespace| namespace.name_any()); None }
                Err(error) => { debug!(%error, "the watch of namespaces broke and is begun again"); None }
            },
            event = pods.next() => match event.ok_or(Ended)? {
                Ok(event) => state.waiting.apply(event, key),
                Err(error) => { debug!(%error, "the watch of waiting pods broke and is begun again"); None }
            },
            _ = tick.tick() => {
                if !isolated(&engine.view()) {
                    return Ok(());
                }
                let view = Arc::clone(&engine.view());
                let all: Vec<String> = state.waiting.known.keys().cloned().collect();
                for key in all {
                    state.admit(&key, &view, clock.now()).await;
                }
                None
            },
        };
        if let Some(key) = touched {
            let view = Arc::clone(&engine.view());
            state.admit(&key, &view, clock.now()).await;
        }
    }
}

fn key(pod: &PendingRow) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// What a watch knows, by name.
struct Names<T> {
    known: BTreeMap<String, T>,
    /// The list that is being read; it replaces what is known when it is whole.
    listed: BTreeMap<String, T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listed: BTreeMap::new() }
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
            Event::InitDone => self.known = std::mem::take(&mut self.listed),
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

struct State<N> {
    client: Client,
    open: Names<N>,
    waiting: Names<PendingRow>,
    /// Namespaces of which it was said that they have not opted in.
    told: BTreeSet<String>,
}

impl<N> State<N> {
    /// Gives a waiting pod the tolerations that it lacks.
    async fn admit(&mut self, key: &str, view: &View, now: Timestamp) {
        let Some(pod) = self.waiting.known.get(key) else { return };
        let namespace = pod.namespace().unwrap_or_default();
        let lacking = lacking(pod, view, now);
        if lacking.is_empty() {
            return;
        }
        if !self.open.known.contains_key(&namespace) {
            if self.told.insert(namespace.clone()) {
                warn!(namespace, "its pods wait for an isolated pool and get no tolerations: label it {OPT_IN}=enabled");
            }
            return;
        }
        let api = Api::<PendingRow>::namespaced(self.client.clone(), &namespace);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&pod.name_any(), &params, &Patch::Merge(patch(pod, &lacking))).await {
            Ok(_) => {
                let shapes: Vec<&str> = lacking.keys().map(InstanceType::as_str).collect();
                info!(pod = key, ?shapes, "a waiting pod may use these shapes");
            }
            // It changed or went meanwhile, and the watch tells so next.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
            Err(error) => warn!(pod = key, %error, "cannot give a waiting pod its tolerations"),
        }
    }
}

/// The shapes that a pod may use and does not tolerate yet.
fn lacking(pod: &PendingRow, view: &View, now: Timestamp) -> BTreeMap<InstanceType, Admitted> {
    let Some(requests) = pod.requests.filter(|requests| requests.gpus > 0) else { return BTreeMap::new() };
    let needs = PodNeeds {
        milli_cpu: requests.milli_cpu,
        memory_bytes: requests.memory_bytes,
        gpus: u32::try_from(requests.gpus).unwrap_or(u32::MAX),
        waited: pod.created_at.map_or(jiff::SignedDuration::ZERO, |since| now.duration_since(since)),
    };
    let mut all = BTreeMap::new();
    for pool in &view.menu.policy.pools {
        let Some(rules) = &pool.isolation else { continue };
        let of_pool = view.groups.values().filter(|group| group.group.pool == pool.name);
        let shapes: Vec<Shape<'_>> = of_pool
            .filter(|group| view.menu.groups.contains_key(&group.group.id) && pod.admits(&group.group.template, SHAPE_TAINT))
            .filter_map(|group| shape(group, now))
            .collect();
        all.extend(admitted(&needs, &shapes, rules));
    }
    all.retain(|instance_type, _| !pod.tolerates(&shape_taint(instance_type)));
    all
}

fn shape(view: &GroupView, now: Timestamp) -> Option<Shape<'_>> {
    let cheapest = || {
        let offers = view.group.offers.iter();
        offers.filter_map(|offer| Some(price_parts(&view.group, offer, now).ok()?.effective)).min()
    };
    let open = view.limits.listed && view.limits.next_price.is_some();
    Some(Shape { group: &view.group, price: view.limits.next_price.or_else(cheapest)?, open })
}

fn patch(pod: &PendingRow, shapes: &BTreeMap<InstanceType, Admitted>) -> Value {
    let added = shapes
        .keys()
        .map(shape_taint)
        .map(|taint| json!({ "key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect.as_str() }));
    let tolerations: Vec<Value> = pod.tolerations.iter().cloned().chain(added).collect();
    let opened: Vec<String> = shapes
        .iter()
        .filter_map(|(shape, why)| match why {
            Admitted::InClass => None,
            Admitted::ClassSoldOut { extra } => Some(format!("{shape}: its own class is sold out; {extra}/h more")),
        })
        .collect();
    // Only on top of what was read: another writer's tolerations must not be lost.
    let mut metadata = json!({ "resourceVersion": pod.meta.resource_version });
    if !opened.is_empty() {
        metadata["annotations"] = json!({ OPENED: opened.join("; ") });
    }
    json!({ "metadata": metadata, "spec": { "tolerations": tolerations } })
}
