//! What a pass looks up of every record beside the record itself: its group, its pool, its machine. Each is found once, and walked
//! with the records from then on: ids are long texts, and a step that looked them up again for thousands of records would be most of a pass.

use std::sync::Arc;

use crate::group::{Group, Menu};
use crate::ids::{NodeGroupId, ProviderId, RecordId, SupplierName};
use crate::lookup::{InOrder, Lookup, LookupSet};
use crate::memory::Memory;
use crate::policy::{Evidence, Pool};
use crate::reading::seen::Seen;
use crate::record::Record;
use crate::sight::Sight;
use crate::snapshot::{NodeFacts, Snapshot};
use crate::usage::Owner;

/// The group that a record belongs to.
#[derive(Clone, Copy)]
pub(super) struct Home<'a> {
    /// From the menu, or as remembered.
    pub(super) group: &'a Arc<Group>,
    /// Its place among the menu's groups; `None` where it is only remembered.
    at: Option<usize>,
    /// Its pool and the pool's place in the policy; `None` where the pool is gone.
    pub(super) pool: Option<(usize, &'a Pool)>,
}

impl<'a> Home<'a> {
    pub(super) fn owner(&self) -> Owner<'a> {
        Owner { group: self.group, at: self.at }
    }
}

/// Every group that records may belong to.
pub(super) struct Homes<'a>(Lookup<&'a NodeGroupId, Home<'a>>);

impl<'a> Homes<'a> {
    /// Those of the menu, and those that are remembered beside them.
    pub(super) fn of(memory: &'a Memory, menu: &'a Menu) -> Self {
        let pools = &menu.policy.pools;
        let home = |group: &'a Arc<Group>, at| {
            let pool = pools.iter().enumerate().find(|(_, pool)| pool.name == group.pool);
            Home { group, at, pool }
        };
        let listed = menu.groups.iter().enumerate().map(|(at, (id, group))| (id, home(group, Some(at))));
        let mut homes: Lookup<_, _> = listed.collect();
        for (id, remembered) in &memory.groups {
            homes.entry(id).or_insert_with(|| home(&remembered.group, None));
        }
        Self(homes)
    }

    pub(super) fn get(&self, id: &NodeGroupId) -> Option<Home<'a>> {
        self.0.get(id).copied()
    }
}

/// What the snapshot says of a machine.
#[derive(Clone, Copy, Default)]
pub(super) struct Machine<'a> {
    /// Its node. Should two name the same machine, the busy one counts.
    pub(super) node: Option<&'a Arc<NodeFacts>>,
    /// What has been seen of that node's GPUs.
    seen: Option<&'a Arc<Seen>>,
    /// The first supplier that lists it.
    supplier: Option<&'a SupplierName>,
}

impl Machine<'_> {
    /// Whether a GPU of its node is seen at work.
    pub(super) fn is_active(&self) -> bool {
        matches!(Sight::of(self.seen.map(AsRef::as_ref)), Sight::Active(_))
    }
}

/// Every machine that the snapshot names.
#[derive(Default)]
pub(super) struct Machines<'a> {
    known: Lookup<&'a ProviderId, Machine<'a>>,
    /// Those that more than one supplier lists, by the others: there should be none.
    listed_again: LookupSet<(&'a SupplierName, &'a ProviderId)>,
    /// Nodes whose machine no supplier lists, in the order of their names.
    pub(super) unlisted: Vec<(&'a ProviderId, &'a Arc<NodeFacts>)>,
}

