//! Zones, subnets, security groups and images.

use jiff::Timestamp;

use super::{Answer, Values, one, page, passing, tag_values};
use crate::region::{Image, Region, SecurityGroup, Subnet, Zone};
use crate::reply::Refusal;
use crate::request::Asked;
use crate::world::World;
use crate::xml::{Xml, stamp};

/// Refuses a list of ids of which some are unknown.
pub(crate) fn all_known(ids: &[&str], is_known: impl Fn(&str) -> bool, code: &str, what: &str) -> Result<(), Refusal> {
    let unknown: Vec<&str> = ids.iter().copied().filter(|id| !is_known(id)).collect();
    match unknown.as_slice() {
        [] => Ok(()),
        [id] => Err(Refusal::bad(code, format!("The {what} ID '{id}' does not exist"))),
        ids => Err(Refusal::bad(code, format!("The {what} IDs '{}' do not exist", ids.join(", ")))),
    }
}

impl World {
    /// Free addresses of a subnet: what it has less what its machines take.
    pub(crate) fn free_addresses(&self, subnet: &Subnet, now: Timestamp) -> u32 {
        let there = self.machines.values().filter(|machine| machine.subnet == subnet.id && machine.takes_room(now));
        subnet.free.saturating_sub(there.map(|machine| machine.addresses).sum())
    }

    pub(super) fn describe_zones(&self, asked: &Asked) -> Answer {
        let region = self.asked_region(asked)?;
        let names = asked.list("ZoneName");
        let ids = asked.list("ZoneId");
        let zones: Vec<Zone> = region.zones.clone();
        let none = Zone { name: String::new(), id: String::new() };
        let zones = passing(asked, zones, &none, |zone, filter| match filter {
            "zone-name" => one(&zone.name),
            "zone-id" => one(&zone.id),
            "region-name" => one(&asked.region),
            "state" => one("available"),
            "opt-in-status" => one("opt-in-not-required"),
            "zone-type" => one("availability-zone"),
            _ => None,
        })?;
        let wanted = |zone: &Zone| {
            (names.is_empty() || names.contains(&zone.name.as_str())) && (ids.is_empty() || ids.contains(&zone.id.as_str()))
        };
        let write = |xml: &mut Xml, zone: Zone| {
            xml.text("zoneName", &zone.name);
            xml.text("zoneState", "available");
            xml.text("regionName", &asked.region);
            xml.text("zoneId", &zone.id);
            xml.text("zoneType", "availability-zone");
            xml.text("optInStatus", "opt-in-not-required");
            xml.text("groupName", &asked.region);
            xml.text("networkBorderGroup", &asked.region);
        };
        Ok(Xml::of(|xml| xml.items("availabilityZoneInfo", zones.into_iter().filter(wanted), write)))
    }

    pub(super) fn describe_subnets(&self, asked: &Asked, now: Timestamp) -> Answer {
        let region = self.asked_region(asked)?;
        let ids = asked.list("SubnetId");
        all_known(&ids, |id| region.subnets.contains_key(id), "InvalidSubnetID.NotFound", "subnet")?;
        let subnets = region.subnets.values().filter(|subnet| ids.is_empty() || ids.contains(&subnet.id.as_str()));
        let none = Subnet { id: String::new(), zone_id: String::new(), vpc: String::new(), free: 0, tags: crate::Tags::new() };
        let subnets =
            passing(asked, subnets.cloned().collect(), &none, |subnet, filter| subnet_values(region, subnet, filter))?;
        let page = page(self, asked, subnets, |subnet| subnet.id.clone())?;
        Ok(page.write("subnetSet", |xml, subnet| {
            let arn = format!("arn:aws:ec2:{}:{}:subnet/{}", asked.region, asked.account, subnet.id);
            xml.text("subnetId", &subnet.id);
            xml.text("subnetArn", arn);
            xml.text("state", "available");
            xml.text("ownerId", &asked.account);
            xml.text("vpcId", &subnet.vpc);
            xml.text("cidrBlock", "10.0.0.0/20");
            xml.text("availableIpAddressCount", self.free_addresses(&subnet, now));
            xml.text("availabilityZone", region.zone_name(&subnet.zone_id));
            xml.text("availabilityZoneId", &subnet.zone_id);
            xml.text("defaultForAz", false);
            xml.text("mapPublicIpOnLaunch", false);
            xml.tags(&subnet.tags);
        }))
    }

