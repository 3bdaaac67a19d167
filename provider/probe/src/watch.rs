//! When the driver is asked, and what is said when it does not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stoker_proto::probe::driver::State;
use stoker_proto::probe::{Driver, Event, Round, Why};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::gate::{self, Listening};
use crate::outbox::{Confirm, Outbox};
use crate::sample::{Depth, Happened, Sampler, Settings, now, unknown_gpu};

/// A driver that answers nothing for longer hangs.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a round may take of a driver that is slow and answers, such as for 16 GPUs at work: questions wait meanwhile.
const LONGEST: Duration = Duration::from_secs(10);
/// As long as one that the provider waits for may take: it gives up after 5 s, and this probe's stream after 2 s.
const CONFIRM_DEADLINE: Duration = Duration::from_millis(1500);
/// How long after an event the GPUs are looked at again: the driver's verdict follows an XID within a second.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Events that wait to be taken; the driver keeps what comes above.
const EVENTS: usize = 256;

/// What a probe does with what it learns.
pub trait Sink: Clone + Send + 'static {
    /// Takes a round.
    fn round(&self, round: Round);
    /// Takes an event.
    fn event(&self, event: Event);
}

impl Sink for Outbox {
    fn round(&self, round: Round) {
        Outbox::round(self, round);
    }
    fn event(&self, event: Event) {
        Outbox::event(self, event);
    }
}

/// Asks for rounds, one at a time.
#[derive(Debug)]
pub struct Watch {
    settings: Settings,
    sampler: Sampler,
    happened: mpsc::Sender<Happened>,
    /// A round that has not come back, and since when.
    late: Option<(Instant, oneshot::Receiver<Round>)>,
    /// The last one that came back.
    last: Round,
}

/// The driver's own tidings, for [`Watch::run`].
pub type Tidings = mpsc::Receiver<Happened>;

impl Watch {
    /// Starts the sampling thread.
    pub fn start(settings: Settings) -> std::io::Result<(Self, Tidings)> {
        let (happened, tidings) = mpsc::channel(EVENTS);
        let sampler = Sampler::start(settings.clone(), happened.clone())?;
        Ok((Self { settings, sampler, happened, late: None, last: Round::default() }, tidings))
    }

    /// Samples every period, and when asked, until told to stop.
    pub async fn run<S: Sink>(
        mut self,
        sink: S,
        tidings: Tidings,
        mut confirms: mpsc::Receiver<Confirm>,
        stop: CancellationToken,
    ) {
        let look = Arc::new(tokio::sync::Notify::new());
        // Apart from the rounds: an XID must not wait for a call that hangs because of it.
        let pump = tokio::spawn(pump(tidings, sink.clone(), Arc::clone(&look)));
        let mut ticks = tokio::time::interval(self.settings.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut confirming = true;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                confirm = confirms.recv(), if confirming => match confirm {
                    Some(Confirm { nonce, answer }) => {
                        tracing::debug!(nonce, "confirming");
                        // A provider that has gone asks again.
                        let _ = answer.send(self.sample(Depth::Full, CONFIRM_DEADLINE).await);
                    }
                    None => confirming = false,
                },
                depth = async { tokio::select! { _ = ticks.tick() => Depth::Due, () = look.notified() => Depth::Full } } => {
                    sink.round(self.sample_while_answering(depth, SILENCE, LONGEST).await);
                }
            }
        }
        pump.abort();
    }

    /// A round, or what there is to say of one that does not come.
    pub async fn sample(&mut self, depth: Depth, deadline: Duration) -> Round {
        self.sample_while_answering(depth, deadline, deadline).await
    }

    /// [`sample`](Self::sample) of a driver that may take long as a whole, `most`, as long as it answers some call every `silence`: where
    /// nothing keeps it loaded, opening it takes seconds for each GPU.
    pub async fn sample_while_answering(&mut self, depth: Depth, silence: Duration, most: Duration) -> Round {
        let (since, mut answer) = match self.late.take() {
            Some((since, mut answer)) => match answer.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => {
                    self.late = Some((since, answer));
                    return self.hung(since);
                }
                // It came back. What it read is of then; ask anew.
                Ok(_) | Err(oneshot::error::TryRecvError::Closed) => (Instant::now(), self.sampler.ask(depth)),
            },
            None => (Instant::now(), self.sampler.ask(depth)),
        };
        let until = |answered: Instant| (answered.max(since) + silence).min(since + most);
        loop {
            let patient = until(self.sampler.answered());
            match tokio::time::timeout_at(patient.into(), &mut answer).await {
                Ok(Ok(round)) => {
                    self.last = round.clone();
                    return round;
                }
                Ok(Err(_)) => return self.ended(),
                Err(_) if until(self.sampler.answered()) > patient => {}
                Err(_) => {
                    tracing::warn!("a call to NVML has not returned");
                    self.late = Some((since, answer));
                    return self.hung(since);
                }
            }
        }
    }

    /// Every reading is unknown while a call hangs; who the GPUs are is still known.
    fn hung(&self, since: Instant) -> Round {
        let silent = self.sampler.answered().max(since).elapsed().as_secs_f64();
        self.without(State::Hung, format!("unknown because NVML has not answered for {silent:.0} s"))
    }

    /// The thread has ended, by a fault in the wrapper or in us. Another one takes its place.
    fn ended(&mut self) -> Round {
        tracing::error!("the sampling thread ended; restarting it");
        match Sampler::start(self.settings.clone(), self.happened.clone()) {
            Ok(sampler) => self.sampler = sampler,
            Err(error) => tracing::error!(%error, "no sampling thread"),
        }
        self.without(State::Failed, "the sampling thread ended".to_owned())
    }

    fn without(&self, state: State, detail: String) -> Round {
        let driver = Driver { state: state.into(), detail, ..self.last.driver.clone().unwrap_or_default() };
        let gates = gate::gates(&self.settings.expected, &driver, None, &[], &Listening::Unknown);
        let gpus = self.last.gpus.iter().map(|gpu| unknown_gpu(gpu, Why::TimedOut)).collect();
        Round { at: Some(now()), driver: Some(driver), gpus, gates, ..Round::default() }
    }
}

async fn pump<S: Sink>(mut tidings: Tidings, sink: S, look: Arc<tokio::sync::Notify>) {
    let mut due = None;
    loop {
        let waited = match due {
            Some(at) => tokio::time::timeout_at(at, tidings.recv()).await,
            None => Ok(tidings.recv().await),
        };
        let Ok(happened) = waited else {
            due = None;
            look.notify_one();
            continue;
        };
        match happened {
            Some(Happened::Event(event)) => sink.event(event),
            // A storm of them puts the look off once, not for ever.
            Some(Happened::LookAgain) => due = due.or_else(|| Some(tokio::time::Instant::now() + LOOK_AGAIN)),
            None => return,
        }
    }
}
