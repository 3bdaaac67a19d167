//! Warnings that whoever is outside can cause, at most one a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Least time between two.
const APART: Duration = Duration::from_secs(1);

/// Keeps one kind of warning from filling the log: a client that cannot get in tries for ever.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Warned>);

#[derive(Debug, Default)]
struct Warned {
    last: Option<Instant>,
    unlogged: u64,
}

impl Seldom {
    /// How many were left out since the last, where this one is to be logged; `None` where it is left out as well.
    pub fn unlogged(&self) -> Option<u64> {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if warned.last.is_some_and(|last| now.duration_since(last) < APART) {
            warned.unlogged += 1;
            return None;
        }
        warned.last = Some(now);
        Some(std::mem::take(&mut warned.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_a_second_is_logged_and_tells_how_many_were_not() {
        let seldom = Seldom::default();
        assert_eq!([seldom.unlogged(), seldom.unlogged(), seldom.unlogged()], [Some(0), None, None]);
        tokio::time::advance(APART).await;
        assert_eq!([seldom.unlogged(), seldom.unlogged()], [Some(2), None]);
    }
}
