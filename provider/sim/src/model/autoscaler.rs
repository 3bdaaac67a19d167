//! The loop: one pass over the steps of the original, in its order.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::ca_client::CaClient;
use super::client::Client;
use super::cluster::{Cluster, NodeView, PodView};
use super::deletion::Deletions;
use super::fit::{SimNode, place};
use super::planner::Planner;
use super::registry::{Registry, Scope};
use super::report::{Action, LoopError, LoopReport, Outcome, ScaleUp};
use super::settings::Settings;
use super::templates::{Seen, Templates};

/// What a process keeps in memory; a restart starts from its default.
#[derive(Debug)]
pub(super) struct State {
    pub(super) initialized: bool,
    pub(super) templates: Templates,
    pub(super) registry: Registry,
    pub(super) planner: Planner,
    pub(super) deletions: Deletions,
    pub(super) last_scale_up: Option<Timestamp>,
    pub(super) last_delete: Option<Timestamp>,
    pub(super) last_scale_down_failure: Option<Timestamp>,
    pub(super) lots: ChaCha8Rng,
    /// What the last loop leaves for `next_interesting`.
    pub(super) last: Option<LastLoop>,
}

/// What is remembered of the last loop to tell when the next can differ.
#[derive(Debug, Clone)]
pub(super) struct LastLoop {
    pub(super) at: Timestamp,
    /// Whether it did or failed at anything, so that the next scan can differ.
    pub(super) active: bool,
    pub(super) held_until: Option<Timestamp>,
    /// The nodes of groups, with their group.
    pub(super) nodes: Vec<(Arc<NodeView>, Arc<str>)>,
}

impl State {
    fn new(settings: &Settings) -> Self {
        Self {
            initialized: false,
            templates: Templates::default(),
            registry: Registry::default(),
            planner: Planner::default(),
            deletions: Deletions::default(),
            last_scale_up: None,
            last_delete: None,
            last_scale_down_failure: None,
            lots: ChaCha8Rng::seed_from_u64(settings.lot_seed),
            last: None,
        }
    }
}

/// A model of the Cluster Autoscaler between a [`CaClient`] and a [`Cluster`].
#[derive(Debug)]
pub struct Autoscaler<D, C> {
    pub(super) client: Client<D>,
    pub(super) cluster: C,
    pub(super) settings: Settings,
    pub(super) state: State,
}

/// What the steps of one loop share.
pub(super) struct Pass {
    pub(super) now: Timestamp,
    /// The registered nodes, less those that count as coming.
    pub(super) nodes: Vec<Seen>,
    /// Those nodes with their pods, and the coming ones; pods are put on them as the loop goes on.
    pub(super) snapshot: Vec<SimNode>,
    /// Ready nodes.
    pub(super) ready: usize,
    /// Whether nothing may be removed in this loop.
    pub(super) hold_scale_down: bool,
}

impl<D: CaClient, C: Cluster> Autoscaler<D, C> {
    /// A process that has just started.
    pub fn new(door: D, cluster: C, settings: Settings) -> Self {
        Self { client: Client::new(door), cluster, state: State::new(&settings), settings }
    }

    /// Keeps no transcript from here on: the reports have no calls. For long simulations.
    pub const fn without_transcript(&mut self) {
        self.client.quiet = true;
    }

    /// Skips the reads of all instances that can find nothing new, from here on: the caller runs a loop after every change of them.
    pub const fn skip_idle_reads(&mut self) {
        self.state.registry.told_of_changes = true;
    }

    /// Forgets all that is in memory, as a restart of the process does. Deletions that had begun are given up half way.
    pub fn restart(&mut self) {
        self.client.forget();
        self.state = State::new(&self.settings);
    }

    /// The flags.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The door.
    pub const fn door(&self) -> &D {
        &self.client.door
    }

    /// The door, to change what is behind it.
    pub const fn door_mut(&mut self) -> &mut D {
        &mut self.client.door
    }

    /// The cluster.
    pub const fn cluster(&self) -> &C {
        &self.cluster
    }

    /// The cluster, to change it.
    pub const fn cluster_mut(&mut self) -> &mut C {
        &mut self.cluster
    }

    /// One loop, preceded by what the goroutines beside it had to do by now.
    pub async fn run_once(&mut self, now: Timestamp) -> LoopReport {
        let mut report = LoopReport::new(now);
        self.client.calls.clear();
        self.state.registry.refresh_cache(&mut self.client, self.settings.scan_interval, now).await;
        self.continue_deletions(now, &mut report).await;
        report.outcome = self.steps(now, &mut report).await.unwrap_or_else(Outcome::Failed);
        report.calls = std::mem::take(&mut self.client.calls);
        self.remember(&report).await;
        report
    }

