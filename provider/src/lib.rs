//! The provider: everything that does I/O around the decision of `stoker-core`.

pub mod policy_file;
pub mod yaml;
