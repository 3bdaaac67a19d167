//! Tells people and machines what each pass did: metrics, log lines and Kubernetes Events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use stoker_core::base::ids::{NodeGroupId, ProviderId, RecordId};
use stoker_core::decide::orders::DeleteRefused;
use stoker_core::facts::supply::{LaunchOutcome, LaunchRequest};
use stoker_core::market::offer::CapacityType;
use stoker_core::plan::{self, Action, JournalFault, Note};
use stoker_core::state::disruption::DrainReason;
use stoker_core::state::record::State;
use tokio::sync::mpsc;

use crate::kube::act::{About, KubeAct, Severity};
use crate::publish::telemetry::{
    DecisionKind, DeleteRefusal, Fleet, GroupGauges, Metrics, NodeState, OrderResult, OrderSource, PassResult, ReclaimSource,
    View as PublishedView,
};
use crate::publish::view::View;
use crate::publish::{Call, CallRefused, Listener, PassReport};
use stoker_journal::JournalError;

/// Tells what passes did.
pub struct Observer {
    metrics: Metrics,
    events: Option<mpsc::Sender<Note>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Records whose boot time was counted.
    ready: BTreeSet<RecordId>,
    /// When a pass was last made.
    last_pass: Option<Timestamp>,
    /// What is wrong with the journal.
    journal: BTreeMap<JournalFault, String>,
}

impl Observer {
    /// An observer that counts into `metrics` and leaves what the cluster should hear in `events`.
    pub fn new(metrics: Metrics, events: Option<mpsc::Sender<Note>>) -> Self {
        Self { metrics, events, seen: Mutex::default() }
    }

    /// When a pass was last made.
    pub fn last_pass(&self) -> Option<Timestamp> {
        self.seen().last_pass
    }

