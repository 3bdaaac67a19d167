//! A region of one account: its zones, networks, images, stock, quotas and prices.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::TypeInfo;
use crate::machine::Market;

/// Tags by their keys.
pub type Tags = BTreeMap<String, String>;

/// An availability zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Its name in this account, such as `us-east-1a`.
    pub name: String,
    /// Its id in every account, such as `use1-az1`.
    pub id: String,
}

/// A subnet.
#[derive(Debug, Clone)]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// The id of its zone.
    pub zone_id: String,
    /// Its network.
    pub vpc: String,
    /// Addresses that are free, not counting what the machines of this world take.
    pub free: u32,
    /// Its tags.
    pub tags: Tags,
}

/// A security group.
#[derive(Debug, Clone)]
pub struct SecurityGroup {
    /// Its id.
    pub id: String,
    /// Its network.
    pub vpc: String,
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: Tags,
}

/// A machine image.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its id.
    pub id: String,
    /// `x86_64` or `arm64`.
    pub arch: String,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it is deprecated; listings leave a deprecated image out unless asked for it by id or with `IncludeDeprecated`.
    pub deprecated: Option<Timestamp>,
    /// The name of its root device.
    pub root_device: String,
}

/// What sort of capacity reservation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationKind {
    /// On-demand capacity reservation.
    Odcr,
    /// Capacity block.
    Block,
}

/// A capacity reservation.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// Its id, `cr-…`.
    pub id: String,
    /// Its instance type.
    pub instance_type: String,
    /// The id of its zone.
    pub zone_id: String,
    /// Machines that it is for.
    pub total: u32,
    /// Which sort.
    pub kind: ReservationKind,
    /// Whether launches that say nothing go into it.
    pub open: bool,
    /// When it starts; it is `scheduled` before.
    pub starts: Timestamp,
    /// When it ends; it is `expired` after.
    pub ends: Option<Timestamp>,
    /// When somebody cancelled it.
    pub cancelled: Option<Timestamp>,
    /// Its tags.
    pub tags: Tags,
}

impl Reservation {
    /// Its state at a time, as EC2 calls it.
    pub fn state(&self, now: Timestamp) -> &'static str {
        if self.cancelled.is_some_and(|at| at <= now) {
            "cancelled"
        } else if self.ends.is_some_and(|at| at <= now) {
            "expired"
        } else if self.starts > now {
            "scheduled"
        } else {
            "active"
        }
    }
}

/// A quota, counted in vCPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Its name.
    pub name: String,
    /// Its limit: what EC2 enforces.
    pub limit: u32,
    /// Whether it was ever changed. `GetServiceQuota` does not know one that never was; the call for the default does.
    pub changed: bool,
}

/// A record of the history of Spot prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpotPrice {
    /// The type.
    pub instance_type: String,
    /// The id of the zone.
    pub zone_id: String,
    /// Dollars an hour, as text.
    pub price: String,
    /// From when.
    pub at: Timestamp,
}

/// Reserved instances: a discount, no capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedInstances {
    /// Their id.
    pub id: String,
    /// Their type.
    pub instance_type: String,
    /// How many.
    pub count: u32,
    /// The zone's name where they are for one zone; else for the region.
    pub zone: Option<String>,
    /// `active`, `retired` and the like.
    pub state: String,
    /// From when.
    pub starts: Timestamp,
    /// For how many seconds.
    pub seconds: u64,
    /// Dollars paid at once, as text.
    pub fixed_price: String,
    /// Dollars an hour, as text.
    pub hourly: String,
}

/// An EKS cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its Kubernetes version, such as `1.33`.
    pub version: String,
    /// The URL of its API server.
    pub endpoint: String,
    /// Its certificate authority in base64.
    pub ca: String,
    /// Addresses of its Services.
    pub service_cidr: String,
    /// `ACTIVE`, `UPDATING` and the like.
    pub status: String,
}

/// A message of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// Its text.
    pub body: String,
    /// When it was sent.
    pub sent: Timestamp,
    /// Until when receivers do not see it.
    pub hidden_until: Timestamp,
    /// What the last receiver may delete it by.
    pub receipt: Option<String>,
}

/// An SQS queue.
#[derive(Debug, Clone)]
pub struct Queue {
    /// How long a message is kept.
    pub retention: Duration,
    /// Its messages, oldest first.
    pub messages: Vec<Message>,
}

