//! What a region tells of its markets and its account. Each fact is asked at its own pace; one that cannot be had stays as it was, ages, and
//! keeps no launch waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use stoker_core::base::ids::{Cloud, InstanceType, ZoneId, ZoneName};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::supply::{MachineFact, QuotaFact, ReservationFact};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::price::{Quote, QuoteKind};
use stoker_core::policy::QuotaKey;
use tokio::time::{Instant, timeout};

use super::RegionSupplier;
use super::health::Health;
use crate::answers::{Offering, Offerings, Product, Products, Reservation, Reservations, SpotPrice, SpotPrices};
use crate::config::Config;
use crate::wire::{Failure, Form, Service};

const SPOT_PRICES_EVERY: Duration = Duration::from_mins(5);
const OFFERINGS_EVERY: Duration = Duration::from_hours(12);
const QUOTAS_EVERY: Duration = Duration::from_mins(15);
const RESERVATIONS_EVERY: Duration = Duration::from_mins(1);
const TYPES_EVERY: Duration = Duration::from_hours(12);
const HEALTH_EVERY: Duration = Duration::from_mins(1);

/// List prices change with announcements: each type is asked once a day, a few at a time.
const LIST_PRICES_EVERY: Duration = Duration::from_hours(24);
const LIST_PRICES_AT_ONCE: usize = 10;

/// When to ask again for what could not be had.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

/// How long a price or a quota that is asked again and says the same is shown as of before: each new moment is one more thing to write down.
const STEADY_FOR: SignedDuration = SignedDuration::from_mins(30);

/// How long a fact may take: all that is known of a region is told within [`TOLD_WITHIN`](crate::supplier), whatever hangs.
const ASKED_WITHIN: Duration = Duration::from_secs(9);

/// Types that one call names.
pub(super) const TYPES_IN_A_CALL: usize = 100;

/// A fact, when it was asked, and why it could not be had since.
struct Fact<T> {
    value: Option<T>,
    asked_at: Option<Instant>,
    failed: Option<String>,
}

impl<T> Default for Fact<T> {
    fn default() -> Self {
        Self { value: None, asked_at: None, failed: None }
    }
}

impl<T> Fact<T> {
    fn is_due(&self, every: Duration) -> bool {
        let every = if self.failed.is_some() { every.min(AGAIN_AFTER) } else { every };
        self.asked_at.is_none_or(|at| at.elapsed() >= every)
    }

    fn take(&mut self, what: &str, answer: Result<T, Failure>) {
        self.asked_at = Some(Instant::now());
        match answer {
            Ok(value) => (self.value, self.failed) = (Some(value), None),
            Err(failure) => self.failed = Some(format!("{what} cannot be asked, and stay as they were: {failure}")),
        }
    }
}

/// What a region told.
#[derive(Default)]
pub(super) struct Facts {
    spot: Fact<BTreeMap<(InstanceType, String), Quote>>,
    offered: Fact<BTreeSet<(InstanceType, ZoneId)>>,
    quotas: Fact<BTreeMap<&'static str, QuotaFact>>,
    reservations: Fact<(Timestamp, Vec<Reservation>)>,
    health: Fact<Health>,
    /// Why it is not known how much of quotas is used.
    usage_failed: Option<String>,
    types: Fact<BTreeMap<InstanceType, MachineFact>>,
    /// List prices, and when each was asked. A type that the list does not have is asked again as one that it has.
    list: BTreeMap<InstanceType, (Option<Quote>, Instant)>,
    list_failed: Option<String>,
}

/// What of a region's facts goes into those of the supplier.
pub(crate) struct Told {
    pub(crate) zone_names: BTreeMap<ZoneId, ZoneName>,
    pub(crate) quotes: Vec<(Market, Quote)>,
    /// Types and zones that are sold; `None` while EC2 has not said.
    pub(crate) offered: Option<BTreeSet<Place>>,
    pub(crate) quotas: Vec<(QuotaKey, QuotaFact)>,
    pub(crate) reservations: Vec<(String, ReservationFact)>,
    pub(crate) machines: BTreeMap<InstanceType, MachineFact>,
}

