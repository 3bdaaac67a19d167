//! The scenario in force, and what the library keeps between calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::scenario::{Code, Scenario};

/// How often the file's time of change is looked at: calls come by the thousand.
const LOOK: Duration = Duration::from_millis(2);
/// How often a hanging call looks whether it may go on.
pub(crate) const DOZE: Duration = Duration::from_millis(5);
/// How often a call that waits for events looks whether there is one. A driver would wake it; looking costs the caller time.
pub(crate) const WATCH: Duration = Duration::from_millis(50);

/// A scenario and when it was read: levels count from then.
pub(crate) struct InForce {
    pub(crate) scenario: Scenario,
    pub(crate) since: Instant,
}

impl InForce {
    pub(crate) fn milliseconds(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What an event set listens to and has told.
#[derive(Default)]
pub(crate) struct EventSet {
    pub(crate) made: Option<Instant>,
    pub(crate) listens: BTreeMap<usize, u64>,
    pub(crate) told: BTreeSet<usize>,
}

struct State {
    path: Option<PathBuf>,
    looked: Option<Instant>,
    read: Option<(SystemTime, u64)>,
    in_force: Arc<InForce>,
    sets: BTreeMap<usize, EventSet>,
    samples: BTreeMap<usize, usize>,
    last: usize,
}

fn state() -> MutexGuard<'static, State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    STATE
        .get_or_init(|| {
            Mutex::new(State {
                path: std::env::var_os(crate::SCENARIO_VARIABLE).map(PathBuf::from),
                looked: None,
                read: None,
                in_force: Arc::new(InForce { scenario: Scenario::default(), since: Instant::now() }),
                sets: BTreeMap::new(),
                samples: BTreeMap::new(),
                last: 0,
            })
        })
        .lock()
        // A call that panicked has answered with an error; what is kept is whole.
        .unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn reload(&mut self) {
        let now = Instant::now();
        if self.looked.is_some_and(|at| now.duration_since(at) < LOOK) {
            return;
        }
        self.looked = Some(now);
        let Some(path) = &self.path else { return };
        let Ok(meta) = std::fs::metadata(path) else { return };
        let stamp = meta.modified().ok().map(|at| (at, meta.len()));
        if stamp.is_some() && stamp == self.read {
            return;
        }
        self.read = stamp;
        match std::fs::read(path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()))
        {
            Ok(scenario) => self.in_force = Arc::new(InForce { scenario, since: now }),
            Err(error) => eprintln!("fake NVML: {}: {error}; the last good scenario stays", path.display()),
        }
    }
}

/// The scenario in force now.
pub(crate) fn in_force() -> Arc<InForce> {
    let mut state = state();
    state.reload();
    Arc::clone(&state.in_force)
}

/// Makes an event set and gives its number.
pub(crate) fn make_set() -> usize {
    let mut state = state();
    state.last += 1;
    let number = state.last;
    state.sets.insert(number, EventSet { made: Some(Instant::now()), ..EventSet::default() });
    number
}

/// Does something with an event set.
pub(crate) fn with_set<T>(number: usize, act: impl FnOnce(&mut EventSet) -> T) -> Result<T, Code> {
    state().sets.get_mut(&number).map(act).ok_or(Code::InvalidArgument)
}

/// Ends an event set.
pub(crate) fn free_set(number: usize) -> Result<(), Code> {
    state().sets.remove(&number).map(drop).ok_or(Code::InvalidArgument)
}

/// Makes an empty GPM sample and gives its number.
pub(crate) fn make_sample() -> usize {
    let mut state = state();
    state.last += 1;
    let number = state.last;
    state.samples.insert(number, 0);
    number
}

/// Fills a GPM sample with what it is of.
pub(crate) fn fill_sample(number: usize, of: usize) -> Result<(), Code> {
    state().samples.get_mut(&number).map(|slot| *slot = of).ok_or(Code::InvalidArgument)
}

/// What a GPM sample is of.
pub(crate) fn sample_of(number: usize) -> Result<usize, Code> {
    state().samples.get(&number).copied().ok_or(Code::InvalidArgument)
}

/// Ends a GPM sample.
pub(crate) fn free_sample(number: usize) -> Result<(), Code> {
    state().samples.remove(&number).map(drop).ok_or(Code::InvalidArgument)
}
