//! The world file as written: how the simulated clouds behave. Absent or empty, it is the default world.
//!
//! Where a default is a measurement, the field says of what.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stoker_core::market::offer::CapacityType;

/// How the simulated clouds behave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Stoker simulated world")]
pub struct WorldConfig {
    /// What all chance is drawn from: two worlds with the same seed and the same calls are the same. Default 1.
    pub seed: u64,
    /// How much each market has.
    pub stock: StockConfig,
    /// How long machines take to boot.
    pub boot: BootConfig,
    /// How long a machine that was told to end is still listed, as stopping. Default 30 s.
    pub stop_seconds: u32,
    /// How clouds take spot machines back.
    pub reclaims: ReclaimConfig,
    /// Markets that run dry now and then.
    pub spells: SpellConfig,
    /// How the clouds answer.
    pub api: ApiConfig,
    /// What differs in some markets. Of several rows that match a market, the last that names a field counts.
    pub markets: Vec<MarketConfig>,
    /// Markets whose machines never finish booting, as with an image that cannot join. They are pending for ever, and paid for.
    pub broken_images: Vec<MarketMatch>,
    /// When markets have nothing to sell. What runs there goes on.
    pub stock_outs: Vec<StockOutConfig>,
    /// Quotas of the account that the clouds tell. Default none. They refuse nothing.
    pub quotas: Vec<QuotaConfig>,
    /// Reservations of the account that the clouds tell. Default none. What is sold of them is the stock of their reserved markets.
    pub reservations: Vec<ReservationConfig>,
}

/// A quota that a cloud tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuotaConfig {
    /// What the cloud calls it, e.g. `L-DB2E81BA`.
    pub name: String,
    /// The cloud.
    pub cloud: String,
    /// The region; all together where it is not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The limit, in the quota's unit.
    pub limit: u32,
    /// What the account uses of it; unknown where it is not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u32>,
}

/// A reservation that a cloud tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReservationConfig {
    /// The cloud's id of it, e.g. `cr-0a1b`.
    pub id: String,
    /// The cloud.
    pub cloud: String,
    /// The region.
    pub region: String,
    /// The zone, by id.
    pub zone: String,
    /// The instance type.
    pub instance_type: String,
    /// Machines that it keeps.
    pub total: u32,
    /// Those that are not used; unknown where it is not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u32>,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            stock: StockConfig::default(),
            boot: BootConfig::default(),
            stop_seconds: 30,
            reclaims: ReclaimConfig::default(),
            spells: SpellConfig::default(),
            api: ApiConfig::default(),
            markets: Vec::new(),
            broken_images: Vec::new(),
            stock_outs: Vec::new(),
            quotas: Vec::new(),
            reservations: Vec::new(),
        }
    }
}

/// How many GPUs each market can have running at a time, by how sought-after its GPUs are, told by their memory. A market holds at
/// least one machine, unless the figure is nought. Reserved capacity is nought everywhere: nobody reserved any; name it under `markets`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct StockConfig {
    /// GPUs of up to 24 GiB: T4, L4, A10G, small V100. Default 64.
    pub plenty: u32,
    /// GPUs of up to 48 GiB, and of unknown memory: L40S, small A100. Default 32.
    pub some: u32,
    /// Larger GPUs: large A100, H100, H200, B200. Default 16, what a public probe of H100 spot asked of each zone
    /// and got 44 % of the time.
    pub scarce: u32,
}

impl Default for StockConfig {
    fn default() -> Self {
        Self { plenty: 64, some: 32, scarce: 16 }
    }
}

/// From launch to booted, lognormal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct BootConfig {
    /// Median on clouds that are not named below. Default 150 s.
    pub median_seconds: u32,
    /// Spread: standard deviation of the logarithm. Nought makes every boot take its median. Default 0.3.
    pub sigma: f64,
    /// Median by cloud. Default aws 150 s, gcp 180 s, azure 300 s: the middle of what is reported for GPU nodes (AWS 90 to 180 s and
    /// 30 to 60 s for driver and device plugin, GKE 120 to 240 s, AKS 180 to 480 s). Naming this list replaces all of it.
    pub clouds: BTreeMap<String, u32>,
}

impl Default for BootConfig {
    fn default() -> Self {
        let clouds = [("aws", 150), ("gcp", 180), ("azure", 300)];
        Self { median_seconds: 150, sigma: 0.3, clouds: clouds.map(|(cloud, s)| (cloud.to_owned(), s)).into() }
    }
}

