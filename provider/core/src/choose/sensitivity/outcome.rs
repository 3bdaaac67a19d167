//! Outcome of a choice, to compare it with another one.

use crate::base::engine_clock::Wall;
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::choose::candidate::OfferVerdict;
use crate::choose::explanation::Explanation;
use crate::limits::usage::Usage;
use crate::state::memory::Memory;

/// What a choice comes to.
pub(super) struct Outcome {
    /// Nodes.
    pub(super) found: u32,
    /// What they do, in millionths: units of work where the pool weighs work, else GPUs.
    pub(super) useful: u64,
    /// What they add to the bill, all commitments counted.
    pub(super) cash: UsdPerHour,
    /// The same with what their data costs.
    pub(super) with_data: UsdPerHour,
    /// The same with what their reclaims cost too.
    pub(super) effective: UsdPerHour,
    /// What is used of every limit with them.
    pub(super) usage: Usage,
}

impl Outcome {
    pub(super) fn of(catalogue: &Catalogue, memory: &Memory, made: &Explanation, wall: Wall) -> Self {
        let mut usage = Usage::count(memory, catalogue, wall);
        let before = usage.total_cash();
        let (mut useful, mut data, mut beyond) = (0_u64, UsdPerHour::ZERO, UsdPerHour::ZERO);
        for candidate in &made.candidates {
            let (OfferVerdict::Chosen { nodes }, Ok(price)) = (&candidate.verdict, &candidate.price) else { continue };
            let Some(group) = catalogue.groups.get(&candidate.group) else { continue };
            usage.add_bought(group, &candidate.market, price.quote.price, *nodes, catalogue);
            let each = group.work.map_or_else(|| u64::from(group.units()) * 1_000_000, |work| work.0);
            useful = useful.saturating_add(each.saturating_mul(u64::from(*nodes)));
            data = data.plus(price.transfer.unwrap_or_default().times(*nodes));
            beyond = beyond.plus(price.uncovered().minus(price.quote.price).times(*nodes));
        }
        let cash = usage.total_cash().minus(before);
        Self { found: made.found, useful, cash, with_data: cash.plus(data), effective: cash.plus(beyond), usage }
    }

    /// Whether another one finds as much and costs the same.
    pub(super) fn is_as_good_as(&self, other: &Self) -> bool {
        let figures = |own: &Self| (own.found, own.useful, own.cash, own.with_data, own.effective);
        figures(self) == figures(other)
    }

    /// How much less this capacity would cost at the other one's price, data included: zero where it finds more nodes; `None` where it is no
    /// better.
    pub(super) fn gain(&self, other: &Self) -> Option<UsdPerHour> {
        if other.found > self.found {
            return Some(UsdPerHour::ZERO);
        }
        let less = |here: UsdPerHour, there: UsdPerHour| {
            let alike = (i128::from(there.0) * i128::from(self.useful)).checked_div(i128::from(other.useful))?;
            i64::try_from(alike).ok().map(|alike| here.minus(UsdPerHour(alike)))
        };
        let (paid, effective) = (less(self.with_data, other.with_data)?, less(self.effective, other.effective)?);
        (other.found == self.found && paid > UsdPerHour::ZERO && effective > UsdPerHour::ZERO).then_some(paid)
    }
}
