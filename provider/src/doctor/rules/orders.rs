//! Orders: what is booting, what was refused, and who waits for what.

use jiff::SignedDuration;

use super::{Case, Cure, Severity, Verdict, error, info, length, minutes, to_do, warning, write};

/// What a node that joins at the last moment needs to become Ready: the autoscaler's own default, 15 min, less our default deadline.
const TO_READY: SignedDuration = minutes(5);

pub(super) fn provision(case: Case<'_>) -> Option<Verdict> {
    let (within, deadline) = (case.values.duration("max-node-provision-time")?, case.wants.boot_deadline);
    // Whole minutes, and as far above the deadline as in the manifest.
    let cure =
        write(format!("--max-node-provision-time={}m", deadline.saturating_mul(2).as_secs().unsigned_abs().div_ceil(60)));
    if within <= deadline {
        let why = format!(
            "the autoscaler gives up before the policy's bootDeadline of {}: machines that still boot are deleted, and it \
             asks the same group again, indefinitely, because it is never told that the group has no capacity",
            length(deadline)
        );
        return error(why, cure);
    }
    let left = within.saturating_sub(deadline);
    let why = format!(
        "a node that joins just before the bootDeadline of {} has {} to become Ready (drivers, images); after that its order \
         is cancelled, its group backs off for 5 min, and another node is bought",
        length(deadline),
        length(left)
    );
    (left < TO_READY).then(|| warning(why, cure))?
}

pub(super) fn startup(case: Case<'_>) -> Option<Verdict> {
    let within = case.values.duration("max-node-startup-time")?;
    let why = format!(
        "a node that has joined and is not Ready within {} no longer counts as booting, and another one is bought for its \
         pods",
        length(within)
    );
    let severity = if within < minutes(1) { Severity::Error } else { Severity::Warning };
    (within < minutes(15)).then(|| Verdict { severity, why, cure: write("--max-node-startup-time=15m") })
}

pub(super) fn startup_taint(case: Case<'_>) -> Option<Verdict> {
    never_ready(case, "startup-taint")
}

pub(super) fn ignore_taint(case: Case<'_>) -> Option<Verdict> {
    never_ready(case, "ignore-taint")
}

/// The flag names a taint that our nodes bear for life, though it stands for one that goes when a node is ready.
fn never_ready(case: Case<'_>, flag: &str) -> Option<Verdict> {
    let key = case.values.given.all(flag).find(|key| case.wants.taints.contains(*key))?;
    unready_for_life(key)
}

pub(super) fn startup_taint_prefix(case: Case<'_>) -> Option<Verdict> {
    let mut prefixes = case.values.given.all("startup-taint-prefix");
    let key = prefixes.find_map(|prefix| case.wants.taints.iter().find(|key| key.starts_with(prefix)))?;
    unready_for_life(key)
}

fn unready_for_life(key: &str) -> Option<Verdict> {
    error(
        format!(
            "nodes of the policy's pools have the taint {key} for their whole life: they never count as Ready, and others \
             are bought for their pods"
        ),
        to_do(format!("remove {key} from it, or give the pools another taint (template.taints)")),
    )
}

pub(super) fn status_taint(case: Case<'_>) -> Option<Verdict> {
    let key = case.values.given.all("status-taint").find(|key| case.wants.taints.contains(*key))?;
    error(
        format!("the autoscaler ignores the taint {key} of new nodes: nodes are bought for pods that cannot use them"),
        to_do(format!("remove {key} from it")),
    )
}

pub(super) fn frequent_loops(case: Case<'_>) -> Option<Verdict> {
    let why = "after a group was refused, the next is asked only after --scan-interval, not within 100 ms; a pod waits as long for its first";
    (!case.values.is_on("frequent-loops-enabled")?).then(|| warning(why, write("--frequent-loops-enabled=true")))?
}

pub(super) fn scan(case: Case<'_>) -> Option<Verdict> {
    let between = case.values.duration("scan-interval")?;
    let why = format!("floors are checked, and removable nodes noticed, once every {}", length(between));
    (between > SignedDuration::from_secs(30)).then(|| warning(why, write("--scan-interval=10s")))?
}