    async fn steps(&mut self, now: Timestamp, report: &mut LoopReport) -> Result<Outcome, LoopError> {
        self.take_back_stale_marks(report).await;
        let (nodes, pods) = self.read_cluster().await;

        self.client.refresh().await.map_err(LoopError::Refresh)?;
        self.client.node_groups().await;
        let generation = self.settings.generation;
        self.state.templates.recompute(&mut self.client, generation, &nodes, &pods, now).await?;
        if generation.asks_again_after_templates() {
            for seen in &nodes {
                let _ = self.client.known_group_of_view(&seen.view).await;
            }
        }
        let (registry, mut scope) = self.registry(now, &mut report.actions);
        if let Err(error) = registry.update(&mut scope, &nodes).await {
            self.state.planner.forget_unneeded();
            return Err(error);
        }

        self.delete_unregistered(now, report).await?;
        if self.state.registry.is_cluster_unhealthy(&self.settings) {
            self.state.planner.forget_unneeded();
            return Ok(Outcome::Unhealthy);
        }
        if self.delete_failed(report).await && generation.clean_up_ends_loop() {
            return Ok(Outcome::CleanedUp);
        }
        if self.fix_sizes(now, report).await? {
            return Ok(Outcome::SizeFixed);
        }

        let mut pass = self.snapshot(now, nodes, &pods).await;
        let waiting = self.waiting(&mut pass, &pods);
        self.scale_up(&mut pass, waiting, report).await;
        if report.scale_up == ScaleUp::Asked && generation.scale_up_ends_loop() {
            return Ok(Outcome::Done);
        }
        if self.settings.scale_down {
            self.scale_down(&pass, report).await?;
        }
        if self.settings.enforce_min_size {
            self.raise_to_min_size(&pass, report).await;
        }
        Ok(Outcome::Done)
    }

    /// In the first loop of a process: the marks of the process before are taken away.
    async fn take_back_stale_marks(&mut self, report: &mut LoopReport) {
        if std::mem::replace(&mut self.state.initialized, true) {
            return;
        }
        for node in self.cluster.nodes().await {
            let ours = self.client.known_group_of_view(&node).await.is_some();
            if ours && node.to_be_deleted_since().is_some() && self.cluster.untaint(&node.name).await.is_ok() {
                report.actions.push(Action::Untainted { node: node.name.clone() });
            }
        }
    }

    async fn read_cluster(&mut self) -> (Vec<Seen>, Vec<Arc<PodView>>) {
        let views = self.cluster.nodes().await;
        let pods = self.cluster.pods().await;
        // Only Ready nodes are looked at for GPUs that are missing.
        let label = if views.iter().any(|node| node.ready()) { self.client.gpu_label().await } else { Arc::default() };
        if self.settings.generation.looks_for_devices() && !self.client.quiet {
            for node in views.iter().filter(|node| node.ready()) {
                // Where it is of a group, its devices are compared with the template's; those are not modelled.
                let _ = self.client.known_group_of_view(node).await;
            }
        }
        (views.into_iter().map(|view| Seen::new(view, &label)).collect(), pods)
    }

    pub(super) fn registry<'a>(&'a mut self, now: Timestamp, actions: &'a mut Vec<Action>) -> (&'a mut Registry, Scope<'a, D>) {
        let scope =
            Scope { client: &mut self.client, settings: &self.settings, templates: &self.state.templates, actions, now };
        (&mut self.state.registry, scope)
    }

    /// The nodes with their pods; those that count as coming are replaced by Ready copies of their template.
    async fn snapshot(&mut self, now: Timestamp, nodes: Vec<Seen>, pods: &[Arc<PodView>]) -> Pass {
        let mut nothing = Vec::new();
        let (registry, mut scope) = self.registry(now, &mut nothing);
        let upcoming = registry.upcoming(&mut scope).await;
        let ready = nodes.iter().filter(|seen| seen.ready).count();
        let replaced: BTreeSet<&String> = upcoming.values().flat_map(|u| &u.not_started).collect();
        let nodes: Vec<Seen> = nodes.into_iter().filter(|seen| !replaced.contains(&seen.view.name)).collect();
        let mut snapshot = place(nodes.iter().map(|seen| SimNode::of(&seen.view, seen.ready)), pods);
        for (group, coming) in &upcoming {
            let Some(template) = self.state.templates.get(group) else { continue };
            snapshot.extend((0..coming.nodes).map(|i| template.node(&format!("template-node-for-{group}-upcoming-{i}"))));
        }
        Pass { now, nodes, snapshot, ready, hold_scale_down: false }
    }

    async fn remember(&mut self, report: &LoopReport) {
        let held_until = match report.scale_up {
            ScaleUp::Held { until } => Some(until),
            _ => None,
        };
        let active = !report.actions.is_empty() || report.outcome != Outcome::Done || report.scale_up == ScaleUp::Failed;
        let mut nodes = Vec::new();
        for node in self.cluster.nodes().await {
            if let Some(group) = self.client.remembered_group_of(&node.name, &node.provider_id) {
                nodes.push((node, group));
            }
        }
        self.state.last = Some(LastLoop { at: report.at, active, held_until, nodes });
    }
}
