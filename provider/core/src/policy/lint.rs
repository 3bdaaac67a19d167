//! Lint: valid policy settings that may be unintended. Each is reported with its place and an
//! alternative.

use super::validate::stretches::{cover_every_hour, covers, length_around};
use super::{Fault, Path, Policy, Pool};
use crate::base::calendar::{OffHours, Slot};
use crate::base::kinds::Workload;
use crate::base::text;
use crate::market::offer::CapacityType;
use crate::policy::rules::spot::{Saving, UNSAVED_WORK};
use crate::policy::rules::supplier::SupplierKind;
use crate::policy::rules::warm_floor::WarmFloor;

/// Everything of that kind in a policy, in its order.
pub fn doubts(policy: &Policy) -> Vec<Fault> {
    let mut told = Vec::new();
    for (at, pool) in policy.pools.iter().enumerate() {
        let path = Path::root().key("pools").index(at);
        spot(&mut told, &path.key("capacity"), pool);
        unpriced_spot(&mut told, &path.key("capacity"), pool, policy);
        if let Some(floor) = &pool.warm_floor {
            slots_of_no_effect(&mut told, &path.key("warmFloor").key("schedule"), floor);
        }
        if let Some(off) = &pool.off_hours {
            off_hours(&mut told, &path.key("offHours").key("schedule"), pool, off);
        }
    }
    told
}

/// Spot for work that a reclaim hurts most.
fn spot(told: &mut Vec<Fault>, capacity: &Path, pool: &Pool) {
    if pool.workload == Workload::Inference && pool.prefer == [CapacityType::Spot] {
        let message = "spot alone leaves no replica while no zone has spot: add on-demand";
        told.push(Fault { path: capacity.key("prefer"), message: message.to_owned() });
    }
    if pool.prefer.contains(&CapacityType::Spot) && pool.spot.as_ref().is_some_and(|spot| spot.saving == Saving::Nothing) {
        let hours = UNSAVED_WORK.as_hours();
        let message = format!(
            "none loses all work at each reclaim, {hours} h on average: name the time between two checkpoints, or remove spot \
             from capacity.prefer"
        );
        told.push(Fault { path: capacity.key("spot").key("checkpoint"), message });
    }
}

/// Spot through suppliers that tell no prices: those of the tables are too old to buy by.
fn unpriced_spot(told: &mut Vec<Fault>, capacity: &Path, pool: &Pool, policy: &Policy) {
    let mut makers =
        policy.suppliers.iter().filter(|one| pool.supplier.as_ref().is_none_or(|named| *named == one.name)).peekable();
    let tell_none = makers.peek().is_some() && makers.all(|one| one.kind == SupplierKind::Karpenter);
    let is_priced = policy.prices.iter().any(|row| {
        row.capacity_type == CapacityType::Spot && pool.clouds.contains(&row.cloud) && pool.regions.contains(&row.region)
    });
    if tell_none && pool.prefer.contains(&CapacityType::Spot) && !is_priced {
        let message = "spot is not bought: a supplier of kind karpenter tells no spot prices, and those of the tables are older than \
                       a week: list yours under prices, with capacityType: spot";
        told.push(Fault { path: capacity.key("prefer"), message: message.to_owned() });
    }
}

/// Slots that ask for no more than what is kept at all times, or by another slot whenever they are on: the most counts, so a slot never
/// lowers a floor.
fn slots_of_no_effect(told: &mut Vec<Fault>, schedule: &Path, floor: &WarmFloor) {
    for (at, (_, nodes)) in floor.schedule.iter().enumerate().filter(|(_, (_, nodes))| *nodes <= floor.nodes) {
        let always = floor.nodes;
        let message = if always == 0 {
            "0 asks for nothing: remove it, or raise it; offHours closes a pool".to_owned()
        } else {
            let cure = "remove this, or lower that; at times offHours lowers a floor";
            format!("{nodes} has no effect next to warmFloor.nodes {always}, because the largest counts: {cure}")
        };
        told.push(Fault { path: schedule.index(at).key("nodes"), message });
    }
    for (at, (slot, nodes)) in floor.schedule.iter().enumerate().filter(|(_, (_, nodes))| *nodes > floor.nodes) {
        let more = |(other, (by, most)): &(usize, &(Slot, u32))| {
            // Of two that are alike, the later one is told.
            let first = *other < at || !covers(slot, by);
            *other != at && most >= nodes && covers(by, slot) && (most > nodes || first)
        };
        if let Some((other, (_, most))) = floor.schedule.iter().enumerate().find(more) {
            let why = "because that applies whenever this does, and the largest counts: remove this, or change one of the two";
            let message = format!("{nodes} has no effect next to the {most} of schedule[{other}], {why}");
            told.push(Fault { path: schedule.index(at).key("nodes"), message });
        }
    }
}