/// A region of one account.
#[derive(Debug, Clone, Default)]
pub struct Region {
    /// Its zones.
    pub zones: Vec<Zone>,
    /// Its subnets by id.
    pub subnets: BTreeMap<String, Subnet>,
    /// Its security groups by id.
    pub groups: BTreeMap<String, SecurityGroup>,
    /// Its images by id.
    pub images: BTreeMap<String, Image>,
    /// SSM parameters by name.
    pub parameters: BTreeMap<String, String>,
    /// Names of instance profiles.
    pub profiles: BTreeSet<String>,
    /// Capacity reservations by id.
    pub reservations: BTreeMap<String, Reservation>,
    /// Which type is offered in which zone, by the zone's id.
    pub offered: BTreeSet<(String, String)>,
    /// How many more machines of a type there are in a zone (by id), by market. What is not named is unlimited. A launch takes one; an
    /// end gives none back.
    pub stock: BTreeMap<(String, String, Market), u32>,
    /// Quotas by code.
    pub quotas: BTreeMap<String, Quota>,
    /// The history of Spot prices, in any order.
    pub spot_prices: Vec<SpotPrice>,
    /// On-demand list prices by type: dollars an hour, as text.
    pub list_prices: BTreeMap<String, String>,
    /// Reserved instances.
    pub reserved: Vec<ReservedInstances>,
    /// EKS clusters by name.
    pub clusters: BTreeMap<String, Cluster>,
    /// SQS queues by name.
    pub queues: BTreeMap<String, Queue>,
    /// Whether the account has the role that Spot needs.
    pub spot_role: bool,
    /// Whether the account shows tags in the metadata service unless a launch says otherwise.
    pub shows_tags: bool,
}

/// A quota that counts vCPU: its code, its name, and which types and market it is for.
const QUOTAS: [(&str, &str); 5] = [
    ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("L-417A185B", "Running On-Demand P instances"),
    ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    ("L-C4BD4855", "All P5 Spot Instance Requests"),
];

/// On-demand list prices of us-east-1 by type.
const LIST_PRICES: [(&str, &str, &str); 8] = [
    ("g4dn.xlarge", "0.5260000000", "0.210400"),
    ("g5.xlarge", "1.0060000000", "0.402400"),
    ("g5g.xlarge", "0.4200000000", "0.168000"),
    ("g6.xlarge", "0.8048000000", "0.321900"),
    ("g6.2xlarge", "0.9776000000", "0.391000"),
    ("g6.12xlarge", "4.6016000000", "1.840600"),
    ("p4d.24xlarge", "21.9576420000", "7.900000"),
    ("p5.48xlarge", "55.0400000000", "16.500000"),
];

/// The Kubernetes version of the default clusters and images.
const KUBERNETES: &str = "1.33";

/// The quota that counts launches of a type in a market.
pub(crate) fn quota_code(instance_type: &str, market: Market) -> Option<&'static str> {
    let class = instance_type.split(|letter: char| letter.is_ascii_digit()).next().unwrap_or_default();
    match (class, market) {
        ("g" | "gr" | "vt", Market::OnDemand) => Some("L-DB2E81BA"),
        ("g" | "gr" | "vt", Market::Spot) => Some("L-3819A6DF"),
        ("p", Market::OnDemand) => Some("L-417A185B"),
        ("p", Market::Spot) if instance_type.starts_with("p5") || instance_type.starts_with("p6") => Some("L-C4BD4855"),
        ("p", Market::Spot) => Some("L-7212CCBC"),
        _ => None,
    }
}

impl Region {
    /// A region in which `stoker` may launch: a subnet a zone, a group, images, a profile, a cluster `prod`, and everything in stock.
    ///
    /// `zones` are the letters of its zones with their ids. Ids of subnets and groups end with the zone's or region's name.
    pub fn furnished(name: &str, zones: &[(&str, &str)], types: &BTreeMap<String, TypeInfo>, now: Timestamp) -> Self {
        let prod: Tags = [("stoker.dev/discovery".to_owned(), "prod".to_owned())].into();
        let vpc = format!("vpc-{name}");
        let mut region = Self { spot_role: true, ..Self::default() };
        region.profiles.insert("stoker-node".to_owned());
        let group = format!("sg-{name}");
        region
            .groups
            .insert(group.clone(), SecurityGroup { id: group, vpc: vpc.clone(), name: "nodes".to_owned(), tags: prod.clone() });
        for (letter, id) in zones {
            let zone = Zone { name: format!("{name}{letter}"), id: (*id).to_owned() };
            let subnet = format!("subnet-{}", zone.name);
            region.subnets.insert(
                subnet.clone(),
                Subnet { id: subnet, zone_id: zone.id.clone(), vpc: vpc.clone(), free: 4_000, tags: prod.clone() },
            );
            for name in types.keys() {
                region.offered.insert((name.clone(), zone.id.clone()));
            }
            for (name, _, spot) in LIST_PRICES {
                let (instance_type, zone_id) = (name.to_owned(), zone.id.clone());
                region.spot_prices.push(SpotPrice { instance_type, zone_id, price: spot.to_owned(), at: now });
            }
            region.zones.push(zone);
        }
        for (code, name) in QUOTAS {
            region.quotas.insert(code.to_owned(), Quota { name: name.to_owned(), limit: 1_000, changed: true });
        }
        for (name, price, _) in LIST_PRICES {
            region.list_prices.insert(name.to_owned(), price.to_owned());
        }
        region.add_images(name, now);
        region.clusters.insert("prod".to_owned(), cluster("prod", name));
        region
    }

