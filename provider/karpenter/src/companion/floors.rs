//! Warm floors of steered `NodePools`, as `CapacityBuffers`: Karpenter keeps room for so many free nodes, and refills what pods take.
//!
//! How many there are to be is the floor of the pool of the policy that `stoker.dev/rules-of` names. The objects stand in Stoker's own
//! namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::rules::karpenter::Lever;
use stoker_service::controllers::buffers::{ACTIVE, API, BUFFER_LABEL, apart, covers, room};
use tokio::time::{Instant, timeout};

use super::Inputs;
use super::faults::Faults;
use super::marks::{FIELD_MANAGER, OWNER, REASON};
use super::prices::LOOKED_AT_WITHIN;
use super::reach::Made;
use super::write::{DEADLINE, Writer, with_cure};
use crate::objects::{NODE_POOL, NodePool};

/// How often the objects are read: floors change in minutes.
const EVERY: Duration = Duration::from_secs(10);

/// The floor of a `NodePool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Floor {
    /// So many free nodes; `None` while nobody knows, and then what there is stays.
    pub(crate) nodes: Option<u32>,
    /// A pod that takes one node.
    pod: Value,
    /// Whose floor it is, in words.
    pub(crate) why: String,
}

/// The floors of steered `NodePools`.
pub(super) fn wanted(inputs: &Inputs<'_>, made: &Made, faults: &mut Faults) -> BTreeMap<String, Floor> {
    let mut floors = BTreeMap::new();
    if !inputs.policy.karpenter.has(Lever::Floors) {
        return floors;
    }
    for (name, makes) in made {
        let Some(pool) = inputs.facts.pools.get(name) else { continue };
        let rules = makes.as_ref().map_err(String::clone).and_then(|makes| Ok((makes, inputs.rules_of(pool)?)));
        let (makes, rules) = match rules {
            Ok((makes, Some(rules))) if rules.warm_floor.is_some() => (makes, rules),
            Ok(_) => continue,
            Err(why) => {
                faults.add(format!("NodePool {name}"), format!("its floor is not steered: {why}"));
                continue;
            }
        };
        let sizes: BTreeSet<u32> = makes.types.iter().map(|spec| spec.advertised_gpus()).collect();
        // The smallest node: a pod that takes more would have no place on it.
        let Some(gpus) = sizes.first() else { continue };
        let stands = inputs.floors.iter().flat_map(|floors| floors.iter()).find(|floor| floor.pool == rules.name);
        floors.insert(
            name.clone(),
            Floor {
                nodes: stands.map(|floor| floor.wanted),
                pod: pod(name, pool, *gpus, sizes.len() > 1),
                why: format!("the warm floor of pool {}", rules.name),
            },
        );
    }
    floors
}

/// A pod that takes one node of a `NodePool`. `mixed`: its nodes differ in size, and two pods would have room on a larger one.
fn pod(name: &str, pool: &NodePool, gpus: u32, mixed: bool) -> Value {
    let taints = pool.spec.template.spec.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    let tolerations: Vec<Value> =
        taints.map(|taint| json!({ "key": taint.key, "operator": "Exists", "effect": taint.effect })).collect();
    let resources = [(GPU_RESOURCE.to_owned(), u64::from(gpus))];
    let mut spec = room(&resources, &json!({ NODE_POOL: name }), &json!(tolerations));
    if mixed {
        spec["affinity"] = apart(name);
    }
    json!({ "metadata": { "labels": { BUFFER_LABEL: name } }, "spec": spec })
}

/// What the objects of a `NodePool` are called.
pub(super) fn object_name(pool: &str) -> String {
    format!("{FIELD_MANAGER}-{pool}")
}

/// The `CapacityBuffers` in Stoker's namespace, and their pod templates.
pub(super) struct FloorKeeper {
    buffers: Api<DynamicObject>,
    templates: Api<DynamicObject>,
    read_at: Option<Instant>,
    /// Whether there may be some that nobody wants: of a policy that was changed, or of the process before this one.
    left_over: bool,
    /// Since when Karpenter has not looked at one.
    unseen: BTreeMap<String, Instant>,
    faults: Faults,
}

fn kinds() -> [ApiResource; 2] {
    let buffers = GroupVersionKind::gvk(API.0, API.1, "CapacityBuffer");
    let templates = GroupVersionKind::gvk("", "v1", "PodTemplate");
    [
        ApiResource::from_gvk_with_plural(&buffers, "capacitybuffers"),
        ApiResource::from_gvk_with_plural(&templates, "podtemplates"),
    ]
}

impl FloorKeeper {
    pub(super) fn new(client: &Client) -> Self {
        let [buffers, templates] = kinds().map(|kind| Api::default_namespaced_with(client.clone(), &kind));
        Self { buffers, templates, read_at: None, left_over: true, unseen: BTreeMap::new(), faults: Faults::default() }
    }

