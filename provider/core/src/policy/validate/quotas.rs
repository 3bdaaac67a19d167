//! Quotas: those that a cloud is known to have, by their names, and those that the operator describes.

use std::collections::BTreeMap;

use super::{Faults, grammar, optional};
use crate::base::ids::Cloud;
use crate::base::kinds::QuotaUnit;
use crate::base::text::{nearest, quoted};
use crate::market::offer::CapacityType;
use crate::market::quota_names::KnownQuota;
use crate::policy::{Counts, Path, Quota, RawQuota};

/// Most units of a quota: 100,000 nodes of 1,000 vCPUs, more than any cluster holds. A larger number is a slip, or counts something else.
const MAX_UNITS: u32 = 100_000_000;

pub(super) fn quotas(faults: &mut Faults, path: &Path, raw: &[RawQuota]) -> Option<Vec<Quota>> {
    let mut first = BTreeMap::new();
    let mut read = Vec::with_capacity(raw.len());
    for (at, one) in raw.iter().enumerate() {
        let path = path.index(at);
        // One quota may be spelt in several ways.
        let name = KnownQuota::find(&one.name).map_or(one.name.as_str(), |known| known.name);
        let limited = (name, one.cloud.as_str(), one.region.as_deref());
        if let Some(earlier) = first.get(&limited) {
            let counted = |row: &RawQuota| (row.models.clone(), row.capacity_types.clone());
            let differs = raw.get(*earlier).is_some_and(|earlier: &RawQuota| counted(earlier) != counted(one));
            // What a known quota counts is not the row's to say.
            let message = if differs && KnownQuota::find(&one.name).is_none() {
                format!("counts other nodes than quotas[{earlier}] under the same name {}: give it another name", quoted(name))
            } else {
                format!("is the same quota as quotas[{earlier}], {} of one place: remove one", quoted(name))
            };
            faults.add(&path, message);
        } else {
            first.insert(limited, at);
        }
        read.push(quota(faults, &path, one));
    }
    read.into_iter().collect()
}

fn quota(faults: &mut Faults, path: &Path, raw: &RawQuota) -> Option<Quota> {
    let name = faults.keep(&path.key("name"), grammar::line(&raw.name));
    let cloud: Option<Cloud> = faults.id(&path.key("cloud"), &raw.cloud);
    let region = optional(raw.region.as_deref(), |text| faults.id(&path.key("region"), text));
    let known = KnownQuota::find(&raw.name);
    let (counts, limit) = match known {
        Some(known) => (Some(Counts::Known(known)), of_known(faults, path, raw, known)),
        None => own(faults, path, raw, cloud.as_ref()),
    };
    let numbers = [("limit", raw.limit), ("vcpus", raw.vcpus), ("gpus", raw.gpus), ("used", raw.used), ("safety", raw.safety)];
    for (key, number) in numbers {
        if let Some(number) = number.filter(|number| *number > MAX_UNITS) {
            let why = format!("{number} is above {MAX_UNITS}, more than a cluster could use: write vCPUs or whole GPUs");
            faults.add(&path.key(key), why);
        }
    }
    let (unit, limit) = limit?;
    if let Some(safety) = raw.safety.filter(|safety| limit > 0 && *safety > limit) {
        let why = format!("{safety} is above the limit of {limit}, so nothing could be bought: lower it");
        faults.add(&path.key("safety"), why);
    }
    Some(Quota {
        name: known.map_or(name?, |known| known.name).to_owned(),
        cloud: cloud?,
        region: region?,
        counts: counts?,
        unit,
        limit,
        used: raw.used.unwrap_or(0),
        safety: raw.safety.unwrap_or(0),
    })
}

/// A quota of which the name tells everything but the numbers.
fn of_known(faults: &mut Faults, path: &Path, raw: &RawQuota, known: KnownQuota) -> Option<(QuotaUnit, u32)> {
    let name = known.name;
    if raw.cloud != known.cloud {
        let why = format!("{} has no {name}, {} has: write cloud: {}", quoted(&raw.cloud), known.cloud, known.cloud);
        faults.add(&path.key("cloud"), why);
    }
    match &raw.region {
        None if !known.global => faults.add(path, format!("has no region: each region has its own {name}, name one")),
        Some(region) if known.global => {
            faults.add(&path.key("region"), format!("{} is too narrow: {name} counts every region, remove it", quoted(region)));
        }
        _ => {}
    }
    for (key, given) in [("models", !raw.models.is_empty()), ("capacityTypes", !raw.capacity_types.is_empty())] {
        if given {
            faults.add(&path.key(key), format!("does not apply to {name}, for which it is known what it counts: remove it"));
        }
    }
    for (key, number) in [("vcpus", raw.vcpus), ("gpus", raw.gpus)] {
        if number.is_some() {
            faults.add(
                &path.key(key),
                format!("does not apply to {name}, which is known to count in {}: write limit", known.unit),
            );
        }
    }
    if raw.limit.is_none() && raw.vcpus.is_none() && raw.gpus.is_none() {
        faults.add(path, format!("has no limit: write limit, in {}", known.unit));
    }
    Some((known.unit, raw.limit?))
}

/// A quota that the operator describes.
fn own(faults: &mut Faults, path: &Path, raw: &RawQuota, cloud: Option<&Cloud>) -> (Option<Counts>, Option<(QuotaUnit, u32)>) {
    if let Some(near) = cloud.and_then(|cloud| nearest(&raw.name, KnownQuota::names_of(cloud))) {
        // What else is wrong with it would only mislead.
        let why = "did you mean that? A quota of your own needs a name less like it";
        faults.add(
            &path.key("name"),
            format!("{} is not a known quota of {}; nearest is {near}: {why}", quoted(&raw.name), raw.cloud),
        );
        return (None, None);
    }
    let models = faults.ids(&path.key("models"), &raw.models);
    faults.unrepeated(&path.key("capacityTypes"), &raw.capacity_types, CapacityType::to_string);
    let limit = match (raw.limit, raw.vcpus, raw.gpus) {
        (None, Some(vcpus), None) => Ok((QuotaUnit::Vcpus, vcpus)),
        (None, None, Some(gpus)) => Ok((QuotaUnit::Gpus, gpus)),
        (None, None, None) => Err("has no limit: give one of vcpus and gpus"),
        (None, Some(_), Some(_)) => Err("has both vcpus and gpus: give one of them"),
        (Some(_), _, _) => Err("has a limit without a unit, which only the name of a known quota implies: write vcpus or gpus"),
    };
    let limit = faults.keep(path, limit.map_err(str::to_owned));
    (Some(Counts::Own { models, capacity_types: raw.capacity_types.iter().copied().collect() }), limit)
}
