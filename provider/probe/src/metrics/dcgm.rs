//! DCGM's names and units: MiB, W, mJ, C, MHz, percent for utilization, ratios for what profiling measures.

use std::collections::BTreeMap;

use stoker_proto::probe::{Gpu, Memory, MigDevice, Round, gate};

use super::Page;

/// A level of a GPU, under DCGM's name.
struct Field {
    name: &'static str,
    counter: bool,
    help: &'static str,
    of: fn(&Gpu) -> Option<f64>,
    /// Where instances have it, theirs stand for the GPU's while it is split.
    of_instance: Option<fn(&MigDevice) -> Option<f64>>,
}

const fn gauge(name: &'static str, help: &'static str, of: fn(&Gpu) -> Option<f64>) -> Field {
    Field { name, counter: false, help, of, of_instance: None }
}

const fn counter(name: &'static str, help: &'static str, of: fn(&Gpu) -> Option<f64>) -> Field {
    Field { name, counter: true, help, of, of_instance: None }
}

const fn shared(
    name: &'static str,
    help: &'static str,
    of: fn(&Gpu) -> Option<f64>,
    of_instance: fn(&MigDevice) -> Option<f64>,
) -> Field {
    Field { name, counter: false, help, of, of_instance: Some(of_instance) }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53: 285 years of 1 kW in mJ")]
fn number(level: u64) -> f64 {
    level as f64
}

fn mib(bytes: u64) -> f64 {
    number(bytes >> 20)
}

fn free(memory: &Memory) -> u64 {
    memory.total_bytes.saturating_sub(memory.used_bytes).saturating_sub(memory.reserved_bytes)
}

fn ratio(thousandths: u32) -> f64 {
    f64::from(thousandths) / 1000.0
}

fn codec(gpu: &Gpu) -> Option<f64> {
    gpu.codec.map(|level| f64::from(level) / 10.0)
}

fn power_limit(gpu: &Gpu) -> Option<f64> {
    gpu.power_limit_mw.map(|level| number(level) / 1000.0)
}

const FIELDS: &[Field] = &[
    gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", |gpu| gpu.utilization.map(|level| f64::from(level) / 10.0)),
    // A round has the higher of the two, which both names show: whoever adds a GPU's signs of work up must not miss either.
    gauge("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %), or the decoder's where that is higher.", codec),
    gauge("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %), or the encoder's where that is higher.", codec),
    shared(
        "DCGM_FI_PROF_SM_ACTIVE",
        "The ratio of cycles an SM has at least 1 warp assigned.",
        |gpu| gpu.sm_activity.map(ratio),
        |device| device.sm_activity.map(ratio),
    ),
    shared(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        |gpu| gpu.memory_bandwidth.map(ratio),
        |device| device.memory_bandwidth.map(ratio),
    ),
    shared(
        "DCGM_FI_DEV_FB_USED",
        "Framebuffer memory used (in MiB).",
        |gpu| gpu.memory.as_ref().map(|memory| mib(memory.used_bytes)),
        |device| device.memory.as_ref().map(|memory| mib(memory.used_bytes)),
    ),
    shared(
        "DCGM_FI_DEV_FB_FREE",
        "Framebuffer memory free (in MiB).",
        |gpu| gpu.memory.as_ref().map(|memory| mib(free(memory))),
        |device| device.memory.as_ref().map(|memory| mib(free(memory))),
    ),
    shared(
        "DCGM_FI_DEV_FB_RESERVED",
        "Framebuffer memory reserved (in MiB).",
        |gpu| gpu.memory.as_ref().map(|memory| mib(memory.reserved_bytes)),
        |device| device.memory.as_ref().map(|memory| mib(memory.reserved_bytes)),
    ),
    gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", |gpu| gpu.power_mw.map(|level| number(level) / 1000.0)),
    // DCGM tells the limit that was set from the one that is enforced. NVML is asked for the latter only, which both names show.
    gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Enforced power limit (in W).", power_limit),
    gauge("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Enforced power limit (in W).", power_limit),
    counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", |gpu| {
        gpu.energy_mj.map(number)
    }),
    gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", |gpu| gpu.temperature_c.map(f64::from)),
    gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", |gpu| {
        gpu.clocks.as_ref().map(|clocks| f64::from(clocks.sm_mhz))
    }),
    gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", |gpu| {
        gpu.clocks.as_ref().map(|clocks| f64::from(clocks.memory_mhz))
    }),
    gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Current clock event reasons (bits).", |gpu| gpu.clock_limits.map(number)),
    counter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.", |gpu| {
        gpu.ecc.as_ref().filter(|ecc| ecc.enabled).map(|ecc| number(ecc.uncorrected_volatile))
    }),
    counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors.", |gpu| {
        gpu.remapped_rows.as_ref().map(|rows| f64::from(rows.uncorrectable))
    }),
    counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors.", |gpu| {
        gpu.remapped_rows.as_ref().map(|rows| f64::from(rows.correctable))
    }),
    gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.", |gpu| {
        gpu.remapped_rows.as_ref().map(|rows| f64::from(u8::from(rows.failed)))
    }),
    gauge("DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether remapping of rows waits for a reset.", |gpu| {
        gpu.remapped_rows.as_ref().map(|rows| f64::from(u8::from(rows.pending)))
    }),
    gauge("DCGM_FI_DEV_RETIRED_PENDING", "Whether pages wait to be retired.", |gpu| {
        gpu.retired_pages_pending.map(|pending| f64::from(u8::from(pending)))
    }),
    gauge(
        "DCGM_FI_DEV_GPU_RECOVERY_ACTION",
        "What the driver wants done: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset.",
        |gpu| gpu.recovery_action.map(f64::from),
    ),
    counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", |gpu| {
        gpu.pcie.as_ref().map(|pcie| number(pcie.replays))
    }),
    gauge("DCGM_FI_DEV_PCIE_LINK_GEN", "PCIe generation now.", |gpu| gpu.pcie.as_ref().map(|pcie| f64::from(pcie.generation))),
    gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH", "PCIe lanes now.", |gpu| gpu.pcie.as_ref().map(|pcie| f64::from(pcie.width))),
    gauge("DCGM_FI_DEV_MIG_MODE", "Whether the GPU is split into MIG instances.", |gpu| {
        gpu.mig.as_ref().map(|mig| f64::from(u8::from(mig.enabled)))
    }),
    gauge("DCGM_FI_DEV_PERSISTENCE_MODE", "Whether the driver stays loaded without a client.", |gpu| {
        gpu.persistence.map(|on| f64::from(u8::from(on)))
    }),
];

