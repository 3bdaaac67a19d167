//! A Pod as the autoscaler sends it, cut down to what a choice of nodes may look at.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_pb::api::core::v1::Toleration as WireToleration;
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use prost::Message as _;
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::base::text::quoted;
use stoker_core::base::units::{Work, scaled};
use stoker_core::catalogue::template::NodeTemplate;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::market::sharing::Slices;

use super::quantity::{self, QuantityError};

/// What is kept of a Pod. Its containers, with their environment, arguments and volumes, are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it needs to be scheduled.
    pub requests: Requests,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it accepts.
    pub tolerations: Vec<Toleration>,
    /// Whether more than these decides where it may run: affinity, spread over places, or a volume that lies somewhere.
    pub choosy: bool,
}

/// What a Pod needs to be scheduled: the most that it needs at any one time, as the scheduler counts it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// CPU in thousandths of a core.
    pub milli_cpu: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// `nvidia.com/gpu`.
    pub gpus: u64,
    /// GPU resources under other names.
    pub slices: Slices,
}

/// Taints that a Pod accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    /// Key of the taint; any key when empty.
    pub key: String,
    /// `Equal`, `Exists`, or a newer word.
    pub operator: String,
    /// Value of the taint, for `Equal`.
    pub value: String,
    /// Effect of the taint; any effect when empty.
    pub effect: String,
}

/// Why bytes are not a Pod.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// They are no protobuf of a Pod.
    #[error("cannot decode a core/v1 Pod from {len} bytes")]
    Decode {
        /// How many bytes came.
        len: usize,
        /// What the decoder says.
        #[source]
        source: prost::DecodeError,
    },
    /// The Pod has no name.
    #[error("the Pod has no name")]
    NoName,
    /// A request of it is no quantity.
    #[error("Pod {namespace}/{name} requests {resource}")]
    Request {
        /// The Pod's namespace.
        namespace: String,
        /// The Pod's name.
        name: String,
        /// Which resource.
        resource: String,
        /// What is wrong with the amount.
        #[source]
        source: QuantityError,
    },
}

impl PodError {
    /// A stable word for metrics and logs.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Decode { .. } => "undecodable-pod",
            Self::NoName => "nameless-pod",
            Self::Request { source, .. } => source.label(),
        }
    }
}

/// A core/v1 Pod as far as it is read. The decoder steps over every other field, so no environment, argument or volume is ever copied,
/// and a Pod is read in a fraction of the time. The tests hold these against the whole messages.
#[derive(Clone, PartialEq, prost::Message)]
struct ReadPod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ReadMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<ReadSpec>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReadMeta {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "3")]
    namespace: Option<String>,
}

/// A Pod as far as it is annotated.
#[derive(Clone, PartialEq, prost::Message)]
struct ReadAnnotated {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ReadAnnotations>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReadAnnotations {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "3")]
    namespace: Option<String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

/// A Pod as far as it tells what it asks for.
#[derive(Clone, PartialEq, prost::Message)]
struct ReadAsks {
    #[prost(message, optional, tag = "2")]
    spec: Option<ReadSpec>,
}

/// Something of which only matters whether it is there.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct Present {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReadVolume {
    #[prost(message, optional, tag = "2")]
    source: Option<ReadVolumeSource>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct ReadVolumeSource {
    #[prost(message, optional, tag = "10")]
    claim: Option<Present>,
    #[prost(message, optional, tag = "29")]
    ephemeral: Option<Present>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReadSpec {
    #[prost(message, repeated, tag = "1")]
    pub(super) volumes: Vec<ReadVolume>,
    #[prost(message, optional, tag = "18")]
    pub(super) affinity: Option<Present>,
    #[prost(message, repeated, tag = "33")]
    pub(super) spread: Vec<Present>,
    #[prost(message, repeated, tag = "2")]
    pub(super) containers: Vec<ReadContainer>,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(super) node_selector: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "20")]
    pub(super) init_containers: Vec<ReadContainer>,
    #[prost(message, repeated, tag = "22")]
    pub(super) tolerations: Vec<WireToleration>,
    #[prost(btree_map = "string, message", tag = "32")]
    pub(super) overhead: Amounts,
    #[prost(message, optional, tag = "40")]
    pub(super) resources: Option<ReadResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReadResources {
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) requests: Amounts,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReadContainer {
    #[prost(message, optional, tag = "8")]
    pub(super) resources: Option<ReadResources>,
    #[prost(string, optional, tag = "24")]
    pub(super) restart_policy: Option<String>,
}

