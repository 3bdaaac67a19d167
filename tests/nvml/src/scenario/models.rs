//! GPUs to begin with: idle and healthy.

use std::collections::BTreeMap;

use super::{Clocks, Codec, Ecc, Gpm, Gpu, Level, Memory, Mig, MigDevice, NvLink, Pcie};

const MIB: u64 = 1 << 20;

impl Gpu {
    /// An H100, idle and healthy. GPUs of different numbers differ in UUID and place.
    pub fn h100(number: u32) -> Self {
        Self {
            gpm: Some(Gpm::default()),
            nvlink: Some(NvLink { links: 18, active: 18, errors: Some(0) }),
            mig: Some(Mig::default()),
            power_limit: Some(700_000),
            ..Self::of("NVIDIA H100 80GB HBM3", 9, number, 81_559)
        }
    }

    /// An A100: no GPM.
    pub fn a100(number: u32) -> Self {
        Self {
            nvlink: Some(NvLink { links: 12, active: 12, errors: Some(0) }),
            mig: Some(Mig::default()),
            ..Self::of("NVIDIA A100-SXM4-80GB", 7, number, 81_920)
        }
    }

    /// A T4: retired pages, and neither remapped rows nor links nor MIG.
    pub fn t4(number: u32) -> Self {
        Self {
            fields: BTreeMap::new(),
            retired_pages_pending: Some(false),
            power_limit: Some(70_000),
            ..Self::of("Tesla T4", 5, number, 15_360)
        }
    }

    /// Split into instances of 1g.10gb.
    #[must_use]
    pub fn split(mut self, instances: u32) -> Self {
        let device = |slot| MigDevice {
            uuid: format!("MIG-{}-{slot}", self.uuid.trim_start_matches("GPU-")),
            name: format!("{} MIG 1g.10gb", self.name),
            slot,
            gpu_instance: 7 + slot,
            compute_instance: 0,
            memory: Some(Memory { total: 9_856 * MIB, used: Level::Steady(12_582_912.0), reserved: 0 }),
            gpm: self.gpm.clone(),
            processes: Vec::new(),
        };
        self.mig = Some(Mig { enabled: true, pending: true, devices: (0..instances).map(device).collect() });
        self
    }

    fn of(name: &str, architecture: u32, number: u32, mib: u64) -> Self {
        Self {
            uuid: format!("GPU-00000000-0000-4000-8000-{number:012x}"),
            name: name.to_owned(),
            pci_bus_id: format!("00000000:{:02X}:00.0", 0x10 + number),
            architecture,
            memory: Some(Memory { total: mib * MIB, used: Level::Steady(4_194_304.0), reserved: 512 * MIB }),
            utilization: Some(Level::Steady(0.0)),
            codec: Some(Codec::default()),
            power: Some(60_000),
            power_limit: Some(400_000),
            energy: Some(1_000_000),
            temperature: Some(30),
            clocks: Some(Clocks { sm: 345, memory: 1593 }),
            throttle_reasons: Some(1),
            ecc: Some(Ecc { enabled: true, ..Ecc::default() }),
            fields: BTreeMap::from([(142, 0), (143, 0), (144, 0), (145, 0), (230, 0)]),
            pcie: Some(Pcie { generation: 4, width: 16, max_generation: 4, max_width: 16, replays: 0 }),
            persistence: Some(true),
            event_types: 0x1f,
            ..Self::default()
        }
    }
}
