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
use crate::facts::snapshot::{Cordon, Hold, NodeFacts, Snapshot};
use crate::limits::usage::{Owner, capacity_type};
use crate::market::offer::CapacityType;
use crate::policy::Pool;
use crate::state::memory::Memory;
use crate::state::node_verdict::Verdict;
use crate::state::record::{Phase, PodsSeen, Record};

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
        let entry = |group: &'a Arc<Group>, at| {
            let pool = pools.iter().enumerate().find(|(_, pool)| pool.name == group.pool);
            GroupEntry { group, at, pool }
        };
        let listed = catalogue.groups.iter().enumerate().map(|(at, (id, group))| (id, entry(group, Some(at))));
        let mut groups: Lookup<_, _> = listed.collect();
        for (id, remembered) in &memory.groups {
            groups.entry(id).or_insert_with(|| entry(&remembered.group, None));
        }
        Self(groups)
    }

    pub(super) fn get(&self, id: &NodeGroupId) -> Option<GroupEntry<'a>> {
        self.0.get(id).copied()
    }
}

/// What the snapshot says of a machine.
#[derive(Clone, Copy, Default)]
pub(super) struct Machine<'a> {
    /// What it is called; `None` where the snapshot does not name it.
    id: Option<&'a ProviderId>,
    /// Its node. Should two name the same machine, the busy one counts.
    pub(super) node: Option<&'a Arc<NodeFacts>>,
    /// What has been seen of that node's GPUs.
    seen: Option<&'a Arc<Seen>>,
    /// The first supplier that lists it.
    supplier: Option<&'a SupplierName>,
    /// GPU pods on that node. Read once here: nodes lie far apart in memory, and most steps ask every node for these four.
    pods: u32,
    /// Whether that node's GPUs are seen at work.
    activity: GpuActivity<'a>,
    /// Whether that node is Ready.
    ready: bool,
    /// Who keeps that node from the autoscaler.
    hold: Option<Hold>,
    /// Whether that node takes new pods.
    cordon: Option<Cordon>,
}

impl<'a> Machine<'a> {
    /// Takes in the node of the machine, and what is seen of its GPUs.
    fn join(&mut self, node: &'a Arc<NodeFacts>, seen: Option<&'a Arc<Seen>>) {
        (self.node, self.seen) = (Some(node), seen);
        self.pods = u32::try_from(node.gpu_pods.len()).unwrap_or(u32::MAX);
        self.activity = GpuActivity::of(seen.map(AsRef::as_ref));
        self.ready = node.ready_since.is_some();
        self.hold = Some(node.scale_down_disabled);
        self.cordon = Some(node.cordon);
    }

    /// Whether GPU pods are on its node.
    pub(super) const fn is_busy(&self) -> bool {
        self.pods > 0
    }

    /// Whether a GPU of its node is seen at work.
    pub(super) const fn is_active(&self) -> bool {
        matches!(self.activity, GpuActivity::Active(_))
    }
}

/// Every machine that the snapshot names.
#[derive(Default)]
pub(super) struct Machines<'a> {
    all: Vec<Machine<'a>>,
    /// The place of each in that list.
    places: Lookup<&'a ProviderId, usize>,
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
        let listed = inventories.clone().map(|(_, inventory)| inventory.instances.len()).sum();
        machines.all.reserve(listed);
        machines.places.reserve(listed);
        for (supplier, inventory) in inventories {
            for machine in inventory.instances.keys() {
                let Some(known) = machines.known(machine) else { continue };
                let first = *known.supplier.get_or_insert(supplier);
                if first != supplier {
                    machines.listed_again.insert((supplier, machine));
                }
            }
        }
        let mut seen = InOrder::of(&snapshot.seen);
        for node in nodes {
            let Some(id) = &node.provider_id else { continue };
            let Some(machine) = machines.known(id) else { continue };
            if node.is_busy() || machine.node.is_none() {
                machine.join(node, seen.next(&node.name));
            }
            if machine.supplier.is_none() {
                machines.unlisted.push((id, node));
            }
        }
        machines
    }

    /// That machine, which is added where it is new.
    fn known(&mut self, id: &'a ProviderId) -> Option<&mut Machine<'a>> {
        let at = *self.places.entry(id).or_insert(self.all.len());
        if at == self.all.len() {
            self.all.push(Machine { id: Some(id), ..Machine::default() });
        }
        self.all.get_mut(at)
    }

    pub(super) fn get(&self, id: &ProviderId) -> Machine<'a> {
        self.places.get(id).and_then(|at| self.all.get(*at)).copied().unwrap_or_default()
    }

    /// Whether that supplier lists the machine.
    pub(super) fn lists(&self, supplier: &SupplierName, id: &ProviderId) -> bool {
        self.get(id).supplier == Some(supplier) || self.listed_again.contains(&(supplier, id))
    }
}

