//! Parsed tables to a price book: zones, conflicts, reclaims.

use std::collections::{BTreeMap, BTreeSet};

use stoker_core::base::ids::{Cloud, InstanceType, Region, ZoneId};
use stoker_core::base::units::Milli;
use stoker_core::market::offer::{CapacityType, GpuSpec, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, PriceBook};

use crate::fault::{Fault, Problem};
use crate::hardware::Hardware;
use crate::offers::{Offer, Shape};
use crate::places::{Reclaims, Sold};
use crate::sheet::At;
use crate::transfers::{self, Located, Priced};

/// Every table, parsed.
#[derive(Default)]
pub(crate) struct Parsed {
    pub(crate) offers: Vec<(At, Offer)>,
    pub(crate) gpus: Vec<(At, GpuSpec)>,
    pub(crate) gcp_zones: Vec<Sold>,
    pub(crate) reclaims: Vec<(At, Reclaims)>,
    pub(crate) aws_types: Vec<(At, Hardware)>,
    pub(crate) regions: Vec<(At, Located)>,
    pub(crate) egress: Vec<(At, Priced)>,
}

/// What is known beside the offers, by the keys that offers are looked up with.
struct Known {
    /// Zones that sell a machine type or accelerator, by what and region.
    gcp_zones: BTreeMap<(String, Region), BTreeSet<ZoneId>>,
    /// AWS types whose list price some zone of the region carries.
    aws_zoned: BTreeSet<(Region, InstanceType)>,
    reclaims: BTreeMap<(Region, InstanceType), Milli>,
}

/// Makes the book; faults are what two lines say of the same thing.
pub(crate) fn build(parsed: Parsed, faults: &mut Vec<Fault>) -> PriceBook {
    let mut book = PriceBook::new();
    let gpus = unique(parsed.gpus, "gpu_model and memory", |spec| (spec.model.clone(), spec.memory), faults);
    for (_, spec) in gpus {
        book.insert_gpu(spec);
    }
    let reclaims =
        unique(parsed.reclaims, "region and instance_type", |rate| (rate.region.clone(), rate.instance_type.clone()), faults);
    let aws_types = unique(parsed.aws_types, "instance_type", |hardware| hardware.instance_type.clone(), faults);
    let regions = unique(parsed.regions, "cloud and region", |at| (at.cloud.clone(), at.region.clone()), faults);
    let egress = unique(parsed.egress, "cloud, crosses, from and to", |price| price.hop.clone(), faults);
    book.set_transfers(transfers::join(regions, egress, faults));
    let mut offers = unique(
        parsed.offers,
        "cloud, region, zone and instance_type",
        |offer| (offer.cloud.clone(), offer.region.clone(), offer.zone.clone(), offer.instance_type.clone()),
        faults,
    );
    insert_specs(&mut book, &offers, &aws_types, faults);
    let known = Known {
        gcp_zones: gcp_zones(parsed.gcp_zones),
        aws_zoned: aws_zoned(&offers),
        reclaims: reclaims.into_iter().map(|(_, rate)| ((rate.region, rate.instance_type), rate.per_month)).collect(),
    };
    // What is said of one zone stands above what is said of the region's every zone.
    offers.sort_by_key(|(_, offer)| offer.zone.is_some());
    for (_, offer) in &offers {
        insert_offer(&mut book, offer, &known);
    }
    book
}

/// Drops lines that repeat an earlier one; one that says otherwise is a fault.
fn unique<K: Ord, V: PartialEq>(
    lines: Vec<(At, V)>,
    key: &'static str,
    key_of: impl Fn(&V) -> K,
    faults: &mut Vec<Fault>,
) -> Vec<(At, V)> {
    let mut first: BTreeMap<K, usize> = BTreeMap::new();
    let mut kept: Vec<(At, V)> = Vec::with_capacity(lines.len());
    for (at, value) in lines {
        let known = first.get(&key_of(&value)).and_then(|n| kept.get(*n));
        match known {
            None => {
                first.insert(key_of(&value), kept.len());
                kept.push((at, value));
            }
            Some((_, earlier)) if *earlier == value => {}
            Some((earlier, _)) => {
                faults.push(at.fault(None, Problem::Conflict { key, first: earlier.to_string() }));
            }
        }
    }
    kept
}

