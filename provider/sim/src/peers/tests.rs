//! The runs of the reference, and small worlds worked by hand.

use stoker_core::base::units::{Milli, UsdMicros};

use super::*;

mod by_hand;
mod reference;
mod serving;
mod spot;
mod spot_by_hand;
