//! Which probe speaks for which node, and questions to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::NodeReading;
use stoker_proto::probe::{Ack, Hello};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::metrics::ProbeMetrics;
use super::pace::Pace;
use super::reason::Reason;

/// How long an answer may take: the probe gives one within 2 s.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

/// Questions to one probe at once. The engine has one for each removal, and a node is removed once.
const QUESTIONS: usize = 4;

/// Why a node could not be confirmed quiet. None of it says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotConfirmed {
    /// No probe speaks for it.
    #[error("no probe reports for the node")]
    NoStream,
    /// It is being asked too much already.
    #[error("the probe is being asked already")]
    Busy,
    /// No answer in time.
    #[error("the probe did not answer within 5 s")]
    Late,
    /// The stream ended first.
    #[error("the probe's stream ended before it answered")]
    Gone,
    /// The probe could not sample.
    #[error("the probe could not read the node in time")]
    Unread,
    /// The answer was not to be taken.
    #[error("the probe's answer was rejected: {0}")]
    Rejected(Reason),
}

/// Something for a probe's stream to do.
#[derive(Debug)]
pub enum Command {
    /// Ask the probe.
    Confirm {
        /// Which question this is.
        nonce: u64,
        /// Where the answer goes.
        reply: oneshot::Sender<Result<NodeReading, NotConfirmed>>,
    },
}

/// Which probe speaks for which node.
#[derive(Debug, Default)]
pub struct Streams {
    speakers: Mutex<HashMap<NodeName, Speaker>>,
    next: AtomicU64,
    metrics: ProbeMetrics,
}

/// The probe that speaks for a node, or last did.
#[derive(Debug)]
struct Speaker {
    session: u64,
    taken: Ack,
    pace: Pace,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    stream: u64,
    commands: mpsc::Sender<Command>,
}

/// A stream that may speak for a node; gone when dropped.
#[derive(Debug)]
pub struct Ticket {
    streams: Arc<Streams>,
    node: NodeName,
    stream: u64,
    commands: mpsc::Receiver<Command>,
}

impl Streams {
    /// No streams yet.
    pub fn new(metrics: ProbeMetrics) -> Arc<Self> {
        Arc::new(Self { metrics, ..Self::default() })
    }

    /// Lets a probe speak for a node; tells what is known of its session. The stream that spoke before ends.
    ///
    /// # Errors
    /// [`Reason::OldSession`] where a later process has an open stream and the node is `heard`. Where it is not, the clock by which
    /// sessions are numbered may have been set back.
    pub fn admit(self: &Arc<Self>, node: &NodeName, hello: &Hello, heard: bool) -> Result<(Ticket, Ack), Reason> {
        let (sender, commands) = mpsc::channel(QUESTIONS);
        let stream = self.next.fetch_add(1, Ordering::Relaxed);
        let mut speakers = self.speakers();
        let taken = match speakers.get(node) {
            Some(known) if hello.session < known.session && known.open.is_some() && heard => return Err(Reason::OldSession),
            Some(known) if hello.session == known.session => known.taken,
            _ => Ack::default(),
        };
        let period = Duration::from_millis(hello.period_ms.into());
        let pace = Pace::of(period, speakers.get(node).map(|known| known.pace));
        let open = Some(Open { stream, commands: sender });
        speakers.insert(node.clone(), Speaker { session: hello.session, taken, pace, open });
        drop(speakers);
        self.metrics.opened();
        Ok((Ticket { streams: Arc::clone(self), node: node.clone(), stream, commands }, taken))
    }

    /// Asks a node's probe for a reading that begins after this call: what it says of work is not older than that.
    ///
    /// # Errors
    /// When there is no such reading within 5 s. Nothing more is known of the node then.
    pub async fn confirm_quiet(&self, node: &NodeName) -> Result<NodeReading, NotConfirmed> {
        let (reply, answer) = oneshot::channel();
        let nonce = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let speakers = self.speakers();
            let open = speakers.get(node).and_then(|speaker| speaker.open.as_ref()).ok_or(NotConfirmed::NoStream)?;
            open.commands.try_send(Command::Confirm { nonce, reply }).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => NotConfirmed::Busy,
                mpsc::error::TrySendError::Closed(_) => NotConfirmed::Gone,
            })?;
        }
        match tokio::time::timeout(CONFIRM_WITHIN, answer).await {
            Ok(answered) => answered.unwrap_or(Err(NotConfirmed::Gone)),
            Err(_) => Err(NotConfirmed::Late),
        }
    }

    /// Forgets the nodes that are not among those and have no stream.
    pub fn retain(&self, stays: impl Fn(&NodeName) -> bool) {
        self.speakers().retain(|node, speaker| speaker.open.is_some() || stays(node));
    }

    fn speakers(&self) -> MutexGuard<'_, HashMap<NodeName, Speaker>> {
        self.speakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is numbered within a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbered {
    /// A round.
    Round(u64),
    /// An event.
    Event(u64),
}

impl Ticket {
    /// The node that this stream speaks for.
    pub const fn node(&self) -> &NodeName {
        &self.node
    }

    /// What is to be done next; `None` once a later stream speaks for the node.
    pub async fn command(&mut self) -> Option<Command> {
        self.commands.recv().await
    }

    /// Counts a message; the moment until which no other is to be read, where the node's probe sends too many.
    pub fn message(&self) -> Option<Instant> {
        let mut speakers = self.streams.speakers();
        let until = speakers.get_mut(&self.node).and_then(|speaker| speaker.pace.message(Instant::now()));
        if until.is_some() {
            self.streams.metrics.throttled();
        }
        until
    }

    /// Whether a round or event is new: later than all of its kind that were taken. Then it counts as taken.
    ///
    /// # Errors
    /// [`Reason::Replayed`], [`Reason::OutOfOrder`], or [`Reason::OldSession`] where a later stream speaks for the node.
    pub fn take(&self, what: Numbered) -> Result<(), Reason> {
        let mut speakers = self.streams.speakers();
        let speaker = speakers.get_mut(&self.node).filter(|speaker| speaker.is(self.stream)).ok_or(Reason::OldSession)?;
        let (last, number) = match what {
            Numbered::Round(number) => (&mut speaker.taken.round, number),
            Numbered::Event(number) => (&mut speaker.taken.event, number),
        };
        match number.cmp(last) {
            std::cmp::Ordering::Greater => {
                *last = number;
                Ok(())
            }
            std::cmp::Ordering::Equal => Err(Reason::Replayed),
            std::cmp::Ordering::Less => Err(Reason::OutOfOrder),
        }
    }
}

impl Speaker {
    fn is(&self, stream: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.stream == stream)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(speaker) = self.streams.speakers().get_mut(&self.node)
            && speaker.is(self.stream)
        {
            speaker.open = None;
        }
        self.streams.metrics.ended();
    }
}