impl Facts {
    /// What could not be had, and why.
    pub(super) fn faults(&self) -> Vec<String> {
        let prices = [&self.spot.failed, &self.offered.failed, &self.quotas.failed];
        let failed = prices.into_iter().chain([&self.reservations.failed, &self.health.failed, &self.types.failed]);
        failed.chain([&self.list_failed, &self.usage_failed]).flatten().cloned().collect()
    }

    /// How much of quotas is used was asked, and could not be had where that failed.
    pub(super) fn told_usage(&mut self, failed: Option<&Failure>) {
        self.usage_failed = failed.map(|why| format!("how much of quotas is used cannot be asked, and is not known: {why}"));
    }

    /// What EC2 said of machines last; `None` while it was not asked.
    pub(super) const fn health(&self) -> Option<&Health> {
        self.health.value.as_ref()
    }

    /// The types whose list prices are to be asked next.
    fn unpriced(&self, types: &[InstanceType]) -> Vec<InstanceType> {
        let is_due = |name: &&InstanceType| self.list.get(name).is_none_or(|(_, at)| at.elapsed() >= LIST_PRICES_EVERY);
        types.iter().filter(is_due).take(LIST_PRICES_AT_ONCE).cloned().collect()
    }

    /// Whether the account's reservations are known well enough to launch into that one, or into any.
    fn knows(&self, id: Option<&str>) -> bool {
        let is_it = |one: &Reservation| id.is_none_or(|id| one.capacity_reservation_id == id);
        let known = self.reservations.value.as_ref();
        known.is_some_and(|(_, all)| all.iter().any(is_it) || !self.reservations.is_due(RESERVATIONS_EVERY))
    }

    /// Whether that reservation is a capacity block.
    pub(super) fn is_block(&self, id: &str) -> bool {
        let mut all = self.reservations.value.iter().flat_map(|(_, all)| all);
        all.any(|one| one.capacity_reservation_id == id && one.reservation_type.as_deref() == Some("capacity-block"))
    }

    /// The reservation with room at that place that ends first.
    pub(super) fn reservation_for(&self, place: &Place, now: Timestamp) -> Option<String> {
        let (_, all) = self.reservations.value.as_ref()?;
        let fits = |one: &&Reservation| {
            one.instance_type == place.instance_type.as_str()
                && one.availability_zone_id.as_deref() == Some(place.zone.as_str())
                && one.state == "active"
                && one.available_instance_count.is_none_or(|free| free > 0)
                && one.start_date.as_deref().and_then(moment).is_none_or(|begins| begins <= now)
        };
        let ends = |one: &&Reservation| one.end_date.as_deref().and_then(moment).unwrap_or(Timestamp::MAX);
        all.iter().filter(fits).min_by_key(ends).map(|one| one.capacity_reservation_id.clone())
    }
}

