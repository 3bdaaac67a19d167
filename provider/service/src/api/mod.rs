//! What others call: the autoscaler's gRPC services, the stream of the nodes' probes, and the side port.

pub mod confirm;
pub mod grpc;
pub mod side;
