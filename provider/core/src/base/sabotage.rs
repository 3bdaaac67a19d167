//! Switches that turn one defence off, so that tests can show that they notice.

/// Whether the defence of that name is off: the environment variable `STOKER_SABOTAGE` names it. Never without the feature `sabotage`.
#[cfg(feature = "sabotage")]
#[expect(clippy::disallowed_methods, reason = "tests of whole processes switch a defence off from outside")]
pub fn on(name: &'static str) -> bool {
    static OFF: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    OFF.get_or_init(|| std::env::var("STOKER_SABOTAGE").ok()).as_deref() == Some(name)
}

/// Whether the defence of that name is off. Never without the feature `sabotage`.
#[cfg(not(feature = "sabotage"))]
pub const fn on(_name: &'static str) -> bool {
    false
}
