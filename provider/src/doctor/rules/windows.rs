//! What makes windows longer than the policy says, or nodes go against them. While a window holds a node, Stoker's annotation keeps the
//! autoscaler from counting it as unneeded, so the autoscaler's own timers begin when the window ends.

use jiff::SignedDuration;

use super::{Case, Verdict, error, info, length, minutes, to_do, warning, write};

/// What the timers are set to in `manifests/cluster-autoscaler`: short, and long enough for a pod that was just bound to be seen.
const SHORT: SignedDuration = minutes(1);

/// Below this a node may be tainted before the annotation of a pod that was just bound is on it: Stoker's pass every 10 s and a loop of
/// the autoscaler's, with as much again for what is slow.
const LEAST_UNNEEDED: SignedDuration = SignedDuration::from_secs(30);

pub(super) fn never(case: Case<'_>) -> Option<Verdict> {
    let why = "no node is ever removed, so windows have no effect and off-hours save nothing";
    (!case.values.is_on("scale-down-enabled")?).then(|| error(why, write("--scale-down-enabled=true")))?
}

pub(super) fn unneeded(case: Case<'_>) -> Option<Verdict> {
    let after = case.values.duration("scale-down-unneeded-time")?;
    let cure = write("--scale-down-unneeded-time=1m");
    if after < LEAST_UNNEEDED {
        let why = format!(
            "a node may be deleted before Stoker has seen the pod that was just bound to it: below {}",
            length(LEAST_UNNEEDED)
        );
        return error(why, cure);
    }
    let (pool, window) = case.wants.window.as_ref()?;
    let becomes = length(window.saturating_add(after));
    let why = format!("starts when Stoker's window ends: the {} of pool {pool} become {becomes}", length(*window));
    if after > *window { error(why, cure) } else { (after > SHORT).then(|| warning(why, cure))? }
}

pub(super) fn after_add(case: Case<'_>) -> Option<Verdict> {
    let pause = case.values.duration("scale-down-delay-after-add")?;
    let local = case.values.is_on("scale-down-delay-type-local") == Some(true);
    let whose = if local { "of the same group" } else { "of the whole cluster" };
    let why = format!("after each new node, none {whose} is removed for {}, whatever its window", length(pause));
    (pause > SHORT).then(|| warning(why, write("--scale-down-delay-after-add=1m")))?
}

pub(super) fn after_delete(case: Case<'_>) -> Option<Verdict> {
    let pause = case.values.duration("scale-down-delay-after-delete")?;
    let why = format!("nodes are removed one batch every {}, whatever windows and maxRemovalsPerWindow say", length(pause));
    (pause > SHORT).then(|| warning(why, write("--scale-down-delay-after-delete=0s")))?
}

pub(super) fn after_failure(case: Case<'_>) -> Option<Verdict> {
    let pause = case.values.duration("scale-down-delay-after-failure")?;
    let why = format!("each removal that Stoker refuses, as it does for a busy node, stops all others for {}", length(pause));
    (pause > minutes(3)).then(|| warning(why, write("--scale-down-delay-after-failure=3m")))?
}

pub(super) fn recheck(case: Case<'_>) -> Option<Verdict> {
    let pause = case.values.duration("unremovable-node-recheck-timeout")?;
    let why = format!(
        "a node that could not be removed once, because a pod on it fits nowhere else, is not considered again for {}",
        length(pause)
    );
    (pause > minutes(5)).then(|| warning(why, write("--unremovable-node-recheck-timeout=5m")))?
}

pub(super) fn unready_kept(case: Case<'_>) -> Option<Verdict> {
    let why = "a node that is not Ready is never removed, and is paid for all the time";
    (!case.values.is_on("scale-down-unready-enabled")?).then(|| warning(why, write("--scale-down-unready-enabled=true")))?
}

pub(super) fn unready(case: Case<'_>) -> Option<Verdict> {
    let after = case.values.duration("scale-down-unready-time")?;
    let why = format!("a node that is not Ready is paid for {} before it may be removed", length(after));
    (after > minutes(5)).then(|| info(why, write("--scale-down-unready-time=5m")))?
}

pub(super) fn after_taint(case: Case<'_>) -> Option<Verdict> {
    let wait = case.values.duration("node-delete-delay-after-taint")?;
    let why = format!("a node whose removal Stoker refuses is closed to pods for {} each time", length(wait));
    (wait > minutes(1)).then(|| warning(why, write("--node-delete-delay-after-taint=5s")))?
}

pub(super) fn batches(case: Case<'_>) -> Option<Verdict> {
    let gathers = case.values.duration("node-deletion-batcher-interval")?;
    let why = "nodes are deleted many in one call, which is all or nothing: one node that turned busy keeps the others too";
    (gathers > SignedDuration::ZERO).then(|| warning(why, write("--node-deletion-batcher-interval=0s")))?
}

pub(super) fn local_storage(case: Case<'_>) -> Option<Verdict> {
    let why = "pods with files on the node's own disk are evicted with it; GPU pods are not, because Stoker's annotation \
               keeps their nodes";
    let cure = to_do("write --skip-nodes-with-local-storage=true, if pods without a GPU store something there");
    (!case.values.is_on("skip-nodes-with-local-storage")?).then(|| info(why, cure))?
}
