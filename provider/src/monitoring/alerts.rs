//! The alerts. Each says what is the matter with its figures, and in `description` what it means and what to do.

use jiff::SignedDuration;
use stoker_core::decide::STALE_INVENTORY;
use stoker_core::facts::reading::XidClass;
use stoker_core::market::price::{LIVE_QUOTE_LIFE, SPOT_QUOTE_LIFE};

use super::query::{
    GPU_PRICE, INSTANCE_ACTIVE, MEMORY_USED, POOL_BUSY, POOL_IDLE, POOL_MEASURED, POOL_SPEND, POOL_UTILIZATION, SM_ACTIVE,
    UTILIZATION, XID, dcgm, half_a_day, hundredths, idle, idle_instances, level, ratio, with_pool,
};
use super::rules::{Annotations, Labels, Rule, Severity};
use super::thresholds::{Thresholds, promql_time};
use stoker_service::feeds::prometheus::dcgm::{Level, either};

/// How long figures over a day must stay past their threshold: they move slowly, and a restart of Prometheus must not ring.
const SETTLED: SignedDuration = SignedDuration::from_hours(1);

/// How long a level of a GPU must stay past its threshold, so that a burst does not ring.
const STEADY: SignedDuration = SignedDuration::from_mins(15);

/// XIDs that NVIDIA has given a meaning are below this number (docs.nvidia.com/deploy/xid-errors, read 2026-11: up to 172).
const XIDS: u32 = 200;

/// An alert; `for` nought fires at once.
fn alert(
    name: &'static str,
    severity: Severity,
    expr: impl Into<String>,
    lasting: SignedDuration,
    summary: impl Into<String>,
    description: &'static str,
) -> Rule {
    let annotations = Annotations { summary: summary.into(), description, runbook_url: None };
    Rule::Alert { alert: name, expr: expr.into(), for_: promql_time(lasting), labels: Labels { severity }, annotations }
}

/// A moment's share in a summary, as `{{ $value }}`.
const SHARE: &str = "{{ $value | humanizePercentage }}";

/// Every alert.
pub(super) fn alerts(thresholds: &Thresholds) -> Vec<Rule> {
    let mut alerts = use_of_gpus(thresholds);
    alerts.extend(health_of_gpus(thresholds));
    alerts.extend(money(thresholds));
    alerts.extend(supply(thresholds));
    alerts.extend(stoker_itself(thresholds));
    alerts
}

