//! The only writer: each call changes fields that Stoker owns, of one object, on top of what was seen of it.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions, TypeMeta};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stoker_core::policy::rules::karpenter::LIMITS_MARK;
use stoker_service::controllers::buffers::covers;
use stoker_service::kube::client::in_words;
use tokio::time::timeout;

use super::marks::{
    DO_NOT_DISRUPT, FIELD_MANAGER, Field, FieldMark, Guard, LimitsMark, OWNER, PROTECTED, REASON, value_in_words,
};
use super::prices::Overlay;
use super::{protect, repair};
use crate::objects::{Node, NodeOverlay, NodePool, annotation, name};

/// The Lease that says that marks are looked after.
pub(crate) const LEASE: &str = "stoker-karpenter";

/// How long one request may take before it counts as failed. Every one can be repeated.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// How long a Lease holds that is not renewed.
const HELD_FOR: SignedDuration = SignedDuration::from_secs(30);

/// How often an object is read again that others change meanwhile.
const TRIES: usize = 5;

/// Writes to the API server.
pub(crate) struct Writer {
    pools: Api<NodePool>,
    nodes: Api<Node>,
    overlays: Api<NodeOverlay>,
    leases: Api<Lease>,
    client: Client,
    /// Whether the API server only tells whether it would take a write.
    dry_run: bool,
}

/// What is done to a `NodePool`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PoolChange<'a> {
    Limits(&'a LimitsMark),
    LimitsBack(&'a LimitsMark),
    Set(Field, &'a FieldMark),
    Back(Field, &'a FieldMark),
}

/// What of a `NodePool` a change is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Limits,
    Of(Field),
}

impl PoolChange<'_> {
    /// What it is of.
    pub(crate) const fn part(&self) -> Part {
        match self {
            Self::Limits(_) | Self::LimitsBack(_) => Part::Limits,
            Self::Set(field, _) | Self::Back(field, _) => Part::Of(*field),
        }
    }
}

impl fmt::Display for PoolChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(mark) => write!(f, "set spec.limits {:?}: {}", mark.set, mark.why),
            Self::LimitsBack(_) => f.write_str("gave spec.limits back"),
            Self::Set(field, mark) => write!(f, "set {field} {}: {}", value_in_words(Some(&mark.set)), mark.why),
            Self::Back(field, _) => write!(f, "gave {field} back"),
        }
    }
}

