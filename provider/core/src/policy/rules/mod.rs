//! Rules of a pool, one file per subject.

pub mod advise;
pub mod commitment;
pub mod demand;
pub mod health;
pub mod karpenter;
pub mod month;
pub mod outdated;
pub mod spot;
pub mod stabilization;
pub mod supplier;
pub mod warm_floor;
