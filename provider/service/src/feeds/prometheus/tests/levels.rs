use stoker_core::facts::reading::{Ecc, GpuReading, Measured, MemoryLevel, Mig, MigReading, Pcie, Permille, RemappedRows, Why};

use super::super::labels::{Dropped, Drops};
use super::super::levels::Levels;
use super::*;

/// Levels of GPU 1 as an exporter tells them, by level and value.
fn told(levels: &[(Level, f64)], drops: &mut Drops) -> Levels {
    let mut taken = Levels::new();
    for (level, value) in levels {
        taken.take(field(*level), Ok(&[row(&[("UUID", "GPU-1")], 0.0, &value)]), drops);
    }
    taken
}

fn share(thousandths: u16) -> Measured<Permille> {
    Measured::Known(Permille::new(thousandths).unwrap())
}

#[test]
fn levels_come_in_the_units_of_a_reading() {
    let mut drops = Drops::new();
    let levels = told(
        &[
            (Level::Utilization, 37.0),
            (Level::EngineActivity, 0.355),
            (Level::SmActivity, 0.25),
            (Level::Bandwidth, 1.0004),
            (Level::MemoryUsed, 20_480.0),
            (Level::MemoryFree, 60_000.0),
            (Level::MemoryReserved, 1_079.0),
            (Level::Power, 301.25),
            (Level::PowerLimit, 700.0),
            (Level::PowerLimitAsked, 650.0),
            (Level::Temperature, 64.0),
            (Level::SmClock, 1_980.0),
            (Level::MemoryClock, 2_619.0),
            (Level::ClockLimits, 4.0),
            (Level::Energy, 123_456_789_012.0),
            (Level::RowsCorrectable, 1.0),
            (Level::RowsUncorrectable, 2.0),
            (Level::RowsFailed, 0.0),
            (Level::EccUncorrected, 0.0),
            (Level::EccCorrected, 12.0),
            (Level::EccUncorrectedEver, 3.0),
            (Level::RetiredPending, 0.0),
            (Level::Recovery, 1.0),
            (Level::PcieGeneration, 5.0),
            (Level::PcieWidth, 16.0),
            (Level::PcieMaxGeneration, 5.0),
            (Level::PcieMaxWidth, 16.0),
            (Level::PcieReplays, 7.0),
            (Level::MigMode, 0.0),
            (Level::Persistence, 1.0),
            (Level::Encoder, 0.0),
            (Level::Decoder, 12.0),
        ],
        &mut drops,
    );
    let mib = |n: u64| n * 1024 * 1024;
    let expected = GpuReading {
        // The higher of 37 % and 0.355.
        utilization: share(370),
        sm_activity: share(250),
        // Rounding of the exporter's own: the whole.
        memory_bandwidth: share(1000),
        // 20,480 + 60,000 + 1,079 = 81,559 MiB.
        memory: Measured::Known(MemoryLevel { used: mib(20_480), total: mib(81_559), reserved: mib(1_079) }),
        power_mw: Measured::Known(301_250),
        power_limit_mw: Measured::Known(700_000),
        temperature_c: Measured::Known(64),
        clocks_mhz: Measured::Known((1_980, 2_619)),
        clock_limits: Measured::Known(4),
        ecc: Measured::Known(Ecc { enabled: true, uncorrected_volatile: 0, corrected_volatile: 12, uncorrected_aggregate: 3 }),
        // Whether one waits for a reset is not told by default.
        remapped_rows: Measured::Known(RemappedRows {
            correctable: 1,
            uncorrectable: 2,
            pending: Measured::Unknown(Why::NotReported),
            failed: false,
        }),
        retired_pages_pending: Measured::Known(false),
        recovery_action: Measured::Known(1),
        pcie: Measured::Known(Pcie { generation: 5, width: 16, max_generation: 5, max_width: 16, replays: 7 }),
        energy_mj: Measured::Known(123_456_789_012),
        mig: Measured::Known(Mig::default()),
        persistence: Measured::Known(true),
        codec: share(120),
        ..GpuReading::default()
    };
    assert_eq!(levels.gpu(&gpu(1), &BTreeMap::new()), expected);
    assert_eq!(drops, Drops::new());
    // Of another GPU nothing is told, which is unknown.
    assert_eq!(levels.gpu(&gpu(2), &BTreeMap::new()), GpuReading::default());
}

