//! Each call of NVML that can be scripted, refused and hanging, one at a time: what the shipped probe makes of it.
//!
//! The oracle knows nothing of which call serves which reading. It knows what is read while all is well, in which nothing is nought; of that
//! each level stays or becomes unknown, and says why.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nvidia_ml::scenario::{Codec, Ecc, Fabric, Gpm, Memory, NvLink, Pcie, Process};
use nvidia_ml::{Code, Gpu, Level, Scenario};
use serde_json::Value;
use support::{Machine, gate, library, why};

/// The signals of a GPU, and where their levels stand.
const SIGNALS: [(&str, &str); 21] = [
    ("UTILIZATION", "utilization"),
    ("SM_ACTIVITY", "smActivity"),
    ("MEMORY_BANDWIDTH", "memoryBandwidth"),
    ("MEMORY", "memory"),
    ("POWER", "powerMw"),
    ("POWER_LIMIT", "powerLimitMw"),
    ("TEMPERATURE", "temperatureC"),
    ("CLOCKS", "clocks"),
    ("CLOCK_LIMITS", "clockLimits"),
    ("ECC", "ecc"),
    ("REMAPPED_ROWS", "remappedRows"),
    ("RETIRED_PAGES", "retiredPagesPending"),
    ("RECOVERY_ACTION", "recoveryAction"),
    ("NVLINK", "nvlink"),
    ("PCIE", "pcie"),
    ("PROCESSES", "processes"),
    ("ENERGY", "energyMj"),
    ("MIG", "mig"),
    ("FABRIC", "fabric"),
    ("PERSISTENCE", "persistence"),
    ("CODEC", "codec"),
];

/// Those of a MIG instance.
const OF_INSTANCES: [(&str, &str); 4] =
    [("MEMORY", "memory"), ("SM_ACTIVITY", "smActivity"), ("MEMORY_BANDWIDTH", "memoryBandwidth"), ("PROCESSES", "processes")];

/// The GPU that no scripted fault of one GPU touches.
const UNTOUCHED: usize = 1;

/// A GPU of which nothing reads as nought.
fn at_work(number: u32) -> Gpu {
    Gpu {
        utilization: Some(Level::Steady(63.0)),
        codec: Some(Codec { encoder: 12, decoder: 30 }),
        gpm: Some(Gpm { sm: Level::Steady(41.5), memory_bandwidth: Level::Steady(20.0) }),
        memory: Some(Memory { total: 80 << 30, used: Level::Steady(3e10), reserved: 1 << 29 }),
        temperature: Some(55),
        throttle_reasons: Some(4),
        ecc: Some(Ecc { enabled: true, uncorrected_volatile: 1, corrected_volatile: 3, uncorrected_aggregate: 2 }),
        fields: [(142, 2), (143, 1), (144, 1), (145, 1), (230, 1)].into(),
        nvlink: Some(NvLink { links: 18, active: 18, errors: Some(5) }),
        pcie: Some(Pcie { generation: 4, width: 16, max_generation: 5, max_width: 16, replays: 7 }),
        fabric: Some(Fabric { state: 3, status: 0, health_mask: 0x1aa }),
        processes: vec![Process { pid: 4242, memory: Some(8 << 30) }],
        mps: vec![Process { pid: 4244, memory: Some(1 << 30) }],
        retired_pages_pending: Some(true),
        ..Gpu::h100(number)
    }
}

/// Two GPUs at work, and one whose instances are.
fn machine() -> Scenario {
    let mut split = at_work(2).split(2);
    for device in &mut split.mig.as_mut().expect("split").devices {
        device.memory = Some(Memory { total: 10 << 30, used: Level::Steady(6e9), reserved: 0 });
        device.processes = vec![Process { pid: 4243, memory: Some(6_000_000_000) }];
    }
    Scenario::of([at_work(0), at_work(1), split])
}

/// Whether the library answers it for a GPU, and so can refuse it for one.
fn is_of_a_gpu(symbol: &str) -> bool {
    symbol.starts_with("nvmlDeviceGet") && !symbol.starts_with("nvmlDeviceGetHandle") && symbol != "nvmlDeviceGetCount_v2"
        || matches!(
            symbol,
            "nvmlDeviceRegisterEvents" | "nvmlGpmQueryDeviceSupport" | "nvmlGpmSampleGet" | "nvmlGpmMigSampleGet"
        )
}

fn refusing(symbol: &str, code: Code) -> Scenario {
    let mut scenario = machine();
    let errors = [(symbol.to_owned(), code)];
    if !is_of_a_gpu(symbol) {
        return Scenario { errors: errors.into(), ..scenario };
    }
    let touched = scenario.gpus.iter_mut().enumerate().filter(|(place, _)| *place != UNTOUCHED);
    touched.for_each(|(_, gpu)| gpu.errors = errors.clone().into());
    scenario
}