fn use_of_gpus(thresholds: &Thresholds) -> Vec<Rule> {
    let Thresholds {
        idle_below, idle_for, low, low_for, low_day, busy, high, high_for, memory, training_sm, idle_hours, ..
    } = thresholds;
    let (low, low_day, high) = (low.0, low_day.0, high.0);
    let measured = half_a_day();
    vec![
        alert(
            "StokerGpuIdle",
            Severity::Warning,
            format!("count by (node, pool, workload) {} * on (node) group_left () {GPU_PRICE}", idle(*idle_below, "")),
            *idle_for,
            format!(
                "GPUs of {{{{ $labels.node }}}} (pool {{{{ $labels.pool }}}}) have been below {idle_below} for {}: \
                 ${{{{ $value | printf \"%.2f\" }}}} lost an hour",
                promql_time(*idle_for)
            ),
            "The GPUs do nothing and are paid for. Find the pods on the node: kubectl get pods -A --field-selector \
             spec.nodeName=NODE. If there is a pod, end it, or give it a smaller or shared GPU (sharing: of the pool). If \
             there is none, the autoscaler should have removed the node; stoker groups and stoker explain NODE show what \
             keeps it (minNodes, a commitment, an annotation). A model server that waits for requests is idle too: run fewer \
             replicas, or use a pool that shares GPUs.",
        ),
        alert(
            "StokerGpuInstanceIdle",
            Severity::Warning,
            // An even part of its GPU's price each. A GPU of which no instance works is told of as a whole.
            format!(
                "sum by (node, pool, workload) ((0 * {idle} + 1 unless on (node, gpu, UUID) {whole}) \
                 / on (node, gpu, UUID) group_left () count by (node, gpu, UUID) ({INSTANCE_ACTIVE}) \
                 * on (node) group_left () {GPU_PRICE})",
                idle = idle_instances(*idle_below),
                whole = idle(*idle_below, "")
            ),
            *idle_for,
            format!(
                "MIG instances of {{{{ $labels.node }}}} (pool {{{{ $labels.pool }}}}) have been below {idle_below} for {} while others \
                 of their GPU worked: ${{{{ $value | printf \"%.2f\" }}}} lost an hour",
                promql_time(*idle_for)
            ),
            "Parts of a split GPU do nothing and are paid for. stoker nodes shows the bar and the owner of each. If no pod \
             has them, let more pods request that profile, or choose a layout with fewer or larger instances (sharing: of \
             the pool; stoker advise shows what workloads need). If a pod has them, end it, or give it a smaller profile.",
        ),
        alert(
            "StokerGpuUtilizationLow",
            Severity::Info,
            format!("avg_over_time({POOL_UTILIZATION}[5m]) < {low}"),
            *low_for,
            format!(
                "GPUs of pool {{{{ $labels.pool }}}} have been below {low}% on average for {}: {{{{ $value | printf \"%.0f\" }}}}%",
                promql_time(*low_for)
            ),
            "The pool has more GPU than its work uses. Ask for fewer replicas, raise the batch size, put several pods on a \
             GPU (sharing: of the pool), or allow a smaller model (gpu.models). If it passes within hours it is the daily \
             low: no need to act.",
        ),
        alert(
            "StokerGpuUtilizationLowForADay",
            Severity::Warning,
            format!(
                "avg_over_time({POOL_UTILIZATION}[1d]) < {low_day} and count_over_time({POOL_UTILIZATION}[1d]) >= {measured}"
            ),
            SETTLED,
            format!(
                "GPUs of pool {{{{ $labels.pool }}}} were used to {{{{ $value | printf \"%.0f\" }}}}% over the last day, below {low_day}%"
            ),
            "A whole day of low use means a wrong size, not a quiet night. Lower minNodes and the replicas, allow smaller \
             GPUs (gpu.models, instanceTypes), or share them (sharing:). stoker offers shows what each would cost.",
        ),
        alert(
            "StokerGpuUtilizationHigh",
            Severity::Info,
            format!("avg_over_time({POOL_UTILIZATION}{{workload!~\"training|batch\"}}[5m]) > {}", busy.0),
            STEADY,
            format!(
                "GPUs of pool {{{{ $labels.pool }}}} have been above {}% for {}: {{{{ $value | printf \"%.0f\" }}}}%",
                busy.0,
                promql_time(STEADY)
            ),
            "A node takes minutes to come, and a burst fills what is left before that. Serving at 60 to 80% leaves room: add replicas now \
             (the autoscaler then orders nodes), let the replicas follow a demand signal, or keep warm nodes (warmFloor: of the pool). \
             stoker plan --pool POOL --count 1 shows whether the pool can grow.",
        ),
        alert(
            "StokerGpuSaturated",
            Severity::Warning,
            // Training and batch are meant to be so: their GPUs are paid to be full.
            format!("avg_over_time({POOL_UTILIZATION}{{workload!~\"training|batch\"}}[5m]) > {high}"),
            *high_for,
            format!(
                "GPUs of pool {{{{ $labels.pool }}}} have been above {high}% for {}: requests queue",
                promql_time(*high_for)
            ),
            "Requests queue. Raise the replicas of what runs in the pool; if its pods stay pending, stoker plan --pool POOL --count 1 says \
             which limit stops growth (maxNodes, a budget, a quota, no stock). Or allow a faster GPU (gpu.models).",
        ),
        alert(
            "StokerGpuMemoryHigh",
            Severity::Info,
            format!("max by (node, pool, workload) ({MEMORY_USED}) > {}", ratio(*memory)),
            STEADY,
            format!("GPU memory of {{{{ $labels.node }}}} (pool {{{{ $labels.pool }}}}) is {SHARE} full"),
            "Little is left before out-of-memory errors. Servers that reserve memory ahead (vLLM takes 90% by default) \
             always look like this: raise --memory-high for them. Otherwise smaller batches or context, more GPUs for a \
             model, or a GPU with more memory: stoker fit tells which hold the model.",
        ),
        alert(
            "StokerPodsWithoutGpu",
            Severity::Info,
            "max by (pool) (stoker_pods_without_gpu) > 0",
            SignedDuration::from_mins(30),
            "Pods that request no GPU on GPU nodes of pool {{ $labels.pool }}: {{ $value }}",
            "They take CPU and memory from GPU pods, and keep the autoscaler from removing a node that nothing else uses; \
             stoker_pods_without_gpu_usd_per_hour says what such nodes cost. stoker groups lists the pods, and each has an Event \
             NoGpuOnGpuNode. Remove their toleration of GPU nodes, or give them nodes of their own by a nodeSelector. Pods of DaemonSets \
             and of kube-system are not counted.",
        ),
        alert(
            "StokerTrainingSmLow",
            Severity::Info,
            format!(
                "avg by (pool, workload) (avg_over_time({SM_ACTIVE}{{workload=\"training\"}}[15m]) \
                 and on (node, gpu, UUID) {UTILIZATION} >= {}) < {}",
                idle_below.0,
                ratio(*training_sm)
            ),
            SignedDuration::from_mins(30),
            format!(
                "Training in pool {{{{ $labels.pool }}}} keeps {SHARE} of the multiprocessors at work, below {training_sm}"
            ),
            "The GPUs are allocated, and wait: for data, for each other, or for small kernels. Look at the loader first \
             (more workers, data in the region: where.dataRegion), then at the batch size and mixed precision, then at the \
             network between nodes. If it cannot be improved, a cheaper GPU does the same work.",
        ),
        alert(
            "StokerGpuHoursIdle",
            Severity::Warning,
            format!(
                "sum_over_time({POOL_IDLE}[1d]) / sum_over_time({POOL_MEASURED}[1d]) > {} and count_over_time({POOL_MEASURED}[1d]) \
                 >= {measured}",
                ratio(*idle_hours)
            ),
            SETTLED,
            format!("{SHARE} of the last day's GPU-hours of pool {{{{ $labels.pool }}}} were idle, above {idle_hours}"),
            "Hours in which a GPU stayed below the idle threshold for five minutes, as a share of measured hours. Shorten \
             what keeps idle nodes: the autoscaler's --scale-down-unneeded-time, minNodes, pods that hold a GPU overnight \
             (StokerGpuIdle names their nodes).",
        ),
    ]
}

