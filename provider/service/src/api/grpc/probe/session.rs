//! One probe's stream once it is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::Stream;
use futures::future::BoxFuture;
use jiff::Timestamp;
use stoker_core::facts::reading::{DriverState, NodeReading};
use stoker_proto::probe::{Ack, ConfirmQuiet, FromProbe, QuietAnswer, ToProbe, from_probe, to_probe};
use stoker_proto::probe::{Event, Round};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use super::Warnings;
use crate::feeds::probes::{Command, NotConfirmed, Numbered, Readings, Reason, Ticket, convert};

/// Questions that wait for their answers. The stream's queue is shorter; those that came too late are forgotten first.
const MOST_ASKED: usize = 16;

/// One probe's stream.
pub(super) struct Session {
    inbound: Streaming<FromProbe>,
    ticket: Ticket,
    /// Comes when the stream ends: with why where what proved the node does so no more, with
    /// nothing where its time is over.
    ended: BoxFuture<'static, Option<Status>>,
    /// Until when the probe is not listened to, as it sends too much. Its messages wait on its side then.
    deaf_until: Option<Instant>,
    readings: Arc<Readings>,
    stop: CancellationToken,
    acknowledged: Ack,
    /// When the last round was sampled, by the node's clock.
    sampled: Option<Timestamp>,
    /// Whether the probe is to be told what is known.
    begun: bool,
    over: bool,
    warnings: Arc<Warnings>,
    /// Why the last round was not taken, where that is logged.
    warned: Option<Reason>,
    asked: BTreeMap<u64, oneshot::Sender<Result<NodeReading, NotConfirmed>>>,
}

