//! Warm floors of steered `NodePools`, as `CapacityBuffers`: Karpenter keeps room for so many free nodes, and refills what pods take.
//!
//! How many there are to be is the floor of the pool of the policy that `stoker.dev/rules-of` names. The objects stand in Stoker's own
//! namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::rules::karpenter::Lever;
use stoker_service::controllers::buffers::{apart, buffer, kinds, pod_template, room};
use tokio::time::{Instant, timeout};

use super::Inputs;
use super::faults::Faults;
use super::marks::{FIELD_MANAGER, OWNER, REASON, Rewrites};
use super::prices::LOOKED_AT_WITHIN;
use super::reach::{Made, Makes};
use super::write::{DEADLINE, Writer, with_cure};
use crate::objects::{NODE_POOL, NodePool};

/// How often the objects are read: floors change in minutes.
const EVERY: Duration = Duration::from_secs(10);

/// How long they may be written in one look: the Lease waits meanwhile.
const MOST_TIME: Duration = Duration::from_secs(5);

const LATE: &str = "no answer in time";

/// The floor of a `NodePool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Floor {
    /// So many free nodes; `None` while nobody knows, and then what there is stays.
    pub(crate) nodes: Option<u32>,
    /// The spec of a pod that takes one node; it counts for nothing while nobody knows how many there are to be.
    pod: Value,
    /// Whose floor it is, in words.
    pub(crate) why: String,
}

impl Floor {
    /// Whether it is known what it is to be, but for how many nodes.
    pub(crate) fn is_known(&self) -> bool {
        !self.pod.is_null()
    }
}

/// The floors of steered `NodePools`.
pub(super) fn wanted(inputs: &Inputs<'_>, made: &Made, faults: &mut Faults) -> BTreeMap<String, Floor> {
    let mut floors = BTreeMap::new();
    if !inputs.policy.karpenter.has(Lever::Floors) {
        return floors;
    }
    for (name, makes) in made {
        let Some(pool) = inputs.facts.pools.get(name) else { continue };
        match floor_of(name, pool, makes, inputs) {
            Ok(Some(floor)) => drop(floors.insert(name.clone(), floor)),
            Ok(None) => {}
            Err(why) => {
                faults.add(format!("NodePool {name}"), why.clone());
                floors.insert(name.clone(), Floor { nodes: None, pod: Value::Null, why });
            }
        }
    }
    floors
}

/// The floor of a `NodePool`; `None` where it is to have none.
///
/// # Errors
/// Why that is not known.
fn floor_of(
    name: &str,
    pool: &NodePool,
    makes: &Result<Arc<Makes>, String>,
    inputs: &Inputs<'_>,
) -> Result<Option<Floor>, String> {
    let Some(rules) = inputs.rules_of(pool)?.filter(|rules| rules.warm_floor.is_some()) else { return Ok(None) };
    let sizes: BTreeSet<u32> = makes.as_ref().map_err(String::clone)?.types.iter().map(|spec| spec.advertised_gpus()).collect();
    // The smallest node: a pod that takes more would have no place on it.
    let Some(gpus) = sizes.first() else { return Ok(None) };
    let stands = inputs.floors.iter().flat_map(|floors| floors.iter()).find(|floor| floor.pool == rules.name);
    Ok(Some(Floor {
        nodes: stands.map(|floor| floor.wanted),
        pod: pod(name, pool, *gpus, sizes.len() > 1),
        why: format!("the warm floor of pool {}", rules.name),
    }))
}

/// The spec of a pod that takes one node of a `NodePool`. `mixed`: its nodes differ in size, and two pods would have room on a larger one.
fn pod(name: &str, pool: &NodePool, gpus: u32, mixed: bool) -> Value {
    let taints = pool.spec.template.spec.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    let tolerations: Vec<Value> =
        taints.map(|taint| json!({ "key": taint.key, "operator": "Exists", "effect": taint.effect })).collect();
    let resources = [(GPU_RESOURCE.to_owned(), u64::from(gpus))];
    let mut spec = room(&resources, &json!({ NODE_POOL: name }), &json!(tolerations));
    if mixed {
        spec["affinity"] = apart(name);
    }
    spec
}