/// What most steps ask of a record. It is copied here because records lie far apart in memory.
#[derive(Clone, Copy)]
pub(super) struct IndexEntry<'a> {
    pub(super) id: RecordId,
    /// Its group; `None` where nobody knows it any more.
    pub(super) owner: Option<GroupEntry<'a>>,
    /// Its machine.
    machine: Machine<'a>,
    pub(super) phase: Phase,
    /// What is concluded of its node.
    pub(super) verdict: Option<Verdict>,
    /// Whether GPU pods came to its node.
    pub(super) pods_seen: PodsSeen,
    /// How it was bought; `None` where it was not.
    pub(super) capacity: Option<CapacityType>,
}

impl<'a> IndexEntry<'a> {
    pub(super) fn of(record: &Record, groups: &GroupIndex<'a>, machines: &Machines<'a>) -> Self {
        let machine = record.instance().map(|instance| machines.get(instance)).unwrap_or_default();
        Self {
            id: record.id,
            owner: groups.get(&record.group),
            machine,
            phase: record.phase(),
            verdict: record.judged.as_ref().map(|judged| judged.verdict),
            pods_seen: record.pods,
            capacity: capacity_type(record),
        }
    }

    /// Whether it says what the record says.
    pub(super) fn agrees(&self, record: &Record) -> bool {
        (self.phase, self.verdict, self.pods_seen, self.capacity)
            == (record.phase(), record.judged.as_ref().map(|judged| judged.verdict), record.pods, capacity_type(record))
    }

    /// Forgets its machine: the record is gone.
    pub(super) fn clear(&mut self) {
        self.machine = Machine::default();
    }

    /// Whether it has this machine, which is there as far as Stoker knows.
    pub(super) fn runs_on(&self, machine: &ProviderId) -> bool {
        matches!(self.phase, Phase::Booting | Phase::Joined | Phase::Started) && self.machine.id == Some(machine)
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

    /// Whether that node takes new pods, as far as there is a node.
    pub(super) fn cordon(&self) -> Cordon {
        self.machine.cordon.unwrap_or(Cordon::None)
    }

    /// What has been seen of that node's GPUs; `None` where nobody reads it.
    pub(super) fn seen(&self) -> Option<&'a Seen> {
        self.machine.seen.map(AsRef::as_ref)
    }

    /// The group.
    pub(super) fn group(&self) -> Option<&'a Arc<Group>> {
        self.owner.map(|owner| owner.group)
    }

    /// Whether a supplier lists its machine. Of two that do, only the first is known here.
    pub(super) fn is_listed_by(&self, supplier: &SupplierName) -> bool {
        self.machine.supplier == Some(supplier)
    }

    /// The pool's place in the policy, and the pool; `None` where it is gone.
    pub(super) fn pool(&self) -> Option<(usize, &'a Pool)> {
        self.owner?.pool
    }

    /// Whether a GPU of that node is seen at work.
    pub(super) const fn is_active(&self) -> bool {
        self.machine.is_active()
    }

    /// Whether that node's GPUs are seen at work.
    pub(super) const fn activity(&self) -> GpuActivity<'a> {
        self.machine.activity
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
pub(super) struct Index<'a>(Vec<IndexEntry<'a>>);

impl<'a> Index<'a> {
    pub(super) fn of(memory: &Memory, groups: &GroupIndex<'a>, machines: &Machines<'a>) -> Self {
        Self(memory.records.values().map(|record| IndexEntry::of(record, groups, machines)).collect())
    }

    fn place(&self, id: RecordId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |entry| entry.id)
    }

    pub(super) fn get(&self, id: RecordId) -> Option<&IndexEntry<'a>> {
        self.0.get(self.place(id).ok()?)
    }

    pub(super) fn get_mut(&mut self, id: RecordId) -> Option<&mut IndexEntry<'a>> {
        let at = self.place(id).ok()?;
        self.0.get_mut(at)
    }

    pub(super) fn set(&mut self, entry: IndexEntry<'a>) {
        match self.place(entry.id) {
            Ok(at) => self.0.get_mut(at).into_iter().for_each(|known| *known = entry),
            Err(at) => self.0.insert(at, entry),
        }
    }

    /// The records with their entries. Every record has one.
    pub(super) fn indexed<'m>(
        &'m self,
        memory: &'m Memory,
    ) -> impl Iterator<Item = (&'m Arc<Record>, &'m IndexEntry<'a>)> + use<'m, 'a> {
        let mut index = self.0.iter();
        memory.records.iter().filter_map(move |(id, record)| Some((record, index.find(|entry| entry.id == *id)?)))
    }
}
