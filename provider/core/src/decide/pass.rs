//! A pass: what its steps read, and what they change.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::index::{GroupIndex, Index, IndexEntry, Machines};
use super::notices::Notices;
use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::{NodeGroupId, ProviderId, RecordId, SupplierName};
use crate::base::index::LookupSet;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::choose::explanation::Explanation;
use crate::facts::snapshot::{NodeFacts, Snapshot};
use crate::facts::supply::Observation;
use crate::limits::usage::Usage;
use crate::plan::{Action, Note};
use crate::policy::rules::warm_floor::{FloorStands, Wanted};
use crate::state::memory::{GroupMemory, LONGEST_BACKOFF, Memory};
use crate::state::record::{Record, State};

/// What a pass reads. No step changes it.
pub(super) struct Pass<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// The memory that the pass began with.
    pub(super) before: &'a Memory,
    pub(super) catalogue: &'a Catalogue,
    pub(super) now: Timestamp,
    pub(super) wall: Wall,
    /// Every group that records may belong to.
    pub(super) groups: GroupIndex<'a>,
    /// Every machine that the snapshot names.
    pub(super) machines: Machines<'a>,
}

/// What a pass has changed so far.
pub(super) struct Changes<'a> {
    now: Timestamp,
    pub(super) memory: Memory,
    /// Where each record stands.
    index: Index<'a>,
    /// Machines that may have to be ended: they have no record, or are not their record's machine any more.
    pub(super) strays: BTreeSet<ProviderId>,
    /// What is announced of machines.
    pub(super) notices: Notices,
    /// What is used of every limit, once it is counted and as long as nothing that counts has changed.
    counted: OnceCell<Usage>,
    /// What each pool's warm floor wants, by the pool's place in the policy.
    pub(super) floors: Vec<Option<Wanted>>,
    /// How the floors stand after the pass.
    pub(super) floors_stand: Vec<FloorStands>,
    pub(super) actions: Vec<Action>,
    pub(super) notes: Vec<Note>,
    pub(super) explanations: Vec<Explanation>,
    pub(super) next_change_at: Option<Timestamp>,
}

/// `life` after `start`; the end of time where that is further.
pub(super) fn after(start: Timestamp, life: SignedDuration) -> Timestamp {
    start.saturating_add(life).unwrap_or(Timestamp::MAX)
}

impl<'a> Pass<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, before: &'a Memory, catalogue: &'a Catalogue, now: Timestamp) -> Self {
        let (groups, machines) = (GroupIndex::of(before, catalogue), Machines::of(snapshot));
        Self { snapshot, before, catalogue, now, wall: snapshot.wall, groups, machines }
    }

    pub(super) const fn times(&self) -> Times {
        Times { now: self.now, wall: self.wall }
    }

    /// The group of a record, from the catalogue or as remembered.
    pub(super) fn group_of(&self, record: &Record) -> Option<Arc<Group>> {
        self.group(&record.group).cloned()
    }

    /// A group from the catalogue or as remembered.
    pub(super) fn group(&self, id: &NodeGroupId) -> Option<&'a Arc<Group>> {
        self.groups.get(id).map(|entry| entry.group)
    }

    /// The node of a machine.
    pub(super) fn node(&self, machine: &ProviderId) -> Option<&'a Arc<NodeFacts>> {
        self.machines.get(machine).node
    }

    /// The latest inventory of the supplier that makes this group's nodes; `None` while there is none.
    pub(super) fn inventory_of(&self, group: &NodeGroupId) -> Option<&'a Arc<Observation>> {
        let group = self.group(group)?;
        self.snapshot.suppliers.get(&group.supplier)?.as_ref()
    }

    /// Whether that supplier lists the machine.
    pub(super) fn lists(&self, supplier: &SupplierName, instance: &ProviderId) -> bool {
        self.machines.lists(supplier, instance)
    }
}

impl<'a> Changes<'a> {
    /// None yet.
    pub(super) fn none(pass: &Pass<'a>) -> Self {
        Self {
            now: pass.now,
            memory: pass.before.clone(),
            index: Index::of(pass.before, &pass.groups, &pass.machines),
            strays: BTreeSet::new(),
            notices: Notices::default(),
            counted: OnceCell::new(),
            floors: Vec::new(),
            floors_stand: Vec::new(),
            actions: Vec::new(),
            notes: Vec::new(),
            explanations: Vec::new(),
            next_change_at: None,
        }
    }

    /// Until when nothing is ended or drained but what the cloud takes; `None` where that is not
    /// so.
    pub(super) fn caution(&self) -> Option<Timestamp> {
        self.memory.caution(self.now)
    }

    /// Notes a moment at which something may differ.
    pub(super) fn look_again_at(&mut self, at: Timestamp) {
        if at > self.now && self.next_change_at.is_none_or(|next| at < next) {
            self.next_change_at = Some(at);
        }
    }

