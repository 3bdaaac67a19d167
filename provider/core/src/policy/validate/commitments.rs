//! What is paid for already: which fields each kind of commitment needs, and what they mean.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Faults, MAX_NODES, grammar, optional};
use crate::base::ids::Cloud;
use crate::base::kinds::CommitmentKind;
use crate::base::text::quoted;
use crate::base::units::{MiB, Milli};
use crate::market::offer::Place;
use crate::policy::rules::commitment::{
    Capacity, Commitment, CommittedGpus, CommittedNodes, CommittedSpend, LEAVE_CALENDAR_RESERVATION, LEAVE_CAPACITY_BLOCK,
    Paid, Terms,
};
use crate::policy::{Path, RawCommitment, RawDiscount, TypePattern};

/// Most nodes of one capacity block, and its longest time (EC2 user guide, Capacity Blocks for ML).
const CAPACITY_BLOCK: (u32, SignedDuration) = (64, SignedDuration::from_hours(182 * 24));
/// Longest time of a calendar reservation (Compute Engine, future reservations in calendar mode).
const LONGEST_CALENDAR_RESERVATION: SignedDuration = SignedDuration::from_hours(90 * 24);

/// A field of a commitment: its name, how to tell that it is set, what to do where it is missing.
type Field = (&'static str, fn(&RawCommitment) -> bool, &'static str);

const REGION: Field = ("region", |raw| raw.region.is_some(), "name the region, such as us-east-1");
const ZONE: Field = ("zone", |raw| raw.zone.is_some(), "name the zone by its id, such as use1-az6");
const INSTANCE_TYPE: Field = ("instanceType", |raw| raw.instance_type.is_some(), "name the instance type, such as g6.xlarge");
const FAMILY: Field = ("family", |raw| raw.family.is_some(), "name the family, such as g6");
const MODEL: Field = ("model", |raw| raw.model.is_some(), "name the GPU model, such as L4");
const MEMORY: Field = ("memoryGiB", |raw| raw.memory_gib.is_some(), "name the memory of one GPU in GiB, such as 80");
const NODES: Field = ("nodes", |raw| raw.nodes.is_some(), "say how many nodes it is for");
const GPUS: Field = ("gpus", |raw| raw.gpus.is_some(), "say how many GPUs it is for");
const RATE: Field = ("usdPerHour", |raw| raw.usd_per_hour.is_some(), "say what all of it costs per hour, used or not");
const DISCOUNT: Field = ("discount", |raw| raw.discount.is_some(), "say how far its rates lie below on-demand, such as 28%");
const FROM: Field = ("from", |raw| raw.from.is_some(), "say when it begins, such as 2026-12-01T11:30:00Z");
const UNTIL: Field = ("until", |raw| raw.until.is_some(), "say when it ends, such as 2026-12-08T11:30:00Z");

/// Every field that not all kinds have.
const FIELDS: [Field; 10] = [REGION, ZONE, INSTANCE_TYPE, FAMILY, MODEL, MEMORY, NODES, GPUS, RATE, DISCOUNT];

/// The fields that a kind needs, and those that it may have besides `from` and `until`.
const fn fields(kind: CommitmentKind, on_azure: bool) -> (&'static [Field], &'static [Field]) {
    match kind {
        CommitmentKind::ReservedInstance => (&[REGION, INSTANCE_TYPE, NODES, RATE], &[ZONE]),
        CommitmentKind::Reservation if on_azure => (&[REGION, INSTANCE_TYPE, NODES, RATE], &[]),
        CommitmentKind::Ec2SavingsPlan => (&[REGION, FAMILY, RATE, DISCOUNT], &[]),
        CommitmentKind::ComputeSavingsPlan | CommitmentKind::SavingsPlan => (&[RATE, DISCOUNT], &[]),
        CommitmentKind::CapacityReservation | CommitmentKind::Reservation => (&[REGION, ZONE, INSTANCE_TYPE, NODES], &[]),
        CommitmentKind::CapacityBlock | CommitmentKind::CalendarReservation => {
            (&[REGION, ZONE, INSTANCE_TYPE, NODES, RATE, FROM, UNTIL], &[])
        }
        CommitmentKind::CommittedUse => (&[REGION, MODEL, GPUS, RATE], &[MEMORY]),
    }
}

/// Reads the list.
pub(super) fn read(faults: &mut Faults, path: &Path, raw: &[RawCommitment]) -> Option<Vec<Commitment>> {
    let (mut names, mut scopes) = (BTreeMap::new(), Vec::new());
    let mut read = Vec::with_capacity(raw.len());
    for (at, one) in raw.iter().enumerate() {
        let path = path.index(at);
        if let Some(earlier) = names.get(one.name.as_str()) {
            let message = format!("{} is the name of commitments[{earlier}] too: give each its own", quoted(&one.name));
            faults.add(&path.key("name"), message);
        } else {
            names.insert(one.name.as_str(), at);
        }
        // All but its name and how much of it there is.
        let scope = RawCommitment { name: String::new(), nodes: None, gpus: None, usd_per_hour: None, ..one.clone() };
        if let Some(earlier) = scopes.iter().position(|earlier| *earlier == scope) {
            let cure = "add the two up in one, or name the times in which they differ";
            faults.add(&path, format!("covers the same as commitments[{earlier}]: {cure}"));
        }
        scopes.push(scope);
        read.push(commitment(faults, &path, one));
    }
    read.into_iter().collect()
}

