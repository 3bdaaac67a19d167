//! Nodes for simulated machines: what a kubelet and the node life cycle do for real ones.

mod api;
mod diff;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client};
use serde_json::json;
use stoker_core::base::ids::{ClusterName, NodeName, ProviderId};
use stoker_core::catalogue::template::{CAPACITY_TYPE_ANNOTATION, CLUSTER_LABEL, NodeTemplate};
use stoker_core::facts::supply::Instance;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use self::api::{StepError, ask, list};
use self::diff::{Known, Step, steps, widows};
use stoker_service::kube::act::{KubeAct, Outcome};
use stoker_service::kube::template::node_object;
use stoker_service::kube::thin::{NodeRow, PodRow};
use stoker_service::kube::{FIELD_MANAGER, SYSTEM_NAMESPACES};

/// How the id of every simulated machine begins. Nodes of other machines are never made, changed or deleted here.
pub const SIMULATED: &str = "sim://";

/// Requests at once: a fleet of thousands registers in seconds, and the API server's share for one client is not exceeded.
const CONCURRENCY: usize = 16;
/// How often all Nodes are read again, so that what others did to them is put right.
const RESYNC: Duration = Duration::from_mins(1);
/// How long to wait after a pass that failed, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Rounds of steps in one pass.
const ROUNDS: u32 = 3;

/// A machine that is to have a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredNode {
    /// The machine.
    pub instance: Arc<Instance>,
    /// What its Node is to be.
    pub template: Arc<NodeTemplate>,
    /// Whether its Node is to be Ready.
    pub ready: bool,
}

/// Keeps Nodes as `wanted` says: makes those that are missing, sets their Ready condition, and deletes those whose machine is gone, with
/// the pods bound to them. Nothing is done while `wanted` is `None`.
///
/// Lives while its future runs, which ends when the sender of `wanted` is gone.
///
/// # Caveats
/// No heartbeats are sent: where a controller-manager watches them, it takes these Nodes for lost after its grace time. Pods left behind
/// by an earlier process are not looked for.
pub struct Registrar {
    client: Client,
    cluster: ClusterName,
    act: KubeAct,
    rows: Api<NodeRow>,
    nodes: Api<Node>,
    known: BTreeMap<NodeName, Known>,
    /// Nodes that are gone, with their machines; pods may still be bound to them.
    widowed: BTreeMap<NodeName, ProviderId>,
}

/// What one step changed.
enum Effect {
    Is(NodeName, Known),
    Gone(NodeName, ProviderId),
    Nothing,
}

impl Registrar {
    /// Registers the machines of that cluster through `client`.
    pub fn new(client: &Client, cluster: ClusterName) -> Self {
        Self {
            client: client.clone(),
            cluster,
            act: KubeAct::new(client, "default"),
            rows: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            known: BTreeMap::new(),
            widowed: BTreeMap::new(),
        }
    }

