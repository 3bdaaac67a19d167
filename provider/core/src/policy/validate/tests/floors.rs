use super::*;
use crate::base::calendar::{Cron, Slot, Zone};
use crate::policy::rules::warm_floor::{Quantile, WarmWhen};

/// The faults of a first pool that has these fields beside its own, without their path up to the pool.
fn told(fields: &Value) -> Vec<String> {
    let mut file = good();
    for (key, value) in fields.as_object().unwrap() {
        file["pools"][0][key] = value.clone();
    }
    let raw: RawPolicy = serde_json::from_value(file).unwrap();
    faults(&raw).into_iter().map(|fault| fault.trim_start_matches("pools[0].").to_owned()).collect()
}

fn floor(fields: &Value) -> Vec<String> {
    told(&json!({"limits": {"maxNodes": 4}, "warmFloor": fields}))
}

fn off(fields: &Value) -> Vec<String> {
    told(&json!({"limits": {"maxNodes": 4}, "offHours": fields}))
}

#[test]
fn a_floor_is_read_with_its_defaults() {
    let mut file = good();
    file["defaults"] = json!({"timeZone": "Europe/Berlin"});
    file["pools"][0]["warmFloor"] =
        json!({"nodes": 1, "quantile": {}, "schedule": [{"cron": "0  8 * * 1-5", "for": "10h", "nodes": 2}]});
    let policy = Policy::try_from_raw(&serde_json::from_value(file).unwrap()).unwrap();
    let floor = policy.pools[0].warm_floor.clone().unwrap();
    let slot = Slot {
        cron: Cron::parse("0 8 * * 1-5").unwrap(),
        time_zone: Zone::parse("Europe/Berlin").unwrap(),
        length: SignedDuration::from_hours(10),
    };
    assert_eq!(floor.schedule, [(slot, 2)]);
    assert_eq!(floor.quantile, Some(Quantile { p: None, window: SignedDuration::from_hours(14 * 24), horizon: None }));
    assert_eq!((floor.nodes, floor.percent_of_busy, floor.signals, floor.warm_when), (1, None, false, WarmWhen::Ready));
    assert!(policy.pools[1].warm_floor.is_none() && policy.pools[1].off_hours.is_none());
}

/// Without the API a floor through buffers is not lost.
#[test]
fn a_floor_goes_through_buffers_where_it_may_and_they_are_served() {
    let of = |mechanism: &str| {
        let mut file = good();
        file["pools"][0]["warmFloor"] = json!({"nodes": 1, "mechanism": mechanism});
        let policy = Policy::try_from_raw(&serde_json::from_value(file).unwrap()).unwrap();
        let floor = policy.pools[0].warm_floor.clone().unwrap();
        [None, Some(false), Some(true)].map(|served| floor.raises_min_size(served))
    };
    assert_eq!(of("minSize"), [true, true, true]);
    assert_eq!(of("capacityBuffer"), [false, true, false]);
}

#[test]
fn a_floor_that_cannot_be_is_refused_with_its_cure() {
    assert_eq!(
        floor(&json!({})),
        ["warmFloor asks for nothing: write nodes, percentOfBusy, quantile, schedule or signals: true, or remove it"]
    );
    assert_eq!(floor(&json!({"nodes": 5})), ["warmFloor.nodes 5 is above limits.maxNodes 4: lower it or raise that"]);
    assert_eq!(floor(&json!({"nodes": 4})), [""; 0]);
    assert_eq!(floor(&json!({"percentOfBusy": "0%"})), ["warmFloor.percentOfBusy is 0%: name a share, or remove it"]);
    assert_eq!(
        floor(&json!({"quantile": {"p": "100%", "window": "12h", "horizon": "30s"}})),
        [
            "warmFloor.quantile.p 100% is not above 0% and below 100%: write it like 95%",
            "warmFloor.quantile.window 12h is below 1d: raise it, part of a day does not represent the rest",
            "warmFloor.quantile.horizon 30s is below 1m: raise it, no machine boots so fast",
        ]
    );
    assert_eq!(
        floor(&json!({"signals": true})),
        ["warmFloor.signals has no signals to follow: list the pool's signals, or remove it"]
    );
    assert_eq!(
        told(&json!({"evidence": "none", "warmFloor": {"nodes": 1}})),
        ["warmFloor needs to know which nodes are free, which evidence: none never shows: write evidence: pods or probe"]
    );
}

