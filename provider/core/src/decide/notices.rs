//! Notices about machines, from the supplier's inventory and from the probe on each. A reclaim
//! notice closes its market.

mod breaker;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use self::breaker::AnnouncedReclaim;
use super::pass::{Changes, Pass, after};
use super::reclaims;
use crate::base::ids::{NodeName, RecordId};
use crate::facts::reading::Interruption;
use crate::facts::reading::digest::SETTLED;
use crate::facts::reading::seen::{Hearing, Notice};
use crate::facts::supply::InstanceState;
use crate::market::interruption::{NoticeSource, longest_notice, notice};
use crate::market::offer::Market;
use crate::state::record::{Record, State};

/// What is announced of machines in this pass.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Machines that are taken back: when, and by whose word.
    pub(super) reclaims: BTreeMap<RecordId, (Timestamp, NoticeSource)>,
    /// Machines that only their probes call taken back, and that are not drained for it.
    pub(super) unconfirmed: BTreeSet<RecordId>,
    /// Machines that will be maintained.
    pub(super) maintenance: BTreeSet<RecordId>,
}

impl Notices {
    /// The supplier lists a record's machine as one that is taken back.
    pub(super) fn listed(&mut self, record: RecordId, at: Timestamp) {
        self.reclaims.insert(record, (at, NoticeSource::Supplier));
    }
}

/// Takes in what probes tell. What is only likelier to be taken back than before goes on as it is: most of those machines stay, and a
/// node that is given up for it costs a boot for sure.
pub(super) fn hear<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let told = |(node, seen): (&'_ NodeName, &'_ std::sync::Arc<crate::facts::reading::seen::Seen>)| {
        Some((node.clone(), seen.notice?))
    };
    let told: BTreeMap<NodeName, Notice> = pass.snapshot.seen.iter().filter_map(told).collect();
    if told.is_empty() && changes.memory.probe_reclaims.is_empty() {
        return;
    }
    let mut maintenance = Vec::new();
    let mut reclaimed: Vec<AnnouncedReclaim> = Vec::new();
    for (record, _) in changes.indexed().filter(|(_, entry)| entry.phase.is_registered()) {
        let State::Registered { purchase, instance, node: Some(node), .. } = &record.state else { continue };
        let Some(said) = told.get(node) else { continue };
        match said.kind {
            Interruption::Reclaim => {
                let at = said.deadline.unwrap_or_else(|| after(said.since, notice(&purchase.market.place.cloud)));
                if !is_past(pass, changes, record.id, said, &purchase.market) {
                    let (instance, market) = (instance.clone(), purchase.market.clone());
                    reclaimed.push(AnnouncedReclaim { at, id: record.id, instance, market });
                }
            }
            Interruption::Maintenance => maintenance.push(record.id),
            Interruption::Rebalance | Interruption::Withdrawn => {}
        }
    }
    changes.notices.maintenance.extend(maintenance);
    for AnnouncedReclaim { at, id, instance, market } in breaker::passed(pass, changes, reclaimed) {
        if changes.notices.reclaims.contains_key(&id) {
            reclaims::noticed(pass, changes, &instance, &market);
        } else {
            reclaims::noticed_by_probe(pass, changes, &instance, &market);
        }
        // The supplier's own word of the moment is as good as the probe's, and is there when the probe is gone.
        changes
            .notices
            .reclaims
            .entry(id)
            .and_modify(|(known, _)| *known = at.min(*known))
            .or_insert((at, NoticeSource::Probe));
    }
}

/// Whether the longest time is over that any notice of its market leaves, and nothing was begun for it in that time. A probe that fell silent
/// cannot say that its notice was withdrawn, and pods that are told only now are given no more time than the machine's end gives them.
fn is_past(pass: &Pass<'_>, changes: &Changes<'_>, record: RecordId, said: &Notice, market: &Market) -> bool {
    let over = pass.now.duration_since(said.since) > longest_notice(market);
    over && !changes.memory.disruptions.contains_key(&record)
}

/// Whether it is sure that nobody announces a record's end any more. A probe that is silent, or has just begun to speak, takes nothing
/// back, and neither does an inventory that does not list the machine.
pub(super) fn is_withdrawn<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, record: &Record, by: NoticeSource) -> bool {
    let State::Registered { instance, node, .. } = &record.state else { return false };
    if changes.notices.reclaims.contains_key(&record.id) {
        return false;
    }
    match by {
        NoticeSource::Supplier => pass.inventory_of(&record.group).is_some_and(|inventory| {
            let made = inventory.instances.get(instance);
            made.is_some_and(|made| matches!(made.state, InstanceState::Pending | InstanceState::Running))
        }),
        NoticeSource::Probe => heard_without(pass, changes, node.as_ref(), |_| true),
    }
}

/// Whether the probe on a node is heard for long enough to have said all that it had to, and announces nothing of that kind.
pub(super) fn heard_without<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    node: Option<&NodeName>,
    of_kind: impl Fn(&Notice) -> bool,
) -> bool {
    let Some(seen) = node.and_then(|node| pass.snapshot.seen.get(node)) else { return false };
    let Hearing::Heard { since } = seen.hearing else { return false };
    let settled = after(since, SETTLED);
    changes.look_again_at(settled);
    settled <= pass.now && !seen.notice.as_ref().is_some_and(of_kind)
}
