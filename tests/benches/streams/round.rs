//! What a probe on a node of 8 GPUs reads.

use jiff::Timestamp;
use stoker_proto::probe::{
    Clocks, Driver, Ecc, Gate, Gpu, Memory, Mig, NvLink, Pcie, Processes, RemappedRows, Round, Signal, Unknown, Why, driver,
    gate,
};

/// GPUs of each node.
pub(crate) const GPUS: u32 = 8;

/// What that probe reads in its round of that number, idle but for the first GPU where it is `busy`.
pub(crate) fn round(sequence: u64, probe: usize, busy: bool) -> Round {
    let now = Timestamp::now();
    let unknown = |signal: Signal, why: Why| Unknown { signal: signal.into(), why: why.into() };
    let gpu = |index: u32| Gpu {
        uuid: format!("GPU-{probe:08x}-0000-4000-8000-{index:012x}"),
        index,
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        pci_bus_id: format!("00000000:{index:02X}:00.0"),
        architecture: Some(9),
        utilization: Some(0),
        sm_activity: Some(0),
        memory_bandwidth: Some(0),
        memory: Some(Memory {
            used_bytes: if busy && index == 0 { 40 << 30 } else { 3 << 20 },
            total_bytes: 85_520_809_984,
            reserved_bytes: 600 << 20,
        }),
        power_mw: Some(71_234 + sequence % 97),
        power_limit_mw: Some(700_000),
        temperature_c: Some(31),
        clocks: Some(Clocks { sm_mhz: 345, memory_mhz: 2619 }),
        clock_limits: Some(1),
        ecc: Some(Ecc { enabled: true, ..Ecc::default() }),
        remapped_rows: Some(RemappedRows::default()),
        retired_pages_pending: None,
        recovery_action: Some(0),
        nvlink: Some(NvLink { active_links: 18, errors: 0 }),
        pcie: Some(Pcie { generation: 5, width: 16, max_generation: 5, max_width: 16, replays: 0 }),
        processes: Some(Processes::default()),
        energy_mj: Some(1_234_567_890 + sequence * 356_000),
        mig: Some(Mig::default()),
        persistence: Some(true),
        codec: Some(0),
        unknown: vec![unknown(Signal::RetiredPages, Why::NotSupported), unknown(Signal::Fabric, Why::NotSupported)],
        ..Gpu::default()
    };
    let passed = |kind: gate::Kind| Gate { kind: kind.into(), result: gate::Result::Passed.into(), detail: String::new() };
    Round {
        sequence,
        at: Some(stoker_proto::Timestamp { seconds: now.as_second(), nanos: now.subsec_nanosecond() }),
        driver: Some(Driver {
            state: driver::State::Ready.into(),
            driver_version: "570.86.15".to_owned(),
            nvml_version: "12.570.86.15".to_owned(),
            cuda_version: 12_080,
            detail: String::new(),
        }),
        gpus_counted: Some(GPUS),
        gpus: (0..GPUS).map(gpu).collect(),
        gates: [gate::Kind::Driver, gate::Kind::GpuCount, gate::Kind::GpuMemory, gate::Kind::Events].map(passed).to_vec(),
        took_us: 4_000,
    }
}
