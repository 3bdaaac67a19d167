//! Engine clock: decision time, which never goes back within a process.
//!
//! A machine's wall clock may be set at any moment, and whatever was waited for by it would end at
//! once or never. So decisions wait by the boot-time clock, which nobody sets and which counts
//! suspends. It is slewed towards the wall by at most 1 %, and does not follow a jump: which of
//! the two is right nobody can tell then, and a restart follows the wall without any wait getting
//! longer or shorter. What people wrote by the calendar (schedules, terms of commitments, dates of
//! prices) is read by the wall, and that has a type of its own.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// From how large a step of the wall on it is told, and after a restart followed. A smaller one is slewed.
pub const JUMP: SignedDuration = SignedDuration::from_mins(10);

/// One part in so many is how much decision time runs faster or slower to meet the wall.
const SLEW: i32 = 100;

/// The time on the wall: what calendars, prices and the terms of commitments are read by. It may go back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub Timestamp);

impl Wall {
    /// Whether it shows `at`, or later.
    pub fn shows(self, at: Timestamp) -> bool {
        at <= self.0
    }
}

/// The time of one pass, by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Decision time: what waits, ages and deadlines are counted by.
    pub now: Timestamp,
    /// The time on the wall.
    pub wall: Wall,
}

impl Times {
    /// Both clocks show the same.
    pub const fn at(now: Timestamp) -> Self {
        Self { now, wall: Wall(now) }
    }

    /// What the wall showed at `at`, had nobody set it.
    pub fn on_wall(self, at: Timestamp) -> Timestamp {
        let end = if at < self.now { Timestamp::MIN } else { Timestamp::MAX };
        self.wall.0.saturating_add(at.duration_since(self.now)).unwrap_or(end)
    }

    /// The decision time at which the wall will show `at`, unless it is set meanwhile.
    pub fn when_wall_shows(self, at: Timestamp) -> Timestamp {
        let end = if at < self.wall.0 { Timestamp::MIN } else { Timestamp::MAX };
        self.now.saturating_add(at.duration_since(self.wall.0)).unwrap_or(end)
    }
}

/// Decision time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineClock {
    now: Timestamp,
    /// What the boot-time clock showed then.
    boot: SignedDuration,
}

/// Where decision time stood when it was last written down, so that a restart goes on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Decision time.
    pub now: Timestamp,
    /// What the boot-time clock showed then.
    pub boot: SignedDuration,
    /// Which boot of which machine that was; `None` where the system does not tell.
    pub boot_id: Option<String>,
}

/// How a process takes up the time of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Decision time from here on.
    pub clock: EngineClock,
    /// By how much all that is remembered moves, because the wall stands elsewhere than it should: no wait gets longer or shorter by it.
    pub rebase: Option<SignedDuration>,
    /// How long nobody watched, or the wall ran ahead: after a move to another machine nobody can tell these apart.
    pub away: SignedDuration,
}

impl EngineClock {
    /// Decision time that begins at what the wall shows.
    pub const fn starting(boot: SignedDuration, wall: Wall) -> Self {
        Self { now: wall.0, boot }
    }

    /// Goes on from where the last process left off.
    pub fn resume(mark: &Mark, boot: SignedDuration, boot_id: Option<&str>, wall: Wall) -> Resumed {
        let same_boot = mark.boot_id.as_deref().is_some_and(|known| boot_id == Some(known));
        let away = if same_boot { boot.saturating_sub(mark.boot).max(SignedDuration::ZERO) } else { SignedDuration::ZERO };
        let expected = mark.now.saturating_add(away).unwrap_or(Timestamp::MAX);
        let off = wall.0.duration_since(expected);
        let clock = |now| Self { now, boot };
        if !same_boot && off.is_positive() {
            return Resumed { clock: clock(wall.0), rebase: None, away: off };
        }
        let away = away.max(off);
        if off.abs() <= JUMP {
            return Resumed { clock: clock(expected), rebase: None, away };
        }
        Resumed { clock: clock(wall.0), rebase: Some(off), away }
    }

    /// Moves on to what the boot-time clock shows, and towards the wall where that is near.
    pub fn advance(&mut self, boot: SignedDuration, wall: Wall) -> Times {
        let passed = boot.saturating_sub(self.boot).max(SignedDuration::ZERO);
        let straight = self.now.saturating_add(passed).unwrap_or(Timestamp::MAX);
        let (off, slew) = (wall.0.duration_since(straight), passed / SLEW);
        let off = if off.abs() > JUMP { SignedDuration::ZERO } else { off.clamp(-slew, slew) };
        self.now = straight.saturating_add(off).unwrap_or(straight);
        self.boot = self.boot.max(boot);
        Times { now: self.now, wall }
    }