fn health_of_gpus(thresholds: &Thresholds) -> Vec<Rule> {
    let Thresholds { hot_celsius, power, power_low, busy, training_sm, silent_for, .. } = thresholds;
    // Newer exporters have the limit that the driver enforces; in others the owner's is near enough.
    let [power_draw, enforced, asked] =
        [Level::Power, Level::PowerLimit, Level::PowerLimitAsked].map(|level| either(level, ""));
    let draw = format!("{power_draw} / ({enforced} or {asked})");
    let codes = |wanted: &[XidClass]| {
        let of = (1..XIDS).filter(|code| wanted.contains(&XidClass::of(*code))).map(|code| code.to_string());
        of.collect::<Vec<_>>().join("|")
    };
    let grave = codes(&[XidClass::Drain, XidClass::Replace]);
    let harmless = codes(&[XidClass::Informational, XidClass::Application]);
    let on = "GPU {{ $labels.gpu }} of {{ $labels.node }} (pool {{ $labels.pool }})";
    vec![
        alert(
            "StokerGpuHot",
            Severity::Warning,
            with_pool(&format!("{} > {hot_celsius}", level(Level::Temperature))),
            SignedDuration::from_mins(5),
            format!("{on} is at {{{{ $value | printf \"%.0f\" }}}} C, above {hot_celsius} C"),
            "The card slows down soon, or does already. In a cloud it is the provider's fan or neighbour: move the work \
             (kubectl drain), delete the node, and report the instance. On your own machines see to the cooling, or lower \
             the power limit (nvidia-smi -pl).",
        ),
        alert(
            "StokerGpuPowerHigh",
            Severity::Info,
            with_pool(&format!("{} > {}", dcgm(&draw), ratio(*power))),
            STEADY,
            format!("{on} draws {SHARE} of its enforced power limit, above {power}"),
            "At the limit the driver lowers the clocks. For compute-bound work that is expected; if it is slower than on \
             other nodes, compare the limits (nvidia-smi -q -d POWER): one may have been lowered.",
        ),
        alert(
            "StokerGpuPowerLow",
            Severity::Info,
            // Of a split GPU one instance may be busy while the board is not; and where many multiprocessors work, memory is what they wait for.
            with_pool(&format!(
                "{} < {} and on (node, gpu, UUID) {UTILIZATION} > {} unless on (node, gpu, UUID) {INSTANCE_ACTIVE} \
                 unless on (node, gpu, UUID) {SM_ACTIVE} >= {}",
                dcgm(&draw),
                ratio(*power_low),
                busy.0,
                ratio(*training_sm)
            )),
            STEADY,
            format!("{on} is busy and draws {SHARE} of its enforced power limit, below {power_low}"),
            "Utilization counts the time in which any kernel runs, not the work that it does. Look at SM activity and memory \
             bandwidth. Larger batches, 16 or 8 bits and fused kernels use more of the card; where bandwidth is low too, a \
             smaller GPU may do (stoker advise).",
        ),
        alert(
            "StokerGpuXid",
            Severity::Critical,
            format!("{XID}{{xid=~\"{grave}\"}}"),
            SignedDuration::ZERO,
            format!("{on} reported XID {{{{ $labels.xid }}}}: it needs a reset or another machine"),
            "By NVIDIA's catalogue what runs on this GPU is lost or about to be. Cordon the node (kubectl cordon), let its pods end or drain \
             it, and delete it: the autoscaler asks for another. The metric keeps the last XID until its exporter restarts, and so does this \
             alert. A node whose successor shows the same has a fault that is not the machine's.",
        ),
        alert(
            "StokerGpuXidSuspect",
            Severity::Warning,
            format!("{XID}{{xid!~\"{grave}|{harmless}\"}}"),
            SignedDuration::ZERO,
            format!("{on} reported XID {{{{ $labels.xid }}}}: look again"),
            "It may pass, or be the first of several. Look at dmesg and nvidia-smi -q on the node for remapped rows, ECC \
             errors and a pending reset; a second one within a day, or a recovery action that the driver asks for: treat it \
             like StokerGpuXid. XIDs that the application causes do not fire this alert.",
        ),
        alert(
            "StokerNodesUnhealthy",
            Severity::Warning,
            "max by (pool) (stoker_verdict_nodes{verdict=\"unhealthy\"}) > 0",
            STEADY,
            format!(
                "Nodes of pool {{{{ $labels.pool }}}} that have been unhealthy for {}: {{{{ $value }}}}",
                promql_time(STEADY)
            ),
            "They take no new pods and cost what they did. stoker nodes names each with its reason, and the pool's \
             unhealthy.action decides what happens: a cordoned node stays until somebody looks, others are replaced when \
             their pods are done or drained. If it should have been replaced, an Event ReplacementsStopped says that more \
             nodes failed than unhealthy.maxReplacements allows: the new driver or image may be at fault, so look at those \
             before you raise it.",
        ),
        alert(
            "StokerTemplateTooLarge",
            Severity::Warning,
            "max by (pool, instance_type) (stoker_template_too_large) > 0",
            SignedDuration::ZERO,
            "Nodes of type {{ $labels.instance_type }} in pool {{ $labels.pool }} leave less to pods than their template promised",
            "Pods that ask for all that the template promised do not fit such a node, and the autoscaler buys one for them \
             again and again. Stoker promises no more than the last node had from now on. The Event NodeSmallerThanPromised \
             says what is missing. Correct the reserves or the disk of the image or the node class; the alert ends when a \
             new node has what its template promises.",
        ),
        alert(
            "StokerProbesSilent",
            Severity::Warning,
            format!(
                "count by (pool, workload) (max by (node, pool, workload) (stoker_node_info) unless on (node) {}) \
                 and on () count(max_over_time({POOL_MEASURED}[1d]))",
                level(Level::MemoryUsed)
            ),
            *silent_for,
            "Nodes of pool {{ $labels.pool }} that send no GPU readings: {{ $value }}",
            "The activity of their GPUs is unknown: they count neither as idle nor as busy. See whether the probe runs \
             there: kubectl -n stoker-probe get pods -o wide. Pending: its tolerations and affinity. Running: its log says \
             why NVML does not answer (no driver, no runtimeClassName nvidia, a GPU off the bus); its metrics must carry the \
             Node's name in the label Hostname.",
        ),
    ]
}

