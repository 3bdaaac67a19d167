//! Prices: amount, date and source.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region};
use crate::base::kinds::CommitmentKind;
use crate::base::units::{Milli, UsdPerHour};
use crate::market::offer::{GpuSpec, InstanceSpec, Market, Place};
use crate::market::transfer::TransferPrices;

/// How long a spot quote of a price table says anything. Spot prices move by up to 0.9 % of on-demand a day
/// (V100 on AWS, 2023: `SkyNomad`'s probes), so a week keeps the error under the smallest gap between two GPU models.
pub const SPOT_QUOTE_LIFE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How long a live quote counts: feeds ask every few minutes, so several answers may fail before one lapses.
pub const LIVE_QUOTE_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// Past this age a list price is still used, and warned of: the large AWS cut of June 2025 came 90 days after the last one.
pub const OLD_LIST_PRICE: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Where a quote comes from, which decides how long it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuoteKind {
    /// A published on-demand price: used at any age, warned of when old.
    List,
    /// A spot price from a table: counts for [`SPOT_QUOTE_LIFE`].
    Spot,
    /// Asked from the market itself: counts for [`LIVE_QUOTE_LIFE`].
    Live,
    /// The operator's own word (`prices:` in the policy): always counts.
    Operator,
    /// Asked from a simulated market: counts as long as a live quote, and is never shown as one.
    Simulated,
}

impl fmt::Display for QuoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::List => "list",
            Self::Spot => "spot",
            Self::Live => "live",
            Self::Operator => "operator",
            Self::Simulated => "simulated",
        })
    }
}

/// A price with its age and source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// Price of one node.
    pub price: UsdPerHour,
    /// What kind of word this is.
    pub kind: QuoteKind,
    /// When it was true; `None` where the source is undated.
    pub as_of: Option<Timestamp>,
    /// Who said so, e.g. `ec2shop@2025-04-04`.
    pub source: Arc<str>,
}

impl Quote {
    /// Its age; `None` where the source is undated, or dated more than a day after `wall`: then one of the
    /// two is wrong, and nobody knows how old it is.
    pub fn age(&self, wall: Wall) -> Option<SignedDuration> {
        let age = wall.0.duration_since(self.as_of?);
        (age >= -SignedDuration::from_hours(24)).then(|| age.max(SignedDuration::ZERO))
    }

    /// Whether an operator should be warned that this list price is old or undated.
    pub fn is_old(&self, wall: Wall) -> bool {
        self.kind == QuoteKind::List && self.as_of.is_none_or(|at| wall.0.duration_since(at) > OLD_LIST_PRICE)
    }

    /// The moment past which this quote no longer counts; `None` for one that never lapses.
    pub fn lapses_at(&self) -> Option<Timestamp> {
        let life = match self.kind {
            QuoteKind::List | QuoteKind::Operator => return None,
            QuoteKind::Spot => SPOT_QUOTE_LIFE,
            QuoteKind::Live | QuoteKind::Simulated => LIVE_QUOTE_LIFE,
        };
        Some(self.as_of.map_or(Timestamp::MIN, |at| at.saturating_add(life).unwrap_or(Timestamp::MAX)))
    }
}

/// Why what is known of a market is no price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoSignal {
    /// The spot quote equals the on-demand price: there is no spot market here.
    PinnedAtOnDemand,
    /// The spot quote is AWS's floor of a tenth of on-demand: nobody asks, so nobody knows.
    Floor,
    /// A list price of something that cannot be ordered on demand.
    ListOnly,
    /// Reserved capacity that no commitment of the policy keeps.
    Unreserved,
}

impl fmt::Display for NoSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PinnedAtOnDemand => "spot quote is pinned at the on-demand price: no spot market",
            Self::Floor => "spot quote is the floor of a tenth of on-demand: no signal",
            Self::ListOnly => "has a list price but cannot be ordered on demand",
            Self::Unreserved => "no reservation covers it: add one under commitments",
        })
    }
}

