//! A cloud for the scenarios: a peer of EC2, and the kubelets of its machines, which do what their user data says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stoker_fake_ec2::{ACCESS_KEY, Machine, Peer, SERVICES, Served, State};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// The account.
const ACCOUNT: &str = "111111111111";
/// The queue of its notices.
pub const QUEUE: &str = "stoker-e2e";
/// How often kubelets look whether their machine runs.
const EVERY: Duration = Duration::from_millis(300);
/// Memory that the hypervisor keeps of what the type has, in thousandths.
const VM_OVERHEAD_MILLI: u64 = 70;

/// The cloud. It ends when this is dropped.
pub struct Ec2 {
    /// What the peer does.
    pub peer: Peer,
    served: Served,
    kubelets: AbortOnDropHandle<()>,
    file: PathBuf,
}

impl Ec2 {
    /// Starts it, and writes the file that Stoker reads into `dir`.
    pub async fn start(client: Client, dir: &Path) -> anyhow::Result<Self> {
        let peer = Peer::new(ACCOUNT);
        {
            let mut world = peer.world();
            world.boot = Duration::from_secs(2);
            world.shutting_down = Duration::from_secs(2);
            world.require_tags = Some("e2e".to_owned());
            world.region("us-east-1").add_queue(QUEUE);
        }
        let served = peer.listen().await;
        let file = dir.join("aws.yaml");
        let kubelets = AbortOnDropHandle::new(tokio::spawn(run_kubelets(peer.clone(), client)));
        let cloud = Self { peer, served, kubelets, file };
        cloud.configure("us-east-1")?;
        Ok(cloud)
    }

    /// Writes the file that Stoker reads, with that region and no other.
    pub fn configure(&self, region: &str) -> anyhow::Result<()> {
        self.configure_with(region, &json!({ "instanceProfile": "stoker-node" }))
    }

    /// The same with that node class.
    pub fn configure_with(&self, region: &str, class: &Value) -> anyhow::Result<()> {
        let endpoints: BTreeMap<&str, &str> = SERVICES.iter().map(|service| (*service, self.served.url())).collect();
        let tags = json!({ "tags": { "stoker.dev/discovery": "prod" } });
        let file = json!({
            "apiVersion": "stoker.dev/v1alpha1",
            "kind": "AwsSupplier",
            "cluster": { "name": "prod" },
            "regions": [{
                "name": region,
                "subnets": tags,
                "securityGroups": tags,
                "interruptionQueue": QUEUE,
                "endpoints": endpoints,
            }],
            "nodeClasses": { "gpu": class },
        });
        Ok(fs::write(&self.file, file.to_string())?)
    }