#[test]
fn what_hardware_cannot_have_is_unknown_and_counted_and_never_nought() {
    for (level, value) in [
        (Level::Utilization, f64::NAN),
        (Level::Utilization, f64::INFINITY),
        (Level::Utilization, -1.0),
        (Level::Utilization, 101.0),
        (Level::EngineActivity, 37.0),
        (Level::MemoryUsed, 9_223_372_036_854_775_794.0),
        (Level::Power, 140_737_488_355_328.0),
        (Level::Recovery, 5.0),
    ] {
        let mut drops = Drops::new();
        let levels = told(&[(Level::MemoryFree, 1.0), (level, value)], &mut drops);
        let reading = levels.gpu(&gpu(1), &BTreeMap::new());
        let untold = GpuReading::default();
        let absurd = match level {
            Level::Utilization | Level::EngineActivity => GpuReading { utilization: Measured::Unknown(Why::Absurd), ..untold },
            Level::MemoryUsed => GpuReading { memory: Measured::Unknown(Why::Absurd), ..untold },
            Level::Power => GpuReading { power_mw: Measured::Unknown(Why::Absurd), ..untold },
            _ => GpuReading { recovery_action: Measured::Unknown(Why::Absurd), ..untold },
        };
        // What is used is asked for before what is free; without it the rest says nothing of memory.
        let absurd = match level {
            Level::MemoryUsed => absurd,
            _ => GpuReading { memory: Measured::Unknown(Why::NotReported), ..absurd },
        };
        assert_eq!(reading, absurd, "{level:?} {value}");
        assert_eq!(drops, Drops::from([(Dropped::Absurd, 1)]), "{level:?} {value}");
    }
}

#[tokio::test]
async fn a_level_that_was_not_answered_is_unknown_for_that_reason() {
    let prometheus = Prometheus::start(Arc::new(|_| (500, String::new()))).await;
    let failed = prometheus.asker().ask("x").await.unwrap_err();
    let mut drops = Drops::new();
    let mut levels = told(&[(Level::Temperature, 40.0)], &mut drops);
    levels.take(field(Level::Utilization), Err(&failed), &mut drops);
    let reading = levels.gpu(&gpu(1), &BTreeMap::new());
    assert_eq!(reading.utilization, Measured::Unknown(Why::Failed));
    assert_eq!(reading.temperature_c, Measured::Known(40));
    levels.take(field(Level::Temperature), Err(&failed), &mut drops);
    assert_eq!(levels.gpu(&gpu(1), &BTreeMap::new()).temperature_c, Measured::Unknown(Why::Failed));
}

#[test]
fn series_whose_labels_do_not_tell_the_gpu_are_counted() {
    let mut drops = Drops::new();
    let mut levels = Levels::new();
    let series = [
        row(&[], 0.0, &50),
        row(&[("UUID", "")], 0.0, &50),
        row(&[("UUID", "GPU-1"), ("GPU_I_ID", "one")], 0.0, &50),
        // Two series of one GPU, as a proxy of two Prometheus gives them: the higher; in the old namespace the label is lower case.
        row(&[("UUID", "GPU-1")], 0.0, &20),
        row(&[("uuid", "GPU-1")], 0.0, &30),
    ];
    levels.take(field(Level::Utilization), Ok(&series), &mut drops);
    assert_eq!(drops, Drops::from([(Dropped::NoGpu, 3)]));
    assert_eq!(levels.gpu(&gpu(1), &BTreeMap::new()).utilization, share(300));
}

#[test]
fn instances_of_a_split_gpu_are_told_apart() {
    let mut drops = Drops::new();
    let mut levels = Levels::new();
    let instance = |number: &'static str, value: f64| row(&[("UUID", "GPU-1"), ("GPU_I_ID", number)], 0.0, &value);
    levels.take(field(Level::MemoryUsed), Ok(&[instance("1", 100.0), instance("2", 0.0)]), &mut drops);
    levels.take(field(Level::MemoryFree), Ok(&[instance("1", 400.0), instance("2", 500.0)]), &mut drops);
    levels.take(field(Level::EngineActivity), Ok(&[instance("1", 0.5)]), &mut drops);
    levels.take(field(Level::Temperature), Ok(&[row(&[("UUID", "GPU-1")], 0.0, &50)]), &mut drops);
    let instances = BTreeMap::from([(1, "1g.5gb".to_owned()), (2, "1g.5gb".to_owned())]);
    let reading = levels.gpu(&gpu(1), &instances);
    let mib = |n: u64| n * 1024 * 1024;
    let of = |number: u32, used: u64, sm_activity| MigReading {
        gpu_instance: number,
        name: "1g.5gb".to_owned(),
        memory: Measured::Known(MemoryLevel { used: mib(used), total: mib(500), reserved: 0 }),
        sm_activity,
        ..MigReading::default()
    };
    let uuid = |text: &str| GpuUuid::new(text).unwrap();
    let devices = [
        (uuid("MIG-GPU-1/1/0"), of(1, 100, share(500))),
        (uuid("MIG-GPU-1/2/0"), of(2, 0, Measured::Unknown(Why::NotReported))),
    ];
    assert_eq!(reading.mig, Measured::Known(Mig { enabled: true, pending_change: false, devices: devices.into() }));
    // The GPU as a whole tells no use of its own then; its temperature it does.
    assert_eq!(reading.utilization, Measured::Unknown(Why::NotReported));
    assert_eq!(reading.temperature_c, Measured::Known(50));
}
