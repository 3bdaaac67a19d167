//! What the shipped probe reads where everything works, on the hardware of several generations.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod support;

use anyhow::Result;
use nvidia_ml::scenario::{Fabric, Gpm, Memory, Process};
use nvidia_ml::{Gpu, Level, Scenario};
use support::{Machine, Probe, gate, library, why};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const POD: &str = "1f2e3d4c-1111-2222-3333-444455556666";

#[test]
fn each_generation_tells_what_it_has_and_says_what_it_has_not() -> Result<()> {
    let hopper = Gpu {
        utilization: Some(Level::Steady(63.0)),
        gpm: Some(Gpm { sm: Level::Steady(41.5), memory_bandwidth: Level::Steady(20.0) }),
        fabric: Some(Fabric { state: 3, status: 0, health_mask: 0x1aa }),
        ..Gpu::h100(0)
    };
    let probe = Machine::new(&Scenario::of([hopper, Gpu::a100(1), Gpu::t4(2)]))?;
    let probe = probe.probe(&[])?;

    let first = probe.state("READY")?;
    assert_eq!(first["gpusCounted"], 3);
    assert_eq!(first["driver"]["driverVersion"], "570.86.15");
    assert_eq!(first["driver"]["cudaVersion"], 12080);
    // Activity is between two samples, of which this round takes the first.
    assert_eq!(why(&first["gpus"][0], "SM_ACTIVITY"), "NOT_YET");
    assert_eq!(first["gpus"][0]["utilization"], 630);

    let later = probe.until("activity", |round| round["gpus"][0]["smActivity"] == 415)?;
    let [hopper, ampere, turing] = [0, 1, 2].map(|index| &later["gpus"][index]);
    assert_eq!(hopper["memoryBandwidth"], 200);
    assert_eq!(hopper["nvlink"]["activeLinks"], 18);
    assert_eq!(hopper["fabric"]["healthMask"], 0x1aa);
    assert_eq!(hopper["recoveryAction"], 0);
    assert_eq!(hopper["pcie"]["width"], 16);
    assert_eq!(hopper["powerLimitMw"], 700_000);
    assert_eq!(hopper["memory"]["totalBytes"], 81_559_u64 << 20);
    assert_eq!(hopper["processes"], serde_json::json!([]));
    assert_eq!(hopper["mig"]["enabled"], false);
    // Only what an H100 has not: pages are retired on older ones.
    assert_eq!(hopper["unknown"], serde_json::json!({"RETIRED_PAGES": "NOT_SUPPORTED"}));

    // No GPM before Hopper; not idle.
    assert!(ampere["smActivity"].is_null());
    assert_eq!(why(ampere, "SM_ACTIVITY"), "NOT_SUPPORTED");
    assert_eq!(ampere["utilization"], 0);
    assert_eq!(ampere["remappedRows"]["failed"], false);
    assert_eq!(why(turing, "REMAPPED_ROWS"), "NOT_SUPPORTED");
    assert_eq!(why(turing, "MIG"), "NOT_SUPPORTED");
    assert_eq!(why(turing, "NVLINK"), "NOT_SUPPORTED");
    assert_eq!(turing["retiredPagesPending"], false);
    Ok(())
}

#[test]
fn a_short_burst_between_two_rounds_is_not_missed() -> Result<()> {
    // Busy for half a second, long before the second round: the driver's buffer of samples tells, its last value would not.
    let burst = Level::Steps(vec![(0, 0.0), (1000, 97.0), (1500, 0.0)]);
    let machine = Machine::new(&Scenario::of([Gpu { utilization: Some(burst), ..Gpu::a100(0) }]))?;
    let probe = machine.probe(&["--period", "3"])?;
    assert_eq!(probe.state("READY")?["gpus"][0]["utilization"], 0);
    assert_eq!(probe.state("READY")?["gpus"][0]["utilization"], 970);
    assert_eq!(probe.state("READY")?["gpus"][0]["utilization"], 0);
    Ok(())
}

#[test]
fn the_loader_finds_the_library_where_none_is_named() -> Result<()> {
    let machine = Machine::new(&Scenario::of([Gpu::h100(0)]))?;
    std::os::unix::fs::symlink(library()?, machine.path().join("libnvidia-ml.so.1"))?;
    let mut command = machine.command(None);
    command.env("LD_LIBRARY_PATH", machine.path());
    assert_eq!(Probe::start(command)?.state("READY")?["gpusCounted"], 1);
    Ok(())
}

