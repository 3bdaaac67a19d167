//! What the tests of the whole are made of.

pub mod client;
pub mod e2e;
pub mod gpu_node;
pub mod harness;
pub mod market;
pub mod policy;
pub mod process;
pub mod prometheus;
pub mod raw;
pub mod relay;
pub mod rig;
pub mod transcript;
