//! What NVML tells, read by one thread that owns it.
//!
//! A call into the driver can hang for good, so nobody else calls it and nobody waits for it without a deadline: rounds are asked for by
//! [`Sampler::ask`], and [`crate::watch`] says what is known when no answer comes. Memory, processes, utilization and the MIG layout
//! are read in each round, clocks, power, temperature and the recovery action in every third, the rest in every twelfth: every 5, 15
//! and 60 s at the default period. In between, a round repeats what was read last. [`Depth::Full`] reads everything.

mod events;
mod gpm;
mod gpu;
mod health;
mod kept;
mod mig;
mod refusal;
mod session;
mod trust;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use stoker_proto::probe::driver::State;
use stoker_proto::probe::{Driver, Event, Round};
use tokio::sync::oneshot;

pub use kept::{SIGNALS, unknown_gpu};
pub use refusal::now;

use self::trust::Trust;
use crate::gate::{self, Expected, Listening};
use crate::processes::Proc;

/// The longest pause between two tries to open the driver.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How to sample.
#[derive(Debug, Clone)]
pub struct Settings {
    /// NVML's library; by default the loader finds `libnvidia-ml.so.1`.
    pub library: Option<PathBuf>,
    /// Where processes are looked up.
    pub proc: Proc,
    /// What the node should have.
    pub expected: Expected,
    /// Between two rounds; the first pause before the driver is tried again.
    pub period: Duration,
}

/// How much of what can be read a round reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What is due.
    Due,
    /// Everything.
    Full,
}

/// Something that the driver told unasked.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// To be told on.
    Event(Event),
    /// The driver's view of a GPU has changed: it is worth another look.
    LookAgain,
}

struct Ask {
    depth: Depth,
    answer: oneshot::Sender<Round>,
}

/// When the driver last answered, told by the thread that asks it.
#[derive(Debug, Clone)]
struct Answered {
    from: Instant,
    milliseconds: Arc<AtomicU64>,
}

impl Answered {
    fn never() -> Self {
        Self { from: Instant::now(), milliseconds: Arc::default() }
    }

    fn now(&self) {
        let milliseconds = u64::try_from(self.from.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.milliseconds.store(milliseconds, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.from + Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }
}

/// The thread that owns NVML.
#[derive(Debug, Clone)]
pub struct Sampler {
    asks: mpsc::Sender<Ask>,
    answered: Answered,
}

impl Sampler {
    /// Starts it. It ends when the last clone is dropped.
    pub fn start(settings: Settings, happened: tokio::sync::mpsc::Sender<Happened>) -> std::io::Result<Self> {
        let (asks, asked) = mpsc::channel();
        let trust = Trust::new(settings.proc.sees_all_processes());
        let answered = Answered::never();
        let thread = Thread {
            answered: answered.clone(),
            settings,
            asked,
            happened,
            pause: Duration::ZERO,
            again: Some(Instant::now()),
            seen_last: Vec::new(),
            trust,
        };
        std::thread::Builder::new().name("nvml-sample".to_owned()).spawn(move || thread.run())?;
        Ok(Self { asks, answered })
    }

    /// When the driver last answered for a GPU or as a whole; when the thread began, where it never did.
    pub fn answered(&self) -> Instant {
        self.answered.last()
    }

    /// Asks for a round. The answer never comes if the thread has ended, and late if a call hangs.
    pub fn ask(&self, depth: Depth) -> oneshot::Receiver<Round> {
        let (answer, round) = oneshot::channel();
        // A thread that has ended drops the question, which the asker sees.
        let _ = self.asks.send(Ask { depth, answer });
        round
    }
}

/// Who a GPU is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Identity {
    uuid: String,
    name: String,
    pci_bus_id: String,
    architecture: Option<u32>,
}

struct Thread {
    settings: Settings,
    asked: mpsc::Receiver<Ask>,
    happened: tokio::sync::mpsc::Sender<Happened>,
    answered: Answered,
    pause: Duration,
    /// When the driver is tried again; never where that is of no use.
    again: Option<Instant>,
    /// By index: a GPU that is lost can no longer be asked.
    seen_last: Vec<Identity>,
    trust: Trust,
}

impl Thread {
    fn run(mut self) {
        let mut driver = Driver::default();
        let mut open = None;
        while let Some(ask) = open.take().or_else(|| self.asked.recv().ok()) {
            if self.again.is_none_or(|again| Instant::now() < again) {
                self.refuse(ask, &driver);
                continue;
            }
            match self.open() {
                Ok(nvml) => match session::run(&nvml, ask, &mut self) {
                    session::End::Stopped => return,
                    session::End::Changed(ask) => open = Some(ask),
                    session::End::Lost(ask, lost) => {
                        driver = lost;
                        self.back_off();
                        self.refuse(ask, &driver);
                    }
                },
                Err(closed) => {
                    driver = closed;
                    self.refuse(ask, &driver);
                }
            }
        }
    }

    fn open(&mut self) -> Result<nvml_wrapper::Nvml, Driver> {
        let mut builder = nvml_wrapper::Nvml::builder();
        if let Some(path) = &self.settings.library {
            builder.lib_path(path.as_os_str());
        }
        let nvml = builder.init().map_err(|error| {
            self.back_off();
            refusal::driver(&error)
        })?;
        self.answered.now();
        if nvml.lib().nvmlShutdown.is_err() {
            // Dropping it would panic, and opening it again would leak it again.
            std::mem::forget(nvml);
            self.again = None;
            let detail = "the library has no nvmlShutdown; it is not a known NVML".to_owned();
            return Err(Driver { state: State::Failed.into(), detail, ..Driver::default() });
        }
        Ok(nvml)
    }

    /// The next try is later by twice as much each time.
    fn back_off(&mut self) {
        self.pause = (self.pause * 2).clamp(self.settings.period, LONGEST_PAUSE.max(self.settings.period));
        self.again = Some(Instant::now() + self.pause);
    }

    /// A round without the driver.
    fn refuse(&self, ask: Ask, driver: &Driver) {
        let gates = gate::gates(&self.settings.expected, driver, None, &[], &Listening::Unknown);
        let round = Round { at: Some(now()), driver: Some(driver.clone()), gates, ..Round::default() };
        // Whoever asked may have given up.
        let _ = ask.answer.send(round);
    }
}
