//! The shipped probe over everything that can go wrong below it: each is a reading of its own, never nought and never a crash.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use nvidia_ml::scenario::{Clocks, Codec, Gpm, Memory, Pcie, Process, Xid};
use nvidia_ml::{Code, Gpu, Level, Scenario};
use support::{Machine, Probe, gate, why};

fn two() -> Scenario {
    Scenario::of([Gpu::h100(0), Gpu::h100(1)])
}

fn failing(symbol: &str, code: Code) -> Scenario {
    Scenario { errors: [(symbol.to_owned(), code)].into(), ..two() }
}

fn hanging(symbol: &str) -> Scenario {
    Scenario { hangs: [(symbol.to_owned(), 600_000)].into(), ..two() }
}

#[test]
fn a_driver_that_cannot_be_opened_says_how_and_is_tried_again() -> Result<()> {
    for (code, state) in [
        (Code::DriverNotLoaded, "DRIVER_NOT_LOADED"),
        (Code::LibRmVersionMismatch, "VERSION_MISMATCH"),
        (Code::NoPermission, "NO_PERMISSION"),
        (Code::Unknown, "STATE_FAILED"),
    ] {
        let machine = Machine::new(&failing("nvmlInit_v2", code))?;
        let probe = machine.probe(&["--expect-gpus", "2"])?;
        let state = if state == "STATE_FAILED" { "FAILED" } else { state };
        let round = probe.state(state)?;
        assert!(round["gpusCounted"].is_null(), "not nought");
        assert_eq!(round["gpus"], serde_json::json!([]));
        assert_ne!(round["driver"]["detail"], "");
        assert_eq!(gate(&round, "DRIVER"), "FAILED");
        assert_eq!(gate(&round, "GPU_COUNT"), "UNKNOWN");
        assert_eq!(gate(&round, "EVENTS"), "UNKNOWN");
        machine.set(&two())?;
        assert_eq!(probe.state("READY")?["gpusCounted"], 2);
    }
    Ok(())
}

#[test]
fn a_missing_library_is_told_and_costs_no_round() -> Result<()> {
    let machine = Machine::new(&two())?;
    let mut command = machine.command(Some(Path::new("/nowhere/libnvidia-ml.so.1")));
    command.args(["--period", "0.1"]);
    let probe = Probe::start(command)?;
    for _ in 0..5 {
        let round = probe.state("LIBRARY_MISSING")?;
        assert_eq!(gate(&round, "DRIVER"), "FAILED");
    }
    assert!(probe.get("/healthz")?.starts_with("HTTP/1.1 200"), "the probe itself is well");
    assert!(!probe.get("/metrics")?.contains("DCGM_"), "nothing is known");
    assert!(probe.stop()? < Duration::from_secs(5));
    Ok(())
}

#[test]
fn a_library_that_is_not_nvml_ends_nothing() -> Result<()> {
    // The wrapper panics when it is to close a library without nvmlShutdown.
    let machine = Machine::new(&two())?;
    let source = machine.path().join("other.c");
    std::fs::write(&source, "int nvmlInit_v2(void) { return 0; }\n")?;
    let other = machine.path().join("other.so");
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&other).arg(&source).status()?.success());
    for library in [other.as_path(), Path::new("libc.so.6")] {
        let mut command = machine.command(Some(library));
        command.args(["--period", "0.1"]);
        let probe = Probe::start(command)?;
        for _ in 0..3 {
            probe.state("FAILED")?;
        }
        probe.stop()?;
    }
    Ok(())
}

