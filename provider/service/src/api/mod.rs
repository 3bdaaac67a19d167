//! What others call: the autoscaler's gRPC services, the stream of the nodes' probes, and the side port and its console.

pub mod confirm;
pub mod console;
pub mod grpc;
pub mod side;