impl RegionSupplier {
    /// What the region tells of its markets. Facts that are due are asked first.
    ///
    /// # Errors
    /// When the subnets cannot be had, without which nothing is known of its zones.
    pub(crate) async fn told(&self, config: &Config) -> Result<Told, String> {
        let looked = self.looked_up(config).await?;
        // Late, it is told of another time.
        let newer = timeout(ASKED_WITHIN, self.tell_of_newer(config, &looked));
        let ((), _) = tokio::join!(Box::pin(self.refresh()), newer);
        let known = self.known();
        let facts = &known.facts;
        let mut told = Told {
            zone_names: BTreeMap::new(),
            quotes: Vec::new(),
            offered: None,
            quotas: Vec::new(),
            reservations: Vec::new(),
            machines: facts.types.value.clone().unwrap_or_default(),
        };
        let Ok(cloud) = Cloud::new("aws") else { return Ok(told) };
        let place = |zone: &ZoneId, instance_type: &InstanceType| Place {
            cloud: cloud.clone(),
            region: self.name.clone(),
            zone: zone.clone(),
            instance_type: instance_type.clone(),
        };
        for (zone, subnets) in &looked.subnets {
            let name = subnets.first().and_then(|subnet| ZoneName::new(subnet.availability_zone.as_str()).ok());
            told.zone_names.extend(name.map(|name| (zone.clone(), name)));
        }
        for ((instance_type, zone), quote) in facts.spot.value.iter().flatten() {
            if let Some(zone) = looked.zone_id(zone) {
                let market = Market { place: place(&zone, instance_type), capacity_type: CapacityType::Spot };
                told.quotes.push((market, quote.clone()));
            }
        }
        for (instance_type, (quote, _)) in &facts.list {
            for (zone, quote) in looked.subnets.keys().filter_map(|zone| Some((zone, quote.as_ref()?))) {
                let market = Market { place: place(zone, instance_type), capacity_type: CapacityType::OnDemand };
                told.quotes.push((market, quote.clone()));
            }
        }
        told.offered = facts.offered.value.as_ref().map(|offered| {
            // A zone without a subnet of ours sells us nothing.
            let ours = offered.iter().filter(|(_, zone)| looked.subnets.contains_key(zone));
            ours.map(|(instance_type, zone)| place(zone, instance_type)).collect()
        });
        for (name, fact) in facts.quotas.value.iter().flatten() {
            let key = QuotaKey { name: (*name).to_owned(), cloud: cloud.clone(), region: Some(self.name.clone()) };
            told.quotas.push((key, fact.clone()));
        }
        if let Some((as_of, all)) = &facts.reservations.value {
            for one in all {
                let zone = looked.zone_of(one);
                let (Some(zone), Ok(instance_type), Some(total)) =
                    (zone, InstanceType::new(one.instance_type.as_str()), one.total_instance_count)
                else {
                    continue;
                };
                let fact = ReservationFact {
                    place: place(&zone, &instance_type),
                    total,
                    free: one.available_instance_count,
                    ends: one.end_date.as_deref().and_then(moment),
                    as_of: *as_of,
                };
                told.reservations.push((one.capacity_reservation_id.clone(), fact));
            }
        }
        Ok(told)
    }

    /// Asks for the account's reservations, where a launch needs to know them first.
    ///
    /// # Errors
    /// When they were never had, and cannot be now.
    pub(super) async fn know_reservations(&self, id: Option<&str>) -> Result<(), Failure> {
        if self.known().facts.knows(id) {
            return Ok(());
        }
        let answer = self.reservations().await;
        let failed = answer.as_ref().err().cloned();
        let mut known = self.known();
        known.facts.reservations.take("reservations", answer);
        failed.filter(|_| known.facts.reservations.value.is_none()).map_or(Ok(()), Err)
    }

    /// Whether list prices are still to be asked, and can be.
    pub(crate) fn has_more_to_ask(&self) -> bool {
        let known = self.known();
        known.look_failed.is_none()
            && known.facts.list_failed.is_none()
            && !known.facts.unpriced(&self.types).is_empty()
            && !self.name.as_str().starts_with("cn-")
    }

    /// Asks for a fact where it is due, and keeps it. `compare` sees the answer beside what was known before.
    async fn renew<T>(
        &self,
        (what, action, every): (&'static str, &'static str, Duration),
        of: fn(&mut Facts) -> &mut Fact<T>,
        asked: impl Future<Output = Result<T, Failure>>,
        compare: impl FnOnce(&mut Result<T, Failure>, Option<&T>),
    ) {
        if !of(&mut self.known().facts).is_due(every) {
            return;
        }
        let mut answer = in_time(action, asked).await;
        let mut known = self.known();
        let fact = of(&mut known.facts);
        compare(&mut answer, fact.value.as_ref());
        fact.take(what, answer);
    }

