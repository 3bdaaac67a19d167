//! Where a pool's data lies, what reading it takes, how far from it nodes may be, and how they spread over zones.

use jiff::SignedDuration;

use super::{Faults, grammar, optional};
use crate::base::text::{quoted, read_length};
use crate::base::units::Percent;
use crate::market::transfer::{Data, DataSet, MaxDistance, Site};
use crate::policy::{Path, RawWhere};

/// Most that a node may be said to read, in GiB: a PiB, more than a node's disks hold and than a day's network brings.
const MAX_GIB: u64 = 1 << 20;

/// How long a node works with what it has read, where the pool does not say: nodes that follow the day's demand live no longer, and of
/// GPU pods half finish within 68 min and nine in ten within 2.8 days (Alibaba's GPU trace
/// gpu-v2025).
const DEFAULT_EVERY: SignedDuration = SignedDuration::from_hours(24);
/// The least and the most that may be said: no node boots and reads in less than a minute, and none is planned for more than a year.
const SHORTEST: SignedDuration = SignedDuration::from_mins(1);
const LONGEST: SignedDuration = SignedDuration::from_hours(365 * 24);

/// `defaults.dataRegion`: whether there is one, and whether it could be read.
#[derive(Debug, Clone)]
pub(super) enum DefaultRegion {
    /// There is none.
    Absent,
    /// It is wrong, which is told already.
    Wrong,
    /// There.
    At(Site),
}

pub(super) fn default_region(faults: &mut Faults, path: &Path, text: Option<&str>) -> DefaultRegion {
    let Some(text) = text else { return DefaultRegion::Absent };
    faults.keep(path, site(text)).map_or(DefaultRegion::Wrong, DefaultRegion::At)
}

/// `cloud/region`, or `cloud/region/zone`.
pub(super) fn site(text: &str) -> Result<Site, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (cloud, region, zone) = match parts[..] {
        [cloud, region] => (cloud, region, None),
        [cloud, region, zone] => (cloud, region, Some(zone)),
        _ => return Err(format!("{} is not a cloud and region: write it like aws/us-east-1", quoted(text))),
    };
    Ok(Site { cloud: grammar::id(cloud)?, region: grammar::id(region)?, zone: zone.map(grammar::id).transpose()? })
}

/// The pool's data: `None` is a fault, `Some(None)` data that does not count for the choice.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn data(faults: &mut Faults, path: &Path, raw: &RawWhere, default: &DefaultRegion) -> Option<Option<Data>> {
    let own = optional(raw.data_region.as_deref(), |text| faults.keep(&path.key("dataRegion"), site(text)));
    let set = set(faults, path, raw);
    let within = raw.max_distance.unwrap_or_default();
    if raw.dataset_gib.is_none() && within == MaxDistance::Any {
        if raw.data_region.is_some() {
            // Said of the whole: a field that cannot be read is absent here, and told as that.
            let message =
                "has a dataRegion without effect: name datasetGiB, or a maxDistance of region or continent, or remove it";
            faults.add(path, message);
        }
        return own.map(|_| None);
    }
    let at = match (own?, default) {
        (Some(own), _) => own,
        (None, DefaultRegion::At(site)) => site.clone(),
        (None, DefaultRegion::Wrong) => return None,
        (None, DefaultRegion::Absent) => {
            let what = if raw.dataset_gib.is_some() { "datasetGiB" } else { "maxDistance" };
            let cure = "name dataRegion here or under defaults, e.g. aws/us-east-1";
            faults.add(path, format!("has {what} and does not say where the data is: {cure}"));
            return None;
        }
    };
    let named = |list: &[String], name: &str| list.iter().any(|one| one == name);
    if within == MaxDistance::Region && !(named(&raw.clouds, at.cloud.as_str()) && named(&raw.regions, at.region.as_str())) {
        let (cloud, region) = (&at.cloud, &at.region);
        let message = format!(
            "region allows only {cloud}/{region}, where the data is and the pool may not buy: name {cloud} in clouds and \
             {region} in regions, or write continent or any"
        );
        faults.add(&path.key("maxDistance"), message);
    }
    Some(Some(Data { at, within, set: set? }))
}

#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
fn set(faults: &mut Faults, path: &Path, raw: &RawWhere) -> Option<Option<DataSet>> {
    let every_path = path.key("datasetReadEvery");
    let every = match raw.dataset_read_every.as_deref() {
        None => Some(DEFAULT_EVERY),
        Some(text) => faults.keep(&every_path, read_length(text)).and_then(|every| {
            if (SHORTEST..=LONGEST).contains(&every) {
                return Some(every);
            }
            let (word, cure) = if every < SHORTEST { ("below 1m", "raise") } else { ("above 8760h, a year", "lower") };
            faults.add(
                &every_path,
                format!("{text} is {word}: {cure} it; it is how long a node works with the data that it read"),
            );
            None
        }),
    };
    let Some(gib) = raw.dataset_gib else {
        if raw.dataset_read_every.is_some() {
            faults.add(path, "has a datasetReadEvery without datasetGiB: name how much a node reads, or remove it");
        }
        return Some(None);
    };
    let size_path = path.key("datasetGiB");
    if gib == 0 {
        faults.add(&size_path, "is 0: write how many GiB a node reads, or remove it");
    }
    if gib > MAX_GIB {
        faults.add(&size_path, format!("{gib} is above {MAX_GIB}, a PiB, more than a node reads: write GiB"));
    }
    Some(Some(DataSet { gib, every: every? }))
}

/// The largest share of the pool's nodes in one zone: `None` is a fault, `Some(None)` no limit.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn zone_share(faults: &mut Faults, path: &Path, raw: &RawWhere) -> Option<Option<Percent>> {
    let Some(text) = raw.max_zone_share.as_deref() else { return Some(None) };
    let path = path.key("maxZoneShare");
    let share = faults.keep(&path, grammar::share_of_nodes(text))?;
    let (zones, needed) = (raw.zones.len(), 100_usize.div_ceil(usize::from(share.0)));
    if zones > 0 && zones < needed {
        let message = format!(
            "{share} needs at least {needed} zones, and zones names {zones}: name more, leave zones out, or raise it to {}%",
            100_usize.div_ceil(zones)
        );
        faults.add(&path, message);
    }
    Some((share < Percent::ALL).then_some(share))
}
