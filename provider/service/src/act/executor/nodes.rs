//! What is done to Nodes: how much of it at once, and that each is changed by one change at a time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::facts::snapshot::{Drained, Stuck};
use tokio::sync::{Notify, Semaphore};

use super::action_key::{Lane, NodeChange, Pods};
use super::{UnderWay, lock};
use crate::clock::Clock;
use crate::kube::act::{ActError, Emptied, KubeAct, Outcome};

/// Calls to the API server at once, of those that are one small change.
const KUBE_CALLS: usize = 8;

/// Nodes that are emptied at once: each takes a call for every pod, and must not keep a node that pods have just come to from being
/// held.
pub(super) const KUBE_DRAINS: usize = 4;

/// The same of nodes that the cloud takes, beside the others: a market that goes takes dozens, and their pods' seconds run.
const KUBE_URGENT_DRAINS: usize = 16;

/// The cluster, and how much is done to it at once.
pub(super) struct Cluster {
    pub(super) act: Arc<KubeAct>,
    calls: Arc<Semaphore>,
    drains: Arc<Semaphore>,
    urgent_drains: Arc<Semaphore>,
}

impl Cluster {
    pub(super) fn new(act: Arc<KubeAct>) -> Self {
        let [calls, drains, urgent_drains] =
            [KUBE_CALLS, KUBE_DRAINS, KUBE_URGENT_DRAINS].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { act, calls, drains, urgent_drains }
    }

    /// What a change waits for.
    pub(super) const fn permits(&self, change: &NodeChange) -> &Arc<Semaphore> {
        match (change, change.lane()) {
            (NodeChange::Drain(..), Lane::Urgent) => &self.urgent_drains,
            (NodeChange::Drain(..), Lane::Normal) => &self.drains,
            (NodeChange::Hold(_) | NodeChange::Release(_) | NodeChange::Uncordon(..) | NodeChange::Remove(..), _) => {
                &self.calls
            }
        }
    }
}

/// A node counts as being changed as long as this lives, so also when what changes it falls over; the next pass is woken then.
pub(super) struct InFlightGuard {
    under_way: Arc<Mutex<UnderWay>>,
    node: NodeName,
    lane: Lane,
    wake: Arc<Notify>,
}

impl InFlightGuard {
    pub(super) fn new(under_way: &Arc<Mutex<UnderWay>>, change: &NodeChange, wake: Arc<Notify>) -> Self {
        let (node, lane) = (change.node().clone(), change.lane());
        nodes_in(&mut lock(under_way), lane).insert(node.clone());
        Self { under_way: Arc::clone(under_way), node, lane, wake }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        nodes_in(&mut lock(&self.under_way), self.lane).remove(&self.node);
        self.wake.notify_one();
    }
}

const fn nodes_in(under_way: &mut UnderWay, lane: Lane) -> &mut BTreeSet<NodeName> {
    match lane {
        Lane::Normal => &mut under_way.changing,
        Lane::Urgent => &mut under_way.emptying_urgently,
    }
}

/// One try at emptying a node; how it stands then goes to the next pass. Of a node that is gone, or is another's by now, the feed tells.
pub(super) async fn drain(
    kube: &KubeAct,
    node: &NodeName,
    machine: &ProviderId,
    Pods { evict, gone_by }: Pods,
    clock: &Clock,
    under_way: &Mutex<UnderWay>,
) -> Result<(), ActError> {
    let told = match kube.close(node, machine, evict).await? {
        Outcome::Done | Outcome::Already => {
            let at = clock.now();
            let left = gone_by.map(|by| by.duration_since(at));
            let Emptied { evicted, left, stuck } = kube.evict_pods(node, evict, left).await?;
            Drained { machine: machine.clone(), at, evicted, left, stuck }
        }
        Outcome::Reopened => {
            let stuck = Some(Stuck::Never("somebody uncordoned it again".to_owned()));
            Drained { machine: machine.clone(), at: clock.now(), evicted: 0, left: u32::MAX, stuck }
        }
        Outcome::Gone | Outcome::NotOurs => return Ok(()),
    };
    lock(under_way).drains.insert(node.clone(), told);
    Ok(())
}
