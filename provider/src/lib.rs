//! The provider: everything that does I/O around the decision of `stoker-core`.

pub mod certs;
pub mod net;
pub mod policy_file;
pub mod side;
pub mod telemetry;
pub mod yaml;
