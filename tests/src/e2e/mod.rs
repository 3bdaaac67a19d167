//! The end-to-end tests: `stoker` between a Cluster Autoscaler and a real API server and scheduler.
//!
//! The Cluster Autoscaler is a real one where the caller names its binary, else the model of `stoker-sim`, which [`door`] and
//! [`mirror`] connect to the same sockets. Each scenario gets a fresh `stoker` and a fresh autoscaler ([`mod@bench`]) on the one cluster.

pub mod bench;
pub mod cluster;
pub mod daemon;
pub mod door;
pub mod ec2;
pub mod files;
pub mod flags;
pub mod karpenter;
pub mod memory;
pub mod mirror;
pub mod postgres;
pub mod process;
pub mod recorder;
pub mod releases;
pub mod replicas;
pub mod scenarios;
