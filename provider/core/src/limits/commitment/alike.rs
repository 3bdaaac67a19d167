//! Groups of identical purchases, counted before a bill is computed.

use super::cover::Committed;
use super::reach::Reached;
use crate::base::engine_clock::Wall;
use crate::base::ids::{NodeGroupId, PoolName};
use crate::base::index::Lookup;
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::facts::foreign::Foreign;
use crate::market::offer::{CapacityType, Market};
use crate::state::record::{Purchase, Record};

/// Purchases that commitments could pay for, in the order of the first of each kind.
#[derive(Default)]
pub(crate) struct Alike<'a> {
    kinds: Vec<(&'a Group, &'a Purchase, u32)>,
    /// The kinds of records that stand in no lot of their group.
    known: Lookup<(&'a NodeGroupId, &'a Market, UsdPerHour), usize>,
}

impl<'a> Alike<'a> {
    /// Counts a record bought where its group is: `lot` has the kinds of all that were bought like it, at whatever price.
    pub(crate) fn add_beside(&mut self, lot: &mut Vec<usize>, record: &'a Record, group: &'a Group) {
        let Some(purchase) = coverable(record) else { return };
        let of_price = |at: &&usize| self.kinds.get(**at).is_some_and(|(_, known, _)| known.price == purchase.price);
        let known = lot.iter().find(of_price).copied();
        let at = self.count(known, group, purchase);
        if known.is_none() {
            lot.push(at);
        }
    }

    /// Counts any other record.
    pub(crate) fn add(&mut self, record: &'a Record, group: &'a Group) {
        let Some(purchase) = coverable(record) else { return };
        let kind = (&group.id, &purchase.market, purchase.price);
        let at = self.count(self.known.get(&kind).copied(), group, purchase);
        self.known.insert(kind, at);
    }

    fn count(&mut self, known: Option<usize>, group: &'a Group, purchase: &'a Purchase) -> usize {
        if let Some((at, (_, _, nodes))) = known.and_then(|at| Some((at, self.kinds.get_mut(at)?))) {
            *nodes += 1;
            return at;
        }
        self.kinds.push((group, purchase, 1));
        self.kinds.len() - 1
    }
}

/// What was bought of a record. Nothing covers spot nodes.
fn coverable(record: &Record) -> Option<&Purchase> {
    record.purchase().filter(|purchase| purchase.market.capacity_type != CapacityType::Spot)
}

impl Committed {
    /// Works out the bill of what is bought, and of the nodes that are not Stoker's, where they count.
    pub(crate) fn of(bought: &Alike<'_>, foreign: Option<&Foreign>, catalogue: &Catalogue, wall: Wall) -> Self {
        if catalogue.policy.commitments.is_empty() {
            return Self::default();
        }
        let mut committed = Self::empty(catalogue, wall);
        let mut known: Lookup<(&PoolName, &Market, UsdPerHour), usize> = Lookup::default();
        for (group, purchase, nodes) in &bought.kinds {
            let at = *known.entry((&group.pool, &purchase.market, purchase.price)).or_insert(committed.lines.len());
            match committed.lines.get_mut(at) {
                Some(line) => line.nodes += nodes,
                None => committed.lines.push(catalogue.reached(group, &purchase.market, purchase.price, *nodes)),
            }
        }
        let commitments = &catalogue.policy.commitments;
        let others = foreign.into_iter().flat_map(|foreign| &foreign.nodes);
        committed.foreign = others.filter_map(|(kind, nodes)| Reached::foreign(kind, *nodes, commitments)).collect();
        committed.recount(commitments);
        committed
    }
}
