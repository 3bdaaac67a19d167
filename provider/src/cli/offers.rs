//! `stoker offers`: what the tables and the markets sell, cheapest GPU first.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId, ZoneName};
use stoker_core::base::text::nearest;
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::limits::commitment::Term;
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::{PriceBook, Quote, QuoteKind, usable};

use super::args::{LiveArg, MarketArgs, NowArg, OutputArg, whole};
use super::candidates::{Notes, QuoteRow, Sources};
use super::exit::{CliError, Exit, NotFound};
use super::out::{self, Money};
use stoker_service::price_tables::PriceTables;
use stoker_service::print::table;

/// Lists what can be bought, cheapest GPU first, with the age and source of each price.
///
/// The share of spot machines taken back per month is the cloud's own figure; measured rates of GPU spot markets can be up to 100 times higher.
#[derive(Debug, Args)]
pub(super) struct OffersArgs {
    #[command(flatten)]
    filter: OfferFilter,
    /// Maximum rows (0 = all)
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = whole(0_usize..), allow_negative_numbers = true)]
    limit: usize,
    /// Include offers without a usable price, and why
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    markets: MarketArgs,
    #[command(flatten)]
    live: LiveArg,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

/// Which offers count.
#[derive(Debug, Args)]
pub(super) struct OfferFilter {
    /// Only these GPU models, e.g. L4,A10G
    #[arg(long, value_name = "MODEL", value_delimiter = ',')]
    gpu: Vec<String>,
    /// Only GPUs with at least this much memory each, in GiB
    #[arg(long, value_name = "GIB", value_parser = whole(0_u32..), allow_negative_numbers = true)]
    min_memory: Option<u32>,
    /// Only these clouds, e.g. aws,gcp
    #[arg(long, value_name = "CLOUD", value_delimiter = ',')]
    cloud: Vec<String>,
    /// Only these regions
    #[arg(long, value_name = "REGION", value_delimiter = ',')]
    region: Vec<String>,
    /// Only this capacity type; reserved lists what the tables say that a commitment of one or three years costs
    #[arg(long, value_enum, value_name = "TYPE", value_delimiter = ',')]
    capacity_type: Vec<CapacityArg>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CapacityArg {
    Reserved,
    Spot,
    OnDemand,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OffersReport {
    at: Timestamp,
    /// Offers that match, shown or not.
    matching: usize,
    /// Of those, the ones without a price.
    unpriced: usize,
    offers: Vec<OfferRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfferRow {
    cloud: Cloud,
    region: Region,
    /// `None` where no source tells the zones.
    zone: Option<ZoneId>,
    zone_name: Option<ZoneName>,
    instance_type: InstanceType,
    capacity_type: CapacityType,
    /// For how long a reserved rate commits.
    term: Option<Term>,
    gpu_model: Option<GpuModel>,
    /// Advertised GPUs of one node.
    gpus: Option<u32>,
    /// Memory of one advertised GPU.
    gpu_memory_mib: Option<u64>,
    vcpus: Option<u32>,
    memory_mib: Option<u64>,
    /// `None` where no price counts.
    price: Option<OfferPrice>,
    /// Share of spot machines taken back per month, in thousandths.
    reclaimed_per_month_milli: Option<u32>,
    /// Whether it can be ordered.
    orderable: bool,
    /// Why it cannot be ordered or has no price.
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfferPrice {
    per_node: Money,
    per_gpu: Money,
    #[serde(flatten)]
    quote: QuoteRow,
    #[serde(skip)]
    shown: [UsdPerHour; 2],
}

/// Carries the command out.
pub(super) async fn run(args: &OffersArgs) -> Result<Exit, CliError> {
    let now = args.now.now();
    let price_tables = PriceTables::load(args.markets.prices_dir.as_deref(), args.markets.world.as_deref(), now)?;
    let price_tables = args.live.ask(price_tables).await?;
    let place = tables(&args.markets);
    args.filter.check(&price_tables.prices, &place)?;
    let mut offers = args.matching(&price_tables, now);
    offers.sort_by(|a, b| a.rank().cmp(&b.rank()));
    let matching = offers.len();
    let unpriced = offers.iter().filter(|offer| offer.price.is_none()).count();
    if args.limit > 0 {
        offers.truncate(args.limit);
    }
    if matching == 0 {
        let cure =
            if args.all { "widen the filters" } else { "widen the filters, or give --all to include offers without a price" };
        return Err(CliError::NotFound(NotFound {
            what: "matching offer",
            name: String::new(),
            place,
            cure: Some(cure.to_owned()),
        }));
    }
    out::print(args.output.format, &OffersReport { at: now, matching, unpriced, offers }, OffersReport::table)?;
    Ok(Exit::Done)
}

/// What the price tables are called.
pub(super) fn tables(markets: &MarketArgs) -> String {
    match &markets.prices_dir {
        Some(dir) => format!("the price tables of {}", dir.display()),
        None => "the built-in price tables".to_owned(),
    }
}

/// Refuses a filter that nothing can match: a slip would else look like an empty market.
fn known_only(what: &'static str, given: &[String], known: &BTreeSet<&str>, place: &str) -> Result<(), CliError> {
    let is_known = |name: &&String| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    let Some(unknown) = given.iter().find(|name| !is_known(name)) else { return Ok(()) };
    let cure = match nearest(unknown, known.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None if known.len() <= 40 => format!("they have {}", known.iter().copied().collect::<Vec<_>>().join(", ")),
        None => "run `stoker offers` to see what they have".to_owned(),
    };
    Err(CliError::NotFound(NotFound { what, name: unknown.clone(), place: place.to_owned(), cure: Some(cure) }))
}

impl OffersArgs {
    fn matching(&self, price_tables: &PriceTables, now: Timestamp) -> Vec<OfferRow> {
        let book = &price_tables.prices;
        let zoned = book.entries().filter_map(|(market, _)| {
            let Place { cloud, region, zone, instance_type } = &market.place;
            let spec = book.spec(cloud, instance_type).map(AsRef::as_ref);
            if !self.filter.wants(cloud, region, market.capacity_type, spec) {
                return None;
            }
            let entry = price_tables.entry(market);
            let quote = usable(entry.as_ref(), Wall(now));
            // A figure that counts is of no use per GPU where no source tells how many there are.
            let reason = match (&quote, spec) {
                (Err(why), _) => Some(why.to_string()),
                (Ok(_), None) => Some("it is unknown how many GPUs it has".to_owned()),
                (Ok(_), Some(_)) => None,
            };
            if reason.is_some() && !self.all {
                return None;
            }
            let zone_name = price_tables.facts.values().find_map(|facts| facts.zone_names.get(&(cloud.clone(), zone.clone())));
            let mut row = OfferRow::new(cloud, region, instance_type, market.capacity_type, spec);
            row.price = quote.ok().zip(spec).map(|(quote, spec)| OfferPrice::of(quote, spec, now));
            row.zone = Some(zone.clone());
            row.zone_name = Some(zone_name.cloned().unwrap_or_else(|| ZoneName::from(zone)));
            row.reclaimed_per_month_milli = reclaims(book.reclaims(&market.place), market);
            row.orderable = reason.is_none();
            row.reason = reason;
            Some(row)
        });
        let unzoned = book.unzoned().filter_map(|((cloud, region, instance_type), quote)| {
            let spec = book.spec(cloud, instance_type).map(AsRef::as_ref);
            if !self.filter.wants(cloud, region, CapacityType::OnDemand, spec) || (spec.is_none() && !self.all) {
                return None;
            }
            let mut row = OfferRow::new(cloud, region, instance_type, CapacityType::OnDemand, spec);
            row.price = spec.map(|spec| OfferPrice::of(quote, spec, now));
            row.reason = Some("cannot be ordered: zones unknown".to_owned());
            Some(row)
        });
        let reserved = self.filter.reserved(book).map(|(market, term, quote)| {
            let Place { cloud, region, zone: _, instance_type } = &market.place;
            let spec = book.spec(cloud, instance_type).map(AsRef::as_ref);
            let mut row = OfferRow::new(cloud, region, instance_type, CapacityType::Reserved, spec);
            row.price = spec.map(|spec| OfferPrice::of(&quote, spec, now));
            row.term = Some(term);
            row.reason =
                Some("paid for its whole term, used or not; bought from the cloud, then listed under commitments".to_owned());
            row
        });
        zoned.chain(unzoned).chain(reserved).collect()
    }
}

impl OfferFilter {
    /// Refuses names that the tables do not know.
    pub(super) fn check(&self, prices: &PriceBook, place: &str) -> Result<(), CliError> {
        let known = |what, given: &[String], known: BTreeSet<&str>| known_only(what, given, &known, place);
        let models = prices.gpu_models().chain(prices.specs().map(|spec| &spec.gpu_model));
        known("GPU model", &self.gpu, models.map(GpuModel::as_str).collect())?;
        let markets = prices.entries().map(|(market, _)| (&market.place.cloud, &market.place.region));
        let places: Vec<_> = markets.chain(prices.unzoned().map(|((cloud, region, _), _)| (cloud, region))).collect();
        known("cloud", &self.cloud, places.iter().map(|(cloud, _)| cloud.as_str()).collect())?;
        known("region", &self.region, places.iter().map(|(_, region)| region.as_str()).collect())
    }

    /// Whether it names how offers are bought.
    pub(super) fn names_capacity_type(&self) -> bool {
        !self.capacity_type.is_empty()
    }

    /// The reserved rates among them, where reserved capacity is asked for by name. They hold in a region
    /// as a whole, which stands for the zone.
    pub(super) fn reserved(&self, book: &PriceBook) -> impl Iterator<Item = (Market, Term, Quote)> {
        let named = self.capacity_type.contains(&CapacityArg::Reserved);
        let wanted = book.all_terms().filter(move |((cloud, region, instance_type), _)| {
            let spec = book.spec(cloud, instance_type).map(AsRef::as_ref);
            named && self.wants(cloud, region, CapacityType::Reserved, spec)
        });
        wanted.flat_map(|((cloud, region, instance_type), rates)| {
            let zone = ZoneId::new(region.as_str()).ok();
            let rates_by_term = [(Term::OneYear, rates.one_year), (Term::ThreeYears, rates.three_years)];
            rates_by_term.into_iter().filter_map(move |(term, price)| {
                let place = Place {
                    cloud: cloud.clone(),
                    region: region.clone(),
                    zone: zone.clone()?,
                    instance_type: instance_type.clone(),
                };
                let source = format!("{} {}", term.as_str(), rates.source).into();
                let quote = Quote { price: price?, kind: QuoteKind::List, as_of: rates.as_of, source };
                Some((Market { place, capacity_type: CapacityType::Reserved }, term, quote))
            })
        })
    }

    /// Whether an offer is among them.
    pub(super) fn wants(
        &self,
        cloud: &Cloud,
        region: &Region,
        capacity_type: CapacityType,
        spec: Option<&InstanceSpec>,
    ) -> bool {
        let any =
            |wanted: &[String], have: &str| wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case(have));
        let least = self.min_memory.map(|gib| MiB::from_gib(u64::from(gib)));
        any(&self.cloud, cloud.as_str())
            && any(&self.region, region.as_str())
            && (self.capacity_type.is_empty()
                || self.capacity_type.iter().any(|&wanted| CapacityType::from(wanted) == capacity_type))
            && spec.map_or_else(
                || self.gpu.is_empty() && least.is_none(),
                |spec| {
                    any(&self.gpu, spec.gpu_model.as_str())
                        && least.is_none_or(|least| spec.memory_per_advertised_gpu() >= least)
                },
            )
    }
}

/// The table speaks of spot machines; what is bought otherwise is not taken back.
fn reclaims(per_month: Option<Milli>, market: &Market) -> Option<u32> {
    per_month.filter(|_| market.capacity_type == CapacityType::Spot).map(|Milli(n)| n)
}

impl From<CapacityArg> for CapacityType {
    fn from(arg: CapacityArg) -> Self {
        match arg {
            CapacityArg::Reserved => Self::Reserved,
            CapacityArg::Spot => Self::Spot,
            CapacityArg::OnDemand => Self::OnDemand,
        }
    }
}

impl OfferPrice {
    fn of(quote: &Quote, spec: &InstanceSpec, now: Timestamp) -> Self {
        let per_gpu = quote.price.per(spec.advertised_gpus());
        Self {
            per_node: quote.price.into(),
            per_gpu: per_gpu.into(),
            quote: QuoteRow::of(quote, now),
            shown: [per_gpu, quote.price],
        }
    }
}

impl OfferRow {
    fn new(
        cloud: &Cloud,
        region: &Region,
        instance_type: &InstanceType,
        capacity_type: CapacityType,
        spec: Option<&InstanceSpec>,
    ) -> Self {
        Self {
            cloud: cloud.clone(),
            region: region.clone(),
            zone: None,
            zone_name: None,
            instance_type: instance_type.clone(),
            capacity_type,
            term: None,
            gpu_model: spec.map(|spec| spec.gpu_model.clone()),
            gpus: spec.map(InstanceSpec::advertised_gpus),
            gpu_memory_mib: spec.map(|spec| spec.memory_per_advertised_gpu().0),
            vcpus: spec.and_then(|spec| spec.vcpus),
            memory_mib: spec.and_then(|spec| spec.memory).map(|memory| memory.0),
            price: None,
            reclaimed_per_month_milli: None,
            orderable: false,
            reason: None,
        }
    }

    /// What has a price first, cheapest GPU first; ties by what and where.
    fn rank(&self) -> impl Ord {
        let price = self.price.as_ref().map(|price| price.shown);
        (
            price.is_none(),
            price,
            self.cloud.clone(),
            self.region.clone(),
            self.zone.clone(),
            self.instance_type.clone(),
            self.capacity_type,
            self.term,
        )
    }

    fn cells(&self, sources: &mut Sources, notes: &mut Notes) -> Vec<String> {
        let dash = || "-".to_owned();
        let (prices, from) = self.price.as_ref().map_or_else(
            || ([dash(), dash()], dash()),
            |price| {
                (
                    price.shown.map(|rate| rate.to_string()),
                    format!("{} {}", price.quote.kind_and_age(), sources.mark(&price.quote.source)),
                )
            },
        );
        let [per_gpu, per_node] = prices;
        let gpu = match (&self.gpu_model, self.gpus, self.gpu_memory_mib) {
            (Some(model), Some(gpus), Some(mib)) => format!("{gpus} x {model} {}", gib(mib)),
            _ => dash(),
        };
        let place = match &self.zone {
            Some(zone) if zone.as_str() != self.region.as_str() => zone.to_string(),
            _ => self.region.to_string(),
        };
        let bought = match (self.reclaimed_per_month_milli, self.term) {
            (Some(milli), _) => format!("{} {}.{}%/mo", self.capacity_type, milli / 10, milli % 10),
            (None, Some(term)) => format!("{} {}", self.capacity_type, term.as_str()),
            (None, None) => self.capacity_type.to_string(),
        };
        let note = self.reason.as_ref().map_or_else(String::new, |reason| notes.mark(reason));
        vec![per_gpu, per_node, gpu, self.instance_type.to_string(), format!("{}/{place}", self.cloud), bought, from, note]
    }
}

/// Memory as people name it: `24G`; a slice of a GPU has a fraction.
pub(super) fn gib(mib: u64) -> String {
    let tenths = (mib * 10 + 512) / 1024;
    if tenths.is_multiple_of(10) { format!("{}G", tenths / 10) } else { format!("{}.{}G", tenths / 10, tenths % 10) }
}

impl OffersReport {
    fn table(&self) -> String {
        const HEADER: [&str; 8] = ["$/GPU-HOUR", "$/NODE-HOUR", "GPUS", "TYPE", "ZONE", "CAPACITY", "PRICE SOURCE", "NOTE"];
        let (mut sources, mut notes) = (Sources::default(), Notes::default());
        let mut rows: Vec<_> = self.offers.iter().map(|offer| offer.cells(&mut sources, &mut notes)).collect();
        let has_notes = self.offers.iter().any(|offer| offer.reason.is_some());
        let header = if has_notes { &HEADER[..] } else { &HEADER[..7] };
        for row in &mut rows {
            row.truncate(header.len());
        }
        let mut text = table(header, &["$/GPU-HOUR", "$/NODE-HOUR"], rows) + &sources.legend() + &notes.legend();
        if self.offers.len() < self.matching {
            let unpriced = match self.unpriced {
                0 => String::new(),
                unpriced => format!(" ({unpriced} without a price come last)"),
            };
            let _ = writeln!(text, "{} of {} offers{unpriced}; --limit 0 shows all", self.offers.len(), self.matching);
        }
        text
    }
}
