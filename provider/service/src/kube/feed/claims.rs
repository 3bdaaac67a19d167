//! The GPU pods that hold nodes, with their owners, labels and what they asked for, gathered from the same watch as the facts. No decision looks at
//! them: they tell whose readings are, and the journal keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use stoker_advice::rollup::GpuPod;

use super::super::thin::{Asks, PodRow};

/// GPU pods by `namespace/name`.
pub type GpuPods = BTreeMap<Arc<str>, BoundGpuPod>;

/// A GPU pod that has a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundGpuPod {
    /// Whose it is, and how many units it asked for.
    pub pod: GpuPod,
    /// What it asks for, and when it came.
    pub asks: Arc<Asks>,
}

/// Such pods while they are gathered.
#[derive(Debug, Default)]
pub(super) struct Claims {
    known: GpuPods,
    /// The list that is being read; it replaces what is known when it is whole.
    listing: GpuPods,
}

impl Claims {
    /// Applies an event of the pods; tells whether what is known changed.
    pub(super) fn pod(&mut self, event: &Event<PodRow>) -> bool {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(row) => self.listing.extend(claim(row)),
            Event::InitDone => {
                let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.listing));
                return before != self.known;
            }
            Event::Apply(row) => {
                return match claim(row) {
                    Some((name, pod)) => {
                        self.known.get(&name) != Some(&pod) && {
                            self.known.insert(name, pod);
                            true
                        }
                    }
                    None => self.forget(row),
                };
            }
            Event::Delete(row) => return self.forget(row),
        }
        false
    }

    fn forget(&mut self, row: &PodRow) -> bool {
        row.key().is_some_and(|key| self.known.remove(key.as_str()).is_some())
    }

    pub(super) fn known(&self) -> GpuPods {
        self.known.clone()
    }
}

fn claim(row: &PodRow) -> Option<(Arc<str>, BoundGpuPod)> {
    let claim = row.claim.as_ref()?;
    let name: Arc<str> = Arc::from(row.key()?);
    let uid = row.meta.uid.as_deref().map(Arc::from);
    let pod = GpuPod {
        name: Arc::clone(&name),
        uid,
        owner: claim.owner.clone(),
        labels: claim.labels.clone(),
        units: claim.units,
        started_after: claim.started_after,
    };
    Some((name, BoundGpuPod { pod, asks: Arc::clone(&claim.asks) }))
}
