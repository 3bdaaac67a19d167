//! The decision in virtual time: a cluster with its scheduler and kubelets, clouds that sell, run out and take back, probes that read,
//! and the model of the autoscaler, around the real `decide`, `check` and orders. Days pass in a moment, and the same scene is told
//! in the same words each time.
//!
//! A [`Scene`] is moved by hand: pods come, hardware breaks, clocks jump, and time passes. What happened and what was decided, with the
//! reasons that the decision gave, is its [timeline](Scene::timeline). Whatever is told, [`truth`] watches from outside that no
//! promise is broken.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::struct_excessive_bools,
    reason = "a scene that cannot be told fails its test; and much can be wrong with a world at once"
)]

mod cloud;
mod conclusions;
mod desk;
mod market;
mod policies;
mod probe;
mod scene;
mod timeline;
pub mod truth;

pub use desk::WrittenDecision;
pub use scene::{Pod, Scene};
