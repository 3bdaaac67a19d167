//! What the sampler leaves for the provider, kept until the provider has it.
//!
//! Rounds are numbered as they come and kept encoded. Where the provider is away for long, the older half loses every second one, again
//! and again: what is left reaches ever further back, ever more coarsely. Events are never thinned; past a hard bound the oldest goes
//! and is counted. The last events stay after they are acknowledged: a provider that restarted is told them again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use stoker_proto::Bytes;
use stoker_proto::probe::{Ack, Event, Round};
use tokio::sync::{Notify, oneshot};

/// Most rounds kept: ten minutes at the period of 5 s are 120.
const MOST_ROUNDS: usize = 128;
/// Most bytes of rounds kept. A round of 8 GPUs takes two or three kilobytes, and one of 16 GPUs in 7 instances each some 30 KiB: ten
/// minutes of those, 120 rounds, are 3.6 MiB.
const MOST_BYTES: usize = 4 << 20;
/// Most events kept that are not acknowledged. A GPU that fails reports some tens.
const MOST_EVENTS: usize = 1024;
/// Events kept although they are acknowledged.
const REMEMBERED: usize = 64;

/// The provider asks for a round that is sampled from now on: after whatever closed the node to new work.
#[derive(Debug)]
pub struct Confirm {
    /// Which question this is.
    pub nonce: u64,
    /// Where the round goes. Dropped, it says that the node cannot be sampled.
    pub answer: oneshot::Sender<Round>,
}

/// What waits for the provider. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Outbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    rounds: VecDeque<(u64, Bytes)>,
    bytes: usize,
    last_round: u64,
    /// Those up to `acknowledged` are kept for a provider that forgets.
    events: VecDeque<Event>,
    last_event: u64,
    acknowledged: u64,
    thinned: u64,
    dropped: u64,
}

/// How full an [`Outbox`] is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fill {
    /// Rounds that wait.
    pub rounds: usize,
    /// Their size, in bytes.
    pub bytes: usize,
    /// Events that wait.
    pub events: usize,
    /// Rounds that were thinned out, since the start.
    pub thinned: u64,
    /// Events that had to make room, since the start.
    pub dropped: u64,
}

/// The next thing to send.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Round(Round),
    Event(Event),
}