#[test]
fn processes_are_told_with_their_pods() -> Result<()> {
    let busy = Gpu {
        processes: vec![Process { pid: 4242, memory: Some(8 << 30) }, Process { pid: 4243, memory: None }],
        mps: vec![Process { pid: 4244, memory: Some(1 << 30) }],
        ..Gpu::h100(0)
    };
    let machine = Machine::new(&Scenario::of([busy]))?;
    let slice = format!(
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{CONTAINER}.scope",
        POD.replace('-', "_")
    );
    machine.process(4242, "python3", &slice)?;
    machine.process(4243, "nv-hostengine", "0::/system.slice/nvidia-dcgm.service")?;
    let probe = machine.probe(&[])?;
    let round = probe.state("READY")?;
    let list = &round["gpus"][0]["processes"];
    assert_eq!(
        list[0],
        serde_json::json!({"pid": 4242, "name": "python3", "memoryBytes": 8_u64 << 30, "containerId": CONTAINER, "podUid": POD})
    );
    // The driver may not tell the memory; the machine's own helpers have no pod.
    assert_eq!(
        list[1],
        serde_json::json!({"pid": 4243, "name": "nv-hostengine", "memoryBytes": null, "containerId": "", "podUid": ""})
    );
    // A client of an MPS server, that has just ended.
    assert_eq!(list[2]["pid"], 4244);
    Ok(())
}

#[test]
fn a_split_gpu_is_told_by_its_instances_as_they_change() -> Result<()> {
    let mut split = Gpu::h100(0).split(2);
    let instances = &mut split.mig.as_mut().expect("split").devices;
    instances[0].memory = Some(Memory { total: 10 << 30, used: Level::Steady(6e9), reserved: 0 });
    instances[0].gpm = Some(Gpm { sm: Level::Steady(77.0), memory_bandwidth: Level::Steady(5.0) });
    instances[0].processes = vec![Process { pid: 1, memory: Some(6_000_000_000) }];
    // Places need not be filled in order.
    instances[1].slot = 5;
    let machine = Machine::new(&Scenario::of([split.clone()]))?;
    let probe = machine.probe(&[])?;
    let round = probe.until("activity", |round| round["gpus"][0]["mig"]["devices"][0]["smActivity"] == 770)?;
    let gpu = &round["gpus"][0];
    assert_eq!(gpu["mig"]["devices"].as_array().map(Vec::len), Some(2));
    assert_eq!(gpu["mig"]["devices"][0]["memory"]["usedBytes"], 6_000_000_000_u64);
    assert_eq!(gpu["mig"]["devices"][0]["gpuInstance"], 7);
    assert_eq!(gpu["mig"]["devices"][0]["processes"][0]["pid"], 1);
    assert_eq!(gpu["mig"]["devices"][1]["smActivity"], 0);
    // The whole GPU has no utilization while it is split: not idle.
    assert_eq!(why(gpu, "UTILIZATION"), "NOT_SUPPORTED");

    // Split anew while the probe looks: other instances, whose activity begins anew.
    let mut other = Gpu::h100(0).split(3);
    for device in &mut other.mig.as_mut().expect("split").devices {
        device.uuid.push_str("-new");
    }
    machine.set(&Scenario::of([other]))?;
    let round =
        probe.until("the new layout", |round| round["gpus"][0]["mig"]["devices"].as_array().map(Vec::len) == Some(3))?;
    assert_eq!(why(&round["gpus"][0]["mig"]["devices"][0], "SM_ACTIVITY"), "NOT_YET");

    // Split in all but name: the mode changes at the next reset.
    let mut owed = Gpu::h100(0);
    owed.mig.as_mut().expect("can be split").pending = true;
    machine.set(&Scenario::of([owed]))?;
    probe.until("an owed reset", |round| {
        let mig = &round["gpus"][0]["mig"];
        mig["enabled"] == false && mig["pendingChange"] == true && mig["devices"] == serde_json::json!([])
    })?;
    Ok(())
}

#[test]
fn gates_hold_or_say_why_not() -> Result<()> {
    let machine = Machine::new(&Scenario::of([Gpu::h100(0), Gpu::h100(1)]))?;
    let met =
        machine.probe(&["--expect-gpus", "2", "--expect-model", "H100", "--expect-memory-gib", "80", "--min-driver", "570"])?;
    let round = met.state("READY")?;
    for kind in ["DRIVER", "DRIVER_VERSION", "GPU_COUNT", "GPU_MODEL", "GPU_MEMORY", "EVENTS"] {
        assert_eq!(gate(&round, kind), "PASSED", "{kind}");
    }
    let missed = machine.probe(&[
        "--expect-gpus",
        "8",
        "--expect-model",
        "H200",
        "--expect-memory-gib",
        "141",
        "--min-driver",
        "580",
    ])?;
    let round = missed.state("READY")?;
    for kind in ["DRIVER_VERSION", "GPU_COUNT", "GPU_MODEL", "GPU_MEMORY"] {
        assert_eq!(gate(&round, kind), "FAILED", "{kind}");
    }
    Ok(())
}

