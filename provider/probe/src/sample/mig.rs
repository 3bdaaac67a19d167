//! The instances that a GPU is split into. The layout changes at run time, so it is read anew in each round.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use stoker_proto::probe::{Mig, MigDevice, Signal, Why};

use super::gpm::Gpm;
use super::gpu::{Shared, memory, processes, trusted};
use super::kept::unknown;
use super::refusal::why;
use crate::raw;

/// The older GPM samples of the instances, by UUID: an instance that is gone takes its own along.
#[derive(Debug, Default)]
pub(super) struct Instances<'nvml>(BTreeMap<String, Gpm<'nvml>>);

impl<'nvml> Instances<'nvml> {
    /// `has_gpm`: whether the GPU has GPM, and why not.
    pub(super) fn read(
        &mut self,
        parent: &Device<'nvml>,
        has_gpm: Result<(), Why>,
        shared: &mut Shared<'_>,
    ) -> Result<Mig, Why> {
        let answer = self.layout(parent, has_gpm, shared);
        if answer.is_err() {
            self.0.clear();
        }
        answer.map_err(|error| why(&error))
    }

    fn layout(&mut self, parent: &Device<'nvml>, has_gpm: Result<(), Why>, shared: &mut Shared<'_>) -> Result<Mig, NvmlError> {
        let mode = parent.mig_mode()?;
        let mut mig = Mig { enabled: mode.current != 0, pending_change: mode.current != mode.pending, devices: Vec::new() };
        if !mig.enabled {
            self.0.clear();
            return Ok(mig);
        }
        let mut before = std::mem::take(&mut self.0);
        // The most that there can be, not how many there are.
        for place in 0..parent.mig_device_count()? {
            let device = match parent.mig_device_by_index(place) {
                Ok(device) => device,
                // An empty place, or an instance that went while we looked.
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
                Err(error) => return Err(error),
            };
            let uuid = device.uuid()?;
            let mut gpm = before.remove(&uuid).unwrap_or_default();
            mig.devices.push(instance(parent, &device, &uuid, has_gpm.map(|()| &mut gpm), shared)?);
            self.0.insert(uuid, gpm);
        }
        Ok(mig)
    }
}

fn instance<'nvml>(
    parent: &Device<'nvml>,
    device: &Device<'nvml>,
    uuid: &str,
    gpm: Result<&mut Gpm<'nvml>, Why>,
    shared: &mut Shared<'_>,
) -> Result<MigDevice, NvmlError> {
    let (gpu_instance, compute_instance) = raw::instances(device)?;
    let memory = memory(device);
    let processes = processes(device, shared.proc);
    if let (Ok(memory), Ok(list)) = (&memory, &processes) {
        shared.trust.weigh(uuid, list.compute.len(), memory.used_bytes);
    }
    let processes = trusted(processes, shared.trust);
    let (sm, bandwidth) = match gpm {
        Ok(gpm) => gpm.read(parent.nvml(), || parent.gpm_mig_sample(gpu_instance)),
        Err(why) => (Err(why), Err(why)),
    };
    let whys = [
        (Signal::Memory, memory.as_ref().err()),
        (Signal::SmActivity, sm.as_ref().err()),
        (Signal::MemoryBandwidth, bandwidth.as_ref().err()),
        (Signal::Processes, processes.as_ref().err()),
    ];
    Ok(MigDevice {
        uuid: uuid.to_owned(),
        gpu_instance,
        compute_instance,
        name: device.name().unwrap_or_default(),
        unknown: unknown(&whys.into_iter().filter_map(|(signal, why)| why.map(|why| (signal, *why))).collect()),
        memory: memory.ok(),
        sm_activity: sm.ok(),
        memory_bandwidth: bandwidth.ok(),
        processes: processes.ok(),
    })
}
