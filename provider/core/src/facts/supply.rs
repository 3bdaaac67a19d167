//! Values exchanged between the engine and a supplier of nodes.
//!
//! The supplier's inventory is the truth about what exists. A launch has a key, which the supplier
//! writes into its tags. The same key never makes two instances, and the tag of an instance names
//! its owner.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::ids::{
    Cloud, ClusterName, IdError, Incarnation, InstanceType, LaunchKey, NodeClassName, NodeGroupId, NodeName, ProviderId,
    RecordId, Region, SupplierName, ZoneId, ZoneName,
};
use crate::base::units::{MiB, Milli};
use crate::facts::outdated::Outdated;
use crate::market::offer::{CapacityType, InstanceSpec, Market, Network, Place};
use crate::market::price::Quote;
use crate::policy::QuotaKey;

/// The parts of a launch key: cluster, group, incarnation of the journal, ordinal (the record's
/// number) and attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyParts {
    /// The cluster that ordered it.
    pub cluster: ClusterName,
    /// The group it is for.
    pub group: NodeGroupId,
    /// The journal that numbered the record: another journal may give the same number again. `None`
    /// in keys of releases before it was part of them.
    pub incarnation: Option<Incarnation>,
    /// The record it is for.
    pub record: RecordId,
    /// Which try at supplying that record, from 1.
    pub attempt: u32,
}

impl KeyParts {
    /// The key as text.
    ///
    /// # Errors
    /// When the parts together are longer than an id may be.
    pub fn key(&self) -> Result<LaunchKey, IdError> {
        let Self { cluster, group, incarnation, record, attempt } = self;
        LaunchKey::new(match incarnation {
            Some(incarnation) => format!("{cluster}/{group}/{incarnation}/{}/{attempt}", record.0),
            None => format!("{cluster}/{group}/{}/{attempt}", record.0),
        })
    }
}

/// A text that is no launch key of Stoker's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a launch key: expected cluster/group/incarnation/ordinal/attempt")]
pub struct NotAKey(pub String);

impl FromStr for KeyParts {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let bad = || NotAKey(text.to_owned());
        let KeyText { cluster, group, incarnation, record, attempt } = KeyText::read(text).ok_or_else(bad)?;
        Ok(Self {
            cluster: ClusterName::new(cluster).map_err(|_| bad())?,
            group: NodeGroupId::new(group).map_err(|_| bad())?,
            incarnation: incarnation.map(Incarnation::new).transpose().map_err(|_| bad())?,
            record,
            attempt,
        })
    }
}

/// The parts of a launch key as they stand in its text: what a pass reads of every machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyText<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) group: &'a str,
    pub(crate) incarnation: Option<&'a str>,
    pub(crate) record: RecordId,
    pub(crate) attempt: u32,
}

impl<'a> KeyText<'a> {
    /// The parts of `text`; `None` where it is no launch key of Stoker's.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        // The numbers are short: they are cut off from the end, byte by byte.
        let cut = |text: &'a str| {
            let at = text.bytes().rposition(|byte| byte == b'/')?;
            Some((text.get(..at)?, text.get(at + 1..)?))
        };
        let (rest, attempt) = cut(text)?;
        let (rest, record) = cut(rest)?;
        let (cluster, rest) = rest.split_once('/')?;
        let (group, incarnation) = match rest.split_once('/') {
            Some((group, incarnation)) => (group, Some(incarnation)),
            None => (rest, None),
        };
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let named = incarnation.is_none_or(|name| name.len() == 8 && name.bytes().all(hex));
        let whole = !cluster.is_empty() && !group.is_empty() && named;
        let (record, attempt) = (RecordId(record.parse().ok()?), attempt.parse().ok()?);
        whole.then_some(Self { cluster, group, incarnation, record, attempt })
    }
}

/// One node to launch. Everything is settled: the supplier has no choice left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// Makes the launch idempotent, and marks the instance as ours.
    pub key: LaunchKey,
    /// The group it is for.
    pub group: NodeGroupId,
    /// What to buy, and where.
    pub market: Market,
    /// The zone as the node will be labelled.
    pub zone_name: ZoneName,
    /// What the policy calls the reservation that it is bought from; `None` where it is bought from none, or from no one that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
}

