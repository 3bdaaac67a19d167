//! Types, where they are offered, Spot prices, capacity reservations and reserved instances.

use jiff::Timestamp;

use super::{Answer, Values, one, page, passing, tag_values};
use crate::TypeInfo;
use crate::region::{Reservation, ReservationKind, ReservedInstances, SpotPrice, Tags};
use crate::reply::Refusal;
use crate::request::Asked;
use crate::world::World;
use crate::xml::Xml;

impl World {
    pub(super) fn describe_types(&self, asked: &Asked) -> Answer {
        let region = self.asked_region(asked)?;
        let names = asked.list("InstanceType");
        if !names.is_empty() && asked.get("MaxResults").is_some() {
            let message = "The parameter InstanceTypes cannot be used with MaxResults";
            return Err(Refusal::bad("InvalidParameterCombination", message));
        }
        let unknown: Vec<&str> = names.iter().copied().filter(|name| !self.types.contains_key(*name)).collect();
        if !unknown.is_empty() {
            let message = format!("The following supplied instance types do not exist: [{}]", unknown.join(", "));
            return Err(Refusal::bad("InvalidInstanceType", message));
        }
        let sold = |of: &&TypeInfo| region.offered.iter().any(|(name, _)| *name == of.name);
        let types = self.types.values().filter(sold).filter(|of| names.is_empty() || names.contains(&of.name.as_str()));
        let types: Vec<&TypeInfo> = types.collect();
        let types = match types.first().copied() {
            None => Vec::new(),
            Some(first) => passing(asked, types, &first, |of, filter| match filter {
                "instance-type" => one(&of.name),
                "processor-info.supported-architecture" => one(&of.arch),
                "current-generation" => one("true"),
                _ => None,
            })?,
        };
        let page = page(self, asked, types, |of| of.name.clone())?;
        Ok(page.write("instanceTypeSet", write_type))
    }

    pub(super) fn describe_offerings(&self, asked: &Asked) -> Answer {
        let region = self.asked_region(asked)?;
        let by = asked.get("LocationType").unwrap_or("region");
        let mut offered: Vec<(String, String)> = match by {
            "region" => region.offered.iter().map(|(name, _)| (name.clone(), asked.region.clone())).collect(),
            "availability-zone" => region.offered.iter().map(|(name, zone)| (name.clone(), region.zone_name(zone))).collect(),
            "availability-zone-id" => region.offered.iter().cloned().collect(),
            _ => return Err(Refusal::value(format!("The location type '{by}' is invalid"))),
        };
        offered.sort();
        offered.dedup();
        let none = (String::new(), String::new());
        let offered = passing(asked, offered, &none, |(name, place), filter| match filter {
            "instance-type" => one(name),
            "location" => one(place),
            _ => None,
        })?;
        let page = page(self, asked, offered, |(name, place)| format!("{name}/{place}"))?;
        Ok(page.write("instanceTypeOfferingSet", |xml, (name, place)| {
            xml.text("instanceType", name);
            xml.text("locationType", by);
            xml.text("location", place);
        }))
    }

    /// The price in effect at the start of the time asked for, and all later ones up to its end, in the order of the world.
    pub(super) fn describe_spot_prices(&self, asked: &Asked, now: Timestamp) -> Answer {
        let region = self.asked_region(asked)?;
        let time = |name: &str| asked.get(name).and_then(|text| text.parse::<Timestamp>().ok());
        let (start, end) = (time("StartTime").unwrap_or(Timestamp::UNIX_EPOCH), time("EndTime").unwrap_or(now));
        let (types, products) = (asked.list("InstanceType"), asked.list("ProductDescription"));
        let linux = "Linux/UNIX";
        let is_asked = |price: &SpotPrice| {
            let is_of = types.is_empty() || types.contains(&price.instance_type.as_str());
            let is_product = products.is_empty() || products.contains(&linux);
            let later = |of: &SpotPrice| {
                let same = of.instance_type == price.instance_type && of.zone_id == price.zone_id;
                same && of.at > price.at && of.at <= start
            };
            is_of && is_product && price.at <= end && !region.spot_prices.iter().any(later)
        };
        let prices: Vec<(usize, SpotPrice)> = region.spot_prices.iter().cloned().enumerate().collect();
        let none = (0, SpotPrice { instance_type: String::new(), zone_id: String::new(), price: String::new(), at: now });
        let prices = passing(asked, prices, &none, |(_, price), filter| match filter {
            "availability-zone" => one(&region.zone_name(&price.zone_id)),
            "availability-zone-id" => one(&price.zone_id),
            "instance-type" => one(&price.instance_type),
            "product-description" => one(linux),
            "spot-price" => one(&price.price),
            _ => None,
        })?;
        let prices: Vec<_> = prices.into_iter().filter(|(_, price)| is_asked(price)).collect();
        let page = page(self, asked, prices, |(index, _)| format!("{index:08}"))?;
        Ok(Xml::of(|xml| {
            xml.items("spotPriceHistorySet", page.items, |xml, (_, price)| {
                xml.text("instanceType", &price.instance_type);
                xml.text("productDescription", linux);
                xml.text("spotPrice", &price.price);
                xml.time("timestamp", price.at);
                xml.text("availabilityZone", region.zone_name(&price.zone_id));
                xml.text("availabilityZoneId", &price.zone_id);
            });
            // AWS ends this list alone with an empty token.
            xml.text("nextToken", page.next.unwrap_or_default());
        }))
    }