/// A round, of which the exit code says whether the node is sound.
fn once(scenario: &Scenario) -> Result<Value> {
    let machine = Machine::new(scenario)?;
    let out = machine.command(Some(&library()?)).arg("--once").output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(matches!(out.status.code(), Some(0 | 1)), "it ended with {}: {said}", out.status);
    ensure!(!said.contains("panicked"), "{said}");
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// Does it for every call, some at once: each mostly waits.
fn for_each_call(test: impl Fn(&str) -> Result<()> + Sync) {
    let calls = Mutex::new(nvidia_ml::symbols());
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(symbol) = { calls.lock().unwrap().next() } {
                    if let Err(error) = test(symbol) {
                        faults.lock().unwrap().push(format!("{symbol}: {error:?}"));
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// That each level is as it was while all was well, or unknown for that reason; whether any is unknown that was not.
fn compare(found: &Value, well: &Value, signals: &[(&str, &str)], reason: &str) -> Result<bool> {
    let mut less = false;
    for (signal, level) in signals {
        let (found_level, found_why) = (&found[level], why(found, signal));
        ensure!(found_level.is_null() != found_why.is_null(), "{signal}: {found_level} and {found_why}");
        if *level == "mig" && !found_level.is_null() {
            let devices = |mig: &Value| mig["devices"].as_array().cloned().unwrap_or_default();
            let (found_devices, well_devices) = (devices(found_level), devices(&well[level]));
            ensure!(
                found_level["enabled"] == well[level]["enabled"] && found_devices.len() == well_devices.len(),
                "{found_level}"
            );
            for (found, well) in found_devices.iter().zip(&well_devices) {
                less |= compare(found, well, &OF_INSTANCES, reason)?;
            }
        } else if !found_level.is_null() || found_why == why(well, signal) {
            ensure!(*found_level == well[level], "{signal}: {found_level}, and {} while all was well", well[level]);
        } else {
            ensure!(found_why == reason, "{signal} is unknown by {found_why}, not by {reason}");
            less = true;
        }
    }
    Ok(less)
}

#[test]
fn whatever_call_is_refused_costs_its_readings_and_makes_none_of_them_nought() -> Result<()> {
    let well = once(&machine())?;
    ensure!(gate(&well, "EVENTS") == "PASSED", "{well:#}");
    let useful = Mutex::new(BTreeSet::new());
    for_each_call(|symbol| {
        for (code, reason, state) in
            [(Code::Unknown, "FAILED", "FAILED"), (Code::NoPermission, "NO_PERMISSION", "NO_PERMISSION")]
        {
            let round = once(&refusing(symbol, code))?;
            let mut less = round["driver"] != well["driver"] || round["gates"] != well["gates"];
            if round["driver"]["state"] == "READY" {
                ensure!(round["gpusCounted"] == 3, "{round:#}");
                for (place, well) in well["gpus"].as_array().context("GPUs")?.iter().enumerate() {
                    let gpu = &round["gpus"][place];
                    ensure!(place != UNTOUCHED || !is_of_a_gpu(symbol) || gpu == well, "the other GPU is another: {gpu:#}");
                    let named = |key: &str| gpu[key] == well[key] || gpu[key].is_null() || gpu[key] == "";
                    ensure!(["uuid", "name", "pciBusId", "architecture"].iter().all(|key| named(key)), "{gpu:#}");
                    less |= compare(gpu, well, &SIGNALS, reason).with_context(|| format!("GPU {place}"))?;
                }
            } else {
                ensure!(round["driver"]["state"] == state && gate(&round, "DRIVER") == "FAILED", "{}", round["driver"]);
                ensure!(round["gpusCounted"].is_null() && round["gpus"] == Value::Array(Vec::new()), "{round:#}");
            }
            if less {
                useful.lock().unwrap().insert(symbol.to_owned());
            }
        }
        Ok(())
    });
    // Else the faults were never felt.
    let useful = useful.into_inner()?;
    println!("{} of {} calls cost a reading when they are refused", useful.len(), nvidia_ml::symbols().count());
    assert!(useful.len() >= 40, "{useful:?}");
    Ok(())
}

#[test]
fn whatever_call_hangs_is_told_and_so_is_its_end() {
    let hung = Mutex::new(BTreeSet::new());
    for_each_call(|symbol| {
        let hangs = [(symbol.to_owned(), 600_000)].into();
        let machine = Machine::new(&Scenario { hangs, ..self::machine() })?;
        let probe = machine.probe(&[])?;
        // A call may come first in the second round (a sample is freed once there is a newer one) or the third (which is far enough from it).
        let mut sound = 0;
        let mut round = probe.until("a round that hangs, or three that do not", |line| {
            sound += u32::from(line["driver"]["state"] == "READY");
            !line["driver"].is_null() && (line["driver"]["state"] != "READY" || sound == 3)
        })?;
        if round["driver"]["state"] != "READY" {
            ensure!(round["driver"]["state"] == "HUNG" && round["gpusCounted"].is_null(), "{round:#}");
            ensure!(gate(&round, "DRIVER") == "FAILED", "{round:#}");
            let mut gpus = round["gpus"].as_array().context("no GPUs")?.iter();
            ensure!(
                gpus.all(|gpu| SIGNALS.iter().all(|(signal, level)| gpu[level].is_null() && why(gpu, signal) == "TIMED_OUT")),
                "{round:#}"
            );
            hung.lock().unwrap().insert(symbol.to_owned());
            machine.set(&self::machine())?;
            round = probe.state("READY")?;
        }
        ensure!(round["gpusCounted"] == 3, "{round:#}");
        ensure!(symbol == "nvmlShutdown" || probe.stop()? < Duration::from_secs(5), "a call that hangs holds up the end");
        Ok(())
    });
    let hung = hung.into_inner().unwrap();
    println!("{} of {} calls hold up a round when they hang", hung.len(), nvidia_ml::symbols().count());
    assert!(hung.len() >= 40 && hung.contains("nvmlGpmSampleFree"), "{hung:?}");
}