/// Decodes a core/v1 Pod protobuf and keeps its facts.
///
/// # Errors
/// See [`PodError`]; no error shows more of the Pod than its name and the amount at fault.
pub fn pod_facts(bytes: &[u8]) -> Result<PodFacts, PodError> {
    let pod = ReadPod::decode(bytes).map_err(|source| PodError::Decode { len: bytes.len(), source })?;
    let (name, namespace) = pod.metadata.map(|meta| (meta.name, meta.namespace)).unwrap_or_default();
    let name = name.filter(|name| !name.is_empty()).ok_or(PodError::NoName)?;
    let namespace = namespace.unwrap_or_default();
    let spec = pod.spec.unwrap_or_default();
    let requests = match requests(&spec) {
        Ok(requests) => requests,
        Err((resource, source)) => return Err(PodError::Request { namespace, name, resource, source }),
    };
    let placed = |volume: &ReadVolume| volume.source.is_some_and(|source| source.claim.is_some() || source.ephemeral.is_some());
    let choosy = spec.affinity.is_some() || !spec.spread.is_empty() || spec.volumes.iter().any(placed);
    let tolerations = spec.tolerations.into_iter().map(Toleration::from).collect();
    Ok(PodFacts { namespace, name, requests, node_selector: spec.node_selector, tolerations, choosy })
}

/// The annotation by when a pod's work has to be done, as RFC 3339.
pub const DEADLINE: &str = "stoker.dev/deadline";
/// The annotation how much work that is: hours of one GPU of the pool's slowest model.
pub const GPU_HOURS: &str = "stoker.dev/gpu-hours";

/// A pod's work, and by when it has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// By when.
    pub at: Timestamp,
    /// The work, as hours of one GPU of the pool's slowest model.
    pub gpu_hours: Work,
}

/// Why a pod's deadline cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeadlineError {
    /// Without the work nobody knows how long it takes.
    #[error("pod {pod} has {DEADLINE} and no {GPU_HOURS}: write how many hours one GPU of the pool's slowest model takes")]
    NoWork {
        /// The pod, with its namespace.
        pod: String,
    },
    /// No time.
    #[error("pod {pod}: {DEADLINE} {} is no time: write it like 2026-12-01T08:00:00Z", quoted(.text))]
    Time {
        /// The pod, with its namespace.
        pod: String,
        /// What is written.
        text: String,
    },
    /// No amount of work.
    #[error("pod {pod}: {GPU_HOURS} {} is no number above 0: write hours like 40 or 2.5", quoted(.text))]
    Work {
        /// The pod, with its namespace.
        pod: String,
        /// What is written.
        text: String,
    },
}

/// The deadline of a core/v1 Pod protobuf; `None` where it has none, or is no pod.
///
/// # Errors
/// See [`DeadlineError`].
pub fn pod_deadline(bytes: &[u8]) -> Result<Option<Deadline>, DeadlineError> {
    // Nearly no pod has one, and to read the annotations of all would be most of the work.
    if memchr::memmem::find(bytes, DEADLINE.as_bytes()).is_none() {
        return Ok(None);
    }
    let Some(meta) = ReadAnnotated::decode(bytes).ok().and_then(|pod| pod.metadata) else { return Ok(None) };
    let Some(text) = meta.annotations.get(DEADLINE) else { return Ok(None) };
    let pod = format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let Ok(at) = text.parse() else { return Err(DeadlineError::Time { pod, text: text.clone() }) };
    let Some(text) = meta.annotations.get(GPU_HOURS) else { return Err(DeadlineError::NoWork { pod }) };
    match scaled(text, 6).filter(|hours| *hours > 0) {
        Some(hours) => Ok(Some(Deadline { at, gpu_hours: Work(hours) })),
        None => Err(DeadlineError::Work { pod, text: text.clone() }),
    }
}

/// What a core/v1 Pod protobuf asks for; `None` where it cannot be read, of which [`pod_facts`] tells why.
pub fn pod_requests(bytes: &[u8]) -> Option<Requests> {
    requests(&ReadAsks::decode(bytes).ok()?.spec.unwrap_or_default()).ok()
}

impl PodFacts {
    /// Whether its selector and its tolerations admit such a node.
    pub fn admits(&self, node: &NodeTemplate) -> bool {
        self.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && node.taints.iter().all(|taint| {
                taint.effect == TaintEffect::PreferNoSchedule || self.tolerations.iter().any(|one| one.covers(taint))
            })
    }
}

