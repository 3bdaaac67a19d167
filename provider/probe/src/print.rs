//! Rounds and events for people and scripts.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use stoker_proto::probe::driver::State;
use stoker_proto::probe::gate::Result as Outcome;
use stoker_proto::probe::{Event, Gpu, Memory, MigDevice, Processes, Round, Unknown, event};

/// A round as JSON: names as on the wire, absent where not known.
pub fn round(round: &Round) -> Value {
    let driver = round.driver.clone().unwrap_or_default();
    json!({
        "at": at(round.at.as_ref()),
        "driver": {
            "state": driver.state().as_str_name(), "driverVersion": driver.driver_version, "nvmlVersion": driver.nvml_version,
            "cudaVersion": driver.cuda_version, "detail": driver.detail,
        },
        "gpusCounted": round.gpus_counted,
        "gpus": round.gpus.iter().map(gpu).collect::<Vec<_>>(),
        "gates": round.gates.iter().map(|gate| json!({
            "kind": gate.kind().as_str_name(), "result": gate.result().as_str_name(), "detail": gate.detail,
        })).collect::<Vec<_>>(),
        "tookUs": round.took_us,
    })
}

/// An event as JSON.
pub fn event(event: &Event) -> Value {
    match &event.kind {
        Some(event::Kind::Xid(xid)) => json!({
            "at": at(event.at.as_ref()),
            "xid": {"code": xid.code, "gpuUuid": xid.gpu_uuid, "gpuInstance": xid.gpu_instance, "computeInstance": xid.compute_instance},
        }),
        Some(event::Kind::Interruption(told)) => json!({
            "at": at(event.at.as_ref()),
            "interruption": {"kind": told.kind().as_str_name(), "deadline": at(told.deadline.as_ref()), "detail": told.detail},
        }),
        None => json!({"at": at(event.at.as_ref())}),
    }
}

fn at(at: Option<&stoker_proto::Timestamp>) -> Option<String> {
    at.and_then(|at| jiff::Timestamp::new(at.seconds, at.nanos).ok()).map(|at| at.to_string())
}

fn gpu(gpu: &Gpu) -> Value {
    let mut map = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            map.insert(name.to_owned(), value);
        }
    };
    put("uuid", json!(gpu.uuid));
    put("index", json!(gpu.index));
    put("name", json!(gpu.name));
    put("pciBusId", json!(gpu.pci_bus_id));
    put("architecture", json!(gpu.architecture));
    put("utilization", json!(gpu.utilization));
    put("smActivity", json!(gpu.sm_activity));
    put("memoryBandwidth", json!(gpu.memory_bandwidth));
    put("memory", json!(gpu.memory.as_ref().map(memory)));
    put("powerMw", json!(gpu.power_mw));
    put("powerLimitMw", json!(gpu.power_limit_mw));
    put("temperatureC", json!(gpu.temperature_c));
    put("clocks", json!(gpu.clocks.as_ref().map(|clocks| json!({"smMhz": clocks.sm_mhz, "memoryMhz": clocks.memory_mhz}))));
    put("clockLimits", json!(gpu.clock_limits));
    put(
        "ecc",
        json!(gpu.ecc.as_ref().map(|ecc| json!({
            "enabled": ecc.enabled, "uncorrectedVolatile": ecc.uncorrected_volatile, "correctedVolatile": ecc.corrected_volatile,
            "uncorrectedAggregate": ecc.uncorrected_aggregate,
        }))),
    );
    put(
        "remappedRows",
        json!(gpu.remapped_rows.as_ref().map(|rows| json!({
            "correctable": rows.correctable, "uncorrectable": rows.uncorrectable, "pending": rows.pending, "failed": rows.failed,
        }))),
    );
    put("retiredPagesPending", json!(gpu.retired_pages_pending));
    put("recoveryAction", json!(gpu.recovery_action));
    put("nvlink", json!(gpu.nvlink.as_ref().map(|links| json!({"activeLinks": links.active_links, "errors": links.errors}))));
    put(
        "pcie",
        json!(gpu.pcie.as_ref().map(|pcie| json!({
            "generation": pcie.generation, "width": pcie.width, "maxGeneration": pcie.max_generation, "maxWidth": pcie.max_width,
            "replays": pcie.replays,
        }))),
    );
    put("processes", json!(gpu.processes.as_ref().map(processes)));
    put("energyMj", json!(gpu.energy_mj));
    put(
        "mig",
        json!(gpu.mig.as_ref().map(|mig| json!({
            "enabled": mig.enabled, "pendingChange": mig.pending_change, "devices": mig.devices.iter().map(instance).collect::<Vec<_>>(),
        }))),
    );
    put(
        "fabric",
        json!(
            gpu.fabric
                .as_ref()
                .map(|fabric| json!({"state": fabric.state, "status": fabric.status, "healthMask": fabric.health_mask}))
        ),
    );
    put("persistence", json!(gpu.persistence));
    put("codec", json!(gpu.codec));
    put("unknown", unknown(&gpu.unknown));
    Value::Object(map)
}

fn instance(device: &MigDevice) -> Value {
    json!({
        "uuid": device.uuid, "gpuInstance": device.gpu_instance, "computeInstance": device.compute_instance, "name": device.name,
        "memory": device.memory.as_ref().map(memory), "smActivity": device.sm_activity, "memoryBandwidth": device.memory_bandwidth,
        "processes": device.processes.as_ref().map(processes), "unknown": unknown(&device.unknown),
    })
}