#[test]
fn every_fault_of_a_schedule_is_told_with_its_place() {
    let slot = |cron: &str, length: &str, nodes: u32| json!({"cron": cron, "for": length, "nodes": nodes});
    let schedule = |slots: Value| floor(&json!({ "schedule": slots }));
    assert_eq!(
        schedule(
            json!([slot("0 8 * * 1-5", "10h", 9), slot("8 Uhr", "soon", 1), {"cron": "0 8 * * *", "timeZone": "Berlin", "for": "1h", "nodes": 1}])
        ),
        [
            "warmFloor.schedule[0].nodes 9 is above limits.maxNodes 4: lower it or raise that",
            r#"warmFloor.schedule[1].cron "8 Uhr" has 2 fields, not 5: write minute, hour, day of the month, month and day of the week, such as 0 8 * * 1-5 for 8:00 on working days"#,
            r#"warmFloor.schedule[1].for "soon" is not a length of time: write it like 10m, 1h30m or 90s"#,
            r#"warmFloor.schedule[2].timeZone "Berlin" is not an IANA time zone: write one such as Europe/Berlin, America/New_York or UTC"#,
        ]
    );
    // The pool runs inference: its free nodes are kept for 15 min.
    assert_eq!(
        schedule(json!([slot("0 8 * * *", "14m", 1)])),
        [
            "warmFloor.schedule[0].for 14m is shorter than the stabilization.scaleDown window of 15m, so what it changes would hardly show: lengthen it, or shorten that"
        ]
    );
    assert_eq!(schedule(json!([slot("0 8 * * *", "15m", 1)])), [""; 0]);
    let windows = |windows: Value, length: &str| {
        let floor = json!({ "schedule": [slot("0 8 * * *", length, 1)] });
        told(&json!({"limits": {"maxNodes": 4}, "stabilization": windows, "warmFloor": floor}))
    };
    // What is bought when a slot begins lives for its minimum.
    assert_eq!(
        windows(json!({"scaleDown": "5m", "minimumLife": "90m"}), "89m"),
        [
            "warmFloor.schedule[0].for 89m is shorter than the stabilization.minimumLife window of 1h30m, so what it changes would hardly show: lengthen it, or shorten that"
        ]
    );
    assert_eq!(windows(json!({"scaleDown": "5m", "minimumLife": "90m"}), "90m"), [""; 0]);
    // A window that cannot be is told itself, and not again with each slot.
    assert_eq!(
        windows(json!({"afterScaleUp": "25h"}), "10h"),
        ["stabilization.afterScaleUp 25h is above 24h: shorten it, or keep nodes with limits.minNodes"]
    );
    let grown = windows(json!({"minimumLife": "0s", "afterScaleUp": "2h"}), "1h");
    assert!(grown[0].contains("stabilization.afterScaleUp window of 2h"), "{grown:?}");
    assert_eq!(
        schedule(json!([slot("0 8 * * *", "24h", 1)])),
        ["warmFloor.schedule[0].for 24h lasts until its next start and so never ends: shorten it, or let it start less \
             often"]
    );
    assert_eq!(
        schedule(json!([slot("0 8 * * 1", "1h", 1), slot("0  8 * * 1", "2h", 3)])),
        ["warmFloor.schedule[1] starts whenever schedule[0] does: join the two, or change one"]
    );
    // Slots that overlap are fine: the most counts.
    assert_eq!(schedule(json!([slot("0 8 * * 1", "10h", 1), slot("0 12 * * 1", "2h", 3)])), [""; 0]);
}

