//! The engine: one loop. Feeds → snapshot → decide → check → journal → publish → act.
//!
//! Everything that changes the memory passes through this loop, one thing after the other. Watches, suppliers and RPCs only wake it or
//! leave a message; the pass re-reads all. Actions are written down before they are done, and their outcomes come back as facts.

mod calls;
mod handle;
mod unwritten;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Times;
use stoker_core::base::ids::{DecisionId, NodeGroupId, RecordId, SupplierName};
use stoker_core::base::sabotage;
use stoker_core::catalogue::Catalogue;
use stoker_core::check::Verified;
use stoker_core::pass::{Before, Step, step};
use stoker_core::plan::{Accounts, Closed, Decision, GroupLimits, JournalFault, Note};
use stoker_core::state::memory::{CAUTION, Memory};
use stoker_core::state::record::State;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

pub use handle::EngineHandle;

use crate::act::{Executor, Permit};
use crate::clock::{Clock, Jump};
use crate::failpoints;
use crate::feeds::{Feeds, Inputs, MarketFeed};
use crate::publish::view::NotReady;
use crate::publish::view::{Publisher, View};
use crate::publish::{Listener, PassReport};
use handle::Command;
use stoker_journal::{COUNT_EVERY, DecisionEntry, Journal, JournalError, Restored};
use unwritten::Unwritten;

/// Messages waiting for the loop. The autoscaler makes at most some tens of mutating calls at once; past this its calls wait, which is
/// the backpressure it understands.
const COMMANDS: usize = 256;

/// A full pass is made at least so often, whether or not anything woke the loop: it repairs what an event missed.
const RESYNC: SignedDuration = SignedDuration::from_secs(10);

/// How often the journal is pruned.
const PRUNE_EVERY: SignedDuration = SignedDuration::from_mins(10);

/// After so long a time away nothing is pruned for as long: it may be the wall that runs ahead, and whoever sets it right has the journal.
const LONG_AWAY: SignedDuration = SignedDuration::from_hours(24);

/// Passes that a settling engine makes at most: each acts on the outcomes of the last, and an order has far fewer offers than this.
const SETTLING_PASSES: usize = 64;

/// What an engine is made of.
pub struct Parts {
    /// Where "now" comes from.
    pub clock: Clock,
    /// What has been decided so far.
    pub journal: Journal,
    /// What the journal remembers.
    pub restored: Restored,
    /// How long nobody watched before this process began, or the wall ran ahead.
    pub away: SignedDuration,
    /// That this process may act.
    pub permit: Arc<Permit>,
    /// Policy, prices and market facts.
    pub inputs: Inputs,
    /// Asked for market facts while settling.
    pub markets: Arc<MarketFeed>,
    /// Suppliers' inventories and the cluster.
    pub feeds: Feeds,
    /// What does the actions.
    pub executor: Executor,
    /// Wakes the loop.
    pub wake: Arc<Notify>,
    /// How long decisions are kept.
    pub retention: SignedDuration,
    /// Who hears of passes.
    pub listener: Arc<dyn Listener>,
}

/// How long after the start a supplier is waited for that has never listed its machines, and of which no machine is remembered.
const AWAITED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// The engine.
pub struct Engine {
    parts: Parts,
    memory: Arc<Memory>,
    catalogue: Arc<Catalogue>,
    limits: BTreeMap<NodeGroupId, GroupLimits>,
    accounts: Accounts,
    next_decision: DecisionId,
    next_change_at: Option<Timestamp>,
    /// When it was started.
    begun_at: Timestamp,
    /// That a journal was lost, until it is written down.
    lost: Option<Note>,
    /// Since when nothing can be written down; `None` while it can.
    unwritten: Option<Unwritten>,
    /// When the journal was last pruned; in the future while nothing is.
    pruned_at: Timestamp,
    /// When what is held was last counted; `None` before the first time.
    counted_at: Option<Timestamp>,
    publisher: Publisher,
    /// The journal has another leader.
    is_fenced: bool,
    commands: mpsc::Receiver<Command>,
    handle: EngineHandle,
}