pub(super) fn backoff(case: Case<'_>) -> Option<Verdict> {
    let after = case.values.duration("initial-node-group-backoff-duration")?;
    let why = format!(
        "a group that had no stock is not asked again for {}; Stoker tries its market again after 3 min, and opens and closes groups itself",
        length(after)
    );
    (after > minutes(5)).then(|| warning(why, write("--initial-node-group-backoff-duration=5m")))?
}

pub(super) fn longest_backoff(case: Case<'_>) -> Option<Verdict> {
    let most = case.values.duration("max-node-group-backoff-duration")?;
    let why = format!(
        "a group that had no stock several times is not asked for up to {}, though its market may be back after 30 min",
        length(most)
    );
    (most > minutes(30)).then(|| warning(why, write("--max-node-group-backoff-duration=30m")))?
}

pub(super) fn new_pods(case: Case<'_>) -> Option<Verdict> {
    let delay = case.values.duration("new-pod-scale-up-delay")?;
    let why = format!(
        "every pod waits {} before a node is asked for; a GPU pod is not acted on for its first 30 s anyway",
        length(delay)
    );
    (delay > SignedDuration::from_secs(30)).then(|| warning(why, write("--new-pod-scale-up-delay=0s")))?
}

pub(super) fn bypassed(case: Case<'_>) -> Option<Verdict> {
    let named = case.values.given.text("bypassed-scheduler-names").is_some_and(|names| !names.is_empty());
    let why = "a GPU pod no longer waits its first 30 s, in which Stoker adds the tolerations of its price class \
               (isolation): the first loop may find no group for it";
    (named && case.wants.isolation).then(|| info(why, to_do("leave it if a loop more does not matter, or remove it")))?
}

pub(super) fn expendable(case: Case<'_>) -> Option<Verdict> {
    let cutoff = case.values.number("expendable-pods-priority-cutoff")?;
    let why = "pods without a priority class are below it: no node is bought for them";
    (cutoff > 0.0).then(|| error(why, write("--expendable-pods-priority-cutoff=-10")))?
}

pub(super) fn balance(case: Case<'_>) -> Option<Verdict> {
    if !case.values.is_on("balance-similar-node-groups")? {
        return None;
    }
    // Every group has labels of its own, so that without this flag no two are similar.
    if case.values.given.has("balancing-label") {
        let why = "new nodes are spread evenly over the groups of one pool, whatever they cost";
        warning(why, to_do("write --balance-similar-node-groups=false; where.maxZoneShare of the policy spreads over zones"))
    } else {
        info(
            "has no effect: each group has a label of its own, so no two are similar",
            to_do("where.maxZoneShare of the policy spreads over zones"),
        )
    }
}

pub(super) fn balancing_labels(case: Case<'_>) -> Option<Verdict> {
    let both = case.values.given.has("balancing-ignore-label") && case.values.given.has("balancing-label");
    both.then(|| error("cannot be combined with --balancing-label", Cure::TakeOut))?
}

pub(super) fn unready_count(case: Case<'_>) -> Option<Verdict> {
    let few = case.values.number("ok-total-unready-count")?;
    let why = format!(
        "in a small cluster {} nodes that are not Ready stop the whole autoscaler: one bad driver roll-out is enough",
        few + 1.0
    );
    (few < 3.0).then(|| warning(why, write("--ok-total-unready-count=3")))?
}

pub(super) fn unready_share(case: Case<'_>) -> Option<Verdict> {
    let share = case.values.number("max-total-unready-percentage")?;
    let why = format!("the whole autoscaler stops once more than {share} % of the nodes are not Ready");
    (share < 45.0).then(|| warning(why, write("--max-total-unready-percentage=45")))?
}

pub(super) fn failing(case: Case<'_>) -> Option<Verdict> {
    let within = case.values.duration("max-failing-time")?;
    let mut why = format!("if Stoker is unreachable for {}, a liveness probe restarts the autoscaler", length(within));
    if case.values.release >= super::Release::minor(36) {
        why.push_str(", which then forgets which nodes are booting");
    }
    (within < minutes(5)).then(|| warning(why, write("--max-failing-time=15m")))?
}