/// One specification an instance type; the types whose GPU count no source tells have none.
fn insert_specs(book: &mut PriceBook, offers: &[(At, Offer)], aws_types: &[(At, Hardware)], faults: &mut Vec<Fault>) {
    let hardware: BTreeMap<_, _> = aws_types.iter().map(|(_, hardware)| (&hardware.instance_type, hardware)).collect();
    let mut shapes: BTreeMap<(&Cloud, &InstanceType), (&At, &Shape)> = BTreeMap::new();
    for (at, offer) in offers {
        let (first, shape) = *shapes.entry((&offer.cloud, &offer.instance_type)).or_insert((at, &offer.shape));
        if *shape != offer.shape {
            let instance_type = offer.instance_type.to_string();
            faults.push(at.fault(None, Problem::OtherShape { instance_type, first: first.to_string() }));
        }
    }
    for ((cloud, instance_type), (_, shape)) in shapes {
        let Some(gpus) = shape.gpus else { continue };
        let hardware = hardware.get(instance_type).filter(|_| cloud.as_str() == "aws");
        book.insert_spec(InstanceSpec {
            cloud: cloud.clone(),
            instance_type: instance_type.clone(),
            gpu_model: shape.gpu_model.clone(),
            gpus,
            gpu_memory: shape.gpu_memory,
            vcpus: shape.vcpus,
            memory: shape.memory,
            arch: shape.arch,
            network: hardware.map(|hardware| hardware.network),
            local_disk: hardware.and_then(|hardware| hardware.local_disk),
        });
    }
}

fn gcp_zones(sold: Vec<Sold>) -> BTreeMap<(String, Region), BTreeSet<ZoneId>> {
    let mut zones: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for Sold { what, region, zone } in sold {
        zones.entry((what, region)).or_default().insert(zone);
    }
    zones
}

/// A zone without a list price of its own (a local zone) does not stand for its region.
fn aws_zoned(offers: &[(At, Offer)]) -> BTreeSet<(Region, InstanceType)> {
    offers
        .iter()
        .filter(|(_, offer)| offer.cloud.as_str() == "aws" && offer.zone.is_some() && offer.list.is_some())
        .map(|(_, offer)| (offer.region.clone(), offer.instance_type.clone()))
        .collect()
}

fn insert_offer(book: &mut PriceBook, offer: &Offer, known: &Known) {
    if let Some(rates) = offer.reserved.rates() {
        book.insert_terms(offer.cloud.clone(), offer.region.clone(), offer.instance_type.clone(), rates);
    }
    let zones = zones(offer, known);
    if zones.is_empty() {
        let shown_elsewhere =
            offer.cloud.as_str() == "aws" && known.aws_zoned.contains(&(offer.region.clone(), offer.instance_type.clone()));
        if let Some(list) = offer.list.clone().filter(|_| !shown_elsewhere) {
            book.insert_unzoned(offer.cloud.clone(), offer.region.clone(), offer.instance_type.clone(), list);
        }
    }
    for zone in zones {
        let place = Place {
            cloud: offer.cloud.clone(),
            region: offer.region.clone(),
            zone,
            instance_type: offer.instance_type.clone(),
        };
        insert_entry(book, &place, CapacityType::OnDemand, offer.on_demand());
        insert_entry(book, &place, CapacityType::Spot, offer.spot.clone());
        if offer.cloud.as_str() == "aws"
            && let Some(rate) = known.reclaims.get(&(offer.region.clone(), offer.instance_type.clone()))
        {
            book.insert_reclaims(place, *rate);
        }
    }
}

fn insert_entry(book: &mut PriceBook, place: &Place, capacity_type: CapacityType, entry: Option<Entry>) {
    if let Some(entry) = entry {
        book.insert(Market { place: place.clone(), capacity_type }, entry);
    }
}

/// The zones that an offer's line speaks of; none where no source tells them.
fn zones(offer: &Offer, known: &Known) -> Vec<ZoneId> {
    if let Some(zone) = &offer.zone {
        return vec![zone.clone()];
    }
    match offer.cloud.as_str() {
        "aws" => Vec::new(),
        "gcp" => {
            let key = (sold_as(offer.instance_type.as_str()), offer.region.clone());
            known.gcp_zones.get(&key).into_iter().flatten().cloned().collect()
        }
        // These clouds do not tell zones, or name them per account: one zone a region, named like it.
        _ => ZoneId::new(offer.region.as_str()).into_iter().collect(),
    }
}

/// What `gcp-zones.csv` lists a type as: an N1 machine with accelerators (`n1-standard-4+1xt4`) is sold where these are
/// (`nvidia-tesla-t4`), for N1 machines themselves are sold in every zone.
fn sold_as(instance_type: &str) -> String {
    match instance_type.split_once('+').and_then(|(_, accelerators)| accelerators.split_once('x')) {
        Some((_, model)) => format!("nvidia-tesla-{model}"),
        None => instance_type.to_owned(),
    }
}
