//! Who a device is, and how much of it is in use.

use std::ffi::{c_char, c_uint, c_ulonglong};
use std::time::{Duration, SystemTime};

use nvml_wrapper_sys::bindings::{
    nvmlClockType_enum_NVML_CLOCK_MEM, nvmlClockType_enum_NVML_CLOCK_SM, nvmlClockType_t, nvmlDeviceArchitecture_t,
    nvmlMemory_v2_t, nvmlPciInfo_t, nvmlSample_t, nvmlSamplingType_enum_NVML_GPU_UTILIZATION_SAMPLES, nvmlSamplingType_t,
    nvmlTemperatureSensors_t, nvmlUtilization_t, nvmlValue_t, nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT, nvmlValueType_t,
};

use super::{Target, device_call, fill, put, put_text};
use crate::scenario::{Code, Level};

/// Between two samples of the driver's buffer.
const SAMPLE: Duration = Duration::from_micros(166_667);
/// How many it keeps.
const SAMPLES: u64 = 60;

device_call!(nvmlDeviceGetUUID(place: *mut c_char, length: c_uint) |it| put_text(place, length, it.mig.map_or(&it.gpu.uuid, |mig| &mig.uuid)));
device_call!(nvmlDeviceGetName(place: *mut c_char, length: c_uint) |it| put_text(place, length, it.mig.map_or(&it.gpu.name, |mig| &mig.name)));
device_call!(nvmlDeviceGetSerial(place: *mut c_char, length: c_uint) |it| { it.whole()?; put_text(place, length, &format!("{:013}", it.handle.gpu)) });
device_call!(nvmlDeviceGetIndex(place: *mut c_uint) |it| put(place, number(it)?));
device_call!(nvmlDeviceGetMinorNumber(place: *mut c_uint) |it| put(place, number(it)?));
device_call!(nvmlDeviceGetArchitecture(place: *mut nvmlDeviceArchitecture_t) |it| put(place, it.gpu.architecture));

fn number(it: &Target<'_>) -> Result<u32, Code> {
    u32::try_from(it.handle.gpu).map_err(|_| Code::Unknown)
}

device_call!(nvmlDeviceGetPciInfo_v3(place: *mut nvmlPciInfo_t) |it| {
    let mut info: nvmlPciInfo_t = std::mem::zeroed();
    let id = &it.whole()?.pci_bus_id;
    put_text(info.busId.as_mut_ptr(), 32, id)?;
    // The legacy form has a domain of four digits.
    put_text(info.busIdLegacy.as_mut_ptr(), 16, id.get(4..).unwrap_or_default())?;
    put(place, info)
});

device_call!(nvmlDeviceGetUtilizationRates(place: *mut nvmlUtilization_t) |it| {
    let gpu = percent(it.unsplit()?.utilization.as_ref(), it.at)?;
    put(place, nvmlUtilization_t { gpu, memory: gpu / 2 })
});

device_call!(nvmlDeviceGetSamples(kind: nvmlSamplingType_t, after: c_ulonglong, value: *mut nvmlValueType_t, count: *mut c_uint, place: *mut nvmlSample_t) |it| {
    if kind != nvmlSamplingType_enum_NVML_GPU_UTILIZATION_SAMPLES {
        return Err(Code::NotSupported);
    }
    let level = it.unsplit()?.utilization.as_ref().ok_or(Code::NotSupported)?;
    let samples = samples(level, it.at, after)?;
    put(value, nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT)?;
    if samples.is_empty() {
        return Err(Code::NotFound);
    }
    if place.is_null() {
        // Unlike lists of processes: the size of the buffer, as a success.
        return put(count, u32::try_from(samples.len()).map_err(|_| Code::Unknown)?);
    }
    fill(count, place, &samples)
});