    pub(super) fn describe_reservations(&self, asked: &Asked, now: Timestamp) -> Answer {
        let region = self.asked_region(asked)?;
        let ids = asked.list("CapacityReservationId");
        if !ids.is_empty() && asked.get("MaxResults").is_some() {
            let message = "The parameter capacityReservationSet cannot be used with the parameter maxResults";
            return Err(Refusal::bad("InvalidParameterCombination", message));
        }
        if let Some(id) = ids.iter().find(|id| !region.reservations.contains_key(**id)) {
            let message = format!("The capacity reservation '{id}' does not exist");
            return Err(Refusal::bad("InvalidCapacityReservationId.NotFound", message));
        }
        let of = region.reservations.values().filter(|of| ids.is_empty() || ids.contains(&of.id.as_str()));
        let none = Reservation {
            id: String::new(),
            instance_type: String::new(),
            zone_id: String::new(),
            total: 0,
            kind: ReservationKind::Odcr,
            open: false,
            starts: now,
            ends: None,
            cancelled: None,
            tags: Tags::new(),
        };
        let found = passing(asked, of.cloned().collect(), &none, |of, filter| -> Values {
            match filter {
                "state" => one(of.state(now)),
                "instance-type" => one(&of.instance_type),
                "availability-zone" => one(&region.zone_name(&of.zone_id)),
                "availability-zone-id" => one(&of.zone_id),
                "instance-match-criteria" => one(criteria(of)),
                "owner-id" => one(&asked.account),
                filter => tag_values(&of.tags, filter),
            }
        })?;
        let page = page(self, asked, found, |of| of.id.clone())?;
        Ok(page.write("capacityReservationSet", |xml, of| {
            let arn = format!("arn:aws:ec2:{}:{}:capacity-reservation/{}", asked.region, asked.account, of.id);
            let left = if of.state(now) == "active" { self.left_in(&of, now) } else { 0 };
            xml.text("capacityReservationId", &of.id);
            xml.text("capacityReservationArn", arn);
            xml.text("ownerId", &asked.account);
            xml.text("instanceType", &of.instance_type);
            xml.text("instancePlatform", "Linux/UNIX");
            xml.text("availabilityZone", region.zone_name(&of.zone_id));
            xml.text("availabilityZoneId", &of.zone_id);
            xml.text("tenancy", "default");
            xml.text("totalInstanceCount", of.total);
            xml.text("availableInstanceCount", left);
            xml.text("ebsOptimized", false);
            xml.text("ephemeralStorage", false);
            xml.text("state", of.state(now));
            xml.time("startDate", of.starts);
            xml.some("endDate", of.ends.map(crate::xml::stamp));
            xml.text("endDateType", if of.ends.is_some() { "limited" } else { "unlimited" });
            xml.text("instanceMatchCriteria", criteria(&of));
            xml.time("createDate", of.starts.min(now));
            xml.text("reservationType", if of.kind == ReservationKind::Block { "capacity-block" } else { "default" });
            xml.text("interruptible", false);
            xml.tags(&of.tags);
        }))
    }

