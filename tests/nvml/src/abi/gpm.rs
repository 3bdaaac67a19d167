//! Performance metrics between two samples.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL, nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL,
    nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t, nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
    nvmlReturn_enum_NVML_SUCCESS,
};

use super::{Handle, Target, device_call, machine_call, put};
use crate::scenario::{Code, Gpm};
use crate::state;

device_call!(nvmlGpmQueryDeviceSupport(place: *mut nvmlGpmSupport_t) |it| {
    if place.is_null() {
        return Err(Code::InvalidArgument);
    }
    // A bare 1, unlike the other versions.
    if (*place).version != 1 {
        return Err(Code::ArgumentVersionMismatch);
    }
    (*place).isSupportedDevice = u32::from(it.gpu.gpm.is_some());
    Ok(())
});
machine_call!(nvmlGpmSampleAlloc(place: *mut nvmlGpmSample_t) |_it| put(place, std::ptr::without_provenance_mut(state::make_sample())));
machine_call!(nvmlGpmSampleFree(sample: nvmlGpmSample_t) |_it| state::free_sample(sample.addr()));
device_call!(nvmlGpmSampleGet(sample: nvmlGpmSample_t) |it| {
    it.whole()?.gpm.as_ref().ok_or(Code::NotSupported)?;
    state::fill_sample(sample.addr(), it.handle.number())
});
device_call!(nvmlGpmMigSampleGet(instance: c_uint, sample: nvmlGpmSample_t) |it| {
    let mig = it.whole()?.mig.as_ref().filter(|mig| mig.enabled).ok_or(Code::NotSupported)?;
    let found = mig.devices.iter().position(|device| device.gpu_instance == instance).ok_or(Code::InvalidArgument)?;
    mig.devices[found].gpm.as_ref().ok_or(Code::NotSupported)?;
    state::fill_sample(sample.addr(), Handle { gpu: it.handle.gpu, mig: Some(found) }.number())
});

machine_call!(nvmlGpmMetricsGet(place: *mut nvmlGpmMetricsGet_t) |it| {
    if place.is_null() {
        return Err(Code::InvalidArgument);
    }
    let request = &mut *place;
    if request.version != 1 {
        return Err(Code::ArgumentVersionMismatch);
    }
    let of = [state::sample_of(request.sample1.addr())?, state::sample_of(request.sample2.addr())?];
    if of[0] != of[1] {
        return Err(Code::InvalidArgument);
    }
    let device: nvmlDevice_t = std::ptr::without_provenance_mut(of[0]);
    let target = Target::find(it, Handle::of(device)?)?;
    let gpm: &Gpm = target.mig.map_or(target.gpu.gpm.as_ref(), |mig| mig.gpm.as_ref()).ok_or(Code::NotSupported)?;
    for metric in request.metrics.iter_mut().take(request.numMetrics as usize) {
        let level = match metric.metricId {
            nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL => Some(&gpm.sm),
            nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL => Some(&gpm.memory_bandwidth),
            _ => None,
        };
        metric.nvmlReturn = if level.is_some() { nvmlReturn_enum_NVML_SUCCESS } else { nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED };
        metric.value = level.map_or(0.0, |level| level.at(target.at));
    }
    Ok(())
});
