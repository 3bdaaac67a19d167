//! The service as the benches run it: its real doors on loopback ports, on the machine's clock, in a world of plenty.

use std::fmt::Write as _;
use std::path::Path;

use stoker_service::serve::Options;
use stoker_sim::world::WorldConfig;
use stoker_simulated::WorldOptions;
use stoker_tests::market;

/// The cluster of the policy.
pub(crate) const CLUSTER: &str = "bench";

/// The name of a pool by its number.
pub(crate) fn pool(n: usize) -> String {
    format!("p{n:02}")
}

/// A policy of so many pools with six groups each and room for anything.
pub(crate) fn policy(pools: usize) -> String {
    let mut text = format!("apiVersion: stoker.dev/v1alpha1\nkind: Policy\nclusterName: {CLUSTER}\npools:\n");
    for n in 0..pools {
        let pool = pool(n);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "- name: {pool}\n  workload: inference\n  gpu: {{ models: [L4, A10G, L40S], count: 1 }}\n  where: {{ clouds: [aws], \
             regions: [us-east-1] }}\n  capacity: {{ prefer: [on-demand] }}\n  limits: {{ maxNodes: 100000 }}\n"
        );
    }
    text
}

/// A service of that policy with its state in `dir`.
pub(crate) fn options(policy: String, dir: &Path) -> (Options, WorldOptions) {
    let mut world = WorldConfig::default();
    (world.stock.plenty, world.stock.some, world.stock.scarce) = (1_000_000, 1_000_000, 1_000_000);
    (world.boot.median_seconds, world.boot.sigma) = (1, 0.0);
    world.boot.clouds.clear();
    (world.api.latency_ms.min, world.api.latency_ms.max) = (0, 0);
    (market::options(policy, dir), WorldOptions { config: world, file: None })
}
