//! What keeps floors from being asked for, or caps what the policy allows.

use super::{Case, Cure, Verdict, error, info, to_do, warning, write};

pub(super) fn cannot_enforce(case: Case<'_>) -> Option<Verdict> {
    let pool = case.wants.floor.as_ref()?;
    error(
        format!("1.25 never asks for a group's least size, so pool {pool} does not get its minimum nodes"),
        to_do("run 1.26 or later"),
    )
}

pub(super) fn enforce(case: Case<'_>) -> Option<Verdict> {
    let off = !case.values.is_on("enforce-node-group-min-size")?;
    let cure = write("--enforce-node-group-min-size=true");
    off.then(|| match &case.wants.floor {
        Some(pool) => error(
            format!(
                "the minimum nodes of pool {pool} are never requested: Stoker raises minSize, and the autoscaler \
                           ignores it"
            ),
            cure,
        ),
        None => info("no pool of this policy has minimum nodes; once one does, they are never requested", cure),
    })?
}

pub(super) fn most_nodes(case: Case<'_>) -> Option<Verdict> {
    let most = case.values.number("max-nodes-total").filter(|most| *most > 0.0)?;
    let (least, all) = (case.wants.least_nodes, case.wants.most_nodes);
    let why = "counts every node of the cluster, including those that Stoker does not manage";
    if most <= count(least) {
        return error(format!("{why}; the floors alone are {least}"), Cure::TakeOut);
    }
    (most < count(all)).then(|| warning(format!("{why}; the policy's limits allow {all}"), Cure::TakeOut))?
}

/// Numbers of nodes are far below what a float holds exactly.
#[expect(clippy::cast_precision_loss, reason = "a policy has at most 15,000 nodes a pool")]
const fn count(nodes: u64) -> f64 {
    nodes as f64
}

pub(super) fn totals(case: Case<'_>) -> Option<Verdict> {
    of_totals(case, "cores-total")
}

pub(super) fn totals_of_memory(case: Case<'_>) -> Option<Verdict> {
    of_totals(case, "memory-total")
}

pub(super) fn totals_of_gpus(case: Case<'_>) -> Option<Verdict> {
    of_totals(case, "gpu-total")
}

/// `[type:]min:max`: below the minimum nothing is removed, above the maximum nothing is bought, by a count of all nodes in the cluster.
fn of_totals(case: Case<'_>, flag: &str) -> Option<Verdict> {
    let kept = |value: &str| value.rsplit(':').nth(1).is_some_and(|least| least != "0");
    if case.values.given.all(flag).any(kept) {
        let why = "no node is removed below its minimum, whatever windows and off-hours say";
        return warning(why, to_do("write 0 for its minimum, or remove it: limits.minNodes and warmFloor keep nodes by pool"));
    }
    let why = "is one limit over all nodes of the cluster, which Stoker does not know: groups look open that cannot grow";
    case.values
        .given
        .has(flag)
        .then(|| info(why, to_do("remove it: limits and quotas of the policy say it by pool and region")))?
}

pub(super) fn from_zero(case: Case<'_>) -> Option<Verdict> {
    let why = "while no node of the cluster is Ready, nothing is bought, floors included";
    (!case.values.is_on("scale-up-from-zero")?).then(|| warning(why, write("--scale-up-from-zero=true")))?
}

/// The two switches of capacity buffers: one makes them ready, the other acts on those that are.
const BUFFERS: [&str; 2] = ["capacity-buffer-controller-enabled", "capacity-buffer-pod-injection-enabled"];

/// 1.34 has the switches and reads v1alpha1 of the API only; Stoker writes v1beta1, as Karpenter reads it.
pub(super) fn no_buffers(case: Case<'_>) -> Option<Verdict> {
    let pool = case.wants.buffers.as_ref()?;
    info(
        format!(
            "reads the version of the API that Stoker writes from 1.35 on; until then the floor of pool {pool} uses minSize"
        ),
        to_do("run 1.35 or later, or write mechanism: minSize in the policy"),
    )
}

pub(super) fn half_a_buffer(case: Case<'_>) -> Option<Verdict> {
    let [makes, acts] = BUFFERS.map(|flag| case.values.is_on(flag));
    let cure = Cure::Write(BUFFERS.map(|flag| format!("--{flag}=true")).to_vec());
    match (makes?, acts?, &case.wants.buffers) {
        (true, true, _) | (false, false, None) => None,
        (_, _, Some(pool)) => {
            let why = "uses a CapacityBuffer, for which the autoscaler buys nothing unless both switches are on";
            error(format!("the floor of pool {pool} {why}"), cure)
        }
        (true, false, None) => warning("buffers are made ready, and no node is bought for them", cure),
        (false, true, None) => {
            warning("acts on buffers that are ready, and nothing makes them so unless another controller does", cure)
        }
    }
}

pub(super) fn dry_run(case: Case<'_>) -> Option<Verdict> {
    let [makes, _] = BUFFERS.map(|flag| case.values.is_on(flag));
    let asks = makes? && case.values.is_on("capacity-buffer-pod-dry-run-enabled")?;
    let why = "tries a buffer's pod on the API server, for which the autoscaler needs the right to create pods";
    let cure = to_do("see that it has it (manifests/buffers/rbac.yaml), or write --capacity-buffer-pod-dry-run-enabled=false");
    asks.then(|| info(why, cure))?
}
