//! Growing: which pods wait, which groups would help, which is asked, and the minimum sizes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::autoscaler::{Autoscaler, Pass};
use super::binpack::{Kind, KindKey, estimate, fitting, kind_of, kinds};
use super::by_group::Slot;
use super::ca_client::{CaClient, ExpanderOption};
use super::client::Listed;
use super::cluster::{Cluster, PodView};
use super::expander::choose;
use super::limits::Usage;
use super::report::{Action, LoopReport, OptionSeen, ScaleUp, Skip};
use super::seen::Roster;
use super::time::{after, count};

impl<D: CaClient, C: Cluster> Autoscaler<D, C> {
    /// The pods that neither what is there nor what is coming can take. Pods that a drain is about to move wait like the others.
    /// Those that fit are put in their place in the snapshot.
    pub(super) fn waiting(&self, pass: &mut Pass<'_>) -> Vec<Arc<PodView>> {
        let deletions = Some(&self.state.deletions).filter(|deletions| deletions.any_drains());
        let disruption = |pod: &PodView| {
            let draining = pod.node.as_ref().zip(deletions).is_some_and(|(node, deletions)| deletions.is_draining(node));
            draining && pod.movable && !pod.daemon
        };
        let Roster { pods, room, .. } = &mut *pass.roster;
        // Nodes only fill: what did not take a pod takes none like it.
        let mut looked: BTreeMap<KindKey<'_>, usize> = BTreeMap::new();
        let mut waiting = Vec::new();
        for pod in pods.iter().filter(|p| p.is_waiting() || disruption(p)) {
            let from = looked.entry(kind_of(pod)).or_default();
            let found = room.first_fit(*from, pod, |_| true);
            *from = found.unwrap_or(room.nodes.len());
            waiting.extend(found.is_none().then(|| Arc::clone(pod)));
        }
        waiting
    }

    /// Looks for a group to grow for the waiting pods, and asks it.
    pub(super) async fn scale_up(&mut self, pass: &mut Pass<'_>, waiting: Vec<Arc<PodView>>, report: &mut LoopReport) {
        report.waiting_pods = waiting.len();
        report.scale_up = if waiting.is_empty() {
            ScaleUp::NotNeeded
        } else if self.settings.max_nodes_total > 0 && count(pass.ready) >= self.settings.max_nodes_total {
            ScaleUp::MaxNodesTotal
        } else if let Some(until) = self.held_until(&waiting, pass.now) {
            pass.hold_scale_down = true;
            ScaleUp::Held { until }
        } else {
            self.grow_for(pass, &waiting, report).await
        };
    }

    /// Until when the pods are too young to act on: the oldest decides, and the oldest with GPUs.
    fn held_until(&self, waiting: &[Arc<PodView>], now: Timestamp) -> Option<Timestamp> {
        let oldest = waiting.iter().map(|p| p.created_at).min().map(|at| after(at, self.settings.pod_hold));
        let gpu_pods = waiting.iter().filter(|p| p.requests.gpus > 0);
        let oldest_gpu = gpu_pods.map(|p| p.created_at).min().map(|at| after(at, self.settings.gpu_pod_hold));
        oldest.max(oldest_gpu).filter(|until| now < *until)
    }

    async fn grow_for(&mut self, pass: &Pass<'_>, waiting: &[Arc<PodView>], report: &mut LoopReport) -> ScaleUp {
        let kinds = kinds(waiting);
        let groups = self.client.node_groups().await;
        let untold = groups.iter().find(|g| self.state.templates.get(g.slot).is_none());
        if let Some(group) = untold.filter(|_| self.settings.generation.missing_template_blocks_all()) {
            return ScaleUp::Uncountable(format!("{} has no template", group.id));
        }
        let usage = match Usage::count(&mut self.client, &self.settings, pass, &self.state.templates).await {
            Ok(usage) => usage,
            Err(why) => return ScaleUp::Uncountable(why),
        };
        let mut open = Vec::new();
        for group in groups.iter() {
            match self.usable(group, &usage, pass.now).await {
                Ok(()) => open.push(group.clone()),
                Err(skip) => {
                    report.skipped.insert(group.id.to_string(), skip);
                }
            }
        }
        let mut options = Vec::new();
        for group in open {
            match self.option(&group, &kinds, pass).await {
                Some(option) => options.push(option),
                None => {
                    report.skipped.insert(group.id.to_string(), Skip::NoPodFits);
                }
            }
        }
        if options.is_empty() {
            return ScaleUp::NoOptions;
        }
        report.options = options.iter().map(seen).collect();
        let templates = self.state.templates.all(&self.client);
        let Some(best) = choose(&mut self.client, &self.settings, &templates, &mut self.state.lots, options).await else {
            return ScaleUp::FilteredOut;
        };
        let Some(group) = groups.iter().find(|g| *g.id == best.group) else { return ScaleUp::NoOptions };
        let Some(nodes) = self.capped(best.node_count, count(pass.roster.room.nodes.len())) else {
            return ScaleUp::MaxNodesTotal;
        };
        let Some(template) = self.state.templates.get(group.slot) else { return ScaleUp::NoOptions };
        let nodes = usage.allowed(&self.settings, &template.template, nodes);
        let Ok(size) = self.client.target_size(group.slot).await else { return ScaleUp::Failed };
        let nodes = nodes.min(group.max - size);
        if nodes <= 0 {
            return ScaleUp::NoOptions;
        }
        let asked = self.ask_for(group.slot, nodes, false, pass.now, report).await;
        if !asked {
            return ScaleUp::Failed;
        }
        self.scaled_up(pass.now).await;
        ScaleUp::Asked
    }

