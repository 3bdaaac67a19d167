//! Mutating calls: each is applied to the memory and made durable by itself, and answered once a pass has published what it changed.

use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::engine_clock::Times;
use stoker_core::base::ids::{NodeGroupId, OrderId};
use stoker_core::base::sabotage;
use stoker_core::catalogue::group::Group;
use stoker_core::choose::rank::Scales;
use stoker_core::decide::is_fresh;
use stoker_core::decide::orders;
use stoker_core::limits::usage::Usage;
use stoker_core::state::memory::Memory;
use tokio::sync::oneshot;

use super::Engine;
use super::handle::Command;
use crate::failpoints;
use crate::publish::Call;
use crate::publish::CallRefused;
use crate::publish::view::NotReady;
use stoker_journal::{AcceptedCall, JournalError};

/// Mutating calls taken in before a pass: enough to share one pass among a parallel scale-up, few enough to keep the first caller's wait
/// short, as each call is flushed to disk by itself.
const BATCH: usize = 16;

/// A mutating call that was accepted and waits for the pass that publishes it.
type Answer = Box<dyn FnOnce() + Send>;

impl Engine {
    /// Takes a message and those that wait behind it, makes one pass, and answers.
    pub(super) async fn take(&mut self, first: Command) {
        let mut answers: Vec<Answer> = Vec::new();
        let mut next = Some(first);
        while let Some(command) = next {
            // A session changes what the groups may take: what comes after it must see its pass first.
            let last = matches!(command, Command::Session { .. } | Command::Settle { .. }) || answers.len() + 1 >= BATCH;
            if let Some(answer) = self.accept(command).await {
                answers.push(answer);
            }
            next = if last { None } else { self.commands.try_recv().ok() };
        }
        self.pass().await;
        if sabotage::on("increase-waits") {
            self.parts.executor.finish().await;
        }
        for answer in answers {
            answer();
        }
    }

    /// Applies one call to the memory and makes it durable; what remains is the answer, given once the pass has published it.
    async fn accept(&mut self, command: Command) -> Option<Answer> {
        match command {
            Command::Increase { group, delta, reply } => {
                let done = self.change(Call::Increase, &group, |engine, memory, now| {
                    let order = engine.increase(memory, &group, delta, now)?;
                    Ok((order, AcceptedCall::Increase { group: group.clone(), delta, order }))
                });
                Some(answer(reply, done.await))
            }
            Command::Decrease { group, delta, reply } => {
                let done = self.change(Call::Decrease, &group, |_, memory, now| {
                    let withdrawn = orders::decrease(memory, &group, delta, now)?;
                    let call = AcceptedCall::Decrease { group: group.clone(), asked: delta, withdrawn: withdrawn.clone() };
                    Ok((withdrawn, call))
                });
                Some(answer(reply, done.await))
            }
            Command::Delete { group, nodes, reply } => {
                let done = self.change(Call::Delete, &group, |engine, memory, now| {
                    let cluster = engine.parts.feeds.cluster();
                    let records = orders::delete(memory, &engine.catalogue, cluster.as_deref(), &group, &nodes, now)?;
                    let nodes = nodes.iter().map(|node| node.name.clone()).collect();
                    let call = AcceptedCall::Delete { group: group.clone(), nodes, records: records.clone() };
                    Ok((records, call))
                });
                Some(answer(reply, done.await))
            }
            Command::Session { reply } => {
                let mut memory = Memory::clone(&self.memory);
                let session = orders::begin_session(&mut memory);
                let done = self.keep(memory, &AcceptedCall::Session { session }).await;
                Some(answer(reply, done))
            }
            Command::Settle { reply } => {
                self.settle().await;
                let _ = reply.send(());
                None
            }
        }
    }

    async fn change<T>(
        &mut self,
        call: Call,
        group: &NodeGroupId,
        apply: impl FnOnce(&Self, &mut Memory, Timestamp) -> Result<(T, AcceptedCall), CallRefused>,
    ) -> Result<T, CallRefused> {
        let now = self.parts.clock.now();
        let mut memory = Memory::clone(&self.memory);
        let applied = match self.readiness().and_then(|()| self.writable()) {
            Ok(()) => apply(self, &mut memory, now),
            Err(why) => Err(why.into()),
        };
        let done = match applied {
            Ok((value, accepted)) => self.keep(memory, &accepted).await.map(|()| value),
            Err(why) => Err(why),
        };
        self.parts.listener.called(call, group, done.as_ref().map(|_| ()));
        done
    }

    /// Makes a changed memory durable and takes it over.
    async fn keep(&mut self, memory: Memory, call: &AcceptedCall) -> Result<(), CallRefused> {
        failpoints::point("order.accepted");
        let now = self.parts.clock.now();
        let written = self.parts.journal.accept(now, call, &self.memory, &memory).await;
        failpoints::point("order.journalled");
        if let Err(error) = written {
            self.is_fenced |= matches!(error, JournalError::Fenced { .. });
            let why = self.cannot_write(now, &error).why.clone();
            return Err(NotReady::Journal(why).into());
        }
        self.memory = Arc::new(memory);
        Ok(())
    }

    /// Whether what is accepted could be written down, by the last try. The next pass tries again.
    fn writable(&self) -> Result<(), NotReady> {
        self.unwritten.as_ref().map_or(Ok(()), |unwritten| Err(NotReady::Journal(unwritten.why.clone())))
    }

    fn increase(&self, memory: &mut Memory, group: &NodeGroupId, delta: i32, now: Timestamp) -> Result<OrderId, CallRefused> {
        let before = Memory::clone(memory);
        let (snapshot, _) = self.parts.feeds.snapshot(&self.parts.executor, &self.parts.clock);
        let times = Times { now, wall: snapshot.wall };
        let usage = Usage::count(&before, &self.catalogue, times.wall);
        let fresh = |group: &Group| is_fresh(&snapshot, group, now);
        let scales = Scales { catalogue: &self.catalogue, memory: &before, usage: &usage, fresh: &fresh, times };
        let limits = self.limits.get(group).ok_or_else(|| orders::OrderRefused::UnknownGroup(group.clone()))?;
        let (order, _) = orders::increase(memory, &scales, limits, group, delta)?;
        Ok(order)
    }
}

fn answer<T: Send + 'static>(reply: oneshot::Sender<Result<T, CallRefused>>, value: Result<T, CallRefused>) -> Answer {
    // A caller that has gone away needs no answer; what it asked for stands.
    Box::new(move || drop(reply.send(value)))
}