/// How far a stream has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    round: u64,
    event: u64,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves a round; its `sequence` is given here. Never waits.
    pub fn round(&self, mut round: Round) {
        {
            let mut kept = self.kept();
            kept.last_round += 1;
            round.sequence = kept.last_round;
            let encoded = Bytes::from(round.encode_to_vec());
            kept.bytes += encoded.len();
            kept.rounds.push_back((round.sequence, encoded));
            kept.thin();
        }
        self.0.news.notify_one();
    }

    /// Leaves an event; its `number` is given here. Never waits.
    pub fn event(&self, mut event: Event) {
        {
            let mut kept = self.kept();
            kept.last_event += 1;
            event.number = kept.last_event;
            kept.events.push_back(event);
            kept.bound_events();
        }
        self.0.news.notify_one();
    }

    /// How full it is.
    pub fn fill(&self) -> Fill {
        let kept = self.kept();
        let acknowledged = kept.events.iter().take_while(|event| event.number <= kept.acknowledged).count();
        Fill {
            rounds: kept.rounds.len(),
            bytes: kept.bytes,
            events: kept.events.len().saturating_sub(acknowledged),
            thinned: kept.thinned,
            dropped: kept.dropped,
        }
    }

    /// Where a stream begins that the provider opened with `known`.
    pub(crate) fn begin(&self, known: Ack) -> Sent {
        self.acknowledge(known);
        Sent { round: known.round, event: known.event }
    }

    /// Forgets what the provider has.
    pub(crate) fn acknowledge(&self, ack: Ack) {
        let mut kept = self.kept();
        while let Some((_, round)) = kept.rounds.pop_front_if(|(sequence, _)| *sequence <= ack.round) {
            kept.bytes = kept.bytes.saturating_sub(round.len());
        }
        // What a provider that restarted does not know yet was acknowledged all the same.
        kept.acknowledged = kept.acknowledged.max(ack.event.min(kept.last_event));
        kept.bound_events();
    }

    /// The next thing after what was sent, events first, the oldest of each first; `None` where there is none yet.
    pub(crate) fn next(&self, sent: &mut Sent) -> Option<Item> {
        let kept = self.kept();
        if let Some(event) = kept.events.iter().find(|event| event.number > sent.event) {
            sent.event = event.number;
            return Some(Item::Event(event.clone()));
        }
        let (sequence, round) = kept.rounds.iter().find(|(sequence, _)| *sequence > sent.round)?;
        sent.round = *sequence;
        // Encoded here, so it decodes; were it not so, an empty round says nothing, and nothing unknown is taken for quiet.
        Some(Item::Round(Round::decode(round.clone()).unwrap_or_else(|_| Round { sequence: *sequence, ..Round::default() })))
    }

    /// Whether anything that was sent is not acknowledged.
    pub(crate) fn waits_for(&self, sent: Sent) -> bool {
        let kept = self.kept();
        let round = kept.rounds.front().is_some_and(|(sequence, _)| *sequence <= sent.round);
        round || kept.acknowledged < sent.event
    }

    /// Waits until something was left since the last wait.
    pub(crate) async fn news(&self) {
        self.0.news.notified().await;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn thin(&mut self) {
        while self.rounds.len() > MOST_ROUNDS || (self.bytes > MOST_BYTES && self.rounds.len() > 1) {
            let older = (self.rounds.len() / 2).max(2);
            let mut place = 0;
            let before = self.rounds.len();
            self.rounds.retain(|_| {
                place += 1;
                place > older || place % 2 == 0
            });
            self.thinned += (before - self.rounds.len()) as u64;
            self.bytes = self.rounds.iter().map(|(_, round)| round.len()).sum();
        }
    }

    fn bound_events(&mut self) {
        let waiting = self.events.partition_point(|event| event.number <= self.acknowledged);
        let remembered_too_many = waiting.saturating_sub(REMEMBERED);
        self.events.drain(..remembered_too_many);
        let waiting = self.events.len() - (waiting - remembered_too_many);
        if waiting > MOST_EVENTS {
            let over = waiting - MOST_EVENTS;
            let begin = self.events.len() - waiting;
            self.events.drain(begin..begin + over);
            self.dropped += over as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use stoker_proto::probe::Gpu;

    use super::*;

    fn outbox(rounds: usize, events: usize) -> Outbox {
        let outbox = Outbox::new();
        (0..rounds).for_each(|_| outbox.round(Round::default()));
        (0..events).for_each(|_| outbox.event(Event::default()));
        outbox
    }

    /// The numbers of all that a stream would send.
    fn all(outbox: &Outbox, known: Ack) -> (Vec<u64>, Vec<u64>) {
        let mut sent = outbox.begin(known);
        let (mut rounds, mut events) = (Vec::new(), Vec::new());
        while let Some(item) = outbox.next(&mut sent) {
            match item {
                Item::Round(round) => rounds.push(round.sequence),
                Item::Event(event) => events.push(event.number),
            }
        }
        (rounds, events)
    }

    const NOTHING: Ack = Ack { round: 0, event: 0 };

    #[test]
    fn ten_minutes_are_kept_whole_and_longer_ones_ever_more_coarsely() {
        let outbox = outbox(120, 0);
        assert_eq!(all(&outbox, NOTHING).0, (1..=120).collect::<Vec<_>>());
        // A day at 5 s.
        (120..17_280).for_each(|_| outbox.round(Round::default()));
        let (kept, _) = all(&outbox, NOTHING);
        assert!(kept.len() <= MOST_ROUNDS && kept.len() > MOST_ROUNDS / 2, "{}", kept.len());
        assert_eq!(outbox.fill().thinned, 17_280 - kept.len() as u64);
        // The last five minutes are whole, and what is older lies in order.
        assert!(kept.ends_with(&(17_221..=17_280).collect::<Vec<_>>()), "{kept:?}");
        assert!(kept.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn ten_minutes_of_the_largest_node_are_kept_whole() {
        let outbox = Outbox::new();
        let split = Round { gpus: vec![Gpu { name: "x".repeat(30 << 10), ..Gpu::default() }], ..Round::default() };
        (0..120).for_each(|_| outbox.round(split.clone()));
        assert_eq!((outbox.fill().rounds, outbox.fill().thinned), (120, 0));
    }

    #[test]
    fn large_rounds_are_thinned_by_their_bytes() {
        let outbox = Outbox::new();
        let large = Round { gpus: vec![Gpu { name: "x".repeat(240 << 10), ..Gpu::default() }], ..Round::default() };
        for _ in 0..120 {
            outbox.round(large.clone());
            assert!(outbox.fill().bytes <= MOST_BYTES);
        }
        assert!(outbox.fill().rounds >= 8, "{:?}", outbox.fill());
        let huge = Round { gpus: vec![Gpu { name: "x".repeat(MOST_BYTES), ..Gpu::default() }], ..Round::default() };
        outbox.round(huge);
        assert_eq!(all(&outbox, NOTHING).0, [121]);
    }

    #[test]
    fn what_is_acknowledged_is_sent_no_more_and_the_rest_again_on_each_stream() {
        let outbox = outbox(5, 3);
        assert_eq!(all(&outbox, NOTHING), (vec![1, 2, 3, 4, 5], vec![1, 2, 3]));
        outbox.acknowledge(Ack { round: 3, event: 2 });
        assert_eq!((outbox.fill().rounds, outbox.fill().events), (2, 1));
        assert_eq!(all(&outbox, Ack { round: 3, event: 2 }), (vec![4, 5], vec![3]));
        outbox.acknowledge(Ack { round: 5, event: 3 });
        assert_eq!(outbox.fill(), Fill::default());
        // A provider that restarted: the events that it had, and no round that it had.
        assert_eq!(all(&outbox, NOTHING), (vec![], vec![1, 2, 3]));
    }

    #[test]
    fn events_are_bounded_and_those_that_go_are_counted() {
        let outbox = outbox(0, MOST_EVENTS);
        assert_eq!(outbox.fill().dropped, 0);
        outbox.event(Event::default());
        assert_eq!((outbox.fill().events, outbox.fill().dropped), (MOST_EVENTS, 1));
        assert_eq!(all(&outbox, NOTHING).1[0], 2);
        let last = MOST_EVENTS as u64 + 1;
        outbox.acknowledge(Ack { round: 0, event: last });
        assert_eq!(all(&outbox, NOTHING).1, (last - 63..=last).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn news_is_not_missed_by_one_who_waits_later() {
        let outbox = outbox(1, 0);
        outbox.news().await;
        outbox.event(Event::default());
        outbox.news().await;
    }
}
