//! Time as an input: the machine's clocks, or one that a test or the demo moves.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use stoker_core::base::engine_clock::{EngineClock, JUMP, Mark, Resumed, Times, Wall};
use tokio::sync::watch;

use crate::failpoints;

/// Where "now" comes from. All that waits and ages goes by its decision time, which never goes back.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clocks.
    System(Arc<SystemClock>),
    /// A clock that stands still until it is moved.
    Virtual(Arc<VirtualClock>),
}

/// The machine's clocks: the boot-time clock, and the wall that decision time is slewed towards.
#[derive(Debug)]
pub struct SystemClock {
    boot_id: Option<String>,
    ticking: Mutex<Ticking>,
}

#[derive(Debug)]
struct Ticking {
    engine: EngineClock,
    /// By how much the wall was ahead of the boot-time clock when both were last read.
    ahead: Timestamp,
    /// How the wall has jumped since somebody was told.
    jumped: Option<Jump>,
}

/// A step of the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// By how much.
    pub by: SignedDuration,
    /// Whether decision time followed it, as it does over a restart.
    pub followed: bool,
}

impl SystemClock {
    fn times(&self, boot: SignedDuration, wall: Wall) -> Times {
        let mut ticking = self.ticking.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = ahead(boot, wall);
        let by = ahead.duration_since(ticking.ahead);
        ticking.ahead = ahead;
        if by.abs() > JUMP {
            let before = ticking.jumped.filter(|jump| !jump.followed).map_or(SignedDuration::ZERO, |jump| jump.by);
            let by = before.saturating_add(by);
            // There and back again is none.
            ticking.jumped = (by.abs() > JUMP).then_some(Jump { by, followed: false });
        }
        ticking.engine.advance(boot, wall)
    }
}

/// By how much the wall is ahead of the boot-time clock, as the moment at which that stood at zero.
fn ahead(boot: SignedDuration, wall: Wall) -> Timestamp {
    wall.0.saturating_sub(boot).unwrap_or(Timestamp::MIN)
}

/// The boot-time clock, which nobody sets and which counts suspends.
fn boot_time() -> SignedDuration {
    let since = clock_gettime(ClockId::Boottime);
    SignedDuration::new(since.tv_sec, i32::try_from(since.tv_nsec).unwrap_or(0))
}

/// The wall clock, which anybody may set.
fn wall() -> Wall {
    Wall(Timestamp::now().saturating_add(failpoints::wall_error()).unwrap_or(Timestamp::MAX))
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct VirtualClock {
    now: watch::Sender<Timestamp>,
}

impl VirtualClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Arc<Self> {
        Arc::new(Self { now: watch::Sender::new(start) })
    }

    /// Moves the clock forward to `at`; never back.
    pub fn advance_to(&self, at: Timestamp) {
        self.now.send_if_modified(|now| {
            let forward = at > *now;
            *now = (*now).max(at);
            forward
        });
    }
}

impl Clock {
    /// The machine's clocks, from now on.
    pub fn system() -> Self {
        let (boot, wall) = (boot_time(), wall());
        let ticking = Ticking { engine: EngineClock::starting(boot, wall), ahead: ahead(boot, wall), jumped: None };
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let boot_id = boot_id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        Self::System(Arc::new(SystemClock { boot_id, ticking: Mutex::new(ticking) }))
    }

    /// Goes on from where the last process stopped; by how much all that is remembered has to move, and how long nobody watched.
    pub fn resume(&self, mark: &Mark) -> Option<Resumed> {
        let Self::System(system) = self else { return None };
        let resumed = EngineClock::resume(mark, boot_time(), system.boot_id.as_deref(), wall());
        let mut ticking = system.ticking.lock().unwrap_or_else(PoisonError::into_inner);
        (ticking.engine, ticking.jumped) = (resumed.clock, resumed.rebase.map(|by| Jump { by, followed: true }));
        drop(ticking);
        Some(resumed)
    }

    /// The time, by both clocks.
    pub fn times(&self) -> Times {
        match self {
            Self::System(system) => system.times(boot_time(), wall()),
            Self::Virtual(clock) => Times::at(*clock.now.borrow()),
        }
    }

