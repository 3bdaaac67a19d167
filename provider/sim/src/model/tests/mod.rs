//! What a user of the real one could notice, told against a small correct supplier.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::base::units::MiB;

use super::cluster::Requests;
use super::*;
use supplier::Supplier;

mod cleanup;
mod coming;
mod day;
mod expander;
mod failures;
mod limits;
mod order;
mod scale_down;
mod scale_up;
mod skipping;
mod stock_out;
mod supplier;

const POOL: &str = "stoker.dev/pool";

/// Runs a future that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

fn secs(n: i64) -> SignedDuration {
    SignedDuration::from_secs(n)
}

fn mins(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

fn start() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().unwrap()
}

fn gpu_taint() -> Taint {
    Taint { key: "nvidia.com/gpu".into(), value: "true".into(), effect: TaintEffect::NoSchedule }
}

/// A pod of the pool with so many GPUs.
fn pod(name: &str, gpus: u32) -> PodSpec {
    PodSpec {
        id: format!("default/{name}"),
        requests: Requests { milli_cpu: 1000, memory: MiB::from_gib(4), gpus, ..Requests::default() },
        node_selector: [(POOL.to_owned(), "p".to_owned())].into(),
        node_affinity: BTreeMap::new(),
        tolerations: vec![Toleration::of_key("nvidia.com/gpu")],
        movable: true,
    }
}

/// An autoscaler, a supplier, a cluster and a clock.
struct Rig {
    ca: Autoscaler<Supplier, MemoryCluster>,
    now: Timestamp,
}

impl Rig {
    /// With these groups of one-GPU nodes, which may grow to 10.
    fn new(settings: Settings, groups: &[&str]) -> Self {
        let mut supplier = Supplier::default();
        for group in groups {
            supplier.add_group(group);
        }
        Self { ca: Autoscaler::new(supplier, MemoryCluster::new(Scoring::MostAllocated), settings), now: start() }
    }

    fn of(generation: Generation, groups: &[&str]) -> Self {
        Self::new(Settings::new(generation), groups)
    }

    fn supplier(&mut self) -> &mut Supplier {
        self.ca.provider_mut()
    }

    /// Creates so many pods with one GPU each.
    fn want(&mut self, names: &[&str]) {
        for name in names {
            self.ca.cluster_mut().add_pod(pod(name, 1), self.now);
        }
    }

    /// Lets so much time pass.
    fn wait(&mut self, time: SignedDuration) -> &mut Self {
        self.now += time;
        self
    }

    /// The scheduler runs, then one loop.
    fn step(&mut self) -> LoopReport {
        self.ca.cluster_mut().schedule();
        now(self.ca.run_once(self.now))
    }

    /// One loop after the time that a real one would wait, but never less than a second.
    fn next(&mut self) -> LoopReport {
        self.now = self.ca.next_scan(self.now);
        self.step()
    }

    /// Loops for so long; answers the actions.
    fn run(&mut self, time: SignedDuration) -> Vec<Action> {
        let end = self.now + time;
        let mut actions = Vec::new();
        while self.ca.next_scan(self.now) <= end {
            actions.extend(self.next().actions);
        }
        self.now = end;
        actions
    }

    /// Everything that the supplier has and that is still being made registers and, if told so, is Ready.
    fn boot(&mut self, ready: bool) {
        let now = self.now;
        let nodes = self.ca.provider_mut().boot(now, ready);
        for node in nodes {
            self.ca.cluster_mut().add_node(node);
        }
        self.ca.cluster_mut().schedule();
    }

    /// Nodes whose instance is gone leave the cluster.
    fn sweep(&mut self) {
        let now = self.now;
        let gone: Vec<String> = {
            let supplier = self.ca.provider();
            let nodes = self.ca.cluster().all_nodes();
            nodes.filter(|n| !supplier.has(&n.provider_id)).map(|n| n.name.clone()).collect()
        };
        for node in gone {
            self.ca.cluster_mut().remove_node(&node, now);
        }
    }

    /// So many one-GPU pods on Ready nodes of the first group, past every hold and delay.
    fn settled(settings: Settings, groups: &[&str], names: &[&str]) -> Self {
        let mut rig = Self::new(settings, groups);
        rig.want(names);
        let _ = rig.wait(secs(40)).step();
        rig.boot(true);
        rig.run(mins(15));
        rig
    }

    fn target(&self, group: &str) -> i32 {
        self.ca.provider().target(group)
    }
}

fn asked(report: &LoopReport) -> Vec<(&str, i32)> {
    report.asked().into_iter().collect()
}

fn nodes(rig: &Rig) -> Vec<Arc<NodeView>> {
    rig.ca.cluster().all_nodes().cloned().collect()
}