    fn add_images(&mut self, region: &str, now: Timestamp) {
        for arch in ["x86_64", "arm64"] {
            let eks = format!("/aws/service/eks/optimized-ami/{KUBERNETES}/amazon-linux-2023/{arch}/nvidia");
            let name = format!("amazon-eks-node-al2023-{arch}-nvidia-{KUBERNETES}-v20260714");
            let id = self.add_image(region, arch, &name, now);
            self.parameters.insert(format!("{eks}/recommended/image_id"), id.clone());
            self.parameters.insert(format!("{eks}/recommended/image_name"), name.clone());
            self.parameters.insert(format!("{eks}/{name}/image_id"), id);
            let bottlerocket = format!("/aws/service/bottlerocket/aws-k8s-{KUBERNETES}-nvidia/{arch}");
            let name = format!("bottlerocket-aws-k8s-{KUBERNETES}-nvidia-{arch}-v1.46.0-5cd59b8e");
            let id = self.add_image(region, arch, &name, now);
            self.parameters.insert(format!("{bottlerocket}/latest/image_id"), id.clone());
            self.parameters.insert(format!("{bottlerocket}/latest/image_version"), "1.46.0-5cd59b8e".to_owned());
            self.parameters.insert(format!("{bottlerocket}/1.46.0/image_id"), id);
        }
    }

    /// Adds an image of that architecture and name, made now; its id differs between regions.
    pub fn add_image(&mut self, region: &str, arch: &str, name: &str, now: Timestamp) -> String {
        let id = format!("ami-{:017x}", crate::world::scrambled(&format!("{region}/{name}")));
        let root_device = "/dev/xvda".to_owned();
        let (arch, name) = (arch.to_owned(), name.to_owned());
        let image = Image { id: id.clone(), arch, name, created: now, deprecated: None, root_device };
        self.images.insert(id.clone(), image);
        id
    }

    /// Sets how many more machines of a type a zone (by id) has in a market; `None` is without limit.
    pub fn set_stock(&mut self, instance_type: &str, zone_id: &str, market: Market, left: Option<u32>) {
        let key = (instance_type.to_owned(), zone_id.to_owned(), market);
        match left {
            Some(left) => drop(self.stock.insert(key, left)),
            None => drop(self.stock.remove(&key)),
        }
    }

    /// Sets the limit of a quota that the region has.
    pub fn set_quota(&mut self, code: &str, limit: u32) {
        if let Some(quota) = self.quotas.get_mut(code) {
            quota.limit = limit;
        }
    }

    /// Adds a queue that keeps messages for 5 minutes.
    pub fn add_queue(&mut self, name: &str) {
        self.queues.insert(name.to_owned(), Queue { retention: Duration::from_mins(5), messages: Vec::new() });
    }

    /// Adds a reservation that has started and has no end.
    pub fn add_reservation(&mut self, id: &str, instance_type: &str, zone_id: &str, total: u32) -> &mut Reservation {
        let reservation = Reservation {
            id: id.to_owned(),
            instance_type: instance_type.to_owned(),
            zone_id: zone_id.to_owned(),
            total,
            kind: ReservationKind::Odcr,
            open: false,
            starts: Timestamp::UNIX_EPOCH,
            ends: None,
            cancelled: None,
            tags: Tags::new(),
        };
        self.reservations.entry(id.to_owned()).insert_entry(reservation).into_mut()
    }

    /// The name of a zone, by its id.
    pub(crate) fn zone_name(&self, id: &str) -> String {
        self.zones.iter().find(|zone| zone.id == id).map(|zone| zone.name.clone()).unwrap_or_default()
    }
}

/// A cluster of that name in a region.
fn cluster(name: &str, region: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        version: KUBERNETES.to_owned(),
        endpoint: format!("https://0123456789ABCDEF.gr7.{region}.eks.amazonaws.com"),
        ca: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUMKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        status: "ACTIVE".to_owned(),
    }
}
