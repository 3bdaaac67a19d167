//! Errors, links and modes of a GPU. A group of levels is told only where all of it can be read.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper_sys::bindings::NVML_NVLINK_MAX_LINKS;
use stoker_proto::limits;
use stoker_proto::probe::{Ecc, Fabric, NvLink, Pcie, RemappedRows, Signal, Why};

use super::kept::{Kept, sane};
use super::refusal::why;
use crate::raw;

pub(super) fn read(device: &Device<'_>, kept: &mut Kept) {
    kept.read(Signal::Ecc, ecc(device), |gpu, level| gpu.ecc = level);
    kept.put(Signal::RemappedRows, remapped_rows(device), |gpu, level| gpu.remapped_rows = level);
    kept.read(Signal::RetiredPages, device.are_pages_pending_retired(), |gpu, level| gpu.retired_pages_pending = level);
    kept.read(Signal::Nvlink, nvlink(device), |gpu, level| gpu.nvlink = level);
    let links = |pcie: &Pcie| {
        pcie.generation.max(pcie.max_generation) <= limits::PCIE_GENERATION
            && pcie.width.max(pcie.max_width) <= limits::PCIE_LANES
    };
    kept.read_sane(Signal::Pcie, pcie(device), links, |gpu, level| gpu.pcie = level);
    kept.read(Signal::Fabric, raw::fabric(device), |gpu, level| {
        gpu.fabric = level.map(|(state, status, health_mask)| Fabric { state, status, health_mask });
    });
    kept.read(Signal::Persistence, device.is_in_persistent_mode(), |gpu, level| gpu.persistence = level);
}

/// What the driver wants done with the GPU.
pub(super) fn recovery_action(device: &Device<'_>) -> Result<u32, Why> {
    let [action] = fields(device, [field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])?;
    // There are five of them.
    sane(action, |action| u8::try_from(*action).is_ok())
}

fn remapped_rows(device: &Device<'_>) -> Result<RemappedRows, Why> {
    let ids = [
        field_id::NVML_FI_DEV_REMAPPED_COR,
        field_id::NVML_FI_DEV_REMAPPED_UNC,
        field_id::NVML_FI_DEV_REMAPPED_PENDING,
        field_id::NVML_FI_DEV_REMAPPED_FAILURE,
    ];
    let [correctable, uncorrectable, pending, failed] = fields(device, ids)?;
    Ok(RemappedRows { correctable, uncorrectable, pending: pending != 0, failed: failed != 0 })
}

/// Values of fields, by position: a driver that numbers them anew answers with its own numbers.
fn fields<const COUNT: usize>(device: &Device<'_>, ids: [u32; COUNT]) -> Result<[u32; COUNT], Why> {
    let answers = device.field_values_for(&ids.map(FieldId)).map_err(|error| why(&error))?;
    let mut values = [0; COUNT];
    let mut answers = answers.into_iter();
    for value in &mut values {
        let sample = answers.next().ok_or(Why::Failed)?.and_then(|sample| sample.value).map_err(|error| why(&error))?;
        *value = match sample {
            SampleValue::U32(number) => number,
            SampleValue::U64(number) => u32::try_from(number).map_err(|_| Why::Failed)?,
            SampleValue::I64(number) => u32::try_from(number).map_err(|_| Why::Failed)?,
            SampleValue::F64(_) => return Err(Why::Failed),
        };
    }
    Ok(values)
}

fn ecc(device: &Device<'_>) -> Result<Ecc, NvmlError> {
    if !device.is_ecc_enabled()?.currently_enabled {
        return Ok(Ecc::default());
    }
    Ok(Ecc {
        enabled: true,
        uncorrected_volatile: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)?,
        corrected_volatile: device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile)?,
        uncorrected_aggregate: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Aggregate)?,
    })
}

/// Links that are up, and the errors of those.
fn nvlink(device: &Device<'_>) -> Result<NvLink, NvmlError> {
    let mut links = NvLink::default();
    for number in 0..NVML_NVLINK_MAX_LINKS {
        let link = device.link_wrapper_for(number);
        match link.is_active() {
            Ok(false) => continue,
            Ok(true) => links.active_links += 1,
            // No more links than that; without the first one there are none to read.
            Err(NvmlError::InvalidArg | NvmlError::NotSupported) if number > 0 => break,
            Err(error) => return Err(error),
        }
        for counter in [ErrorCounter::DlReplay, ErrorCounter::DlRecovery, ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData] {
            links.errors = links.errors.saturating_add(link.error_counter(counter)?);
        }
    }
    Ok(links)
}

fn pcie(device: &Device<'_>) -> Result<Pcie, NvmlError> {
    Ok(Pcie {
        generation: device.current_pcie_link_gen()?,
        width: device.current_pcie_link_width()?,
        max_generation: device.max_pcie_link_gen()?,
        max_width: device.max_pcie_link_width()?,
        replays: u64::from(device.pcie_replay_counter()?),
    })
}
