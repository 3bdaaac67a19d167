//! The flags of the Cluster Autoscaler: names, kinds, the releases that have them, and the defaults that rules go by.
//!
//! Read from what `cluster-autoscaler --help` of 1.25.3, 1.28.7, 1.30.7, 1.34.1, 1.34.5 and 1.36.1 prints, and for the releases
//! between from their source, as of 2026-08. Flags of Kubernetes' logging, which rules do not look at, are not told apart by release
//! where that was not read.

use std::str::FromStr as _;

use jiff::SignedDuration;

use super::release::Release;

/// What a flag's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A switch: on when named alone.
    Bool,
    /// A length of time, as Go writes it.
    Duration,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// Any text.
    Text,
    /// Text that may be given several times.
    List,
}

use Kind::{Bool, Duration, Float, Int, List, Text};

/// One flag.
#[derive(Debug)]
pub(super) struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// The first release that has it.
    pub since: Release,
    /// The last that has it; that of [`Release::LAST`] where it is still there.
    pub until: Release,
}

impl Flag {
    /// Whether a release has it. Of releases after the last known one nothing is known, and what that one had is taken to be there.
    pub(super) fn is_in(&self, release: Release) -> bool {
        self.since <= release && release.min(Release::LAST) <= self.until
    }
}

/// The flag of that name.
pub(super) fn flag_named(name: &str) -> Option<&'static Flag> {
    let at = FLAGS.binary_search_by(|flag| flag.name.cmp(name)).ok()?;
    FLAGS.get(at)
}

/// What a flag is where it is not given, for those that rules look at.
pub(super) fn default_of(name: &str, release: Release) -> &'static str {
    match name {
        "expander" if release < Release::minor(33) => "random",
        "expander" => "least-waste",
        "frequent-loops-enabled" => switch(release >= Release::minor(35)),
        "max-node-provision-time" | "max-node-startup-time" | "max-failing-time" => "15m",
        "scale-down-unneeded-time" | "scale-down-delay-after-add" => "10m",
        "scale-down-delay-after-failure" => "3m",
        "scale-down-unready-time" => "20m",
        "unremovable-node-recheck-timeout" | "initial-node-group-backoff-duration" => "5m",
        "max-node-group-backoff-duration" => "30m",
        "node-delete-delay-after-taint" => "5s",
        "scan-interval" => "10s",
        "ok-total-unready-count" => "3",
        "max-total-unready-percentage" => "45",
        "expendable-pods-priority-cutoff" => "-10",
        "scale-down-enabled"
        | "scale-down-unready-enabled"
        | "scale-up-from-zero"
        | "skip-nodes-with-local-storage"
        | "capacity-buffer-pod-dry-run-enabled" => "true",
        _ => match flag_named(name).map(|flag| flag.kind) {
            Some(Bool) => "false",
            Some(Duration) => "0s",
            Some(Int | Float) => "0",
            Some(Text | List) | None => "",
        },
    }
}

const fn switch(on: bool) -> &'static str {
    if on { "true" } else { "false" }
}

/// A switch's value as Go reads it.
pub(super) fn bool_of(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// A length of time as Go writes it: `10m`, `1h30m`, `1.5h`, `0`. Less than a nanosecond is nothing.
pub(super) fn duration_of(text: &str) -> Option<SignedDuration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0_i64;
    while !rest.is_empty() {
        let end = rest.find(|sign: char| !sign.is_ascii_digit() && sign != '.')?;
        let (number, after) = rest.split_at(end);
        let (unit, after) = UNITS.iter().find_map(|(unit, nanos)| Some((*nanos, after.strip_prefix(unit)?)))?;
        nanos = nanos.checked_add(times(number, unit)?)?;
        rest = after;
    }
    Some(SignedDuration::from_nanos(nanos.checked_mul(sign)?))
}

/// Units of time in nanoseconds; of two that begin alike the longer stands first.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A decimal number of units, in nanoseconds.
fn times(number: &str, unit: i64) -> Option<i64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { i64::from_str(whole).ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut step = unit;
    for digit in part.chars() {
        step /= 10;
        nanos = nanos.checked_add(step.checked_mul(i64::from(digit.to_digit(10)?))?)?;
    }
    Some(nanos)
}

