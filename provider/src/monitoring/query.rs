//! Pieces of queries that alerts and the dashboard share.

use jiff::SignedDuration;

/// How often the rules are evaluated. Figures over a day count samples, so it is part of what they mean.
pub const EVERY: SignedDuration = SignedDuration::from_mins(1);

/// A GPU's utilization in percent, by `node`, `gpu`, `UUID`, `pool` and `workload`.
pub(super) const UTILIZATION: &str = "stoker:gpu_utilization:percent";
/// Share of a GPU's streaming multiprocessors at work, from 0 to 1; the same labels.
pub(super) const SM_ACTIVE: &str = "stoker:gpu_sm_active:ratio";
/// Share of a GPU's memory in use, from 0 to 1; the same labels.
pub(super) const MEMORY_USED: &str = "stoker:gpu_memory_used:ratio";
/// 1 for each GPU with an XID, which is the label `xid`; otherwise the same labels.
pub(super) const XID: &str = "stoker:gpu_xid:info";
/// What one GPU of a node costs, by `node`.
pub(super) const GPU_PRICE: &str = "stoker:gpu_price:usd_per_hour";
/// Mean utilization of a pool's measured GPUs in percent, by `pool` and `workload`.
pub(super) const POOL_UTILIZATION: &str = "stoker:pool_gpu_utilization:percent";
/// A pool's GPUs of which anybody tells the utilization; the same labels.
pub(super) const POOL_MEASURED: &str = "stoker:pool_gpus_measured:count";
/// Those of them that are idle; the same labels.
pub(super) const POOL_IDLE: &str = "stoker:pool_gpus_idle:count";
/// What a pool's idle GPUs cost; the same labels.
pub(super) const POOL_IDLE_COST: &str = "stoker:pool_gpus_idle:usd_per_hour";
/// What a pool's nodes cost, by `pool`.
pub(super) const POOL_SPEND: &str = "stoker:pool_spend:usd_per_hour";
/// A pool's GPUs on nodes that pods hold, by `pool`.
pub(super) const POOL_BUSY: &str = "stoker:pool_gpus_busy:count";

/// A GPU exporter's metric, or what is reckoned from some of one exporter's, by `node`, `gpu` and `UUID`. The node is the label `Hostname`, in
/// newer exporters `hostname`. Where there are several of one GPU (its instances, an exporter beside the probe, a copy for each pod that
/// shares it) the highest counts: they are never added.
pub(super) fn dcgm(metric: &str) -> String {
    format!(
        "max by (node, gpu, UUID) (label_replace(label_replace({metric}, \"node\", \"$1\", \"Hostname\", \"(.+)\"), \
         \"node\", \"$1\", \"hostname\", \"(.+)\"))"
    )
}

/// A query by `node`, with the pool and workload of the node; nodes that are not Stoker's fall out.
pub(super) fn with_pool(query: &str) -> String {
    format!("({query}) * on (node) group_left (pool, workload) max by (node, pool, workload) (stoker_node_info)")
}

/// What tells idle GPUs: those whose highest utilization of five minutes is below so many percent, as the last value is of a fraction of a
/// second. With `bool` it is 0 or 1 for each GPU. One that nobody measures any more is no longer idle, but unknown.
pub(super) fn idle(below: u8, bool: &str) -> String {
    format!("(max_over_time({UTILIZATION}[5m]) <{bool} {below} and {UTILIZATION})")
}

/// How many samples of a rule a day has at least where half of it or more was measured.
pub(super) fn half_a_day() -> i64 {
    SignedDuration::from_hours(12).as_secs() / EVERY.as_secs().max(1)
}
