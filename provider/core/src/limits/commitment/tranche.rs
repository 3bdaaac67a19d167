//! Tranches: what commitments would cover of the next nodes of an offer, as limits that several
//! offers share.

use super::bill::order;
use super::cover::Committed;
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::market::offer::{CapacityType, Market};
use crate::policy::rules::commitment::Terms;

/// Nodes of an offer that one commitment can cover whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tranche {
    /// The commitment, by its place in the policy.
    pub commitment: usize,
    /// What one node takes of it, in the unit that it is counted in; above zero.
    pub takes: i64,
    /// What is left of it.
    pub left: i64,
}

/// What discounts cover of the next on-demand nodes of an offer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tranches {
    /// Whole nodes, in the order in which a bill applies the commitments.
    pub whole: Vec<Tranche>,
    /// Whether one could cover a part of a node: how large a part depends on everything that is bought beside it.
    pub in_part: bool,
}

impl Committed {
    /// What discounts cover of the next nodes of `group` in `market`, whose price is `price`. Kept capacity is no discount: what is left
    /// of that is one number ([`Committed::slot`]).
    pub fn tranches(&self, catalogue: &Catalogue, group: &Group, market: &Market, price: UsdPerHour) -> Tranches {
        let commitments = &catalogue.policy.commitments;
        let mut tranches = Tranches::default();
        if market.capacity_type != CapacityType::OnDemand || commitments.iter().all(|c| !c.is_discount()) {
            return tranches;
        }
        let one = catalogue.reached(group, market, price, 1).what;
        for at in order(commitments) {
            let (Some(commitment), Some(discount)) = (commitments.get(at), one.by.discount(at)) else { continue };
            let (left, takes) = (self.left_of(at), commitment.taken_by_one(&one, discount).max(1));
            if left >= takes {
                tranches.whole.push(Tranche { commitment: at, takes, left });
            }
            tranches.in_part |= match commitment.terms {
                Terms::Nodes(_) | Terms::Capacity(_) => false,
                Terms::Gpus(_) => left % takes != 0,
                Terms::Spend(_) => left > 0 || self.turns_to(at, discount),
            };
        }
        tranches
    }
}
