//! Index of records: the group, the pool and the machine of each.
//!
//! Each is found once and then walked with the records. Ids are long texts, and looking them up in
//! each step for thousands of records would take most of a pass.

use std::sync::Arc;

use crate::base::ids::{NodeGroupId, ProviderId, RecordId, SupplierName};
use crate::base::index::{InOrder, Lookup, LookupSet};
use crate::base::kinds::Evidence;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::facts::activity::GpuActivity;
use crate::facts::reading::seen::Seen;
use crate::facts::snapshot::{Hold, NodeFacts, Snapshot};
use crate::limits::usage::Owner;
use crate::policy::Pool;
use crate::state::memory::Memory;
use crate::state::record::Record;

/// The group that a record belongs to.
#[derive(Clone, Copy)]
pub(super) struct GroupEntry<'a> {
    /// From the catalogue, or as remembered.
    pub(super) group: &'a Arc<Group>,
    /// Its place among the catalogue's groups; `None` where it is only remembered.
    pub(super) at: Option<usize>,
    /// Its pool and the pool's place in the policy; `None` where the pool is gone.
    pub(super) pool: Option<(usize, &'a Pool)>,
}

impl<'a> GroupEntry<'a> {
    pub(super) fn owner(&self) -> Owner<'a> {
        Owner { group: self.group, at: self.at }
    }
}

/// Every group that records may belong to.
pub(super) struct GroupIndex<'a>(Lookup<&'a NodeGroupId, GroupEntry<'a>>);

impl<'a> GroupIndex<'a> {
    /// Those of the catalogue, and those that are remembered beside them.
    pub(super) fn of(memory: &'a Memory, catalogue: &'a Catalogue) -> Self {
        let pools = &catalogue.policy.pools;
        let home = |group: &'a Arc<Group>, at| {
            let pool = pools.iter().enumerate().find(|(_, pool)| pool.name == group.pool);
            GroupEntry { group, at, pool }
        };
        let listed = catalogue.groups.iter().enumerate().map(|(at, (id, group))| (id, home(group, Some(at))));
        let mut homes: Lookup<_, _> = listed.collect();
        for (id, remembered) in &memory.groups {
            homes.entry(id).or_insert_with(|| home(&remembered.group, None));
        }
        Self(homes)
    }

    pub(super) fn get(&self, id: &NodeGroupId) -> Option<GroupEntry<'a>> {
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
    /// GPU pods on that node. Read once here: nodes lie far apart in memory, and most steps ask every node for these four.
    pods: u32,
    /// Whether a GPU of that node is seen at work.
    active: bool,
    /// Whether that node is Ready.
    ready: bool,
    /// Who keeps that node from the autoscaler.
    hold: Option<Hold>,
}

impl<'a> Machine<'a> {
    /// Takes in the node of the machine, and what is seen of its GPUs.
    fn join(&mut self, node: &'a Arc<NodeFacts>, seen: Option<&'a Arc<Seen>>) {
        (self.node, self.seen) = (Some(node), seen);
        self.pods = u32::try_from(node.gpu_pods.len()).unwrap_or(u32::MAX);
        self.active = matches!(GpuActivity::of(seen.map(AsRef::as_ref)), GpuActivity::Active(_));
        self.ready = node.ready_since.is_some();
        self.hold = Some(node.scale_down_disabled);
    }

    /// Whether GPU pods are on its node.
    pub(super) const fn is_busy(&self) -> bool {
        self.pods > 0
    }

    /// Whether a GPU of its node is seen at work.
    pub(super) const fn is_active(&self) -> bool {
        self.active
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
                machine.join(node, seen.next(&node.name));
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
pub(super) struct IndexEntry<'a> {
    /// Its group; `None` where nobody knows it any more.
    pub(super) home: Option<GroupEntry<'a>>,
    /// Its machine.
    machine: Machine<'a>,
}

impl<'a> IndexEntry<'a> {
    pub(super) fn of(record: &Record, homes: &GroupIndex<'a>, machines: &Machines<'a>) -> Self {
        let machine = record.instance().map(|instance| machines.get(instance)).unwrap_or_default();
        Self { home: homes.get(&record.group), machine }
    }

    /// Its machine's node.
    pub(super) fn node(&self) -> Option<&'a Arc<NodeFacts>> {
        self.machine.node
    }

    /// GPU pods on that node.
    pub(super) const fn pods(&self) -> u32 {
        self.machine.pods
    }

    /// Whether GPU pods are on that node.
    pub(super) const fn is_busy(&self) -> bool {
        self.machine.is_busy()
    }

    /// Whether that node is Ready.
    pub(super) const fn is_ready(&self) -> bool {
        self.machine.ready
    }

    /// Who keeps that node from the autoscaler; `None` where there is no node.
    pub(super) const fn hold(&self) -> Option<Hold> {
        self.machine.hold
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
    pub(super) const fn is_active(&self) -> bool {
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
pub(super) struct Index<'a>(Vec<(RecordId, IndexEntry<'a>)>);

impl<'a> Index<'a> {
    pub(super) fn of(memory: &Memory, homes: &GroupIndex<'a>, machines: &Machines<'a>) -> Self {
        Self(memory.records.iter().map(|(id, record)| (*id, IndexEntry::of(record, homes, machines))).collect())
    }

    fn place(&self, id: RecordId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |(known, _)| *known)
    }

    pub(super) fn get(&self, id: RecordId) -> Option<IndexEntry<'a>> {
        self.0.get(self.place(id).ok()?).map(|(_, seat)| *seat)
    }

    pub(super) fn set(&mut self, id: RecordId, seat: IndexEntry<'a>) {
        let at = self.place(id);
        match at.map(|at| self.0.get_mut(at)) {
            Ok(known) => known.into_iter().for_each(|(_, known)| *known = seat),
            Err(at) => self.0.insert(at, (id, seat)),
        }
    }

    /// The records with their seats. Every record has one.
    pub(super) fn seated<'m>(
        &'m self,
        memory: &'m Memory,
    ) -> impl Iterator<Item = (&'m Arc<Record>, IndexEntry<'a>)> + use<'m, 'a> {
        let mut seats = self.0.iter();
        memory.records.values().filter_map(move |record| Some((record, seats.find(|(id, _)| *id == record.id)?.1)))
    }
}