impl Toleration {
    fn covers(&self, taint: &Taint) -> bool {
        let exists = self.operator == "Exists";
        let effect = self.effect.is_empty() || self.effect == taint.effect.as_str();
        effect && if self.key.is_empty() { exists } else { self.key == taint.key && (exists || self.value == taint.value) }
    }
}

impl From<WireToleration> for Toleration {
    fn from(wire: WireToleration) -> Self {
        Self {
            key: wire.key.unwrap_or_default(),
            operator: wire.operator.filter(|word| !word.is_empty()).unwrap_or_else(|| "Equal".to_owned()),
            value: wire.value.unwrap_or_default(),
            effect: wire.effect.unwrap_or_default(),
        }
    }
}

/// The resource at fault, and the fault.
type Fault = (String, QuantityError);
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Containers and sidecars run together; each other init container runs alone, beside the sidecars that were started before it.
pub(super) fn requests(spec: &ReadSpec) -> Result<Requests, Fault> {
    let mut sidecars = Requests::default();
    let mut start = Requests::default();
    for container in &spec.init_containers {
        let own = of_container(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.plus(&own)?;
            start = start.max(&sidecars);
        } else {
            start = start.max(&sidecars.clone().plus(&own)?);
        }
    }
    let mut run = sidecars;
    for container in &spec.containers {
        run = run.plus(&of_container(container)?)?;
    }
    let mut total = run.max(&start);
    // Requests of the Pod as a whole stand for those of its containers.
    if let Some(resources) = &spec.resources {
        if let Some(milli_cpu) = amount(&resources.requests, CPU, quantity::milli)? {
            total.milli_cpu = milli_cpu;
        }
        if let Some(memory_bytes) = amount(&resources.requests, MEMORY, quantity::whole)? {
            total.memory_bytes = memory_bytes;
        }
    }
    total.plus(&of_amounts(&spec.overhead)?)
}

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

fn of_container(container: &ReadContainer) -> Result<Requests, Fault> {
    container.resources.as_ref().map_or(Ok(Requests::default()), |resources| of_amounts(&resources.requests))
}

fn of_amounts(amounts: &Amounts) -> Result<Requests, Fault> {
    let mut slices = Slices::default();
    for name in amounts.keys().filter(|name| Slices::is_slice(name)) {
        slices.add(name, amount(amounts, name, quantity::whole)?.unwrap_or(0));
    }
    Ok(Requests {
        milli_cpu: amount(amounts, CPU, quantity::milli)?.unwrap_or(0),
        memory_bytes: amount(amounts, MEMORY, quantity::whole)?.unwrap_or(0),
        gpus: amount(amounts, GPU_RESOURCE, quantity::whole)?.unwrap_or(0),
        slices,
    })
}

fn amount(amounts: &Amounts, resource: &str, read: fn(&str) -> Result<u64, QuantityError>) -> Result<Option<u64>, Fault> {
    let Some(text) = amounts.get(resource) else { return Ok(None) };
    read(text.string.as_deref().unwrap_or_default()).map(Some).map_err(|source| (resource.to_owned(), source))
}

impl Requests {
    /// GPUs, whole or in slices of any kind.
    pub fn all_gpus(&self) -> u64 {
        self.gpus.saturating_add(self.slices.total())
    }

    fn plus(mut self, other: &Self) -> Result<Self, Fault> {
        let sum = |resource: &str, a: u64, b: u64| {
            a.checked_add(b).ok_or_else(|| (resource.to_owned(), QuantityError::TooLarge(format!("{a} + {b}"))))
        };
        for (name, number) in other.slices.iter() {
            sum(name, self.slices.of(name), number)?;
            self.slices.add(name, number);
        }
        Ok(Self {
            milli_cpu: sum(CPU, self.milli_cpu, other.milli_cpu)?,
            memory_bytes: sum(MEMORY, self.memory_bytes, other.memory_bytes)?,
            gpus: sum(GPU_RESOURCE, self.gpus, other.gpus)?,
            slices: self.slices,
        })
    }