fn off_hours(told: &mut Vec<Fault>, schedule: &Path, pool: &Pool, off: &OffHours) {
    if cover_every_hour(off) {
        let message = "covers every hour, so occupied but idle nodes are released at any time of the day: leave a time out, if that is \
             not meant";
        told.push(Fault { path: schedule.clone(), message: message.to_owned() });
        return;
    }
    let life = pool.stabilization.as_ref().map(|windows| windows.minimum_life).filter(|_| off.max_nodes.is_some());
    let held = off.evict_held_after.map(|grace| (pool.held_after, grace));
    for (at, slot) in off.slots.iter().enumerate() {
        let length = length_around(off, slot);
        let mut doubt = |message| told.push(Fault { path: schedule.index(at).key("for"), message });
        if let Some(life) = life.filter(|life| length < *life) {
            let why = "which off-hours do not wait for, so a node bought just before them is released early and bought again after \
                 them";
            doubt(format!(
                "{} is shorter than stabilization.minimumLife, {}, {why}: lengthen it, or shorten that",
                text::length(length),
                text::length(life)
            ));
        }
        if let Some((after, grace)) = held.filter(|(after, grace)| length < after.saturating_add(*grace)) {
            let why = "so only pods that did nothing before it began are evicted in it: lengthen it, or shorten those";
            doubt(format!(
                "{} is shorter than heldAfter, {}, and offHours.grace, {}, {why}",
                text::length(length),
                text::length(after),
                text::length(grace)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is told of a pool whose notebooks are looked at by probes, without the path up to the pool.
    fn told(fields: &Value) -> Vec<String> {
        let mut pool = json!({
            "name": "dev", "workload": "dev", "evidence": "probe", "limits": {"maxNodes": 4},
            "gpu": {"models": ["L4"]}, "where": {"clouds": ["aws"], "regions": ["us-east-1"]},
        });
        for (key, value) in fields.as_object().expect("fields") {
            pool[key] = value.clone();
        }
        let file = json!({"apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "demo", "pools": [pool.clone(), pool]});
        let mut file: super::super::RawPolicy = serde_json::from_value(file).expect("a raw policy");
        file.pools[0].name = "first".to_owned();
        file.pools[0].off_hours = None;
        file.pools[0].capacity = super::super::RawCapacity::default();
        file.pools[0].warm_floor = None;
        let policy = Policy::try_from_raw(&file).expect("no faults");
        doubts(&policy).iter().map(|doubt| doubt.to_string().trim_start_matches("pools[1].").to_owned()).collect()
    }

    #[test]
    fn spot_without_a_price_is_told_where_nodes_come_through_karpenter() {
        let told = |suppliers: Value, prices: Value| {
            let file = json!({
                "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "demo", "suppliers": suppliers, "prices": prices,
                "pools": [{
                    "name": "dev", "workload": "dev", "limits": {"maxNodes": 4}, "capacity": {"prefer": ["spot", "on-demand"]},
                    "gpu": {"models": ["L4"]}, "where": {"clouds": ["aws"], "regions": ["us-east-1"]}, "nodeClass": "gpu",
                }],
            });
            let policy = Policy::try_from_raw(&serde_json::from_value(file).expect("a raw policy")).expect("no faults");
            doubts(&policy).iter().any(|doubt| doubt.to_string().contains("tells no spot prices"))
        };
        let karpenter = || json!([{ "name": "karpenter", "kind": "karpenter" }]);
        let price = json!([{
            "cloud": "aws", "region": "us-east-1", "instanceType": "g6.xlarge", "capacityType": "spot", "usdPerHour": 0.3,
        }]);
        assert!(told(karpenter(), json!([])));
        assert!(!told(karpenter(), price));
        assert!(!told(json!([]), json!([])));
    }

    fn off(slots: &Value, more: &Value, windows: &Value) -> Vec<String> {
        let mut off = json!({ "schedule": slots });
        for (key, value) in more.as_object().expect("fields") {
            off[key] = value.clone();
        }
        told(&json!({ "offHours": off, "stabilization": windows }))
    }

    fn slot(cron: &str, length: &str) -> Value {
        json!({ "cron": cron, "for": length })
    }

    #[test]
    fn spot_for_work_that_a_reclaim_hurts_most_is_told() {
        let capacity =
            |workload: &str, capacity: Value| told(&json!({"workload": workload, "evidence": "pods", "capacity": capacity}));
        assert_eq!(capacity("inference", json!({"prefer": ["spot", "on-demand"]})), [""; 0]);
        assert_eq!(
            capacity("inference", json!({"prefer": ["spot"]})),
            ["capacity.prefer spot alone leaves no replica while no zone has spot: add on-demand"]
        );
        assert_eq!(capacity("training", json!({"prefer": ["on-demand"], "spot": {"checkpoint": "none"}})), [""; 0]);
        assert_eq!(
            capacity("training", json!({"prefer": ["spot", "on-demand"], "spot": {"checkpoint": "none"}})),
            ["capacity.spot.checkpoint none loses all work at each reclaim, 5 h on average: name the time between two \
              checkpoints, or remove spot from capacity.prefer"]
        );
    }

    #[test]
    fn a_slot_that_lowers_nothing_is_told() {
        let floor = |nodes: u32, slot: u32| {
            told(&json!({"warmFloor": {"nodes": nodes, "schedule": [{"cron": "0 20 * * *", "for": "10h", "nodes": slot}]}}))
        };
        assert_eq!(floor(2, 3), [""; 0]);
        assert_eq!(
            floor(2, 2),
            ["warmFloor.schedule[0].nodes 2 has no effect next to warmFloor.nodes 2, because the largest counts: remove \
                 this, or lower that; at times offHours lowers a floor"]
        );
        assert_eq!(
            floor(0, 0),
            ["warmFloor.schedule[0].nodes 0 asks for nothing: remove it, or raise it; offHours closes a pool"]
        );
    }

    #[test]
    fn a_slot_that_another_always_covers_is_told() {
        let floor = |slots: &[(&str, &str, u32)]| {
            let slots: Vec<_> =
                slots.iter().map(|(cron, length, nodes)| json!({"cron": cron, "for": length, "nodes": nodes})).collect();
            told(&json!({"warmFloor": {"nodes": 1, "schedule": slots}}))
        };
        assert_eq!(floor(&[("0 8 * * 1-5", "10h", 3), ("0 12 * * *", "2h", 2)]), [""; 0]);
        assert_eq!(floor(&[("0 8 * * 1-5", "10h", 2), ("0 12 * * 1-5", "2h", 3)]), [""; 0]);
        assert_eq!(
            floor(&[("0 12 * * 2", "2h", 2), ("0 8 * * 1-5", "10h", 3)]),
            ["warmFloor.schedule[0].nodes 2 has no effect next to the 3 of schedule[1], because that applies whenever this \
                 does, and the largest counts: remove this, or change one of the two"]
        );
        assert_eq!(floor(&[("0 12 * * 2", "2h", 3), ("0 8 * * 1-5", "10h", 3)]).len(), 1);
        // The same times, written otherwise: the later one is told.
        let alike = floor(&[("0 8 * * 1-5", "10h", 3), ("0 8 * * MON-FRI", "10h", 3)]);
        assert!(alike.len() == 1 && alike[0].starts_with("warmFloor.schedule[1].nodes 3 has no effect"), "{alike:?}");
    }

    #[test]
    fn off_hours_shorter_than_a_node_lives_are_told() {
        let closed = json!({"maxNodes": 0});
        let nights = slot("0 20 * * *", "11h");
        assert_eq!(off(&json!([nights]), &closed, &json!({"minimumLife": "11h"})), [""; 0]);
        let told = off(&json!([nights]), &closed, &json!({"minimumLife": "12h"}));
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("offHours.schedule[0].for 11h is shorter than stabilization.minimumLife, 12h, "),
            "{told:?}"
        );
        // Joined they last from 20:00 to 8:00.
        let early = slot("0 7 * * *", "1h");
        assert_eq!(off(&json!([nights, early]), &closed, &json!({"minimumLife": "12h"})), [""; 0]);
    }

    #[test]
    fn off_hours_too_short_to_find_a_forgotten_notebook_in_are_told() {
        let evict = json!({"held": "evict", "grace": "30m"});
        // heldAfter is 2 h.
        assert_eq!(off(&json!([slot("0 20 * * *", "2h30m")]), &evict, &json!({})), [""; 0]);
        assert_eq!(
            off(&json!([slot("0 20 * * *", "2h29m")]), &evict, &json!({})),
            ["offHours.schedule[0].for 2h29m is shorter than heldAfter, 2h, and offHours.grace, 30m, so only pods that \
             did nothing before it began are evicted in it: lengthen it, or shorten those"]
        );
        let day = [slot("0 8 * * *", "12h"), slot("0 20 * * *", "12h")];
        assert_eq!(
            off(&json!(day), &evict, &json!({})),
            ["offHours.schedule covers every hour, so occupied but idle nodes are released at any time of the day: leave \
              a time out, if that is not meant"]
        );
    }
}
