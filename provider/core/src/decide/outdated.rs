//! Which nodes are outdated: what their supplier says of their machines, what the policy has changed
//! since they were launched, and how old they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::index::GroupEntry;
use super::pass::{Changes, Pass};
use crate::base::ids::{NodeGroupId, PoolName};
use crate::base::index::InOrder;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::catalogue::template::GROUP_LABEL;
use crate::facts::outdated::Outdated;
use crate::market::offer::Market;
use crate::plan::Note;
use crate::state::outdated::OutdatedNode;
use crate::state::record::State;

/// The group that stands for a remembered one now: its pool buys such nodes in the same place, in the same ways.
pub(super) fn successor<'a>(group: &Group, catalogue: &'a Catalogue) -> Option<&'a Arc<Group>> {
    // Where a pool splits its groups by capacity type, the group of another type is no successor.
    let sells = |market: &Market| group.offers.iter().any(|offer| offer.market == *market);
    let mut here = catalogue.pool_groups(&group.pool).filter(|other| other.place == group.place && other.id != group.id);
    here.find(|other| other.offers.iter().any(|offer| sells(&offer.market)))
}

/// Whether nodes of one group are made in another way than those of the other. Their ids may differ for other reasons, and their sizes
/// follow from the instance type.
fn differ(a: &Group, b: &Group) -> bool {
    let labels = |group: &Group| {
        let mut labels = group.template.labels.clone();
        labels.retain(|key, _| ![GROUP_LABEL, "topology.kubernetes.io/zone"].contains(&key.as_str()));
        labels
    };
    let taints = |group: &Group| group.template.taints.iter().cloned().collect::<BTreeSet<_>>();
    a.node_class != b.node_class
        || (a.units(), &a.template.slices) != (b.units(), &b.template.slices)
        || taints(a) != taints(b)
        || labels(a) != labels(b)
}

/// Takes in which nodes are outdated now, and tells of those that have become so.
pub(super) fn remember<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let mut outdated = BTreeMap::new();
    let mut remade: BTreeMap<&NodeGroupId, bool> = BTreeMap::new();
    let mut fresh: BTreeMap<&PoolName, (u32, Outdated)> = BTreeMap::new();
    let mut expires_at: Option<Timestamp> = None;
    let mut known = InOrder::of(&changes.memory.outdated);
    for (record, entry) in changes.indexed() {
        let (State::Registered { instance, .. }, Some(GroupEntry { group, at, .. })) = (&record.state, entry.owner) else {
            continue;
        };
        let known = known.next(&record.id);
        let listed = pass.snapshot.suppliers.get(&group.supplier).and_then(Option::as_ref);
        let told = match listed.filter(|_| entry.is_listed_by(&group.supplier)) {
            Some(listed) => listed.outdated.get(instance).cloned(),
            None => Some(None),
        };
        // `Some(None)`: nobody can tell at the moment.
        let of_supplier = |why: &Outdated| matches!(why, Outdated::Image { .. } | Outdated::NodeClass { .. });
        let before = || known.map(|known| known.why.clone()).filter(of_supplier);
        let told = told.and_then(|told| told.or_else(before));
        // What makes a group's nodes is part of its id, so that a change makes another group. Few groups are only remembered.
        let mut differs = || match at {
            Some(_) => false,
            None => *remade
                .entry(&group.id)
                .or_insert_with(|| successor(group, pass.catalogue).is_some_and(|now| differ(group, now))),
        };
        let told = told.or_else(|| differs().then_some(Outdated::Template));
        let told = told.or_else(|| {
            let (_, pool) = entry.pool()?;
            let at = pool.outdated.expires_at(record.ordered_at)?;
            if at > pass.now {
                expires_at = Some(expires_at.map_or(at, |first| first.min(at)));
                return None;
            }
            Some(Outdated::Expired { life: pool.outdated.max_node_life? })
        });
        let Some(why) = told else { continue };
        if known.is_none() {
            fresh.entry(&group.pool).or_insert_with(|| (0, why.clone())).0 += 1;
        }
        let since = known.map_or(pass.now, |known| known.since);
        let same = known.filter(|known| known.why == why).cloned();
        outdated.insert(record.id, same.unwrap_or_else(|| Arc::new(OutdatedNode { since, why })));
    }
    let notes = fresh.into_iter().map(|(pool, (nodes, why))| Note::Outdated { pool: pool.clone(), nodes, why });
    changes.notes.extend(notes);
    changes.memory.outdated = outdated;
    if let Some(at) = expires_at {
        changes.look_again_at(at);
    }
}