/// What the objects of a `NodePool` are called: no pool of the policy has a dot in its name, so none of its objects is called so.
pub(super) fn object_name(pool: &str) -> String {
    format!("stoker-floor.{pool}")
}

/// Keeps the `CapacityBuffers` in Stoker's namespace, and their pod templates.
pub(super) struct FloorKeeper {
    client: Client,
    read_at: Option<Instant>,
    /// Whether there may be some that nobody wants: of a policy that was changed, or of the process before this one.
    left_over: bool,
    /// Since when Karpenter has not looked at one.
    unseen: BTreeMap<String, Instant>,
    /// For how many nodes each was last written, and how often somebody else has rewritten it since.
    written: BTreeMap<String, (u32, Rewrites)>,
    faults: Faults,
}

/// Objects of one kind, by name.
type Objects = BTreeMap<String, DynamicObject>;

impl FloorKeeper {
    pub(super) fn new(client: &Client) -> Self {
        let (unseen, written, faults) = (BTreeMap::new(), BTreeMap::new(), Faults::default());
        Self { client: client.clone(), read_at: None, left_over: true, unseen, written, faults }
    }

    /// Makes the objects what they are to be; what is wrong.
    pub(super) async fn keep(&mut self, wanted: &BTreeMap<String, Floor>, writer: &Writer, now: Instant) -> &Faults {
        let due = self.read_at.is_none_or(|at| now.duration_since(at) >= EVERY);
        if due && (self.left_over || !wanted.is_empty()) {
            self.read_at = Some(now);
            self.faults = Faults::default();
            match self.read().await {
                Ok(objects) => self.write(wanted, objects, writer, now).await,
                // Where nobody wants any, neither the kind nor the right to it need be there.
                Err(kube::Error::Api(status)) if wanted.is_empty() && [403, 404].contains(&status.code) => {
                    self.left_over = false;
                }
                Err(error) => {
                    let why = format!("floors are not steered: {}", with_cure("CapacityBuffer", &error));
                    self.faults.add("CapacityBuffers", why);
                }
            }
        }
        &self.faults
    }

    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::default_namespaced_with(self.client.clone(), kind)
    }

    /// Stoker's own buffers and pod templates.
    async fn read(&self) -> kube::Result<[Objects; 2]> {
        let [buffers, templates] = kinds().map(|kind| self.api(&kind));
        Ok([owned(&buffers).await?, owned(&templates).await?])
    }

    async fn write(
        &mut self,
        wanted: &BTreeMap<String, Floor>,
        [buffers, templates]: [Objects; 2],
        writer: &Writer,
        now: Instant,
    ) {
        let [of_buffers, of_templates] = kinds();
        self.unseen.retain(|name, _| buffers.contains_key(name));
        self.written.retain(|pool, _| wanted.contains_key(pool));
        for (pool, floor) in wanted {
            // The next look goes on with the others.
            if now.elapsed() >= MOST_TIME {
                self.read_at = None;
                return;
            }
            let (name, Some(nodes)) = (object_name(pool), floor.nodes) else { continue };
            let is_as_written = |nodes: u32| {
                let of = |buffer: &DynamicObject| buffer.data.pointer("/spec/replicas").and_then(Value::as_u64);
                buffers.get(&name).and_then(of) == Some(u64::from(nodes))
            };
            let noted =
                self.written.get_mut(pool).map(|(nodes, rewrites)| rewrites.note(is_as_written(*nodes), "spec.replicas", now));
            if let Some(Err(why)) = noted {
                self.faults.add(format!("CapacityBuffer {name}"), why);
                continue;
            }
            let [template, buffer] = objects(pool, floor, nodes);
            // The pod template first: the buffer names it.
            for (kind, there, object) in
                [(&of_templates, templates.get(&name), template), (&of_buffers, buffers.get(&name), buffer)]
            {
                if let Err(why) = writer.put_floor(kind, there, &object).await {
                    self.faults.add(format!("{} {name}", kind.kind), why);
                    break;
                }
            }
            let (last, rewrites) = self.written.entry(pool.clone()).or_default();
            *last = nodes;
            rewrites.wrote();
            if let Some(why) = buffers.get(&name).and_then(|buffer| self.ignored(&name, buffer, now)) {
                self.faults.add(format!("CapacityBuffer {name}"), why);
            }
        }
        let is_left = |object: &&DynamicObject| object.labels().get(NODE_POOL).is_none_or(|pool| !wanted.contains_key(pool));
        let mut all_gone = true;
        let buffers = buffers.values().filter(is_left).map(|object| (&of_buffers, object));
        let templates = templates.values().filter(is_left).map(|object| (&of_templates, object));
        let left: Vec<_> = buffers.chain(templates).collect();
        for (kind, object) in left {
            if let Err(why) = writer.remove_floor(kind, object).await {
                self.faults.add(format!("{} {}", kind.kind, object.name_any()), why);
                all_gone = false;
            }
        }
        self.left_over = !wanted.is_empty() || !all_gone;
    }

    /// Why Karpenter keeps no room for a buffer; `None` where it does, or has not had its time.
    fn ignored(&mut self, name: &str, buffer: &DynamicObject, now: Instant) -> Option<String> {
        let conditions = buffer.data.pointer("/status/conditions").and_then(Value::as_array);
        let Some(ready) = conditions.into_iter().flatten().find(|one| one["type"] == "ReadyForProvisioning") else {
            let since = *self.unseen.entry(name.to_owned()).or_insert(now);
            return (now.duration_since(since) >= LOOKED_AT_WITHIN).then(|| {
                "Karpenter has not looked at it, so it keeps no floor: start it with the feature gate CapacityBuffer=true, or \
                 give the work to a pool with a supplier of kind karpenter, whose floor is kept by NodeClaims of its own"
                    .to_owned()
            });
        };
        self.unseen.remove(name);
        let message = ready["message"].as_str().unwrap_or_default();
        (ready["status"] == "False").then(|| format!("Karpenter does not take it: {message}"))
    }
}

