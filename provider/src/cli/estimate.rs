//! `stoker estimate`: what a run, a reservation or a move of data costs, from the price tables or from rates of your own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;
use stoker_advice::estimate::{self, Move, Reservation};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, InstanceType, Region};
use stoker_core::base::units::{Milli, UsdMicros, UsdPerHour, scaled};
use stoker_core::limits::commitment::Term;
use stoker_core::market::offer::CapacityType;
use stoker_core::market::price::{Quote, usable};
use stoker_core::market::transfer::{Site, UsdPerGiB};

use super::args::{MarketArgs, NowArg, OutputArg, whole};
use super::candidates::{QuoteRow, Sources};
use super::exit::{CliError, Exit, NotFound};
use super::offers::{OfferFilter, tables};
use super::out::{self, Money};
use super::report::percent;
use stoker_service::price_tables::PriceTables;
use stoker_service::print::{count, paragraph, table};

/// Works out what a run, a reservation or a move of data costs, without a service and without a cluster.
#[derive(Debug, Args)]
pub(super) struct EstimateArgs {
    #[command(subcommand)]
    of: Of,
}

#[derive(Debug, Subcommand)]
enum Of {
    Run(RunArgs),
    Reserve(ReserveArgs),
    Move(MoveArgs),
}

/// What GPUs cost for some hours: each type, region and way of buying in its cheapest zone, cheapest first.
#[derive(Debug, Args)]
struct RunArgs {
    /// GPUs that are wanted; nodes are whole
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=100_000_u32), allow_negative_numbers = true)]
    gpus: u32,
    /// Hours of work
    #[arg(long, value_name = "N", value_parser = whole(1..=87_600_u32), allow_negative_numbers = true)]
    hours: u32,
    /// Share of the work on spot that is lost to reclaims and done again
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = lost)]
    lost: Milli,
    #[command(flatten)]
    filter: OfferFilter,
    /// Maximum rows (0 = all)
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = whole(0_usize..), allow_negative_numbers = true)]
    limit: usize,
    #[command(flatten)]
    common: Common,
}

/// A year reserved beside the same year on demand: what it saves, and from which use on.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("own").args(["one_year", "three_years"]).multiple(true))]
struct ReserveArgs {
    /// Instance type whose rates the tables tell
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "on_demand", conflicts_with_all = ["on_demand", "one_year", "three_years"])]
    instance_type: Option<String>,
    /// Only this region
    #[arg(long, value_name = "REGION", requires = "instance_type")]
    region: Option<String>,
    /// Your own on-demand rate, in dollars per node and hour
    #[arg(long, value_name = "USD", value_parser = rate, requires = "own")]
    on_demand: Option<UsdPerHour>,
    /// Your own rate for a commitment of one year
    #[arg(long, value_name = "USD", value_parser = rate, requires = "on_demand")]
    one_year: Option<UsdPerHour>,
    /// Your own rate for a commitment of three years
    #[arg(long, value_name = "USD", value_parser = rate, requires = "on_demand")]
    three_years: Option<UsdPerHour>,
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=100_000_u32), allow_negative_numbers = true)]
    nodes: u32,
    /// Share of the hours in which they are used
    #[arg(long = "use", value_name = "SHARE", default_value = "100%", value_parser = used)]
    used: Milli,
    #[command(flatten)]
    common: Common,
}

/// Data that goes where nodes cost less: what the copy costs, and after how many days it has paid for itself.
#[derive(Debug, Args)]
struct MoveArgs {
    /// GiB that are copied once
    #[arg(long, value_name = "GIB", value_parser = whole(1..=1_000_000_000_u64), allow_negative_numbers = true)]
    data: u64,
    /// GiB that are copied anew each month
    #[arg(long, value_name = "GIB", default_value_t = 0, value_parser = whole(0..=1_000_000_000_u64), allow_negative_numbers = true)]
    monthly: u64,
    /// Where data and nodes are, e.g. aws/us-east-1
    #[arg(long, value_name = "CLOUD/REGION", value_parser = site)]
    from: Option<Site>,
    /// Where they would go
    #[arg(long, value_name = "CLOUD/REGION", value_parser = site)]
    to: Option<Site>,
    /// Instance type in both places
    #[arg(long = "type", value_name = "TYPE", value_parser = instance_type, requires_all = ["from", "to"])]
    instance_type: Option<InstanceType>,
    /// Dollars per GiB, instead of the tables'
    #[arg(long, value_name = "USD", value_parser = rate, required_unless_present_all = ["from", "to"])]
    per_gib: Option<UsdPerHour>,
    /// Dollars per node and hour where data and nodes are, instead of the tables'
    #[arg(long, value_name = "USD", value_parser = rate, required_unless_present = "instance_type")]
    rate_from: Option<UsdPerHour>,
    /// The same where they would go
    #[arg(long, value_name = "USD", value_parser = rate, required_unless_present = "instance_type")]
    rate_to: Option<UsdPerHour>,
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=100_000_u32), allow_negative_numbers = true)]
    nodes: u32,
    /// Hours of work of each node a month
    #[arg(long, value_name = "N", default_value_t = 730, value_parser = whole(1..=744_u32), allow_negative_numbers = true)]
    hours: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    markets: MarketArgs,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

