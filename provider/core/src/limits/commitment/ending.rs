//! Nodes on capacity that ends soon.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::base::engine_clock::Times;
use crate::base::ids::RecordId;
use crate::market::offer::{CapacityType, Place};
use crate::policy::rules::commitment::{Capacity, Commitment, Paid, Terms};
use crate::state::memory::Memory;
use crate::state::record::{Record, State};

/// The nodes that must leave now, each with the commitment that ends.
///
/// No cloud tells here which reservation a node runs on, so they are counted: of the nodes bought from kept capacity in one place, as
/// many go as capacity ends there, and no more than the capacity that stays cannot hold. Those that were made before it began to end go,
/// the oldest first: nothing that was made later can run on it.
pub fn nodes_on_ending<'a>(memory: &Memory, commitments: &'a [Commitment], times: Times) -> Vec<(RecordId, &'a Commitment)> {
    let wall = times.wall;
    let mut ending: BTreeMap<&Place, Vec<(&'a Commitment, &'a Capacity, Timestamp)>> = BTreeMap::new();
    for commitment in commitments {
        if let Terms::Capacity(capacity @ Capacity { paid: Paid::Ahead { leave_at, .. }, .. }) = &commitment.terms
            && wall.shows(*leave_at)
        {
            ending.entry(&capacity.place).or_default().push((commitment, capacity, *leave_at));
        }
    }
    let mut disruption = Vec::new();
    for (place, mut ending) in ending {
        // The one that ends first takes its nodes first.
        ending.sort_by_key(|(commitment, _, leave_at)| (*leave_at, &commitment.name));
        let stays = commitments.iter().filter(|c| c.is_active(wall) && !ending.iter().any(|(e, ..)| e.name == c.name));
        let stays: usize = stays.filter_map(|c| c.capacity_at(place)).map(nodes).sum();
        let mut held: Vec<(Timestamp, &Record)> = memory
            .records
            .values()
            .filter_map(|record| Some((times.on_wall(runs_since(record, place)?), record.as_ref())))
            .collect();
        held.sort_by_key(|(launched_at, record)| (*launched_at, record.id));
        let mut excess = held.len().saturating_sub(stays);
        for (commitment, capacity, leave_at) in ending {
            let mut of_it = nodes(capacity).min(excess);
            excess -= of_it;
            held.retain(|(launched_at, record)| {
                let began = commitment.from.is_none_or(|from| from <= *launched_at);
                let goes = of_it > 0 && began && *launched_at < leave_at;
                if goes {
                    of_it -= 1;
                    disruption.push((record.id, commitment));
                }
                !goes
            });
        }
    }
    disruption
}

fn nodes(kept: &Capacity) -> usize {
    usize::try_from(kept.nodes).unwrap_or(usize::MAX)
}

/// Since when a record's machine runs on kept capacity in this place; `None` where it does not.
fn runs_since(record: &Record, place: &Place) -> Option<Timestamp> {
    match &record.state {
        State::Booting { purchase, launched_at, .. } | State::Registered { purchase, launched_at, .. } => {
            let kept = purchase.market.capacity_type == CapacityType::Reserved && purchase.market.place == *place;
            kept.then_some(*launched_at)
        }
        _ => None,
    }
}
