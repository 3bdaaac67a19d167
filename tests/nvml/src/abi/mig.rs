//! How a GPU is split.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use super::{Handle, device_call, put};
use crate::scenario::Code;

/// How many instances a GPU can have.
const MOST: u32 = 7;

device_call!(nvmlDeviceGetMigMode(current: *mut c_uint, pending: *mut c_uint) |it| {
    let mig = it.whole()?.mig.as_ref().ok_or(Code::NotSupported)?;
    put(current, u32::from(mig.enabled))?;
    put(pending, u32::from(mig.pending))
});
device_call!(nvmlDeviceGetMaxMigDeviceCount(place: *mut c_uint) |it| put(place, if it.whole()?.mig.is_some() { MOST } else { 0 }));
device_call!(nvmlDeviceGetMigDeviceHandleByIndex(index: c_uint, place: *mut nvmlDevice_t) |it| {
    let mig = it.whole()?.mig.as_ref().filter(|mig| mig.enabled).ok_or(Code::NotSupported)?;
    let found = mig.devices.iter().position(|device| device.slot == index).ok_or(Code::NotFound)?;
    put(place, Handle { gpu: it.handle.gpu, mig: Some(found) }.device())
});
device_call!(nvmlDeviceIsMigDeviceHandle(place: *mut c_uint) |it| put(place, u32::from(it.mig.is_some())));
device_call!(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(place: *mut nvmlDevice_t) |it| put(place, Handle { gpu: it.handle.gpu, mig: None }.device()));
device_call!(nvmlDeviceGetGpuInstanceId(place: *mut c_uint) |it| put(place, it.mig.ok_or(Code::NotSupported)?.gpu_instance));
device_call!(nvmlDeviceGetComputeInstanceId(place: *mut c_uint) |it| put(place, it.mig.ok_or(Code::NotSupported)?.compute_instance));
