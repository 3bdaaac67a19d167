//! The loop: one pass over the steps of the original, in its order.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::ca_client::CaClient;
use super::client::Client;
use super::cluster::Cluster;
use super::deletion::{DELETION_GRACE, Deletions};
use super::planner::Planner;
use super::registry::{Registry, Scope};
use super::report::{Action, LoopError, LoopReport, Outcome, ScaleUp};
use super::seen::{Roster, STABLE};
use super::settings::Settings;
use super::templates::Templates;
use super::time::after;

/// What a process keeps in memory; a restart starts from its default.
#[derive(Debug)]
pub(super) struct State {
    pub(super) initialized: bool,
    pub(super) roster: Roster,
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
    /// When a node of a group by itself becomes something else.
    pub(super) of_nodes: Vec<Timestamp>,
}

impl State {
    fn new(settings: &Settings) -> Self {
        Self {
            initialized: false,
            roster: Roster::default(),
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
pub(super) struct Pass<'a> {
    pub(super) now: Timestamp,
    /// The registered nodes, less those that count as coming, with their pods; behind them are the coming ones. Pods are put on them as the
    /// loop goes on.
    pub(super) roster: &'a mut Roster,
    /// Ready nodes.
    pub(super) ready: usize,
    /// Whether nothing may be removed in this loop.
    pub(super) hold_scale_down: bool,
}

impl<D: CaClient, C: Cluster> Autoscaler<D, C> {
    /// A process that has just started.
    pub fn new(provider: D, cluster: C, settings: Settings) -> Self {
        Self { client: Client::new(provider), cluster, state: State::new(&settings), settings }
    }

    /// Keeps no transcript from here on: the reports have no calls. For long simulations.
    pub const fn without_transcript(&mut self) {
        self.client.quiet = true;
    }

    /// Skips the reads of all instances that can find nothing new, from here on: the caller runs a loop after every change of them.
    pub const fn skip_idle_reads(&mut self) {
        self.state.registry.reports_changes = true;
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

    /// The provider.
    pub const fn provider(&self) -> &D {
        &self.client.provider
    }

    /// The provider, to change what is behind it.
    pub const fn provider_mut(&mut self) -> &mut D {
        &mut self.client.provider
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
        let mut roster = std::mem::take(&mut self.state.roster);
        report.outcome = self.steps(now, &mut roster, &mut report).await.unwrap_or_else(Outcome::Failed);
        self.state.roster = roster;
        report.calls = std::mem::take(&mut self.client.calls);
        self.remember(&report).await;
        report
    }

    async fn steps(&mut self, now: Timestamp, roster: &mut Roster, report: &mut LoopReport) -> Result<Outcome, LoopError> {
        self.take_back_stale_marks(report).await;
        self.look(roster).await;

        let refreshed = self.client.refresh().await;
        roster.forget_groups(self.client.regrouped().await.as_ref());
        refreshed.map_err(LoopError::Refresh)?;
        self.client.node_groups().await;
        let generation = self.settings.generation;
        self.state.templates.recompute(&mut self.client, generation, roster, now).await?;
        if generation.asks_again_after_templates() {
            for seen in &roster.seen {
                let _ = self.client.known_group_of_seen(seen).await;
            }
        }
        let (registry, mut scope) = self.registry(now, &mut report.actions);
        if let Err(error) = registry.update(&mut scope, roster).await {
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
        self.scale(now, roster, report).await
    }

    /// Scales by a snapshot of the nodes with their pods; those that count as coming are replaced by Ready copies of their template.
    async fn scale(&mut self, now: Timestamp, roster: &mut Roster, report: &mut LoopReport) -> Result<Outcome, LoopError> {
        let mut nothing = Vec::new();
        let (registry, mut scope) = self.registry(now, &mut nothing);
        let upcoming = registry.upcoming(&mut scope).await;
        let ready = roster.seen.iter().filter(|seen| seen.ready).count();
        let replaced: BTreeSet<&String> = upcoming.values().flat_map(|u| &u.not_started).collect();
        let mut fewer;
        let roster = if replaced.is_empty() {
            roster
        } else {
            fewer = roster.without(&replaced);
            &mut fewer
        };
        for (id, coming) in &upcoming {
            let Some(template) = self.state.templates.get(coming.group) else { continue };
            let name = |i| format!("template-node-for-{id}-upcoming-{i}");
            roster.room.nodes.extend((0..coming.nodes).map(|i| template.named_node(name(i))));
        }
        let mut pass = Pass { now, roster, ready, hold_scale_down: false };
        let outcome = self.scale_both_ways(&mut pass, report).await;
        pass.roster.clear_up();
        outcome
    }

    async fn scale_both_ways(&mut self, pass: &mut Pass<'_>, report: &mut LoopReport) -> Result<Outcome, LoopError> {
        let waiting = self.waiting(pass);
        self.scale_up(pass, waiting, report).await;
        if report.scale_up == ScaleUp::Asked && self.settings.generation.scale_up_ends_loop() {
            return Ok(Outcome::Done);
        }
        if self.settings.scale_down {
            self.scale_down(pass, report).await?;
        }
        if self.settings.enforce_min_size {
            self.raise_to_min_size(pass, report).await;
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

    async fn look(&mut self, roster: &mut Roster) {
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
        roster.look(views, pods, &label);
    }

    pub(super) fn registry<'a>(&'a mut self, now: Timestamp, actions: &'a mut Vec<Action>) -> (&'a mut Registry, Scope<'a, D>) {
        let scope =
            Scope { client: &mut self.client, settings: &self.settings, templates: &self.state.templates, actions, now };
        (&mut self.state.registry, scope)
    }

    async fn remember(&mut self, report: &LoopReport) {
        let held_until = match report.scale_up {
            ScaleUp::Held { until } => Some(until),
            _ => None,
        };
        let active = !report.actions.is_empty() || report.outcome != Outcome::Done || report.scale_up == ScaleUp::Failed;
        let (roster, mut at) = (&self.state.roster, 0);
        let mut of_nodes = Vec::new();
        for node in self.cluster.nodes().await {
            let seen = roster.beside(&mut at, &node);
            let known = || self.client.remembered_group_of(&node.name, &node.provider_id);
            let Some(group) = seen.and_then(|seen| seen.group.get().copied()).or_else(known) else { continue };
            let leaving_since = match seen.filter(|seen| Arc::ptr_eq(&seen.view, &node)) {
                Some(seen) => seen.leaving_since,
                None => node.to_be_deleted_since(),
            };
            of_nodes.extend(leaving_since.map(|since| after(since, DELETION_GRACE)));
            match node.ready_since {
                None => of_nodes.push(after(node.created_at, self.settings.max_node_startup)),
                // It becomes an example where its group has none yet.
                Some(since) if !self.state.templates.is_real(group) => of_nodes.push(after(since, STABLE)),
                Some(_) => {}
            }
        }
        self.state.last = Some(LastLoop { at: report.at, active, held_until, of_nodes });
    }
}
