//! The limits of the whole cluster: cores, memory, GPUs by kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoker_core::catalogue::template::Resources;

use super::autoscaler::Pass;
use super::ca_client::{CaClient, Template};
use super::client::Client;
use super::cluster::Requests;
use super::fit::has_label;
use super::settings::Settings;
use super::templates::Templates;

/// What the nodes of the cluster have, coming ones too.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    gpu_label: Arc<str>,
    milli_cpu: u64,
    memory: u64,
    gpus: BTreeMap<String, u64>,
}

impl Usage {
    /// Counts the nodes; on older releases those of groups by target size and template. Asks for the group of each, and fails with
    /// the first call that does, or with a foreign node that has the GPU label and no GPUs; then nothing in the cluster is scaled in
    /// this loop.
    pub(super) async fn count<D: CaClient>(
        client: &mut Client<D>,
        settings: &Settings,
        pass: &Pass<'_>,
        templates: &Templates,
    ) -> Result<Self, String> {
        let (seen, nodes) = (&pass.roster.seen, &pass.roster.room.nodes);
        // Nothing asks for it before there is a node to look at, or a limit.
        let unused = nodes.is_empty() && settings.max_gpus.is_empty();
        let gpu_label = if unused { Arc::default() } else { client.gpu_label().await };
        let mut usage = Self { gpu_label, ..Self::default() };
        let by_node = settings.generation.counts_by_node();
        // Where groups are counted by target, what is coming is counted by that alone.
        let counted = if by_node { nodes.len() } else { seen.len() };
        for (at, node) in nodes.iter().enumerate().take(counted) {
            let group = if let Some(group) = seen.get(at).and_then(|seen| seen.group.get()) {
                Some(*group)
            } else {
                let group = client.group_of(&node.node).await;
                group.map_err(|e| format!("no group of {}: {e}", node.node.name))?
            };
            if group.is_some() && !by_node {
                continue;
            }
            let mut gpus = node.allocatable.gpus;
            if gpus == 0 && has_label(&node.node, &usage.gpu_label) {
                // A node of ours whose GPUs are not there yet counts as its template.
                let name = &node.node.name;
                let group = group.ok_or_else(|| format!("{name} has the GPU label, no GPUs, and is of no group"))?;
                gpus = templates.get(group).map_or(0, |t| t.template.capacity.gpus);
            }
            let Resources { milli_cpu, memory, .. } = node.allocatable;
            let resources = Requests { milli_cpu, memory, gpus, ..Requests::default() };
            usage.add(&resources, node.node.labels.get(usage.gpu_label.as_ref()), 1);
        }
        if !by_node {
            usage.add_targets(client, templates).await?;
        }
        Ok(usage)
    }

    async fn add_targets<D: CaClient>(&mut self, client: &mut Client<D>, templates: &Templates) -> Result<(), String> {
        for group in client.node_groups().await.iter() {
            let size = client.target_size(group.slot).await.map_err(|e| format!("no target size of {}: {e}", group.id))?;
            let Some(template) = templates.get(group.slot).map(|t| &t.template) else { continue };
            let Resources { milli_cpu, memory, gpus, .. } = template.capacity;
            let each = Requests { milli_cpu, memory, gpus, ..Requests::default() };
            let kind = template.labels.get(self.gpu_label.as_ref());
            self.add(&each, kind, u64::try_from(size).unwrap_or_default());
        }
        Ok(())
    }

    fn add(&mut self, each: &Requests, gpu_kind: Option<&String>, nodes: u64) {
        self.milli_cpu += each.milli_cpu * nodes;
        self.memory += each.memory.0 * nodes;
        let more = u64::from(each.gpus) * nodes;
        match gpu_kind.map(|kind| (kind, self.gpus.get_mut(kind))) {
            Some((_, Some(gpus))) => *gpus += more,
            Some((kind, None)) => drop(self.gpus.insert(kind.clone(), more)),
            None => {}
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