    /// Whether a group may grow by at least one node.
    async fn usable(&mut self, group: &Listed, usage: &Usage, now: Timestamp) -> Result<(), Skip> {
        self.healthy(group.slot, now)?;
        let size = self.client.target_size(group.slot).await.map_err(|_| Skip::TargetSize)?;
        if size >= group.max {
            return Err(Skip::AtMax);
        }
        // Asked for whether the group goes from nought to its maximum at once, which is not modelled.
        let _ = self.client.options(group.slot, &self.settings.group_options()).await;
        let template = self.state.templates.get(group.slot).ok_or(Skip::NoTemplate)?;
        if usage.allowed(&self.settings, &template.template, 1) < 1 { Err(Skip::Limit) } else { Ok(()) }
    }

    fn healthy(&self, group: Slot, now: Timestamp) -> Result<(), Skip> {
        if self.state.registry.is_unhealthy(group, &self.settings) {
            return Err(Skip::Unhealthy);
        }
        match self.state.registry.left_alone_until(group, &self.state.templates, now) {
            Some(until) => Err(Skip::Backoff(until)),
            None => Ok(()),
        }
    }

    /// What the group could do for the pods, within its own maximum.
    async fn option(&mut self, group: &Listed, kinds: &[Kind], pass: &Pass<'_>) -> Option<ExpanderOption> {
        let template = Arc::clone(self.state.templates.get(group.slot)?);
        let fitting = fitting(kinds, &template);
        if fitting.is_empty() {
            return None;
        }
        let size = self.client.target_size(group.slot).await.ok()?;
        let mut limit = (group.max - size).min(self.settings.max_nodes_per_scale_up);
        if self.settings.max_nodes_total > 0 {
            limit = limit.min(self.settings.max_nodes_total - count(pass.roster.room.nodes.len()));
        }
        let (node_count, pods) = estimate(fitting, &template, limit);
        let _ = self.client.options(group.slot, &self.settings.group_options()).await;
        (node_count > 0).then(|| ExpanderOption { group: group.id.to_string(), node_count, pods })
    }

    /// As many of the nodes as the cluster may still have; `None` where that is none.
    fn capped(&self, nodes: i32, there: i32) -> Option<i32> {
        let max = self.settings.max_nodes_total;
        let nodes = if max > 0 { nodes.min(max - there) } else { nodes };
        (nodes > 0).then_some(nodes)
    }

    /// Asks a group for more nodes and notes the request, or leaves the group alone where it refused. Answers whether it took it.
    async fn ask_for(&mut self, group: Slot, delta: i32, for_min_size: bool, now: Timestamp, report: &mut LoopReport) -> bool {
        // Metrics name the kind of GPU.
        let _ = self.client.gpu_label().await;
        let result = self.client.increase_size(group, delta).await;
        let (registry, mut scope) = self.registry(now, &mut report.actions);
        let group_id = scope.client.name(group).to_string();
        match result {
            Ok(()) => {
                scope.actions.push(Action::ScaledUp { group: group_id, delta, for_min_size });
                registry.register(&mut scope, group, delta).await;
                true
            }
            Err(error) => {
                scope.actions.push(Action::ScaleUpFailed { group: group_id, delta, error });
                registry.back_off(&mut scope, group);
                false
            }
        }
    }

    async fn scaled_up(&mut self, now: Timestamp) {
        self.state.last_scale_up = Some(now);
        self.state.registry.recalculate(&mut self.client).await;
    }

    /// Asks every group below its minimum for what it lacks. The first refusal ends it for this loop.
    pub(super) async fn raise_to_min_size(&mut self, pass: &Pass<'_>, report: &mut LoopReport) {
        // Without a transcript nobody can tell whether the rest is counted where nothing is to be raised.
        if self.client.quiet && !self.any_below_min().await {
            return;
        }
        let Ok(usage) = Usage::count(&mut self.client, &self.settings, pass, &self.state.templates).await else { return };
        let mut wanted = Vec::new();
        for group in self.client.node_groups().await.iter() {
            let Ok(size) = self.client.target_size(group.slot).await else { continue };
            if size >= group.min || self.healthy(group.slot, pass.now).is_err() {
                continue;
            }
            let Some(template) = self.state.templates.get(group.slot) else { continue };
            let allowed = usage.allowed(&self.settings, &template.template, group.min - size);
            if let Some(nodes) = self.capped(allowed, size) {
                wanted.push((group.slot, nodes));
            }
        }
        if wanted.is_empty() {
            return;
        }
        for (group, nodes) in wanted {
            if !self.ask_for(group, nodes, true, pass.now, report).await {
                return;
            }
        }
        self.scaled_up(pass.now).await;
    }

    async fn any_below_min(&mut self) -> bool {
        for group in self.client.node_groups().await.iter() {
            if self.client.target_size(group.slot).await.is_ok_and(|size| size < group.min) {
                return true;
            }
        }
        false
    }
}

fn seen(option: &ExpanderOption) -> OptionSeen {
    OptionSeen {
        group: option.group.clone(),
        node_count: option.node_count,
        pods: option.pods.iter().map(|pod| pod.id.clone()).collect(),
    }
}