/// What the book holds of one market.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A price.
    Price(Quote),
    /// A figure that says nothing.
    NoSignal(NoSignal),
}

impl Entry {
    /// Whether the market exists: it has a price, or a quote that only says that nobody asks.
    pub const fn is_sold(&self) -> bool {
        match self {
            Self::Price(_) | Self::NoSignal(NoSignal::Floor) => true,
            Self::NoSignal(NoSignal::PinnedAtOnDemand | NoSignal::ListOnly | NoSignal::Unreserved) => false,
        }
    }
}

/// Why a market has no price now: a reason for not choosing it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Unpriced {
    /// No source names a price.
    #[error("no price known")]
    Unknown,
    /// The only figure says nothing.
    #[error("{0}")]
    NoSignal(NoSignal),
    /// The quote is past its time.
    #[error("{} price has expired{}", .kind, .as_of.map_or_else(|| ": undated".to_owned(), |at| format!(": quoted {}", at.strftime("%Y-%m-%d %H:%MZ"))))]
    Lapsed {
        /// Its kind.
        kind: QuoteKind,
        /// When it was true.
        as_of: Option<Timestamp>,
    },
}

/// What a node costs under a commitment of a full term, used or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermRates {
    /// What is committed to.
    pub kind: CommitmentKind,
    /// For one year; `None` where no source tells.
    pub one_year: Option<UsdPerHour>,
    /// For three years; `None` where no source tells.
    pub three_years: Option<UsdPerHour>,
    /// When they were true; `None` where the source is undated.
    #[serde(default)]
    pub as_of: Option<Timestamp>,
    /// What it is exactly and who said so, e.g. `standard-ri-no-upfront by sooddvs@2026-06-15`.
    pub source: Arc<str>,
}

/// Prices by market, specs by instance type and GPU model, with age and source on every figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceBook {
    #[serde(with = "crate::base::pairs")]
    entries: BTreeMap<Market, Entry>,
    #[serde(with = "crate::base::pairs")]
    instances: BTreeMap<(Cloud, InstanceType), Arc<InstanceSpec>>,
    gpus: BTreeMap<GpuModel, Vec<GpuSpec>>,
    #[serde(with = "crate::base::pairs")]
    unzoned: BTreeMap<(Cloud, Region, InstanceType), Quote>,
    #[serde(with = "crate::base::pairs")]
    reclaims: BTreeMap<Place, Milli>,
    #[serde(default)]
    transfers: TransferPrices,
    /// Absent in books of older releases.
    #[serde(with = "crate::base::pairs", default)]
    terms: BTreeMap<(Cloud, Region, InstanceType), TermRates>,
}

impl PriceBook {
    /// A book without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a market's entry.
    pub fn insert(&mut self, market: Market, entry: Entry) {
        self.entries.insert(market, entry);
    }

    /// Adds or replaces an instance type's specification.
    pub fn insert_spec(&mut self, spec: InstanceSpec) {
        self.instances.insert((spec.cloud.clone(), spec.instance_type.clone()), Arc::new(spec));
    }

    /// Adds a GPU model, or another memory size of it.
    pub fn insert_gpu(&mut self, spec: GpuSpec) {
        self.gpus.entry(spec.model.clone()).or_default().push(spec);
    }

    /// Notes a list price of a type whose zones no source tells: shown, but not orderable.
    pub fn insert_unzoned(&mut self, cloud: Cloud, region: Region, instance_type: InstanceType, quote: Quote) {
        self.unzoned.insert((cloud, region, instance_type), quote);
    }

    /// Notes how often spot nodes here are reclaimed: the share of them per month, in thousandths.
    pub fn insert_reclaims(&mut self, place: Place, per_month: Milli) {
        self.reclaims.insert(place, per_month);
    }

    /// Takes over what moving data costs.
    pub fn set_transfers(&mut self, transfers: TransferPrices) {
        self.transfers = transfers;
    }