fn money(thresholds: &Thresholds) -> Vec<Rule> {
    let Thresholds { training_spot, unit_cost_rise, pace, price_age, .. } = thresholds;
    let gpus = |more: &str| format!("sum by (pool) (avg_over_time(stoker_gpus{{workload=\"training\"{more}}}[1d]))");
    let unit =
        |offset: &str| format!("(sum_over_time({POOL_SPEND}[1d]{offset}) / (sum_over_time({POOL_BUSY}[1d]{offset}) > 0))");
    let old = |kind: &str, age: SignedDuration| {
        format!("max by (pool, kind) (stoker_price_age_seconds{{kind=\"{kind}\"}}) > {}", age.as_secs())
    };
    vec![
        alert(
            "StokerTrainingSpotShareLow",
            Severity::Info,
            format!("{} / {} < {}", gpus(",capacity_type=\"spot\""), gpus(""), ratio(*training_spot)),
            SETTLED,
            format!(
                "{SHARE} of the training GPUs of pool {{{{ $labels.pool }}}} were spot over the last day, below {training_spot}"
            ),
            "Training that saves checkpoints costs half or less on spot. Name spot first in capacity.prefer, say how often the jobs save \
             (capacity.spot.checkpoint), widen zones, regions and models so that more markets are open, and let on-demand nodes go when spot is \
             back (capacity.spot.returnToSpot). stoker plan --pool POOL --count 1 says why spot was not taken.",
        ),
        alert(
            "StokerUnitCostUp",
            Severity::Warning,
            format!("{} / {} > 1 + {}", unit(""), unit(" offset 7d"), hundredths(*unit_cost_rise)),
            SETTLED,
            "A busy GPU-hour of pool {{ $labels.pool }} costs {{ $value | printf \"%.2f\" }} times what it cost a week ago",
            "Cost of the pool's nodes divided by the GPU-hours that pods had, for the last day against the same a week \
             before. Either fewer of the GPUs are in use (StokerGpuHoursIdle), or they cost more: the dashboard's cost by \
             capacity type shows a move from spot or reserved to on-demand, stoker offers a price that rose.",
        ),
        alert(
            "StokerSpendPace",
            Severity::Warning,
            format!(
                "max by (scope, pool) (avg_over_time(stoker_budget_spend_usd_per_hour[1d])) \
                 / max by (scope, pool) (stoker_budget_limit_usd_per_hour) > {}",
                ratio(*pace)
            ),
            SETTLED,
            format!(
                "The last day spent {SHARE} of the budget of {{{{ with $labels.pool }}}}pool {{{{ . }}}}{{{{ else }}}}all pools{{{{ end }}}}"
            ),
            "From 90% of a budget on, pools that may buy spot buy only spot; at the limit nothing is bought, and pods wait. \
             Raise limits.maxUsdPerHour, or lower what is spent: StokerGpuIdle, spot first, a commitment (stoker commit).",
        ),
        alert(
            "StokerPricesStale",
            Severity::Warning,
            [
                old("list", *price_age),
                old("spot", SPOT_QUOTE_LIFE),
                old("live", LIVE_QUOTE_LIFE),
                old("simulated", LIVE_QUOTE_LIFE),
            ]
            .join(" or "),
            SETTLED,
            "The oldest {{ $labels.kind }} price of pool {{ $labels.pool }} is {{ $value | humanizeDuration }} old",
            "An old list price is still used, and may be wrong; an expired spot or live price is not, so nothing is bought \
             from its market. Update Stoker for newer tables, or write the price under prices: in the policy. A live price \
             that ages: the log says why its supplier does not answer.",
        ),
    ]
}

