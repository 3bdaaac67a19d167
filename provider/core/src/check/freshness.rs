//! The promise that nothing is bought by a price or an inventory that says nothing of now.

use jiff::SignedDuration;

use super::{Found, Violation};
use crate::base::engine_clock::Times;
use crate::base::ids::RecordId;
use crate::catalogue::Catalogue;
use crate::facts::snapshot::Snapshot;
use crate::facts::supply::LaunchRequest;
use crate::market::price::{Entry, QuoteKind};

/// How old a supplier's list of machines may be when more is bought there.
const INVENTORY: SignedDuration = SignedDuration::from_mins(2);
/// How old a spot price of a table may be.
const SPOT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How old a price may be that was asked from the market itself.
const LIVE: SignedDuration = SignedDuration::from_hours(1);

/// Judges by what this pass buys.
pub(super) fn known_now(
    bought: &[(RecordId, &LaunchRequest)],
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    times: Times,
    found: &mut Found<'_>,
) {
    for (_, request) in bought {
        // A launch for a group that is not in the policy is no launch that its record says.
        let Some(group) = catalogue.groups.get(&request.group) else { continue };
        let inventory = snapshot.suppliers.get(&group.supplier).and_then(Option::as_ref);
        if !inventory
            .is_some_and(|known| known.complete && times.now.duration_since(known.as_of_in(&request.market.place)) <= INVENTORY)
        {
            let (key, supplier) = (request.key.clone(), group.supplier.clone());
            found.pool(&group.pool, Violation::StaleInventory { key, supplier });
        }
        let offer = group.offers.iter().find(|offer| offer.market == request.market);
        let fresh = offer.and_then(|offer| offer.entry.as_ref()).is_some_and(|entry| match entry {
            Entry::Price(quote) => {
                let within = |life| quote.as_of.is_some_and(|at| times.wall.0.duration_since(at) < life);
                match quote.kind {
                    QuoteKind::List | QuoteKind::Operator => true,
                    QuoteKind::Spot => within(SPOT),
                    QuoteKind::Live | QuoteKind::Simulated => within(LIVE),
                }
            }
            Entry::NoSignal(_) => false,
        });
        if !fresh {
            found.pool(&group.pool, Violation::StalePrice(request.key.clone()));
        }
    }
}
