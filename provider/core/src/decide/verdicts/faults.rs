//! Hardware faults: what makes a node unfit for work.
//!
//! The classes are those of NVIDIA's catalogue of XIDs ([`XidClass`]). Requests of the driver count
//! as well. A value that cannot be read is not a fault: the node is unknown then, and nobody
//! replaces it.

use jiff::{SignedDuration, Timestamp};

use crate::base::ids::GpuUuid;
use crate::facts::reading::seen::{Activity, Ailment, Hearing, Seen, SeenXid};
use crate::facts::reading::{DriverState, Gate, GateResult, Measured, Why, XidClass};
use crate::state::node_verdict::Reason;
use crate::state::probe_history::START_WITHIN;

/// A second suspect error within so long drains.
const SUSPECT_WITHIN: SignedDuration = SignedDuration::from_hours(24);

/// Errors that come within so long of each other tell of one fault: contained memory errors come as two or three codes at once.
const ONE_FAULT: SignedDuration = SignedDuration::from_secs(30);

/// Something that is wrong with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub why: Reason,
    /// Whether one look is enough. What may be gone at the next one must last.
    pub certain: bool,
}

/// What is wrong with a node of which nothing else is remembered, such as one that others bought; `None` where nothing is. `free`: whether
/// nothing runs on it. `ready_at`: since when it is Ready.
pub fn hardware_fault(seen: &Seen, free: bool, ready_at: Option<Timestamp>, now: Timestamp) -> Option<Fault> {
    fault(seen, free, ready_at, false, now)
}

/// What is wrong with a node. `free`: whether nothing runs on it, so that a reset which it owes costs nothing. `ready_at`: when it was
/// first Ready. `started`: whether its gates were passed before.
pub(super) fn fault(seen: &Seen, free: bool, ready_at: Option<Timestamp>, started: bool, now: Timestamp) -> Option<Fault> {
    let certain = |why| Fault { why, certain: true };
    let lasting = |why| Fault { why, certain: false };
    let worst = worst_xid(seen);
    let of = |class| worst.filter(|xid| xid.class() == class).map(|xid| Reason::Xid { code: xid.code, gpu: xid.gpu.clone() });
    // Nothing ails most GPUs, and every pass asks this of every one.
    let ailing: Vec<(&GpuUuid, &Ailment)> =
        seen.gpus.iter().flat_map(|(gpu, seen)| seen.ailments.iter().map(move |ailment| (gpu, ailment))).collect();
    let ails = |is: fn(&Ailment, bool) -> bool| {
        let (gpu, ailment) = ailing.iter().find(|(_, ailment)| is(ailment, free))?;
        Some(Reason::Ails { gpu: (*gpu).clone(), ailment: **ailment })
    };
    let heard = matches!(seen.hearing, Hearing::Heard { .. });
    let late = started || ready_at.is_some_and(|at| now >= at.saturating_add(START_WITHIN).unwrap_or(Timestamp::MAX));
    of(XidClass::Replace)
        .or_else(|| of(XidClass::Drain))
        .or_else(|| ails(is_broken))
        .or_else(|| suspect_again(seen))
        .map(certain)
        .or_else(|| {
            lost(seen)
                .or_else(|| late.then(|| missing(seen)).flatten())
                .or_else(|| ails(owes_reset))
                .or_else(|| ails(is_slow))
                .map(lasting)
        })
        .or_else(|| (heard && late).then(|| failed_gate(seen)).flatten().map(lasting))
}

/// The gate that keeps a node from counting as started.
pub(super) fn closed_gate(seen: &Seen) -> Option<Reason> {
    seen.gates.iter().find_map(|(gate, result)| failed(*gate, result))
}

/// The gate that makes a started node unhealthy. That XIDs are not listened to makes the probe deaf and the GPUs no worse.
fn failed_gate(seen: &Seen) -> Option<Reason> {
    seen.gates.iter().filter(|(gate, _)| **gate != Gate::Events).find_map(|(gate, result)| failed(*gate, result))
}

