//! The count of all records, in one walk: most are nodes bought where their group is, and those are added up by group and capacity type.

use jiff::Timestamp;

use super::{Held, Usage};
use crate::commitment::{Alike, Committed};
use crate::group::{Group, Menu};
use crate::ids::NodeGroupId;
use crate::lookup::Lookup;
use crate::memory::Memory;
use crate::offer::CapacityType;
use crate::record::Record;
use crate::units::UsdPerHour;

/// The group that a record counts for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// From the menu, or as remembered.
    pub(crate) group: &'a Group,
    /// Its place among the menu's groups; `None` where it is only remembered.
    pub(crate) at: Option<usize>,
}

impl Usage {
    /// Counts every record.
    pub fn count(memory: &Memory, menu: &Menu, now: Timestamp) -> Self {
        let listed = menu.groups.iter().enumerate().map(|(at, (id, group))| (id, Owner { group, at: Some(at) }));
        let mut owners: Lookup<&NodeGroupId, Owner<'_>> = listed.collect();
        for (id, remembered) in &memory.groups {
            owners.entry(id).or_insert(Owner { group: &remembered.group, at: None });
        }
        Self::count_owned(memory, menu, now, |record| owners.get(&record.group).copied())
    }

    /// The same where it is known whose the records are: they are asked for one after the other. One whose group nobody knows any more
    /// counts for nothing.
    pub(crate) fn count_owned<'a>(
        memory: &'a Memory,
        menu: &'a Menu,
        now: Timestamp,
        mut owner_of: impl FnMut(&Record) -> Option<Owner<'a>>,
    ) -> Self {
        let (quotas, stages) = (vec![Held::default(); menu.policy.quotas.len()], memory.budgets.clone());
        let off_hours = menu.policy.pools.iter().filter_map(|pool| {
            let off = pool.off_hours.as_ref()?;
            Some((pool.name.clone(), off.max_nodes.filter(|_| off.at(now).0)?))
        });
        let mut usage = Self { quotas, stages, off_hours: off_hours.collect(), ..Self::default() };
        let mut all_lots: Vec<Lots<'_>> = menu.groups.values().map(|group| Lots::of(group)).collect();
        let mut bought = Alike::default();
        for record in memory.records.values() {
            let Some(owner) = owner_of(record) else { continue };
            let lots = owner.at.and_then(|at| all_lots.get_mut(at));
            if let Some(lot) = lots.and_then(|lots| lots.take(record)) {
                bought.add_beside(&mut lot.alike, record, owner.group);
            } else {
                usage.apply(record, owner.group, menu, now, 1);
                bought.add(record, owner.group);
            }
        }
        for lots in &all_lots {
            usage.add_lots(lots, menu);
        }
        usage.committed = Committed::of(&bought, menu, now);
        usage
    }

    fn add_lots(&mut self, lots: &Lots<'_>, menu: &Menu) {
        let group = lots.group;
        if lots.nodes > 0 {
            let targets = self.targets.entry(group.id.clone()).or_default();
            *targets = targets.saturating_add(lots.nodes);
            let nodes = self.nodes.entry(group.pool.clone()).or_default();
            *nodes = nodes.saturating_add(lots.nodes);
            self.zone_bought(group, &group.place, i64::from(lots.nodes), menu);
        }
        if lots.nodes > 0
            && let Some(share) = self.share_of(group, menu)
        {
            share.bought = share.bought.saturating_add(lots.nodes);
            share.add(&group.place, i64::from(lots.spot));
        }
        for (capacity_type, lot) in CapacityType::ALL.into_iter().zip(&lots.bought).filter(|(_, lot)| lot.nodes > 0) {
            let spend = self.spend.entry(group.pool.clone()).or_default();
            *spend = spend.plus(lot.price);
            self.claim(&menu.claims(group).under(capacity_type).listed, lot.nodes, lot.in_flight);
        }
    }
}

/// The nodes of one group, as long as all of them are bought where the group is.
struct Lots<'a> {
    group: &'a Group,
    /// Records that count.
    nodes: u32,
    /// Those of them that are spot.
    spot: u32,
    /// Records bought, by capacity type in declared order.
    bought: [Lot; 3],
}

/// Nodes bought alike.
#[derive(Default)]
struct Lot {
    nodes: u32,
    /// Of those, the ones that are not Ready yet.
    in_flight: u32,
    /// What they cost together.
    price: UsdPerHour,
    /// Where those of one price each stand in the count for commitments.
    alike: Vec<usize>,
}

impl<'a> Lots<'a> {
    fn of(group: &'a Group) -> Self {
        Self { group, nodes: 0, spot: 0, bought: Default::default() }
    }

    /// Takes a record in, unless it is only wanted or was bought elsewhere; the lot that it is of then.
    fn take(&mut self, record: &Record) -> Option<&mut Lot> {
        let purchase = record.purchase().filter(|purchase| purchase.market.place == self.group.place)?;
        let capacity_type = purchase.market.capacity_type;
        let at = CapacityType::ALL.iter().position(|&c| c == capacity_type)?;
        let lot = self.bought.get_mut(at)?;
        lot.nodes = lot.nodes.saturating_add(1);
        lot.in_flight = lot.in_flight.saturating_add(u32::from(record.is_coming()));
        lot.price = lot.price.plus(purchase.price);
        if record.counts() {
            self.nodes = self.nodes.saturating_add(1);
            if capacity_type == CapacityType::Spot {
                self.spot = self.spot.saturating_add(1);
            }
        }
        Some(lot)
    }
}
