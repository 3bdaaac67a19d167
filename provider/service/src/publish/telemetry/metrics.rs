//! What is counted and timed as it happens, and the one way to do it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use stoker_core::base::ids::{NodeName, PoolName};
use stoker_core::market::offer::CapacityType;
use stoker_core::plan::JournalFault;
use tokio::sync::watch;

use super::fleet::Fleet;
use super::fleet::opencost::OpenCost;
use super::labels::{
    Certificate, DecisionKind, DeleteRefusal, LaunchResult, Method, OrderResult, OrderSource, PassResult, ReclaimSource,
    RpcCode,
};
use super::published::{Feed, Published, View};
use crate::clock::Clock;
use crate::kube::feed::GpuPods;

/// Label names with values from the enums of `labels`, so that no client can make a time series.
type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// From a look-up in a published view (tens of microseconds) to the autoscaler's deadline of 5 s.
fn rpc_buckets() -> Histogram {
    Histogram::new([0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0])
}

/// Around the 20 ms that a pass over 5,000 nodes may take.
fn pass_buckets() -> Histogram {
    Histogram::new([0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
}

/// From a fast image to the longest driver installation.
fn boot_buckets() -> Histogram {
    Histogram::new([15.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 450.0, 600.0, 900.0, 1_800.0])
}

/// From a machine that boots at once to an order that waits for stock for hours.
fn supply_buckets() -> Histogram {
    Histogram::new([30.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 450.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0])
}

/// From an image that is on the node to one of tens of gigabytes.
fn start_buckets() -> Histogram {
    Histogram::new([2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1_200.0])
}

/// What `stoker_leader` says, which a replica that waits shows too.
pub const LEADER: &str = "1 of the replica that supplies nodes, 0 of one that waits to";

/// Every metric. A clone counts into the same ones.
#[derive(Debug, Clone)]
pub struct Metrics {
    rpcs: Counters<2>,
    rpc_duration: Histograms<Labels<2>>,
    handshakes_refused: Counter,
    connections_refused: Counter,
    passes: Counters<1>,
    pass_duration: Histogram,
    decisions: Counters<1>,
    launches: Counters<2>,
    orders: Counters<2>,
    deletes_refused: Counters<1>,
    boot_duration: Histograms<[(&'static str, String); 1]>,
    pod_start_duration: Histograms<[(&'static str, String); 1]>,
    supply_duration: Histograms<[(&'static str, String); 1]>,
    reclaims: Family<[(&'static str, String); 2], Counter>,
    guests: Family<[(&'static str, String); 1], Gauge>,
    policy_reloads: Counters<1>,
    without_effect: Gauge,
    policy_faults: Gauge,
    steering_faults: Gauge,
    journal_fault: Family<Labels<1>, Gauge>,
    policy_loaded: Gauge<f64, AtomicU64>,
    certificate_fault: Family<Labels<1>, Gauge>,
    certificate_expiry: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    published: Published,
}

impl Metrics {
    /// Makes the metrics and registers them, all named `stoker_…`.
    pub fn register(registry: &mut Registry) -> Self {
        Self::register_by(registry, Clock::system())
    }

    /// The same, where ages are told by `clock`.
    pub fn register_by(registry: &mut Registry, clock: Clock) -> Self {
        let metrics = Self {
            rpcs: Family::default(),
            rpc_duration: Family::new_with_constructor(rpc_buckets),
            handshakes_refused: Counter::default(),
            connections_refused: Counter::default(),
            passes: Family::default(),
            pass_duration: pass_buckets(),
            decisions: Family::default(),
            launches: Family::default(),
            orders: Family::default(),
            deletes_refused: Family::default(),
            boot_duration: Family::new_with_constructor(boot_buckets),
            pod_start_duration: Family::new_with_constructor(start_buckets),
            supply_duration: Family::new_with_constructor(supply_buckets),
            reclaims: Family::default(),
            guests: Family::default(),
            policy_reloads: Family::default(),
            without_effect: Gauge::default(),
            policy_faults: Gauge::default(),
            steering_faults: Gauge::default(),
            journal_fault: Family::default(),
            policy_loaded: Gauge::default(),
            certificate_fault: Family::default(),
            certificate_expiry: Family::default(),
            published: Published::new(clock),
        };
        metrics.register_all(registry.sub_registry_with_prefix("stoker"));
        metrics.start_at_nought();
        metrics
    }

    fn register_all(&self, registry: &mut Registry) {
        fn plain(registry: &mut Registry, name: &str, help: &str, metric: &(impl Metric + Clone)) {
            registry.register(name, help, metric.clone());
        }
        fn seconds(registry: &mut Registry, name: &str, help: &str, metric: &(impl Metric + Clone)) {
            registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
        }
        plain(
            registry,
            "rpc_requests",
            "Calls ended, by method and gRPC code; `cancelled` ones were abandoned by the client",
            &self.rpcs,
        );
        seconds(registry, "rpc_duration", "Time from a call's arrival to its last byte", &self.rpc_duration);
        plain(
            registry,
            "handshakes_refused",
            "Connections refused because their TLS handshake failed or took too long",
            &self.handshakes_refused,
        );
        plain(
            registry,
            "connections_refused",
            "Connections refused or closed because a listener, or one address there, had too many",
            &self.connections_refused,
        );
        plain(registry, "passes", "Passes of the decision loop, by how they ended", &self.passes);
        seconds(registry, "pass_duration", "Time that a pass of the decision loop took", &self.pass_duration);
        plain(registry, "decisions", "Actions decided, by kind", &self.decisions);
        plain(registry, "launches", "Launches ended, by capacity type and result", &self.launches);
        plain(registry, "orders", "Orders of nodes, by who ordered and whether it was accepted", &self.orders);
        plain(registry, "deletes_refused", "Deletions of nodes refused, by reason", &self.deletes_refused);
        seconds(
            registry,
            "node_boot_duration",
            "Time from the launch of a machine until its Node was Ready, by pool",
            &self.boot_duration,
        );
        seconds(
            registry,
            "node_supply_duration",
            "Time from the order of a node until it was Ready, by pool: the search for stock and the boot",
            &self.supply_duration,
        );
        seconds(
            registry,
            "pod_start_duration",
            "Time from the scheduling of a GPU pod until all its containers ran, by pool: mostly the pull of images",
            &self.pod_start_duration,
        );
        plain(
            registry,
            "reclaims",
            "Machines that the cloud reclaimed, by pool and by who announced it; `nobody` for spot machines that were gone",
            &self.reclaims,
        );
        plain(registry, "pods_without_gpu", "Pods without a GPU request on GPU nodes, by pool", &self.guests);
        plain(registry, "policy_reloads", "Policy files read, by whether they were accepted", &self.policy_reloads);
        plain(
            registry,
            "actions_without_effect",
            "Terminations and changes to Nodes that were done ten times or more and still have to be done",
            &self.without_effect,
        );
        plain(
            registry,
            "policy_faults",
            "Errors in the policy file on disk; above zero, the last good policy is in use",
            &self.policy_faults,
        );
        plain(
            registry,
            "steering_faults",
            "Objects of Karpenter's that are not steered as the policy says; the log names each, and Events do",
            &self.steering_faults,
        );
        plain(
            registry,
            "journal_fault",
            "1 while the journal cannot be written, lives on its reserve of disk, was lost a moment ago, or is damaged",
            &self.journal_fault,
        );
        seconds(
            registry,
            "policy_last_load_timestamp",
            "When the policy in use was accepted, in Unix time",
            &self.policy_loaded,
        );
        plain(
            registry,
            "certificate_fault",
            "1 while a listener's certificate files are rejected or its certificate is not valid",
            &self.certificate_fault,
        );
        seconds(
            registry,
            "certificate_expiry_timestamp",
            "When a listener's certificate expires, in Unix time",
            &self.certificate_expiry,
        );
        let leads: Gauge = Gauge::default();
        leads.set(1);
        registry.register("leader", LEADER, leads);
        registry.register("build", "Build information", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register_collector(Box::new(self.published.clone()));
    }

    /// Closed sets are there from the start: a rate over a series that begins with its first event misses that event.
    fn start_at_nought(&self) {
        for result in PassResult::ALL {
            drop(self.passes.get_or_create(&[("result", result.as_str())]));
        }
        for kind in DecisionKind::ALL {
            drop(self.decisions.get_or_create(&[("kind", kind.as_str())]));
        }
        for capacity in CapacityType::ALL {
            for result in LaunchResult::ALL {
                drop(self.launches.get_or_create(&launch(capacity, *result)));
            }
        }
        for source in OrderSource::ALL {
            for result in OrderResult::ALL {
                drop(self.orders.get_or_create(&[("source", source.as_str()), ("result", result.as_str())]));
            }
        }
        for reason in DeleteRefusal::ALL {
            drop(self.deletes_refused.get_or_create(&[("reason", reason.as_str())]));
        }
        for fault in JournalFault::ALL {
            self.journal(fault, false);
        }
        for result in ["ok", "fault"] {
            drop(self.policy_reloads.get_or_create(&[("result", result)]));
        }
    }

    /// A call has ended.
    pub fn rpc(&self, method: Method, code: RpcCode, took: Duration) {
        let labels = [("method", method.as_str()), ("code", code.as_str())];
        self.rpcs.get_or_create(&labels).inc();
        self.rpc_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Where a listener counts the handshakes that it refuses.
    pub fn handshakes_refused(&self) -> Counter {
        self.handshakes_refused.clone()
    }

    /// Where a listener counts the connections that were too many.
    pub fn connections_refused(&self) -> Counter {
        self.connections_refused.clone()
    }

    /// A pass of the loop has ended.
    pub fn pass(&self, result: PassResult, took: Duration) {
        self.passes.get_or_create(&[("result", result.as_str())]).inc();
        self.pass_duration.observe(took.as_secs_f64());
    }

    /// So many actions of a kind were decided.
    pub fn decided(&self, kind: DecisionKind, count: u64) {
        self.decisions.get_or_create(&[("kind", kind.as_str())]).inc_by(count);
    }

    /// A launch has ended.
    pub fn launched(&self, capacity: CapacityType, result: LaunchResult) {
        self.launches.get_or_create(&launch(capacity, result)).inc();
    }

    /// Nodes were ordered.
    pub fn ordered(&self, source: OrderSource, result: OrderResult) {
        self.orders.get_or_create(&[("source", source.as_str()), ("result", result.as_str())]).inc();
    }

    /// A deletion was refused.
    pub fn delete_refused(&self, reason: DeleteRefusal) {
        self.deletes_refused.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// A node of `pool` was Ready for the first time, so long after its launch.
    pub fn booted(&self, pool: &PoolName, took: Duration) {
        self.boot_duration.get_or_create(&[("pool", pool.to_string())]).observe(took.as_secs_f64());
    }

    /// All containers of a GPU pod on a node of `pool` ran, so long after it was scheduled.
    pub fn pod_started(&self, pool: &PoolName, took: Duration) {
        self.pod_start_duration.get_or_create(&[("pool", pool.to_string())]).observe(took.as_secs_f64());
    }

    /// An ordered node of `pool` was Ready for the first time, so long after its order.
    pub fn supplied(&self, pool: &PoolName, took: Duration) {
        self.supply_duration.get_or_create(&[("pool", pool.to_string())]).observe(took.as_secs_f64());
    }

    /// So many machines of `pool` were reclaimed.
    pub fn reclaimed(&self, pool: &PoolName, source: ReclaimSource, machines: u64) {
        let labels = [("pool", pool.to_string()), ("source", source.as_str().to_owned())];
        self.reclaims.get_or_create(&labels).inc_by(machines);
    }

    /// So many pods without GPU sit on the nodes of each pool; a pool that is not among them is gone from the next scrape. `nodes` are those
    /// that they sit on.
    pub fn guests(&self, by_pool: &BTreeMap<PoolName, u32>, nodes: BTreeSet<NodeName>) {
        self.published.guests(nodes);
        self.guests.clear();
        for (pool, pods) in by_pool {
            self.guests.get_or_create(&[("pool", pool.to_string())]).set(i64::from(*pods));
        }
    }

    /// So many actions have no effect.
    pub fn without_effect(&self, actions: usize) {
        self.without_effect.set(i64::try_from(actions).unwrap_or(i64::MAX));
    }

    /// So many objects of Karpenter's are not steered as they should be.
    pub fn not_steered(&self, objects: usize) {
        self.steering_faults.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// A policy file was read and taken at `now`.
    pub fn policy_taken(&self, now: Timestamp) {
        self.policy_reloads.get_or_create(&[("result", "ok")]).inc();
        self.policy_faults.set(0);
        self.policy_loaded.set(unix(now));
    }

    /// A policy file was read and refused for so many faults.
    pub fn policy_refused(&self, faults: usize) {
        self.policy_reloads.get_or_create(&[("result", "fault")]).inc();
        self.policy_faults.set(i64::try_from(faults).unwrap_or(i64::MAX));
    }

    /// Whether that is wrong with the journal.
    pub fn journal(&self, fault: JournalFault, stands: bool) {
        self.journal_fault.get_or_create(&[("fault", fault.as_str())]).set(i64::from(stands));
    }

    /// How a listener's certificate stands.
    pub fn certificate(&self, of: Certificate, not_after: Option<Timestamp>, fault: bool) {
        let labels = [("listener", of.as_str())];
        self.certificate_fault.get_or_create(&labels).set(i64::from(fault));
        if let Some(end) = not_after {
            self.certificate_expiry.get_or_create(&labels).set(unix(end));
        }
    }

    /// Shows the age of a feed from now on: `newest` says when its newest facts were true, `None` before the first.
    pub fn follow(&self, feed: Feed, newest: impl Fn() -> Option<Timestamp> + Send + Sync + 'static) {
        self.published.follow(feed, newest);
    }

    /// How old the newest facts of each feed are; of one without facts, how long ago the process began.
    pub fn feed_ages(&self) -> Vec<(Feed, SignedDuration)> {
        self.published.feed_ages()
    }

    /// Replaces the gauges of groups, nodes and spending all at once: what is not in `view` is gone from the next scrape.
    pub fn publish(&self, view: View) {
        self.published.replace(view);
    }

    /// Shows costs and allocation under OpenCost's names as well, in the registry of all names; `pods` are the GPU pods. A pod has a series
    /// while it holds a node, so that there are never more of them than the nodes have GPUs or slices.
    pub fn opencost(&self, registry: &mut Registry, pods: Option<watch::Receiver<Arc<GpuPods>>>) {
        registry.register_collector(Box::new(OpenCost { published: self.published.clone(), pods }));
    }

    /// What the gauges of single nodes, GPUs, quotas and prices are worked out from at the next scrapes.
    pub fn fleet(&self, fleet: Fleet) {
        self.published.fleet(fleet);
    }
}

const fn launch(capacity: CapacityType, result: LaunchResult) -> Labels<2> {
    [("capacity_type", capacity.as_str()), ("result", result.as_str())]
}

fn unix(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}
