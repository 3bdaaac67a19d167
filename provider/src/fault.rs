//! Places at which a test may make the process die, so that crash safety is shown and not only claimed.

/// Ends the process at once if the environment variable `STOKER_FAILPOINT` names this place, as a power cut would. `name:3` dies on
/// the third passage. Compiled to nothing without the feature `faults`.
#[inline]
pub fn point(name: &str) {
    #[cfg(feature = "faults")]
    armed::pass(name);
    #[cfg(not(feature = "faults"))]
    let _ = name;
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

#[cfg(feature = "faults")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static ARMED: OnceLock<Option<(String, AtomicU32)>> = OnceLock::new();

    pub(super) fn pass(name: &str) {
        debug_assert!(super::POINTS.contains(&name), "{name} is not listed");
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