/// How clouds take spot machines back: in waves that take everything a market runs, each machine with its own notice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ReclaimConfig {
    /// Waves per hour in each spot market. Default 0.15, as measured on V100 in good regions (0.09 to 0.23; poor ones and H100 up to
    /// 2.1). The providers' own tables are a hundred times milder.
    pub per_hour: f64,
    /// Time from the notice to the end on clouds that are not named below. Default 30 s.
    pub notice_seconds: u32,
    /// Time from the notice to the end by cloud. Default aws 120 s, gcp 30 s, azure 30 s. Naming this list replaces all of it.
    pub clouds: BTreeMap<String, u32>,
    /// Within what time all machines of a market get their notice. Default 180 s: 92 % of reclaims of one type in one zone
    /// fall within 3 min of another.
    pub spread_seconds: u32,
    /// How long a market has nothing to sell after a wave. Default 1800 s, the median of measured dry spells (0.4 to 0.7 h).
    pub stock_out_seconds: u32,
}

impl Default for ReclaimConfig {
    fn default() -> Self {
        let clouds = [("aws", 120), ("gcp", 30), ("azure", 30)];
        Self {
            per_hour: 0.15,
            notice_seconds: 30,
            clouds: clouds.map(|(cloud, s)| (cloud.to_owned(), s)).into(),
            spread_seconds: 180,
            stock_out_seconds: 1800,
        }
    }
}

/// Markets whose stock comes and goes in alternating spells, beside reclaims. What runs there goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SpellConfig {
    /// Share of spot markets that do so. Default 0.05.
    pub spot_share: f64,
    /// Share of on-demand markets that do so. Default 0: no public series of on-demand stock-outs is known.
    pub on_demand_share: f64,
    /// How long there is stock. Default median 1.28 h, sigma 1.62, as fitted to a middling V100 market.
    pub in_stock: SpellLength,
    /// How long there is none. Default median 0.76 h, sigma 1.32, as fitted to a middling V100 market.
    pub out_of_stock: SpellLength,
}

impl Default for SpellConfig {
    fn default() -> Self {
        Self {
            spot_share: 0.05,
            on_demand_share: 0.0,
            in_stock: SpellLength { median_hours: 1.28, sigma: 1.62 },
            out_of_stock: SpellLength { median_hours: 0.76, sigma: 1.32 },
        }
    }
}

/// How long a spell lasts, lognormal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpellLength {
    /// Median.
    pub median_hours: f64,
    /// Spread: standard deviation of the logarithm.
    pub sigma: f64,
}

/// How the clouds answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiConfig {
    /// Share of answers that are errors. Half of the launches and terminations that fail so were carried out all the same. Default 0.
    pub error_rate: f64,
    /// How long an answer takes, evenly between two bounds.
    pub latency_ms: LatencyConfig,
    /// Share of listings that leave machines out, and say so. Default 0.
    pub partial_listing_rate: f64,
    /// How many launches may be under way at a time. Default 50.
    pub max_in_flight: u32,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self { error_rate: 0.0, latency_ms: LatencyConfig::default(), partial_listing_rate: 0.0, max_in_flight: 50 }
    }
}

/// How long an answer takes, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LatencyConfig {
    /// At least. Default 50.
    pub min: u32,
    /// At most. Default 400.
    pub max: u32,
}

impl Default for LatencyConfig {
    fn default() -> Self {
        Self { min: 50, max: 400 }
    }
}

/// Which markets are meant: those that have every property named. Without any it means all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MarketMatch {
    /// The cloud, e.g. `aws`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// The region, e.g. `us-east-1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The zone, by id (`use1-az1`) or name (`us-east-1a`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The instance type: a name, or a prefix ending in `*`, e.g. `g6.*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The capacity type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<CapacityType>,
}

/// What differs in some markets. Name at least one property.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MarketConfig {
    /// In which.
    #[serde(rename = "match")]
    pub market: MarketMatch,
    /// Machines that can exist at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stock: Option<u32>,
    /// Median boot time; `boot.sigma` spreads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_seconds: Option<u32>,
    /// Reclaim waves per hour. Says nothing to markets that are not spot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaims_per_hour: Option<f64>,
    /// Dollars per node-hour around which the spot price drifts. Says nothing to markets that are not spot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_price: Option<Dollars>,
}

/// An amount of dollars: `0.25` or `"0.25"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Dollars {
    /// As a number.
    Number(f64),
    /// As text.
    Text(String),
}

impl std::fmt::Display for Dollars {
    /// The digits as written: the shortest decimal that reads as the same number, so that no cent is made up.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A time in which markets have nothing to sell, counted from the world's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StockOutConfig {
    /// In which.
    #[serde(default, rename = "match")]
    pub market: MarketMatch,
    /// When it begins after the world's start, e.g. `10m`.
    pub from: String,
    /// How long it lasts, e.g. `1h30m`.
    #[serde(rename = "for")]
    pub length: String,
}
