use std::collections::BTreeSet;

use stoker_core::base::ids::PoolName;

use super::super::{Finding, Release, Wants, examine, of_manifest, split};
use super::*;

/// The documented manifest.
const MANIFEST: &str = include_str!("../../../../manifests/cluster-autoscaler/deployment.yaml");

fn wants() -> Wants {
    Wants {
        boot_deadline: minutes(10),
        window: Some((PoolName::new("inference").unwrap(), minutes(15))),
        least_nodes: 2,
        floor: Some(PoolName::new("inference").unwrap()),
        buffers: None,
        most_nodes: 40,
        taints: BTreeSet::from(["nvidia.com/gpu".to_owned(), "stoker.dev/shape".to_owned()]),
        isolation: true,
    }
}

/// What is found when these flags are added to the documented ones, by which they are overridden.
fn found(more: &str, release: u16) -> Vec<Finding> {
    let mut words = of_manifest(MANIFEST).unwrap().words;
    if release < 30 {
        words.retain(|word| !word.starts_with("--frequent-loops-enabled"));
    }
    words.extend(split(more).unwrap());
    examine(&words, Release::minor(release), &wants())
}

#[test]
fn the_documented_flags_are_clean_in_every_release_that_has_them() {
    let line = of_manifest(MANIFEST).unwrap();
    assert_eq!(line.release, Some(Release::LAST));
    for release in 26..=40 {
        assert_eq!(found("", release), [], "1.{release}");
    }
    let old = found("", 25);
    assert!(old.iter().all(|finding| finding.flag == "enforce-node-group-min-size"), "{old:?}");
    assert_eq!(old.len(), 2, "it ends over the flag, and without it floors are not asked for");
}

