//! The provider: everything that does I/O around the decision of `stoker-core`.

pub mod catalog;
pub mod certs;
pub mod cli;
pub mod clock;
pub mod demo;
pub mod door;
pub mod engine;
pub mod fault;
pub mod grpc;
pub mod journal;
pub mod kube;
pub mod monitoring;
pub mod net;
pub mod observer;
pub mod permit;
pub mod policy_file;
pub mod policy_watch;
pub mod serve;
pub mod side;
pub mod supplier;
pub mod telemetry;
pub mod unmatched;
pub mod view;
mod watched;
pub mod yaml;