    /// Where it stands, to be written down.
    pub const fn mark(&self, boot_id: Option<String>) -> Mark {
        Mark { now: self.now, boot: self.boot, boot_id }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn wall(seconds: i64) -> Wall {
        Wall(at(seconds))
    }

    const fn secs(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    const HOUR: i64 = 3_600;

    #[test]
    fn it_follows_a_wall_that_runs_as_it_should() {
        let mut clock = EngineClock::starting(secs(5), wall(0));
        for second in 1..100 {
            assert_eq!(clock.advance(secs(5 + second), wall(second)), Times::at(at(second)));
        }
    }

    #[test]
    fn a_jump_of_the_wall_is_not_followed() {
        for jump in [2 * HOUR, -2 * HOUR] {
            let mut clock = EngineClock::starting(secs(0), wall(0));
            assert_eq!(clock.advance(secs(1_000), wall(1_000 + jump)), Times { now: at(1_000), wall: wall(1_000 + jump) });
        }
    }

    #[test]
    fn a_step_of_the_wall_is_slewed() {
        for step in [300_i64, -300] {
            let mut clock = EngineClock::starting(secs(0), wall(0));
            let towards = step.signum();
            assert_eq!(clock.advance(secs(100), wall(100 + step)).now, at(100 + towards));
            // A step back is met by going slower, and never by going back.
            assert_eq!(clock.advance(secs(200), wall(200 + step)).now, at(200 + 2 * towards));
            assert_eq!(clock.advance(secs(100_000), wall(100_000 + step)).now, at(100_000 + step), "and it is met");
        }
    }

    proptest! {
        #[test]
        fn decision_time_passes_as_true_time_does_whatever_the_wall_shows(
            steps in prop::collection::vec((0_i64..10_000, -1_000_000_i64..1_000_000), 1..60),
        ) {
            let mut clock = EngineClock::starting(secs(0), wall(0));
            let (mut boot, mut before) = (0, at(0));
            for (passed, shown) in steps {
                boot += passed;
                let Times { now, .. } = clock.advance(secs(boot), wall(shown));
                let went = now.duration_since(before);
                prop_assert!((went - secs(passed)).abs() <= secs(passed) / SLEW, "{went} of {passed} s");
                before = now;
            }
        }
    }

    #[test]
    fn a_restart_goes_on_where_the_last_process_stopped() {
        let mark = |boot_id: &str| Mark { now: at(0), boot: secs(50), boot_id: Some(boot_id.to_owned()) };
        let resumed = |mark: &Mark, boot, shown| {
            let Resumed { clock, rebase, away } = EngineClock::resume(mark, secs(boot), Some("this"), wall(shown));
            (clock.now.duration_since(at(0)).as_secs(), rebase.map(|by| by.as_secs()), away.as_secs())
        };
        // On the same machine it is known how long the process was away.
        assert_eq!(resumed(&mark("this"), 80, 30), (30, None, 30));
        assert_eq!(resumed(&mark("this"), 80, 30 + HOUR), (30 + HOUR, Some(HOUR), HOUR));
        assert_eq!(resumed(&mark("this"), 80, 30 - HOUR), (30 - HOUR, Some(-HOUR), 30));
        assert_eq!(resumed(&mark("this"), 80, 20), (30, None, 30), "a small step is slewed");
        // On another one it is not, but for that time does not go back.
        assert_eq!(resumed(&mark("that"), 9, HOUR), (HOUR, None, HOUR));
        assert_eq!(resumed(&mark("that"), 9, 60), (60, None, 60));
        assert_eq!(resumed(&mark("that"), 9, -60), (0, None, 0));
        assert_eq!(resumed(&mark("that"), 9, -HOUR), (-HOUR, Some(-HOUR), 0));
        let unknown = Mark { boot_id: None, ..mark("this") };
        assert_eq!(
            EngineClock::resume(&unknown, secs(80), None, wall(HOUR)).away.as_secs(),
            HOUR,
            "an unknown boot is another one"
        );
    }

    #[test]
    fn the_wall_is_waited_for_by_decision_time() {
        let times = Times { now: at(0), wall: wall(-HOUR) };
        assert_eq!(times.when_wall_shows(at(0)), at(HOUR));
        assert_eq!(times.when_wall_shows(Timestamp::MAX), Timestamp::MAX);
        assert_eq!(times.on_wall(at(-5)), at(-HOUR - 5));
    }
}
