//! How long a pod may hold GPUs and do nothing with them.

use jiff::SignedDuration;

use super::Faults;
use crate::base::kinds::Evidence;
use crate::base::text::read_length;
use crate::policy::{DEFAULT_HELD_AFTER, Path, RawPool};

/// The shortest: a shorter one takes a pod for forgotten that loads its model or waits for its peers.
const SHORTEST: SignedDuration = SignedDuration::from_mins(15);
/// The longest: what is forgotten for longer is found by its bill.
const LONGEST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Reads `heldAfter`.
pub(super) fn after(faults: &mut Faults, path: &Path, raw: &RawPool) -> Option<SignedDuration> {
    let Some(text) = &raw.held_after else { return Some(DEFAULT_HELD_AFTER) };
    let path = path.key("heldAfter");
    let length = faults.keep(&path, read_length(text))?;
    if length < SHORTEST {
        faults.add(&path, format!("{text} is below 15m: lengthen it, a pod that loads its model would count as forgotten"));
    } else if length > LONGEST {
        faults.add(&path, format!("{text} is above 168h, a week: shorten it, or leave it out for 2h"));
    }
    let (why, cure) = match raw.evidence.unwrap_or(Evidence::Pods) {
        Evidence::Probe => return Some(length),
        Evidence::Pods => ("pods", "show that a pod has GPUs, and not whether it uses them"),
        Evidence::None => ("none", "shows nothing about what runs on a node"),
    };
    let message = format!("cannot be met by the evidence: {why} {cure}: write evidence: probe, or remove it");
    faults.add(&path, message);
    Some(length)
}
