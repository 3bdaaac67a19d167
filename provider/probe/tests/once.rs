//! `--once`: a round for whoever asks, in a script or by hand.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs::File;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use nvidia_ml::scenario::{Process, Xid};
use nvidia_ml::{Code, Gpu, Scenario};
use support::{Machine, library};

fn two() -> Scenario {
    Scenario::of([Gpu::h100(0), Gpu::h100(1)])
}

fn failing(symbol: &str, code: Code) -> Scenario {
    Scenario { errors: [(symbol.to_owned(), code)].into(), ..two() }
}

fn hanging(symbol: &str, milliseconds: u64) -> Scenario {
    Scenario { hangs: [(symbol.to_owned(), milliseconds)].into(), ..two() }
}

/// What it prints and how it ends; without flags, as for programs.
fn once(machine: &Machine, flags: &[&str]) -> Result<Output> {
    Ok(machine.command(Some(&library()?)).arg("--once").args(flags).output()?)
}

/// As people see it.
fn eye(machine: &Machine, flags: &[&str]) -> Result<(String, Option<i32>)> {
    let mut command = machine.bare(Some(&library()?));
    let out = command.arg("--once").args(flags).output()?;
    Ok((String::from_utf8(out.stdout)?, out.status.code()))
}

#[test]
fn one_round_is_printed_and_that_is_all() -> Result<()> {
    let machine = Machine::new(&two())?;
    let out = once(&machine, &[])?;
    assert!(out.status.success());
    let round: serde_json::Value = serde_json::from_slice(&out.stdout)?;
    assert_eq!(round["gpus"][0]["smActivity"], 0, "two samples were taken");
    // Whoever asks in a script is told by the exit code: a driver that does not answer, a gate that failed, and nothing else.
    let code = |scenario: &Scenario, flags: &[&str]| {
        machine.set(scenario)?;
        anyhow::Ok(once(&machine, flags)?.status.code())
    };
    assert_eq!(code(&two(), &["--expect-gpus", "2"])?, Some(0));
    assert_eq!(code(&two(), &["--expect-gpus", "3"])?, Some(1));
    assert_eq!(code(&failing("nvmlInit_v2", Code::DriverNotLoaded), &[])?, Some(1));
    assert_eq!(code(&Scenario::of([Gpu { event_types: 0, ..Gpu::h100(0) }]), &[])?, Some(1), "XIDs could not be listened to");
    Ok(())
}

/// The manifest runs it so. A GPU's device nodes and what it reads of `/proc` are for everybody to read.
#[test]
fn a_probe_that_is_not_root_reads_what_root_reads() -> Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;

    if std::fs::metadata("/proc/self")?.uid() != 0 {
        println!("skipped: only root can start a program as somebody else");
        return Ok(());
    }
    let process = Process { pid: 4242, memory: Some(8 << 30) };
    let machine = Machine::new(&Scenario::of([Gpu { processes: vec![process], ..Gpu::h100(0) }]))?;
    machine.process(4242, "python3", "0::/kubepods/burstable/pod1f2e3d4c-1111-2222-3333-444455556666\n")?;
    // Where everybody may look, which is not sure of the folder of a checkout.
    let (program, lib) = (machine.path().join("stoker-probe"), machine.path().join("libnvidia-ml.so"));
    std::fs::copy(env!("CARGO_BIN_EXE_stoker-probe"), &program)?;
    std::fs::copy(library()?, &lib)?;
    std::fs::set_permissions(machine.path(), std::fs::Permissions::from_mode(0o755))?;
    let round = |user: u32| {
        let as_started = machine.command(Some(&lib));
        let mut command = std::process::Command::new(&program);
        command.args(as_started.get_args()).arg("--once").uid(user).gid(user);
        command.envs(as_started.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let out = command.output()?;
        assert!(out.status.success(), "as {user}: {}", String::from_utf8_lossy(&out.stderr));
        let mut round: serde_json::Value = serde_json::from_slice(&out.stdout)?;
        anyhow::Ok((round["driver"].take(), round["gpus"].take()))
    };
    let (root, nobody) = (round(0)?, round(65532)?);
    assert_eq!(root.1[0]["processes"][0]["podUid"], "1f2e3d4c-1111-2222-3333-444455556666");
    assert_eq!(root, nobody);
    Ok(())
}