    fn max(mut self, other: &Self) -> Self {
        for (name, number) in other.slices.iter() {
            self.slices.raise(name, number);
        }
        Self {
            milli_cpu: self.milli_cpu.max(other.milli_cpu),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            gpus: self.gpus.max(other.gpus),
            slices: self.slices,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_pb::api::core::v1::{
        Affinity, Container, EnvVar, PersistentVolumeClaimVolumeSource, Pod, PodSpec, ResourceRequirements, SecretVolumeSource,
        TopologySpreadConstraint, Volume, VolumeSource,
    };
    use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn amounts(pairs: &[(&str, &str)]) -> Amounts {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), Quantity { string: Some((*v).to_owned()) })).collect()
    }

    fn container(pairs: &[(&str, &str)]) -> Container {
        let resources = Some(ResourceRequirements { requests: amounts(pairs), ..Default::default() });
        Container { resources, ..Default::default() }
    }

    fn sidecar(pairs: &[(&str, &str)]) -> Container {
        Container { restart_policy: Some("Always".to_owned()), ..container(pairs) }
    }

    fn bytes(spec: PodSpec) -> Vec<u8> {
        let metadata = ObjectMeta { name: Some("train-0".into()), namespace: Some("ml".into()), ..Default::default() };
        Pod { metadata: Some(metadata), spec: Some(spec), ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn a_deadline_is_read_with_its_work_and_what_is_wrong_with_it_is_told() {
        let read = |annotations: &[(&str, &str)]| {
            let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let metadata =
                ObjectMeta { name: Some("train-0".into()), namespace: Some("ml".into()), annotations, ..Default::default() };
            let pod = Pod { metadata: Some(metadata), ..Default::default() }.encode_to_vec();
            pod_deadline(&pod).map_err(|error| error.to_string())
        };
        let at = "2026-12-01T08:00:00Z";
        let expected = Deadline { at: at.parse().unwrap(), gpu_hours: Work(40_500_000) };
        assert_eq!(read(&[(DEADLINE, at), (GPU_HOURS, "40.5")]), Ok(Some(expected)));
        assert_eq!(read(&[(GPU_HOURS, "40"), ("note", DEADLINE)]), Ok(None));
        let no = |error: &str| Err(error.to_owned());
        assert_eq!(
            read(&[(DEADLINE, at)]),
            no(
                "pod ml/train-0 has stoker.dev/deadline and no stoker.dev/gpu-hours: write how many hours one GPU of the pool's \
                slowest model takes"
            )
        );
        assert_eq!(
            read(&[(DEADLINE, "tomorrow"), (GPU_HOURS, "1")]),
            no("pod ml/train-0: stoker.dev/deadline \"tomorrow\" is no time: write it like 2026-12-01T08:00:00Z")
        );
        assert_eq!(
            read(&[(DEADLINE, at), (GPU_HOURS, "0")]),
            no("pod ml/train-0: stoker.dev/gpu-hours \"0\" is no number above 0: write hours like 40 or 2.5")
        );
        assert_eq!(pod_deadline(b"stoker.dev/deadline"), Ok(None), "no pod");
    }

    #[test]
    fn secrets_do_not_survive_the_trimming() {
        let mut main = container(&[("cpu", "3500m"), ("memory", "1.5Gi"), (GPU_RESOURCE, "1")]);
        main.env = vec![EnvVar { name: Some("TOKEN".into()), value: Some("hunter2".into()), value_from: None }];
        main.args = vec!["--password=hunter2".into()];
        let secret = SecretVolumeSource { secret_name: Some("hunter2".into()), ..Default::default() };
        let source = VolumeSource { secret: Some(secret), ..Default::default() };
        let volume = Volume { name: Some("v".into()), volume_source: Some(source) };
        let toleration =
            WireToleration { key: Some(GPU_RESOURCE.into()), operator: Some("Exists".into()), ..Default::default() };
        let spec = PodSpec {
            containers: vec![main],
            volumes: vec![volume],
            tolerations: vec![toleration, WireToleration::default()],
            node_selector: BTreeMap::from([("stoker.dev/pool".to_owned(), "inference".to_owned())]),
            ..Default::default()
        };
        let wire = bytes(spec);
        assert!(wire.windows(7).any(|window| window == b"hunter2"));

        let facts = pod_facts(&wire).unwrap();
        let golden = r#"PodFacts { namespace: "ml", name: "train-0", requests: Requests { milli_cpu: 3500, memory_bytes: 1610612736, gpus: 1, slices: Slices({}) }, node_selector: {"stoker.dev/pool": "inference"}, tolerations: [Toleration { key: "nvidia.com/gpu", operator: "Exists", value: "", effect: "" }, Toleration { key: "", operator: "Equal", value: "", effect: "" }], choosy: false }"#;
        assert_eq!(format!("{facts:?}"), golden);
    }

    #[test]
    fn a_pod_needs_the_most_of_any_one_time() {
        let spec = PodSpec {
            init_containers: vec![
                container(&[("cpu", "4"), ("memory", "1Gi")]),
                sidecar(&[("cpu", "500m")]),
                container(&[("memory", "8Gi")]),
            ],
            containers: vec![container(&[("cpu", "1"), (GPU_RESOURCE, "2")]), container(&[("cpu", "1"), ("memory", "2Gi")])],
            overhead: amounts(&[("cpu", "250m")]),
            ..Default::default()
        };
        // CPU: the first init container's 4 beat 500m + 1 + 1; memory: the last one's 8 GiB; both plus the overhead.
        let expected = Requests { milli_cpu: 4_250, memory_bytes: 8 << 30, gpus: 2, slices: Slices::default() };
        assert_eq!(pod_facts(&bytes(spec.clone())).unwrap().requests, expected);

        let whole = ResourceRequirements { requests: amounts(&[("cpu", "6")]), ..Default::default() };
        let spec = PodSpec { resources: Some(whole), ..spec };
        assert_eq!(pod_facts(&bytes(spec.clone())).unwrap().requests, Requests { milli_cpu: 6_250, ..expected.clone() });
        assert_eq!(pod_requests(&bytes(spec)), Some(Requests { milli_cpu: 6_250, ..expected }));
    }

    #[test]
    fn what_decides_where_a_pod_may_run_beside_selector_and_taints_is_seen() {
        let choosy = |spec: PodSpec| pod_facts(&bytes(spec)).unwrap().choosy;
        let volume = |source: VolumeSource| {
            let volumes = vec![Volume { name: Some("v".into()), volume_source: Some(source) }];
            PodSpec { volumes, ..Default::default() }
        };
        let claim = Some(PersistentVolumeClaimVolumeSource { claim_name: Some("data".into()), ..Default::default() });
        assert!(choosy(volume(VolumeSource { persistent_volume_claim: claim, ..Default::default() })));
        assert!(!choosy(volume(VolumeSource { secret: Some(SecretVolumeSource::default()), ..Default::default() })));
        assert!(choosy(PodSpec { affinity: Some(Affinity::default()), ..Default::default() }));
        let spread = vec![TopologySpreadConstraint::default()];
        assert!(choosy(PodSpec { topology_spread_constraints: spread, ..Default::default() }));
    }

    #[test]
    fn slices_are_counted_as_gpus_are() {
        const ONE_G: &str = "nvidia.com/mig-1g.10gb";
        let spec = PodSpec {
            init_containers: vec![container(&[(ONE_G, "3")]), sidecar(&[(ONE_G, "1")])],
            containers: vec![
                container(&[(ONE_G, "1"), ("nvidia.com/gpu.shared", "2")]),
                container(&[("nvidia.com/rdma", "1")]),
            ],
            ..Default::default()
        };
        // The first init container's three beat one of the sidecar and one of the pod.
        let asked = pod_facts(&bytes(spec)).unwrap().requests;
        assert_eq!(asked.slices.iter().collect::<Vec<_>>(), [("nvidia.com/gpu.shared", 2), (ONE_G, 3)]);
        assert_eq!((asked.gpus, asked.all_gpus()), (0, 5));
        let bad = vec![container(&[(ONE_G, "-1")])];
        let error = pod_facts(&bytes(PodSpec { containers: bad, ..Default::default() })).unwrap_err();
        assert_eq!(error.to_string(), "Pod ml/train-0 requests nvidia.com/mig-1g.10gb");
    }

    #[test]
    fn what_is_no_pod_is_told_with_its_place() {
        assert!(matches!(pod_facts(b"\xff\xff"), Err(PodError::Decode { len: 2, .. })));
        assert!(matches!(pod_facts(b""), Err(PodError::NoName)));
        assert_eq!((pod_requests(b"\xff\xff"), pod_requests(b"")), (None, Some(Requests::default())));
        let error =
            pod_facts(&bytes(PodSpec { containers: vec![container(&[("memory", "1GB")])], ..Default::default() })).unwrap_err();
        assert_eq!(error.to_string(), "Pod ml/train-0 requests memory");
        assert_eq!(error.label(), "not-a-quantity");
        let twice = vec![container(&[("memory", "15Ei")]), container(&[("memory", "15Ei")])];
        let error = pod_facts(&bytes(PodSpec { containers: twice, ..Default::default() })).unwrap_err();
        assert_eq!(error.label(), "too-large-quantity");
    }
}
