//! The C side: every symbol, and the only unsafe code.
//!
//! Every export answers by [`answer`]: it hangs or refuses where the scenario says so, and a panic never crosses into C.
//! SAFETY, for every export alike: NVML's contract makes the caller pass, for each pointer, null or a place of the pointed-to type
//! that it may write to for the call's length. [`put`] and [`fill`] refuse null; nothing is kept after the call.
#![allow(unsafe_code, reason = "a C library")]
#![allow(non_snake_case, non_upper_case_globals, reason = "NVML's names")]
// The C header documents them; here only what is answered.
#![allow(missing_docs, unreachable_pub, clippy::missing_safety_doc, reason = "exports of a C library")]

mod device;
mod events;
mod gpm;
mod health;
mod mig;
mod processes;
mod signatures;
mod system;

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t};

use crate::scenario::{Code, Gpu, MigDevice};
use crate::state::{self, DOZE, InForce};

/// A device handle is a number: the GPU's index and, in the low byte, the MIG instance's place in the list, both from 1.
#[derive(Clone, Copy)]
struct Handle {
    gpu: usize,
    mig: Option<usize>,
}

impl Handle {
    fn of(device: nvmlDevice_t) -> Result<Self, Code> {
        let number = device.addr();
        let gpu = (number >> 8).checked_sub(1).ok_or(Code::InvalidArgument)?;
        Ok(Self { gpu, mig: (number & 0xff).checked_sub(1) })
    }

    fn number(self) -> usize {
        ((self.gpu + 1) << 8) | self.mig.map_or(0, |place| place + 1)
    }

    fn device(self) -> nvmlDevice_t {
        std::ptr::without_provenance_mut(self.number())
    }
}

/// The device that a call is about.
struct Target<'a> {
    handle: Handle,
    gpu: &'a Gpu,
    mig: Option<&'a MigDevice>,
    at: u64,
    hidden: bool,
}

impl<'a> Target<'a> {
    fn find(in_force: &'a InForce, handle: Handle) -> Result<Self, Code> {
        let gpu = in_force.scenario.gpus.get(handle.gpu).ok_or(Code::InvalidArgument)?;
        if gpu.lost {
            return Err(Code::GpuLost);
        }
        let mig = match handle.mig {
            Some(place) => {
                let mig = gpu.mig.as_ref().filter(|mig| mig.enabled).ok_or(Code::InvalidArgument)?;
                Some(mig.devices.get(place).ok_or(Code::InvalidArgument)?)
            }
            None => None,
        };
        Ok(Self { handle, gpu, mig, at: in_force.milliseconds(), hidden: in_force.scenario.hide_processes })
    }

    /// The GPU, where the call is not for MIG instances.
    fn whole(&self) -> Result<&'a Gpu, Code> {
        if self.mig.is_some() { Err(Code::NotSupported) } else { Ok(self.gpu) }
    }

    /// The GPU, where the call is neither for MIG instances nor for GPUs that are split.
    fn unsplit(&self) -> Result<&'a Gpu, Code> {
        if self.gpu.mig.as_ref().is_some_and(|mig| mig.enabled) { Err(Code::NotSupported) } else { self.whole() }
    }
}

/// Answers a call on the machine.
fn answer(symbol: &str, call: impl FnOnce(&InForce) -> Result<(), Code>) -> nvmlReturn_t {
    guarded(|| {
        hang(|in_force| in_force.scenario.hangs.get(symbol).copied());
        let in_force = state::in_force();
        match in_force.scenario.errors.get(symbol) {
            Some(code) => Err(*code),
            None => call(&in_force),
        }
    })
}

/// Answers a call on a device.
fn answer_device(symbol: &str, device: nvmlDevice_t, call: impl FnOnce(&Target<'_>) -> Result<(), Code>) -> nvmlReturn_t {
    guarded(|| {
        let handle = Handle::of(device)?;
        hang(|in_force| {
            let gpu = in_force.scenario.gpus.get(handle.gpu);
            gpu.and_then(|gpu| gpu.hangs.get(symbol)).or(in_force.scenario.hangs.get(symbol)).copied()
        });
        let in_force = state::in_force();
        let target = Target::find(&in_force, handle)?;
        let errors = [&target.gpu.errors, &in_force.scenario.errors];
        match errors.iter().find_map(|errors| errors.get(symbol).or_else(|| errors.get("*"))) {
            Some(code) => Err(*code),
            None => call(&target),
        }
    })
}

fn guarded(call: impl FnOnce() -> Result<(), Code>) -> nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => nvmlReturn_enum_NVML_SUCCESS,
        Ok(Err(code)) => code.number(),
        Err(_) => Code::Unknown.number(),
    }
}

fn hang(milliseconds: impl Fn(&InForce) -> Option<u64>) {
    let from = Instant::now();
    while milliseconds(&state::in_force()).is_some_and(|long| from.elapsed() < Duration::from_millis(long)) {
        std::thread::sleep(DOZE);
    }
}

/// Writes an answer.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Code> {
    if place.is_null() {
        return Err(Code::InvalidArgument);
    }
    // SAFETY: not null, and by the contract above a place for a T.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a C string into a buffer of `length` bytes.
unsafe fn put_text(place: *mut c_char, length: u32, text: &str) -> Result<(), Code> {
    if place.is_null() {
        return Err(Code::InvalidArgument);
    }
    if text.len() >= length as usize {
        return Err(Code::InsufficientSize);
    }
    // SAFETY: the buffer holds `length` bytes, which is more than the text.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes a list by NVML's custom: without a buffer only the count, as "insufficient size" unless it is nought.
unsafe fn fill<T: Copy>(count: *mut u32, place: *mut T, items: &[T]) -> Result<(), Code> {
    if count.is_null() {
        return Err(Code::InvalidArgument);
    }
    // SAFETY: not null, and by the contract above a place for a count, which the caller has set.
    let room = unsafe { count.read() } as usize;
    let length = u32::try_from(items.len()).map_err(|_| Code::Unknown)?;
    // SAFETY: as above.
    unsafe { count.write(length) };
    if items.is_empty() {
        return Ok(());
    }
    if place.is_null() || room < items.len() {
        return Err(Code::InsufficientSize);
    }
    // SAFETY: the buffer holds `room` items, which are not fewer than there are.
    unsafe { std::ptr::copy_nonoverlapping(items.as_ptr(), place, items.len()) };
    Ok(())
}

/// Exports a call on a device: `device_call!(nvmlX(place: *mut T) |it| { … })`.
macro_rules! device_call {
    ($name:ident($($argument:ident: $kind:ty),* $(,)?) |$it:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: nvml_wrapper_sys::bindings::nvmlDevice_t, $($argument: $kind),*) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            crate::abi::answer_device(stringify!($name), device, |$it| {
                // SAFETY: by the module's contract.
                #[allow(unused_unsafe, reason = "some calls write nothing")]
                unsafe { $body }
            })
        }
    };
}

/// Exports a call on the machine.
macro_rules! machine_call {
    ($name:ident($($argument:ident: $kind:ty),* $(,)?) |$it:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            crate::abi::answer(stringify!($name), |$it| {
                // SAFETY: by the module's contract.
                #[allow(unused_unsafe, reason = "some calls write nothing")]
                unsafe { $body }
            })
        }
    };
}

use {device_call, machine_call};
