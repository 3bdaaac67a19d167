//! Who computes on a device.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{nvmlProcessInfo_t, nvmlProcessUtilizationSample_t};

use super::{Target, device_call, fill};
use crate::scenario::{Code, Process};

device_call!(nvmlDeviceGetComputeRunningProcesses_v3(count: *mut c_uint, place: *mut nvmlProcessInfo_t) |it| {
    if it.gpu.crowded {
        if count.is_null() {
            return Err(Code::InvalidArgument);
        }
        *count += 1;
        return Err(Code::InsufficientSize);
    }
    let own = it.mig.map_or(&it.gpu.processes, |mig| &mig.processes);
    fill(count, place, &list(it, own))
});
device_call!(nvmlDeviceGetMPSComputeRunningProcesses_v3(count: *mut c_uint, place: *mut nvmlProcessInfo_t) |it| fill(count, place, &list(it, &it.whole()?.mps)));
device_call!(nvmlDeviceGetGraphicsRunningProcesses_v3(count: *mut c_uint, place: *mut nvmlProcessInfo_t) |_it| fill(count, place, &[]));
device_call!(nvmlDeviceGetProcessUtilization(_place: *mut nvmlProcessUtilizationSample_t, _count: *mut c_uint, _after: c_ulonglong) |it| {
    it.unsplit()?;
    Err(Code::NotFound)
});

fn list(it: &Target<'_>, processes: &[Process]) -> Vec<nvmlProcessInfo_t> {
    if it.hidden {
        return Vec::new();
    }
    let info = |process: &Process| nvmlProcessInfo_t {
        pid: process.pid,
        // All ones: not available.
        usedGpuMemory: process.memory.unwrap_or(u64::MAX),
        gpuInstanceId: it.mig.map_or(u32::MAX, |mig| mig.gpu_instance),
        computeInstanceId: it.mig.map_or(u32::MAX, |mig| mig.compute_instance),
    };
    processes.iter().map(info).collect()
}