#[test]
fn a_call_that_hangs_is_told_and_so_is_its_end() -> Result<()> {
    let machine = Machine::new(&two())?;
    let probe = machine.probe(&[])?;
    probe.state("READY")?;
    machine.set(&hanging("nvmlDeviceGetMemoryInfo_v2"))?;
    let from = Instant::now();
    let round = probe.state("HUNG")?;
    assert!(from.elapsed() < Duration::from_secs(10));
    // Who they are is still known; nothing of what was read before is repeated.
    assert_eq!(round["gpus"].as_array().map(Vec::len), Some(2));
    let gpu = &round["gpus"][1];
    assert_eq!(gpu["uuid"], Gpu::h100(1).uuid);
    for signal in ["MEMORY", "UTILIZATION", "PROCESSES", "POWER", "ECC", "RECOVERY_ACTION"] {
        assert_eq!(why(gpu, signal), "TIMED_OUT", "{signal}");
    }
    for level in ["memory", "utilization", "processes", "powerMw", "ecc", "recoveryAction"] {
        assert!(gpu[level].is_null(), "{level}");
    }
    assert!(round["gpusCounted"].is_null());
    // Rounds go on, and events come while nothing else does.
    probe.state("HUNG")?;
    machine.set(&Scenario { xids: vec![Xid::on(1, 119)], ..hanging("nvmlDeviceGetMemoryInfo_v2") })?;
    assert_eq!(probe.event("xid")?["xid"]["code"], 119);
    let page = probe.get("/metrics")?;
    assert!(page.contains("state=\"HUNG\"") && !page.contains("DCGM_FI_DEV_FB_USED"), "{page}");

    machine.set(&two())?;
    let round = probe.state("READY")?;
    assert!(why(&round["gpus"][1], "MEMORY").is_null());
    Ok(())
}

#[test]
fn a_driver_that_is_slow_and_answers_does_not_hang() -> Result<()> {
    // Longer in all than any silence may last, and no call as long.
    let four = (0..4).map(Gpu::h100).collect();
    let machine =
        Machine::new(&Scenario { gpus: four, hangs: [("nvmlDeviceGetMemoryInfo_v2".to_owned(), 700)].into(), ..two() })?;
    let probe = machine.probe(&[])?;
    for _ in 0..2 {
        let round = probe.until("a round", |line| !line["driver"].is_null())?;
        assert_eq!((&round["driver"]["state"], round["gpus"].as_array().map(Vec::len)), (&"READY".into(), Some(4)));
        assert!(round["tookUs"].as_u64().is_some_and(|took| took > 2_500_000), "{}", round["tookUs"]);
    }
    Ok(())
}

#[test]
fn a_driver_that_hangs_from_the_start_can_still_be_ended() -> Result<()> {
    let machine = Machine::new(&hanging("nvmlInit_v2"))?;
    let probe = machine.probe(&[])?;
    assert_eq!(probe.state("HUNG")?["gpus"], serde_json::json!([]));
    assert!(probe.stop()? < Duration::from_secs(5));
    Ok(())
}

#[test]
fn a_lost_gpu_is_unknown_and_its_neighbour_is_not() -> Result<()> {
    let machine = Machine::new(&two())?;
    let probe = machine.probe(&["--expect-gpus", "2"])?;
    assert_eq!(gate(&probe.state("READY")?, "GPU_COUNT"), "PASSED");
    machine.set(&Scenario::of([Gpu::h100(0), Gpu { lost: true, ..Gpu::h100(1) }]))?;
    let round = probe.until("a lost GPU", |round| why(&round["gpus"][1], "MEMORY") == "GPU_LOST")?;
    assert_eq!(round["driver"]["state"], "READY");
    assert_eq!(round["gpusCounted"], 2, "the driver counts it");
    let gpu = &round["gpus"][1];
    assert_eq!(gpu["uuid"], Gpu::h100(1).uuid);
    // What was read in another round than this one does not outlive it.
    assert_eq!(why(gpu, "ECC"), "GPU_LOST");
    assert!(gpu["ecc"].is_null() && gpu["temperatureC"].is_null());
    assert!(why(&round["gpus"][0], "MEMORY").is_null());
    assert_eq!(gate(&round, "GPU_COUNT"), "FAILED");

    machine.set(&two())?;
    let round = probe.until("the GPU again", |round| round["gpus"][1]["ecc"]["enabled"] == true)?;
    assert_eq!(gate(&round, "GPU_COUNT"), "PASSED");
    // It is listened to again.
    machine.set(&Scenario { xids: vec![Xid::on(1, 31)], ..two() })?;
    assert_eq!(probe.event("xid")?["xid"]["gpuUuid"], Gpu::h100(1).uuid);
    Ok(())
}