const fn flag(name: &'static str, kind: Kind, since: u16, until: u16) -> Flag {
    Flag { name, kind, since: Release::minor(since), until: Release::minor(until) }
}

/// Every flag, by name.
#[rustfmt::skip]
pub(super) const FLAGS: &[Flag] = &[
    flag("add-dir-header", Bool, 25, 36),
    flag("address", Text, 25, 36),
    flag("allowed-scheduler-names", List, 35, 36),
    flag("alsologtostderr", Bool, 25, 36),
    flag("alsologtostderrthreshold", Text, 36, 36),
    flag("async-node-groups", Bool, 31, 36),
    flag("aws-use-static-instance-list", Bool, 25, 36),
    flag("balance-similar-node-groups", Bool, 25, 36),
    flag("balancing-ignore-label", List, 25, 36),
    flag("balancing-label", List, 25, 36),
    flag("blocking-system-pod-distruption-timeout", Duration, 33, 36),
    flag("bulk-mig-instances-listing-enabled", Bool, 31, 36),
    flag("bypassed-scheduler-names", List, 29, 36),
    flag("capacity-buffer-controller-enabled", Bool, 34, 36),
    flag("capacity-buffer-pod-dry-run-enabled", Bool, 36, 36),
    flag("capacity-buffer-pod-injection-enabled", Bool, 34, 36),
    flag("capacity-quotas-enabled", Bool, 36, 36),
    flag("check-capacity-batch-processing", Bool, 32, 36),
    flag("check-capacity-processor-instance", Text, 33, 36),
    flag("check-capacity-provisioning-request-batch-timebox", Duration, 32, 36),
    flag("check-capacity-provisioning-request-max-batch-size", Int, 32, 36),
    flag("cloud-config", Text, 25, 36),
    flag("cloud-provider", Text, 25, 36),
    flag("cluster-name", Text, 25, 36),
    flag("cluster-snapshot-parallelism", Int, 33, 36),
    flag("clusterapi-cloud-config-authoritative", Bool, 25, 36),
    flag("cordon-node-before-terminating", Bool, 25, 36),
    flag("cores-total", Text, 25, 36),
    flag("daemonset-eviction-for-empty-nodes", Bool, 25, 36),
    flag("daemonset-eviction-for-occupied-nodes", Bool, 25, 36),
    flag("debugging-snapshot-enabled", Bool, 25, 36),
    flag("drain-priority-config", Text, 29, 36),
    flag("dynamic-node-delete-delay-after-taint-enabled", Bool, 29, 36),
    flag("emit-per-nodegroup-metrics", Bool, 25, 36),
    flag("enable-csi-node-aware-scheduling", Bool, 35, 36),
    flag("enable-dynamic-resource-allocation", Bool, 32, 36),
    flag("enable-proactive-scaleup", Bool, 31, 36),
    flag("enable-provisioning-requests", Bool, 30, 36),
    flag("enforce-node-group-min-size", Bool, 26, 36),
    flag("estimator", Text, 25, 36),
    flag("expander", Text, 25, 36),
    flag("expendable-pods-priority-cutoff", Int, 25, 36),
    flag("fastpath-binpacking-enabled", Bool, 36, 36),
    flag("feature-gates", Text, 25, 36),
    flag("force-delete-failed-nodes", Bool, 31, 36),
    flag("force-delete-unregistered-nodes", Bool, 32, 36),
    flag("force-ds", Bool, 27, 36),
    flag("frequent-loops-enabled", Bool, 30, 36),
    flag("gce-concurrent-refreshes", Int, 25, 36),
    flag("gce-expander-ephemeral-storage-support", Bool, 25, 32),
    flag("gce-mig-instances-min-refresh-wait-time", Duration, 27, 36),
    flag("gpu-total", List, 25, 36),
    flag("grpc-expander-cert", Text, 25, 36),
    flag("grpc-expander-url", Text, 25, 36),
    flag("ignore-daemonsets-utilization", Bool, 25, 36),
    flag("ignore-mirror-pods-utilization", Bool, 25, 36),
    flag("ignore-taint", List, 25, 36),
    flag("initial-node-group-backoff-duration", Duration, 25, 36),
    flag("kube-api-content-type", Text, 29, 36),
    flag("kube-client-burst", Int, 27, 36),
    flag("kube-client-qps", Float, 27, 36),
    flag("kubeconfig", Text, 25, 36),
    flag("kubernetes", Text, 25, 36),
    flag("leader-elect", Bool, 25, 36),
    flag("leader-elect-lease-duration", Duration, 25, 36),
    flag("leader-elect-renew-deadline", Duration, 25, 36),
    flag("leader-elect-resource-lock", Text, 25, 36),
    flag("leader-elect-resource-name", Text, 25, 36),
    flag("leader-elect-resource-namespace", Text, 25, 36),
    flag("leader-elect-retry-period", Duration, 25, 36),
    flag("legacy-stderr-threshold-behavior", Bool, 36, 36),
    flag("log-backtrace-at", Text, 25, 36),
    flag("log-dir", Text, 25, 36),
    flag("log-file", Text, 25, 36),
    flag("log-file-max-size", Int, 25, 36),
    flag("log-flush-frequency", Duration, 28, 36),
    flag("log-json-info-buffer-size", Text, 28, 36),
    flag("log-json-split-stream", Bool, 28, 36),
    flag("log-text-info-buffer-size", Text, 30, 36),
    flag("log-text-split-stream", Bool, 30, 36),
    flag("logging-format", Text, 28, 36),
    flag("logtostderr", Bool, 25, 36),
    flag("max-allocatable-difference-ratio", Float, 27, 36),
    flag("max-autoprovisioned-node-group-count", Int, 25, 32),
    flag("max-binpacking-time", Duration, 31, 36),
    flag("max-bulk-soft-taint-count", Int, 25, 36),
    flag("max-bulk-soft-taint-time", Duration, 25, 36),
    flag("max-drain-parallelism", Int, 25, 36),
    flag("max-empty-bulk-delete", Int, 25, 32),
    flag("max-failing-time", Duration, 25, 36),
    flag("max-free-difference-ratio", Float, 27, 36),
    flag("max-graceful-termination-sec", Int, 25, 36),
    flag("max-inactivity", Duration, 25, 36),
    flag("max-node-group-backoff-duration", Duration, 25, 36),
    flag("max-node-provision-time", Duration, 25, 36),
    flag("max-node-skip-eval-time-tracker-enabled", Bool, 35, 36),
    flag("max-node-startup-time", Duration, 35, 36),
    flag("max-nodegroup-binpacking-duration", Duration, 25, 36),
    flag("max-nodes-per-scaleup", Int, 25, 36),
    flag("max-nodes-total", Int, 25, 36),
    flag("max-pod-eviction-time", Duration, 25, 36),
    flag("max-scale-down-parallelism", Int, 25, 36),
    flag("max-startup-time", Duration, 36, 36),
    flag("max-total-unready-percentage", Float, 25, 36),
    flag("memory-difference-ratio", Float, 27, 36),
    flag("memory-total", Text, 25, 36),
    flag("min-replica-count", Int, 25, 36),
    flag("namespace", Text, 25, 36),
    flag("new-pod-scale-up-delay", Duration, 25, 36),
    flag("node-autoprovisioning-enabled", Bool, 25, 32),
    flag("node-delete-delay-after-taint", Duration, 26, 36),
    flag("node-deletion-batcher-interval", Duration, 26, 36),
    flag("node-deletion-candidate-ttl", Duration, 34, 36),
    flag("node-deletion-delay-timeout", Duration, 25, 36),
    flag("node-group-auto-discovery", Text, 25, 36),
    flag("node-group-backoff-reset-timeout", Duration, 25, 36),
    flag("node-info-cache-expire-time", Duration, 25, 36),
    flag("node-removal-latency-tracking-enabled", Bool, 35, 36),
    flag("nodes", List, 25, 36),
    flag("ok-total-unready-count", Int, 25, 36),
    flag("one-output", Bool, 25, 36),
    flag("parallel-drain", Bool, 26, 31),
    flag("parallel-scale-up", Bool, 28, 36),
    flag("pod-injection-limit", Int, 31, 36),
    flag("predicate-parallelism", Int, 35, 36),
    flag("profiling", Bool, 25, 36),
    flag("provisioning-request-initial-backoff-time", Duration, 32, 36),
    flag("provisioning-request-max-backoff-cache-size", Int, 32, 36),
    flag("provisioning-request-max-backoff-time", Duration, 32, 36),
    flag("record-duplicated-events", Bool, 25, 36),
    flag("regional", Bool, 25, 36),
    flag("salvo-scale-up", Bool, 36, 36),
    flag("salvo-scale-up-budget", Duration, 36, 36),
    flag("scale-down-candidates-pool-min-count", Int, 25, 36),
    flag("scale-down-candidates-pool-ratio", Float, 25, 36),
    flag("scale-down-delay-after-add", Duration, 25, 36),
    flag("scale-down-delay-after-delete", Duration, 25, 36),
    flag("scale-down-delay-after-failure", Duration, 25, 36),
    flag("scale-down-delay-type-local", Bool, 29, 36),
    flag("scale-down-enabled", Bool, 25, 36),
    flag("scale-down-gpu-utilization-threshold", Float, 25, 36),
    flag("scale-down-non-empty-candidates-count", Int, 25, 36),
    flag("scale-down-simulation-timeout", Duration, 26, 36),
    flag("scale-down-unneeded-time", Duration, 25, 36),
    flag("scale-down-unready-enabled", Bool, 27, 36),
    flag("scale-down-unready-time", Duration, 25, 36),
    flag("scale-down-utilization-threshold", Float, 25, 36),
    flag("scale-from-unschedulable", Bool, 35, 36),
    flag("scale-up-from-zero", Bool, 25, 36),
    flag("scaleup-simulation-for-skipped-node-groups-enabled", Bool, 36, 36),
    flag("scan-interval", Duration, 25, 36),
    flag("scheduler-config-file", Text, 28, 36),
    flag("skip-headers", Bool, 25, 36),
    flag("skip-log-headers", Bool, 25, 36),
    flag("skip-nodes-with-custom-controller-pods", Bool, 27, 36),
    flag("skip-nodes-with-local-storage", Bool, 25, 36),
    flag("skip-nodes-with-system-pods", Bool, 25, 36),
    flag("startup-taint", List, 29, 36),
    flag("startup-taint-prefix", List, 36, 36),
    flag("status-config-map-name", Text, 25, 36),
    flag("status-taint", List, 29, 36),
    flag("stderrthreshold", Text, 25, 36),
    flag("unremovable-node-recheck-timeout", Duration, 25, 36),
    flag("user-agent", Text, 25, 36),
    flag("v", Int, 25, 36),
    flag("vmodule", Text, 25, 36),
    flag("write-status-configmap", Bool, 25, 36),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_by_name() {
        assert!(FLAGS.is_sorted_by(|a, b| a.name < b.name));
        assert!(FLAGS.iter().all(|flag| flag.since <= flag.until && flag.until <= Release::LAST));
        let enforce = flag_named("enforce-node-group-min-size").unwrap();
        assert_eq!((enforce.kind, enforce.is_in(Release::minor(25)), enforce.is_in(Release::minor(26))), (Bool, false, true));
        assert!(flag_named("max-empty-bulk-delete").unwrap().is_in(Release::minor(32)));
        assert!(!flag_named("max-empty-bulk-delete").unwrap().is_in(Release::minor(37)));
        assert!(enforce.is_in(Release::minor(37)), "of what comes later nothing is known");
        assert!(flag_named("Expander").is_none() && flag_named("").is_none());
    }

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for release in 25..=36 {
            for flag in FLAGS {
                let text = default_of(flag.name, Release::minor(release));
                let fits = match flag.kind {
                    Bool => bool_of(text).is_some(),
                    Duration => duration_of(text).is_some(),
                    Int => text.parse::<i64>().is_ok(),
                    Float => text.parse::<f64>().is_ok(),
                    Text | List => true,
                };
                assert!(fits, "{}: {text}", flag.name);
            }
        }
    }

    #[test]
    fn lengths_of_time_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("300ms", 300),
            ("0", 0),
            ("0s", 0),
            ("1h0m0s", 3_600_000),
            ("-5s", -5_000),
            ("2us", 0),
        ] {
            let read = duration_of(text).map(|length| length.as_millis());
            assert_eq!(read, Some(millis), "{text}");
        }
        for text in ["", "10", "10 m", "ten", "m", "1d", "10min", ".s", "-", "9999999999h", "1h-5m", "1..5s"] {
            assert_eq!(duration_of(text), None, "{text}");
        }
    }
}