/// How a launch ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LaunchOutcome {
    /// The instance exists.
    Launched(Instance),
    /// The supplier says no: nothing was made, and nothing will be under this key.
    Refused(Refusal),
    /// Nobody knows (a time-out, a server error), or it is not decided yet: try again with the same key.
    Unclear {
        /// What the supplier or the transport said.
        message: String,
        /// How long the supplier asks to be left alone with this launch; `None` where it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<SignedDuration>,
    },
}

/// A supplier's "no".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why, as a class.
    pub kind: RefusalKind,
    /// What it concerns, and is left alone.
    #[serde(default, skip_serializing_if = "RefusalScope::is_market")]
    pub scope: RefusalScope,
    /// The supplier's own words.
    pub message: String,
    /// How long the supplier asks to be left alone; `None` where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<SignedDuration>,
}

impl Refusal {
    /// A refusal that concerns the market which was asked.
    pub fn of_market(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, scope: RefusalScope::Market, message: message.into(), retry_after: None }
    }
}

/// What a refusal concerns. The supplier says no wider than it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalScope {
    /// The market that was asked: the instance type in that zone, bought that way.
    #[default]
    Market,
    /// The instance type in that zone, however it is bought.
    TypeInZone,
    /// The zone.
    Zone,
    /// Everything in the region that counts against the quota which the supplier calls so.
    Quota(String),
    /// What is bought from the reservation which the policy calls so.
    Reservation(String),
    /// Everything in the region that is bought that way.
    CapacityTypeInRegion,
    /// The region.
    Region,
    /// Everything that this supplier makes.
    Account,
}

impl RefusalScope {
    /// Whether it concerns the market alone.
    pub fn is_market(&self) -> bool {
        *self == Self::Market
    }
}

/// Where nothing is bought for a while, because a supplier refused a launch for all of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusedArea {
    /// An instance type in a zone.
    TypeInZone(Place),
    /// A zone.
    Zone(Cloud, Region, ZoneId),
    /// What counts against a quota, of a region or of all regions together.
    Quota(QuotaKey),
    /// What is bought from a reservation in its place.
    Reservation(Place, String),
    /// What is bought so in a region.
    CapacityTypeInRegion(Cloud, Region, CapacityType),
    /// A region.
    Region(Cloud, Region),
    /// All of a supplier.
    Account(SupplierName),
}

impl fmt::Display for RefusedArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TypeInZone(place) => write!(f, "{place}"),
            Self::Zone(cloud, region, zone) => write!(f, "zone {cloud}/{region}/{zone}"),
            Self::Quota(quota) => write!(f, "quota {quota}"),
            Self::Reservation(_, name) => write!(f, "reservation {name}"),
            Self::CapacityTypeInRegion(cloud, region, bought) => write!(f, "all {bought} capacity of region {cloud}/{region}"),
            Self::Region(cloud, region) => write!(f, "region {cloud}/{region}"),
            Self::Account(supplier) => write!(f, "all of supplier {supplier}"),
        }
    }
}

/// Why a supplier says no. The fixed set of codes that the autoscaler makes metric labels of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The market has no stock.
    OutOfCapacity,
    /// The account's quota is used up.
    QuotaExceeded,
    /// We may not do that.
    Permission,
    /// The request can never work: a type that is not sold there, a bad image.
    Config,
    /// The machine was made but did not join the cluster in time.
    BootTimeout,
}

impl RefusalKind {
    /// The code shown to the autoscaler and in metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::OutOfCapacity => "OUT_OF_CAPACITY",
            Self::QuotaExceeded => "QUOTA_EXCEEDED",
            Self::Permission => "PERMISSION",
            Self::Config => "CONFIG",
            Self::BootTimeout => "BOOT_TIMEOUT",
        }
    }
}

impl fmt::Display for RefusalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

impl LaunchOutcome {
    /// Nobody knows, and nobody says when to ask again.
    pub fn unclear(message: impl Into<String>) -> Self {
        Self::Unclear { message: message.into(), retry_after: None }
    }