#[test]
fn a_gpu_that_was_lost_before_the_probe_came_is_counted() -> Result<()> {
    let machine = Machine::new(&Scenario::of([Gpu::h100(0), Gpu { lost: true, ..Gpu::h100(1) }]))?;
    let round = machine.probe(&[])?.state("READY")?;
    assert_eq!((&round["gpusCounted"], &round["gpus"][1]["uuid"]), (&2.into(), &"".into()));
    assert_eq!(why(&round["gpus"][1], "UTILIZATION"), "GPU_LOST");
    assert_eq!(gate(&round, "GPU_COUNT"), "FAILED");
    assert_eq!(gate(&round, "EVENTS"), "FAILED");
    Ok(())
}

#[test]
fn a_driver_that_goes_away_is_opened_again() -> Result<()> {
    let machine = Machine::new(&two())?;
    let probe = machine.probe(&[])?;
    probe.state("READY")?;
    machine.set(&failing("nvmlDeviceGetCount_v2", Code::Uninitialized))?;
    assert!(probe.state("FAILED")?["gpusCounted"].is_null());
    machine.set(&two())?;
    probe.state("READY")?;
    Ok(())
}

#[test]
fn one_refused_reading_leaves_the_others() -> Result<()> {
    let refused = |symbol: &str, code| Gpu { errors: [(symbol.to_owned(), code)].into(), ..Gpu::h100(0) };
    let machine = Machine::new(&Scenario::of([
        refused("nvmlDeviceGetPowerUsage", Code::NoPermission),
        Gpu { crowded: true, ..Gpu::h100(1) },
        refused("nvmlDeviceGetFieldValues", Code::Unknown),
        refused("nvmlDeviceGetMigMode", Code::NotReady),
    ]))?;
    let round = machine.probe(&[])?.state("READY")?;
    let gpus = &round["gpus"];
    assert_eq!(why(&gpus[0], "POWER"), "NO_PERMISSION");
    assert!(gpus[0]["powerMw"].is_null());
    assert_eq!(gpus[0]["temperatureC"], 30);
    // More processes each time than there is room for are not none.
    assert_eq!(why(&gpus[1], "PROCESSES"), "FAILED");
    assert_eq!((why(&gpus[2], "RECOVERY_ACTION"), why(&gpus[2], "REMAPPED_ROWS")), (&"FAILED".into(), &"FAILED".into()));
    assert_eq!(why(&gpus[3], "MIG"), "NOT_YET");
    Ok(())
}