    /// What is wrong with the journal.
    pub fn journal_faults(&self) -> BTreeMap<JournalFault, String> {
        self.seen().journal.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An Event is best effort: where they pile up, one less is no loss.
    fn event(&self, note: &Note) {
        if let Some(events) = &self.events {
            let _ = events.try_send(note.clone());
        }
    }

    fn count(&self, pass: &PassReport<'_>) {
        let result = if pass.findings.is_empty() { PassResult::Done } else { PassResult::Refused };
        self.metrics.pass(result, pass.took);
        for action in pass.actions {
            let kind = match action {
                Action::Launch { .. } => DecisionKind::Launch,
                Action::Terminate { .. } => DecisionKind::Terminate,
                Action::Hold { .. } => DecisionKind::Hold,
                Action::Release { .. } => DecisionKind::Release,
                Action::Drain { .. } => DecisionKind::Drain,
                Action::Uncordon { .. } => DecisionKind::Uncordon,
                Action::RemoveNode { .. } => DecisionKind::RemoveNode,
            };
            self.metrics.decided(kind, 1);
        }
        self.metrics.without_effect(pass.stuck);
        self.metrics.publish(gauges(pass.view));
        let View { catalogue, memory, .. } = pass.view;
        let (catalogue, memory) = (Arc::clone(catalogue), Arc::clone(memory));
        let (cluster, floors) = (pass.snapshot.cluster.clone(), pass.view.accounts.floors.clone());
        self.metrics.fleet(Fleet { catalogue, memory, cluster, floors });
        self.count_reclaims(pass);
        for record in pass.view.memory.records.values() {
            if let State::Registered { launched_at, ready_at: Some(ready), .. } = &record.state {
                let mut seen = self.seen();
                // What was Ready before this process began was counted by the one before.
                if seen.ready.insert(record.id)
                    && seen.last_pass.is_some()
                    && let Some(group) = pass.view.group_of_record(record)
                {
                    let took = ready.duration_since(*launched_at).try_into().unwrap_or_default();
                    self.metrics.booted(&group.pool, took);
                    // A machine that was found without a record was not ordered by it.
                    if record.order.is_some() {
                        let took = ready.duration_since(record.ordered_at).try_into().unwrap_or_default();
                        self.metrics.supplied(&group.pool, took);
                    }
                }
            }
        }
        let mut seen = self.seen();
        seen.ready.retain(|id| pass.view.memory.records.contains_key(id));
        seen.last_pass = Some(pass.at);
        drop(seen);
        self.journal(JournalFault::Unwritable, None);
    }
}

impl Observer {
    /// Counts the machines whose reclaim a pass heard of, and spot machines that were gone without a word.
    fn count_reclaims(&self, pass: &PassReport<'_>) {
        let View { catalogue, memory, .. } = pass.view;
        // Each series is there before its first event, or a rate would miss that.
        for pool in &catalogue.policy.pools {
            for source in ReclaimSource::ALL {
                self.metrics.reclaimed(&pool.name, *source, 0);
            }
        }
        let told_by = |why: &DrainReason| match why {
            DrainReason::Reclaimed { told_by, .. } => Some(ReclaimSource::from(*told_by)),
            _ => None,
        };
        for (id, disruption) in &memory.disruptions {
            let before = pass.before.disruptions.get(id).and_then(|known| told_by(&known.why));
            if let (Some(source), None) = (told_by(&disruption.why), before)
                && let Some(group) = memory.records.get(id).and_then(|record| pass.view.group_of_record(record))
            {
                self.metrics.reclaimed(&group.pool, source, 1);
            }
        }
        // Of these the reclaim was counted when it was announced.
        let announced: BTreeSet<&ProviderId> = pass
            .before
            .disruptions
            .iter()
            .filter(|(_, disruption)| told_by(&disruption.why).is_some())
            .filter_map(|(id, _)| pass.before.records.get(id)?.instance())
            .collect();
        for note in pass.notes {
            if let Note::Lost { group, instance, market, .. } = note
                && market.capacity_type == CapacityType::Spot
                && !announced.contains(instance)
                && let Some(group) = pass.view.groups.get(group)
            {
                self.metrics.reclaimed(&group.group.pool, ReclaimSource::Nobody, 1);
            }
        }
    }
}

/// Logs an action, field by field.
fn tell_action(decision: &str, action: &Action) {
    match action {
        Action::Launch { record, supplier, request, price } => {
            let LaunchRequest { key, group, market, zone_name: _, reservation } = request;
            let reservation = reservation.as_deref();
            tracing::info!(decision, action = "launch", %record, %supplier, %key, %group, %market, reservation, price = %price, "acting");
        }
        Action::Terminate { supplier, instance, why } => {
            tracing::info!(decision, action = "terminate", %supplier, %instance, %why, "acting");
        }
        Action::Hold { node, why } => tracing::info!(decision, action = "hold", %node, %why, "acting"),
        Action::Release { node } => tracing::info!(decision, action = "release", %node, "acting"),
        Action::Drain { record, node, provider_id, evict, gone_by } => {
            let (evict, gone_by) = (evict.as_str(), gone_by.map(tracing::field::display));
            tracing::info!(decision, action = "drain", %record, %node, instance = %provider_id, evict, gone_by, "acting");
        }
        Action::Uncordon { node, provider_id } => {
            tracing::info!(decision, action = "uncordon", %node, instance = %provider_id, "acting");
        }
        Action::RemoveNode { node, provider_id } => {
            tracing::info!(decision, action = "remove-node", %node, instance = %provider_id, "acting");
        }
    }
}

/// What the gauges show of a view.
fn gauges(view: &View) -> PublishedView {
    let mut shown = PublishedView::default();
    for (id, group) in &view.groups {
        let suspended = view.memory.groups.get(id).is_some_and(|g| g.suspended_since.is_some());
        let limits = &group.limits;
        let pool = group.group.pool.clone();
        shown
            .groups
            .insert(id.clone(), GroupGauges { pool, target: limits.target, min: limits.min, max: limits.max, suspended });
    }
    let mut spend: BTreeMap<_, stoker_core::base::units::UsdPerHour> = BTreeMap::new();
    for record in view.memory.records.values() {
        let Some(group) = view.group_of_record(record) else { continue };
        *shown.nodes.entry((group.pool.clone(), NodeState::from(&record.state))).or_default() += 1;
        if let Some(purchase) = record.purchase() {
            let rate = spend.entry((group.pool.clone(), purchase.market.capacity_type)).or_default();
            *rate = rate.plus(purchase.price);
        }
    }
    shown.spend = spend;
    let faults = view.memory.faults.iter();
    shown.faults = faults.map(|fault| (fault.concern.pool().cloned(), fault.fault.clone())).collect();
    shown.budgets.clone_from(&view.accounts.budgets);
    let unused = view.accounts.commitments.iter().filter_map(|of| Some((of.name.clone(), of.unused_rate?)));
    shown.unused = unused.collect();
    shown
}

/// Tells the cluster by Events, until nobody leaves any more.
pub async fn tell(kube: Arc<KubeAct>, mut events: mpsc::Receiver<Note>) {
    while let Some(note) = events.recv().await {
        let severity = if note.is_alarm() { Severity::Warning } else { Severity::Normal };
        let about = match note.about() {
            plan::About::Group(group) => About::Group(group),
            plan::About::Pool(pool) => About::Pool(pool),
            plan::About::Budget(of) => About::Budget(of),
            plan::About::Stoker => About::Stoker,
        };
        kube.event(about, severity, note.reason(), &note.to_string()).await;
    }
}

impl Listener for Observer {
    fn passed(&self, pass: &PassReport<'_>) {
        self.count(pass);
        let decision = pass.decision.map(|d| d.to_string()).unwrap_or_default();
        for (key, outcome) in &pass.snapshot.outcomes {
            let mut purchases = pass.before.records.values().filter_map(|record| record.purchase());
            let capacity = purchases.find(|purchase| purchase.key == *key).map(|purchase| purchase.market.capacity_type);
            if let Some(capacity) = capacity {
                self.metrics.launched(capacity, outcome.into());
            }
            match outcome {
                LaunchOutcome::Launched(made) => {
                    tracing::info!(decision, %key, instance = %made.provider_id, market = %made.market, "launched");
                }
                LaunchOutcome::Refused(no) => {
                    tracing::warn!(decision, %key, code = %no.kind, message = no.message, "launch refused")
                }
                // The executor has said so when it happened.
                LaunchOutcome::Unclear { .. } => {}
            }
        }
        for action in pass.actions {
            tell_action(&decision, action);
        }
        for note in pass.notes {
            if let Note::CheckFailed { fault } = note {
                let pool = fault.concern.pool().map_or("all", |pool| pool.as_str());
                tracing::error!(decision, reason = note.reason(), pool, fault = fault.fault, "{note}");
            } else if note.is_alarm() {
                tracing::warn!(decision, reason = note.reason(), "{note}");
            } else {
                tracing::info!(decision, reason = note.reason(), "{note}");
            }
            self.event(note);
        }
    }

