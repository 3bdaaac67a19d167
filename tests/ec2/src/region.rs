//! A region of one account: its zones, networks, images, stock, quotas and prices.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

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
    /// vCPUs that `CloudWatch` counts in the whole account, by class such as `G/OnDemand`. What is not here nobody has counted.
    pub usage: BTreeMap<String, u32>,
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