    /// The same, with no launch later than `now`.
    #[must_use]
    pub fn happened_by(self, now: Timestamp) -> Self {
        match self {
            Self::Launched(made) => Self::Launched(made.happened_by(now)),
            other => other,
        }
    }
}

/// A machine that a supplier made for us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The key it was launched with, read back from the supplier's tags.
    pub key: LaunchKey,
    /// What it is called; will be the Node's `spec.providerID`.
    pub provider_id: ProviderId,
    /// The name its Node will have; what the supplier calls the machine, where it does not know that yet.
    pub node_name: NodeName,
    /// Where and how it was bought.
    pub market: Market,
    /// When it was made.
    pub launched_at: Timestamp,
    /// What it is doing.
    pub state: InstanceState,
}

impl Instance {
    /// The same, launched no later than `now`: the supplier's clock may be ahead.
    #[must_use]
    pub fn happened_by(self, now: Timestamp) -> Self {
        Self { launched_at: self.launched_at.min(now), ..self }
    }
}

/// What a machine is doing, as the supplier sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    /// Being made, or booting.
    Pending,
    /// Booted.
    Running,
    /// The cloud said that it will take it back.
    Reclaiming {
        /// When it will be gone.
        at: Timestamp,
    },
    /// On its way out.
    Stopping,
}

/// What a supplier has, as of a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Which regions it is of, and when it was true.
    pub covered: Covered,
    /// Whether everything is listed. An incomplete listing says nothing about what it leaves out.
    pub complete: bool,
    /// Why machines ended that ended lately, where the supplier knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ended: BTreeMap<ProviderId, EndedWhy>,
    /// Machines that would be made differently today, and how; `None` for those of which the supplier cannot tell at the moment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outdated: BTreeMap<ProviderId, Option<Outdated>>,
    /// Machines that their cloud calls impaired for so long that it is no passing fault, and what is wrong, as a sentence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub impaired: BTreeMap<ProviderId, String>,
    /// Regions of whose machines it is not known now whether they are impaired, although their supplier tells it at other times.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unsure: BTreeSet<(Cloud, Region)>,
    /// Zones that were listed by themselves since their region was, as it did not answer as a whole; and when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub zones: BTreeMap<ZoneId, Timestamp>,
    /// Every instance that carries this cluster's name. An instance that ended is not listed.
    pub instances: BTreeMap<ProviderId, Arc<Instance>>,
}

/// The regions of a listing, and as of when each was listed. Of any other it says nothing: a machine there is not lost for not being
/// listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Covered {
    /// Every region, as of one moment.
    Everywhere(Timestamp),
    /// These, each listed by itself. One that was never listed is as old as time.
    Regions(#[serde(with = "crate::base::pairs")] BTreeMap<(Cloud, Region), Timestamp>),
}

impl Default for Covered {
    /// Nothing.
    fn default() -> Self {
        Self::Regions(BTreeMap::new())
    }
}

/// What one part of a supplier listed: an account in a region, or a scope of a plugin's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// When this was true.
    pub as_of: Timestamp,
    /// As in [`Observation`].
    pub instances: BTreeMap<ProviderId, Arc<Instance>>,
    /// As in [`Observation`].
    pub ended: BTreeMap<ProviderId, EndedWhy>,
    /// As in [`Observation`].
    pub outdated: BTreeMap<ProviderId, Option<Outdated>>,
    /// As in [`Observation`]; `None` where it is not known now whether machines are impaired.
    pub impaired: Option<BTreeMap<ProviderId, String>>,
    /// As in [`Observation`].
    pub zones: BTreeMap<ZoneId, Timestamp>,
}

/// Why a machine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedWhy {
    /// The cloud took it back. Only this counts as a reclaim.
    Reclaimed,
    /// Somebody ended it by hand, or by another program.
    Deleted,
    /// It did not boot.
    FailedBoot,
    /// It stopped by itself: a fault of its own or of its host.
    Broken,
}

impl EndedWhy {
    /// The reason, as the rest of a sentence about the machine.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Reclaimed => "the cloud took it back",
            Self::Deleted => "somebody deleted it",
            Self::FailedBoot => "it did not boot",
            Self::Broken => "it stopped by itself",
        }
    }
}