/// The driver answers, and what it says no hardware has: a power of 12 kW, or below nought, which NVML can only say as 4 MW.
#[test]
fn a_level_that_no_hardware_has_is_absurd_and_no_number() -> Result<()> {
    let below_nought = u32::MAX - 5_000;
    let memory = |total: u64, used: f64| Some(Memory { total, used: Level::Steady(used), reserved: 0 });
    let machine = Machine::new(&Scenario::of([
        Gpu { power: Some(12_000_000), power_limit: Some(below_nought), temperature: Some(5_000), ..Gpu::h100(0) },
        Gpu {
            power: Some(below_nought),
            utilization: Some(Level::Steady(120.0)),
            memory: memory(80 << 30, 9e10),
            ..Gpu::a100(1)
        },
        Gpu {
            clocks: Some(Clocks { sm: 1_000_000, memory: 1 }),
            pcie: Some(Pcie { width: 1_000, ..Pcie::default() }),
            fields: [(230, 256)].into(),
            codec: Some(Codec { encoder: 0, decoder: 255 }),
            memory: memory(0, 0.0),
            gpm: Some(Gpm { sm: Level::Steady(-1.0), memory_bandwidth: Level::Steady(101.0) }),
            ..Gpu::h100(2)
        },
        Gpu { power: Some(10_000_000), ..Gpu::h100(3) },
    ]))?;
    let probe = machine.probe(&[])?;
    let round = probe.until("both samples of activity", |round| why(&round["gpus"][2], "SM_ACTIVITY") == "ABSURD")?;
    for (gpu, signals, levels) in [
        (0, &["POWER", "POWER_LIMIT", "TEMPERATURE"][..], &["powerMw", "powerLimitMw", "temperatureC"][..]),
        (1, &["POWER", "UTILIZATION", "MEMORY"], &["powerMw", "utilization", "memory"]),
        (
            2,
            &["CLOCKS", "PCIE", "RECOVERY_ACTION", "CODEC", "MEMORY", "SM_ACTIVITY", "MEMORY_BANDWIDTH"],
            &["clocks", "pcie", "recoveryAction", "codec", "memory", "smActivity", "memoryBandwidth"],
        ),
    ] {
        let gpu = &round["gpus"][gpu];
        for (signal, level) in signals.iter().zip(levels) {
            assert_eq!(why(gpu, signal), "ABSURD", "{gpu:#}");
            assert!(gpu[level].is_null(), "{gpu:#}");
        }
    }
    // What hardware can just have, and what stands beside an absurd level, is read.
    assert_eq!(
        (&round["gpus"][3]["powerMw"], &round["gpus"][0]["memory"]["totalBytes"]),
        (&10_000_000.into(), &(81_559_u64 << 20).into())
    );
    let page = probe.get("/metrics")?;
    assert!(page.contains("stoker_probe_unknown_readings_total{signal=\"POWER\",why=\"ABSURD\"}"), "{page}");
    assert!(!page.lines().any(|line| line.starts_with("DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"")), "{page}");
    Ok(())
}

#[test]
fn an_xid_is_told_once_with_its_place_and_the_gpu_is_looked_at_again() -> Result<()> {
    let machine = Machine::new(&two())?;
    // No round is due but the first.
    let probe = machine.probe(&["--period", "600"])?;
    assert_eq!(probe.state("READY")?["gpus"][1]["recoveryAction"], 0);
    let mut scenario = two();
    scenario.xids = vec![Xid { gpu_instance: Some(3), ..Xid::on(1, 94) }, Xid::on(0, 13)];
    scenario.gpus[1].fields.insert(230, 1);
    machine.set(&scenario)?;
    let first = probe.event("xid")?["xid"].clone();
    assert_eq!(first, serde_json::json!({"code": 94, "gpuUuid": Gpu::h100(1).uuid, "gpuInstance": 3, "computeInstance": null}));
    assert_eq!(probe.event("xid")?["xid"]["code"], 13);
    assert_eq!(probe.state("READY")?["gpus"][1]["recoveryAction"], 1);
    let page = probe.get("/metrics")?;
    assert!(page.contains("stoker_probe_xids_total{UUID=\"GPU-00000000-0000-4000-8000-000000000001\",xid=\"94\"} 1"), "{page}");
    assert!(page.lines().any(|line| line.starts_with("DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"") && line.ends_with(" 94")), "{page}");
    Ok(())
}

#[test]
fn a_gpu_that_tells_no_events_does_not_silence_the_others() -> Result<()> {
    let mute = Gpu { event_types: 0, ..Gpu::h100(0) };
    let machine = Machine::new(&Scenario::of([mute.clone(), Gpu::h100(1)]))?;
    let probe = machine.probe(&[])?;
    assert_eq!(gate(&probe.state("READY")?, "EVENTS"), "FAILED");
    machine.set(&Scenario { xids: vec![Xid::on(1, 79)], ..Scenario::of([mute, Gpu::h100(1)]) })?;
    assert_eq!(probe.event("xid")?["xid"]["code"], 79);
    machine.set(&Scenario { errors: [("nvmlEventSetWait_v2".to_owned(), Code::Unknown)].into(), ..two() })?;
    probe.until("a wait that fails", |round| round["gates"].to_string().contains("waiting for events"))?;
    Ok(())
}

#[test]
fn the_gate_of_events_tells_whether_they_are_waited_for_now() -> Result<()> {
    let of = |wanted: &'static str| move |round: &serde_json::Value| gate(round, "EVENTS") == wanted;
    let machine = Machine::new(&two())?;
    let probe = machine.probe(&[])?;
    probe.until("events", of("PASSED"))?;
    machine.set(&failing("nvmlEventSetWait_v2", Code::Unknown))?;
    probe.until("a wait that fails", of("FAILED"))?;
    machine.set(&two())?;
    probe.until("events again", of("PASSED"))?;
    let none = Machine::new(&failing("nvmlEventSetCreate", Code::NoPermission))?;
    none.probe(&[])?.until("no event set", |round| round["gates"].to_string().contains("no event set"))?;
    Ok(())
}

#[test]
fn a_probe_in_a_pid_namespace_of_its_own_trusts_no_list() -> Result<()> {
    let busy = Gpu { processes: vec![Process { pid: 7, memory: Some(1 << 30) }], ..Gpu::h100(0) };
    let machine = Machine::new(&Scenario { hide_processes: true, ..Scenario::of([busy]) })?;
    machine.namespace("pid:[4026532837]")?;
    let round = machine.probe(&[])?.state("READY")?;
    assert!(round["gpus"][0]["processes"].is_null());
    assert_eq!(why(&round["gpus"][0], "PROCESSES"), "NOT_TRUSTED");
    Ok(())
}

#[test]
fn memory_in_use_without_a_process_ends_the_trust_in_lists() -> Result<()> {
    let machine = Machine::new(&Scenario::of([Gpu::a100(0)]))?;
    let probe = machine.probe(&[])?;
    assert_eq!(probe.state("READY")?["gpus"][0]["processes"], serde_json::json!([]));
    let memory = Memory { total: 80 << 30, used: Level::Steady(3e10), reserved: 0 };
    let busy = Gpu { memory: Some(memory), processes: vec![Process { pid: 7, memory: None }], ..Gpu::a100(0) };
    machine.set(&Scenario { hide_processes: true, ..Scenario::of([busy]) })?;
    probe.until("distrust", |round| why(&round["gpus"][0], "PROCESSES") == "NOT_TRUSTED")?;
    Ok(())
}

#[test]
fn utilization_is_not_believed_while_a_driver_that_just_began_scrubs_its_memory() -> Result<()> {
    let machine = Machine::new(&Scenario::of([Gpu {
        persistence: Some(false),
        utilization: Some(Level::Steady(100.0)),
        ..Gpu::a100(0)
    }]))?;
    let round = machine.probe(&[])?.state("READY")?;
    assert_eq!(why(&round["gpus"][0], "UTILIZATION"), "NOT_TRUSTED");
    Ok(())
}

#[test]
fn a_scenario_that_does_not_parse_leaves_the_last_good_one() -> Result<()> {
    let machine = Machine::new(&two())?;
    let probe = machine.probe(&[])?;
    probe.state("READY")?;
    std::fs::write(machine.path().join("scenario.json"), "{\"gpus\": [")?;
    std::thread::sleep(Duration::from_millis(300));
    probe.state("READY")?;
    assert_eq!(probe.state("READY")?["gpusCounted"], 2);
    Ok(())
}

#[test]
fn a_question_for_gpm_that_fails_once_is_asked_again() -> Result<()> {
    let gpm = Some(Gpm { sm: Level::Steady(41.5), memory_bandwidth: Level::Steady(20.0) });
    let hopper = Scenario::of([Gpu { gpm, ..Gpu::h100(0) }]);
    let errors = [("nvmlGpmQueryDeviceSupport".to_owned(), Code::Unknown)].into();
    let machine = Machine::new(&Scenario { errors, ..hopper.clone() })?;
    let probe = machine.probe(&[])?;
    let round = probe.state("READY")?;
    assert_eq!(why(&round["gpus"][0], "SM_ACTIVITY"), "FAILED");
    machine.set(&hopper)?;
    probe.until("activity", |round| round["gpus"][0]["smActivity"] == 415)?;
    Ok(())
}