fn rate(text: &str) -> Result<UsdPerHour, String> {
    UsdPerHour::parse_usd(text).map_err(|error| error.to_string())
}

fn instance_type(text: &str) -> Result<InstanceType, String> {
    InstanceType::new(text).map_err(|error| error.to_string())
}

/// A share of all, in thousandths.
fn share(text: &str) -> Option<Milli> {
    u32::try_from(scaled(text.strip_suffix('%')?, 1)?).ok().map(Milli)
}

fn lost(text: &str) -> Result<Milli, String> {
    share(text).filter(|lost| lost.0 < 1_000).ok_or_else(|| "write a share below 100%, such as 20%".to_owned())
}

fn used(text: &str) -> Result<Milli, String> {
    share(text).filter(|used| (1..=1_000).contains(&used.0)).ok_or_else(|| "write a share up to 100%, such as 60%".to_owned())
}

fn site(text: &str) -> Result<Site, String> {
    let wanted = || "write cloud and region like aws/us-east-1".to_owned();
    let (cloud, region) = text.split_once('/').ok_or_else(wanted)?;
    let (cloud, region) = (Cloud::new(cloud).map_err(|_| wanted())?, Region::new(region).map_err(|_| wanted())?);
    Ok(Site { cloud, region, zone: None })
}

/// Carries the command out.
pub(super) fn run(args: &EstimateArgs) -> Result<Exit, CliError> {
    match &args.of {
        Of::Run(args) => args.run(),
        Of::Reserve(args) => args.run(),
        Of::Move(args) => args.run(),
    }
}

impl Common {
    fn load(&self) -> Result<PriceTables, CliError> {
        Ok(PriceTables::load(self.markets.prices_dir.as_deref(), self.markets.world.as_deref(), self.now.now())?)
    }