    fn failed(&self, why: &JournalError) {
        self.metrics.pass(PassResult::Failed, std::time::Duration::ZERO);
        tracing::error!(
            error = why as &dyn std::error::Error,
            "the journal cannot be written: nodes at work are held, reclaimed nodes drained, and nothing else is done"
        );
        self.journal(JournalFault::Unwritable, Some(why.to_string()));
    }

    fn journal(&self, fault: JournalFault, why: Option<String>) {
        let known = match &why {
            Some(why) => self.seen().journal.insert(fault, why.clone()),
            None => self.seen().journal.remove(&fault),
        };
        self.metrics.journal(fault, why.is_some());
        match (known, why) {
            (None, Some(message)) => {
                // Of a lost journal a decision tells.
                if fault != JournalFault::Lost {
                    tracing::error!(fault = fault.as_str(), "{message}");
                    self.event(&Note::Journal { fault, message, until: None });
                }
            }
            (Some(_), None) => tracing::info!(fault = fault.as_str(), "the journal is in order again in this respect"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn called(&self, call: Call, group: &NodeGroupId, result: Result<(), &CallRefused>) {
        match (call, result) {
            (Call::Increase, Ok(())) => self.metrics.ordered(OrderSource::Autoscaler, OrderResult::Accepted),
            (Call::Increase, Err(_)) => self.metrics.ordered(OrderSource::Autoscaler, OrderResult::Refused),
            (Call::Delete, Err(CallRefused::Delete(why))) => self.metrics.delete_refused(match why {
                DeleteRefused::Busy { .. } | DeleteRefused::Guarded { .. } => DeleteRefusal::Busy,
                DeleteRefused::Cautious { .. } => DeleteRefusal::Cautious,
                DeleteRefused::WrongGroup { .. } => DeleteRefusal::WrongGroup,
            }),
            _ => {}
        }
        if let Err(why) = result {
            tracing::warn!(rpc = call.rpc(), %group, "refused: {why}");
        }
    }
}
