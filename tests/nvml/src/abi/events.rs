//! Events, as they happen.

use std::ffi::{c_uint, c_ulonglong};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{nvmlEventData_t, nvmlEventSet_t};

use super::{Handle, device_call, machine_call, put};
use crate::scenario::Code;
use crate::state::{self, EventSet, InForce, WATCH};

machine_call!(nvmlEventSetCreate(place: *mut nvmlEventSet_t) |_it| put(place, std::ptr::without_provenance_mut(state::make_set())));
machine_call!(nvmlEventSetFree(set: nvmlEventSet_t) |_it| state::free_set(set.addr()));

device_call!(nvmlDeviceGetSupportedEventTypes(place: *mut c_ulonglong) |it| put(place, it.whole()?.event_types));
device_call!(nvmlDeviceRegisterEvents(kinds: c_ulonglong, set: nvmlEventSet_t) |it| {
    if kinds & !it.whole()?.event_types != 0 {
        return Err(Code::NotSupported);
    }
    state::with_set(set.addr(), |set| {
        set.listens.insert(it.handle.gpu, kinds);
    })
});

machine_call!(nvmlEventSetWait_v2(set: nvmlEventSet_t, place: *mut nvmlEventData_t, timeout: c_uint) |_it| {
    let from = Instant::now();
    loop {
        // Nothing is locked while it waits.
        let in_force = state::in_force();
        if let Some(data) = state::with_set(set.addr(), |set| next(&in_force, set))? {
            return put(place, data);
        }
        if from.elapsed() >= Duration::from_millis(u64::from(timeout)) {
            return Err(Code::Timeout);
        }
        std::thread::sleep(WATCH);
    }
});

fn next(in_force: &InForce, set: &mut EventSet) -> Option<nvmlEventData_t> {
    let age = u64::try_from(set.made?.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (number, xid) = in_force.scenario.xids.iter().enumerate().find(|(number, xid)| {
        xid.after_ms <= age
            && !set.told.contains(number)
            && set.listens.get(&xid.gpu).is_some_and(|kinds| kinds & xid.kind != 0)
    })?;
    set.told.insert(number);
    Some(nvmlEventData_t {
        device: Handle { gpu: xid.gpu, mig: None }.device(),
        eventType: xid.kind,
        eventData: xid.code,
        gpuInstanceId: xid.gpu_instance.unwrap_or(u32::MAX),
        computeInstanceId: xid.compute_instance.unwrap_or(u32::MAX),
    })
}