    fn none(&self, what: &'static str, name: &str, cure: &str) -> CliError {
        let place = tables(&self.markets);
        CliError::NotFound(NotFound { what, name: name.to_owned(), place, cure: Some(cure.to_owned()) })
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunReport {
    gpus: u32,
    hours: u32,
    /// Ways to run it that the tables know a price of, shown or not.
    matching: usize,
    runs: Vec<RunRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunRow {
    cloud: Cloud,
    region: Region,
    instance_type: InstanceType,
    capacity_type: CapacityType,
    nodes: u32,
    /// GPUs of all of them.
    gpus: u32,
    /// What a node costs an hour.
    per_node: Money,
    /// What the run costs.
    total: Money,
    #[serde(flatten)]
    quote: QuoteRow,
    #[serde(skip)]
    shown: (UsdMicros, UsdPerHour),
}

impl RunArgs {
    fn run(&self) -> Result<Exit, CliError> {
        let prices = self.common.load()?;
        self.filter.check(&prices.prices, &tables(&self.common.markets))?;
        let mut runs = self.rows(&prices);
        runs.sort_by(|a, b| {
            (a.shown, &a.cloud, &a.region, &a.instance_type).cmp(&(b.shown, &b.cloud, &b.region, &b.instance_type))
        });
        let matching = runs.len();
        if matching == 0 {
            return Err(self.common.none("priced offer", "", "widen the filters"));
        }
        if self.limit > 0 {
            runs.truncate(self.limit);
        }
        let report = RunReport { gpus: self.gpus, hours: self.hours, matching, runs };
        out::print(self.common.output.format, &report, RunReport::table)?;
        Ok(Exit::Done)
    }

    fn rows(&self, prices: &PriceTables) -> Vec<RunRow> {
        let now = self.common.now.now();
        let book = &prices.prices;
        let mut cheapest: BTreeMap<_, Quote> = BTreeMap::new();
        for (market, _) in book.entries().filter(|(market, _)| market.capacity_type != CapacityType::Reserved) {
            let place = &market.place;
            let spec = book.spec(&place.cloud, &place.instance_type).map(AsRef::as_ref);
            if !self.filter.wants(&place.cloud, &place.region, market.capacity_type, spec) {
                continue;
            }
            let entry = prices.entry(market);
            let Ok(quote) = usable(entry.as_ref(), Wall(now)) else { continue };
            let of = (place.cloud.clone(), place.region.clone(), place.instance_type.clone(), market.capacity_type);
            let best = cheapest.entry(of).or_insert_with(|| quote.clone());
            if quote.price < best.price {
                *best = quote.clone();
            }
        }
        let rows = cheapest.into_iter().filter_map(|((cloud, region, instance_type, capacity_type), quote)| {
            let spec = book.spec(&cloud, &instance_type)?;
            // A part of a GPU is none.
            let each = spec.gpus.0 / 1_000;
            if each == 0 {
                return None;
            }
            let nodes = self.gpus.div_ceil(each);
            let lost = if capacity_type == CapacityType::Spot { self.lost } else { Milli(0) };
            let total = estimate::run(quote.price, nodes, self.hours, lost)?;
            let (per_node, shown) = (quote.price.into(), (total, quote.price));
            let (gpus, quote) = (nodes.saturating_mul(each), QuoteRow::of(&quote, now));
            Some(RunRow {
                cloud,
                region,
                instance_type,
                capacity_type,
                nodes,
                gpus,
                per_node,
                total: total.into(),
                quote,
                shown,
            })
        });
        rows.collect()
    }
}

impl RunReport {
    fn table(&self) -> String {
        const HEADER: [&str; 8] = ["TOTAL", "$/NODE-HOUR", "NODES", "GPUS", "TYPE", "REGION", "CAPACITY", "PRICE SOURCE"];
        let mut sources = Sources::default();
        let row = |row: &RunRow| {
            let (total, rate) = row.shown;
            let source = format!("{} {}", row.quote.kind_and_age(), sources.mark(&row.quote.source));
            let place = format!("{}/{}", row.cloud, row.region);
            let counts = [row.nodes.to_string(), row.gpus.to_string()];
            let [nodes, gpus] = counts;
            let (of, bought) = (row.instance_type.to_string(), row.capacity_type.to_string());
            vec![total.to_string(), rate.to_string(), nodes, gpus, of, place, bought, source]
        };
        let rows = self.runs.iter().map(row).collect();
        let mut text = format!("{} for {}\n\n", count(self.gpus, "GPU"), count(self.hours, "hour"));
        text += &(table(&HEADER, &HEADER[..4], rows) + &sources.legend());
        if self.runs.len() < self.matching {
            let _ = writeln!(text, "{} of {} ways; --limit 0 shows all", self.runs.len(), self.matching);
        }
        text
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReserveReport {
    nodes: u32,
    used_permille: u32,
    reservations: Vec<ReserveRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReserveRow {
    /// `None` of rates that were given.
    place: Option<String>,
    term: Term,
    /// What a node costs an hour.
    rate: Money,
    on_demand_rate: Money,
    reserved_per_year: Money,
    on_demand_per_year: Money,
    saved_per_year: Money,
    discount_permille: i64,
    break_even_permille: i64,
    #[serde(skip)]
    shown: (UsdPerHour, Reservation),
}

/// A reserved rate, and the on-demand rate beside it.
struct Rate {
    /// `None` of rates that were given.
    region: Option<String>,
    term: Term,
    reserved: UsdPerHour,
    on_demand: UsdPerHour,
}

impl ReserveArgs {
    fn run(&self) -> Result<Exit, CliError> {
        let own = [(Term::OneYear, self.one_year), (Term::ThreeYears, self.three_years)];
        let rates: Vec<Rate> = match (self.on_demand, &self.instance_type) {
            (Some(on_demand), _) => own
                .into_iter()
                .filter_map(|(term, rate)| Some(Rate { region: None, term, reserved: rate?, on_demand }))
                .collect(),
            (None, name) => self.listed(name.as_deref().unwrap_or_default())?,
        };
        let row = |Rate { region: place, term, reserved: rate, on_demand }: Rate| {
            let of = Reservation::of(rate, on_demand, self.nodes, self.used)?;
            Some(ReserveRow {
                place,
                term,
                rate: rate.into(),
                on_demand_rate: on_demand.into(),
                reserved_per_year: of.reserved.into(),
                on_demand_per_year: of.on_demand.into(),
                saved_per_year: of.saved.into(),
                discount_permille: of.discount_permille,
                break_even_permille: of.break_even_permille,
                shown: (rate, of),
            })
        };
        let reservations: Vec<ReserveRow> = rates.into_iter().filter_map(row).collect();
        if reservations.is_empty() {
            return Err(CliError::Usage("--on-demand 0: nothing is cheaper than nothing; give the rate that you pay".into()));
        }
        let report = ReserveReport { nodes: self.nodes, used_permille: self.used.0, reservations };
        out::print(self.common.output.format, &report, ReserveReport::table)?;
        Ok(Exit::Done)
    }

    /// What the tables tell of a type, by region.
    fn listed(&self, name: &str) -> Result<Vec<Rate>, CliError> {
        let prices = self.common.load()?;
        let now = self.common.now.now();
        let book = &prices.prices;
        let here = |region: &Region| self.region.as_ref().is_none_or(|wanted| wanted == region.as_str());
        let wanted = book.all_terms().filter(|((_, region, of), _)| of.as_str() == name && here(region));
        let mut listed = Vec::new();
        for ((cloud, region, instance_type), rates) in wanted {
            let sold = book.entries().filter(|(market, _)| {
                let place = &market.place;
                market.capacity_type == CapacityType::OnDemand
                    && (&place.cloud, &place.region, &place.instance_type) == (cloud, region, instance_type)
            });
            let zoned =
                sold.filter_map(|(market, _)| usable(prices.entry(market).as_ref(), Wall(now)).ok().map(|quote| quote.price));
            let unzoned = book.unzoned().filter(|((c, r, of), _)| (c, r, of) == (cloud, region, instance_type));
            let Some(on_demand) = zoned.chain(unzoned.map(|(_, quote)| quote.price)).min() else { continue };
            for (term, rate) in [(Term::OneYear, rates.one_year), (Term::ThreeYears, rates.three_years)] {
                let region = Some(format!("{cloud}/{region}"));
                listed.extend(rate.map(|reserved| Rate { region, term, reserved, on_demand }));
            }
        }
        if listed.is_empty() {
            let cure = "`stoker offers --capacity-type reserved --limit 0` lists those that have one; or give your own rates with \
                        --on-demand and --one-year";
            return Err(self.common.none("reserved rate of instance type", name, cure));
        }
        Ok(listed)
    }
}

impl ReserveReport {
    fn table(&self) -> String {
        const HEADER: [&str; 8] =
            ["REGION", "TERM", "$/NODE-HOUR", "A YEAR", "ON DEMAND A YEAR", "SAVES A YEAR", "DISCOUNT", "EVEN AT"];
        let row = |row: &ReserveRow| {
            let (rate, of) = row.shown;
            let even = if of.break_even_permille > 1_000 { "never".to_owned() } else { percent(of.break_even_permille.into()) };
            vec![
                row.place.clone().unwrap_or_else(|| "-".to_owned()),
                row.term.as_str().to_owned(),
                rate.to_string(),
                of.reserved.to_string(),
                of.on_demand.to_string(),
                of.saved.to_string(),
                percent(of.discount_permille.into()),
                even,
            ]
        };
        let rows = self.reservations.iter().map(row).collect();
        let used = percent(self.used_permille.into());
        let text = format!("{}, used {used} of {} hours a year\n\n", count(self.nodes, "node"), estimate::YEAR);
        let even = "use from which on the reservation costs less; it is paid for whether it is used or not";
        text + &table(&HEADER, &HEADER[2..7], rows) + "\n" + &paragraph("EVEN AT:", even)
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MoveReport {
    nodes: u32,
    hours_per_month: u32,
    data_gib: u64,
    /// What a GiB costs to copy.
    per_gib: Money,
    here_per_month: Money,
    there_per_month: Money,
    copy_once: Money,
    copied_per_month: Money,
    saved_per_month: Money,
    /// `None` where it never does.
    pays_back_days: Option<String>,
    #[serde(skip)]
    shown: Move,
}

impl MoveArgs {
    fn run(&self) -> Result<Exit, CliError> {
        let prices = self.common.load()?;
        let per_gib = self.per_gib(&prices)?;
        let rates =
            [self.rate(&prices, self.rate_from, self.from.as_ref())?, self.rate(&prices, self.rate_to, self.to.as_ref())?];
        let moved = Move::of(rates, self.nodes, self.hours, [per_gib.of(self.data), per_gib.of(self.monthly)]);
        let report = MoveReport {
            nodes: self.nodes,
            hours_per_month: self.hours,
            data_gib: self.data,
            per_gib: UsdMicros(per_gib.0).into(),
            here_per_month: moved.here.into(),
            there_per_month: moved.there.into(),
            copy_once: moved.copy.into(),
            copied_per_month: moved.sync.into(),
            saved_per_month: moved.saved.into(),
            pays_back_days: moved.pays_back_millidays.map(|days| Milli(u32::try_from(days).unwrap_or(u32::MAX)).to_string()),
            shown: moved,
        };
        out::print(self.common.output.format, &report, MoveReport::table)?;
        Ok(Exit::Done)
    }

    fn per_gib(&self, prices: &PriceTables) -> Result<UsdPerGiB, CliError> {
        if let Some(UsdPerHour(given)) = self.per_gib {
            return Ok(UsdPerGiB(given));
        }
        let known = self.from.as_ref().zip(self.to.as_ref()).and_then(|(from, to)| prices.prices.transfers().price(from, to));
        let way =
            || [&self.from, &self.to].map(|site| site.as_ref().map_or_else(String::new, ToString::to_string)).join(" to ");
        known.ok_or_else(|| self.common.none("price of data from", &way(), "give it with --per-gib"))
    }

    fn rate(&self, prices: &PriceTables, own: Option<UsdPerHour>, site: Option<&Site>) -> Result<UsdPerHour, CliError> {
        if let Some(own) = own {
            return Ok(own);
        }
        let now = Wall(self.common.now.now());
        let is_it = |cloud: &Cloud, region: &Region, of: &InstanceType| {
            site.is_some_and(|site| (&site.cloud, &site.region) == (cloud, region)) && self.instance_type.as_ref() == Some(of)
        };
        let zoned = prices.prices.entries().filter(|(market, _)| {
            let place = &market.place;
            market.capacity_type == CapacityType::OnDemand && is_it(&place.cloud, &place.region, &place.instance_type)
        });
        let zoned = zoned.filter_map(|(market, _)| usable(prices.entry(market).as_ref(), now).ok().map(|quote| quote.price));
        let unzoned = prices.prices.unzoned().filter(|((cloud, region, of), _)| is_it(cloud, region, of));
        zoned.chain(unzoned.map(|(_, quote)| quote.price)).min().ok_or_else(|| {
            let name = [self.instance_type.as_ref().map(ToString::to_string), site.map(ToString::to_string)];
            let name = name.into_iter().flatten().collect::<Vec<_>>().join(" in ");
            self.common.none("on-demand price of", &name, "give your own with --rate-from and --rate-to")
        })
    }
}

impl MoveReport {
    fn table(&self) -> String {
        let Move { here, there, copy, sync, saved, pays_back_millidays } = self.shown;
        let pays = pays_back_millidays
            .map_or_else(|| "never".to_owned(), |days| format!("{}.{} days", days / 1_000, days % 1_000 / 100));
        let row = |what: &str, amount: String| vec![amount, what.to_owned()];
        let rows = vec![
            row("nodes here, a month", here.to_string()),
            row("nodes there, a month", there.to_string()),
            row("data copied anew, a month", sync.to_string()),
            row("saved a month", saved.to_string()),
            row("the copy, once", copy.to_string()),
            row("until the copy has paid for itself", pays),
        ];
        let of =
            format!("{} for {} a month, {} GiB", count(self.nodes, "node"), count(self.hours_per_month, "hour"), self.data_gib);
        format!("{of}\n\n{}", table(&["COST", ""], &["COST"], rows))
    }
}
