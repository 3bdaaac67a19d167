//! Instance types: the figures of `DescribeInstanceTypes` for a few GPU machines.

use std::collections::BTreeMap;

/// One instance type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeInfo {
    /// Its name, such as `g6.xlarge`.
    pub name: String,
    /// `x86_64` or `arm64`.
    pub arch: String,
    /// Virtual CPUs: what quotas count.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// GPUs; zero for a type that has a part of one.
    pub gpus: u32,
    /// The name of its GPU, such as `L4`.
    pub gpu_name: String,
    /// Memory of one GPU in MiB.
    pub gpu_memory_mib: u64,
    /// Network interfaces of card 0.
    pub interfaces_of_card_0: u32,
    /// IPv4 addresses of one interface.
    pub ipv4_per_interface: u32,
    /// Network cards.
    pub cards: u32,
    /// EFA interfaces at most.
    pub efa_interfaces: u32,
    /// Number of local disks.
    pub disks: u32,
    /// GB of one local disk.
    pub disk_gb: u64,
    /// Whether capacity blocks of it are sold.
    pub in_blocks: bool,
}

impl TypeInfo {
    /// All local disks in GB.
    pub const fn local_gb(&self) -> u64 {
        self.disk_gb * self.disks as u64
    }
}

struct Row {
    name: &'static str,
    arch: &'static str,
    vcpus: u32,
    memory_mib: u64,
    gpu: (u32, &'static str, u64),
    network: (u32, u32, u32, u32),
    disks: (u32, u64),
    in_blocks: bool,
}

const fn row(
    name: &'static str,
    arch: &'static str,
    (vcpus, memory_mib): (u32, u64),
    gpu: (u32, &'static str, u64),
    network: (u32, u32, u32, u32),
    disks: (u32, u64),
    in_blocks: bool,
) -> Row {
    Row { name, arch, vcpus, memory_mib, gpu, network, disks, in_blocks }
}

/// Figures of AWS's own `DescribeInstanceTypes`: network is (interfaces of card 0, IPv4 an interface, cards, EFA interfaces).
const TABLE: [Row; 8] = [
    row("g4dn.xlarge", "x86_64", (4, 16_384), (1, "T4", 16_384), (3, 10, 1, 0), (1, 125), false),
    row("g5.xlarge", "x86_64", (4, 16_384), (1, "A10G", 22_888), (4, 15, 1, 0), (1, 250), false),
    row("g5g.xlarge", "arm64", (4, 8_192), (1, "T4g", 16_384), (4, 15, 1, 0), (0, 0), false),
    row("g6.xlarge", "x86_64", (4, 16_384), (1, "L4", 22_888), (4, 15, 1, 0), (1, 250), false),
    row("g6.2xlarge", "x86_64", (8, 32_768), (1, "L4", 22_888), (4, 15, 1, 0), (1, 450), false),
    row("g6.12xlarge", "x86_64", (48, 196_608), (4, "L4", 22_888), (8, 30, 1, 1), (4, 940), false),
    row("p4d.24xlarge", "x86_64", (96, 1_179_648), (8, "A100", 40_960), (15, 50, 4, 4), (8, 1_000), true),
    row("p5.48xlarge", "x86_64", (192, 2_097_152), (8, "H100", 81_920), (2, 50, 32, 32), (8, 3_800), true),
];

/// The types that a world knows at its start, by name.
pub fn default_types() -> BTreeMap<String, TypeInfo> {
    let of = |row: &Row| TypeInfo {
        name: row.name.to_owned(),
        arch: row.arch.to_owned(),
        vcpus: row.vcpus,
        memory_mib: row.memory_mib,
        gpus: row.gpu.0,
        gpu_name: row.gpu.1.to_owned(),
        gpu_memory_mib: row.gpu.2,
        interfaces_of_card_0: row.network.0,
        ipv4_per_interface: row.network.1,
        cards: row.network.2,
        efa_interfaces: row.network.3,
        disks: row.disks.0,
        disk_gb: row.disks.1,
        in_blocks: row.in_blocks,
    };
    TABLE.iter().map(|row| (row.name.to_owned(), of(row))).collect()
}