    /// Asks for every fact that is due, all at once, and keeps each as soon as it is there: a service that hangs holds up no other's.
    async fn refresh(&self) {
        let spot = self.renew(
            ("spot prices", "DescribeSpotPriceHistory", SPOT_PRICES_EVERY),
            |facts| &mut facts.spot,
            self.spot_prices(),
            |answer, before| {
                steady(answer, before, |new, old| (new.price == old.price).then_some((new.as_of?, old.as_of?)));
            },
        );
        let offered = self.renew(
            ("offered types", "DescribeInstanceTypeOfferings", OFFERINGS_EVERY),
            |facts| &mut facts.offered,
            self.offerings(),
            |_, _| {},
        );
        let quotas = self.renew(
            ("quotas", "GetServiceQuota", QUOTAS_EVERY),
            |facts| &mut facts.quotas,
            self.quotas(),
            |answer, before| {
                steady(answer, before, |new, old| {
                    ((new.limit, new.used) == (old.limit, old.used)).then_some((new.as_of, old.as_of))
                });
            },
        );
        let reservations = self.renew(
            ("reservations", "DescribeCapacityReservations", RESERVATIONS_EVERY),
            |facts| &mut facts.reservations,
            self.reservations(),
            |_, _| {},
        );
        let types = self.renew(
            ("instance types", "DescribeInstanceTypes", TYPES_EVERY),
            |facts| &mut facts.types,
            self.machine_types(),
            |_, _| {},
        );
        let health = self.renew(
            ("states of machines", "DescribeInstanceStatus", HEALTH_EVERY),
            |facts| &mut facts.health,
            self.health(),
            |answer, before| {
                if answer.as_ref().is_ok_and(|new| before.is_none_or(|old| !new.says_as(old))) {
                    self.changed.notify_one();
                }
            },
        );
        let list = async {
            let unpriced = self.known().facts.unpriced(&self.types);
            let failed = in_time("GetProducts", self.list_prices(unpriced)).await.err();
            let in_words = |failure| format!("list prices cannot be asked, and the tables' hold: {failure}");
            self.known().facts.list_failed = failed.map(in_words);
        };
        tokio::join!(spot, offered, quotas, reservations, types, health, list);
    }

