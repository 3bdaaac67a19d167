//! Errors, links and modes.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlEccCounterType_t, nvmlEnableState_t, nvmlFieldValue_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfoV_t,
    nvmlMemoryErrorType_t, nvmlNvLinkErrorCounter_t, nvmlPageRetirementCause_t, nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
    nvmlReturn_enum_NVML_SUCCESS, nvmlValue_t, nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
};

use super::{Target, device_call, fill, put};
use crate::scenario::{Code, Pcie};

fn state(on: bool) -> nvmlEnableState_t {
    u32::from(on)
}

device_call!(nvmlDeviceGetPersistenceMode(place: *mut nvmlEnableState_t) |it| put(place, state(it.whole()?.persistence.ok_or(Code::NotSupported)?)));
device_call!(nvmlDeviceGetEccMode(current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t) |it| {
    let on = state(it.whole()?.ecc.as_ref().ok_or(Code::NotSupported)?.enabled);
    put(current, on)?;
    put(pending, on)
});
device_call!(nvmlDeviceGetTotalEccErrors(kind: nvmlMemoryErrorType_t, counter: nvmlEccCounterType_t, place: *mut c_ulonglong) |it| {
    let ecc = it.whole()?.ecc.as_ref().filter(|ecc| ecc.enabled).ok_or(Code::NotSupported)?;
    // Kind 1 is uncorrected, counter 1 is for life.
    match (kind, counter) {
        (1, 0) => put(place, ecc.uncorrected_volatile),
        (0, 0) => put(place, ecc.corrected_volatile),
        (1, 1) => put(place, ecc.uncorrected_aggregate),
        _ => Err(Code::NotSupported),
    }
});
device_call!(nvmlDeviceGetRetiredPagesPendingStatus(place: *mut nvmlEnableState_t) |it| put(place, state(it.whole()?.retired_pages_pending.ok_or(Code::NotSupported)?)));
device_call!(nvmlDeviceGetRetiredPages(_cause: nvmlPageRetirementCause_t, count: *mut c_uint, place: *mut c_ulonglong) |it| {
    it.whole()?.retired_pages_pending.ok_or(Code::NotSupported)?;
    fill(count, place, &[])
});
device_call!(nvmlDeviceGetRetiredPages_v2(_cause: nvmlPageRetirementCause_t, count: *mut c_uint, place: *mut c_ulonglong, _stamps: *mut c_ulonglong) |it| {
    it.whole()?.retired_pages_pending.ok_or(Code::NotSupported)?;
    fill(count, place, &[])
});

device_call!(nvmlDeviceGetRemappedRows(corrected: *mut c_uint, uncorrected: *mut c_uint, pending: *mut c_uint, failed: *mut c_uint) |it| {
    // Refused where instances are active; the fields are not.
    let gpu = it.unsplit()?;
    let field = |id| gpu.fields.get(&id).copied().and_then(|value| u32::try_from(value).ok()).ok_or(Code::NotSupported);
    put(corrected, field(142)?)?;
    put(uncorrected, field(143)?)?;
    put(pending, field(144)?)?;
    put(failed, field(145)?)
});

device_call!(nvmlDeviceGetFieldValues(count: c_int, place: *mut nvmlFieldValue_t) |it| {
    let count = usize::try_from(count).map_err(|_| Code::InvalidArgument)?;
    if place.is_null() {
        return Err(Code::InvalidArgument);
    }
    let fields = &it.whole()?.fields;
    for value in std::slice::from_raw_parts_mut(place, count) {
        match fields.get(&value.fieldId) {
            Some(level) => {
                value.nvmlReturn = nvmlReturn_enum_NVML_SUCCESS;
                value.valueType = nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
                value.value = nvmlValue_t { ullVal: *level };
            }
            None => value.nvmlReturn = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
        }
    }
    Ok(())
});

fn pcie<'a>(it: &Target<'a>) -> Result<&'a Pcie, Code> {
    it.whole()?.pcie.as_ref().ok_or(Code::NotSupported)
}

device_call!(nvmlDeviceGetCurrPcieLinkGeneration(place: *mut c_uint) |it| put(place, pcie(it)?.generation));
device_call!(nvmlDeviceGetMaxPcieLinkGeneration(place: *mut c_uint) |it| put(place, pcie(it)?.max_generation));
device_call!(nvmlDeviceGetCurrPcieLinkWidth(place: *mut c_uint) |it| put(place, pcie(it)?.width));
device_call!(nvmlDeviceGetMaxPcieLinkWidth(place: *mut c_uint) |it| put(place, pcie(it)?.max_width));
device_call!(nvmlDeviceGetPcieReplayCounter(place: *mut c_uint) |it| put(place, pcie(it)?.replays));

device_call!(nvmlDeviceGetNvLinkState(link: c_uint, place: *mut nvmlEnableState_t) |it| {
    let links = it.whole()?.nvlink.as_ref().ok_or(Code::NotSupported)?;
    if link < links.links { put(place, state(link < links.active)) } else { Err(Code::InvalidArgument) }
});
device_call!(nvmlDeviceGetNvLinkErrorCounter(link: c_uint, _counter: nvmlNvLinkErrorCounter_t, place: *mut c_ulonglong) |it| {
    let links = it.whole()?.nvlink.as_ref().ok_or(Code::NotSupported)?;
    if link < links.links { put(place, links.errors.ok_or(Code::NotSupported)?) } else { Err(Code::InvalidArgument) }
});

device_call!(nvmlDeviceGetGpuFabricInfoV(place: *mut nvmlGpuFabricInfoV_t) |it| {
    let fabric = it.whole()?.fabric.as_ref().ok_or(Code::NotSupported)?;
    if place.is_null() {
        return Err(Code::InvalidArgument);
    }
    // A caller of version 2 has room for version 2 only.
    let second: *mut nvmlGpuFabricInfo_v2_t = place.cast();
    match (*second).version {
        0x0300_0028 => (*place).healthSummary = 0,
        0x0200_0024 => {}
        _ => return Err(Code::ArgumentVersionMismatch),
    }
    (*second).status = fabric.status;
    (*second).state = fabric.state;
    (*second).healthMask = fabric.health_mask;
    Ok(())
});
