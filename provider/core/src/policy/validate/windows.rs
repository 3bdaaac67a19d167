//! The rules of stabilization windows.

use jiff::SignedDuration;

use super::{Faults, grammar};
use crate::base::kinds::Evidence;
use crate::base::text::read_length;
use crate::base::units::Percent;
use crate::policy::rules::stabilization::{SHORTEST_EQUAL_COST, Stabilization, Window};
use crate::policy::{Path, RawPool, RawStabilization};

/// Longest of all lengths: a node that is to stay for longer is no matter of windows.
pub(super) const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// The windows of a pool: `None` is a fault, `Some(None)` a pool in which nothing tells whether a node is free.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn stabilization(faults: &mut Faults, path: &Path, raw: &RawPool) -> Option<Option<Stabilization>> {
    let path = path.key("stabilization");
    let blind = raw.evidence == Some(Evidence::None);
    if blind && raw.stabilization.is_some() {
        let why = "has no effect with evidence: none, because nothing then shows when a node is free: remove it, or write \
                   evidence: pods";
        faults.add(&path, why);
    }
    let absent = RawStabilization::default();
    let raw_windows = raw.stabilization.as_ref().unwrap_or(&absent);
    let usual = Stabilization::of(raw.workload);
    let RawStabilization { scale_down, window, minimum_life, after_scale_up, max_removals_per_window } = raw_windows;
    let scale_down = length(faults, &path.key("scaleDown"), scale_down.as_deref(), usual.scale_down);
    if scale_down.is_some_and(|length| length.is_zero()) {
        let why = "is 0, below 1s: a node would be released between two pods of one queue; write a length, such as 1m";
        faults.add(&path.key("scaleDown"), why);
    }
    let window = window.unwrap_or(usual.window);
    if window == Window::EqualCost && scale_down.is_some_and(|length| !length.is_zero() && length <= SHORTEST_EQUAL_COST) {
        let why = "is equalCost, but scaleDown is 1m or less, which expensive and cheap nodes wait alike: raise scaleDown, or \
             write fixed";
        faults.add(&path.key("window"), why);
    }
    let minimum_life = length(faults, &path.key("minimumLife"), minimum_life.as_deref(), usual.minimum_life);
    let after_scale_up = length(faults, &path.key("afterScaleUp"), after_scale_up.as_deref(), usual.after_scale_up);
    let share_path = path.key("maxRemovalsPerWindow");
    let max_removals = match max_removals_per_window.as_deref() {
        None => Some(usual.max_removals),
        Some(text) => faults.keep(&share_path, grammar::percent(text)),
    };
    if max_removals == Some(Percent(0)) {
        faults.add(&share_path, "is 0%, and no node would ever be released: raise it, or keep nodes with limits.minNodes");
    }
    let read = Stabilization {
        scale_down: scale_down?,
        window,
        minimum_life: minimum_life?,
        after_scale_up: after_scale_up?,
        max_removals: max_removals?,
    };
    Some((!blind).then_some(read))
}

fn length(faults: &mut Faults, path: &Path, text: Option<&str>, usual: SignedDuration) -> Option<SignedDuration> {
    let Some(text) = text else { return Some(usual) };
    let length = faults.keep(path, read_length(text))?;
    if length > LONGEST {
        faults.add(path, format!("{text} is above 24h: shorten it, or keep nodes with limits.minNodes"));
    }
    Some(length)
}