/// The samples since a timestamp, on a grid of the wall clock.
fn samples(level: &Level, at: u64, after: u64) -> Result<Vec<nvmlSample_t>, Code> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|_| Code::Unknown)?;
    let now = u64::try_from(now.as_micros()).map_err(|_| Code::Unknown)?;
    let step = u64::try_from(SAMPLE.as_micros()).map_err(|_| Code::Unknown)?;
    let latest = now / step;
    let sample = |tick: u64| {
        let stamp = tick * step;
        let ago = now.saturating_sub(stamp) / 1000;
        nvmlSample_t { timeStamp: stamp, sampleValue: nvmlValue_t { uiVal: whole(level.at(at.saturating_sub(ago))) } }
    };
    Ok((latest.saturating_sub(SAMPLES)..=latest).map(sample).filter(|sample| sample.timeStamp > after).collect())
}

device_call!(nvmlDeviceGetMemoryInfo_v2(place: *mut nvmlMemory_v2_t) |it| {
    // The caller says which version its struct is, and with it its size.
    let expected = u32::try_from(size_of::<nvmlMemory_v2_t>()).map_err(|_| Code::Unknown)? | (2 << 24);
    if place.is_null() {
        return Err(Code::InvalidArgument);
    }
    if (*place).version != expected {
        return Err(Code::ArgumentVersionMismatch);
    }
    let memory = it.mig.map_or(it.gpu.memory.as_ref(), |mig| mig.memory.as_ref()).ok_or(Code::NotSupported)?;
    let used = bytes(memory.used.at(it.at));
    let free = memory.total.saturating_sub(used).saturating_sub(memory.reserved);
    put(place, nvmlMemory_v2_t { version: expected, total: memory.total, reserved: memory.reserved, free, used })
});

device_call!(nvmlDeviceGetEncoderUtilization(place: *mut c_uint, period: *mut c_uint) |it| {
    put(period, 167_000)?;
    put(place, it.unsplit()?.codec.as_ref().ok_or(Code::NotSupported)?.encoder)
});
device_call!(nvmlDeviceGetDecoderUtilization(place: *mut c_uint, period: *mut c_uint) |it| {
    put(period, 167_000)?;
    put(place, it.unsplit()?.codec.as_ref().ok_or(Code::NotSupported)?.decoder)
});

device_call!(nvmlDeviceGetTemperature(_sensor: nvmlTemperatureSensors_t, place: *mut c_uint) |it| put(place, it.whole()?.temperature.ok_or(Code::NotSupported)?));
device_call!(nvmlDeviceGetPowerUsage(place: *mut c_uint) |it| put(place, it.whole()?.power.ok_or(Code::NotSupported)?));
device_call!(nvmlDeviceGetEnforcedPowerLimit(place: *mut c_uint) |it| put(place, it.whole()?.power_limit.ok_or(Code::NotSupported)?));
device_call!(nvmlDeviceGetTotalEnergyConsumption(place: *mut c_ulonglong) |it| put(place, it.whole()?.energy.ok_or(Code::NotSupported)?));
device_call!(nvmlDeviceGetCurrentClocksThrottleReasons(place: *mut c_ulonglong) |it| put(place, it.whole()?.throttle_reasons.ok_or(Code::NotSupported)?));
device_call!(nvmlDeviceGetClockInfo(kind: nvmlClockType_t, place: *mut c_uint) |it| {
    let clocks = it.whole()?.clocks.as_ref().ok_or(Code::NotSupported)?;
    match kind {
        nvmlClockType_enum_NVML_CLOCK_SM => put(place, clocks.sm),
        nvmlClockType_enum_NVML_CLOCK_MEM => put(place, clocks.memory),
        _ => Err(Code::NotSupported),
    }
});

fn percent(level: Option<&Level>, at: u64) -> Result<u32, Code> {
    Ok(whole(level.ok_or(Code::NotSupported)?.at(at)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scripted level; the cast saturates")]
fn whole(level: f64) -> u32 {
    level as u32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scripted level; the cast saturates")]
fn bytes(level: f64) -> u64 {
    level as u64
}
