//! Node status: compares the verdict that a Node shows with the current one.
//!
//! The annotation `stoker.dev/verdict` has the word, the condition `stoker.dev/GpuFree` the reason.
//! Level-triggered: nothing is remembered.

use std::fmt::{self, Write as _};

use jiff::{SignedDuration, Timestamp};

use crate::base::ids::{NodeName, ProviderId};
use crate::facts::node_status::{Condition, ShownStatus};
use crate::state::node_verdict::{Judged, Verdict};

/// The type of the condition: it is true where a pod that comes now can begin at once.
pub const CONDITION: &str = "stoker.dev/GpuFree";

/// Least time after which a Node is reported again although its verdict is the same: reasons may name what changes all the time, and each
/// telling is a write that every watcher of Nodes sees.
pub const RETELL: SignedDuration = SignedDuration::from_mins(5);

/// How what a Node bears compares with what is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusMatch {
    /// That.
    Same,
    /// The verdict, for other reasons.
    OtherReason,
    /// Another verdict, or only a part of it.
    Other,
}

/// What one Node is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusUpdate {
    /// The Node.
    pub node: NodeName,
    /// Only if it is still of this machine, or as before of none.
    pub provider_id: Option<ProviderId>,
    /// The verdict; `None` takes back what it bears.
    pub verdict: Option<Judged>,
}

impl ShownStatus {
    /// What a Node bears once it was told this at that time; `None` where it was to bear nothing.
    pub fn of(judged: Option<&Judged>, told_at: Timestamp) -> Option<Self> {
        let Judged { verdict, why, since } = judged?;
        let whole = |at: Timestamp| Timestamp::from_second(at.as_second()).ok();
        let condition = Condition {
            status: status(*verdict).into(),
            reason: reason(*verdict).into(),
            message: why.to_string().into(),
            since: whole(*since),
            told_at: whole(told_at),
        };
        Some(Self { word: Some(verdict.as_str().into()), condition: Some(condition) })
    }

    /// Whether it is nothing.
    pub const fn is_empty(&self) -> bool {
        self.word.is_none() && self.condition.is_none()
    }

    /// The verdict that it bears; `None` where there is none that we know.
    pub fn verdict(&self) -> Option<Verdict> {
        let word = self.word.as_deref()?;
        Verdict::ALL.into_iter().find(|verdict| verdict.as_str() == word)
    }

    /// How it compares with what is judged.
    pub fn compare(&self, judged: Option<&Judged>) -> StatusMatch {
        let Some(judged) = judged else { return if self.is_empty() { StatusMatch::Same } else { StatusMatch::Other } };
        let (Some(word), Some(condition)) = (&self.word, &self.condition) else { return StatusMatch::Other };
        let Condition { status, reason, message, since, told_at: _ } = condition;
        let is = |text: &str, expected| text == expected;
        if !is(word, judged.verdict.as_str())
            || !is(status, self::status(judged.verdict))
            || !is(reason, self::reason(judged.verdict))
        {
            return StatusMatch::Other;
        }
        let same = reads(message, &judged.why) && since.map(Timestamp::as_second) == Some(judged.since.as_second());
        if same { StatusMatch::Same } else { StatusMatch::OtherReason }
    }

    /// When the same verdict may be reported again; `None` where that is now.
    pub fn retell_at(&self, now: Timestamp) -> Option<Timestamp> {
        let told_at = self.condition.as_ref()?.told_at?;
        Some(told_at.saturating_add(RETELL).unwrap_or(Timestamp::MAX)).filter(|at| *at > now)
    }
}

/// Whether `text` is what `said` reads. Written out and compared as it comes: this is asked of every node in every pass.
fn reads(text: &str, said: &impl fmt::Display) -> bool {
    struct Rest<'a>(&'a str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    write!(rest, "{said}").is_ok() && rest.0.is_empty()
}

/// The condition's status: whether a pod that comes now can begin at once.
pub const fn status(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Warm | Verdict::Idle => "True",
        Verdict::Booting | Verdict::Busy | Verdict::Held | Verdict::Unhealthy | Verdict::Draining => "False",
        Verdict::Unknown => "Unknown",
    }
}