    /// What a process that calls it needs in its environment.
    pub fn environment(&self) -> [(&'static str, &'static str); 3] {
        // Kept by the process that has them, so that no field is only held.
        let _ = &self.kubelets;
        [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_EC2_METADATA_DISABLED", "true")]
    }

    /// Machines that have not ended, by what their Nodes call them.
    pub fn alive(&self) -> BTreeSet<String> {
        self.peer.world().alive().into_iter().map(provider_id).collect()
    }

    /// No token ever made two machines, or was used in two zones.
    pub fn ensure_one_a_token(&self) -> anyhow::Result<()> {
        for (token, zones) in self.peer.world().machines_by_token() {
            ensure!(zones.len() == 1 && zones.values().all(|made| *made == 1), "token {token} made {zones:?}");
        }
        Ok(())
    }
}

/// Each machine that runs has a Node, and no other has.
async fn run_kubelets(peer: Peer, client: Client) {
    let nodes = Api::<Node>::all(client);
    loop {
        let running: Vec<Machine> = {
            let world = peer.world();
            world.alive().into_iter().filter(|machine| world.state(&machine.id) == Some(State::Running)).cloned().collect()
        };
        if let Err(error) = keep(&peer, &nodes, &running).await {
            eprintln!("kubelets of EC2: {error:#}");
        }
        sleep(EVERY).await;
    }
}

async fn keep(peer: &Peer, nodes: &Api<Node>, running: &[Machine]) -> anyhow::Result<()> {
    let known = nodes.list(&ListParams::default()).await?.items;
    let ids: BTreeMap<String, String> = known
        .iter()
        .filter_map(|node| Some((node.spec.as_ref()?.provider_id.clone()?, node.name_any())))
        .filter(|(id, _)| id.starts_with("aws:///"))
        .collect();
    let wanted: BTreeSet<String> = running.iter().map(provider_id).collect();
    for machine in running.iter().filter(|machine| !ids.contains_key(&provider_id(machine))) {
        let node = node(peer, machine).with_context(|| format!("the user data of {}", machine.id))?;
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    }
    // The part of the cloud's controller.
    for (_, name) in ids.iter().filter(|(id, _)| !wanted.contains(*id)) {
        match nodes.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
    }
    Ok(())
}

fn provider_id(machine: &Machine) -> String {
    format!("aws:///{}/{}", machine.zone, machine.id)
}

/// The Node that a kubelet registers by the user data of its machine, which is read and not assumed.
fn node(peer: &Peer, machine: &Machine) -> anyhow::Result<Value> {
    let text = machine.user_data.as_str();
    let part = text.split("Content-Type: application/node.eks.aws").last().context("no part for the node")?;
    let part = part.trim_start().split("\n--//").next().context("no end of the part")?;
    let config: Value = serde_saphyr::from_str(part)?;
    ensure!(config["apiVersion"] == "node.eks.aws/v1alpha1" && config["kind"] == "NodeConfig", "no NodeConfig: {config}");
    let kubelet = &config["spec"]["kubelet"];
    let flags = kubelet["flags"][0].as_str().and_then(|flag| flag.strip_prefix("--node-labels=")).context("no labels")?;
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for pair in flags.split(',') {
        let (key, value) = pair.split_once('=').with_context(|| format!("label {pair:?}"))?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    let name = format!("ip-{}.ec2.internal", machine.id);
    let (region, _) = machine.zone.split_at(machine.zone.len() - 1);
    let own = [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &name),
        ("node.kubernetes.io/instance-type", &machine.instance_type),
        ("topology.kubernetes.io/region", region),
        ("topology.kubernetes.io/zone", &machine.zone),
    ];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let info = peer.world().types.get(&machine.instance_type).cloned().context("a type that the peer does not know")?;
    let config = &kubelet["config"];
    let pods = config["maxPods"].as_u64().context("no maxPods")?;
    let milli = amount(&config["kubeReserved"]["cpu"], "m")?;
    let kept = amount(&config["kubeReserved"]["memory"], "Mi")? + amount(&config["evictionHard"]["memory.available"], "Mi")?;
    let memory = info.memory_mib * (1000 - VM_OVERHEAD_MILLI) / 1000;
    let resources = |milli_cpu: u64, memory: u64, disk: &str| {
        json!({
            "cpu": format!("{milli_cpu}m"),
            "memory": format!("{memory}Mi"),
            "ephemeral-storage": disk,
            "pods": pods.to_string(),
            "nvidia.com/gpu": info.gpus.to_string(),
        })
    };
    let cpu = u64::from(info.vcpus) * 1000;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": labels },
        "spec": { "providerID": provider_id(machine), "taints": config["registerWithTaints"] },
        "status": {
            "capacity": resources(cpu, memory, "104Gi"),
            "allocatable": resources(cpu - milli, memory - kept, "92Gi"),
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "ready",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }],
        },
    }))
}

fn amount(value: &Value, unit: &str) -> anyhow::Result<u64> {
    let text = value.as_str().and_then(|text| text.strip_suffix(unit)).with_context(|| format!("{value} is not in {unit}"))?;
    Ok(text.parse()?)
}