    pub(super) fn describe_groups(&self, asked: &Asked) -> Answer {
        let region = self.asked_region(asked)?;
        let ids = asked.list("GroupId");
        for id in &ids {
            if !region.groups.contains_key(*id) {
                let message = format!("The security group '{id}' does not exist");
                return Err(Refusal::bad("InvalidGroup.NotFound", message));
            }
        }
        let groups = region.groups.values().filter(|group| ids.is_empty() || ids.contains(&group.id.as_str()));
        let none = SecurityGroup { id: String::new(), vpc: String::new(), name: String::new(), tags: crate::Tags::new() };
        let groups = passing(asked, groups.cloned().collect(), &none, |group, filter| match filter {
            "group-id" => one(&group.id),
            "group-name" => one(&group.name),
            "vpc-id" => one(&group.vpc),
            filter => tag_values(&group.tags, filter),
        })?;
        let page = page(self, asked, groups, |group| group.id.clone())?;
        Ok(page.write("securityGroupInfo", |xml, group| {
            xml.text("ownerId", &asked.account);
            xml.text("groupId", &group.id);
            xml.text("groupName", &group.name);
            xml.text("groupDescription", "nodes");
            xml.text("vpcId", &group.vpc);
            xml.items("ipPermissions", [(); 0], |_, ()| {});
            xml.items("ipPermissionsEgress", [(); 0], |_, ()| {});
            xml.tags(&group.tags);
        }))
    }

    pub(super) fn describe_images(&self, asked: &Asked, now: Timestamp) -> Answer {
        let region = self.asked_region(asked)?;
        let ids = asked.list("ImageId");
        if let Some(id) = ids.iter().find(|id| !id.starts_with("ami-")) {
            return Err(Refusal::bad("InvalidAMIID.Malformed", format!("Invalid id: \"{id}\" (expecting \"ami-...\")")));
        }
        if let Some(id) = ids.iter().find(|id| !region.images.contains_key(**id)) {
            return Err(Refusal::bad("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist")));
        }
        let is_deprecated = |image: &Image| image.deprecated.is_some_and(|at| at <= now);
        let images = region.images.values().filter(|image| {
            let is_shown = asked.is_true("IncludeDeprecated") || !is_deprecated(image);
            if ids.is_empty() { is_shown } else { ids.contains(&image.id.as_str()) }
        });
        let none = Image {
            id: String::new(),
            arch: String::new(),
            name: String::new(),
            created: now,
            deprecated: None,
            root_device: String::new(),
        };
        let images = passing(asked, images.cloned().collect(), &none, |image, filter| match filter {
            "image-id" => one(&image.id),
            "name" => one(&image.name),
            "architecture" => one(&image.arch),
            "state" => one("available"),
            "owner-alias" => one("amazon"),
            "root-device-type" => one("ebs"),
            "virtualization-type" => one("hvm"),
            _ => None,
        })?;
        let page = page(self, asked, images, |image| image.id.clone())?;
        Ok(page.write("imagesSet", |xml, image| {
            xml.text("imageId", &image.id);
            xml.text("imageLocation", format!("amazon/{}", image.name));
            xml.text("imageState", "available");
            xml.text("imageOwnerId", "602401143452");
            xml.text("imageOwnerAlias", "amazon");
            xml.text("isPublic", true);
            xml.text("architecture", &image.arch);
            xml.text("imageType", "machine");
            xml.text("name", &image.name);
            xml.text("creationDate", stamp(image.created));
            xml.some("deprecationTime", image.deprecated.map(stamp));
            xml.text("rootDeviceType", "ebs");
            xml.text("rootDeviceName", &image.root_device);
            xml.text("virtualizationType", "hvm");
        }))
    }
}

fn subnet_values(region: &Region, subnet: &Subnet, filter: &str) -> Values {
    match filter {
        "subnet-id" => one(&subnet.id),
        "vpc-id" => one(&subnet.vpc),
        "state" => one("available"),
        "availability-zone" | "availabilityZone" => one(&region.zone_name(&subnet.zone_id)),
        "availability-zone-id" | "availabilityZoneId" => one(&subnet.zone_id),
        filter => tag_values(&subnet.tags, filter),
    }
}
