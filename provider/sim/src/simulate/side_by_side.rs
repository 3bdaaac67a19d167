//! Several simulations at a time, each on a thread of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{NotSimulated, Setup, Simulated, simulate};

/// Plays setups, at most `threads` at a time, and answers in their order. `done` is told which is done, and how many are.
pub fn side_by_side(
    setups: &[Setup],
    threads: usize,
    done: impl Fn(usize, usize) + Sync,
) -> Vec<Result<Simulated, NotSimulated>> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Mutex<Vec<Option<Result<Simulated, NotSimulated>>>> = Mutex::new(vec![None; setups.len()]);
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(setup) = setups.get(n) else { return };
            let made = simulate(setup);
            if let Some(slot) = outcomes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(n) {
                *slot = Some(made);
            }
            done(n, finished.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, setups.len().max(1)) {
            scope.spawn(work);
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.into_iter().map(|made| made.unwrap_or(Err(NotSimulated::NoGroups))).collect()
}