impl Engine {
    /// An engine that has made no pass yet.
    pub fn new(mut parts: Parts) -> Self {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let catalogue = parts.inputs.catalogue();
        let mut memory = std::mem::take(&mut parts.restored.memory);
        if sabotage::on("restart-forgets") {
            memory = Memory::default();
        }
        let now = parts.clock.now();
        memory.incarnation = Some(parts.restored.incarnation.clone());
        let lost = parts.restored.loss.take().map(|loss| {
            let until = now.saturating_add(CAUTION).unwrap_or(Timestamp::MAX);
            memory.cautious_until = Some(until);
            Note::Journal { fault: JournalFault::Lost, message: loss.to_string(), until: Some(until) }
        });
        let memory = Arc::new(memory);
        let view = Arc::new(ArcSwap::from_pointee(View::starting(parts.clock.now(), Arc::clone(&catalogue))));
        let handle =
            EngineHandle { commands: sender, view, listing: Arc::default(), connection: Arc::new(AtomicU64::new(u64::MAX)) };
        let next_decision = parts.restored.next_decision;
        let spared = if parts.away > LONG_AWAY { LONG_AWAY } else { SignedDuration::ZERO };
        let pruned_at = now.saturating_add(spared).unwrap_or(now);
        Self {
            parts,
            memory,
            catalogue,
            limits: BTreeMap::new(),
            accounts: Accounts::default(),
            next_decision,
            next_change_at: None,
            begun_at: now,
            lost,
            unwritten: None,
            pruned_at,
            counted_at: None,
            publisher: Publisher::default(),
            is_fenced: false,
            commands,
            handle,
        }
    }