impl Observation {
    /// A listing of everything everywhere, all of it true then.
    pub const fn complete(as_of: Timestamp, instances: BTreeMap<ProviderId, Arc<Instance>>) -> Self {
        Self {
            covered: Covered::Everywhere(as_of),
            complete: true,
            ended: BTreeMap::new(),
            outdated: BTreeMap::new(),
            impaired: BTreeMap::new(),
            unsure: BTreeSet::new(),
            zones: BTreeMap::new(),
            instances,
        }
    }

    /// Whether it is known if that place's machines are impaired.
    pub fn is_sure_of(&self, place: &Place) -> bool {
        // Most listings are sure, and the key is two texts.
        self.unsure.is_empty() || !self.unsure.contains(&(place.cloud.clone(), place.region.clone()))
    }

    /// The listing of a supplier that lists its parts by themselves: of each its regions, and what was listed of it last; `None` where
    /// nothing ever was. A region that several parts have is as old as the oldest.
    pub fn of_parts(parts: impl IntoIterator<Item = (impl IntoIterator<Item = (Cloud, Region)>, Option<Listing>)>) -> Self {
        let mut regions = BTreeMap::new();
        let mut all = Self::complete(Timestamp::UNIX_EPOCH, BTreeMap::new());
        for (of_part, listing) in parts {
            let as_of = listing.as_ref().map_or(Timestamp::UNIX_EPOCH, |listing| listing.as_of);
            let is_sure = listing.as_ref().is_some_and(|listing| listing.impaired.is_some());
            for region in of_part {
                if !is_sure {
                    all.unsure.insert(region.clone());
                }
                regions.entry(region).and_modify(|known: &mut Timestamp| *known = as_of.min(*known)).or_insert(as_of);
            }
            if let Some(listing) = listing {
                all.instances.extend(listing.instances);
                all.ended.extend(listing.ended);
                all.outdated.extend(listing.outdated);
                all.impaired.extend(listing.impaired.unwrap_or_default());
                all.zones.extend(listing.zones);
            }
        }
        Self { covered: Covered::Regions(regions), ..all }
    }

    /// When the newest part of the listing was true.
    pub fn as_of(&self) -> Timestamp {
        self.covered.moments().max().unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// When the listing of that place was true; at the beginning of time, where it does not cover the place's region.
    pub fn as_of_in(&self, place: &Place) -> Timestamp {
        let of_zone = self.zones.get(&place.zone).copied();
        of_zone.or_else(|| self.covered.region(place)).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The moments as of which its parts were listed.
    pub fn moments(&self) -> impl Iterator<Item = Timestamp> {
        self.covered.moments().chain(self.zones.values().copied())
    }

    /// When the oldest part of the listing was true.
    pub fn oldest(&self) -> Timestamp {
        self.moments().min().unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The same, with nothing later than `now`: the supplier's clock may be ahead.
    #[must_use]
    pub fn happened_by(mut self, now: Timestamp) -> Self {
        match &mut self.covered {
            Covered::Everywhere(as_of) => *as_of = now.min(*as_of),
            Covered::Regions(regions) => regions.values_mut().for_each(|as_of| *as_of = now.min(*as_of)),
        }
        self.zones.values_mut().for_each(|as_of| *as_of = now.min(*as_of));
        for made in self.instances.values_mut().filter(|made| made.launched_at > now) {
            *made = Arc::new(Instance::clone(made).happened_by(now));
        }
        self
    }
}

impl Covered {
    /// When that place's region was listed; `None` where it is not one of these.
    pub fn region(&self, place: &Place) -> Option<Timestamp> {
        match self {
            Self::Everywhere(as_of) => Some(*as_of),
            // There are few, and a key would be a copy of two texts.
            Self::Regions(regions) => {
                let mut regions = regions.iter();
                regions
                    .find_map(|((cloud, region), as_of)| (*cloud == place.cloud && *region == place.region).then_some(*as_of))
            }
        }
    }

    /// The moments as of which it was listed.
    fn moments(&self) -> impl Iterator<Item = Timestamp> {
        let (everywhere, regions) = match self {
            Self::Everywhere(as_of) => (Some(*as_of), None),
            Self::Regions(regions) => (None, Some(regions.values().copied())),
        };
        everywhere.into_iter().chain(regions.into_iter().flatten())
    }
}

/// What a supplier tells of a quota of its account, in the quota's own unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaFact {
    /// The limit.
    pub limit: u32,
    /// What the whole account uses of it, this cluster included; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u32>,
    /// When this was true.
    pub as_of: Timestamp,
}

/// What a supplier tells of a reservation of its account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservationFact {
    /// Where it keeps machines, and of which type.
    pub place: Place,
    /// How many it keeps.
    pub total: u32,
    /// How many of these are not used; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u32>,
    /// When it ends; `None` where it does not, or that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Timestamp>,
    /// When this was true.
    pub as_of: Timestamp,
}

/// What a supplier tells of an instance type. It is truer than a table, which may be older than the type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineFact {
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Main memory.
    pub memory: MiB,
    /// Whole GPUs; `None` where it has parts of one, or that is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Its network interfaces; `None` where they are not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// All its local disks; `None` where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_disk: Option<MiB>,
    /// When this was true.
    pub as_of: Timestamp,
}

