//! A real Karpenter, whose KWOK provider makes Nodes without machines, and what a kubelet would do on these.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stoker_core::catalogue::template::resources;
use stoker_core::market::offer::CapacityType;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::cluster::{Cluster, eventually, is_ready, kubelet_says};
use super::process::Process;

/// How often Nodes are looked at.
const EVERY: Duration = Duration::from_millis(300);
/// How long Karpenter may take to end all claims.
const ENDED_WITHIN: Duration = Duration::from_secs(30);
/// The zones of its types.
const ZONES: [&str; 2] = ["use1-az1", "use1-az2"];

/// A Karpenter, which can be killed and started again.
pub struct Karpenter {
    process: Option<Process>,
    program: PathBuf,
    variables: Vec<(&'static str, String)>,
    log: PathBuf,
    _kubelets: AbortOnDropHandle<()>,
    client: Client,
}

/// How it is started.
pub struct Start<'a> {
    /// Karpenter with its KWOK provider.
    pub program: &'a Path,
    /// The administrator's kubeconfig.
    pub kubeconfig: &'a Path,
    /// Where its files and its log go.
    pub dir: &'a Path,
    /// The ports of its metrics and its health.
    pub ports: [u16; 2],
}

impl Karpenter {
    /// Starts it with the AWS types of the price tables.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(how: &Start<'_>, cluster: &Cluster) -> anyhow::Result<Self> {
        let Start { program, kubeconfig, dir, ports: [metrics, health] } = how;
        let types = types()?;
        let path = dir.join("instance-types.json");
        fs::write(&path, serde_json::to_vec(&types.offered)?).with_context(|| path.display().to_string())?;
        let variables = vec![
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("INSTANCE_TYPES_FILE_PATH", path.display().to_string()),
            ("DISABLE_LEADER_ELECTION", "true".to_owned()),
            ("METRICS_PORT", metrics.to_string()),
            ("HEALTH_PROBE_PORT", health.to_string()),
            ("KARPENTER_SERVICE", "karpenter".to_owned()),
            ("SYSTEM_NAMESPACE", "kube-system".to_owned()),
            ("LOG_LEVEL", "info".to_owned()),
            // With reserved capacity the process dies of a pool that allows it.
            ("FEATURE_GATES", "ReservedCapacity=false,NodeOverlay=true,CapacityBuffer=true".to_owned()),
        ];
        let client = cluster.client();
        let kubelets = AbortOnDropHandle::new(tokio::spawn(kubelets(client.clone(), types.amounts)));
        let (program, log) = (program.to_path_buf(), dir.join("karpenter.log"));
        let mut karpenter = Self { process: None, program, variables, log, _kubelets: kubelets, client };
        karpenter.start_again()?;
        Ok(karpenter)
    }

    /// Starts it after it was killed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let mut command = std::process::Command::new(&self.program);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        self.process = Some(Process::spawn(command, &self.log)?);
        Ok(())
    }

    /// Ends it with no warning.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.take().context("Karpenter does not run")?.kill().await
    }

    /// Stops it where it stands, or lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn signal(&self, signal: &str) -> anyhow::Result<()> {
        self.process.as_ref().context("Karpenter does not run")?.signal(signal).await
    }

    /// Ends all claims, and then it.
    ///
    /// # Errors
    /// When a claim does not end.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("Karpenter does not run")?;
        ensure!(process.runs(), "Karpenter ended unasked; see its log");
        let claims = claims(&self.client);
        claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        eventually("end of all NodeClaims", ENDED_WITHIN, async || {
            let left = claims.list(&ListParams::default()).await?.items.len();
            Ok(if left == 0 { Ok(()) } else { Err(format!("{left} are left")) })
        })
        .await?;
        process.stop().await
    }
}

/// The `NodeClaims` of a cluster.
pub fn claims(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim")))
}

/// The `NodePools` of a cluster.
pub fn node_pools(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool")))
}

/// The `NodeOverlays` of a cluster.
pub fn node_overlays(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("karpenter.sh", "v1alpha1", "NodeOverlay");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// The `NodeClasses` of KWOK.
pub fn node_classes(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "kwoknodeclasses"))
}

/// Creates an object anew that was deleted.
pub async fn give_back(api: &Api<DynamicObject>, mut object: DynamicObject) -> anyhow::Result<()> {
    let name = object.metadata.name.take();
    object.metadata = ObjectMeta { name, ..ObjectMeta::default() };
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// What Karpenter is told of instance types, and what a kubelet says of each.
struct Types {
    offered: Vec<Value>,
    amounts: BTreeMap<String, Value>,
}

/// The types of AWS in us-east-1 that the price tables know.
fn types() -> anyhow::Result<Types> {
    let book = stoker_pricing::embedded()?;
    let mut types = Types { offered: Vec::new(), amounts: BTreeMap::new() };
    for spec in book.specs().filter(|spec| spec.cloud.as_str() == "aws") {
        let (name, Some((capacity, _))) = (&spec.instance_type, resources(spec)) else { continue };
        let amounts = json!({
            "cpu": format!("{}m", capacity.milli_cpu),
            "memory": format!("{}Mi", capacity.memory.0),
            "ephemeral-storage": format!("{}Mi", capacity.ephemeral.0),
            "pods": capacity.pods.to_string(),
            "nvidia.com/gpu": capacity.gpus.to_string(),
        });
        let offering = |zone: &str, capacity_type: CapacityType| {
            json!({
                "Price": if capacity_type == CapacityType::Spot { 1.0 } else { 2.0 },
                "Available": true,
                "Requirements": [
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type.as_str()] },
                    { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone] },
                ],
            })
        };
        let both = [CapacityType::Spot, CapacityType::OnDemand];
        let offerings: Vec<Value> = ZONES.iter().flat_map(|zone| both.map(|bought| offering(zone, bought))).collect();
        types.offered.push(json!({
            "name": name.as_str(),
            "architecture": spec.arch.as_str(),
            "operatingSystems": ["linux"],
            "resources": amounts,
            "offerings": offerings,
        }));
        types.amounts.insert(name.to_string(), amounts);
    }
    Ok(types)
}

/// Makes new Nodes of KWOK Ready, with what their machine would have, for ever.
async fn kubelets(client: Client, amounts: BTreeMap<String, Value>) {
    let nodes = Api::<Node>::all(client);
    loop {
        sleep(EVERY).await;
        let Ok(listed) = nodes.list(&ListParams::default()).await else { continue };
        for node in listed.items.iter().filter(|node| is_of_kwok(node) && !is_ready(node)) {
            let Some(amounts) = node.labels().get("node.kubernetes.io/instance-type").and_then(|name| amounts.get(name)) else {
                continue;
            };
            let said = nodes.patch_status(&node.name_any(), &PatchParams::default(), &kubelet_says(amounts)).await;
            if let Err(error) = said {
                eprintln!("Node {}: {error}", node.name_any());
            }
        }
    }
}

fn is_of_kwok(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).is_some_and(|id| id.starts_with("kwok://"))
}
