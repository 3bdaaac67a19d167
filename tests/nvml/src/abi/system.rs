//! Sessions, versions, and which devices there are.

use std::ffi::{CStr, c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{Handle, Target, machine_call, put, put_text};
use crate::scenario::Code;

machine_call!(nvmlInit_v2() | _it | Ok(()));
machine_call!(nvmlInitWithFlags(_flags: c_uint) |_it| Ok(()));
machine_call!(nvmlShutdown() | _it | Ok(()));
machine_call!(nvmlSystemGetDriverVersion(place: *mut c_char, length: c_uint) |it| put_text(place, length, &it.scenario.driver));
machine_call!(nvmlSystemGetNVMLVersion(place: *mut c_char, length: c_uint) |it| put_text(place, length, &it.scenario.nvml));
machine_call!(nvmlSystemGetCudaDriverVersion_v2(place: *mut c_int) |it| put(place, it.scenario.cuda));
machine_call!(nvmlDeviceGetCount_v2(place: *mut c_uint) |it| put(place, u32::try_from(it.scenario.gpus.len()).map_err(|_| Code::Unknown)?));
machine_call!(nvmlSystemGetProcessName(pid: c_uint, place: *mut c_char, length: c_uint) |_it| put_text(place, length, &format!("process-{pid}")));

machine_call!(nvmlDeviceGetHandleByIndex_v2(index: c_uint, place: *mut nvmlDevice_t) |it| {
    let handle = Handle { gpu: index as usize, mig: None };
    let target = Target::find(it, handle)?;
    match target.gpu.errors.get("nvmlDeviceGetHandleByIndex_v2") {
        Some(code) => Err(*code),
        None => put(place, handle.device()),
    }
});

machine_call!(nvmlDeviceGetHandleByUUID(uuid: *const c_char, place: *mut nvmlDevice_t) |it| {
    if uuid.is_null() {
        return Err(Code::InvalidArgument);
    }
    let uuid = CStr::from_ptr(uuid).to_str().map_err(|_| Code::InvalidArgument)?;
    for (gpu, known) in it.scenario.gpus.iter().enumerate() {
        if known.uuid == uuid {
            return put(place, Target::find(it, Handle { gpu, mig: None })?.handle.device());
        }
        let instances = known.mig.iter().flat_map(|mig| &mig.devices);
        if let Some(place_of) = instances.clone().position(|instance| instance.uuid == uuid) {
            return put(place, Target::find(it, Handle { gpu, mig: Some(place_of) })?.handle.device());
        }
    }
    Err(Code::NotFound)
});

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlErrorString(_code: nvmlReturn_t) -> *const c_char {
    c"an error of the fake NVML".as_ptr()
}