/// The verdict as the reason of the condition, and of the Event that tells of it.
pub const fn reason(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Booting => "GpuBooting",
        Verdict::Warm => "GpuWarm",
        Verdict::Idle => "GpuIdle",
        Verdict::Busy => "GpuBusy",
        Verdict::Held => "GpuHeld",
        Verdict::Unhealthy => "GpuUnhealthy",
        Verdict::Draining => "GpuDraining",
        Verdict::Unknown => "GpuUnknown",
    }
}

/// Whether somebody may have to act on a verdict.
pub const fn is_alarm(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Held | Verdict::Unhealthy | Verdict::Unknown => true,
        Verdict::Booting | Verdict::Warm | Verdict::Idle | Verdict::Busy | Verdict::Draining => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::node_verdict::Reason;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn judged(verdict: Verdict, why: Reason) -> Judged {
        Judged { verdict, why, since: at("2026-11-01T00:00:00.4Z") }
    }

    fn shown() -> ShownStatus {
        let condition = Condition {
            status: "False".into(),
            reason: "GpuBusy".into(),
            message: "GPU pods are bound to it".into(),
            since: Some(at("2026-11-01T00:00:00Z")),
            told_at: Some(at("2026-11-01T00:10:00Z")),
        };
        ShownStatus { word: Some("busy".into()), condition: Some(condition) }
    }

    #[test]
    fn what_is_told_is_what_is_borne_after() {
        let busy = judged(Verdict::Busy, Reason::Pods);
        assert_eq!(ShownStatus::of(Some(&busy), at("2026-11-01T00:10:00.9Z")), Some(shown()));
        assert_eq!(ShownStatus::of(None, at("2026-11-01T00:10:00Z")), None);
    }

    #[test]
    fn what_is_borne_is_compared_part_by_part() {
        let busy = judged(Verdict::Busy, Reason::Pods);
        assert_eq!(shown().compare(Some(&busy)), StatusMatch::Same);
        assert_eq!(shown().compare(Some(&Judged { why: Reason::NoPods, ..busy.clone() })), StatusMatch::OtherReason);
        let mut longer = shown();
        let message = &mut longer.condition.as_mut().unwrap().message;
        *message = format!("{}!", &**message).into();
        assert_eq!(longer.compare(Some(&busy)), StatusMatch::OtherReason);
        let later = Judged { since: at("2026-11-01T00:00:01Z"), ..busy.clone() };
        assert_eq!(shown().compare(Some(&later)), StatusMatch::OtherReason);
        assert_eq!(shown().compare(Some(&judged(Verdict::Held, Reason::Pods))), StatusMatch::Other);
        assert_eq!(shown().compare(None), StatusMatch::Other);
        assert_eq!(ShownStatus::default().compare(None), StatusMatch::Same);
        let broken: [fn(&mut ShownStatus); 5] = [
            |shown| shown.word = None,
            |shown| shown.word = Some("free".into()),
            |shown| shown.condition = None,
            |shown| shown.condition.as_mut().unwrap().status = "True".into(),
            |shown| shown.condition.as_mut().unwrap().reason = "GpuWarm".into(),
        ];
        for (n, change) in broken.into_iter().enumerate() {
            let mut shown = shown();
            change(&mut shown);
            assert_eq!(shown.compare(Some(&busy)), StatusMatch::Other, "{n}");
        }
    }

    #[test]
    fn the_same_verdict_is_told_anew_after_five_minutes_only() {
        assert_eq!(shown().retell_at(at("2026-11-01T00:14:59Z")), Some(at("2026-11-01T00:15:00Z")));
        assert_eq!(shown().retell_at(at("2026-11-01T00:15:00Z")), None);
        assert_eq!(ShownStatus::default().retell_at(at("2026-11-01T00:00:00Z")), None);
    }

    #[test]
    fn only_what_is_free_is_told_as_free() {
        for verdict in Verdict::ALL {
            assert_eq!(status(verdict) == "True", verdict.is_free(), "{verdict}");
            assert_eq!(reason(verdict).to_lowercase(), format!("gpu{verdict}"));
            let shown = ShownStatus { word: Some(verdict.as_str().into()), condition: None };
            assert_eq!(shown.verdict(), Some(verdict));
        }
        assert_eq!(ShownStatus { word: Some("fine".into()), condition: None }.verdict(), None);
    }
}
