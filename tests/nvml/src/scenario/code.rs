//! What NVML answers other than success.

use nvml_wrapper_sys::bindings as nvml;
use serde::{Deserialize, Serialize};

/// An error of NVML's, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "NVML's own names")]
pub enum Code {
    Uninitialized,
    InvalidArgument,
    NotSupported,
    NoPermission,
    NotFound,
    InsufficientSize,
    DriverNotLoaded,
    Timeout,
    GpuLost,
    ResetRequired,
    LibRmVersionMismatch,
    ArgumentVersionMismatch,
    NotReady,
    Unknown,
}

impl Code {
    pub(crate) const fn number(self) -> nvml::nvmlReturn_t {
        match self {
            Self::Uninitialized => nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
            Self::InvalidArgument => nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
            Self::NotSupported => nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
            Self::NoPermission => nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION,
            Self::NotFound => nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND,
            Self::InsufficientSize => nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE,
            Self::DriverNotLoaded => nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
            Self::Timeout => nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT,
            Self::GpuLost => nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST,
            Self::ResetRequired => nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED,
            Self::LibRmVersionMismatch => nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            Self::ArgumentVersionMismatch => nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            Self::NotReady => nvml::nvmlReturn_enum_NVML_ERROR_NOT_READY,
            Self::Unknown => nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN,
        }
    }
}
