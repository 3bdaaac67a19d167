//! What the tests of the whole are made of.

pub mod browser;
pub mod client;
pub mod e2e;
pub mod gpu_node;
pub mod harness;
pub mod http;
pub mod manifests;
pub mod market;
pub mod policy;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod raw;
pub mod relay;
pub mod rig;
pub mod terminal;
pub mod transcript;

/// What manifests/stoker sets for the heap of the service: benches and end-to-end tests run it as it is deployed.
pub const HEAP: (&str, &str) = ("MALLOC_ARENA_MAX", "1");