#[test]
fn what_cannot_be_printed_is_a_failure_and_a_reader_that_has_seen_enough_is_none() -> Result<()> {
    let machine = Machine::new(&two())?;
    let full = machine.command(Some(&library()?)).arg("--once").stdout(File::create("/dev/full")?).output()?;
    let said = String::from_utf8_lossy(&full.stderr).into_owned();
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.contains("error: standard output could not be written: No space left on device"), "{said}");
    let into_closed_pipe = |flags: &[&str]| {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let mut command = machine.command(Some(&library()?));
        anyhow::Ok(command.arg("--once").args(flags).stdout(writer).stderr(Stdio::null()).status()?.code())
    };
    assert_eq!(into_closed_pipe(&[])?, Some(0));
    // The node is as unsound as before.
    assert_eq!(into_closed_pipe(&["--expect-gpus", "3"])?, Some(1));
    Ok(())
}

#[test]
fn a_driver_that_hangs_is_told_within_seconds_wherever_it_does() -> Result<()> {
    for symbol in ["nvmlInit_v2", "nvmlDeviceGetMemoryInfo_v2"] {
        let machine = Machine::new(&hanging(symbol, 600_000))?;
        let begun = Instant::now();
        let (text, code) = eye(&machine, &[])?;
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(15), "{symbol}: {took:?}");
        assert!(text.starts_with("driver HUNG unknown because NVML has not answered for 5 s\n"), "{text}");
        assert!(text.contains("GPUs unknown") && text.contains("XIDs unknown"), "{text}");
        assert_eq!(code, Some(1));
    }
    Ok(())
}

#[test]
fn a_driver_that_opens_slowly_one_gpu_after_the_other_does_not_hang() -> Result<()> {
    // Longer in all than any silence may last, and no call as long.
    let three = Scenario::of([Gpu::h100(0), Gpu::h100(1), Gpu::h100(2)]);
    let machine = Machine::new(&Scenario { gpus: three.gpus, ..hanging("nvmlDeviceGetUUID", 2_000) })?;
    let begun = Instant::now();
    let (text, code) = eye(&machine, &[])?;
    assert!(begun.elapsed() > Duration::from_secs(6));
    assert!(text.starts_with("driver READY") && code == Some(0), "{text}");
    Ok(())
}

#[test]
fn what_no_hardware_has_and_no_hardware_at_all_are_told_as_that() -> Result<()> {
    let absurd = Gpu { power: Some(12_000_000), ..Gpu::h100(0) };
    let machine = Machine::new(&Scenario::of([absurd]))?;
    let (text, _) = eye(&machine, &[])?;
    assert!(text.contains("power ?,") && text.contains("unknown: POWER ABSURD"), "{text}");
    machine.set(&Scenario::of([]))?;
    let (text, code) = eye(&machine, &[])?;
    assert!(text.contains("\nno GPU: the driver counts none\n"), "{text}");
    assert!(text.contains("gate GPU_COUNT FAILED the driver counts no GPU\n"), "{text}");
    assert_eq!(code, Some(1));
    machine.set(&failing("nvmlDeviceGetCount_v2", Code::Unknown))?;
    let (text, code) = eye(&machine, &[])?;
    assert!(text.starts_with("driver FAILED") && text.contains("GPUs unknown"), "{text}");
    assert_eq!(code, Some(1));
    Ok(())
}

#[test]
fn xids_are_shown_where_they_come_meanwhile_and_else_said_not_to_be_known() -> Result<()> {
    let machine = Machine::new(&two())?;
    let (text, _) = eye(&machine, &[])?;
    assert!(text.contains("no XIDs during this run; a driver reports them as they happen"), "{text}");
    machine.set(&Scenario { xids: vec![Xid::on(1, 79)], ..two() })?;
    let (text, _) = eye(&machine, &[])?;
    assert!(text.contains("XIDs during this run:\n{") && text.contains("\"code\":79"), "{text}");
    let lines = String::from_utf8(once(&machine, &[])?.stdout)?;
    let lines: Vec<serde_json::Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!((lines.len(), &lines[1]["xid"]["gpuUuid"]), (2, &Gpu::h100(1).uuid.into()));
    // Nobody listens: that none came says nothing.
    machine.set(&failing("nvmlEventSetCreate", Code::NoPermission))?;
    assert!(eye(&machine, &[])?.0.contains("XIDs unknown: not every GPU is watched"));
    Ok(())
}

#[test]
fn a_provider_that_would_not_be_told_is_refused() -> Result<()> {
    let machine = Machine::new(&two())?;
    for flags in [&["--provider", "http://127.0.0.1:1"][..], &["--token-file", "token"], &["--allow-plaintext"]] {
        let out = once(&machine, flags)?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("omit {}, or --once", flags[0])), "{said}");
    }
    // A shell in the pod of a probe that runs has it in its environment.
    let mut command = machine.command(Some(&library()?));
    let out = command.arg("--once").env("STOKER_PROBE_PROVIDER", "https://stoker:8089").output()?;
    assert_eq!(out.status.code(), Some(0));
    Ok(())
}
