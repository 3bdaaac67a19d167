//! The decision of one pass. The same inputs give the same plan, byte for byte.
//!
//! The order of the steps is the order of the calls in [`decide`]: what the world says goes in, then
//! nodes are let go, then what is wanted is bought, then nodes are guarded and cleaned up, then the
//! limits follow from what is left.

mod absorb;
mod budgets;
mod busy;
mod cleanup;
mod disrupt;
mod fill;
mod floors;
mod images;
mod index;
mod limits;
mod minimums;
mod node_status;
mod notices;
pub mod orders;
mod reclaims;
#[cfg(test)]
mod tests;
mod verdicts;
mod windows;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::{NodeGroupId, ProviderId, RecordId, SupplierName};
use crate::base::index::LookupSet;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::choose::explanation::Explanation;
use crate::facts::snapshot::{NodeFacts, Snapshot};
use crate::facts::supply::Observation;
use crate::limits::usage::Usage;
use crate::plan::{Accounts, Action, Decision, Note, Plan};
use crate::policy::rules::warm_floor::{FloorStands, Wanted};
use crate::state::memory::{GroupMemory, Memory};
use crate::state::record::{Record, State};
use index::{GroupIndex, Index, IndexEntry, Machines};
use notices::Notices;

pub use limits::UNUSED_AFTER;

/// An inventory older than this says nothing any more: the feed asks every few seconds, so twenty answers in a row have failed.
pub const STALE_INVENTORY: SignedDuration = SignedDuration::from_mins(2);

/// Decides one pass.
///
/// `snapshot` is what is true, `memory` what the last pass remembered, `catalogue` the policy with its groups and prices.
pub fn decide(snapshot: &Snapshot, memory: &Memory, catalogue: &Catalogue, now: Timestamp) -> Decision {
    let mut draft = Draft::new(snapshot, memory, catalogue, now);
    absorb::outcomes(&mut draft);
    absorb::inventory(&mut draft);
    absorb::registrations(&mut draft);
    absorb::deadlines(&mut draft);
    notices::hear(&mut draft);
    reclaims::keep(&mut draft);
    verdicts::judge(&mut draft);
    images::remember(&mut draft);
    floors::learn(&mut draft);
    // Before anything is bought: what goes in this pass must not widen the shares under which it buys.
    disrupt::nodes(&mut draft);
    floors::look(&mut draft);
    fill::buy(&mut draft);
    fill::ask_again(&mut draft);
    cleanup::endings(&mut draft);
    // From here on nothing that a limit counts changes.
    let usage = draft.take_usage();
    let kept = windows::kept(&mut draft, &usage);
    let held = cleanup::holds(&mut draft, &kept);
    cleanup::gone_nodes(&mut draft);
    cleanup::unused_groups(&mut draft);
    let limits = limits::of_groups(&mut draft, &usage, &held);
    let accounts = Accounts { kept, ..budgets::accounts(&mut draft, &usage) };
    let tells = node_status::nodes(&mut draft);
    draft.forget();
    let Draft { memory, actions, notes, explanations, next_change_at, .. } = draft;
    Decision { plan: Plan::new(actions, limits, accounts, notes, explanations, tells), memory, next_change_at }
}

