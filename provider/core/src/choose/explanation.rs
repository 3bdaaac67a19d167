//! Explanations: why an order was supplied as it was.

use serde::{Deserialize, Serialize};

use crate::base::ids::{NodeGroupId, OrderId};
use crate::choose::allocate::Proof;
use crate::choose::candidate::Candidate;

/// Why an order was supplied as it was in one pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The order; `None` in a what-if.
    pub order: Option<OrderId>,
    /// The group; `None` where a whole pool was asked.
    pub group: Option<NodeGroupId>,
    /// Nodes asked for in this pass.
    pub asked: u32,
    /// Nodes that an offer was found for.
    pub found: u32,
    /// Every offer weighed.
    pub candidates: Vec<Candidate>,
    /// How good the choice is known to be.
    #[serde(default, skip_serializing_if = "Proof::is_best")]
    pub proof: Proof,
}
