//! What clouds sell: instance types, prices, labels of nodes, spot hazards, GPU sharing, data transfer.

pub mod hazard;
pub mod interruption;
pub mod labels;
pub mod offer;
pub mod price;
pub mod quota_names;
pub mod sharing;
pub mod transfer;