#[test]
fn off_hours_that_change_nothing_or_contradict_are_refused() {
    let nights = json!([{"cron": "0 20 * * *", "timeZone": "Europe/Berlin", "for": "11h"}]);
    assert_eq!(off(&json!({"schedule": nights, "maxNodes": 0})), [""; 0]);
    assert_eq!(off(&json!({"schedule": nights})), ["offHours changes nothing: write maxNodes, or held: evict"]);
    assert_eq!(
        off(&json!({"schedule": [], "maxNodes": 4, "grace": "5m"})),
        [
            "offHours.schedule is empty: name at least one time, or remove offHours",
            "offHours.maxNodes 4 is not below limits.maxNodes 4, so it changes nothing: lower it or remove it",
            "offHours.grace applies to held: evict only: remove it, or write that",
        ]
    );
    assert_eq!(
        off(&json!({"schedule": nights, "held": "evict", "grace": "25h"})),
        [
            "offHours.grace 25h is above 24h: lower it, off-hours would be over",
            "offHours.held evict needs evidence: probe: nothing else can tell a forgotten notebook from a busy one",
        ]
    );
    assert_eq!(
        told(&json!({"limits": {"minNodes": 1, "maxNodes": 4}, "offHours": {"schedule": nights, "maxNodes": 0}})),
        ["offHours.maxNodes 0 is below limits.minNodes 1, which are kept at all times: lower those, or raise it"]
    );
    // Two that take turns forever, on working days and at weekends.
    let always = json!([{"cron": "0 8 * * 1-5", "for": "24h"}, {"cron": "0 8 * * 0,6", "for": "24h"}]);
    let fields = json!({"limits": {"maxNodes": 4}, "warmFloor": {"nodes": 2}, "offHours": {"schedule": always, "maxNodes": 1}});
    assert_eq!(
        told(&fields),
        ["offHours.schedule covers every hour, so maxNodes 1 always applies, and warmFloor.nodes 2 is never kept: leave a \
             time out, or write limits.maxNodes"]
    );
    let nearly = json!([{"cron": "0 8 * * 1-5", "for": "24h"}, {"cron": "0 8 * * 0,6", "for": "23h59m"}]);
    assert_eq!(off(&json!({"schedule": nearly, "maxNodes": 1})), [""; 0]);
    // Over before its announcement could be.
    let evict = |slots: Value, grace: &str| {
        told(&json!({"evidence": "probe", "offHours": {"schedule": slots, "held": "evict", "grace": grace}}))
    };
    let hour = json!([{"cron": "0 20 * * *", "for": "1h"}]);
    assert_eq!(
        evict(hour.clone(), "1h"),
        ["offHours.schedule[0].for 1h is no longer than offHours.grace, 1h, so no idle pod is evicted in it: lengthen it, \
             or shorten that"]
    );
    assert_eq!(evict(hour, "59m"), [""; 0]);
    // With the next it makes two hours.
    assert_eq!(evict(json!([{"cron": "0 20 * * *", "for": "1h"}, {"cron": "0 21 * * *", "for": "1h"}]), "1h"), [""; 0]);
    // The first Thursday of 2026: 6:00 in New York is noon in Berlin, and the floor is on until 8:00 there. At 22:00 it begins in the dark.
    let slots = json!([
        {"cron": "0 22 * * 4", "timeZone": "Europe/Berlin", "for": "1h", "nodes": 2},
        {"cron": "0 6 * * 4", "timeZone": "America/New_York", "for": "2h", "nodes": 2},
        {"cron": "0 23 * * 4", "timeZone": "Europe/Berlin", "for": "1h", "nodes": 1},
    ]);
    let both = json!({"limits": {"maxNodes": 4}, "warmFloor": {"nodes": 3, "schedule": slots}, "offHours": {"schedule": nights, "maxNodes": 1}});
    assert_eq!(
        told(&both),
        [
            "warmFloor.schedule[0] asks for 2 nodes while offHours.maxNodes is 1, for one from 2026-01-01 22:00 (Europe/Berlin): change one of them"
        ]
    );
}