#[test]
fn prometheus_reads_dcgm_s_names_and_nothing_of_what_is_unknown() -> Result<()> {
    let hopper = Gpu {
        utilization: Some(Level::Steady(63.0)),
        power: Some(123_456),
        gpm: Some(Gpm { sm: Level::Steady(41.5), memory_bandwidth: Level::Steady(20.0) }),
        ..Gpu::h100(0)
    };
    let machine = Machine::new(&Scenario::of([hopper, Gpu { temperature: None, ..Gpu::a100(1) }, Gpu::h100(2).split(1)]))?;
    let probe = machine.probe(&[])?;
    probe.until("activity", |round| round["gpus"][0]["smActivity"] == 415)?;
    let page = probe.get("/metrics")?;
    let labels = |index: u32, name: &str| {
        format!(
            "gpu=\"{index}\",UUID=\"GPU-00000000-0000-4000-8000-{index:012}\",pci_bus_id=\"00000000:1{index}:00.0\",device=\"nvidia{index}\",modelName=\"{name}\",Hostname=\"node-1\""
        )
    };
    let hopper = labels(0, "NVIDIA H100 80GB HBM3");
    for line in [
        format!("DCGM_FI_DEV_GPU_UTIL{{{hopper}}} 63"),
        format!("DCGM_FI_PROF_SM_ACTIVE{{{hopper}}} 0.415"),
        format!("DCGM_FI_DEV_FB_USED{{{hopper}}} 4"),
        format!("DCGM_FI_DEV_FB_RESERVED{{{hopper}}} 512"),
        format!("DCGM_FI_DEV_FB_FREE{{{hopper}}} 81043"),
        format!("DCGM_FI_DEV_POWER_USAGE{{{hopper}}} 123.456"),
        format!("DCGM_FI_DEV_POWER_MGMT_LIMIT{{{hopper}}} 700"),
        format!("DCGM_FI_DEV_GPU_TEMP{{{hopper}}} 30"),
        format!("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{hopper}}} 1000000"),
        format!("DCGM_FI_DEV_XID_ERRORS{{{hopper}}} 0"),
        format!("DCGM_FI_DEV_FB_USED{{{},GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"7\"}} 12", labels(2, "NVIDIA H100 80GB HBM3")),
        "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter".to_owned(),
        "stoker_probe_gpus_counted 3".to_owned(),
        "stoker_probe_gate_ok{gate=\"EVENTS\"} 1".to_owned(),
        "stoker_probe_interruption_notice{kind=\"RECLAIM\"} 0".to_owned(),
    ] {
        assert!(page.lines().any(|found| found == line), "no {line}\nin {page}");
    }
    let ampere = labels(1, "NVIDIA A100-SXM4-80GB");
    for absent in [
        format!("DCGM_FI_DEV_GPU_TEMP{{{ampere}}}"),
        format!("DCGM_FI_PROF_SM_ACTIVE{{{ampere}}}"),
        format!("DCGM_FI_DEV_FB_USED{{{}}}", labels(2, "NVIDIA H100 80GB HBM3")),
    ] {
        assert!(!page.contains(&absent), "{absent} in {page}");
    }
    let usable =
        "stoker_probe_signal_usable{gpu=\"1\",UUID=\"GPU-00000000-0000-4000-8000-000000000001\",signal=\"TEMPERATURE\"} 0";
    assert!(page.lines().any(|found| found == usable), "no {usable}");
    assert!(probe.get("/healthz")?.starts_with("HTTP/1.1 200"));
    Ok(())
}

#[test]
fn a_provider_that_is_away_stops_nothing() -> Result<()> {
    let machine = Machine::new(&Scenario::of([Gpu::h100(0)]))?;
    // Bound and let go: nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let probe = machine.probe(&["--provider", &format!("http://{free}")])?;
    for _ in 0..5 {
        probe.state("READY")?;
    }
    let page = probe.get("/metrics")?;
    assert!(page.lines().any(|line| line == "stoker_probe_stream_connected 0"), "{page}");
    let waiting = page
        .lines()
        .find_map(|line| line.strip_prefix("stoker_probe_waiting{what=\"rounds\"} "))
        .and_then(|count| count.parse::<u64>().ok());
    assert!(waiting.is_some_and(|count| count >= 4), "{waiting:?} rounds wait");
    probe.stop()?;
    Ok(())
}
