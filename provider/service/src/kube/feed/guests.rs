//! Pods that sit on our nodes and want no GPU, gathered from the same watch as those that do.
//!
//! Only those on nodes of ours are kept: a cluster has many more pods. One that is bound to a node before that is known is seen at its next
//! change, such as its start.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use stoker_core::base::ids::NodeName;

use super::super::thin::PodRow;

/// A pod that sits on a node of ours and wants no GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    /// The node.
    pub node: NodeName,
    /// The pod's name, namespace and uid.
    pub meta: ObjectMeta,
}

/// Such pods by key (`namespace/name`).
pub type Guests = BTreeMap<String, Guest>;

/// Such pods while they are gathered.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    known: Guests,
    /// The list that is being read; it replaces what is known when it is whole.
    listing: Guests,
}

impl Gathered {
    /// Applies an event of the pods; tells whether what is known changed. `ours` says whether a node may be one of ours.
    pub(super) fn pod(&mut self, event: &Event<PodRow>, ours: impl Fn(&NodeName) -> bool) -> bool {
        let of_ours = |row: &PodRow| guest(row).filter(|(_, guest)| ours(&guest.node));
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(row) => self.listing.extend(of_ours(row)),
            Event::InitDone => {
                let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.listing));
                return before != self.known;
            }
            Event::Apply(row) => {
                return match of_ours(row) {
                    Some((key, guest)) => {
                        self.known.get(&key) != Some(&guest) && {
                            self.known.insert(key, guest);
                            true
                        }
                    }
                    None => row.key().is_some_and(|key| self.known.remove(&key).is_some()),
                };
            }
            Event::Delete(row) => return row.key().is_some_and(|key| self.known.remove(&key).is_some()),
        }
        false
    }

    /// The nodes were listed: those that are not ours are known now. Tells whether what is known changed.
    pub(super) fn nodes_listed(&mut self, ours: impl Fn(&NodeName) -> bool) -> bool {
        let before = self.known.len();
        for guests in [&mut self.known, &mut self.listing] {
            guests.retain(|_, guest| ours(&guest.node));
        }
        self.known.len() != before
    }

    pub(super) fn known(&self) -> BTreeMap<String, Guest> {
        self.known.clone()
    }
}

fn guest(row: &PodRow) -> Option<(String, Guest)> {
    let node = NodeName::new(row.guest_on.as_ref()?).ok()?;
    let meta = ObjectMeta {
        name: row.meta.name.clone(),
        namespace: row.meta.namespace.clone(),
        uid: row.meta.uid.clone(),
        ..ObjectMeta::default()
    };
    Some((row.key()?, Guest { node, meta }))
}