    /// Notes a moment by the wall at which something may differ.
    pub(super) fn look_again_on_wall(&mut self, pass: &Pass<'_>, at: Timestamp) {
        self.look_again_at(pass.times().when_wall_shows(at));
    }

    /// Changes a record's state.
    pub(super) fn set_state(&mut self, pass: &Pass<'a>, id: RecordId, state: State) {
        let Some(record) = self.memory.records.get(&id) else { return };
        self.strays.extend(record.instance().cloned());
        self.edit(pass, id, |record| record.state = state);
    }

    /// Changes a record: the only way to do so.
    pub(super) fn edit(&mut self, pass: &Pass<'a>, id: RecordId, edit: impl FnOnce(&mut Record)) {
        let Some(record) = self.memory.records.get_mut(&id) else { return };
        let record = Arc::make_mut(record);
        edit(record);
        self.counted.take();
        self.index.set(IndexEntry::of(record, &pass.groups, &pass.machines));
    }

    /// Adds a record that was made for a machine without one.
    pub(super) fn add_record(&mut self, pass: &Pass<'a>, record: Record) {
        self.counted.take();
        self.index.set(IndexEntry::of(&record, &pass.groups, &pass.machines));
        self.memory.records.insert(record.id, Arc::new(record));
    }

    /// Takes a record out.
    pub(super) fn remove_record(&mut self, id: RecordId) -> Option<Arc<Record>> {
        let record = self.memory.records.remove(&id)?;
        self.counted.take();
        self.index.get_mut(id).into_iter().for_each(IndexEntry::clear);
        self.strays.extend(record.instance().cloned());
        Some(record)
    }

    /// The records, each with where it stands.
    pub(super) fn indexed(&self) -> impl Iterator<Item = (&Arc<Record>, &IndexEntry<'a>)> {
        self.index.indexed(&self.memory)
    }

    /// Whether a record has this machine, which is there as far as Stoker knows.
    pub(super) fn runs_on(&self, id: RecordId, machine: &ProviderId) -> bool {
        self.index.get(id).is_some_and(|entry| entry.runs_on(machine))
    }

    /// Where a record stands.
    pub(super) fn entry(&self, record: &Record) -> Option<IndexEntry<'a>> {
        self.index.get(record.id).copied()
    }

    /// What is used of every limit: counted when it is first asked for, and again after a change.
    pub(super) fn usage(&self, pass: &Pass<'_>) -> &Usage {
        let owned = || self.indexed().filter_map(|(record, entry)| Some((record.as_ref(), entry.owner?.owner())));
        let count = || Usage::count_owned(owned(), &self.memory, pass.catalogue, pass.wall);
        self.counted.get_or_init(count)
    }

    /// The same, to go on from with what this pass changes.
    pub(super) fn take_usage(&mut self, pass: &Pass<'_>) -> Usage {
        self.usage(pass);
        self.counted.take().unwrap_or_default()
    }

    /// Something else than a record that counts has changed.
    pub(super) fn recount(&mut self) {
        self.counted.take();
    }

    /// Drops what no longer needs remembering.
    pub(super) fn forget(&mut self, pass: &Pass<'_>) {
        // By the groups' places in the catalogue, as comparing the ids of all records would cost more than all else here.
        let mut listed = vec![false; pass.catalogue.groups.len()];
        let mut others: LookupSet<&NodeGroupId> = LookupSet::default();
        for (record, entry) in self.index.indexed(&self.memory) {
            match entry.owner.and_then(|owner| listed.get_mut(owner.at?)) {
                Some(used) => *used = true,
                None => drop(others.insert(&record.group)),
            }
        }
        let groups = &pass.groups;
        let used = |id: &NodeGroupId| match groups.get(id).and_then(|entry| entry.at) {
            Some(at) => listed.get(at).is_some_and(|used| *used),
            None => others.contains(id),
        };
        let idle = |(id, known): (&NodeGroupId, &Arc<GroupMemory>)| {
            (!used(id) && known.unused == 0 && known.suspended_since.is_none()).then(|| id.clone())
        };
        let idle: Vec<NodeGroupId> = self.memory.groups.iter().filter_map(idle).collect();
        for id in idle {
            self.memory.groups.remove(&id);
        }
        let gone = |orphan: &ProviderId| !pass.snapshot.suppliers.keys().any(|supplier| pass.lists(supplier, orphan));
        let left: Vec<ProviderId> = self.memory.orphans.iter().filter(|orphan| gone(orphan)).cloned().collect();
        for orphan in left {
            self.memory.orphans.remove(&orphan);
        }
        // A market that has been quiet for longer than its longest wait starts afresh at the next refusal.
        let now = pass.now;
        self.memory.refused.retain(|_, b| after(b.until, LONGEST_BACKOFF) > now);
        self.memory.refused_areas.retain(|_, b| after(b.until, LONGEST_BACKOFF) > now);
    }
}