fn supply(thresholds: &Thresholds) -> Vec<Rule> {
    let Thresholds { quota, floor_for, .. } = thresholds;
    let by = "max by (quota, cloud, region, unit)";
    vec![
        alert(
            "StokerFloorUnmet",
            Severity::Warning,
            "max by (pool) (stoker_floor_missing_nodes) > 0",
            *floor_for,
            format!(
                "Pool {{{{ $labels.pool }}}} has lacked {{{{ $value }}}} nodes of its floor for {}",
                promql_time(*floor_for)
            ),
            "Nodes of minNodes or of the warm floor are missing. stoker groups says what stops a warm floor, stoker plan \
             --pool POOL --count 1 what stops growth (no stock, a quota, a budget). If nothing does, the autoscaler does not \
             request them: it needs --enforce-node-group-min-size, and must be able to reach Stoker (/readyz).",
        ),
        alert(
            "StokerQuotaNearLimit",
            Severity::Warning,
            format!("{by} (stoker_quota_used) / {by} (stoker_quota_limit) > {}", ratio(*quota)),
            STEADY,
            format!(
                "{SHARE} of quota {{{{ $labels.quota }}}} ({{{{ $labels.cloud }}}} {{{{ $labels.region }}}}) is used, above {quota}"
            ),
            "Growth stops when it is full. Ask the cloud for more now: it takes days. Then write the new limit under quotas: in the policy. \
             stoker plan shows what a higher limit would gain; meanwhile other regions or models widen supply.",
        ),
    ]
}