impl MachineFact {
    /// A type as this tells it, where a table knows its GPU.
    pub fn corrected(&self, spec: &Arc<InstanceSpec>) -> Arc<InstanceSpec> {
        let Self { vcpus, memory, gpus, network, local_disk, .. } = *self;
        let whole = gpus.filter(|_| spec.gpus.0 >= 1000).and_then(|gpus| gpus.checked_mul(1000)).map(Milli);
        let told = InstanceSpec {
            vcpus: Some(vcpus),
            memory: Some(memory),
            gpus: whole.unwrap_or(spec.gpus),
            network: network.or(spec.network),
            local_disk,
            ..InstanceSpec::clone(spec)
        };
        if told == **spec { Arc::clone(spec) } else { Arc::new(told) }
    }
}

/// What a supplier knows of its markets and its account: slow facts, asked now and then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarketFacts {
    /// The clouds it can make nodes in.
    pub clouds: BTreeSet<Cloud>,
    /// The regions of these that it can make nodes in; all where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<BTreeSet<(Cloud, Region)>>,
    /// What it makes nodes with; empty where there is one way, which needs no name, and `None` where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_classes: Option<BTreeSet<NodeClassName>>,
    /// The only places where it can make nodes, of regions of which it says so: a cloud sells few types in all zones, and an account may
    /// have no subnet in one.
    #[serde(default, with = "crate::base::pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub offered: BTreeMap<(Cloud, Region), BTreeSet<Place>>,
    /// Whether its nodes say by labels how they were bought. All that the scheduler reads is alike within a group, so pools' groups are
    /// split by it.
    #[serde(default)]
    pub labels_capacity_type: bool,
    /// What this account calls each zone. A zone that is not here is called by its id.
    #[serde(with = "crate::base::pairs")]
    pub zone_names: BTreeMap<(Cloud, ZoneId), ZoneName>,
    /// Live quotes. They replace the table's.
    #[serde(with = "crate::base::pairs")]
    pub quotes: BTreeMap<Market, Quote>,
    /// Quotas of the account, where it tells them.
    #[serde(default, with = "crate::base::pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub quotas: BTreeMap<QuotaKey, QuotaFact>,
    /// Reservations of the account by their ids, where it tells them. They are shown, and the policy's commitments count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reservations: BTreeMap<String, ReservationFact>,
    /// What instance types are made of, where it tells that. It replaces the table's figures.
    #[serde(default, with = "crate::base::pairs", skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<(Cloud, InstanceType), MachineFact>,
}

/// Why a supplier cannot make a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum CannotMake {
    /// It is of another cloud.
    #[error("it makes no nodes in this cloud")]
    Cloud,
    /// It has no part of the cloud there.
    #[error("it makes no nodes in this region")]
    Region,
    /// That type is not sold in that zone, or not to this account.
    #[error("it makes no node of this type in this zone: the cloud does not sell it there, or no subnet is configured there")]
    Place,
    /// It knows no such node class, or must be told one.
    #[error("{}; it has {}", .named.as_ref().map_or_else(|| "the pool names no nodeClass".to_owned(), |name| format!("it has no node class {name}")), .known.join(", "))]
    NodeClass {
        /// What the pool names.
        named: Option<NodeClassName>,
        /// What there is.
        known: Vec<String>,
    },
}