impl Session {
    pub(super) fn new(
        inbound: Streaming<FromProbe>,
        ticket: Ticket,
        taken: Ack,
        ended: BoxFuture<'static, Option<Status>>,
        readings: Arc<Readings>,
        warnings: Arc<Warnings>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            inbound,
            ticket,
            ended,
            deaf_until: None,
            readings,
            stop,
            acknowledged: taken,
            sampled: None,
            begun: false,
            over: false,
            warnings,
            warned: None,
            asked: BTreeMap::new(),
        }
    }

    /// What is sent to the probe. What it sends is taken in while the next answer is waited for: a probe that does not read its
    /// acknowledgements is not listened to.
    pub(super) fn answers(self) -> impl Stream<Item = Result<ToProbe, Status>> + Send {
        futures::stream::unfold(self, |mut session| async move {
            let answer = session.next().await?;
            Some((answer, session))
        })
    }

    async fn next(&mut self) -> Option<Result<ToProbe, Status>> {
        if self.over {
            return None;
        }
        if !self.begun {
            self.begun = true;
            return Some(Ok(self.ack()));
        }
        loop {
            let stop = self.stop.clone();
            tokio::select! {
                () = stop.cancelled() => return Some(self.end(Status::unavailable("shutting down; try again"))),
                command = self.ticket.command() => match command {
                    Some(Command::Confirm { nonce, reply }) => return Some(Ok(self.ask(nonce, reply))),
                    None => return Some(self.end(Status::aborted("another stream reports for the node"))),
                },
                ended = &mut self.ended => {
                    if let Some(status) = ended {
                        return Some(self.lapsed(status));
                    }
                    self.over = true;
                    return None;
                }
                () = sleep_until(self.deaf_until.unwrap_or_else(Instant::now)), if self.deaf_until.is_some() => {
                    self.deaf_until = None;
                }
                message = self.inbound.message(), if self.deaf_until.is_none() => match message {
                    Ok(Some(message)) => match self.heard(message) {
                        Ok(true) => return Some(Ok(self.ack())),
                        Ok(false) => {}
                        Err(status) => return Some(self.end(status)),
                    },
                    Ok(None) => {
                        self.over = true;
                        return None;
                    }
                    Err(status) => {
                        count_broken(&self.readings, &status);
                        return Some(self.end(status));
                    }
                },
            }
        }
    }

    fn end(&mut self, status: Status) -> Result<ToProbe, Status> {
        self.over = true;
        Err(status)
    }

    fn lapsed(&mut self, status: Status) -> Result<ToProbe, Status> {
        self.readings.reject(Reason::Lapsed);
        if let Some(unlogged) = self.warnings.lapsed.unlogged() {
            tracing::warn!(node = %self.ticket.node(), unlogged, "a probe's stream ended: {}", status.message());
        }
        self.end(status)
    }

    fn ack(&self) -> ToProbe {
        ToProbe { kind: Some(to_probe::Kind::Ack(self.acknowledged)) }
    }

    fn ask(&mut self, nonce: u64, reply: oneshot::Sender<Result<NodeReading, NotConfirmed>>) -> ToProbe {
        self.asked.retain(|_, reply| !reply.is_closed());
        while self.asked.len() >= MOST_ASKED {
            self.asked.pop_first();
        }
        self.asked.insert(nonce, reply);
        ToProbe { kind: Some(to_probe::Kind::ConfirmQuiet(ConfirmQuiet { nonce })) }
    }

    /// Takes one message in, and counts it; whether it is to be acknowledged.
    fn heard(&mut self, message: FromProbe) -> Result<bool, Status> {
        self.deaf_until = self.ticket.message();
        if self.deaf_until.is_some()
            && let Some(unlogged) = self.warnings.fast.unlogged()
        {
            let node = self.ticket.node();
            tracing::warn!(%node, unlogged, "a probe sends more than four messages a period and is throttled");
        }
        self.take(message)
    }

    /// Takes one message in; whether that is to be acknowledged.
    fn take(&mut self, message: FromProbe) -> Result<bool, Status> {
        match message.kind {
            Some(from_probe::Kind::Round(round)) => self.round(round).map(|()| true),
            Some(from_probe::Kind::Event(event)) => self.event(&event).map(|()| true),
            Some(from_probe::Kind::Quiet(answer)) => {
                self.answered(answer);
                Ok(false)
            }
            Some(from_probe::Kind::Hello(_)) => {
                self.readings.reject(Reason::Malformed);
                Err(Status::invalid_argument("a second Hello on one stream"))
            }
            // Of a probe that is newer than this.
            None => Ok(false),
        }
    }

    fn round(&mut self, round: Round) -> Result<(), Status> {
        let sequence = round.sequence;
        if self.is_new(Numbered::Round(sequence))? {
            self.acknowledged.round = sequence;
            let taken = self.reading(round).and_then(|(at, reading)| {
                self.sampled = Some(at);
                self.readings.take_at(self.ticket.node(), at, Some(reading), &[])
            });
            self.unless_gone(taken)?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), Status> {
        if self.is_new(Numbered::Event(event.number))? {
            self.acknowledged.event = event.number;
            let times = self.readings.times();
            if convert::is_ahead(event.at.as_ref(), times) {
                self.readings.reject(Reason::Future);
            }
            match convert::event(event, times) {
                Ok(Some(event)) => {
                    let taken = self.readings.take_at(self.ticket.node(), event.at, None, &[event]);
                    self.unless_gone(taken)?;
                }
                Ok(None) => {}
                Err(reason) => drop(self.readings.reject(reason)),
            }
        }
        Ok(())
    }

    /// Whether it was not taken before. What was is acknowledged again, and left out.
    fn is_new(&self, what: Numbered) -> Result<bool, Status> {
        match self.ticket.take(what) {
            Ok(()) => Ok(true),
            Err(Reason::OldSession) => Err(Status::aborted("another stream reports for the node")),
            Err(reason) => {
                self.readings.reject(reason);
                Ok(false)
            }
        }
    }

    /// A round as a reading; one that is not to be taken is counted, and its reason told.
    fn reading(&mut self, round: Round) -> Result<(Timestamp, NodeReading), Reason> {
        let converted = convert::round(round, self.readings.times()).map_err(|reason| {
            self.warn(reason);
            self.readings.reject(reason)
        })?;
        self.warned = None;
        for _ in 0..converted.absurd {
            self.readings.reject(Reason::Absurd);
        }
        Ok((converted.at, converted.reading))
    }

    /// Says once why rounds are not taken, until the reason is another or one is taken: the node falls silent meanwhile.
    fn warn(&mut self, reason: Reason) {
        if self.warned == Some(reason) {
            return;
        }
        // Where many nodes fail at once, those that are not logged now are with their next round.
        if let Some(unlogged) = self.warnings.round.unlogged() {
            self.warned = Some(reason);
            tracing::warn!(node = %self.ticket.node(), %reason, unlogged, "the probe's reading is rejected");
        }
    }

    /// A round that is not taken is left out; a node that is gone ends the stream.
    fn unless_gone(&self, taken: Result<(), Reason>) -> Result<(), Status> {
        match taken {
            Err(Reason::UnknownNode) => {
                Err(Status::not_found(format!("{} is no longer a node of this cluster", self.ticket.node())))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn answered(&mut self, answer: QuietAnswer) {
        // Too late, or never asked: the reading in it would be as good as any, but nobody waits for it.
        let Some(reply) = self.asked.remove(&answer.nonce) else { return };
        let confirmed = answer.round.ok_or(NotConfirmed::Unread).and_then(|round| self.confirmed(round));
        // Whoever asked may have given up.
        let _ = reply.send(confirmed);
    }

    /// The reading in an answer. One whose driver does not answer is taken, and confirms nothing.
    fn confirmed(&mut self, round: Round) -> Result<NodeReading, NotConfirmed> {
        let (at, reading) = self.reading(round).map_err(NotConfirmed::Rejected)?;
        // Sampled before what was known when it was asked for.
        if self.sampled.is_some_and(|last| at < last) {
            return Err(NotConfirmed::Rejected(self.readings.reject(Reason::OutOfOrder)));
        }
        self.readings.take_at(self.ticket.node(), at, Some(reading.clone()), &[]).map_err(NotConfirmed::Rejected)?;
        if reading.driver == DriverState::Ready { Ok(reading) } else { Err(NotConfirmed::Unread) }
    }
}

/// Counts a stream that broke because of what was sent, rather than because the connection did.
pub(super) fn count_broken(readings: &Readings, status: &Status) {
    match status.code() {
        // Tonic's own bound answers with the former, ours with the latter.
        Code::OutOfRange | Code::ResourceExhausted => drop(readings.reject(Reason::TooLarge)),
        Code::InvalidArgument => drop(readings.reject(Reason::Malformed)),
        _ => {}
    }
}