    /// Works until the sender of `wanted` is gone.
    pub async fn run(mut self, mut wanted: watch::Receiver<Option<Vec<RegisteredNode>>>) {
        let mut list_at = Instant::now();
        let mut wait = RETRY.0;
        loop {
            let now = wanted.borrow_and_update().clone();
            let Some(now) = now else {
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let list = Instant::now() >= list_at;
            match self.pass(&now, list).await {
                Ok(()) => {
                    wait = RETRY.0;
                    if list {
                        list_at = Instant::now() + RESYNC;
                    }
                    tokio::select! {
                        changed = wanted.changed() => if changed.is_err() { return },
                        () = sleep_until(list_at) => {}
                    }
                }
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "Nodes of simulated machines could not be updated");
                    sleep(wait).await;
                    if wanted.has_changed().is_err() {
                        return;
                    }
                    wait = (wait * 2).min(RETRY.1);
                    // What was done is uncertain: all is read again before the next try.
                    list_at = Instant::now();
                }
            }
        }
    }

    async fn pass(&mut self, wanted: &[RegisteredNode], list: bool) -> Result<(), StepError> {
        if list {
            let listed = self.list().await?;
            self.widowed.extend(widows(&self.known, &listed));
            self.known = listed;
        }
        // A Node that has to go before another takes its name needs a second round.
        for _ in 0..ROUNDS {
            let steps = steps(&self.known, wanted);
            if steps.is_empty() && self.widowed.is_empty() {
                break;
            }
            debug!(steps = steps.len(), "updating the Nodes of simulated machines");
            let taken: Vec<_> = stream::iter(steps).map(|step| self.take(step)).buffer_unordered(CONCURRENCY).collect().await;
            let mut failed = None;
            for effect in taken {
                match effect {
                    Ok(effect) => self.note(effect),
                    Err(error) => failed = Some(error),
                }
            }
            self.end_pods().await?;
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn note(&mut self, effect: Effect) {
        match effect {
            Effect::Is(name, known) => {
                self.known.insert(name, known);
            }
            Effect::Gone(name, machine) => {
                self.known.remove(&name);
                self.widowed.insert(name, machine);
            }
            Effect::Nothing => {}
        }
    }

    /// Deletes the pods of all Nodes that are gone; those that are left are tried again in the next pass.
    async fn end_pods(&mut self) -> Result<(), StepError> {
        let widowed = std::mem::take(&mut self.widowed);
        let this = &*self;
        let ended: Vec<_> = stream::iter(widowed)
            .map(|(node, machine)| async move { (this.delete_pods(&node, &machine).await, node, machine) })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut failed = None;
        for (end, node, machine) in ended {
            if let Err(error) = end {
                self.widowed.insert(node, machine);
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn take(&self, step: Step) -> Result<Effect, StepError> {
        match step {
            Step::Create(node) => self.create(&node).await,
            Step::SetReady(node, uid) => self.set_ready(&node, uid).await,
            Step::Delete(name, machine) => match self.act.delete_node(&name, &machine).await? {
                Outcome::Done | Outcome::Already | Outcome::Gone => Ok(Effect::Gone(name, machine)),
                // Another machine took the name meanwhile; the next listing tells whose.
                Outcome::NotOurs | Outcome::Reopened => Ok(Effect::Nothing),
            },
        }
    }

    async fn create(&self, wanted: &RegisteredNode) -> Result<Effect, StepError> {
        let (name, machine) = (&wanted.instance.node_name, &wanted.instance.provider_id);
        let capacity_type = wanted.instance.market.capacity_type.as_str().to_owned();
        let annotations = BTreeMap::from([(CAPACITY_TYPE_ANNOTATION.to_owned(), capacity_type)]);
        let mut node = node_object(&wanted.template, name, machine, annotations);
        // Whatever the template says: without this label we would not find the Node again.
        node.metadata.labels.get_or_insert_default().insert(CLUSTER_LABEL.to_owned(), self.cluster.to_string());
        let now = Time(Timestamp::now());
        for condition in node.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
            word(wanted.ready).clone_into(&mut condition.status);
            condition.reason = Some(reason(wanted.ready).to_owned());
            condition.last_heartbeat_time = Some(now.clone());
            condition.last_transition_time = Some(now.clone());
        }
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        // As a kubelet does it: the status goes with the object, so no half-made Node is ever seen.
        match ask("create Node", name.as_str(), self.nodes.create(&params, &node)).await {
            Ok(node) => Ok(Effect::Is(name.clone(), Known::ours(machine.clone(), node.metadata.uid, wanted.ready))),
            Err(error) if error.says(Status::is_already_exists) => self.adopt(wanted).await,
            Err(error) => Err(error),
        }
    }

    /// A Node of that name exists: ours from an earlier try, or somebody else's.
    async fn adopt(&self, wanted: &RegisteredNode) -> Result<Effect, StepError> {
        let (name, machine) = (&wanted.instance.node_name, &wanted.instance.provider_id);
        let Some(row) = ask("read Node", name.as_str(), self.rows.get_opt(name.as_str())).await? else {
            return Ok(Effect::Nothing);
        };
        if row.cluster.as_deref() == Some(self.cluster.as_str()) && row.provider_id.as_deref() == Some(machine.as_str()) {
            let known = Known::ours(machine.clone(), row.meta.uid, row.ready_since.is_some());
            return Ok(Effect::Is(name.clone(), known));
        }
        warn!(node = %name, "a Node of that name belongs to another machine: not touched, and this machine gets no Node");
        Ok(Effect::Is(name.clone(), Known::Theirs))
    }

    async fn set_ready(&self, wanted: &RegisteredNode, uid: String) -> Result<Effect, StepError> {
        let (name, machine) = (&wanted.instance.node_name, &wanted.instance.provider_id);
        let now = Timestamp::now();
        // The uid makes the server refuse if somebody made another Node of that name meanwhile.
        let patch = Patch::Strategic(json!({
            "metadata": { "uid": uid },
            "status": { "conditions": [{
                "type": "Ready",
                "status": word(wanted.ready),
                "reason": reason(wanted.ready),
                "lastHeartbeatTime": Time(now),
                "lastTransitionTime": Time(now),
            }]},
        }));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match ask("set the status of Node", name.as_str(), self.rows.patch_status(name.as_str(), &params, &patch)).await {
            Ok(_) => Ok(Effect::Is(name.clone(), Known::ours(machine.clone(), Some(uid), wanted.ready))),
            Err(error) if error.says(Status::is_not_found) => Ok(Effect::Gone(name.clone(), machine.clone())),
            Err(error) => Err(error),
        }
    }

    /// Deletes the pods bound to a Node that is gone, as the pod garbage collector does.
    async fn delete_pods(&self, node: &NodeName, machine: &ProviderId) -> Result<(), StepError> {
        match self.act.delete_node(node, machine).await? {
            Outcome::Gone => {}
            // The name has another Node by now, and so have the pods.
            Outcome::NotOurs | Outcome::Reopened => return Ok(()),
            Outcome::Done | Outcome::Already => return Err(StepError::Lingers(node.clone())),
        }
        let bound = ListParams::default().fields(&format!("spec.nodeName={node}"));
        for pod in list("Pods", &Api::<PodRow>::all(self.client.clone()), bound).await? {
            let (Some(namespace), Some(name)) = (&pod.meta.namespace, &pod.meta.name) else { continue };
            // The cluster's own collector takes these away; Stoker may not.
            if SYSTEM_NAMESPACES.contains(&namespace.as_str()) {
                continue;
            }
            let params = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions { uid: pod.meta.uid.clone(), resource_version: None }),
                ..DeleteParams::default()
            };
            let api = Api::<PodRow>::namespaced(self.client.clone(), namespace);
            if let Err(error) = ask("delete Pod", name, api.delete(name, &params)).await
                && !error.says(Status::is_not_found)
                && !error.says(Status::is_conflict)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The Nodes that carry this cluster's label.
    async fn list(&self) -> Result<BTreeMap<NodeName, Known>, StepError> {
        let ours = ListParams::default().labels(&format!("{CLUSTER_LABEL}={}", self.cluster));
        let rows = list("Nodes", &self.rows, ours).await?;
        let known = |row: NodeRow| {
            let name = NodeName::new(row.meta.name?).ok()?;
            let machine = row.provider_id.filter(|id| id.starts_with(SIMULATED)).and_then(|id| ProviderId::new(id).ok());
            let ready = row.ready_since.is_some();
            Some((name, machine.map_or(Known::Theirs, |machine| Known::ours(machine, row.meta.uid, ready))))
        };
        Ok(rows.into_iter().filter_map(known).collect())
    }
}

const fn word(ready: bool) -> &'static str {
    if ready { "True" } else { "False" }
}

const fn reason(ready: bool) -> &'static str {
    if ready { "KubeletReady" } else { "KubeletNotReady" }
}
