//! Reservations of one place: which one the next node is bought from, and what refusals leave of them.

use jiff::Timestamp;

use crate::base::engine_clock::Times;
use crate::facts::supply::RefusedArea;
use crate::market::offer::{CapacityType, Market, Place};
use crate::policy::rules::commitment::Commitment;
use crate::state::memory::{Backoff, Memory};
use crate::state::record::{Record, State};

/// The commitments that keep capacity at one place and that new nodes may start on, in the policy's order.
#[derive(Debug)]
pub struct Reservations<'a> {
    now: Timestamp,
    all: Vec<Reservation<'a>>,
}

#[derive(Debug)]
struct Reservation<'a> {
    name: &'a str,
    nodes: usize,
    taken: usize,
    refused: Option<(&'a RefusedArea, &'a Backoff)>,
    /// Whether a launch from it is under way.
    is_launching: bool,
}

impl Reservation<'_> {
    fn free(&self) -> usize {
        self.nodes.saturating_sub(self.taken)
    }

    /// Whether one launch may try it again.
    fn may_be_tried(&self, now: Timestamp) -> bool {
        self.refused.is_some_and(|(_, backoff)| backoff.until <= now) && !self.is_launching && self.free() > 0
    }
}

impl<'a> Reservations<'a> {
    /// Those at `place`. Nodes of which nobody knows the reservation, as of machines that were found, count in the policy's order.
    pub fn at(place: &Place, commitments: &'a [Commitment], memory: &'a Memory, times: Times) -> Self {
        let refusal = |name: &str| {
            memory.refused_areas.iter().find_map(|(area, backoff)| match area {
                RefusedArea::Reservation(of, refused) if of == place && refused == name => Some((area, backoff.as_ref())),
                _ => None,
            })
        };
        let open = commitments.iter().filter(|commitment| commitment.shut(times.wall).is_none());
        let mut all: Vec<Reservation<'a>> = open
            .filter_map(|commitment| {
                let (name, capacity) = (commitment.name.as_str(), commitment.capacity_at(place)?);
                let nodes = usize::try_from(capacity.nodes).unwrap_or(usize::MAX);
                Some(Reservation { name, nodes, taken: 0, refused: refusal(name), is_launching: false })
            })
            .collect();
        let mut of_none = 0;
        for record in memory.records.values() {
            let Some(purchase) = record.purchase().filter(|purchase| is_kept(&purchase.market, place)) else { continue };
            let named = all.iter_mut().find(|one| purchase.reservation.as_deref() == Some(one.name));
            let Some(named) = named else {
                of_none += 1;
                continue;
            };
            named.taken += 1;
            named.is_launching |= is_launching(record);
        }
        for one in &mut all {
            let here = one.free().min(of_none);
            one.taken += here;
            of_none -= here;
        }
        Self { now: times.now, all }
    }

    /// What the policy calls the reservation that the next node at `place` is bought from, where it keeps any there.
    pub fn next_at(place: &Place, commitments: &'a [Commitment], memory: &'a Memory, times: Times) -> Option<&'a str> {
        let mut open = commitments.iter().filter(|one| one.shut(times.wall).is_none() && one.capacity_at(place).is_some());
        let first = open.next()?;
        // Most places have one: counting every record for each purchase doubles the time of a large pass.
        if open.next().is_none() {
            return Some(first.name.as_str());
        }
        Self::at(place, commitments, memory, times).next()
    }

    /// The one that the next node is bought from: the first with room that no supplier refused, else one that may be tried again.
    pub fn next(&self) -> Option<&'a str> {
        let open = || self.all.iter().filter(|one| one.refused.is_none());
        let with_room = open().find(|one| one.free() > 0);
        let tried = || self.all.iter().find(|one| one.may_be_tried(self.now));
        with_room.or_else(tried).or_else(|| open().next()).map(|one| one.name)
    }

    /// How many of `free` nodes can be bought, where so many are free of all of them: none of what was refused, but one of each that may
    /// be tried again.
    ///
    /// # Errors
    /// The refusal that ends first of those that leave nothing; `None` where a launch tries it.
    pub fn room(&self, free: u32) -> Result<u32, Option<(&'a RefusedArea, &'a Backoff)>> {
        let refused = || self.all.iter().filter(|one| one.refused.is_some() && one.free() > 0);
        let shut: usize = refused().map(|one| one.free() - usize::from(one.may_be_tried(self.now))).sum();
        match free.saturating_sub(u32::try_from(shut).unwrap_or(u32::MAX)) {
            0 if free > 0 => {
                let still = refused().filter_map(|one| one.refused).filter(|(_, backoff)| backoff.until > self.now);
                Err(still.min_by_key(|(_, backoff)| backoff.until))
            }
            room => Ok(room),
        }
    }
}

fn is_kept(market: &Market, place: &Place) -> bool {
    market.capacity_type == CapacityType::Reserved && market.place == *place
}

fn is_launching(record: &Record) -> bool {
    matches!(record.state, State::Launching { .. })
}
