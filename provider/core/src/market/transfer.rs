//! Data transfer: where a pool's data lies, how far its nodes may be from it, and the cost of
//! transfer.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::ids::{Cloud, Region, ZoneId};
use crate::base::units::{UsdMicros, UsdPerHour};
use crate::market::hazard::Hazard;

/// A part of the world as the clouds' price lists divide it: the Middle East is one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Continent {
    /// Africa.
    Africa,
    /// Asia without the Middle East.
    Asia,
    /// Europe.
    Europe,
    /// The Middle East.
    MiddleEast,
    /// North America, Mexico included.
    NorthAmerica,
    /// Australia and the Pacific.
    Oceania,
    /// South America.
    SouthAmerica,
}

impl Continent {
    /// Every continent, in declared order.
    pub const ALL: [Self; 7] =
        [Self::Africa, Self::Asia, Self::Europe, Self::MiddleEast, Self::NorthAmerica, Self::Oceania, Self::SouthAmerica];

    /// Its name in the tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Africa => "africa",
            Self::Asia => "asia",
            Self::Europe => "europe",
            Self::MiddleEast => "middle-east",
            Self::NorthAmerica => "north-america",
            Self::Oceania => "oceania",
            Self::SouthAmerica => "south-america",
        }
    }
}

impl fmt::Display for Continent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A price of moved data: micro-dollars per GiB. Nought is a price: some transfers are free, and say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsdPerGiB(pub i64);

impl UsdPerGiB {
    /// What so many GiB cost; saturates.
    pub fn of(self, gib: u64) -> UsdMicros {
        UsdMicros(self.0.saturating_mul(i64::try_from(gib).unwrap_or(i64::MAX)))
    }
}

/// Where something lies: a region of a cloud, or one zone of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// The cloud.
    pub cloud: Cloud,
    /// The region.
    pub region: Region,
    /// The zone, of what only one zone has; `None` for what every zone of the region reads alike, such as a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<ZoneId>,
}

impl fmt::Display for Site {
    /// `aws/us-east-1`, or `aws/us-east-1/use1-az6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cloud, self.region)?;
        self.zone.as_ref().map_or(Ok(()), |zone| write!(f, "/{zone}"))
    }
}

/// How far from its data a pool may buy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MaxDistance {
    /// In the region where the data lies.
    Region,
    /// On the continent where the data lies, in any cloud that the pool names.
    Continent,
    /// Wherever the pool may buy.
    #[default]
    Any,
}

impl fmt::Display for MaxDistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Region => "region",
            Self::Continent => "continent",
            Self::Any => "any",
        })
    }
}

/// A pool's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    /// Where it lies.
    pub at: Site,
    /// How far from it nodes may be.
    pub within: MaxDistance,
    /// What a node reads of it; `None` where reading it is not reckoned with.
    pub set: Option<DataSet>,
}

/// What a node reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataSet {
    /// How much at a time; above nought.
    pub gib: u64,
    /// How long a node works with what it has read: its life, or the time until it reads again if that is shorter. Above nought.
    pub every: SignedDuration,
}

/// What reading the data costs a node of one group, which is not where the data lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transfer {
    /// Each time.
    pub per_read: UsdMicros,
    /// How long a node works with what it has read.
    pub every: SignedDuration,
}

impl Transfer {
    /// The cost spread over the node's hours, rounded up. The node that follows a reclaimed one reads again, so reclaims add their rate to
    /// that of reading; capacity that nobody takes back has a hazard of nought.
    pub fn per_hour(&self, hazard: Hazard) -> UsdPerHour {
        let every = i128::from(self.every.as_secs().max(1));
        // Readings per hour are 3600 ÷ every + hazard ÷ 10⁹, here over the common denominator.
        let readings = 3_600_000_000_000 + i128::from(hazard.0).saturating_mul(every);
        let per = every * 1_000_000_000;
        let micros = i128::from(self.per_read.0).saturating_mul(readings).saturating_add(per - 1) / per;
        UsdPerHour(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

/// What data crosses on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Crossing {
    /// From one zone to another of the same region.
    Zone,
    /// From one region to another of the same cloud.
    Region,
    /// From one cloud to another.
    Internet,
}

/// One end of a hop: where a price holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// One region.
    Region(Region),
    /// Every region of the cloud on a continent.
    Continent(Continent),
    /// Everywhere.
    Anywhere,
}

/// What a price is said of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hop {
    /// The cloud that the data leaves, which is the one that charges for it.
    pub cloud: Cloud,
    /// What it crosses.
    pub crosses: Crossing,
    /// From where.
    pub from: End,
    /// To where.
    pub to: End,
}

/// Prices of moved data, and on which continent each region is. What is not here is unknown, and never free.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferPrices {
    #[serde(with = "crate::base::pairs")]
    continents: BTreeMap<(Cloud, Region), Continent>,
    #[serde(with = "crate::base::pairs")]
    prices: BTreeMap<Hop, UsdPerGiB>,
}

impl TransferPrices {
    /// Notes on which continent a region is.
    pub fn insert_continent(&mut self, cloud: Cloud, region: Region, continent: Continent) {
        self.continents.insert((cloud, region), continent);
    }

    /// Adds or replaces a price.
    pub fn insert(&mut self, hop: Hop, price: UsdPerGiB) {
        self.prices.insert(hop, price);
    }

    /// The continent of a region; `None` where no table tells it.
    pub fn continent(&self, cloud: &Cloud, region: &Region) -> Option<Continent> {
        self.continents.get(&(cloud.clone(), region.clone())).copied()
    }

    /// Every region whose continent is known.
    pub fn regions(&self) -> impl Iterator<Item = (&Cloud, &Region)> {
        self.continents.keys().map(|(cloud, region)| (cloud, region))
    }

    /// What a GiB costs from one site to another; `None` where no table tells it. Within a region only what lies in one zone has a price
    /// to another: every zone reads a bucket of its region for nothing. Of several prices the one holds that says most of where the
    /// data goes, and then most of where it comes from.
    pub fn price(&self, from: &Site, to: &Site) -> Option<UsdPerGiB> {
        let crosses = if from.cloud != to.cloud {
            Crossing::Internet
        } else if from.region != to.region {
            Crossing::Region
        } else if from.zone.as_ref().is_some_and(|zone| to.zone.as_ref() != Some(zone)) {
            Crossing::Zone
        } else {
            return Some(UsdPerGiB(0));
        };
        let scopes = |site: &Site| {
            let continent = self.continent(&site.cloud, &site.region).map(End::Continent);
            [Some(End::Region(site.region.clone())), continent, Some(End::Anywhere)].into_iter().flatten()
        };
        let cloud = &from.cloud;
        scopes(to).find_map(|to| {
            scopes(from).find_map(|from| {
                let hop = Hop { cloud: cloud.clone(), crosses, from, to: to.clone() };
                self.prices.get(&hop).copied()
            })
        })
    }
}
