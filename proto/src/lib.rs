//! The wire of this provider: to a Cluster Autoscaler two gRPC services, as the union of every release since 1.25, and
//! one to the probes on its nodes.
//!
//! * [`externalgrpc`]: the external cloud provider, `--cloud-provider=externalgrpc`;
//! * [`expander`]: the gRPC expander, `--expander=grpc`;
//! * [`probe`]: what a node's probe reads, and what it may be asked;
//! * [`supplier`]: a plugin that makes machines in a cloud that Stoker does not know;
//! * [`codec`]: how messages are read, with a bound on what they become;
//! * [`limits`]: what no hardware has more of, whoever tells it;
//! * [`FILE_DESCRIPTOR_SET`]: all of them, for gRPC reflection.
//!
//! Releases of the autoscaler differ in which fields they send and read. The messages here declare all of them, and the inherent methods
//! of `compat.rs` hold the two rules that serve every release with one server: **answers fill both** the legacy field
//! and its successor, **requests are read from both**, the successor first. Code that goes through these methods need
//! not know which release is calling; where it must, [`ClientGeneration`] tells. [`InstanceErrorClass`] names the two
//! numbers that the wire leaves bare.
//!
//! `bytes` fields are [`Bytes`]: a pod or node is a slice of the request it came in, and keeps that whole request alive.
//! Copy what outlives the call. Maps are ordered, so equal messages encode to equal bytes. The expander's requests reach
//! tens of MiB, so its server must raise tonic's limit of 4 MB for decoding.

pub mod codec;
mod compat;
mod generation;
pub mod limits;

pub use compat::InstanceErrorClass;
pub use generation::ClientGeneration;
pub use prost::bytes::Bytes;
pub use prost_types::{Any, Duration, Timestamp};

/// How often a probe may send a round, in milliseconds: 5 s unless told, a tenth of a second for tests, and at most a minute. A provider
/// refuses the stream of any other.
pub const PROBE_PERIODS_MS: std::ops::RangeInclusive<u32> = 100..=60_000;

/// Descriptors of all services and what they import, serialised for `tonic_reflection`.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("stoker_descriptor");

/// Messages, client and server of `clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider`.
pub mod externalgrpc {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
    tonic::include_proto!("clusterautoscaler.cloudprovider.v1.externalgrpc");
}

/// Messages, client and server of `grpcplugin.Expander`.
pub mod expander {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
    tonic::include_proto!("grpcplugin");

    /// [`Option`] under a name that does not hide the one of the standard library.
    pub type ExpanderOption = self::Option;
}

/// Messages, client and server of `stoker.probe.v1.Probe`.
pub mod probe {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
    tonic::include_proto!("stoker.probe.v1");
}

/// Messages, client and server of `stoker.supplier.v1.Supplier`.
pub mod supplier {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
    tonic::include_proto!("stoker.supplier.v1");
}