    pub(super) fn describe_reserved(&self, asked: &Asked) -> Answer {
        let region = self.asked_region(asked)?;
        let none = ReservedInstances {
            id: String::new(),
            instance_type: String::new(),
            count: 0,
            zone: None,
            state: String::new(),
            starts: Timestamp::UNIX_EPOCH,
            seconds: 0,
            fixed_price: String::new(),
            hourly: String::new(),
        };
        let scope = |of: &ReservedInstances| if of.zone.is_some() { "Availability Zone" } else { "Region" };
        let found = passing(asked, region.reserved.clone(), &none, |of, filter| match filter {
            "state" => one(&of.state),
            "instance-type" => one(&of.instance_type),
            "scope" => one(scope(of)),
            "availability-zone" => Some(of.zone.clone().into_iter().collect()),
            _ => None,
        })?;
        Ok(Xml::of(|xml| {
            xml.items("reservedInstancesSet", found, |xml, of| {
                xml.text("reservedInstancesId", &of.id);
                xml.text("instanceType", &of.instance_type);
                xml.some("availabilityZone", of.zone.as_ref());
                xml.time("start", of.starts);
                xml.time("end", of.starts + std::time::Duration::from_secs(of.seconds));
                xml.text("duration", of.seconds);
                xml.text("fixedPrice", &of.fixed_price);
                xml.text("usagePrice", "0.0");
                xml.text("instanceCount", of.count);
                xml.text("productDescription", "Linux/UNIX");
                xml.text("state", &of.state);
                xml.text("instanceTenancy", "default");
                xml.text("currencyCode", "USD");
                xml.text("offeringClass", "standard");
                xml.text("offeringType", "No Upfront");
                xml.text("scope", scope(&of));
                xml.items("recurringCharges", [&of.hourly], |xml, hourly| {
                    xml.text("frequency", "Hourly");
                    xml.text("amount", hourly);
                });
            });
        }))
    }
}

const fn criteria(of: &Reservation) -> &'static str {
    if of.open { "open" } else { "targeted" }
}

fn write_type(xml: &mut Xml, of: &TypeInfo) {
    let kinds: &[&str] = if of.efa_interfaces > 0 { &["interface", "efa", "efa-only"] } else { &["interface"] };
    let classes: &[&str] = if of.in_blocks { &["capacity-block", "on-demand", "spot"] } else { &["on-demand", "spot"] };
    xml.text("instanceType", &of.name);
    xml.text("currentGeneration", true);
    xml.texts("supportedUsageClasses", classes);
    xml.texts("supportedRootDeviceTypes", ["ebs"]);
    xml.text("bareMetal", false);
    xml.text("hypervisor", "nitro");
    xml.node("processorInfo", |xml| xml.texts("supportedArchitectures", [&of.arch]));
    xml.node("vCpuInfo", |xml| xml.text("defaultVCpus", of.vcpus));
    xml.node("memoryInfo", |xml| xml.text("sizeInMiB", of.memory_mib));
    xml.text("instanceStorageSupported", of.disks > 0);
    xml.some_node("instanceStorageInfo", (of.disks > 0).then_some(of), |xml, of| {
        xml.text("totalSizeInGB", of.local_gb());
        xml.items("disks", [of], |xml, of| {
            xml.text("sizeInGB", of.disk_gb);
            xml.text("count", of.disks);
            xml.text("type", "ssd");
        });
        xml.text("nvmeSupport", "required");
    });
    xml.node("networkInfo", |xml| {
        xml.text("maximumNetworkInterfaces", of.interfaces_of_card_0 * of.cards);
        xml.text("maximumNetworkCards", of.cards);
        xml.text("defaultNetworkCardIndex", 0);
        xml.items("networkCards", 0..of.cards, |xml, card| {
            xml.text("networkCardIndex", card);
            xml.text("maximumNetworkInterfaces", of.interfaces_of_card_0);
            xml.texts("interfaceTypes", kinds);
        });
        xml.text("ipv4AddressesPerInterface", of.ipv4_per_interface);
        xml.text("enaSupport", "required");
        xml.text("efaSupported", of.efa_interfaces > 0);
        xml.some_node("efaInfo", (of.efa_interfaces > 0).then_some(of.efa_interfaces), |xml, most| {
            xml.text("maximumEfaInterfaces", most);
        });
    });
    xml.node("gpuInfo", |xml| {
        xml.items("gpus", [of], |xml, of| {
            xml.text("name", &of.gpu_name);
            xml.text("manufacturer", "NVIDIA");
            xml.text("count", of.gpus);
            xml.text("logicalGpuCount", of.gpus.max(1));
            xml.node("memoryInfo", |xml| xml.text("sizeInMiB", of.gpu_memory_mib));
        });
        xml.text("totalGpuMemoryInMiB", of.gpu_memory_mib * u64::from(of.gpus.max(1)));
    });
    xml.text("supportedInRegion", true);
}