    /// A way to this engine.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Runs until `stop`, then lets the actions under way finish.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let now = self.parts.clock.now();
            let resync = now.saturating_add(RESYNC).unwrap_or(Timestamp::MAX);
            let sleep_until = self.next_change_at.map_or(resync, |at| at.min(resync));
            let clock = self.parts.clock.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Another leads: whatever this one knows is of before.
                () = std::future::ready(()), if self.is_fenced => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.take(command).await,
                    None => break,
                },
                () = self.parts.wake.notified() => self.pass().await,
                () = clock.alarm(sleep_until) => self.pass().await,
            }
        }
        self.commands.close();
        if self.is_fenced {
            self.parts.executor.abandon();
        }
        self.parts.executor.finish().await;
        if !self.is_fenced {
            // What nodes cost until now is known.
            self.counted_at = None;
            if let Err(error) = self.count_use(self.parts.clock.now()).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "what nodes cost in the last minutes is not written down"
                );
            }
        }
    }

    fn readiness(&self) -> Result<(), NotReady> {
        let now = self.parts.clock.now();
        let has_waited = now.duration_since(self.begun_at) >= AWAITED_FOR && self.memory.caution(now).is_none();
        // Of machines that nobody remembers none can be taken for lost.
        let owns = |name: &SupplierName| self.memory.groups.values().any(|known| known.group.supplier == *name);
        let may_be_absent = |name: &SupplierName| has_waited && !owns(name);
        self.parts.feeds.ready(may_be_absent)?;
        self.parts.inputs.ready(&self.parts.feeds, may_be_absent)
    }

    /// One pass.
    async fn pass(&mut self) {
        if let Some(catalogue) = self.parts.inputs.changed() {
            self.catalogue = catalogue;
        }
        let times = self.parts.clock.times();
        if let Err(why) = self.readiness() {
            // Half the facts decide nothing. What was published stays, marked as not to be shown.
            let view =
                self.publisher.view(times, Err(why), self.limits.clone(), self.accounts.clone(), &self.catalogue, &self.memory);
            self.handle.view.store(Arc::new(view));
            // Nothing is decided, so no moment of the last decision is worth waking for.
            self.next_change_at = None;
            return;
        }
        let id = self.next_decision;
        let span = tracing::info_span!("pass", decision = %id);
        let result = tracing::Instrument::instrument(self.try_pass(id), span).await;
        // What cannot be kept of the time would not be kept of an order either.
        let result = match result {
            Ok(()) => self.count_use(times.now).await,
            failed => failed,
        };
        if let Err(why) = result {
            self.is_fenced |= matches!(why, JournalError::Fenced { .. });
            self.parts.listener.failed(&why);
            let ready = Err(NotReady::Journal(why.to_string()));
            self.limits = self.shut();
            self.tell_of_journal(times.now);
            let view =
                self.publisher.view(times, ready, self.limits.clone(), self.accounts.clone(), &self.catalogue, &self.memory);
            self.handle.view.store(Arc::new(view));
        }
        self.prune(times.now).await;
    }

    /// Tells how the journal and its disk stand, beside whether it can be written.
    fn tell_of_journal(&self, now: Timestamp) {
        let used = (!self.parts.journal.renew_reserve()).then(|| {
            "the disk of the state directory is full: readings of GPUs are not kept, and the journal lives on its reserve; free space, or \
             give it a larger volume"
                .to_owned()
        });
        self.parts.listener.journal(JournalFault::ReserveUsed, used);
        let cautious = self.memory.caution(now).map(|until| {
            let until = until.strftime("%H:%MZ");
            format!("it was lost or replaced: until {until} nothing is ended or drained but what the cloud takes")
        });
        self.parts.listener.journal(JournalFault::Lost, cautious);
    }

    /// Writes down the time and counts what is held, now and then. What is not counted stays unknown; nothing else depends on it.
    ///
    /// # Errors
    /// Where the time cannot be written; the next pass tries again.
    async fn count_use(&mut self, now: Timestamp) -> Result<(), JournalError> {
        if self.counted_at.is_some_and(|at| now.duration_since(at) < COUNT_EVERY) {
            return Ok(());
        }
        self.parts.journal.keep_time(&self.parts.clock.mark()).await?;
        self.counted_at = Some(now);
        if let Err(error) = self.parts.journal.count_use(now, &self.memory).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "counting idle allocated GPUs failed; retrying")
        }
        Ok(())
    }

    /// Forgets decisions that are past their time, a little at a time.
    async fn prune(&mut self, now: Timestamp) {
        if now.duration_since(self.pruned_at) < PRUNE_EVERY {
            return;
        }
        match self.parts.journal.prune(now, self.parts.retention).await {
            Ok(pruned) => {
                tracing::debug!(?pruned, "journal pruned");
                let more_readings = self.parts.journal.readings().forget(now).await.unwrap_or_else(|error| {
                    tracing::warn!(error = &error as &dyn std::error::Error, "pruning readings failed; retrying");
                    false
                });
                // What one go leaves, the next pass takes: a busy fleet decides faster than one go in ten minutes forgets.
                if pruned.more || more_readings {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "pruning the journal failed; retrying")
            }
        }
        self.pruned_at = now;
    }

    async fn try_pass(&mut self, id: DecisionId) -> Result<(), JournalError> {
        let started = Instant::now();
        let (snapshot, now) = self.parts.feeds.snapshot(&self.parts.executor, &self.parts.clock);
        let before = Before { memory: &self.memory, limits: &self.limits, accounts: &self.accounts };
        let spoil = |decision: &mut Decision| failpoints::spoil(decision, &self.catalogue);
        let Step { verified, next_change_at, absorbed } = step(&before, (&snapshot, &self.catalogue), (id, now), spoil);
        let Verified { mut plan, memory, findings } = verified;
        self.next_change_at = next_change_at;
        let (stuck, no_effect) = self.parts.executor.without_effect(&plan.actions, &snapshot.terminating);
        let (actions, withheld) = self.parts.executor.fresh(plan.actions, now);
        let planned_notes = plan.notes.len();
        let jump = self.parts.clock.jump();
        plan.notes.extend(no_effect);
        let consoles = self.parts.executor.consoles().into_iter();
        plan.notes.extend(consoles.filter_map(|(instance, tail)| {
            let record = memory.records.values().find(|record| record.instance() == Some(&instance))?;
            Some(Note::BootConsole { group: record.group.clone(), instance, tail })
        }));
        plan.notes.extend(jump.map(|Jump { by, followed }| Note::ClockJumped { by, followed, wall: snapshot.wall }));
        if let Err(gone) = self.parts.journal.in_place() {
            self.cannot_write(now, &gone);
        }
        // As long as nothing can be written, each pass tries to: so it is known when it can be
        // again.
        plan.notes.extend(self.unwritten.as_ref().map(Unwritten::note));
        plan.notes.extend(self.lost.clone());
        let decided = memory != *self.memory || !actions.is_empty() || !plan.notes.is_empty();
        if decided {
            failpoints::point("plan.decided");
            let entry = DecisionEntry {
                id,
                at: now,
                policy: &self.catalogue.policy,
                prices: self.parts.inputs.prices(),
                market_facts: self.parts.inputs.market_facts(),
                snapshot: &snapshot,
                before: &self.memory,
                after: &memory,
                actions: &actions,
                notes: &plan.notes,
                explanations: &plan.explanations,
                withheld: &withheld,
                added_notes: plan.notes.len() - planned_notes,
            };
            if let Err(error) = self.parts.journal.decide(&entry).await {
                if matches!(error, JournalError::Fenced { .. }) {
                    return Err(error);
                }
                let protective = self.cannot_write(now, &error).protect(actions);
                self.parts.executor.act(&self.parts.permit, &protective, now, |_, _| None);
                return Err(error);
            }
            failpoints::point("plan.journalled");
            self.next_decision = DecisionId(id.0 + 1);
            (self.unwritten, self.lost) = (None, None);
            self.parts.permit.note_write(true);
            self.parts.clock.told(jump);
        }
        // Of what nobody took in, the next pass hears again.
        if absorbed {
            self.parts.executor.absorbed(&snapshot);
        }
        let before = Arc::clone(&self.memory);
        if decided {
            self.memory = Arc::new(memory);
        }
        self.limits = plan.limits;
        self.accounts = plan.accounts;
        // Before the view says that Stoker is ready: who sees it ready sees how the journal stands too.
        self.tell_of_journal(now);
        let view = Arc::new(self.publisher.view(
            Times { now, wall: snapshot.wall },
            Ok(()),
            self.limits.clone(),
            self.accounts.clone(),
            &self.catalogue,
            &self.memory,
        ));
        self.handle.view.store(Arc::clone(&view));
        let first_asked = |record: RecordId, group: &NodeGroupId| {
            let group = self.catalogue.group_or_remembered(group, &self.memory)?;
            let at = match self.memory.records.get(&record)?.state {
                State::Launching { since, .. } => since,
                _ => now,
            };
            Some((Arc::clone(group), at))
        };
        self.parts.executor.act(&self.parts.permit, &actions, now, first_asked);
        self.parts.executor.tell(&self.parts.permit, plan.tells, now);
        self.parts.listener.passed(&PassReport {
            decision: decided.then_some(id),
            at: now,
            took: started.elapsed(),
            findings: &findings,
            notes: &plan.notes,
            before: &before,
            snapshot: &snapshot,
            actions: &actions,
            stuck,
            explanations: &plan.explanations,
            view: &view,
        });
        Ok(())
    }

    /// Notes that something could not be written down, and why.
    fn cannot_write(&mut self, now: Timestamp, error: &JournalError) -> &mut Unwritten {
        self.parts.permit.note_write(false);
        let unwritten = self.unwritten.get_or_insert_with(|| Unwritten::new(now, String::new()));
        unwritten.why = error.to_string();
        unwritten
    }

    /// The limits with every group closed and the targets counted from the memory: what is shown while nothing can be written down.
    fn shut(&self) -> BTreeMap<NodeGroupId, GroupLimits> {
        let mut limits = self.limits.clone();
        for (id, limit) in &mut limits {
            limit.close(self.memory.target(id), Closed::Journal);
        }
        limits
    }

    /// Passes until nothing is under way and nothing changes.
    async fn settle(&mut self) {
        for _ in 0..SETTLING_PASSES {
            let times = self.parts.clock.times();
            self.parts.markets.refresh(times).await;
            self.parts.feeds.poll(times.now).await;
            let before = Arc::clone(&self.memory);
            self.pass().await;
            let busy = self.parts.executor.finish().await;
            if !busy && Arc::ptr_eq(&before, &self.memory) {
                break;
            }
        }
    }
}
