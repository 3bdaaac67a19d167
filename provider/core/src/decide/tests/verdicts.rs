//! What is concluded of nodes, from their pods and from what probes have seen.

mod guards;
mod lapses;
mod probed;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::world::{GROUP_A, World, book, minutes, policy, seconds, start};
use crate::base::ids::{GpuUuid, NodeName};
use crate::base::kinds::Evidence;
use crate::facts::reading::seen::{Activity, Hearing, Seen, SeenGpu, SeenXid, Xids};
use crate::facts::reading::{DriverState, Measured, Source, Why};
use crate::plan::{Checked, Plan};
use crate::policy::rules::health::UnhealthyAction;
use crate::state::node_verdict::{Judged, Verdict};

/// A GPU that does nothing since then.
pub(super) const fn quiet(since: Timestamp) -> Activity {
    Activity::Quiet { since }
}

pub(super) const fn active(since: Timestamp) -> Activity {
    Activity::Active { since }
}

const fn untold(why: Why, since: Timestamp) -> Activity {
    Activity::Unknown { why, since }
}

fn gpu(activity: Activity) -> SeenGpu {
    SeenGpu { name: "NVIDIA L4".to_owned(), activity, instances: BTreeMap::new(), ailments: [].into() }
}

fn uuid(text: &str) -> GpuUuid {
    GpuUuid::new(text).unwrap()
}

fn xid(code: u32, count: u32, first: Timestamp, last: Timestamp) -> SeenXid {
    SeenXid { code, gpu: Some(uuid("GPU-0")), count, first, last }
}

/// A node with probes of two GPUs that are as told.
pub(super) fn seen(since: Timestamp, gpus: [Activity; 2]) -> Seen {
    Seen {
        source: Source::Probe,
        boot: Some("boot-1".to_owned()),
        hearing: Hearing::Heard { since },
        driver: Measured::Known(DriverState::Ready),
        counted: Measured::Known(2),
        gpus: gpus.into_iter().enumerate().map(|(n, activity)| (uuid(&format!("GPU-{n}")), gpu(activity))).collect(),
        gates: BTreeMap::new(),
        xids: Xids::default(),
        notice: None,
    }
}

/// What the probe of a node shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Its GPUs are at work.
    Working,
    /// Its GPUs are quiet.
    Idle,
    /// One of its GPUs has fallen off the bus, and no work is left.
    Broken,
    /// One of its GPUs cannot be read.
    Unreadable,
}

impl Shown {
    /// What is seen of a node that has shown this since then.
    pub(super) fn seen(self, since: Timestamp) -> Seen {
        match self {
            Self::Working => seen(since, [active(since); 2]),
            Self::Idle => seen(since, [quiet(since); 2]),
            Self::Broken => {
                let fallen = Xids { kinds: vec![xid(79, 1, since, since)], ..Xids::default() };
                Seen { xids: fallen, ..Self::Idle.seen(since) }
            }
            Self::Unreadable => seen(since, [quiet(since), untold(Why::NotReported, since)]),
        }
    }
}

impl World {
    /// The probe of a node shows something else from now on.
    pub(super) fn show(&mut self, n: usize, shown: Shown) {
        self.see(n, |now| shown.seen(now));
    }

    /// So many Ready nodes of a pool whose evidence is its probes; nothing has been heard of them yet.
    fn probed(nodes: usize) -> Self {
        let mut policy = policy();
        policy.pools[0].zones = ["zone-a".to_owned()].into();
        policy.pools[0].evidence = Evidence::Probe;
        // What becomes of unhealthy nodes has tests of its own.
        policy.pools[0].unhealthy.action = UnhealthyAction::Cordon;
        let mut world = Self::over(policy, book(start()));
        world.increase(GROUP_A, i32::try_from(nodes).unwrap());
        world.pass();
        world.answer(|_| true);
        world.pass();
        world.observe();
        world.join(true);
        world.pass();
        world
    }

    /// One node that has been warm since the world began.
    fn warm() -> Self {
        let mut world = Self::probed(1);
        world.see(0, |now| seen(now, [quiet(now); 2]));
        world.pass();
        assert_eq!(world.verdict(0), Verdict::Warm);
        world
    }

    fn name(n: usize) -> NodeName {
        NodeName::new(format!("node-{n}")).unwrap()
    }

    /// The probe of a node tells something else from now on.
    fn see(&mut self, n: usize, what: impl FnOnce(Timestamp) -> Seen) {
        self.seen.insert(Self::name(n), Arc::new(what(self.now)));
    }

    /// What the probe of a node tells changes.
    fn sees(&mut self, n: usize, change: impl FnOnce(&mut Seen, Timestamp)) {
        let seen = self.seen.get_mut(&Self::name(n)).unwrap();
        change(Arc::make_mut(seen), self.now);
    }

    /// A node's probe was last heard now.
    fn silence(&mut self, n: usize) {
        self.sees(n, |seen, now| {
            seen.hearing = Hearing::Silent { since: now };
            seen.gpus.values_mut().for_each(|gpu| gpu.activity = untold(Why::NotReported, now));
        });
    }

    /// Time goes by, with every pass that something asks for.
    fn wait(&mut self, length: SignedDuration) -> Vec<Plan<Checked>> {
        let until = self.now.saturating_add(length).unwrap();
        let mut plans = Vec::new();
        while self.now < until {
            self.observe();
            let next = crate::decide::decide(&self.snapshot(), &self.memory, &self.catalogue, self.now).next_change_at;
            self.now = next.filter(|at| *at > self.now).map_or(until, |at| at.min(until));
            self.observe();
            plans.push(self.pass());
            self.drain(None);
        }
        plans
    }

    fn judged(&self, n: usize) -> &Judged {
        let id = self.cluster_node(n).provider_id.clone().unwrap();
        let record = self.memory.records.values().find(|record| record.instance() == Some(&id)).unwrap();
        record.judged.as_ref().unwrap()
    }

    fn verdict(&self, n: usize) -> Verdict {
        self.judged(n).verdict
    }

    fn why(&self, n: usize) -> String {
        self.judged(n).why.to_string()
    }
}
