//! The scenarios, in the order they run.

mod consistency;
mod crashes;
mod ec2;
mod journal;
mod karpenter;
mod market;
mod placement;
mod pods;
mod probes;
mod replicas;
mod rights;
mod sharing;
mod steering;
mod warm;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::bench::{Bench, Release};
use super::cluster::Ask;
use super::files::{CALM, Files};

/// How long an autoscaler may take from a waiting pod to its node, boot and a hold of 30 s for GPU pods included.
const SCALED: Duration = Duration::from_secs(75);
/// How long it may take from an idle node to none.
const GONE: Duration = Duration::from_secs(75);

/// A scenario under way.
pub type Run<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// What is to happen, and in which world.
pub struct Scenario {
    /// A word for it.
    pub name: &'static str,
    /// Its policy and world.
    pub files: Files,
    /// A flag that the autoscaler must have.
    pub needs: Option<&'static str>,
    /// What happens. The autoscaler and Stoker run already.
    pub run: for<'a> fn(&'a mut Bench) -> Run<'a>,
}

/// Scenarios that hold the service to a second or two: on a machine with few processors, others beside them would be what is measured.
const ALONE: [&str; 1] = ["ec2-wave"];

impl Scenario {
    /// Whether nothing else may be played meanwhile.
    pub fn is_alone(&self) -> bool {
        ALONE.contains(&self.name)
    }

    /// Why it cannot be played with that autoscaler.
    pub fn skipped(&self, release: &Release) -> Option<String> {
        let flag = self.needs.filter(|flag| !release.known.contains(*flag))?;
        Some(format!("this release has no {flag}"))
    }
}

/// A pod with one GPU.
const ONE: Ask<'static> = Ask { pool: "small", gpus: 1, zone: None };

const SLOW: Files = Files { boot_seconds: 6, ..CALM };

