//! What the probe costs: a round on 8 and 16 GPUs beside the bare cost of the same NVML calls, and the CPU share and memory of the real
//! binary at its default period, by time on a processor. The library below is the fake one, whose own time is in both; what a real driver takes for its
//! system calls comes on top of both.
//!
//! `cargo bench -p stoker-probe --bench cost`
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a bench")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nvidia_ml::{Gpu, SCENARIO_VARIABLE, Scenario};
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, Sampling, TemperatureSensor};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use stoker_probe::gate::Expected;
use stoker_probe::processes::Proc;
use stoker_probe::sample::{Depth, Settings};
use stoker_probe::watch::Watch;
use tokio::sync::oneshot;

/// The probe's rounds and the bare calls take turns, and the quickest turn of each counts: what else the machine does falls on both.
const TURNS: u32 = 20;
/// Rounds of a turn: whole cycles of what is due at every third and every twelfth.
const ROUNDS: u32 = 480;
/// How long the binary is watched.
const WATCHED: Duration = Duration::from_mins(1);
/// The same in the short form (`--short`), which judges the ratios alone.
const SHORT_WATCHED: Duration = Duration::from_secs(5);
/// At most so much of a core, with 8 GPUs.
const MOST_SHARE: f64 = 0.002;
/// At most so much resident memory.
const MOST_KIB: u64 = 15 << 10;

fn main() -> Result<()> {
    // Cargo asks benches for their tests, too.
    if std::env::args().any(|argument| argument == "--list") {
        return Ok(());
    }
    let short = std::env::args().any(|argument| argument == "--short");
    if let Some(times) = std::env::var_os("STOKER_COST_OF_ROUNDS") {
        return rounds(times.to_str().and_then(|times| times.parse().ok()).context("STOKER_COST_OF_ROUNDS: a number")?);
    }
    let watched = if short { SHORT_WATCHED } else { WATCHED };
    println!("GPUs   a round: all      what is due   the same calls bare: all   what is due");
    for gpus in [8, 16] {
        let folder = machine(gpus)?;
        let status = Command::new(std::env::current_exe()?)
            .env(SCENARIO_VARIABLE, folder.path().join("scenario.json"))
            .env("STOKER_COST_OF_ROUNDS", ROUNDS.to_string())
            .status()?;
        anyhow::ensure!(status.success(), "{status}");
    }
    println!("\nGPUs   the binary at 5 s: of a core     resident     in {} s", watched.as_secs());
    let mut within = true;
    for gpus in [8, 16] {
        let folder = machine(gpus)?;
        let (share, resident) = binary(folder.path(), watched)?;
        println!("{gpus:>4}   {:>23.4} %   {:>7.1} MiB", share * 100.0, kib_as_mib(resident));
        within &= gpus > 8 || (share <= MOST_SHARE && resident <= MOST_KIB);
    }
    anyhow::ensure!(within || short, "with 8 GPUs more than {} % of a core or {} MiB", MOST_SHARE * 100.0, MOST_KIB >> 10);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure to print")]
fn kib_as_mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn machine(gpus: u32) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    Scenario::of((0..gpus).map(Gpu::h100)).write(&folder.path().join("scenario.json"))?;
    Ok(folder)
}

/// Microseconds of processor time, of all threads: a machine that does other work besides does not count.
fn per_round(before: Duration, times: u32) -> Result<f64> {
    Ok(on_cpu(std::process::id())?.saturating_sub(before).as_secs_f64() * 1e6 / f64::from(times))
}

/// In a process of its own, as the library's scenario is the process's.
fn rounds(times: u32) -> Result<()> {
    let library = nvidia_ml::library().context("the fake library")?;
    let count = Nvml::builder().lib_path(library.as_os_str()).init()?.device_count()?;
    let calls = Calls::start(library.clone());
    let settings = Settings {
        library: Some(library),
        proc: Proc::at(Path::new("/proc")),
        expected: Expected::default(),
        period: Duration::from_secs(5),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut watch, _tidings) = {
        let _inside = runtime.enter();
        Watch::start(settings)?
    };
    let (mut taken, mut bare) = ([f64::INFINITY; 2], [f64::INFINITY; 2]);
    for _ in 0..TURNS {
        for (slot, depth) in [(0, Depth::Full), (1, Depth::Due)] {
            let everything = slot == 0;
            let from = on_cpu(std::process::id())?;
            runtime.block_on(async {
                for round in 0..times {
                    calls.make(everything || round % 3 == 0, everything || round % 12 == 0).await?;
                }
                anyhow::Ok(())
            })?;
            bare[slot] = per_round(from, times)?.min(bare[slot]);
            let from = on_cpu(std::process::id())?;
            runtime.block_on(async {
                for _ in 0..times {
                    watch.sample(depth, Duration::from_secs(10)).await;
                }
            });
            taken[slot] = per_round(from, times)?.min(taken[slot]);
        }
    }
    println!("{count:>4}   {:>9.0} us   {:>9.0} us   {:>20.0} us   {:>9.0} us", taken[0], taken[1], bare[0], bare[1]);
    println!("ratio cost round-{count} {:.3}", taken[0] / bare[0]);
    // No ratio of what is due: a round of some tens of microseconds mostly wakes threads, and what
    // that costs follows the rest of the machine. The full bench judges its share of a core.
    Ok(())
}