/// A decision in the making.
struct Draft<'a> {
    snapshot: &'a Snapshot,
    /// The memory that the pass began with.
    before: &'a Memory,
    catalogue: &'a Catalogue,
    now: Timestamp,
    wall: Wall,
    homes: GroupIndex<'a>,
    machines: Machines<'a>,
    memory: Memory,
    /// Where each record stands.
    seats: Index<'a>,
    /// Machines of Stoker's that may not be those of a record that waits for them or has them: all others go on as they are.
    strays: BTreeSet<ProviderId>,
    /// What is announced of machines.
    notices: Notices,
    /// What is used of every limit, once it is counted and as long as nothing that counts has changed.
    counted: OnceCell<Usage>,
    /// What each pool's warm floor wants, by the pool's place in the policy.
    floors: Vec<Option<Wanted>>,
    /// How the floors stand after the pass.
    floors_stand: Vec<FloorStands>,
    actions: Vec<Action>,
    notes: Vec<Note>,
    explanations: Vec<Explanation>,
    next_change_at: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    fn new(snapshot: &'a Snapshot, memory: &'a Memory, catalogue: &'a Catalogue, now: Timestamp) -> Self {
        let (homes, machines) = (GroupIndex::of(memory, catalogue), Machines::of(snapshot));
        let seats = Index::of(memory, &homes, &machines);
        Self {
            snapshot,
            before: memory,
            catalogue,
            now,
            wall: snapshot.wall,
            homes,
            machines,
            memory: memory.clone(),
            seats,
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

    /// Notes a moment at which something may differ.
    fn look_again_at(&mut self, at: Timestamp) {
        if at > self.now && self.next_change_at.is_none_or(|next| at < next) {
            self.next_change_at = Some(at);
        }
    }

    /// Notes a moment by the wall at which something may differ.
    fn look_again_on_wall(&mut self, at: Timestamp) {
        self.look_again_at(self.times().when_wall_shows(at));
    }

    const fn times(&self) -> Times {
        Times { now: self.now, wall: self.wall }
    }

    /// `life` after `start`; the end of time where that is further.
    fn after(start: Timestamp, life: SignedDuration) -> Timestamp {
        start.saturating_add(life).unwrap_or(Timestamp::MAX)
    }

    /// Changes a record's state.
    fn set_state(&mut self, id: RecordId, state: State) {
        let Some(record) = self.memory.records.get_mut(&id) else { return };
        self.counted.take();
        let record = Arc::make_mut(record);
        self.strays.extend(record.instance().cloned());
        record.state = state;
        self.seats.set(id, IndexEntry::of(record, &self.homes, &self.machines));
    }

    /// Adds a record that was made for a machine without one.
    fn add_record(&mut self, record: Record) {
        self.counted.take();
        self.seats.set(record.id, IndexEntry::of(&record, &self.homes, &self.machines));
        self.memory.records.insert(record.id, Arc::new(record));
    }

    /// Takes a record out.
    fn remove_record(&mut self, id: RecordId) -> Option<Arc<Record>> {
        let record = self.memory.records.remove(&id)?;
        self.counted.take();
        self.strays.extend(record.instance().cloned());
        Some(record)
    }

    /// The records, each with where it stands.
    fn seated(&self) -> impl Iterator<Item = (&Arc<Record>, IndexEntry<'a>)> {
        self.seats.seated(&self.memory)
    }

    /// Where a record stands.
    fn seat(&self, record: &Record) -> Option<IndexEntry<'a>> {
        self.seats.get(record.id)
    }

    /// The group of a record, from the catalogue or as remembered.
    fn group_of(&self, record: &Record) -> Option<Arc<Group>> {
        self.group(&record.group).cloned()
    }

    /// A group from the catalogue or as remembered.
    fn group(&self, id: &NodeGroupId) -> Option<&'a Arc<Group>> {
        self.homes.get(id).map(|home| home.group)
    }

    /// The node of a machine.
    fn node(&self, machine: &ProviderId) -> Option<&'a Arc<NodeFacts>> {
        self.machines.get(machine).node
    }

    /// The latest inventory of the supplier that makes this group's nodes; `None` while there is none.
    fn inventory_of(&self, group: &NodeGroupId) -> Option<&'a Arc<Observation>> {
        let group = self.group(group)?;
        self.snapshot.suppliers.get(&group.supplier)?.as_ref()
    }

    /// Whether that supplier lists the machine.
    fn lists(&self, supplier: &SupplierName, instance: &ProviderId) -> bool {
        self.machines.lists(supplier, instance)
    }

    /// What is used of every limit: counted when it is first asked for, and again after a change.
    fn usage(&self) -> &Usage {
        let owned = || self.seated().filter_map(|(record, seat)| Some((record.as_ref(), seat.home?.owner())));
        self.counted.get_or_init(|| Usage::count_owned(owned(), self.memory.budgets.clone(), self.catalogue, self.wall))
    }

    /// The same, to go on from with what this pass changes.
    fn take_usage(&mut self) -> Usage {
        self.usage();
        self.counted.take().unwrap_or_default()
    }

    /// Drops what no longer needs remembering.
    fn forget(&mut self) {
        // By the groups' places in the catalogue, as comparing the ids of all records would cost more than all else here.
        let mut listed = vec![false; self.catalogue.groups.len()];
        let mut others: LookupSet<&NodeGroupId> = LookupSet::default();
        for (record, seat) in self.seats.seated(&self.memory) {
            match seat.home.and_then(|home| listed.get_mut(home.at?)) {
                Some(used) => *used = true,
                None => drop(others.insert(&record.group)),
            }
        }
        let homes = &self.homes;
        let used = |id: &NodeGroupId| match homes.get(id).and_then(|home| home.at) {
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
        let gone = |orphan: &ProviderId| !self.snapshot.suppliers.keys().any(|supplier| self.lists(supplier, orphan));
        let left: Vec<ProviderId> = self.memory.orphans.iter().filter(|orphan| gone(orphan)).cloned().collect();
        for orphan in left {
            self.memory.orphans.remove(&orphan);
        }
        // A market that has been quiet for longer than its longest wait starts afresh at the next refusal.
        let now = self.now;
        self.memory.refused.retain(|_, b| Self::after(b.until, crate::state::memory::LONGEST_BACKOFF) > now);
    }
}

/// Whether a supplier's inventory can be trusted for this group: complete and fresh.
pub fn is_fresh(snapshot: &Snapshot, group: &Group, now: Timestamp) -> bool {
    snapshot.suppliers.get(&group.supplier).and_then(Option::as_ref).is_some_and(|inventory| tells_of_now(inventory, now))
}

/// Whether an inventory is complete and fresh.
fn tells_of_now(inventory: &Observation, now: Timestamp) -> bool {
    inventory.complete && now.duration_since(inventory.as_of) <= STALE_INVENTORY
}