fn memory(memory: &Memory) -> Value {
    json!({"usedBytes": memory.used_bytes, "totalBytes": memory.total_bytes, "reservedBytes": memory.reserved_bytes})
}

fn processes(list: &Processes) -> Value {
    let one = |process: &stoker_proto::probe::Process| {
        json!({
            "pid": process.pid, "name": process.name, "memoryBytes": process.memory_bytes, "containerId": process.container_id,
            "podUid": process.pod_uid,
        })
    };
    Value::Array(list.compute.iter().map(one).collect())
}

/// Why, by signal.
fn unknown(unknown: &[Unknown]) -> Value {
    Value::Object(unknown.iter().map(|one| (one.signal().as_str_name().to_owned(), json!(one.why().as_str_name()))).collect())
}

/// A round for the eye.
pub fn text(round: &Round) -> String {
    let driver = round.driver.clone().unwrap_or_default();
    // Writing to a string cannot fail.
    let mut text = String::new();
    let driver_said = [driver.state().as_str_name().to_owned(), plain(&driver.driver_version), plain(&driver.detail)];
    let _ = writeln!(text, "driver {}", driver_said.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "));
    // An empty list is no answer to how many there are.
    if round.gpus.is_empty() {
        let none = round.gpus_counted == Some(0);
        text.push_str(if none { "no GPU: the driver counts none\n" } else { "GPUs unknown: the driver does not count them\n" });
    }
    let or = |level: Option<String>| level.unwrap_or_else(|| "?".to_owned());
    for gpu in &round.gpus {
        let memory =
            gpu.memory.as_ref().map(|memory| format!("{} of {} MiB", memory.used_bytes >> 20, memory.total_bytes >> 20));
        let _ = writeln!(
            text,
            "GPU {} {} {}\n  utilization {}, SM {}, memory {}, power {}, temperature {}, processes {}",
            gpu.index,
            plain(&gpu.name),
            plain(&gpu.uuid),
            or(gpu.utilization.map(|level| format!("{} %", level / 10))),
            or(gpu.sm_activity.map(|level| format!("{} %", level / 10))),
            or(memory),
            or(gpu.power_mw.map(|level| format!("{} W", level / 1000))),
            or(gpu.temperature_c.map(|level| format!("{level} C"))),
            or(gpu.processes.as_ref().map(|list| list.compute.len().to_string())),
        );
        for device in gpu.mig.iter().flat_map(|mig| &mig.devices) {
            let used =
                device.memory.as_ref().map(|memory| format!("{} of {} MiB", memory.used_bytes >> 20, memory.total_bytes >> 20));
            let _ = writeln!(text, "  {} {}: memory {}", plain(&device.name), plain(&device.uuid), or(used));
        }
        if !gpu.unknown.is_empty() {
            let whys: Vec<_> =
                gpu.unknown.iter().map(|one| format!("{} {}", one.signal().as_str_name(), one.why().as_str_name())).collect();
            let _ = writeln!(text, "  unknown: {}", whys.join(", "));
        }
    }
    for gate in &round.gates {
        let _ = writeln!(text, "gate {} {} {}", gate.kind().as_str_name(), gate.result().as_str_name(), plain(&gate.detail));
    }
    text
}

/// Without what would move a terminal's cursor or change its colours.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for sign in text.chars() {
        if sign.is_control() { plain.extend(sign.escape_default()) } else { plain.push(sign) }
    }
    plain
}

/// Whether the driver answers and no gate failed.
pub fn is_sound(round: &Round) -> bool {
    let ready = round.driver.as_ref().is_some_and(|driver| driver.state() == State::Ready);
    ready && !round.gates.iter().any(|gate| gate.result() == Outcome::Failed)
}

#[cfg(test)]
mod tests {
    use stoker_proto::probe::{Driver, Gate};

    use super::*;

    #[test]
    fn a_round_is_sound_where_the_driver_answers_and_no_gate_failed() {
        let with = |state: State, outcome: Outcome| Round {
            driver: Some(Driver { state: state.into(), ..Driver::default() }),
            gates: vec![Gate { result: outcome.into(), ..Gate::default() }],
            ..Round::default()
        };
        assert!(is_sound(&with(State::Ready, Outcome::Unknown)));
        assert!(!is_sound(&with(State::Ready, Outcome::Failed)) && !is_sound(&with(State::Hung, Outcome::Unknown)));
        assert!(!is_sound(&Round::default()));
    }

    #[test]
    fn no_gpu_is_not_the_same_as_none_that_was_counted() {
        let counted = |gpus_counted| text(&Round { gpus_counted, ..Round::default() });
        assert!(counted(Some(0)).ends_with("\nno GPU: the driver counts none\n"));
        assert!(counted(None).ends_with("\nGPUs unknown: the driver does not count them\n"));
    }

    #[test]
    fn words_stand_apart_and_move_no_cursor() {
        let driver = Driver {
            state: State::Failed.into(),
            driver_version: "570.86".to_owned(),
            detail: "odd\u{1b}[2J".to_owned(),
            ..Driver::default()
        };
        let text = text(&Round { driver: Some(driver), ..Round::default() });
        assert_eq!(text, "driver FAILED 570.86 odd\\u{1b}[2J\nGPUs unknown: the driver does not count them\n");
    }
}
