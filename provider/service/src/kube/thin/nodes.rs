//! Nodes as the API server sends them.

use jiff::Timestamp;
use serde::Deserialize;
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::{CLUSTER_LABEL, GROUP_LABEL};
use stoker_core::facts::node_status::{Condition, ShownStatus};
use stoker_core::facts::snapshot::{Allocatable, Cordon, Hold};
use stoker_core::state::node_status::{self};

use super::images::RawImage;
use super::{ListedImages, NodeRow, RawMeta};
use crate::kube::quantity;

/// Who set [`SCALE_DOWN_DISABLED`](crate::kube::SCALE_DOWN_DISABLED), by its value and that of our marker.
pub(crate) fn hold(disabled: Option<&str>, marked: bool) -> Hold {
    match (disabled, marked) {
        (Some("true"), true) => Hold::Ours,
        (Some("true"), false) => Hold::Theirs,
        (Some(_), false) => Hold::Refused,
        (None, _) | (Some(_), true) => Hold::None,
    }
}

#[derive(Deserialize)]
pub(crate) struct RawNode {
    metadata: RawMeta,
    spec: Option<RawNodeSpec>,
    status: Option<RawNodeStatus>,
}

#[derive(Deserialize, Default)]
struct RawNodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    unschedulable: Option<bool>,
}

#[derive(Deserialize, Default)]
struct RawNodeStatus {
    allocatable: Option<RawAllocatable>,
    conditions: Option<Vec<RawCondition>>,
    images: Option<Vec<RawImage>>,
}

/// Quantities of the resources that templates promise.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawAllocatable {
    cpu: Option<String>,
    memory: Option<String>,
    ephemeral_storage: Option<String>,
    pods: Option<String>,
}

impl RawAllocatable {
    /// The figures; `None` where one cannot be read.
    fn read(&self) -> Option<Allocatable> {
        let whole = |text: &Option<String>| quantity::whole(text.as_deref()?).ok();
        let mib = |text: &Option<String>| Some(MiB(whole(text)? / (1024 * 1024)));
        Some(Allocatable {
            milli_cpu: quantity::milli(self.cpu.as_deref()?).ok()?,
            memory: mib(&self.memory)?,
            ephemeral: mib(&self.ephemeral_storage)?,
            pods: whole(&self.pods)?.try_into().ok()?,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawCondition {
    r#type: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<String>,
    last_heartbeat_time: Option<String>,
}

impl RawCondition {
    pub(super) fn is(&self, kind: &str) -> bool {
        self.r#type.as_deref() == Some(kind)
    }

    /// Since when it has its status.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.last_transition_time.as_deref()?.parse().ok()
    }

    fn shown(&self) -> Condition {
        Condition {
            status: self.status.as_deref().unwrap_or_default().into(),
            reason: self.reason.as_deref().unwrap_or_default().into(),
            message: self.message.as_deref().unwrap_or_default().into(),
            since: self.since(),
            told_at: self.last_heartbeat_time.as_deref().and_then(|text| text.parse().ok()),
        }
    }
}

impl From<RawNode> for NodeRow {
    fn from(mut raw: RawNode) -> Self {
        let mut labels = raw.metadata.labels.take().unwrap_or_default();
        let annotations = raw.metadata.annotations.take().unwrap_or_default();
        let marked = annotations.held.as_deref() == Some("true");
        let draining = annotations.draining.as_deref() == Some("true");
        let spec = raw.spec.unwrap_or_default();
        let created_at = raw.metadata.creation_timestamp.as_deref().and_then(|text| text.parse().ok());
        let status = raw.status.unwrap_or_default();
        let images = ListedImages::of(&status.images.unwrap_or_default());
        let conditions = status.conditions.unwrap_or_default();
        let shown = ShownStatus {
            word: annotations.verdict.map(Into::into),
            condition: conditions.iter().find(|c| c.is(node_status::CONDITION)).map(RawCondition::shown),
        };
        let ready_since = conditions
            .into_iter()
            .find(|c| c.is("Ready") && c.status.as_deref() == Some("True"))
            // Ready, but nobody knows since when: certainly not before it was created.
            .and_then(|c| c.since().or(created_at));
        Self {
            meta: raw.metadata.thin(),
            cluster: labels.remove(CLUSTER_LABEL),
            group: labels.remove(GROUP_LABEL),
            provider_id: spec.provider_id.filter(|id| !id.is_empty()),
            created_at,
            ready_since,
            hold: hold(annotations.disabled.as_deref(), marked),
            marked,
            cordon: match (spec.unschedulable == Some(true), draining) {
                (false, false) => Cordon::None,
                (false, true) => Cordon::MarkLeft,
                (true, true) => Cordon::Ours,
                (true, false) => Cordon::Theirs,
            },
            allocatable: status.allocatable.and_then(|allocatable| allocatable.read()),
            shown: Some(shown).filter(|shown| !shown.is_empty()),
            images,
        }
    }
}
