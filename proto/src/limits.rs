//! What no hardware has more of. A level beyond is absurd, whoever tells it: the driver to a probe, a probe, or Prometheus.

use std::ops::RangeInclusive;

/// Memory of a GPU in bytes: 4 TiB, 14 times what the largest has.
pub const MEMORY: u64 = 4 << 40;
/// Power of a GPU in milliwatts: 10 kW.
pub const POWER_MW: u64 = 10_000_000;
/// Degrees Celsius between which a GPU can be.
pub const TEMPERATURE_C: RangeInclusive<i32> = -50..=200;
/// A clock in MHz: memory clocks are told in effective rates, of which the fastest are some 30,000.
pub const CLOCK_MHZ: u32 = 100_000;
/// NVLinks of a GPU.
pub const NVLINKS: u32 = 256;
/// Generation of PCIe.
pub const PCIE_GENERATION: u32 = 15;
/// Lanes of PCIe.
pub const PCIE_LANES: u32 = 64;