/// A thread that makes the calls of a round when it is asked, as the probe's does: what it costs to wake it depends on the machine.
struct Calls(mpsc::Sender<(bool, bool, oneshot::Sender<()>)>);

impl Calls {
    fn start(library: PathBuf) -> Self {
        let (ask, asked) = mpsc::channel::<(bool, bool, oneshot::Sender<()>)>();
        std::thread::spawn(move || {
            let nvml = Nvml::builder().lib_path(library.as_os_str()).init()?;
            let devices = (0..nvml.device_count()?).map(|index| nvml.device_by_index(index)).collect::<Result<Vec<_>, _>>()?;
            let mut last = vec![0; devices.len()];
            for (often, seldom, answer) in asked {
                nvml.device_count()?;
                for (device, last) in devices.iter().zip(&mut last) {
                    calls(device, last, often, seldom);
                }
                let _ = answer.send(());
            }
            anyhow::Ok(())
        });
        Self(ask)
    }

    async fn make(&self, often: bool, seldom: bool) -> Result<()> {
        let (answer, made) = oneshot::channel();
        self.0.send((often, seldom, answer))?;
        Ok(made.await?)
    }
}

/// The calls of a round on one GPU, and nothing else. Activity by GPM is not among them: it needs samples that are 100 ms apart.
fn calls(device: &Device<'_>, last: &mut u64, often: bool, seldom: bool) {
    match device.samples(Sampling::GpuUtilization, *last) {
        Ok(samples) => *last = samples.last().map_or(*last, |sample| sample.timestamp),
        Err(_) => drop(device.utilization_rates()),
    }
    let _ =
        (device.encoder_utilization(), device.decoder_utilization(), device.memory_info(), device.running_compute_processes());
    let _ = (device.mps_running_compute_processes(), device.mig_mode());
    if often {
        let _ = (device.power_usage(), device.enforced_power_limit(), device.total_energy_consumption());
        let _ = (device.temperature(TemperatureSensor::Gpu), device.clock_info(Clock::SM), device.clock_info(Clock::Memory));
        let _ = (device.current_throttle_reasons(), device.field_values_for(&[FieldId(230)]));
    }
    if seldom {
        let _ = (device.is_ecc_enabled(), device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile));
        let _ = (
            device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile),
            device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Aggregate),
        );
        let _ = (device.field_values_for(&[142, 143, 144, 145].map(FieldId)), device.are_pages_pending_retired());
        for number in 0..18 {
            let link = device.link_wrapper_for(number);
            let _ =
                (link.is_active(), link.error_counter(ErrorCounter::DlReplay), link.error_counter(ErrorCounter::DlRecovery));
            let _ = (link.error_counter(ErrorCounter::DlCrcFlit), link.error_counter(ErrorCounter::DlCrcData));
        }
        let _ = (
            device.current_pcie_link_gen(),
            device.current_pcie_link_width(),
            device.max_pcie_link_gen(),
            device.max_pcie_link_width(),
        );
        let _ = (device.pcie_replay_counter(), device.is_in_persistent_mode());
    }
}

/// The share of a core and the resident memory, in KiB, of the real binary at its default period, with a scrape every 15 s.
fn binary(folder: &Path, watched: Duration) -> Result<(f64, u64)> {
    let library = nvidia_ml::library().context("the fake library")?;
    // A port of its own, that is free now.
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let child = Command::new(env!("CARGO_BIN_EXE_stoker-probe"))
        .arg("--lib-path")
        .arg(library)
        .args(["--http", &address.to_string()])
        .env(SCENARIO_VARIABLE, folder.join("scenario.json"))
        .stderr(Stdio::null())
        .spawn()?;
    let child = Ended(child);
    std::thread::sleep(Duration::from_secs(2));
    let (from, before) = (Instant::now(), on_cpu(child.0.id())?);
    while from.elapsed() < watched {
        std::thread::sleep(Duration::from_secs(15).min(watched));
        let mut scrape = std::net::TcpStream::connect(address)?;
        std::io::Write::write_all(&mut scrape, b"GET /metrics HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n")?;
        std::io::copy(&mut scrape, &mut std::io::sink())?;
    }
    let share = on_cpu(child.0.id())?.saturating_sub(before).as_secs_f64() / from.elapsed().as_secs_f64();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id()))?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok());
    Ok((share, resident.context("VmRSS")?))
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Time on a processor, of all threads, to the nanosecond.
fn on_cpu(process: u32) -> Result<Duration> {
    let mut nanoseconds = 0_u64;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += text.split_whitespace().next().context("schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}