/// What is the matter with Stoker itself and with what it hears.
fn stoker_itself(thresholds: &Thresholds) -> Vec<Rule> {
    vec![
        alert(
            "StokerConsistencyCheckFailed",
            Severity::Critical,
            "max by (pool, fault) (stoker_consistency_fault) > 0",
            SignedDuration::ZERO,
            "Internal consistency check failed for {{ with $labels.pool }}pool {{ . }}{{ else }}the fleet{{ end }} ({{ $labels.fault }}); \
             scale-up is paused",
            "Stoker would have broken a promise of its own (a limit, a quota, a budget, an ending of a busy node), and paused what is \
             concerned: no purchases, no moves to spot, no replacements. Drains of reclaimed nodes, holds and the autoscaler's deletions go \
             on, and other pools are not touched unless it is the fleet. /readyz, stoker groups and the Event ConsistencyCheckFailed on \
             Stoker's Deployment name the decision; stoker explain DECISION shows it. It is a defect of Stoker: report it with that output. A \
             change of the policy that is named in the message (a limit, a quota) may end it meanwhile.",
        ),
        alert(
            "StokerJournalFault",
            Severity::Critical,
            "max by (fault) (stoker_journal_fault) > 0",
            SignedDuration::ZERO,
            "Stoker's journal needs attention: {{ $labels.fault }}",
            "unwritable: orders are refused; nodes at work are held and reclaimed nodes drained, and nothing else is done. /readyz says why: \
             mostly a full disk, so free space in the state directory. reserve-used: the disk is full, readings of GPUs are no longer kept, \
             and the journal lives on its reserve: free space before orders are refused. lost: the journal was lost, cut or replaced; for ten \
             minutes nothing is ended or drained but what the cloud takes. Find out what happened to the volume, and whether a backup is \
             better (stoker restore). damaged: a part of the file is broken; make a backup (stoker backup), see to the disk, restore.",
        ),
        alert(
            "StokerAway",
            Severity::Critical,
            "absent(stoker_build_info)",
            SignedDuration::from_mins(5),
            "Stoker has not been seen for 5 minutes: no node is bought, and no other alert about GPUs can fire",
            "Either Stoker is down or Prometheus does not find it. kubectl -n stoker get pods, then its log; if it runs, the ServiceMonitor or \
             PodMonitor of manifests/monitoring, and the labels by which your Prometheus selects monitors.",
        ),
        alert(
            "StokerPassesFailing",
            Severity::Critical,
            "sum(increase(stoker_passes_total{result=\"done\"}[2m])) == 0",
            SignedDuration::from_mins(1),
            "Stoker has made no sound decision for 2 minutes",
            "It makes one every 10 s. stoker_passes_total tells which kind: refused, the consistency check found a fault \
             (StokerConsistencyCheckFailed names the pool); failed, the journal cannot be written (StokerJournalFault); neither, something \
             that every decision needs is missing, and /readyz names it: a supplier that does not answer, or a broken watch of the cluster. \
             Meanwhile nodes that are there keep running. Orders wait or are refused.",
        ),
        alert(
            "StokerFeedOld",
            Severity::Critical,
            format!("max by (feed) (stoker_feed_age_seconds) > {}", STALE_INVENTORY.as_secs()),
            SignedDuration::from_mins(1),
            "Stoker has heard nothing new from {{ $labels.feed }} for {{ $value | humanizeDuration }}",
            "It asks on and on, and no restart is needed once there is an answer. The log says what goes wrong. supplier: nothing is bought \
             or ended there; see the cloud's status page, the credentials and the network. kubernetes: it is unknown which nodes are in use, so \
             none is ended; see the API server and Stoker's rights. prometheus: levels of GPUs become unknown, which ends no node; see \
             --prometheus-url, its token and its certificate.",
        ),
        alert(
            "StokerAutoscalerSilent",
            Severity::Critical,
            // A method that was never called has no series.
            "sum(increase(stoker_rpc_requests_total{method=\"Refresh\"}[5m]) or 0 * stoker_build_info) == 0",
            SignedDuration::from_mins(5),
            "No autoscaler has called Stoker for 10 minutes: no node is ordered or removed",
            "An autoscaler calls every 10 s. See whether it runs (kubectl -n kube-system get pods), then its log: certificates that do not \
             match, a wrong address in --cloud-config, a NetworkPolicy. Then Stoker's: stoker_handshakes_refused_total counts clients whose \
             certificate was refused. stoker doctor checks the flags.",
        ),
        alert(
            "StokerPolicyRejected",
            Severity::Warning,
            "max(stoker_policy_faults) > 0",
            SignedDuration::from_mins(5),
            "The policy file has {{ $value }} faults and is not in use: the last good policy is",
            "What was changed has no effect, and a restart would fail. /readyz and the log name each fault with its line; stoker policy check \
             FILE shows them before you apply a file.",
        ),
        alert(
            "StokerSteeringFailed",
            Severity::Warning,
            "max(stoker_steering_faults) > 0",
            SignedDuration::from_mins(10),
            "{{ $value }} objects of Karpenter's are not steered as the policy says",
            "Karpenter goes on by what was written last, or by its own. Events SteeringFailed (kubectl get events -A) and the log name each \
             object, why, and what to do: a right that is missing, a NodePool that somebody else rewrites (GitOps), one whose types no price \
             table has.",
        ),
        alert(
            "StokerDiskLow",
            Severity::Warning,
            "min(stoker_state_disk_free_bytes / stoker_state_disk_size_bytes) < 0.1",
            STEADY,
            format!("{SHARE} of the disk of Stoker's state directory is free"),
            "When it is full, readings are dropped first, then orders are refused (StokerJournalFault). Give the volume more space, or keep \
             decisions for a shorter time (--retention). On a disk that others share, see who fills it.",
        ),
        alert(
            "StokerCertificateExpires",
            Severity::Warning,
            "min by (listener) (stoker_certificate_expiry_timestamp_seconds) - time() < 7 * 86400",
            SETTLED,
            "The certificate of Stoker's {{ $labels.listener }} listener expires in {{ $value | humanizeDuration }}",
            "Once it has expired, no client of that listener connects. Renew it: stoker certs, or whatever made it, and put the files in its \
             place (such as Secret stoker-tls); they are read again without a restart. If that was done, /readyz says why they are rejected. The \
             clients' certificates mostly expire with it: renew them too.",
        ),
        alert(
            "StokerReadingsStopped",
            Severity::Warning,
            "max(stoker_probe_silent_nodes) > 0",
            thresholds.silent_for,
            format!(
                "Nodes whose readings have not reached Stoker for {}: {{{{ $value }}}}",
                promql_time(thresholds.silent_for)
            ),
            "What their GPUs do is unknown to Stoker: they are not released early, and a reclaim that only the probe hears of is missed. \
             stoker nodes shows which. See the probe's log on that node (kubectl -n stoker-probe get pods -o wide) for why it cannot connect: \
             its token, the CA, a NetworkPolicy to port 8089. Where readings come from Prometheus: StokerProbesSilent.",
        ),
    ]
}
