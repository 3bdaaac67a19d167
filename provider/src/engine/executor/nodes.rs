//! What is done to Nodes: how much of it at once, and that each is changed by one deed at a time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use stoker_core::ids::{NodeName, ProviderId};
use stoker_core::snapshot::{Drained, Stuck};
use tokio::sync::{Notify, Semaphore};

use super::deed::{Haste, KubeDeed, Pods};
use super::{UnderWay, lock};
use crate::clock::Clock;
use crate::kube::act::{ActError, Emptied, KubeAct, Outcome};

/// Calls to the API server at once, of those that are one small change.
const KUBE_CALLS: usize = 8;

/// Nodes that are emptied at once: each takes a call for every pod, and must not keep a node that pods have just come to from being
/// held.
pub(super) const KUBE_DRAINS: usize = 4;

/// The same of nodes that the cloud takes, beside the others: a market that goes takes dozens, and their pods' seconds run.
const KUBE_HASTY_DRAINS: usize = 16;

/// The cluster, and how much is done to it at once.
pub(super) struct Cluster {
    pub(super) act: Arc<KubeAct>,
    calls: Arc<Semaphore>,
    drains: Arc<Semaphore>,
    hasty_drains: Arc<Semaphore>,
}

impl Cluster {
    pub(super) fn new(act: Arc<KubeAct>) -> Self {
        let [calls, drains, hasty_drains] =
            [KUBE_CALLS, KUBE_DRAINS, KUBE_HASTY_DRAINS].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { act, calls, drains, hasty_drains }
    }

    /// What a deed waits for.
    pub(super) const fn permits(&self, deed: &KubeDeed) -> &Arc<Semaphore> {
        match (deed, deed.haste()) {
            (KubeDeed::Drain(..), Haste::Yes) => &self.hasty_drains,
            (KubeDeed::Drain(..), Haste::No) => &self.drains,
            (KubeDeed::Hold(_) | KubeDeed::Release(_) | KubeDeed::Uncordon(..) | KubeDeed::Remove(..), _) => &self.calls,
        }
    }
}

/// A node counts as being changed as long as this lives, so also when what changes it falls over; the next pass is woken then.
pub(super) struct Marked {
    under_way: Arc<Mutex<UnderWay>>,
    node: NodeName,
    haste: Haste,
    wake: Arc<Notify>,
}

impl Marked {
    pub(super) fn new(under_way: &Arc<Mutex<UnderWay>>, deed: &KubeDeed, wake: Arc<Notify>) -> Self {
        let (node, haste) = (deed.node().clone(), deed.haste());
        marks(&mut lock(under_way), haste).insert(node.clone());
        Self { under_way: Arc::clone(under_way), node, haste, wake }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        marks(&mut lock(&self.under_way), self.haste).remove(&self.node);
        self.wake.notify_one();
    }
}

const fn marks(under_way: &mut UnderWay, haste: Haste) -> &mut BTreeSet<NodeName> {
    match haste {
        Haste::No => &mut under_way.changing,
        Haste::Yes => &mut under_way.emptying_in_haste,
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
            let stuck = Some(Stuck::Never("somebody opened it again".to_owned()));
            Drained { machine: machine.clone(), at: clock.now(), evicted: 0, left: u32::MAX, stuck }
        }
        Outcome::Gone | Outcome::NotOurs => return Ok(()),
    };
    lock(under_way).drains.insert(node.clone(), told);
    Ok(())
}