/// Each flag alone, with what the rule must say: the severity, a word of the reason, and the cure.
#[test]
fn each_flag_that_fights_the_policy_is_told_with_its_cure() {
    use Severity::{Error, Info, Warning};
    for (flags, severity, flag, why, cure) in [
        (
            "--cloud-provider=aws",
            Error,
            "cloud-provider",
            "does not request nodes from Stoker",
            "--cloud-provider=externalgrpc",
        ),
        ("--cloud-config=", Error, "cloud-config", "exits without", "--cloud-config=FILE"),
        ("--expander=least-waste,grpc", Warning, "expander", "before grpc", "--expander=grpc,least-waste"),
        ("--expander=grpc", Info, "expander", "random", "--expander=grpc,least-waste"),
        ("--expander=grpc,leastwaste", Error, "expander", "no expander", "--expander=grpc,least-waste"),
        ("--expander=random,grpc", Error, "expander", "after random", "--expander=grpc,least-waste"),
        ("--expander=grpc,grpc", Error, "expander", "twice", "--expander=grpc,least-waste"),
        ("--grpc-expander-url=stoker", Error, "grpc-expander-url", "host:port", "HOST:PORT"),
        ("--grpc-expander-url=https://stoker:1", Error, "grpc-expander-url", "host:port", "HOST:PORT"),
        ("--grpc-expander-cert=", Error, "grpc-expander-cert", "Info line", "--grpc-expander-cert=FILE"),
        ("--async-node-groups", Warning, "async-node-groups", "in the background", "remove it"),
        ("--enforce-node-group-min-size=false", Error, "enforce-node-group-min-size", "pool inference", "=true"),
        ("--max-nodes-total=2", Error, "max-nodes-total", "the floors alone are 2", "remove it"),
        ("--max-nodes-total=39", Warning, "max-nodes-total", "allow 40", "remove it"),
        ("--gpu-total=L4:2:8", Warning, "gpu-total", "below its minimum", "minNodes"),
        ("--cores-total=0:640", Info, "cores-total", "all nodes", "remove it"),
        ("--scale-up-from-zero=false", Warning, "scale-up-from-zero", "Ready", "=true"),
        (
            "--capacity-buffer-controller-enabled --capacity-buffer-pod-dry-run-enabled=false",
            Warning,
            "capacity-buffer-pod-injection-enabled",
            "no node is bought",
            "injection-enabled=true",
        ),
        ("--scale-down-enabled=false", Error, "scale-down-enabled", "ever removed", "=true"),
        ("--scale-down-unneeded-time=10m", Warning, "scale-down-unneeded-time", "15m of pool inference become 25m", "=1m"),
        ("--scale-down-unneeded-time=16m", Error, "scale-down-unneeded-time", "become 31m", "=1m"),
        ("--scale-down-unneeded-time=0s", Error, "scale-down-unneeded-time", "below 30s", "=1m"),
        ("--scale-down-delay-after-add=10m", Warning, "scale-down-delay-after-add", "whole cluster", "=1m"),
        ("--scale-down-delay-after-delete=5m", Warning, "scale-down-delay-after-delete", "one batch every 5m", "=0s"),
        ("--scale-down-delay-after-failure=1h", Warning, "scale-down-delay-after-failure", "for 1h", "=3m"),
        ("--unremovable-node-recheck-timeout=6m", Warning, "unremovable-node-recheck-timeout", "for 6m", "=5m"),
        ("--scale-down-unready-enabled=false", Warning, "scale-down-unready-enabled", "paid for", "=true"),
        ("--scale-down-unready-time=20m", Info, "scale-down-unready-time", "20m", "=5m"),
        ("--node-delete-delay-after-taint=2m", Warning, "node-delete-delay-after-taint", "for 2m", "=5s"),
        ("--node-deletion-batcher-interval=1s", Warning, "node-deletion-batcher-interval", "all or nothing", "=0s"),
        ("--skip-nodes-with-local-storage=false", Info, "skip-nodes-with-local-storage", "disk", "=true"),
        ("--max-node-provision-time=10m", Error, "max-node-provision-time", "bootDeadline of 10m", "=20m"),
        ("--max-node-provision-time=14m59s", Warning, "max-node-provision-time", "has 4m59s to become Ready", "=20m"),
        ("--max-node-startup-time=5m", Warning, "max-node-startup-time", "within 5m", "=15m"),
        ("--max-node-startup-time=0s", Error, "max-node-startup-time", "within 0s", "=15m"),
        ("--startup-taint=nvidia.com/gpu", Error, "startup-taint", "never count as Ready", "remove nvidia.com/gpu from it"),
        (
            "--startup-taint-prefix=stoker.dev/",
            Error,
            "startup-taint-prefix",
            "stoker.dev/shape",
            "remove stoker.dev/shape from it",
        ),
        ("--ignore-taint=nvidia.com/gpu", Error, "ignore-taint", "never count as Ready", "remove nvidia.com/gpu from it"),
        ("--status-taint=nvidia.com/gpu", Error, "status-taint", "cannot use", "remove nvidia.com/gpu from it"),
        ("--frequent-loops-enabled=false", Warning, "frequent-loops-enabled", "--scan-interval", "=true"),
        ("--scan-interval=1m", Warning, "scan-interval", "once every 1m", "=10s"),
        ("--initial-node-group-backoff-duration=15m", Warning, "initial-node-group-backoff-duration", "for 15m", "=5m"),
        ("--max-node-group-backoff-duration=2h", Warning, "max-node-group-backoff-duration", "up to 2h", "=30m"),
        ("--new-pod-scale-up-delay=1m", Warning, "new-pod-scale-up-delay", "waits 1m", "=0s"),
        ("--bypassed-scheduler-names=default-scheduler", Info, "bypassed-scheduler-names", "isolation", "remove it"),
        ("--expendable-pods-priority-cutoff=1", Error, "expendable-pods-priority-cutoff", "no node is bought", "=-10"),
        ("--balance-similar-node-groups", Warning, "balance-similar-node-groups", "whatever they cost", "=false"),
        ("--balancing-ignore-label=x", Error, "balancing-ignore-label", "combined", "remove it"),
        ("--ok-total-unready-count=0", Warning, "ok-total-unready-count", "1 nodes", "=3"),
        ("--max-total-unready-percentage=10", Warning, "max-total-unready-percentage", "10 %", "=45"),
        ("--max-failing-time=1m", Warning, "max-failing-time", "forgets which nodes are booting", "=15m"),
    ] {
        let found = found(flags, 36);
        let [one] = &found[..] else { unreachable!("{flags}: {found:?}") };
        assert_eq!((one.severity, one.flag.as_str()), (severity, flag), "{flags}: {one:?}");
        assert!(one.why.contains(why), "{flags}: {}", one.why);
        assert!(one.cure.to_string().contains(cure), "{flags}: {}", one.cure);
    }
}