/// Stoker's own objects of a kind, by name.
async fn owned(api: &Api<DynamicObject>) -> kube::Result<Objects> {
    let listed = timeout(DEADLINE, api.list(&params())).await.map_err(|_| kube::Error::Service(LATE.into()))??;
    Ok(listed.items.into_iter().map(|object| (object.name_any(), object)).collect())
}

/// The pod template and the buffer of a `NodePool`.
fn objects(pool: &str, floor: &Floor, nodes: u32) -> [Value; 2] {
    let name = object_name(pool);
    let metadata =
        json!({ "name": name, "labels": { OWNER: FIELD_MANAGER, NODE_POOL: pool }, "annotations": { REASON: floor.why } });
    [pod_template(&metadata, pool, &floor.pod), buffer(&metadata, nodes)]
}

fn params() -> ListParams {
    ListParams::default().labels(&format!("{OWNER}={FIELD_MANAGER}"))
}

/// The objects of floors of a kind, in all namespaces that may be read; none where the cluster does not know the kind.
///
/// # Errors
/// They cannot be listed.
pub(super) async fn all(client: &Client, kind: &ApiResource) -> Result<Vec<DynamicObject>, String> {
    let everywhere = Api::<DynamicObject>::all_with(client.clone(), kind).list(&params()).await;
    let listed = match everywhere {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Api::<DynamicObject>::default_namespaced_with(client.clone(), kind).list(&params()).await
        }
        listed => listed,
    };
    match listed {
        Ok(objects) => Ok(objects.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(with_cure(&kind.kind, &error)),
    }
}
