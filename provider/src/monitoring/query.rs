//! Pieces of queries that alerts and the dashboard share.

use jiff::SignedDuration;
use stoker_core::base::units::Percent;

use stoker_service::feeds::prometheus::dcgm::{Level, either};

/// How often the rules are evaluated. Figures over a day count samples, so it is part of what they mean.
pub const EVERY: SignedDuration = SignedDuration::from_mins(1);

/// A GPU's utilization in percent, by `node`, `gpu`, `UUID`, `pool` and `workload`.
pub(super) const UTILIZATION: &str = "stoker:gpu_utilization:percent";
/// Share of a GPU's streaming multiprocessors at work, from 0 to 1; the same labels.
pub(super) const SM_ACTIVE: &str = "stoker:gpu_sm_active:ratio";
/// Share of a MIG instance's time or multiprocessors at work, from 0 to 1; the same labels and `GPU_I_ID`.
pub(super) const INSTANCE_ACTIVE: &str = "stoker:gpu_instance_active:ratio";
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

/// Series of MIG instances.
const OF_INSTANCES: &str = "{GPU_I_ID!=\"\"}";

/// A GPU exporter's metric, or what is reckoned from some of one exporter's, by `node`, `gpu` and `UUID`. The node is the label `Hostname`, in
/// newer exporters `hostname`; the UUID may be in small letters. Where there are several of one GPU (its instances, an exporter beside the
/// probe, a copy for each pod that shares it) the highest counts: they are never added.
pub(super) fn dcgm(metric: &str) -> String {
    dcgm_by("node, gpu, UUID", metric)
}

fn dcgm_by(labels: &str, metric: &str) -> String {
    let renamed = [("node", "Hostname"), ("node", "hostname"), ("UUID", "uuid")];
    let all = renamed
        .into_iter()
        .fold(metric.to_owned(), |query, (to, from)| format!("label_replace({query}, \"{to}\", \"$1\", \"{from}\", \"(.+)\")"));
    format!("max by ({labels}) ({all})")
}

/// One level of each GPU, by the old and the new name that DCGM has for it.
pub(super) fn level(level: Level) -> String {
    dcgm(&either(level, ""))
}

/// What tells a GPU's utilization in percent. Of a split GPU the driver tells none, and its busiest instance stands for it: by its engine,
/// or else by its multiprocessors, which is all that the probe can read.
pub(super) fn utilization() -> String {
    let (whole, engine) = (level(Level::Utilization), level(Level::EngineActivity));
    let multiprocessors = dcgm(&either(Level::SmActivity, OF_INSTANCES));
    format!("{whole} or 100 * {engine} or 100 * {multiprocessors}")
}

/// What tells the activity of MIG instances, from 0 to 1, by `node`, `gpu`, `UUID` and `GPU_I_ID`: by their engine, or else by their
/// multiprocessors.
pub(super) fn instances() -> String {
    let [engine, multiprocessors] = [Level::EngineActivity, Level::SmActivity].map(|level| either(level, OF_INSTANCES));
    dcgm_by("node, gpu, UUID, GPU_I_ID", &format!("({engine} or {multiprocessors})"))
}

/// A query by `node`, with the pool and workload of the node; nodes that are not Stoker's fall out.
pub(super) fn with_pool(query: &str) -> String {
    format!("({query}) * on (node) group_left (pool, workload) max by (node, pool, workload) (stoker_node_info)")
}

/// What tells idle GPUs: those whose highest utilization of five minutes is below so many percent, as the last value is of a fraction of a
/// second. With `bool` it is 0 or 1 for each GPU. One that nobody measures any more is no longer idle, but unknown.
pub(super) fn idle(below: Percent, bool: &str) -> String {
    quiet(UTILIZATION, &below.0.to_string(), bool)
}

/// The same of MIG instances.
pub(super) fn idle_instances(below: Percent) -> String {
    quiet(INSTANCE_ACTIVE, &ratio(below), "")
}

fn quiet(series: &str, below: &str, bool: &str) -> String {
    format!("(max_over_time({series}[5m]) <{bool} {below} and {series})")
}

/// A share as Prometheus compares it: `0.85`.
pub(super) fn ratio(Percent(share): Percent) -> String {
    hundredths(share.into())
}

/// So many hundredths as Prometheus adds them: `2.50`.
pub(super) fn hundredths(number: u16) -> String {
    let (whole, rest) = (number / 100, number % 100);
    format!("{whole}.{rest:02}")
}

/// How many samples of a rule a day has at least where half of it or more was measured.
pub(super) fn half_a_day() -> i64 {
    SignedDuration::from_hours(12).as_secs() / EVERY.as_secs().max(1)
}