/// All of them.
pub const ALL: [Scenario; 43] = [
    Scenario { name: "gpu-pods-come-and-go", files: CALM, needs: None, run: |bench| Box::pin(pods::come_and_go(bench)) },
    Scenario { name: "cpu-pods-stay-off", files: CALM, needs: None, run: |bench| Box::pin(placement::cpu_pods(bench)) },
    Scenario { name: "zone-bound-pod", files: CALM, needs: None, run: |bench| Box::pin(placement::zone(bench)) },
    Scenario { name: "labels-of-others", files: CALM, needs: None, run: |bench| Box::pin(placement::labels(bench)) },
    Scenario { name: "big-host", files: CALM, needs: None, run: |bench| Box::pin(placement::big(bench)) },
    Scenario {
        name: "price-classes",
        files: Files { isolation: "  isolation: { maxCostRatio: 1.0 }\n", ..CALM },
        needs: None,
        run: |bench| Box::pin(placement::classes(bench)),
    },
    Scenario { name: "sharing", files: sharing::FILES, needs: None, run: |bench| Box::pin(sharing::slices(bench)) },
    Scenario { name: "busy-nodes-are-held", files: CALM, needs: None, run: |bench| Box::pin(pods::busy(bench)) },
    Scenario { name: "stoker-killed", files: SLOW, needs: None, run: |bench| Box::pin(crashes::stoker(bench)) },
    Scenario { name: "autoscaler-killed", files: SLOW, needs: None, run: |bench| Box::pin(crashes::autoscaler(bench)) },
    Scenario { name: "stoker-away", files: SLOW, needs: None, run: |bench| Box::pin(crashes::away(bench)) },
    Scenario {
        name: "journal-lost-and-restored",
        files: CALM,
        needs: None,
        run: |bench| Box::pin(journal::lost_and_restored(bench)),
    },
    Scenario { name: "ec2-come-and-go", files: ec2::FILES, needs: None, run: |bench| Box::pin(ec2::come_and_go(bench)) },
    Scenario { name: "ec2-killed", files: ec2::FILES, needs: None, run: |bench| Box::pin(ec2::killed(bench)) },
    Scenario { name: "ec2-notice", files: ec2::SPOT, needs: None, run: |bench| Box::pin(ec2::notice(bench)) },
    Scenario {
        name: "ec2-region-left-out",
        files: ec2::FILES,
        needs: None,
        run: |bench| Box::pin(ec2::region_left_out(bench)),
    },
    Scenario { name: "ec2-outdated", files: ec2::KEPT, needs: None, run: |bench| Box::pin(ec2::outdated(bench)) },
    Scenario { name: "replicas", files: replicas::FILES, needs: None, run: |bench| Box::pin(replicas::fail_over(bench)) },
    Scenario { name: "one-replica", files: replicas::ALONE, needs: None, run: |bench| Box::pin(replicas::alone(bench)) },
    Scenario { name: "ec2-wave", files: ec2::WAVE, needs: None, run: |bench| Box::pin(ec2::wave(bench)) },
    Scenario {
        name: "nodeclaims-come-and-go",
        files: karpenter::FILES,
        needs: None,
        run: |bench| Box::pin(karpenter::come_and_go(bench)),
    },
    Scenario {
        name: "karpenter-killed",
        files: karpenter::FILES,
        needs: None,
        run: |bench| Box::pin(karpenter::killed(bench)),
    },
    Scenario {
        name: "karpenter-limited",
        files: steering::LIMITED,
        needs: None,
        run: |bench| Box::pin(steering::limited(bench)),
    },
    Scenario { name: "karpenter-priced", files: steering::PRICED, needs: None, run: |bench| Box::pin(steering::priced(bench)) },
    Scenario {
        name: "karpenter-floor",
        files: steering::FLOOR,
        needs: Some("--enforce-node-group-min-size"),
        run: |bench| Box::pin(steering::floor(bench)),
    },
    Scenario {
        name: "karpenter-protected",
        files: steering::PROTECTED,
        needs: None,
        run: |bench| Box::pin(steering::busy(bench)),
    },
    Scenario {
        name: "nodeclaim-refused",
        files: karpenter::FILES,
        needs: None,
        run: |bench| Box::pin(karpenter::refused(bench)),
    },
    Scenario {
        name: "nodeclaims-keep-floor",
        files: Files { floor: 1, ..karpenter::FILES },
        needs: Some("--enforce-node-group-min-size"),
        run: |bench| Box::pin(karpenter::floor(bench)),
    },
    Scenario {
        name: "nodeclaims-keep-rules",
        files: karpenter::FILES,
        needs: None,
        run: |bench| Box::pin(karpenter::rules(bench)),
    },
    Scenario { name: "no-stock", files: market::NO_STOCK, needs: None, run: |bench| Box::pin(market::no_stock(bench)) },
    Scenario {
        name: "floor",
        files: Files { floor: 1, ..CALM },
        needs: Some("--enforce-node-group-min-size"),
        run: |bench| Box::pin(pods::floor(bench)),
    },
    Scenario { name: "spot-reclaim", files: market::RECLAIM, needs: None, run: |bench| Box::pin(market::reclaim(bench)) },
    Scenario { name: "probe-tokens", files: CALM, needs: None, run: |bench| Box::pin(probes::tokens(bench)) },
    Scenario { name: "rights", files: CALM, needs: None, run: |bench| Box::pin(rights::rights(bench)) },
    Scenario { name: "back-to-spot", files: market::NO_SPOT, needs: None, run: |bench| Box::pin(market::back_to_spot(bench)) },
    Scenario {
        name: "warm-floor",
        files: warm::FLOOR,
        needs: Some("--enforce-node-group-min-size"),
        run: |bench| Box::pin(warm::floor(bench)),
    },
    Scenario {
        name: "buffered-floor",
        files: warm::BUFFERED,
        // With it came the version of the API that Stoker writes, or one release before.
        needs: Some("--capacity-buffer-pod-dry-run-enabled"),
        run: |bench| Box::pin(warm::buffered(bench)),
    },
    Scenario { name: "unasked-floor", files: warm::UNASKED, needs: None, run: |bench| Box::pin(warm::unasked(bench)) },
    Scenario {
        name: "work-without-pods",
        files: warm::PROBED,
        needs: None,
        run: |bench| Box::pin(warm::work_without_pods(bench)),
    },
    Scenario { name: "silent-probe", files: warm::PROBED, needs: None, run: |bench| Box::pin(warm::silent_probe(bench)) },
    Scenario { name: "broken-gpu", files: warm::BREAKING, needs: None, run: |bench| Box::pin(warm::broken(bench)) },
    Scenario {
        name: "fault-in-one-pool",
        files: consistency::TWO_POOLS,
        needs: None,
        run: |bench| Box::pin(consistency::fault_in_one_pool(bench)),
    },
    Scenario { name: "spot-notice", files: warm::SPOT, needs: None, run: |bench| Box::pin(warm::spot_notice(bench)) },
];
