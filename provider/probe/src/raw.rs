//! The calls that the wrapper has no safe form of, and the only unsafe code.
//!
//! * Events: the wrapper's `register_events` gives the set up for all GPUs when one refuses, and its `wait` drops the MIG instance and
//!   every kind that it does not know.
//! * MIG instance ids and the fabric's state: no method at all.
#![allow(unsafe_code, reason = "calls by function pointer; see the module's documentation")]

use std::mem::zeroed;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeGpuRecoveryAction, nvmlEventTypeXidCriticalError,
    nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfoV_t,
};

/// An XID.
pub(crate) const XID: u64 = nvmlEventTypeXidCriticalError as u64;
/// The driver wants something else done than before.
pub(crate) const RECOVERY_ACTION: u64 = nvmlEventTypeGpuRecoveryAction as u64;

/// "Not known", in the instance fields of an event.
const NO_INSTANCE: u32 = u32::MAX;

/// A set of GPUs that is listened to.
pub(crate) struct EventSet<'nvml> {
    nvml: &'nvml Nvml,
    set: nvmlEventSet_t,
    /// Handles and UUIDs: a GPU that is lost can no longer be asked who it is.
    listens: Vec<(usize, String)>,
}

// SAFETY: NVML may be called from any thread, and only one has the set at a time: it is neither `Clone` nor `Sync`. The wrapper's own is
// `Send` by the same reasoning.
unsafe impl Send for EventSet<'_> {}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawEvent {
    pub(crate) kind: u64,
    pub(crate) data: u64,
    pub(crate) gpu_uuid: Option<String>,
    pub(crate) gpu_instance: Option<u32>,
    pub(crate) compute_instance: Option<u32>,
}

impl<'nvml> EventSet<'nvml> {
    /// An empty set. Refused where the library cannot free it again.
    pub(crate) fn new(nvml: &'nvml Nvml) -> Result<Self, NvmlError> {
        nvml_sym(nvml.lib().nvmlEventSetFree.as_ref())?;
        let create = nvml_sym(nvml.lib().nvmlEventSetCreate.as_ref())?;
        let mut set: nvmlEventSet_t = std::ptr::null_mut();
        // SAFETY: the library is loaded and initialised while `nvml` lives; the pointer is to a place for a set.
        nvml_try(unsafe { create(&raw mut set) })?;
        Ok(Self { nvml, set, listens: Vec::new() })
    }

    /// Listens to those of the kinds that the GPU supports; says which.
    pub(crate) fn listen(&mut self, device: &Device<'nvml>, uuid: &str, kinds: u64) -> Result<u64, NvmlError> {
        let supported = nvml_sym(self.nvml.lib().nvmlDeviceGetSupportedEventTypes.as_ref())?;
        let register = nvml_sym(self.nvml.lib().nvmlDeviceRegisterEvents.as_ref())?;
        let mut mask = 0;
        // SAFETY: the handle is of the same session, which outlives it; the pointer is to a place for a mask.
        nvml_try(unsafe { supported(device.handle(), &raw mut mask) })?;
        let kinds = kinds & mask;
        if kinds == 0 {
            return Err(NvmlError::NotSupported);
        }
        // SAFETY: as above, and the set is ours until it is dropped.
        nvml_try(unsafe { register(device.handle(), kinds, self.set) })?;
        // SAFETY: the handle is only compared, never used.
        self.listens.push((unsafe { device.handle() }.addr(), uuid.to_owned()));
        Ok(kinds)
    }

    /// The next event, or [`NvmlError::Timeout`].
    pub(crate) fn wait(&self, milliseconds: u32) -> Result<RawEvent, NvmlError> {
        let wait = nvml_sym(self.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
        // SAFETY: the struct is plain data, for which all zeroes are valid.
        let mut data: nvmlEventData_t = unsafe { zeroed() };
        // SAFETY: the set is ours until it is dropped; the pointer is to a place for an event.
        nvml_try(unsafe { wait(self.set, &raw mut data, milliseconds) })?;
        let instance = |id: u32| (id != NO_INSTANCE).then_some(id);
        Ok(RawEvent {
            kind: data.eventType,
            data: data.eventData,
            gpu_uuid: self.uuid(data.device),
            gpu_instance: instance(data.gpuInstanceId),
            compute_instance: instance(data.computeInstanceId),
        })
    }

    fn uuid(&self, device: nvmlDevice_t) -> Option<String> {
        if device.is_null() {
            return None;
        }
        let known = self.listens.iter().find(|(handle, _)| *handle == device.addr());
        // SAFETY: NVML gave the handle with the event, and the session still lasts.
        known.map(|(_, uuid)| uuid.clone()).or_else(|| unsafe { Device::new(device, self.nvml) }.uuid().ok())
    }
}

impl Drop for EventSet<'_> {
    fn drop(&mut self) {
        if let Ok(free) = self.nvml.lib().nvmlEventSetFree.as_ref() {
            // SAFETY: the set is ours and is not used again. There is nothing to do about an error.
            unsafe { free(self.set) };
        }
    }
}

/// The GPU instance and the compute instance of a MIG device.
pub(crate) fn instances(device: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let lib = device.nvml().lib();
    let gpu = nvml_sym(lib.nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute = nvml_sym(lib.nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut of_gpu, mut of_compute) = (0, 0);
    // SAFETY: the handle is of a session that lasts; the pointers are to places for a number.
    nvml_try(unsafe { gpu(device.handle(), &raw mut of_gpu) })?;
    // SAFETY: as above.
    nvml_try(unsafe { compute(device.handle(), &raw mut of_compute) })?;
    Ok((of_gpu, of_compute))
}

/// State, status and health mask of the GPU in its fabric.
pub(crate) fn fabric(device: &Device<'_>) -> Result<(u32, u32, u32), NvmlError> {
    let lib: &NvmlLib = device.nvml().lib();
    let get = nvml_sym(lib.nvmlDeviceGetGpuFabricInfoV.as_ref())?;
    // Version 3 where the driver knows it; a driver that does not is asked for version 2, in the same buffer, which is larger.
    let ask = |size: usize, version: u32| {
        // SAFETY: the struct is plain data, for which all zeroes are valid.
        let mut info: nvmlGpuFabricInfoV_t = unsafe { zeroed() };
        info.version = u32::try_from(size).unwrap_or(u32::MAX) | (version << 24);
        // SAFETY: the handle is of a session that lasts; the buffer holds the largest version, and says which one it is.
        nvml_try(unsafe { get(device.handle(), &raw mut info) }).map(|()| (u32::from(info.state), info.status, info.healthMask))
    };
    match ask(size_of::<nvmlGpuFabricInfoV_t>(), 3) {
        // 25: the version of the argument does not match.
        Err(NvmlError::UnexpectedVariant(25) | NvmlError::InvalidArg) => ask(size_of::<nvmlGpuFabricInfo_v2_t>(), 2),
        answer => answer,
    }
}