    /// Notes what a type costs in a region under a commitment.
    pub fn insert_terms(&mut self, cloud: Cloud, region: Region, instance_type: InstanceType, rates: TermRates) {
        self.terms.insert((cloud, region, instance_type), rates);
    }

    /// The price of one node in this market at `wall`.
    ///
    /// # Errors
    /// Says why there is none; such a market is left out and its reason shown.
    pub fn quote(&self, market: &Market, wall: Wall) -> Result<&Quote, Unpriced> {
        usable(self.entries.get(market), wall)
    }

    /// What the book holds of a market, lapsed or not.
    pub fn entry(&self, market: &Market) -> Option<&Entry> {
        self.entries.get(market)
    }

    /// The list price of a type whose zones no source tells.
    pub fn unzoned_quote(&self, place: &Place) -> Option<&Quote> {
        self.unzoned.get(&(place.cloud.clone(), place.region.clone(), place.instance_type.clone()))
    }

    /// Every market with its entry, in market order.
    pub fn entries(&self) -> impl Iterator<Item = (&Market, &Entry)> {
        self.entries.iter()
    }

    /// An instance type's specification.
    pub fn spec(&self, cloud: &Cloud, instance_type: &InstanceType) -> Option<&Arc<InstanceSpec>> {
        // The pair is cloned because a borrowed pair is no key of a map of pairs; look-ups happen when groups are derived, not per pass.
        self.instances.get(&(cloud.clone(), instance_type.clone()))
    }

    /// Every instance type, in order.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<InstanceSpec>> {
        self.instances.values()
    }

    /// The memory sizes a GPU model comes in; empty where the model is unknown.
    pub fn gpu(&self, model: &GpuModel) -> &[GpuSpec] {
        self.gpus.get(model).map_or(&[], Vec::as_slice)
    }

    /// What the GPUs of an instance type can do; `None` where no source tells. Sources disagree by some GiB on the memory of new models,
    /// so the size matters only where a model comes in several.
    pub fn gpu_of(&self, spec: &InstanceSpec) -> Option<&GpuSpec> {
        match self.gpu(&spec.gpu_model) {
            [only] => Some(only),
            sizes => sizes.iter().find(|size| size.memory == spec.gpu_memory),
        }
    }

    /// Every GPU model known.
    pub fn gpu_models(&self) -> impl Iterator<Item = &GpuModel> {
        self.gpus.keys()
    }

    /// List prices of types whose zones no source tells.
    pub fn unzoned(&self) -> impl Iterator<Item = (&(Cloud, Region, InstanceType), &Quote)> {
        self.unzoned.iter()
    }

    /// What a type costs in a region under a commitment, where a source tells.
    pub fn terms(&self, place: &Place) -> Option<&TermRates> {
        self.terms.get(&(place.cloud.clone(), place.region.clone(), place.instance_type.clone()))
    }

    /// What types cost under a commitment, by cloud, region and type.
    pub fn all_terms(&self) -> impl Iterator<Item = (&(Cloud, Region, InstanceType), &TermRates)> {
        self.terms.iter()
    }

    /// The share of spot nodes reclaimed per month here, where a source tells.
    pub fn reclaims(&self, place: &Place) -> Option<Milli> {
        self.reclaims.get(place).copied()
    }

    /// What moving data costs, and on which continent each region is.
    pub const fn transfers(&self) -> &TransferPrices {
        &self.transfers
    }
}

/// Whether an entry is a price that counts at `wall`.
///
/// # Errors
/// Says why not.
pub fn usable(entry: Option<&Entry>, wall: Wall) -> Result<&Quote, Unpriced> {
    match entry {
        None => Err(Unpriced::Unknown),
        Some(Entry::NoSignal(why)) => Err(Unpriced::NoSignal(*why)),
        Some(Entry::Price(quote)) if quote.lapses_at().is_some_and(|end| wall.shows(end)) => {
            Err(Unpriced::Lapsed { kind: quote.kind, as_of: quote.as_of })
        }
        Some(Entry::Price(quote)) => Ok(quote),
    }
}