    /// Spot prices in effect, by type and zone name.
    pub(super) async fn spot_prices(&self) -> Result<BTreeMap<(InstanceType, String), Quote>, Failure> {
        let now = self.api.now();
        let moment = now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let mut newest: BTreeMap<(InstanceType, String), (Timestamp, UsdPerHour)> = BTreeMap::new();
        for types in self.types.chunks(TYPES_IN_A_CALL) {
            let all = Form::ec2("DescribeSpotPriceHistory")
                .with("StartTime", &moment)
                .with("EndTime", &moment)
                .with("MaxResults", "1000")
                .with_list("InstanceType", types.iter().map(InstanceType::as_str))
                .with_list("ProductDescription", ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]);
            let take = |page: SpotPrices| {
                for (key, at, price) in page.spot_price_history_set.iter().filter_map(spot_price) {
                    // Several records of a pair come in any order: the newest holds.
                    let known = newest.entry(key).or_insert((at, price));
                    if at >= known.0 {
                        *known = (at, price);
                    }
                }
                page.next_token
            };
            self.api.pages(&all, take).await?;
        }
        let source: Arc<str> = Arc::from(format!("ec2@{}", now.strftime("%Y-%m-%dT%H:%MZ")));
        // In effect now, however long ago it was last changed.
        let quote = |price| Quote { price, kind: QuoteKind::Live, as_of: Some(now), source: Arc::clone(&source) };
        Ok(newest.into_iter().map(|(key, (_, price))| (key, quote(price))).collect())
    }

    /// Asks what those types cost on demand, and keeps each price. One that the price list does not have counts as asked too.
    pub(super) async fn list_prices(&self, types: Vec<InstanceType>) -> Result<(), Failure> {
        // China has a list of its own, in another money.
        if self.name.as_str().starts_with("cn-") {
            return Ok(());
        }
        let now = self.api.now();
        let source: Arc<str> = Arc::from(format!("aws-pricing@{}", now.strftime("%Y-%m-%d")));
        for name in types {
            let is = |field: &str, value: &str| json!({ "Type": "TERM_MATCH", "Field": field, "Value": value });
            let filters = [
                is("instanceType", name.as_str()),
                is("regionCode", self.name.as_str()),
                is("operatingSystem", "Linux"),
                is("tenancy", "Shared"),
                is("preInstalledSw", "NA"),
                is("capacitystatus", "Used"),
            ];
            let asked = json!({ "ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": 10 });
            let Products { price_list } = self.api.ask_json(Service::Pricing, "GetProducts", &asked).await?;
            let products = price_list.iter().filter_map(|text| serde_json::from_str::<Product>(text).ok());
            let price = products.filter_map(|product| UsdPerHour::parse_usd(product.usd_per_hour()?).ok()).max();
            let price = price.filter(|price| *price > UsdPerHour::ZERO);
            let quote = |price| Quote { price, kind: QuoteKind::List, as_of: Some(now), source: Arc::clone(&source) };
            self.known().facts.list.insert(name, (price.map(quote), Instant::now()));
        }
        Ok(())
    }

    /// Which types are sold in which zones.
    pub(super) async fn offerings(&self) -> Result<BTreeSet<(InstanceType, ZoneId)>, Failure> {
        let mut offered = BTreeSet::new();
        for types in self.types.chunks(TYPES_IN_A_CALL) {
            let all = Form::ec2("DescribeInstanceTypeOfferings")
                .with("LocationType", "availability-zone-id")
                .filter("instance-type", types.iter().map(InstanceType::as_str));
            let read = |one: Offering| InstanceType::new(one.instance_type).ok().zip(ZoneId::new(one.location).ok());
            let take = |page: Offerings| {
                offered.extend(page.instance_type_offering_set.into_iter().filter_map(read));
                page.next_token
            };
            self.api.pages(&all, take).await?;
        }
        Ok(offered)
    }

    /// Reservations and capacity blocks that are active, or will be.
    pub(super) async fn reservations(&self) -> Result<(Timestamp, Vec<Reservation>), Failure> {
        let as_of = self.api.now();
        let all = Form::ec2("DescribeCapacityReservations").filter("state", ["active", "scheduled"]);
        let mut found = Vec::new();
        let take = |page: Reservations| {
            found.extend(page.capacity_reservation_set);
            page.next_token
        };
        self.api.pages(&all, take).await?;
        Ok((as_of, found))
    }
}

/// The answer of a service that may hang.
async fn in_time<T>(action: &'static str, asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(ASKED_WITHIN, asked).await.unwrap_or_else(|_| {
        let why = format!("no answer within {} s", ASKED_WITHIN.as_secs());
        Err(Failure::NoAnswer { action, why })
    })
}

/// Puts back what says the same as before and was said not long ago: `same` tells when both were true.
fn steady<K: Ord, V: Clone>(
    answer: &mut Result<BTreeMap<K, V>, Failure>,
    before: Option<&BTreeMap<K, V>>,
    same: impl Fn(&V, &V) -> Option<(Timestamp, Timestamp)>,
) {
    let (Ok(answer), Some(before)) = (answer, before) else { return };
    for (key, new) in answer {
        if let Some(old) = before.get(key)
            && same(new, old).is_some_and(|(now, then)| now.duration_since(then) < STEADY_FOR)
        {
            *new = old.clone();
        }
    }
}

/// A moment as AWS writes it.
pub(super) fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn spot_price(told: &SpotPrice) -> Option<((InstanceType, String), Timestamp, UsdPerHour)> {
    let instance_type = InstanceType::new(told.instance_type.as_str()).ok()?;
    let price = UsdPerHour::parse_usd(&told.spot_price).ok()?;
    Some(((instance_type, told.availability_zone.clone()), moment(&told.timestamp)?, price))
}
