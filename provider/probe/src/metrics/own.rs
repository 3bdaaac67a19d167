//! How the probe itself does, and what of it can be used.

use stoker_proto::probe::gate::Result as Outcome;
use stoker_proto::probe::interruption::Kind;

use super::{Page, Seen};
use crate::sample::SIGNALS;

const KINDS: [Kind; 3] = [Kind::Reclaim, Kind::Rebalance, Kind::Maintenance];

pub(super) fn write(page: &mut Page, seen: &Seen) {
    page.gauge("stoker_probe_build_info", "Always 1.").add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let mut rounds = page.counter("stoker_probe_rounds_total", "Rounds of sampling, by state of the driver.");
    for (state, count) in &seen.rounds {
        rounds.add(&[("driver", state)], count);
    }
    let mut unknown = page.counter("stoker_probe_unknown_readings_total", "Readings that failed, by signal and reason.");
    for ((signal, why), count) in &seen.unknown {
        unknown.add(&[("signal", signal.as_str_name()), ("why", why.as_str_name())], count);
    }
    let mut xids = page.counter("stoker_probe_xids_total", "XIDs since the probe started.");
    for ((uuid, code), count) in &seen.xids {
        xids.add(&[("UUID", uuid), ("xid", &code.to_string())], count);
    }
    page.counter("stoker_probe_events_total", "XIDs and notices since the probe started.").add(&[], seen.events);
    let mut notices =
        page.gauge("stoker_probe_interruption_notice", "Whether the cloud has announced this and not withdrawn it.");
    for kind in KINDS {
        notices.add(&[("kind", kind.as_str_name())], u8::from(seen.standing.contains(&kind)));
    }

    let Some((at, round)) = &seen.latest else { return };
    page.gauge("stoker_probe_round_age_seconds", "Since the last round.").add(&[], at.elapsed().as_secs_f64());
    page.gauge("stoker_probe_round_duration_seconds", "How long the last round took in the driver.")
        .add(&[], f64::from(round.took_us) / 1e6);
    if let Some(driver) = &round.driver {
        let labels =
            [("state", driver.state().as_str_name()), ("driver", &driver.driver_version), ("nvml", &driver.nvml_version)];
        page.gauge("stoker_probe_driver_info", "State of the driver; always 1.").add(&labels, 1);
    }
    if let Some(counted) = round.gpus_counted {
        page.gauge("stoker_probe_gpus_counted", "GPUs that the driver counts, including lost ones.").add(&[], counted);
    }
    let mut gates = page.gauge("stoker_probe_gate_ok", "Conditions of a started node; one that was not checked is absent.");
    for gate in &round.gates {
        if gate.result() != Outcome::Unknown {
            gates.add(&[("gate", gate.kind().as_str_name())], u8::from(gate.result() == Outcome::Passed));
        }
    }
    let mut usable = page.gauge("stoker_probe_signal_usable", "Whether the signal could be read.");
    for gpu in &round.gpus {
        for signal in SIGNALS {
            let known = !gpu.unknown.iter().any(|unknown| unknown.signal() == signal);
            usable.add(
                &[("gpu", &gpu.index.to_string()), ("UUID", &gpu.uuid), ("signal", signal.as_str_name())],
                u8::from(known),
            );
        }
    }
}