impl<'a> Machines<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let nodes = snapshot.cluster.iter().flat_map(|cluster| cluster.nodes.values());
        let inventories = snapshot.suppliers.iter().filter_map(|(supplier, inventory)| Some((supplier, inventory.as_ref()?)));
        let mut machines = Self::default();
        machines.known.reserve(inventories.clone().map(|(_, inventory)| inventory.instances.len()).sum());
        for (supplier, inventory) in inventories {
            for machine in inventory.instances.keys() {
                let first = *machines.known.entry(machine).or_default().supplier.get_or_insert(supplier);
                if first != supplier {
                    machines.listed_again.insert((supplier, machine));
                }
            }
        }
        let mut seen = InOrder::of(&snapshot.seen);
        for node in nodes {
            let Some(id) = &node.provider_id else { continue };
            let machine = machines.known.entry(id).or_default();
            if node.is_busy() || machine.node.is_none() {
                machine.node = Some(node);
                machine.seen = seen.next(&node.name);
            }
            if machine.supplier.is_none() {
                machines.unlisted.push((id, node));
            }
        }
        machines
    }

    pub(super) fn get(&self, id: &ProviderId) -> Machine<'a> {
        self.known.get(id).copied().unwrap_or_default()
    }

    /// Whether that supplier lists the machine.
    pub(super) fn lists(&self, supplier: &SupplierName, id: &ProviderId) -> bool {
        self.get(id).supplier == Some(supplier) || self.listed_again.contains(&(supplier, id))
    }
}

/// Where a record stands.
#[derive(Clone, Copy)]
pub(super) struct Seat<'a> {
    /// Its group; `None` where nobody knows it any more.
    pub(super) home: Option<Home<'a>>,
    /// Its machine.
    machine: Machine<'a>,
}

impl<'a> Seat<'a> {
    pub(super) fn of(record: &Record, homes: &Homes<'a>, machines: &Machines<'a>) -> Self {
        let machine = record.instance().map(|instance| machines.get(instance)).unwrap_or_default();
        Self { home: homes.get(&record.group), machine }
    }

    /// Its machine's node.
    pub(super) fn node(&self) -> Option<&'a Arc<NodeFacts>> {
        self.machine.node
    }

    /// What has been seen of that node's GPUs; `None` where nobody reads it.
    pub(super) fn seen(&self) -> Option<&'a Seen> {
        self.machine.seen.map(AsRef::as_ref)
    }

    /// The group.
    pub(super) fn group(&self) -> Option<&'a Arc<Group>> {
        self.home.map(|home| home.group)
    }

    /// Whether a supplier lists its machine. Of two that do, only the first is known here.
    pub(super) fn is_listed_by(&self, supplier: &SupplierName) -> bool {
        self.machine.supplier == Some(supplier)
    }

    /// The pool's place in the policy, and the pool; `None` where it is gone.
    pub(super) fn pool(&self) -> Option<(usize, &'a Pool)> {
        self.home?.pool
    }

    /// Whether a GPU of that node is seen at work.
    pub(super) fn is_active(&self) -> bool {
        self.machine.is_active()
    }

    /// What tells whether nodes of the record's pool are in use; pods, where the pool is gone.
    pub(super) fn evidence(&self) -> Evidence {
        self.pool().map_or(Evidence::Pods, |(_, pool)| pool.evidence)
    }

    /// Whether something tells if nodes of the record's pool are in use.
    pub(super) fn is_judged(&self) -> bool {
        self.evidence() != Evidence::None
    }
}

/// Where every record stands, in the order of the records. Those of records that are gone are left in it.
pub(super) struct Seats<'a>(Vec<(RecordId, Seat<'a>)>);

impl<'a> Seats<'a> {
    pub(super) fn of(memory: &Memory, homes: &Homes<'a>, machines: &Machines<'a>) -> Self {
        Self(memory.records.iter().map(|(id, record)| (*id, Seat::of(record, homes, machines))).collect())
    }

    fn place(&self, id: RecordId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |(known, _)| *known)
    }

    pub(super) fn get(&self, id: RecordId) -> Option<Seat<'a>> {
        self.0.get(self.place(id).ok()?).map(|(_, seat)| *seat)
    }

    pub(super) fn set(&mut self, id: RecordId, seat: Seat<'a>) {
        let at = self.place(id);
        match at.map(|at| self.0.get_mut(at)) {
            Ok(known) => known.into_iter().for_each(|(_, known)| *known = seat),
            Err(at) => self.0.insert(at, (id, seat)),
        }
    }

    /// The records with their seats. Every record has one.
    pub(super) fn seated<'m>(&'m self, memory: &'m Memory) -> impl Iterator<Item = (&'m Arc<Record>, Seat<'a>)> + use<'m, 'a> {
        let mut seats = self.0.iter();
        memory.records.values().filter_map(move |record| Some((record, seats.find(|(id, _)| *id == record.id)?.1)))
    }
}