pub(super) fn write(page: &mut Page, round: &Round, node: &str, last_xid: &BTreeMap<String, u32>) {
    let labels: Vec<Labels> = round.gpus.iter().map(|gpu| Labels::of(gpu, node)).collect();
    for field in FIELDS {
        let mut family = if field.counter { page.counter(field.name, field.help) } else { page.gauge(field.name, field.help) };
        for (gpu, labels) in round.gpus.iter().zip(&labels) {
            let split = gpu.mig.as_ref().filter(|mig| mig.enabled);
            match (field.of_instance, split) {
                (Some(of_instance), Some(mig)) => {
                    for device in &mig.devices {
                        if let Some(level) = of_instance(device) {
                            family.add(&labels.instance(device), level);
                        }
                    }
                }
                _ => {
                    if let Some(level) = (field.of)(gpu) {
                        family.add(&labels.whole(), level);
                    }
                }
            }
        }
    }
    // That there was none is known only where they are listened to.
    let listening = round.gates.iter().any(|gate| gate.kind() == gate::Kind::Events && gate.result() == gate::Result::Passed);
    let mut family = page.gauge("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.");
    for (gpu, labels) in round.gpus.iter().zip(&labels) {
        if let Some(code) = last_xid.get(&gpu.uuid).copied().or(listening.then_some(0)) {
            family.add(&labels.whole(), code);
        }
    }
}

/// dcgm-exporter's labels of a GPU.
struct Labels<'a> {
    index: String,
    device: String,
    gpu: &'a Gpu,
    node: &'a str,
}

impl<'a> Labels<'a> {
    fn of(gpu: &'a Gpu, node: &'a str) -> Self {
        Self { index: gpu.index.to_string(), device: format!("nvidia{}", gpu.index), gpu, node }
    }

    fn whole(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("gpu", &self.index),
            ("UUID", &self.gpu.uuid),
            ("pci_bus_id", &self.gpu.pci_bus_id),
            ("device", &self.device),
            ("modelName", &self.gpu.name),
            ("Hostname", self.node),
        ]
    }

    fn instance<'b>(&'b self, device: &'b MigDevice) -> Vec<(&'static str, &'b str)> {
        // `NVIDIA H100 80GB HBM3 MIG 1g.10gb`
        let profile = device.name.rsplit_once(" MIG ").map_or("", |(_, profile)| profile);
        let mut labels = self.whole();
        labels.push(("GPU_I_PROFILE", profile));
        labels.push(("GPU_I_ID", instance_number(device.gpu_instance)));
        labels
    }
}

/// GPU instances are numbered from 0 to 13 at most.
fn instance_number(number: u32) -> &'static str {
    const NUMBERS: [&str; 16] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];
    NUMBERS.get(number as usize).copied().unwrap_or("")
}
