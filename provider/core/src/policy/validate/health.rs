//! What becomes of unhealthy nodes.

use jiff::SignedDuration;

use super::Faults;
use crate::base::kinds::Evidence;
use crate::base::text::read_length;
use crate::policy::rules::health::{HealthRules, UnhealthyAction};
use crate::policy::{Path, RawPool};

/// Longest time that an unhealthy node is left: for longer it is better left to people, by `action: cordon`.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// Reads `unhealthy`.
pub(super) fn rules(faults: &mut Faults, path: &Path, raw: &RawPool) -> Option<HealthRules> {
    let Some(unhealthy) = &raw.unhealthy else { return Some(HealthRules::default()) };
    let path = path.key("unhealthy");
    if raw.evidence == Some(Evidence::None) {
        let message = "none judges no node: write evidence: pods or probe, or remove it";
        faults.add(&path, format!("cannot be met by the evidence: {message}"));
    }
    let usual = HealthRules::default();
    let action = unhealthy.action.unwrap_or(usual.action);
    let after = match unhealthy.after.as_deref() {
        None => Some(usual.after),
        Some(text) => {
            let length = faults.keep(&path.key("after"), read_length(text));
            if length.is_some_and(|length| length > LONGEST) {
                faults.add(&path.key("after"), format!("{text} is above 24h: shorten it, or write action: cordon"));
            }
            length
        }
    };
    let max_replacements = unhealthy.max_replacements.unwrap_or(usual.max_replacements);
    if action == UnhealthyAction::Cordon {
        let set = [("after", unhealthy.after.is_some()), ("maxReplacements", unhealthy.max_replacements.is_some())];
        for (key, _) in set.into_iter().filter(|(_, set)| *set) {
            faults.add(&path.key(key), "has no effect with action: cordon, which ends no node: remove it");
        }
    } else if max_replacements == 0 {
        faults.add(&path.key("maxReplacements"), "is 0, which replaces no node: raise it, or write action: cordon");
    }
    Some(HealthRules { action, after: after?, max_replacements })
}
