//! What a pass publishes: the view that read calls answer from, the report of the pass, metrics, log lines and Events.

pub mod observer;
pub mod picture;
mod report;
pub mod telemetry;
pub mod view;

pub use report::{Call, CallRefused, Listener, PassReport};
