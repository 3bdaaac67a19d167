//! Places at which a test may make the process die, and decisions that it may make wrong, so that what follows is shown and not only
//! claimed.

use jiff::SignedDuration;
use stoker_core::catalogue::Catalogue;
use stoker_core::plan::Decision;

/// Ends the process at once if the environment variable `STOKER_FAILPOINT` names this place, as a power cut would. `name:3` dies on
/// the third passage. Compiled to nothing without the feature `faults`.
#[inline]
pub fn point(name: &str) {
    #[cfg(feature = "faults")]
    armed::pass(name);
    #[cfg(not(feature = "faults"))]
    let _ = name;
}

/// Makes a decision wrong as a mistake in a rule could. With `STOKER_FAILPOINT=plan.wrong:POOL` the limits of the pool's groups contradict
/// each other, in every decision; with `plan.panics` every decision panics. Compiled to nothing without the feature `faults`.
#[inline]
pub fn spoil(decision: &mut Decision, catalogue: &Catalogue) {
    #[cfg(feature = "faults")]
    armed::spoil(decision, catalogue);
    #[cfg(not(feature = "faults"))]
    let _ = (decision, catalogue);
}

/// By how many seconds the wall clock is wrong: what [`step_wall`] set. Zero without the feature `faults`.
#[inline]
pub fn wall_error() -> SignedDuration {
    #[cfg(feature = "faults")]
    return SignedDuration::from_secs(armed::WALL_ERROR.load(std::sync::atomic::Ordering::Relaxed));
    #[cfg(not(feature = "faults"))]
    SignedDuration::ZERO
}

/// Steps the wall clock that this process reads, as a bad time server does: from now on it is wrong by so many seconds.
#[cfg(feature = "faults")]
pub fn step_wall(error: i64) {
    armed::WALL_ERROR.store(error, std::sync::atomic::Ordering::Relaxed);
}

/// Every place, in the order in which an order passes them.
pub const POINTS: [&str; 9] = [
    "order.accepted",
    "order.journalled",
    "plan.decided",
    "plan.journalled",
    "launch.before",
    "launch.after",
    "outcome.noted",
    "terminate.before",
    "terminate.after",
];

/// A `NodeClaim` was created, and nobody has noted it. Only nodes through Karpenter pass it.
pub const CLAIM_CREATED: &str = "claim.created";

/// EC2 has answered a launch, and nobody has noted it. Only nodes of EC2 pass it.
pub const INSTANCE_ANSWERED: &str = "instance.answered";

#[cfg(feature = "faults")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

    use crate::failpoints::{CLAIM_CREATED, Catalogue, Decision, INSTANCE_ANSWERED, POINTS};

    pub(super) fn spoil(decision: &mut Decision, catalogue: &Catalogue) {
        let Ok(text) = std::env::var("STOKER_FAILPOINT") else { return };
        assert!(text != "plan.panics", "failpoint plan.panics");
        let Some(pool) = text.strip_prefix("plan.wrong:") else { return };
        let of_pool =
            |group: &_| catalogue.group_or_remembered(group, &decision.memory).is_some_and(|group| group.pool.as_str() == pool);
        for (_, limits) in decision.plan.limits.iter_mut().filter(|(group, _)| of_pool(group)) {
            limits.min = limits.max + 1;
        }
    }

    pub(super) static WALL_ERROR: AtomicI64 = AtomicI64::new(0);

    static ARMED: OnceLock<Option<(String, AtomicU32)>> = OnceLock::new();

    pub(super) fn pass(name: &str) {
        debug_assert!(POINTS.contains(&name) || [CLAIM_CREATED, INSTANCE_ANSWERED].contains(&name), "{name} is not listed");
        let armed = ARMED.get_or_init(|| {
            let text = std::env::var("STOKER_FAILPOINT").ok()?;
            let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
            Some((name.to_owned(), AtomicU32::new(count.parse().unwrap_or(1))))
        });
        if let Some((armed, left)) = armed
            && armed == name
            && left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            eprintln!("failpoint {name}: aborting");
            std::process::abort();
        }
    }
}