fn commitment(faults: &mut Faults, path: &Path, raw: &RawCommitment) -> Option<Commitment> {
    let kind = raw.kind.as_str();
    let name = faults.keep(&path.key("name"), grammar::line(&raw.name)).map(str::to_owned);
    let cloud: Option<Cloud> = faults.id(&path.key("cloud"), &raw.cloud);
    let sold = raw.kind.clouds().contains(&raw.cloud.as_str());
    if sold {
        present(faults, path, raw);
    } else {
        let others: Vec<_> = CommitmentKind::ALL.iter().filter(|k| k.clouds().contains(&raw.cloud.as_str())).collect();
        let cure = match others.as_slice() {
            [] => "write aws, gcp or azure as its cloud".to_owned(),
            others => format!("write one of {}", others.iter().map(|k| k.as_str()).collect::<Vec<_>>().join(", ")),
        };
        let message = format!("{kind} is sold by {}, not by {}: {cure}", raw.kind.clouds().join(" and "), quoted(&raw.cloud));
        faults.add(&path.key("kind"), message);
    }
    let region = optional(raw.region.as_deref(), |text| faults.id(&path.key("region"), text));
    let zone = optional(raw.zone.as_deref(), |text| faults.id(&path.key("zone"), text));
    let instance_type = optional(raw.instance_type.as_deref(), |text| faults.id(&path.key("instanceType"), text));
    let family = optional(raw.family.as_deref(), |text| faults.keep(&path.key("family"), family(text)));
    let model = optional(raw.model.as_deref(), |text| faults.id(&path.key("model"), text));
    let memory = optional(raw.memory_gib, |gib| {
        if gib == 0 {
            faults.add(&path.key(MEMORY.0), format!("is 0: {}, or leave it out", MEMORY.2));
        }
        (gib > 0).then(|| MiB::from_gib(gib.into()))
    });
    let nodes = raw.nodes.and_then(|nodes| count(faults, &path.key("nodes"), nodes));
    let gpus = raw.gpus.and_then(|gpus| count(faults, &path.key("gpus"), gpus));
    let rate = raw.usd_per_hour.as_ref().and_then(|rate| faults.rate(&path.key("usdPerHour"), rate, RATE.2));
    let discounts = raw.discount.as_ref().and_then(|raw| discounts(faults, &path.key("discount"), raw));
    let from = optional(raw.from.as_deref(), |text| faults.keep(&path.key("from"), moment(text)));
    let until = optional(raw.until.as_deref(), |text| faults.keep(&path.key("until"), moment(text)));
    size(faults, path, raw);
    let (region, zone, instance_type, model, from, until) = (region?, zone?, instance_type?, model?, from?, until?);
    if let (Some(from), Some(until)) = (from, until) {
        times(faults, path, raw, from, until);
    }
    let cloud = cloud?;
    let place = |region, zone, instance_type| Place { cloud: cloud.clone(), region, zone, instance_type };
    let terms = match raw.kind {
        CommitmentKind::Ec2SavingsPlan => {
            Terms::Spend(CommittedSpend { family: Some((family??, region?)), rate: rate?, discounts: discounts? })
        }
        CommitmentKind::ComputeSavingsPlan | CommitmentKind::SavingsPlan => {
            Terms::Spend(CommittedSpend { family: None, rate: rate?, discounts: discounts? })
        }
        CommitmentKind::CommittedUse => {
            Terms::Gpus(CommittedGpus { model: model?, memory: memory?, region: region?, gpus: gpus?, rate: rate? })
        }
        CommitmentKind::CapacityBlock | CommitmentKind::CalendarReservation => Terms::Capacity(Capacity {
            place: place(region?, zone?, instance_type?),
            nodes: nodes?,
            paid: Paid::Ahead { rate: rate?, leave_at: until?.saturating_sub(leave(raw.kind)).unwrap_or(Timestamp::MIN) },
        }),
        CommitmentKind::CapacityReservation => {
            Terms::Capacity(Capacity { place: place(region?, zone?, instance_type?), nodes: nodes?, paid: Paid::OnDemand })
        }
        CommitmentKind::Reservation if raw.cloud != "azure" => {
            Terms::Capacity(Capacity { place: place(region?, zone?, instance_type?), nodes: nodes?, paid: Paid::OnDemand })
        }
        CommitmentKind::ReservedInstance | CommitmentKind::Reservation => {
            Terms::Nodes(CommittedNodes { instance_type: instance_type?, region: region?, zone, nodes: nodes?, rate: rate? })
        }
    };
    Some(Commitment { name: name?, cloud, from, until, terms })
}