    /// Makes the objects what they are to be; what is wrong.
    pub(super) async fn keep(&mut self, wanted: &BTreeMap<String, Floor>, writer: &Writer, now: Instant) -> &Faults {
        let due = self.read_at.is_none_or(|at| now.duration_since(at) >= EVERY);
        if due && (self.left_over || !wanted.is_empty()) {
            self.read_at = Some(now);
            self.faults = Faults::default();
            match self.write(wanted, writer, now).await {
                Ok(()) => self.left_over = !wanted.is_empty(),
                // Where nobody wants any, neither the kind nor the right to it need be there.
                Err(_) if wanted.is_empty() => self.left_over = false,
                Err(why) => self.faults.add("CapacityBuffers", format!("floors are not steered: {why}")),
            }
        }
        &self.faults
    }

    async fn write(&mut self, wanted: &BTreeMap<String, Floor>, writer: &Writer, now: Instant) -> Result<(), String> {
        let (buffers, templates) = (owned(&self.buffers).await?, owned(&self.templates).await?);
        let [of_buffers, of_templates] = kinds();
        for (pool, floor) in wanted {
            let Some(nodes) = floor.nodes else { continue };
            let name = object_name(pool);
            let metadata = json!({
                "name": name, "labels": { OWNER: FIELD_MANAGER, NODE_POOL: pool }, "annotations": { REASON: floor.why },
            });
            let template = json!({
                "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": floor.pod,
            });
            let buffer = json!({
                "apiVersion": format!("{}/{}", API.0, API.1), "kind": "CapacityBuffer", "metadata": metadata,
                "spec": { "provisioningStrategy": ACTIVE, "podTemplateRef": { "name": name }, "replicas": nodes },
            });
            // The pod template first: the buffer names it.
            put(&self.templates, "PodTemplate", templates.get(&name), &template).await?;
            put(&self.buffers, "CapacityBuffer", buffers.get(&name), &buffer).await?;
        }
        self.unseen.retain(|name, _| buffers.contains_key(name));
        for (name, buffer) in &buffers {
            let pool = buffer.labels().get(NODE_POOL);
            if pool.is_none_or(|pool| !wanted.contains_key(pool)) {
                writer.remove_floor(&of_buffers, buffer).await?;
            } else if let Some(why) = self.ignored(name, buffer, now) {
                self.faults.add(format!("CapacityBuffer {name}"), why);
            }
        }
        let is_used = |object: &DynamicObject| object.labels().get(NODE_POOL).is_some_and(|pool| wanted.contains_key(pool));
        for template in templates.values().filter(|template| !is_used(template)) {
            writer.remove_floor(&of_templates, template).await?;
        }
        Ok(())
    }

    /// Why Karpenter keeps no room for a buffer; `None` where it does, or has not had its time.
    fn ignored(&mut self, name: &str, buffer: &DynamicObject, now: Instant) -> Option<String> {
        let conditions = buffer.data.pointer("/status/conditions").and_then(Value::as_array);
        let ready = conditions.into_iter().flatten().find(|one| one["type"] == "ReadyForProvisioning");
        match ready {
            Some(ready) if ready["status"] == "False" => {
                self.unseen.remove(name);
                Some(format!("Karpenter does not take it: {}", ready["message"].as_str().unwrap_or_default()))
            }
            Some(_) => {
                self.unseen.remove(name);
                None
            }
            None => {
                let since = *self.unseen.entry(name.to_owned()).or_insert(now);
                (now.duration_since(since) >= LOOKED_AT_WITHIN).then(|| {
                    "Karpenter has not looked at it, so it keeps no floor: start it with the feature gate CapacityBuffer=true, or \
                     give the work to a pool with a supplier of kind karpenter, whose floor is kept by NodeClaims of its own"
                        .to_owned()
                })
            }
        }
    }
}

/// Stoker's own objects of a kind, by name.
async fn owned(api: &Api<DynamicObject>) -> Result<BTreeMap<String, DynamicObject>, String> {
    let listed = asked("CapacityBuffer", api.list(&params())).await?;
    Ok(listed.items.into_iter().map(|object| (object.name_any(), object)).collect())
}

fn params() -> ListParams {
    ListParams::default().labels(&format!("{OWNER}={FIELD_MANAGER}"))
}

/// Writes an object unless it says all that it is to say already.
async fn put(api: &Api<DynamicObject>, kind: &str, there: Option<&DynamicObject>, wanted: &Value) -> Result<(), String> {
    if there.is_some_and(|there| serde_json::to_value(there).is_ok_and(|there| covers(&there, wanted))) {
        return Ok(());
    }
    let name = wanted.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    asked(kind, api.patch(name, &params, &Patch::Apply(wanted))).await?;
    tracing::info!(kind, name, "set a floor");
    Ok(())
}

async fn asked<T>(kind: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(|error| with_cure(kind, &error)),
        Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
    }
}

/// Every object of a floor, in all namespaces that may be read; none where the cluster does not know the kind.
///
/// # Errors
/// They cannot be listed.
pub(super) async fn all(client: &Client) -> Result<Vec<(ApiResource, DynamicObject)>, String> {
    let mut all = Vec::new();
    for kind in kinds() {
        let everywhere = Api::<DynamicObject>::all_with(client.clone(), &kind).list(&params()).await;
        let listed = match everywhere {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                Api::default_namespaced_with(client.clone(), &kind).list(&params()).await
            }
            listed => listed,
        };
        match listed {
            Ok(objects) => all.extend(objects.items.into_iter().map(|object| (kind.clone(), object))),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(with_cure("CapacityBuffer", &error)),
        }
    }
    Ok(all)
}