fn failed(gate: Gate, result: &GateResult) -> Option<Reason> {
    match result {
        GateResult::Failed(why) => Some(Reason::Gate { gate, why: why.clone() }),
        GateResult::Passed | GateResult::Unknown(_) => None,
    }
}

/// The first of the gravest class.
fn worst_xid(seen: &Seen) -> Option<&SeenXid> {
    seen.xids.kinds.iter().rev().max_by_key(|xid| xid.class())
}

/// A GPU that was there and is not, or that the driver calls lost.
fn lost(seen: &Seen) -> Option<Reason> {
    let heard = matches!(seen.hearing, Hearing::Heard { .. });
    let gone = |activity: &Activity| matches!(activity, Activity::Unknown { why: Why::GpuLost, .. });
    let mut gpus = seen.gpus.iter().filter(|(_, gpu)| heard && gone(&gpu.activity));
    gpus.next().map(|(gpu, _)| Reason::Lost { gpu: gpu.clone() })
}

/// That the driver counts a GPU which it does not show. It was lost while nobody watched, so nothing tells which.
fn missing(seen: &Seen) -> Option<Reason> {
    let heard = matches!(seen.hearing, Hearing::Heard { .. }) && seen.driver == Measured::Known(DriverState::Ready);
    let fewer = matches!(seen.counted, Measured::Known(count) if (count as usize) > seen.gpus.len());
    (heard && fewer).then_some(Reason::Missing)
}

/// Whether it keeps a GPU from work that runs, too.
const fn is_broken(ailment: &Ailment, _: bool) -> bool {
    matches!(ailment, Ailment::RecoveryAction(_) | Ailment::RemapFailed | Ailment::UncorrectedErrors(_))
}

/// Whether the GPU works on as it is, and is not to begin anything new before a reset.
const fn owes_reset(ailment: &Ailment, free: bool) -> bool {
    free && matches!(ailment, Ailment::RemapPending | Ailment::RetirementPending | Ailment::MigChangePending)
}

/// Whether it works, and slower than it should.
const fn is_slow(ailment: &Ailment, _: bool) -> bool {
    matches!(ailment, Ailment::SlowedDown)
}

/// A suspect error that was not the first of its GPU within a day. It stays so until the node boots.
fn suspect_again(seen: &Seen) -> Option<Reason> {
    let suspects: Vec<&SeenXid> = seen.xids.kinds.iter().filter(|xid| xid.class() == XidClass::Suspect).collect();
    let again = |xid: &SeenXid| Reason::XidAgain { code: xid.code, gpu: xid.gpu.clone() };
    let apart = |one: Timestamp, other: Timestamp, longest: SignedDuration| {
        let apart = one.duration_since(other).abs();
        apart > ONE_FAULT && apart <= longest
    };
    for (at, xid) in suspects.iter().enumerate() {
        // Of n within n − 1 days, two are within one.
        let days = SUSPECT_WITHIN.checked_mul(i32::try_from(xid.count.saturating_sub(1)).unwrap_or(i32::MAX));
        if apart(xid.last, xid.first, days.unwrap_or(SignedDuration::MAX)) {
            return Some(again(xid));
        }
        let same_gpu = |other: &&&SeenXid| on_one_gpu(xid.gpu.as_ref(), other.gpu.as_ref());
        for other in suspects.iter().skip(at + 1).filter(same_gpu) {
            let moments = [xid.first, xid.last];
            if moments.iter().any(|one| [other.first, other.last].iter().any(|two| apart(*one, *two, SUSPECT_WITHIN))) {
                return Some(again(if other.last >= xid.last { other } else { xid }));
            }
        }
    }
    None
}

/// Whether two errors may be of one GPU: what the driver could not tell may be of any.
fn on_one_gpu(one: Option<&GpuUuid>, other: Option<&GpuUuid>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}
