//! The service: everything that does I/O around the decision of `stoker-core`.

pub mod act;
pub mod api;
pub mod boot;
pub mod certs;
pub mod clock;
pub mod controllers;
pub mod engine;
pub mod failpoints;
pub mod feeds;
pub mod files;
mod fs_events;
pub mod init;
pub mod kube;
pub mod listener;
pub mod needs;
pub mod policy_file;
pub mod price_tables;
pub mod print;
pub mod publish;
pub mod serve;
pub mod suppliers;
pub mod unmatched;
pub mod yaml;