/// What is done to a Node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NodeChange<'a> {
    Guard(&'a protect::Change),
    Condition(&'a repair::Change),
}

/// Why a write failed: the object, and the cure where it is known.
type Written<T> = Result<T, String>;

impl Writer {
    pub(crate) fn new(client: &Client, dry_run: bool) -> Self {
        Self {
            dry_run,
            pools: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            overlays: Api::all(client.clone()),
            leases: Api::default_namespaced(client.clone()),
            client: client.clone(),
        }
    }

    fn apply(&self, manager: &str) -> PatchParams {
        PatchParams { dry_run: self.dry_run, ..PatchParams::apply(manager) }
    }

    fn merge(&self) -> PatchParams {
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), dry_run: self.dry_run, ..PatchParams::default() }
    }

    /// How the very object that was seen is deleted, and no other of its name.
    fn delete(&self, seen: &ObjectMeta) -> DeleteParams {
        let preconditions = Preconditions { uid: seen.uid.clone(), resource_version: None };
        DeleteParams { preconditions: Some(preconditions), dry_run: self.dry_run, ..DeleteParams::default() }
    }

    /// Changes a `NodePool`.
    pub(crate) async fn change(&self, pool: &NodePool, change: PoolChange<'_>) -> Written<Option<NodePool>> {
        match change {
            PoolChange::Limits(mark) => self.limit(pool, mark).await,
            PoolChange::LimitsBack(mark) => self.give_back(pool, mark).await,
            PoolChange::Set(field, mark) => self.set_field(pool, field, mark).await,
            PoolChange::Back(field, mark) => self.give_field_back(pool, field, mark).await,
        }
    }

    /// Changes a Node.
    pub(crate) async fn change_node(&self, node: &Node, change: NodeChange<'_>) -> Written<Option<Node>> {
        match change {
            NodeChange::Guard(protect::Change::Protect) => self.protect(node).await,
            NodeChange::Guard(protect::Change::Release(guard)) => self.release(node, *guard).await,
            NodeChange::Condition(change) => self.set_condition(node, change, Timestamp::now()).await,
        }
    }

    /// Sets limits, and the mark that says what was there. Taken from whoever owns them, of the very object that was seen.
    pub(crate) async fn limit(&self, pool: &NodePool, mark: &LimitsMark) -> Written<Option<NodePool>> {
        let limits: BTreeMap<&String, String> = mark.set.iter().map(|(resource, set)| (resource, set.to_string())).collect();
        let annotations = json!({ LIMITS_MARK: serde_json::to_string(mark).unwrap_or_default() });
        let mut object = seen(pool, &annotations);
        object["spec"] = json!({ "limits": limits });
        let params = self.apply(FIELD_MANAGER).force();
        told("NodePool", name(&pool.meta), self.pools.patch(name(&pool.meta), &params, &Patch::Apply(object))).await
    }

    /// Gives limits back as they were, but for those that somebody has changed since, and takes the mark away.
    pub(crate) async fn give_back(&self, pool: &NodePool, mark: &LimitsMark) -> Written<Option<NodePool>> {
        let mut change = seen(pool, &json!({ LIMITS_MARK: null }));
        if let Some(limits) = mark.given_back(pool.spec.limits.as_ref()) {
            change["spec"] = json!({ "limits": limits });
        }
        match self.merge_pool(pool, change).await? {
            Some(written) => Ok(Some(self.disown(written).await)),
            None => Ok(None),
        }
    }

    /// Takes Stoker's field managers off a `NodePool` that bears no mark any more: whoever applies it next would meet a conflict with what was
    /// given back. One that cannot be written is left as it is.
    async fn disown(&self, pool: NodePool) -> NodePool {
        let bears =
            Field::ALL.map(Field::mark).into_iter().chain([LIMITS_MARK]).any(|key| annotation(&pool.meta, key).is_some());
        let (ours, others): (Vec<_>, Vec<_>) = pool
            .meta
            .managed_fields
            .iter()
            .flatten()
            .partition(|entry| entry.manager.as_deref().is_some_and(|manager| manager.starts_with(FIELD_MANAGER)));
        if bears || ours.is_empty() || self.dry_run {
            return pool;
        }
        let mut change = seen(&pool, &json!({}));
        change["metadata"]["managedFields"] = json!(others);
        self.merge_pool(&pool, change).await.ok().flatten().unwrap_or(pool)
    }

    async fn merge_pool(&self, pool: &NodePool, change: Value) -> Written<Option<NodePool>> {
        told("NodePool", name(&pool.meta), self.pools.patch(name(&pool.meta), &self.merge(), &Patch::Merge(change))).await
    }

    /// Sets a field, and the mark that says what was there. Taken from whoever owns it.
    pub(crate) async fn set_field(&self, pool: &NodePool, field: Field, mark: &FieldMark) -> Written<Option<NodePool>> {
        let mut object = seen(pool, &json!({ field.mark(): serde_json::to_string(mark).unwrap_or_default() }));
        object["spec"] = field.spec(Some(&mark.set));
        let params = self.apply(field.manager()).force();
        told("NodePool", name(&pool.meta), self.pools.patch(name(&pool.meta), &params, &Patch::Apply(object))).await
    }

    /// Gives a field back as it would be without Stoker, and takes the mark away.
    pub(crate) async fn give_field_back(&self, pool: &NodePool, field: Field, mark: &FieldMark) -> Written<Option<NodePool>> {
        let mut change = seen(pool, &json!({ field.mark(): null }));
        let original = mark.original(field, pool);
        if original.as_ref() != field.of(pool) {
            change["spec"] = field.spec(original.as_ref());
        }
        match self.merge_pool(pool, change).await? {
            Some(written) => Ok(Some(self.disown(written).await)),
            None => Ok(None),
        }
    }

    /// Protects a Node. One whose annotation somebody else sets meanwhile stays theirs: nothing is forced.
    pub(crate) async fn protect(&self, node: &Node) -> Written<Option<Node>> {
        let object = seen(node, &json!({ DO_NOT_DISRUPT: "true", PROTECTED: "in-use" }));
        let params = PatchParams::apply(FIELD_MANAGER);
        told("Node", name(&node.meta), self.nodes.patch(name(&node.meta), &params, &Patch::Apply(object))).await
    }

    /// Takes Stoker's protection from a Node, or its mark alone where the protection is not Stoker's any more.
    pub(crate) async fn release(&self, node: &Node, guard: Guard) -> Written<Option<Node>> {
        let annotations = match guard {
            Guard::Ours => json!({ DO_NOT_DISRUPT: null, PROTECTED: null }),
            Guard::Overruled | Guard::None | Guard::Theirs => json!({ PROTECTED: null }),
        };
        let change = seen(node, &annotations);
        told("Node", name(&node.meta), self.nodes.patch(name(&node.meta), &self.merge(), &Patch::Merge(change))).await
    }

    /// Sets the condition by which Karpenter repairs a Node, or takes it back. A strategic merge: conditions are a list by type, and those of
    /// others stay as they are.
    pub(crate) async fn set_condition(&self, node: &Node, change: &repair::Change, now: Timestamp) -> Written<Option<Node>> {
        let condition = match change {
            repair::Change::Set { condition, why } => {
                let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                json!({
                    "type": condition, "status": "False", "reason": repair::REASON, "message": why,
                    "lastTransitionTime": at, "lastHeartbeatTime": at,
                })
            }
            repair::Change::Clear { condition } => json!({ "$patch": "delete", "type": condition }),
        };
        let change = json!({
            "metadata": { "uid": node.meta.uid, "resourceVersion": node.meta.resource_version },
            "status": { "conditions": [condition] },
        });
        let name = name(&node.meta);
        told("Node", name, self.nodes.patch_status(name, &self.merge(), &Patch::Strategic(change))).await
    }

    /// Sets a price, in place of the one that was seen. One that somebody else has made or changed meanwhile stays as it is until the next
    /// look.
    pub(crate) async fn set_overlay(
        &self,
        name: &str,
        seen: Option<&NodeOverlay>,
        overlay: &Overlay,
    ) -> Written<Option<NodeOverlay>> {
        let mut object = json!({
            "apiVersion": NodeOverlay::api_version(&()),
            "kind": NodeOverlay::kind(&()),
            "metadata": { "name": name, "labels": { OWNER: FIELD_MANAGER }, "annotations": { REASON: overlay.why } },
            "spec": overlay.spec,
        });
        if let Some(seen) = seen {
            object["metadata"]["uid"] = json!(seen.meta.uid);
            object["metadata"]["resourceVersion"] = json!(seen.meta.resource_version);
        }
        let params = self.apply(FIELD_MANAGER);
        let params = if seen.is_some() { params.force() } else { params };
        told("NodeOverlay", name, self.overlays.patch(name, &params, &Patch::Apply(object))).await
    }

    /// Takes a price back: the very object that was seen.
    pub(crate) async fn remove_overlay(&self, overlay: &NodeOverlay) -> Written<()> {
        let (name, params) = (name(&overlay.meta), self.delete(&overlay.meta));
        told("NodeOverlay", name, async { self.overlays.delete(name, &params).await.map(drop) }).await.map(drop)
    }

    /// Makes an object that keeps room for a floor, or changes the one that was seen, unless that says all already.
    pub(crate) async fn put_floor(&self, kind: &ApiResource, there: Option<&DynamicObject>, wanted: &Value) -> Written<()> {
        let api = Api::<DynamicObject>::default_namespaced_with(self.client.clone(), kind);
        let name = wanted.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let Some(there) = there else {
            let object = serde_json::from_value(wanted.clone()).map_err(|error| error.to_string())?;
            let params = PostParams { dry_run: self.dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
            return match told(&kind.kind, name, async { api.create(&params, &object).await.map(drop) }).await? {
                Some(()) => Ok(()),
                None => Err(format!("one of that name is not Stoker's: delete it, or label it {OWNER}={FIELD_MANAGER}")),
            };
        };
        // Items of a list do not say of which kind they are.
        let types = Some(TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
        let whole = DynamicObject { types, ..there.clone() };
        if serde_json::to_value(whole).is_ok_and(|whole| covers(&whole, wanted)) {
            return Ok(());
        }
        let mut object = wanted.clone();
        object["metadata"]["uid"] = json!(there.metadata.uid);
        let params = self.apply(FIELD_MANAGER).force();
        told(&kind.kind, name, async { api.patch(name, &params, &Patch::Apply(object)).await.map(drop) }).await.map(drop)
    }

    /// Deletes an object that keeps room for a floor: the very one that was seen.
    pub(crate) async fn remove_floor(&self, kind: &ApiResource, object: &DynamicObject) -> Written<()> {
        let namespace = object.namespace().unwrap_or_default();
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &namespace, kind);
        let (name, params) = (object.name_any(), self.delete(&object.metadata));
        told(&kind.kind, &name, async { api.delete(&name, &params).await.map(drop) }).await.map(drop)
    }

    /// Gives limits back by the mark that the `NodePool` bears when it is written, whatever others change meanwhile. Why they were not, if so.
    pub(crate) async fn limits_back(&self, pool: &NodePool) -> Option<String> {
        self.again(pool, |writer, pool| {
            let back = async move {
                match LimitsMark::of(&pool)? {
                    Some(mark) => writer.give_back(&pool, &mark).await,
                    None => Ok(Some(pool)),
                }
            };
            back.boxed()
        })
        .await
    }

    /// Takes Stoker's protection from a Node, whatever others change meanwhile. Why it was not, if so.
    pub(crate) async fn guard_back(&self, node: &Node) -> Option<String> {
        self.again(node, |writer, node| async move { writer.release(&node, Guard::of(&node)).await }.boxed()).await
    }

    /// Gives a field back, whatever others change meanwhile. Why it was not, if so.
    pub(crate) async fn field_back(&self, pool: &NodePool, field: Field) -> Option<String> {
        self.again(pool, |writer, pool| {
            let back = async move {
                match FieldMark::of(field, &pool)? {
                    Some(mark) => writer.give_field_back(&pool, field, &mark).await,
                    None => Ok(Some(pool)),
                }
            };
            back.boxed()
        })
        .await
    }

    /// Takes Stoker's condition from a Node, whatever others change meanwhile. Why it was not, if so.
    pub(crate) async fn clear_condition(&self, node: &Node) -> Option<String> {
        self.again(node, |writer, node| {
            let clear = async move {
                match repair::own_condition(&node) {
                    Some(condition) => {
                        writer.set_condition(&node, &repair::Change::Clear { condition }, Timestamp::now()).await
                    }
                    None => Ok(Some(node)),
                }
            };
            clear.boxed()
        })
        .await
    }

    /// Writes an object as it is now, by `write`: others change it too. Why it was not written, if so; one that is gone has nothing left to
    /// give back.
    async fn again<'a, K>(
        &'a self,
        seen: &K,
        write: impl Fn(&'a Self, K) -> BoxFuture<'a, Written<Option<K>>> + Send,
    ) -> Option<String>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api = Api::<K>::all(self.client.clone());
        let mut now = seen.clone();
        for _ in 0..TRIES {
            match write(self, now).await {
                Ok(Some(_)) => return None,
                Ok(None) => {}
                Err(why) => return Some(why),
            }
            if self.dry_run {
                return None;
            }
            match api.get_opt(name(seen.meta())).await {
                Ok(Some(changed)) => now = changed,
                Ok(None) => return None,
                Err(error) => return Some(with_cure(K::kind(&()).as_ref(), &error)),
            }
        }
        Some("it changes all the time".to_owned())
    }

    /// Says that marks are looked after, unless another Stoker does.
    pub(crate) async fn beat(&self, holder: &str, now: Timestamp) -> Written<()> {
        let held = self.leases.get_opt(LEASE).await.map_err(|error| with_cure("Lease", &error))?.and_then(|lease| lease.spec);
        let other = held.filter(|held| held.renew_time.as_ref().is_some_and(|at| now.duration_since(at.0) < HELD_FOR));
        if let Some(other) = other.and_then(|held| held.holder_identity).filter(|other| other != holder) {
            let what = format!("{}/{LEASE}", self.client.default_namespace());
            return Err(format!("Lease {what} is held by {other}, which steers this Karpenter: stop one of the two"));
        }
        let at = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": LEASE },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": HELD_FOR.as_secs(), "renewTime": at },
        });
        let params = self.apply(FIELD_MANAGER).force();
        let what = format!("{}/{LEASE}", self.client.default_namespace());
        told("Lease", &what, self.leases.patch(LEASE, &params, &Patch::Apply(lease))).await.map(drop)
    }
}