/// Reports the fields that its kind needs and lacks, and those that it has and its kind does not use.
fn present(faults: &mut Faults, path: &Path, raw: &RawCommitment) {
    let (needed, allowed) = fields(raw.kind, raw.cloud == "azure");
    for (key, is_set, cure) in needed {
        if !is_set(raw) {
            faults.add(path, format!("has no {key}, which a {} needs: {cure}", raw.kind.as_str()));
        }
    }
    for (key, is_set, _) in FIELDS {
        if is_set(raw) && !needed.iter().chain(allowed).any(|(used, ..)| *used == key) {
            faults.add(&path.key(key), format!("does not apply to a {}: remove it", raw.kind.as_str()));
        }
    }
}

fn count(faults: &mut Faults, path: &Path, count: u32) -> Option<u32> {
    match count {
        0 => faults.add(path, "is 0, below 1: say how many it is for, or remove the commitment"),
        1..=MAX_NODES => return Some(count),
        _ => faults.add(path, format!("{count} is above {MAX_NODES}, more than a cluster can have: lower it")),
    }
    None
}

fn family(text: &str) -> Result<String, String> {
    match grammar::line(text)?.split_once('.') {
        Some((family, _)) => Err(format!("{} is an instance type: write its family, {}", quoted(text), quoted(family))),
        None => Ok(text.to_owned()),
    }
}

fn discounts(faults: &mut Faults, path: &Path, raw: &RawDiscount) -> Option<Vec<(TypePattern, Milli)>> {
    match raw {
        RawDiscount::One(text) => Some(vec![(TypePattern::Prefix(String::new()), faults.keep(path, percent(text))?)]),
        RawDiscount::ByType(by_type) => {
            if by_type.is_empty() {
                faults.add(path, format!("is empty: {}", DISCOUNT.2));
            }
            let read: Vec<_> = by_type
                .iter()
                .map(|(pattern, text)| {
                    let path = path.key(pattern);
                    let pattern = faults.keep(&path, grammar::type_pattern(pattern));
                    let discount = faults.keep(&path, percent(text));
                    Some((pattern?, discount?))
                })
                .collect();
            read.into_iter().collect()
        }
    }
}

/// How far a rate lies below on-demand, e.g. `28%`: a share above zero and below all, with at most one decimal.
///
/// # Errors
/// Says what is wrong with the text, and the cure.
pub fn percent(text: &str) -> Result<Milli, String> {
    grammar::discount(text, DISCOUNT.2)
}

fn moment(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| format!("{} is not a moment: write it like 2026-12-01T11:30:00Z", quoted(text)))
}

/// How long before the end of kept capacity its nodes leave.
const fn leave(kind: CommitmentKind) -> SignedDuration {
    if matches!(kind, CommitmentKind::CapacityBlock) { LEAVE_CAPACITY_BLOCK } else { LEAVE_CALENDAR_RESERVATION }
}

/// Whether a commitment's times fit together, and fit its kind.
fn times(faults: &mut Faults, path: &Path, raw: &RawCommitment, from: Timestamp, until: Timestamp) {
    let (path, length) = (path.key("until"), until.duration_since(from));
    if length <= SignedDuration::ZERO {
        faults.add(&path, format!("{until} is not after its beginning at {from}: correct one of them"));
        return;
    }
    let Some((_, longest)) = most(raw.kind) else { return };
    let (kind, days) = (raw.kind.as_str(), longest.as_hours() / 24);
    if length > longest {
        faults.add(
            &path,
            format!("{until} is more than {days} days after its beginning, longer than a {kind} lasts: correct it"),
        );
    } else if length <= leave(raw.kind) {
        let minutes = leave(raw.kind).as_mins();
        faults.add(&path, format!("{until} is too soon: nodes of a {kind} leave {minutes} min before its end"));
    }
}

/// Most nodes of capacity that is paid ahead, and its longest time; `None` for all else.
const fn most(kind: CommitmentKind) -> Option<(u32, SignedDuration)> {
    match kind {
        CommitmentKind::CapacityBlock => Some(CAPACITY_BLOCK),
        CommitmentKind::CalendarReservation => Some((MAX_NODES, LONGEST_CALENDAR_RESERVATION)),
        _ => None,
    }
}

/// Whether it is for no more nodes than its kind has.
fn size(faults: &mut Faults, path: &Path, raw: &RawCommitment) {
    let Some((most, nodes)) = most(raw.kind).map(|(most, _)| most).zip(raw.nodes) else { return };
    // More than a cluster holds is a fault of any kind.
    if nodes > most && nodes <= MAX_NODES {
        let kind = raw.kind.as_str();
        let message = format!("{nodes} is above {most}, the most that one {kind} has: split it as it was bought");
        faults.add(&path.key("nodes"), message);
    }
}
