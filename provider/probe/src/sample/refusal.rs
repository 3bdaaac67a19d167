//! What NVML's errors mean for a reading.

use std::time::{SystemTime, UNIX_EPOCH};

use nvml_wrapper::error::NvmlError;
use stoker_proto::Timestamp;
use stoker_proto::probe::driver::State;
use stoker_proto::probe::{Driver, Why};

/// NVML's codes that the wrapper has no name for.
const ARGUMENT_VERSION: u32 = 25;
const DEPRECATED: u32 = 26;
const NOT_READY: u32 = 27;
const GPU_NOT_FOUND: u32 = 28;

/// Why a reading is unknown.
pub(crate) fn why(error: &NvmlError) -> Why {
    match error {
        NvmlError::NotSupported
        | NvmlError::VgpuEccNotSupported
        | NvmlError::FunctionNotFound
        // A driver too old for the call.
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::UnexpectedVariant(ARGUMENT_VERSION | DEPRECATED) => Why::NotSupported,
        NvmlError::NoPermission => Why::NoPermission,
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::UnexpectedVariant(GPU_NOT_FOUND) => Why::GpuLost,
        NvmlError::Timeout => Why::TimedOut,
        NvmlError::UnexpectedVariant(NOT_READY) => Why::NotYet,
        _ => Why::Failed,
    }
}

/// How NVML stands that answers so to being opened, or to how many GPUs there are.
pub(crate) fn driver(error: &NvmlError) -> Driver {
    let state = match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => State::LibraryMissing,
        NvmlError::DriverNotLoaded => State::DriverNotLoaded,
        NvmlError::LibRmVersionMismatch => State::VersionMismatch,
        NvmlError::NoPermission => State::NoPermission,
        _ => State::Failed,
    };
    Driver { state: state.into(), detail: error.to_string(), ..Driver::default() }
}

/// The node's clock.
pub fn now() -> Timestamp {
    // A clock before the epoch is told as the epoch.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}
