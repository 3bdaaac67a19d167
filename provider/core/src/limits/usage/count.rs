//! Count of all records, in one walk.
//!
//! Most nodes were bought where their group is; those are added up by group and capacity type.

use super::{Held, Usage};
use crate::base::engine_clock::Wall;
use crate::base::ids::NodeGroupId;
use crate::base::index::Lookup;
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::catalogue::claims::taken_by;
use crate::catalogue::group::Group;
use crate::limits::commitment::{Alike, Committed};
use crate::market::offer::CapacityType;
use crate::state::memory::Memory;
use crate::state::record::Record;

/// The group that a record counts for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// From the catalogue, or as remembered.
    pub(crate) group: &'a Group,
    /// Its place among the catalogue's groups; `None` where it is only remembered.
    pub(crate) at: Option<usize>,
}

impl Usage {
    /// Counts every record.
    pub fn count(memory: &Memory, catalogue: &Catalogue, wall: Wall) -> Self {
        let listed = catalogue.groups.iter().enumerate().map(|(at, (id, group))| (id, Owner { group, at: Some(at) }));
        let mut owners: Lookup<&NodeGroupId, Owner<'_>> = listed.collect();
        for (id, remembered) in &memory.groups {
            owners.entry(id).or_insert(Owner { group: &remembered.group, at: None });
        }
        let owned = memory.records.values().filter_map(|record| Some((record.as_ref(), *owners.get(&record.group)?)));
        Self::count_owned(owned, memory, catalogue, wall)
    }

    /// Counts records, each with its group. Of `memory` all else is taken: how the budgets stood, and the nodes that are not Stoker's.
    pub(crate) fn count_owned<'a>(
        owned: impl Iterator<Item = (&'a Record, Owner<'a>)>,
        memory: &Memory,
        catalogue: &'a Catalogue,
        wall: Wall,
    ) -> Self {
        let quotas = vec![Held::default(); catalogue.policy.quotas.len()];
        let off_hours = catalogue.policy.pools.iter().filter_map(|pool| {
            let off = pool.off_hours.as_ref()?;
            Some((pool.name.clone(), off.max_nodes.filter(|_| off.at(wall.0).0)?))
        });
        let foreign = memory.foreign.as_deref();
        let mut usage = Self {
            wall,
            quotas,
            stages: memory.budgets.clone(),
            months: memory.months.clone(),
            off_hours: off_hours.collect(),
            foreign_unknown: catalogue.policy.karpenter.counts_nodes() && foreign.is_none(),
            ..Self::default()
        };
        let mut all_lots: Vec<Lots<'_>> = catalogue.groups.values().map(|group| Lots::of(group)).collect();
        let mut bought = Alike::default();
        for (record, owner) in owned {
            let lots = owner.at.and_then(|at| all_lots.get_mut(at));
            if let Some(lot) = lots.and_then(|lots| lots.take(record)) {
                bought.add_beside(&mut lot.alike, record, owner.group);
            } else {
                usage.apply(record, owner.group, catalogue, wall, 1);
                bought.add(record, owner.group);
            }
        }
        for lots in &all_lots {
            usage.add_lots(lots, catalogue);
        }
        if let Some(foreign) = foreign {
            for (held, taken) in usage.quotas.iter_mut().zip(taken_by(foreign, &catalogue.policy)) {
                held.units = held.units.saturating_add(taken);
            }
        }
        usage.committed = Committed::of(&bought, foreign, catalogue, wall);
        usage
    }

    fn add_lots(&mut self, lots: &Lots<'_>, catalogue: &Catalogue) {
        let group = lots.group;
        if lots.nodes > 0 {
            let targets = self.targets.entry(group.id.clone()).or_default();
            *targets = targets.saturating_add(lots.nodes);
            let nodes = self.nodes.entry(group.pool.clone()).or_default();
            *nodes = nodes.saturating_add(lots.nodes);
            self.spread_bought(group, &group.place, i64::from(lots.nodes), catalogue);
        }
        if lots.nodes > 0
            && let Some(share) = self.share_of(group, catalogue)
        {
            share.bought = share.bought.saturating_add(lots.nodes);
            share.add(&group.place, i64::from(lots.spot));
        }
        for (capacity_type, lot) in CapacityType::ALL.into_iter().zip(&lots.bought).filter(|(_, lot)| lot.nodes > 0) {
            let spend = self.spend.entry(group.pool.clone()).or_default();
            *spend = spend.plus(lot.price);
            self.claim(&catalogue.claims(group).under(capacity_type).listed, lot.nodes, lot.in_flight);
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
