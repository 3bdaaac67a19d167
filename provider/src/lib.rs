//! The command line: what can be asked, and how it is answered. The service itself is `stoker-service`.

pub mod cli;
pub mod doctor;
pub mod monitoring;