impl MarketFacts {
    /// What it tells of the instance type of that place.
    pub fn machine(&self, place: &Place) -> Option<&MachineFact> {
        // Most suppliers tell none, and the key is two texts.
        if self.machines.is_empty() { None } else { self.machines.get(&(place.cloud.clone(), place.instance_type.clone())) }
    }

    /// Whether it can make a node there, with that node class.
    ///
    /// # Errors
    /// Why not.
    pub fn can_make(&self, place: &Place, class: Option<&NodeClassName>) -> Result<(), CannotMake> {
        if !self.clouds.contains(&place.cloud) {
            return Err(CannotMake::Cloud);
        }
        let here = |regions: &BTreeSet<(Cloud, Region)>| regions.contains(&(place.cloud.clone(), place.region.clone()));
        if !self.regions.as_ref().is_none_or(here) {
            return Err(CannotMake::Region);
        }
        // Most suppliers tell none, and the key is two texts.
        let offered = || self.offered.get(&(place.cloud.clone(), place.region.clone()));
        if !self.offered.is_empty() && offered().is_some_and(|places| !places.contains(place)) {
            return Err(CannotMake::Place);
        }
        let Some(classes) = &self.node_classes else { return Ok(()) };
        if class.map_or(classes.is_empty(), |class| classes.contains(class)) {
            return Ok(());
        }
        let known = match classes.iter().map(ToString::to_string).collect::<Vec<_>>() {
            known if known.is_empty() => vec!["none by name".to_owned()],
            known => known,
        };
        Err(CannotMake::NodeClass { named: class.cloned(), known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supplier_makes_no_node_where_its_cloud_sells_none() {
        let place = |zone: &str| Place {
            cloud: Cloud::new("aws").unwrap(),
            region: Region::new("us-east-1").unwrap(),
            zone: ZoneId::new(zone).unwrap(),
            instance_type: InstanceType::new("g6.xlarge").unwrap(),
        };
        let (here, there) = (place("use1-az1"), place("use1-az3"));
        let region = (here.cloud.clone(), here.region.clone());
        let mut facts = MarketFacts { clouds: [here.cloud.clone()].into(), ..MarketFacts::default() };
        facts.node_classes = Some(BTreeSet::new());
        assert_eq!(facts.can_make(&there, None), Ok(()), "it has not said");
        facts.offered.insert(region, [here.clone()].into());
        assert_eq!((facts.can_make(&here, None), facts.can_make(&there, None)), (Ok(()), Err(CannotMake::Place)));
    }

    #[test]
    fn a_key_reads_back_as_it_was_written() {
        let key = "prod/inference.g6-xlarge.us-east-1a/0c4de2a1/12/3";
        let parts: KeyParts = key.parse().unwrap();
        assert_eq!((parts.record, parts.incarnation.as_ref().map(Incarnation::as_str)), (RecordId(12), Some("0c4de2a1")));
        assert_eq!(parts.key().unwrap().as_str(), key);
    }

    #[test]
    fn a_key_from_before_journals_had_names_reads_back_as_it_was_written() {
        let key = "prod/inference.g6-xlarge.us-east-1a/12/3";
        let parts: KeyParts = key.parse().unwrap();
        assert_eq!((parts.record, parts.attempt, &parts.incarnation), (RecordId(12), 3, &None));
        assert_eq!(parts.key().unwrap().as_str(), key);
    }

    #[test]
    fn what_is_not_a_key_is_refused() {
        for text in ["", "a/b/c", "a/b/1/2/3", "a/b/0C4DE2A1/2/3", "a/b/0c4de2a1/c/2/3", "a/b/x/1", "/b/1/1", "a/b/1/-1"] {
            assert!(text.parse::<KeyParts>().is_err(), "{text}");
        }
    }
}
