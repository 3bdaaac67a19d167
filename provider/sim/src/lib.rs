//! The simulated world, the autoscaler model and workloads.

pub mod world;