/// A cure that did not cure would send the operator round in circles.
#[test]
fn what_is_written_as_a_cure_is_itself_clean() {
    for flags in [
        "--expander=price",
        "--enforce-node-group-min-size=false",
        "--scale-down-unneeded-time=1h",
        "--scale-down-delay-after-add=1h",
        "--max-node-provision-time=1m",
        "--max-node-startup-time=1m",
        "--scan-interval=5m",
        "--capacity-buffer-pod-injection-enabled",
        "--ok-total-unready-count=1",
        "--new-pod-scale-up-delay=5m",
    ] {
        let first = found(flags, 35);
        let written: Vec<_> = first
            .iter()
            .filter_map(|finding| match &finding.cure {
                Cure::Write(flags) => Some(flags.join(" ")),
                Cure::TakeOut | Cure::Do(_) => None,
            })
            .collect();
        // Names that only the operator knows.
        let flags = format!("{flags} {}", written.join(" ")).replace("=FILE", "=/ca.crt").replace("HOST", "stoker");
        let left: Vec<_> = found(&flags, 35);
        assert_eq!(left, [], "{flags}");
    }
}

#[test]
fn defaults_count_where_nothing_is_written_and_are_marked() {
    let words = split("--cloud-provider=externalgrpc --cloud-config=/c --leader-elect=false").unwrap();
    let found = examine(&words, Release::minor(30), &wants());
    let told: Vec<_> = found.iter().map(|finding| finding.stands.as_str()).collect();
    assert_eq!(
        told,
        [
            "--enforce-node-group-min-size=false (default)",
            "--expander=random (default)",
            "--scale-down-unneeded-time=10m (default)",
            "--scale-down-delay-after-add=10m (default)",
            "--frequent-loops-enabled=false (default)",
            "--scale-down-unready-time=20m (default)",
        ]
    );
    assert_eq!(
        found[1].cure.to_string(),
        "write --expander=grpc,least-waste --grpc-expander-url=HOST:8087 --grpc-expander-cert=FILE"
    );
}

#[test]
fn a_rule_is_silent_in_releases_that_it_is_not_about() {
    for (flags, silent, told) in [
        ("--capacity-buffer-controller-enabled --capacity-buffer-pod-injection-enabled", 34, 36),
        ("--leader-elect-resource-name=x", 26, 24),
    ] {
        assert_eq!(found(flags, silent), [], "{flags}");
        assert!(!found(flags, told).is_empty(), "{flags}");
    }
}

#[test]
fn a_floor_through_buffers_needs_both_of_their_switches() {
    let buffers = Wants { buffers: wants().floor, ..wants() };
    let with = |more: &str, release| {
        let words: Vec<_> = of_manifest(MANIFEST).unwrap().words.into_iter().chain(split(more).unwrap()).collect();
        let found = examine(&words, Release::minor(release), &buffers).into_iter();
        found.map(|finding| (finding.severity, finding.flag)).collect::<Vec<_>>()
    };
    let (both, injects) = (
        "--capacity-buffer-controller-enabled --capacity-buffer-pod-injection-enabled",
        "capacity-buffer-pod-injection-enabled",
    );
    assert_eq!(with("", 35), [(Severity::Error, injects.to_owned())]);
    assert_eq!(with(both, 35), []);
    assert_eq!(with(both, 36), [(Severity::Info, "capacity-buffer-pod-dry-run-enabled".to_owned())]);
    assert_eq!(with(&format!("{both} --capacity-buffer-pod-dry-run-enabled=false"), 36), []);
    for release in [33, 34] {
        assert_eq!(with("", release), [(Severity::Info, injects.to_owned())], "the floor uses minSize");
    }
}

#[test]
fn a_policy_without_floors_and_windows_asks_for_less() {
    let none = Wants { floor: None, least_nodes: 0, window: None, taints: BTreeSet::new(), isolation: false, ..wants() };
    let words = of_manifest(MANIFEST).unwrap().words;
    let with = |more: &str| {
        let words: Vec<_> = words.iter().cloned().chain(split(more).unwrap()).collect();
        examine(&words, Release::LAST, &none).into_iter().map(|finding| finding.severity).collect::<Vec<_>>()
    };
    assert_eq!(with("--enforce-node-group-min-size=false"), [Severity::Info]);
    for flags in ["--scale-down-unneeded-time=10m", "--startup-taint=nvidia.com/gpu", "--bypassed-scheduler-names=x"] {
        assert_eq!(with(flags), [], "{flags}");
    }
}

#[test]
fn lengths_read_in_the_largest_units_that_are_exact() {
    for (seconds, text) in [(0, "0s"), (5, "5s"), (60, "1m"), (90, "1m30s"), (3_600, "1h"), (5_400, "90m")] {
        assert_eq!(length(SignedDuration::from_secs(seconds)), text);
    }
}
