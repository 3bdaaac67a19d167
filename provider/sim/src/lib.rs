//! The simulated world, the autoscaler model and workloads.

pub mod bound;
pub mod demand;
pub mod in_process;
pub mod model;
pub mod peers;
pub mod simulate;
pub mod spot_month;
pub mod workload;
pub mod world;