    /// Decision time.
    pub fn now(&self) -> Timestamp {
        self.times().now
    }

    /// Where decision time stands, to be written down.
    pub fn mark(&self) -> Mark {
        let now = self.now();
        match self {
            Self::System(system) => {
                let ticking = system.ticking.lock().unwrap_or_else(PoisonError::into_inner);
                ticking.engine.mark(system.boot_id.clone())
            }
            Self::Virtual(_) => Mark { now, boot: SignedDuration::ZERO, boot_id: None },
        }
    }

    /// How the wall has jumped of which nobody was told; `None` while it runs as it should.
    pub fn jump(&self) -> Option<Jump> {
        let Self::System(system) = self else { return None };
        system.ticking.lock().unwrap_or_else(PoisonError::into_inner).jumped
    }

    /// Somebody was told of that jump.
    pub fn told(&self, jump: Option<Jump>) {
        let Self::System(system) = self else { return };
        let mut ticking = system.ticking.lock().unwrap_or_else(PoisonError::into_inner);
        if ticking.jumped == jump {
            ticking.jumped = None;
        }
    }

    /// Whether somebody moves this clock by hand, and then settles what runs by it.
    pub const fn is_moved_by_hand(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// Waits that long.
    pub async fn sleep(&self, wait: SignedDuration) {
        self.sleep_until(self.now().saturating_add(wait).unwrap_or(Timestamp::MAX)).await;
    }

    /// Waits until decision time is `at`.
    pub async fn sleep_until(&self, at: Timestamp) {
        match self {
            Self::System(_) => {
                let wait = at.duration_since(self.now());
                tokio::time::sleep(wait.try_into().unwrap_or_default()).await;
            }
            Self::Virtual(clock) => {
                let mut now = clock.now.subscribe();
                // The sender lives as long as this clock, which the caller holds.
                let _ = now.wait_for(|now| *now >= at).await;
            }
        }
    }

    /// Wakes at `at` whoever has to look again then. Never on a clock that is moved by hand: its mover settles the engine, which then
    /// makes its passes on fresh facts.
    pub async fn alarm(&self, at: Timestamp) {
        if self.is_moved_by_hand() {
            return std::future::pending().await;
        }
        self.sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[tokio::test]
    async fn a_virtual_clock_moves_only_forward_and_wakes_sleepers() {
        let moved = VirtualClock::new(at(0));
        let clock = Clock::Virtual(Arc::clone(&moved));
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(at(10)).await }
        });
        moved.advance_to(at(5));
        moved.advance_to(at(3));
        assert_eq!(clock.now(), at(5));
        moved.advance_to(at(10));
        sleeper.await.unwrap();
    }

    #[test]
    fn the_machines_clock_runs_with_the_wall_and_tells_its_mark() {
        let clock = Clock::system();
        let (before, after) = (clock.times(), clock.times());
        assert!(before.now <= after.now);
        assert!(after.wall.0.duration_since(after.now).abs() < SignedDuration::from_secs(1));
        let mark = clock.mark();
        assert!(mark.now >= after.now && mark.boot.is_positive());
    }

    #[test]
    fn a_jump_of_the_wall_is_told_once_and_moves_no_decision_time() {
        let Clock::System(system) = Clock::system() else { unreachable!("it is the machine's") };
        let boot = boot_time();
        let wall = |seconds: i64| Wall(Timestamp::now() + SignedDuration::from_secs(seconds));
        let clock = Clock::System(Arc::clone(&system));
        let before = system.times(boot, wall(0)).now;
        assert_eq!(clock.jump(), None);
        let after = system.times(boot + SignedDuration::from_secs(1), wall(7_200)).now;
        assert!(after.duration_since(before) < SignedDuration::from_millis(1_100));
        let jump = clock.jump();
        assert_eq!(jump.map(|jump| ((jump.by.as_secs() + 5) / 10, jump.followed)), Some((720, false)));
        clock.told(jump);
        assert_eq!(clock.jump(), None);
        // There and back before anybody looks is none.
        for seconds in [0, 7_200] {
            system.times(boot + SignedDuration::from_secs(1), wall(seconds));
        }
        assert_eq!(clock.jump(), None);
    }
}