/// A change of the annotations of the very object that was seen: of no later version, and of no other of its name.
fn seen<K: Resource<DynamicType = ()>>(object: &K, annotations: &Value) -> Value {
    let meta = object.meta();
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {
            "name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations,
        },
    })
}

/// The object as written; `None` where it changed meanwhile or is gone: the watch tells, and the next look sees.
async fn told<T>(kind: &str, name: &str, request: impl Future<Output = kube::Result<T>>) -> Written<Option<T>> {
    match timeout(DEADLINE, request).await {
        Ok(Ok(object)) => Ok(Some(object)),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Ok(None),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 && kind != "Lease" => Ok(None),
        Ok(Err(error)) => Err(format!("{kind} {name} cannot be written: {}", with_cure(kind, &error))),
        Err(_) => Err(format!("{kind} {name} cannot be written: no answer within {} s", DEADLINE.as_secs())),
    }
}

/// What went wrong, and what to do where that is known.
pub(crate) fn with_cure(kind: &str, error: &kube::Error) -> String {
    let words = in_words(error);
    match error {
        kube::Error::Api(status) if status.code == 403 => format!("{words}: apply manifests/karpenter/steering.yaml"),
        kube::Error::Api(status) if status.code == 404 && kind == "NodeOverlay" => {
            "this cluster has no NodeOverlays: install Karpenter 1.7 or later, or take prices out of steer".to_owned()
        }
        kube::Error::Api(status) if status.code == 404 && kind == "CapacityBuffer" => {
            "this cluster has no CapacityBuffers (autoscaling.x-k8s.io/v1beta1): install a Karpenter that has them, or take floors \
             out of steer"
                .to_owned()
        }
        kube::Error::Api(status) if status.code == 404 && ["NodePool", "NodeClaim"].contains(&kind) => {
            format!("this cluster has no Karpenter, as it knows no {kind} of karpenter.sh/v1: install Karpenter 1.0 or later")
        }
        _ => words,
    }
}
