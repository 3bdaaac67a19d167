//! The table of rules: which flag is judged, in which releases, and by what.

mod floors;
mod orders;
mod windows;
mod wiring;

use jiff::SignedDuration;
use stoker_core::base::text::without_password;

use super::given::Values;
use super::release::Release;
use super::wants::Wants;
use super::{Cure, Finding, Severity};

/// What a rule looks at.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    values: Values<'a>,
    wants: &'a Wants,
}

/// What a rule finds.
struct Verdict {
    severity: Severity,
    why: String,
    cure: Cure,
}

/// One rule: the flag that it is about, the first and last minor release that it holds for, and what judges.
type Rule = (&'static str, u16, u16, fn(Case<'_>) -> Option<Verdict>);

/// Later releases too.
const ON: u16 = u16::MAX;

const RULES: &[Rule] = &[
    // That it speaks with Stoker at all, and asks it first.
    ("cloud-provider", 0, 24, wiring::too_old),
    ("cloud-provider", 25, ON, wiring::provider),
    ("cloud-config", 25, ON, wiring::config),
    ("expander", 25, ON, wiring::expander),
    ("grpc-expander-url", 25, ON, wiring::url),
    ("grpc-expander-cert", 25, ON, wiring::certificate),
    ("leader-elect-resource-name", 25, ON, wiring::lease),
    ("async-node-groups", 31, ON, wiring::asynchronous),
    // Floors, and what caps them.
    ("enforce-node-group-min-size", 25, 25, floors::cannot_enforce),
    ("enforce-node-group-min-size", 26, ON, floors::enforce),
    ("max-nodes-total", 25, ON, floors::most_nodes),
    ("cores-total", 25, ON, floors::totals),
    ("memory-total", 25, ON, floors::totals_of_memory),
    ("gpu-total", 25, ON, floors::totals_of_gpus),
    ("scale-up-from-zero", 25, ON, floors::from_zero),
    ("capacity-buffer-pod-injection-enabled", 25, 34, floors::no_buffers),
    ("capacity-buffer-pod-injection-enabled", 35, ON, floors::half_a_buffer),
    ("capacity-buffer-pod-dry-run-enabled", 36, ON, floors::dry_run),
    // Windows: every timer of the autoscaler's comes on top of ours.
    ("scale-down-enabled", 25, ON, windows::never),
    ("scale-down-unneeded-time", 25, ON, windows::unneeded),
    ("scale-down-delay-after-add", 25, ON, windows::after_add),
    ("scale-down-delay-after-delete", 25, ON, windows::after_delete),
    ("scale-down-delay-after-failure", 25, ON, windows::after_failure),
    ("unremovable-node-recheck-timeout", 25, ON, windows::recheck),
    ("scale-down-unready-enabled", 27, ON, windows::unready_kept),
    ("scale-down-unready-time", 25, ON, windows::unready),
    ("node-delete-delay-after-taint", 26, ON, windows::after_taint),
    ("node-deletion-batcher-interval", 26, ON, windows::batches),
    ("skip-nodes-with-local-storage", 25, ON, windows::local_storage),
    // Orders: what is booting, what was refused, who waits.
    ("max-node-provision-time", 25, ON, orders::provision),
    ("max-node-startup-time", 35, ON, orders::startup),
    ("startup-taint", 29, ON, orders::startup_taint),
    ("startup-taint-prefix", 36, ON, orders::startup_taint_prefix),
    ("status-taint", 29, ON, orders::status_taint),
    ("ignore-taint", 25, ON, orders::ignore_taint),
    ("frequent-loops-enabled", 30, ON, orders::frequent_loops),
    ("scan-interval", 25, ON, orders::scan),
    ("initial-node-group-backoff-duration", 25, ON, orders::backoff),
    ("max-node-group-backoff-duration", 25, ON, orders::longest_backoff),
    ("new-pod-scale-up-delay", 25, ON, orders::new_pods),
    ("bypassed-scheduler-names", 29, ON, orders::bypassed),
    ("expendable-pods-priority-cutoff", 25, ON, orders::expendable),
    ("balance-similar-node-groups", 25, ON, orders::balance),
    ("balancing-ignore-label", 25, ON, orders::balancing_labels),
    ("ok-total-unready-count", 25, ON, orders::unready_count),
    ("max-total-unready-percentage", 25, ON, orders::unready_share),
    ("max-failing-time", 25, ON, orders::failing),
];

/// What the rules find, in the order of their table.
pub(super) fn judge<'a>(values: Values<'a>, wants: &'a Wants) -> impl Iterator<Item = Finding> {
    let case = Case { values, wants };
    let holds = move |since: u16, until: u16| (Release::minor(since)..=Release::minor(until)).contains(&values.release);
    RULES.iter().filter(move |(_, since, until, _)| holds(*since, *until)).filter_map(move |(flag, _, _, rule)| {
        let Verdict { severity, why, cure } = rule(case)?;
        Some(Finding { severity, flag: (*flag).to_owned(), stands: case.stands(flag), why, cure })
    })
}

impl Case<'_> {
    /// How a flag stands, as it would be written.
    fn stands(self, flag: &str) -> String {
        let given: Vec<_> = self.values.given.all(flag).collect();
        match (&given[..], self.values.text(flag)) {
            ([], None | Some("")) => format!("--{flag} (not given)"),
            ([], Some(default)) => format!("--{flag}={default} (default)"),
            (values, _) => {
                let shown = |value: &&str| if value.contains("://") { without_password(value) } else { (*value).to_owned() };
                format!("--{flag}={}", values.iter().map(shown).collect::<Vec<_>>().join(","))
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a rule ends with it")]
fn error(why: impl Into<String>, cure: Cure) -> Option<Verdict> {
    Some(Verdict { severity: Severity::Error, why: why.into(), cure })
}

#[expect(clippy::unnecessary_wraps, reason = "a rule ends with it")]
fn warning(why: impl Into<String>, cure: Cure) -> Option<Verdict> {
    Some(Verdict { severity: Severity::Warning, why: why.into(), cure })
}

#[expect(clippy::unnecessary_wraps, reason = "a rule ends with it")]
fn info(why: impl Into<String>, cure: Cure) -> Option<Verdict> {
    Some(Verdict { severity: Severity::Info, why: why.into(), cure })
}

fn write(flag: impl Into<String>) -> Cure {
    Cure::Write(vec![flag.into()])
}

fn to_do(words: impl Into<String>) -> Cure {
    Cure::Do(words.into())
}

const fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

/// A length of time as flags and policies are written, in whole seconds.
fn length(length: SignedDuration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0 => "0s".to_owned(),
        _ if seconds % 3_600 == 0 => format!("{}h", seconds / 3_600),
        _ if seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ if seconds > 60 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests;
