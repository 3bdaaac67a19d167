//! The limits of the whole cluster: cores, memory, GPUs by kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::client::Client;
use super::cluster::Requests;
use super::door::{Door, Template};
use super::fit::{SimNode, has_label};
use super::settings::Settings;

/// What the nodes of the cluster have, coming ones too.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    gpu_label: Arc<str>,
    milli_cpu: u64,
    memory: u64,
    gpus: BTreeMap<String, u64>,
}

impl Usage {
    /// Counts the nodes. Asks for the group of each, and fails with the first call that does, or with a foreign node that has the
    /// GPU label and no GPUs; then nothing in the cluster is scaled in this loop.
    pub(super) async fn count<D: Door>(
        client: &mut Client<D>,
        nodes: &[SimNode],
        templates: &BTreeMap<String, Arc<Template>>,
    ) -> Result<Self, String> {
        let gpu_label = client.gpu_label().await;
        let mut usage = Self { gpu_label, ..Self::default() };
        for node in nodes {
            let name = &node.node.name;
            let group = client.group_of(&node.node).await.map_err(|e| format!("no group of {name}: {e}"))?;
            let mut gpus = node.allocatable.gpus;
            if has_label(&node.node, &usage.gpu_label) && gpus == 0 {
                // A node of ours whose GPUs are not there yet counts as its template.
                let group = group.ok_or_else(|| format!("{name} has the GPU label, no GPUs, and is of no group"))?;
                gpus = templates.get(group.as_ref()).map_or(0, |t| t.capacity.gpus);
            }
            let resources = Requests { milli_cpu: node.allocatable.milli_cpu, memory: node.allocatable.memory, gpus };
            usage.add(resources, node.node.labels.get(usage.gpu_label.as_ref()).cloned(), 1);
        }
        Ok(usage)
    }

    fn add(&mut self, each: Requests, gpu_kind: Option<String>, nodes: u64) {
        self.milli_cpu += each.milli_cpu * nodes;
        self.memory += each.memory.0 * nodes;
        if let Some(kind) = gpu_kind {
            *self.gpus.entry(kind).or_default() += u64::from(each.gpus) * nodes;
        }
    }

    /// How many nodes of that template the limits allow, at most `wanted`.
    pub(super) fn allowed(&self, settings: &Settings, template: &Template, wanted: i32) -> i32 {
        let room = |limit: Option<u64>, used: u64, each: u64| match limit {
            Some(limit) if each > 0 => i32::try_from(limit.saturating_sub(used) / each).unwrap_or(i32::MAX),
            _ => i32::MAX,
        };
        let kind = template.labels.get(self.gpu_label.as_ref());
        let gpu_limit = kind.and_then(|kind| settings.max_gpus.get(kind)).copied();
        let gpus_used = kind.and_then(|kind| self.gpus.get(kind)).copied().unwrap_or_default();
        wanted
            .min(room(settings.max_cores.map(|cores| cores * 1000), self.milli_cpu, template.capacity.milli_cpu))
            .min(room(settings.max_memory.map(|m| m.0), self.memory, template.capacity.memory.0))
            .min(room(gpu_limit, gpus_used, u64::from(template.capacity.gpus)))
    }
}
