//! Pods as the API server sends them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use stoker_advice::rollup::{Owner, PodLabels};
use stoker_core::catalogue::template::{GPU_LABEL, POOL_LABEL};
use stoker_core::facts::images::ImageId;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::market::sharing::Slices;

use super::images::RawReference;
use super::nodes::RawCondition;
use super::{Asks, Claim, PodRow, RawMeta};
use crate::kube::gpu_labels::GPU_LABELS;
use crate::kube::pending::{RawAffinity, amounts, wanted};
use crate::kube::pods::{ReadContainer, ReadResources, ReadSpec, requests};

#[derive(Deserialize)]
pub(crate) struct RawPod {
    pub(crate) metadata: RawMeta,
    spec: Option<RawPodSpec>,
    status: Option<RawPodStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawPodSpec {
    node_name: Option<String>,
    containers: Option<Vec<RawContainer>>,
    init_containers: Option<Vec<RawContainer>>,
    resource_claims: Option<Vec<IgnoredAny>>,
    termination_grace_period_seconds: Option<u32>,
    node_selector: Option<BTreeMap<String, String>>,
    /// Read further only of a GPU pod.
    affinity: Option<Value>,
    overhead: Option<Amounts>,
    resources: Option<RawResources>,
}

/// What a pod gets that does not say: the API server writes it into every pod.
const DEFAULT_GRACE: u32 = 30;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawPodStatus {
    phase: Option<String>,
    conditions: Option<Vec<RawCondition>>,
    container_statuses: Option<Vec<RawContainerStatus>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainerStatus {
    restart_count: Option<i64>,
    state: Option<RawContainerState>,
}

#[derive(Deserialize)]
struct RawContainerState {
    running: Option<RawRunning>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRunning {
    started_at: Option<String>,
}

impl RawPodStatus {
    /// When it got its node.
    fn scheduled(&self) -> Option<Timestamp> {
        self.conditions.iter().flatten().find(|condition| condition.is("PodScheduled"))?.since()
    }

    /// How long after it was scheduled all containers ran, as its kubelet tells. Once one was restarted nobody knows any
    /// more.
    fn started_after(&self) -> Option<Duration> {
        let scheduled = self.scheduled()?;
        let started = |container: &RawContainerStatus| -> Option<Timestamp> {
            let running = container.state.as_ref()?.running.as_ref().filter(|_| container.restart_count.unwrap_or(0) == 0)?;
            running.started_at.as_deref()?.parse().ok()
        };
        let starts: Vec<Timestamp> = self.container_statuses.iter().flatten().map(started).collect::<Option<_>>()?;
        // Below zero where the clocks of scheduler and kubelet differ.
        Duration::try_from(starts.into_iter().max()?.duration_since(scheduled)).ok()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainer {
    image: Option<RawReference>,
    resources: Option<RawResources>,
    restart_policy: Option<String>,
}

#[derive(Deserialize)]
struct RawResources {
    requests: Option<Amounts>,
    limits: Option<Amounts>,
}

type Amounts = BTreeMap<String, Value>;

/// Whether a container may use that resource only on a GPU: whole GPUs, MIG slices, and either of them shared.
pub(crate) fn is_gpu(resource: &str) -> bool {
    resource == GPU_RESOURCE || Slices::is_slice(resource)
}

impl RawContainer {
    fn wants_gpu(&self) -> bool {
        let Some(resources) = &self.resources else { return false };
        [&resources.requests, &resources.limits]
            .into_iter()
            .flatten()
            .flatten()
            .any(|(name, amount)| is_gpu(name) && amount != "0" && *amount != 0)
    }

    /// GPUs, or slices of any kind; `None` where an amount is no whole number.
    fn units(&self) -> Option<u32> {
        let amounts = self.resources.as_ref().and_then(|resources| resources.limits.as_ref().or(resources.requests.as_ref()));
        let number = |amount: &Value| match amount {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
        };
        let mut of_gpus = amounts.into_iter().flatten().filter(|(name, _)| is_gpu(name));
        of_gpus.try_fold(0_u32, |sum, (_, amount)| sum.checked_add(number(amount)?))
    }
}

impl RawPod {
    /// Whether it may use a GPU: a container of it wants one, or it claims something, which may be one.
    pub(crate) fn wants_gpu(&self) -> bool {
        let of = |spec: &RawPodSpec| {
            let claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
            claims || [&spec.containers, &spec.init_containers].into_iter().flatten().flatten().any(RawContainer::wants_gpu)
        };
        self.spec.as_ref().is_some_and(of)
    }

    /// How many seconds it is given between SIGTERM and its end.
    pub(crate) fn grace(&self) -> u32 {
        self.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE)
    }
}

impl RawPodSpec {
    /// GPUs, or slices of any kind, that its containers ask for together.
    fn units(&self) -> Option<u32> {
        if self.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
            return None;
        }
        let of =
            |list: &Option<Vec<RawContainer>>| list.as_deref().unwrap_or_default().iter().map(RawContainer::units).collect();
        let (run, start): (Option<Vec<u32>>, Option<Vec<u32>>) = (of(&self.containers), of(&self.init_containers));
        // What starts before the rest runs alone.
        let run = run?.into_iter().try_fold(0_u32, u32::checked_add)?;
        Some(start?.into_iter().fold(run, u32::max))
    }
}

fn resources(raw: RawResources) -> ReadResources {
    ReadResources { requests: amounts(raw.requests.or(raw.limits)) }
}

impl RawPodSpec {
    /// What the pod asks for. Takes its amounts.
    fn asks(&mut self, node: &str, owner: &Owner, metadata: &RawMeta, status: &RawPodStatus) -> Asks {
        let read =
            |raw: RawContainer| ReadContainer { resources: raw.resources.map(resources), restart_policy: raw.restart_policy };
        let containers = |list: Option<Vec<RawContainer>>| list.into_iter().flatten().map(read).collect();
        let amounts_of = ReadSpec {
            containers: containers(self.containers.take()),
            init_containers: containers(self.init_containers.take()),
            overhead: amounts(self.overhead.take()),
            resources: self.resources.take().map(resources),
            ..ReadSpec::default()
        };
        let terms = self.affinity.take().and_then(|raw| serde_json::from_value::<RawAffinity>(raw).ok()?.required());
        let selector = self.node_selector.take().unwrap_or_default();
        let (mut pool, mut gpus) = (None, Vec::new());
        for (label, values) in wanted(&selector, terms.as_deref()) {
            if label == POOL_LABEL {
                pool = values.first().map(|name| (*name).to_owned());
            } else if label == GPU_LABEL || GPU_LABELS.contains(&label) {
                gpus.extend(values.into_iter().map(str::to_owned));
            }
        }
        Asks {
            node: node.to_owned(),
            owner_kind: metadata.owner_kind(owner).map(Arc::from),
            created: metadata.creation_timestamp.as_deref().and_then(|text| text.parse().ok()),
            scheduled: status.scheduled(),
            requests: requests(&amounts_of).ok(),
            pool,
            gpus,
        }
    }
}

impl RawPodSpec {
    /// The images of its containers.
    fn images(&self) -> Vec<ImageId> {
        let containers = [&self.containers, &self.init_containers].into_iter().flatten().flatten();
        containers.filter_map(|container| Some(container.image.as_ref()?.0)).collect()
    }
}

impl From<RawPod> for PodRow {
    fn from(mut raw: RawPod) -> Self {
        let wants_gpu = raw.wants_gpu();
        let mut spec = raw.spec.unwrap_or_default();
        let status = raw.status.unwrap_or_default();
        let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let of_daemon_set = raw.metadata.owner() == Some("DaemonSet");
        let runs = !ended && !of_daemon_set && !raw.metadata.is_leaving();
        let holds = runs && wants_gpu;
        let mirror = raw.metadata.annotations.as_ref().is_some_and(|annotations| annotations.mirror.is_some());
        let of_the_cluster = mirror || raw.metadata.namespace.as_deref() == Some("kube-system");
        let is_guest = runs && !holds && !of_the_cluster;
        let (units, spec_images) = (spec.units(), spec.images());
        let node = spec.node_name.take().filter(|name| !name.is_empty());
        let guest_on = node.clone().filter(|_| is_guest);
        let holds = node.filter(|_| holds);
        let labels = || {
            let all = raw.metadata.labels.iter().flatten();
            PodLabels::of(all.map(|(key, value)| (key.as_str(), value.as_str())))
        };
        let claim = holds.as_ref().and_then(|node| {
            let owner = raw.metadata.whose()?;
            let asks = Arc::new(spec.asks(node, &owner, &raw.metadata, &status));
            Some(Claim { owner, labels: labels(), units, started_after: status.started_after(), asks })
        });
        let images = holds.as_ref().map(|_| spec_images).unwrap_or_default();
        Self { meta: raw.metadata.thin(), holds, guest_on, claim, images }
    }
}
