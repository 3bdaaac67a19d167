//! Prices that Karpenter compares, as `NodeOverlays`: on demand what a commitment leaves to pay, and spot with the work that reclaims lose.
//!
//! An overlay has no quantity: its price holds for the first node and for the thousandth. So that of a commitment stands only while there
//! is room for more nodes than are on their way, and is taken back at once when there is not.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use stoker_core::base::ids::{Cloud, InstanceType, Region};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::foreign::ForeignKind;
use stoker_core::market::hazard::Prior;
use stoker_core::market::interruption::{notice, usable};
use stoker_core::market::labels::CAPACITY_TYPE_LABEL;
use stoker_core::market::offer::{CapacityType, InstanceSpec, Place};
use stoker_core::market::price::{Entry, PriceBook};
use stoker_core::policy::rules::karpenter::{Lever, RULES_LABEL};
use stoker_core::policy::rules::spot::SpotRules;
use stoker_core::state::spot_history::Risk;
use stoker_service::kube::Expression;
use tokio::time::Instant;

use super::marks::OWNER;
use super::reach::{Made, Makes};
use super::{Inputs, Look, Used};
use crate::claim::INSTANCE_TYPE;
use crate::objects::{NODE_POOL, NodeOverlay, NodeOverlaySpec, label};

/// The weights of Stoker's overlays, each its own: of two that meet with one weight Karpenter drops one everywhere.
const WEIGHTS: RangeInclusive<u32> = 4000..=4999;

/// Nodes for which a commitment has to have room, beside those on their way, so that its price stands: one that Karpenter may make before
/// the next look, and one to spare.
const ROOM: u32 = 2;

/// How long a price that was taken back stays away: each change has Karpenter reconsider every node.
const DWELL: Duration = Duration::from_mins(15);

/// How long Karpenter may take to look at an overlay.
const LOOKED_AT_WITHIN: Duration = Duration::from_mins(1);

/// A price moves an overlay where it differs by more than a twentieth.
const DEADBAND: i64 = 20;

/// What is remembered of overlays from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Prices {
    /// Since when Karpenter has not looked at one.
    unseen: BTreeMap<String, Instant>,
    /// When one was taken back.
    withdrawn: BTreeMap<String, Instant>,
    /// What the tables say, from when it is first asked for: they do not change.
    market: OnceCell<Market>,
}

/// An overlay that is to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overlay {
    pub(crate) spec: NodeOverlaySpec,
    /// Why, in words.
    pub(crate) why: String,
}

/// Some nodes that have one price.
#[derive(Debug, Default)]
struct Priced {
    pools: BTreeSet<String>,
    types: BTreeSet<InstanceType>,
}

impl Priced {
    fn add(&mut self, pool: &str, spec: &InstanceSpec) {
        self.pools.insert(pool.to_owned());
        self.types.insert(spec.instance_type.clone());
    }

    fn requirements(&self, bought: CapacityType) -> Vec<Expression> {
        let one = |key: &str, values: Vec<String>| Expression {
            key: key.to_owned(),
            operator: "In".to_owned(),
            values: Some(values),
        };
        vec![
            one(NODE_POOL, self.pools.iter().cloned().collect()),
            one(INSTANCE_TYPE, self.types.iter().map(ToString::to_string).collect()),
            one(CAPACITY_TYPE_LABEL, vec![bought.as_str().to_owned()]),
        ]
    }
}

/// What the tables say of a type in a region.
#[derive(Debug, Default)]
struct Sold {
    on_demand: Vec<(Place, UsdPerHour)>,
    spot: Vec<Place>,
}

/// What is sold, by region and type.
#[derive(Debug, Default)]
struct Market(HashMap<(Cloud, Region, InstanceType), Sold>);

impl Market {
    fn of(book: &PriceBook) -> Self {
        let mut sold: HashMap<_, Sold> = HashMap::new();
        for (market, entry) in book.entries() {
            let Place { cloud, region, instance_type, .. } = market.place.clone();
            let sold = sold.entry((cloud, region, instance_type)).or_default();
            match (market.capacity_type, entry) {
                (CapacityType::OnDemand, Entry::Price(quote)) => sold.on_demand.push((market.place.clone(), quote.price)),
                (CapacityType::Spot, _) => sold.spot.push(market.place.clone()),
                _ => {}
            }
        }
        Self(sold)
    }

    /// What is sold of a type wherever nodes may be made.
    fn sold<'a>(&'a self, makes: &'a Makes, spec: &'a InstanceSpec) -> impl Iterator<Item = &'a Sold> {
        let key = |region: &Region| (makes.cloud.clone(), region.clone(), spec.instance_type.clone());
        makes.regions.iter().filter_map(move |region| self.0.get(&key(region)))
    }
}

impl Prices {
    /// Which overlays are to be set, and which taken away.
    pub(super) fn plan(&mut self, inputs: &Inputs<'_>, made: &Made, look: &mut Look) {
        let Some(standing) = inputs.facts.overlays else { return };
        let has_prices = inputs.policy.karpenter.has(Lever::Prices);
        let priced = if has_prices { priced(made, &mut look.faults) } else { Vec::new() };
        let (ours, theirs): (Vec<_>, Vec<_>) = standing.iter().partition(|(_, overlay)| label(&overlay.meta, OWNER).is_some());
        let ours: BTreeMap<&str, &NodeOverlay> = ours.into_iter().map(|(name, overlay)| (name.as_str(), overlay)).collect();
        let Some(wanted) = self.wanted(inputs, &priced, &ours, look) else { return };
        let mut taken: BTreeSet<u32> = theirs.iter().map(|(_, overlay)| overlay.spec.weight).collect();
        let conflicts = |overlay: &NodeOverlay| ready(overlay).is_some_and(|(stands, _)| !stands);
        taken.extend(ours.values().filter(|overlay| !conflicts(overlay)).map(|overlay| overlay.spec.weight));
        for (name, Wanted { requirements, price, why }) in wanted {
            if theirs.iter().any(|(known, _)| **known == name) {
                let why = format!("it is not Stoker's, and stands in the place of one: delete it, or label it {OWNER}");
                look.faults.insert(format!("NodeOverlay {name}"), why);
                continue;
            }
            let stands = ours.get(name.as_str()).filter(|overlay| !conflicts(overlay));
            let Some(weight) =
                stands.map(|overlay| overlay.spec.weight).or_else(|| WEIGHTS.clone().find(|w| !taken.contains(w)))
            else {
                look.faults.insert(format!("NodeOverlay {name}"), "every weight from 4000 to 4999 is taken".to_owned());
                continue;
            };
            taken.insert(weight);
            let (price, price_adjustment) = price.written();
            let spec = NodeOverlaySpec { weight, requirements, price, price_adjustment };
            if stands.is_none_or(|overlay| overlay.spec != spec) {
                look.overlays.push((name, Overlay { spec, why }));
            }
        }
        self.watch(&ours, inputs.now, look);
    }

    /// The overlays that there should be; `None` while that is not known. Those that are there and should not be are noted.
    fn wanted(
        &mut self,
        inputs: &Inputs<'_>,
        priced: &[(&str, &Makes)],
        ours: &BTreeMap<&str, &NodeOverlay>,
        look: &mut Look,
    ) -> Option<BTreeMap<String, Wanted>> {
        let mut wanted = BTreeMap::new();
        if !priced.is_empty() {
            let market = self.market.get_or_init(|| Market::of(inputs.book));
            on_demand(inputs.used?, inputs, priced, market, ours, &mut wanted);
            spot(inputs, priced, market, ours, &mut wanted, &mut look.faults);
        }
        self.withdrawn.retain(|_, at| inputs.now.duration_since(*at) < DWELL);
        for name in ours.keys().filter(|name| !wanted.contains_key(**name)) {
            self.withdrawn.insert((*name).to_owned(), inputs.now);
            look.unpriced.push((*name).to_owned());
        }
        wanted.retain(|name, _| ours.contains_key(name.as_str()) || !self.withdrawn.contains_key(name));
        Some(wanted)
    }

    /// Tells of overlays that Karpenter does not obey.
    fn watch(&mut self, ours: &BTreeMap<&str, &NodeOverlay>, now: Instant, look: &mut Look) {
        self.unseen.retain(|name, _| ours.get(name.as_str()).is_some_and(|overlay| ready(overlay).is_none()));
        for (name, overlay) in ours {
            let why = match ready(overlay) {
                Some((true, _)) => continue,
                Some((false, message)) => format!("Karpenter does not take it: {message}"),
                None => {
                    let since = *self.unseen.entry((*name).to_owned()).or_insert(now);
                    if now.duration_since(since) < LOOKED_AT_WITHIN {
                        continue;
                    }
                    "Karpenter has not looked at it, so prices are not steered: start it with the feature gate NodeOverlay=true"
                        .to_owned()
                }
            };
            look.faults.insert(format!("NodeOverlay {name}"), why);
        }
    }
}

/// A price that Karpenter is to compare.
struct Wanted {
    requirements: Vec<Expression>,
    price: Price,
    why: String,
}

/// A price as an overlay says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Price {
    /// So much an hour.
    Fixed(UsdPerHour),
    /// So much more than the market's, in percent.
    More(u32),
}

impl Price {
    fn written(self) -> (Option<String>, Option<String>) {
        match self {
            Self::Fixed(UsdPerHour(micros)) => (Some(format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)), None),
            Self::More(percent) => (None, Some(format!("+{percent}%"))),
        }
    }
}

/// What on-demand nodes cost that a commitment covers.
fn on_demand(
    used: &Used,
    inputs: &Inputs<'_>,
    priced: &[(&str, &Makes)],
    market: &Market,
    ours: &BTreeMap<&str, &NodeOverlay>,
    wanted: &mut BTreeMap<String, Wanted>,
) {
    let mut covered: BTreeMap<String, (Priced, UsdPerHour, String)> = BTreeMap::new();
    let on_their_way = inputs.facts.unlaunched(priced.iter().map(|(name, _)| *name));
    for (pool, makes) in priced.iter().filter(|(_, makes)| makes.capacity_types.contains(&CapacityType::OnDemand)) {
        for spec in &makes.types {
            let name = overlay_name(&format!("od-{}", spec.instance_type));
            let room = if ours.contains_key(name.as_str()) { ROOM } else { ROOM + 1 };
            let marginal = |(place, price): &(Place, UsdPerHour)| {
                let kind = ForeignKind {
                    cloud: Some(place.cloud.clone()),
                    region: Some(place.region.clone()),
                    zone: Some(place.zone.clone()),
                    capacity_type: Some(CapacityType::OnDemand),
                    spec: Some(InstanceSpec::clone(spec)),
                    gpus: spec.advertised_gpus().max(1),
                    vcpus: spec.vcpus.unwrap_or(0),
                    price: Some(*price),
                };
                let next = used.committed.marginal_of(&inputs.policy.commitments, &kind)?;
                let by = next.by.as_ref()?.name.clone();
                (next.alike >= room.saturating_add(on_their_way)).then(|| (next.effective(), by))
            };
            // What holds in every zone that Karpenter may choose.
            let all: Option<Vec<_>> = market.sold(makes, spec).flat_map(|sold| &sold.on_demand).map(marginal).collect();
            let Some((price, by)) = all.and_then(|all| all.into_iter().max()) else { continue };
            let why = format!("covered by commitment {by}");
            covered.entry(name).or_insert_with(|| (Priced::default(), price, why)).0.add(pool, spec);
        }
    }
    for (name, (priced, price, why)) in covered {
        let stands = ours.get(name.as_str()).and_then(|overlay| parsed(overlay.spec.price.as_deref()?));
        let price = stands.filter(|stands| is_near(stands.0, price.0)).unwrap_or(price);
        let requirements = priced.requirements(CapacityType::OnDemand);
        wanted.insert(name, Wanted { requirements, price: Price::Fixed(price), why });
    }
}

/// What spot costs more than its price says, by the work that is lost.
fn spot(
    inputs: &Inputs<'_>,
    priced: &[(&str, &Makes)],
    market: &Market,
    ours: &BTreeMap<&str, &NodeOverlay>,
    wanted: &mut BTreeMap<String, Wanted>,
    faults: &mut BTreeMap<String, String>,
) {
    let mut by_percent: BTreeMap<(&str, u32), Priced> = BTreeMap::new();
    for (name, makes) in priced.iter().filter(|(_, makes)| makes.capacity_types.contains(&CapacityType::Spot)) {
        let Some(of) = inputs.facts.pools.get(*name).and_then(|pool| label(&pool.meta, RULES_LABEL)) else { continue };
        let pool = inputs.policy.pools.iter().find(|pool| pool.name.as_str() == of);
        let Some((of, rules)) = pool.and_then(|pool| Some((pool.name.as_str(), pool.spot.as_ref()?))) else {
            let why = format!("its label {RULES_LABEL} names {of}, and the policy has no such pool that buys spot");
            faults.insert(format!("NodePool {name}"), why);
            continue;
        };
        for spec in &makes.types {
            let places = market.sold(makes, spec).flat_map(|sold| &sold.spot);
            let Some(percent) = places.map(|place| more_than_price(inputs, rules, place)).max() else { continue };
            let percent = standing_percent(ours, of, &spec.instance_type)
                .filter(|stands| is_near(100 + i64::from(*stands), 100 + i64::from(percent)))
                .unwrap_or(percent);
            if percent > 0 {
                by_percent.entry((of, percent)).or_default().add(name, spec);
            }
        }
    }
    for ((of, percent), priced) in by_percent {
        let why = format!("work that reclaims lose, by the spot rules of pool {of}");
        let name = overlay_name(&format!("spot-{of}-{percent}"));
        let requirements = priced.requirements(CapacityType::Spot);
        wanted.insert(name, Wanted { requirements, price: Price::More(percent), why });
    }
}

/// How much more an hour of useful time costs in a spot market than an hour, in percent, rounded up.
fn more_than_price(inputs: &Inputs<'_>, rules: &SpotRules, place: &Place) -> u32 {
    let history = inputs.used.and_then(|used| used.spot.get(place)).map(AsRef::as_ref);
    let risk = Risk::estimate(Prior::of(inputs.book.reclaims(place)), history);
    let useful = rules.useful(risk.hazard, usable(notice(&place.cloud))).0.max(1);
    (100_000_000_u32.div_ceil(useful)).saturating_sub(100)
}

/// The percentage that a type has in an overlay that stands.
fn standing_percent(ours: &BTreeMap<&str, &NodeOverlay>, of: &str, instance_type: &InstanceType) -> Option<u32> {
    let prefix = overlay_name(&format!("spot-{of}-"));
    ours.iter().find_map(|(name, overlay)| {
        let percent = name.strip_prefix(&prefix)?.parse().ok()?;
        let has = |one: &Expression| {
            one.key == INSTANCE_TYPE && one.values.iter().flatten().any(|value| value == instance_type.as_str())
        };
        overlay.spec.requirements.iter().any(has).then_some(percent)
    })
}

/// Whether a price is so near to the one that stands that it is not worth a change.
const fn is_near(stands: i64, price: i64) -> bool {
    (stands - price).abs().saturating_mul(DEADBAND) <= stands
}

/// A price as it is written, `None` where it is none of Stoker's.
fn parsed(price: &str) -> Option<UsdPerHour> {
    let (whole, micros) = price.split_once('.')?;
    let (whole, micros): (i64, i64) = (whole.parse().ok()?, Some(micros).filter(|micros| micros.len() == 6)?.parse().ok()?);
    Some(UsdPerHour(whole.checked_mul(1_000_000)?.checked_add(micros)?))
}

/// A name that objects may have.
fn overlay_name(of: &str) -> String {
    let lower = of.to_ascii_lowercase();
    let of: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    format!("stoker-{of}")
}

/// Whether Karpenter obeys an overlay, and what it says; `None` while it has not looked.
fn ready(overlay: &NodeOverlay) -> Option<(bool, &str)> {
    let is_ready = overlay.status.conditions.iter().find(|condition| condition.kind == "Ready")?;
    let why = overlay.status.conditions.iter().find(|condition| condition.status == "False").unwrap_or(is_ready);
    Some((is_ready.status == "True", why.message.as_str()))
}

/// The steered pools whose prices Karpenter compares; the others are named with what stands in the way.
fn priced<'a>(made: &'a Made, faults: &mut BTreeMap<String, String>) -> Vec<(&'a str, &'a Makes)> {
    let mut priced = Vec::new();
    for (name, makes) in made {
        match makes {
            Ok(makes) if makes.cloud.as_str() == "gcp" => {
                let why =
                    "its prices are not steered: Karpenter on Google does not obey NodeOverlays; steer it by limits, or by \
                           spec.weight"
                        .to_owned();
                faults.entry(format!("NodePool {name}")).or_insert(why);
            }
            Ok(makes) => priced.push((name.as_str(), makes.as_ref())),
            Err(why) => drop(faults.entry(format!("NodePool {name}")).or_insert_with(|| why.clone())),
        }
    }
    priced
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use stoker_core::base::engine_clock::Wall;
    use stoker_core::base::ids::{NodeName, ZoneId};
    use stoker_core::catalogue::Catalogue;
    use stoker_core::facts::foreign::Foreign;
    use stoker_core::market::offer;
    use stoker_core::market::price::{Quote, QuoteKind};
    use stoker_core::policy::{Policy, RawPolicy};
    use stoker_core::state::memory::Memory;

    use super::*;
    use crate::companion::State;
    use crate::companion::tables::Tables;
    use crate::companion::tests as world;
    use crate::objects::name;

    /// The L4s of AWS with a price on demand, in two zones.
    fn book() -> PriceBook {
        let mut book = world::book();
        let specs: Vec<_> = book.specs().cloned().collect();
        let of_google = InstanceSpec {
            cloud: Cloud::new("gcp").unwrap(),
            instance_type: InstanceType::new("g2-standard-4").unwrap(),
            ..InstanceSpec::clone(&specs[0])
        };
        book.insert_spec(of_google);
        for spec in specs {
            for (zone, capacity_type) in
                ["use1-az1", "use1-az2"].into_iter().flat_map(|zone| CapacityType::ALL.map(|of| (zone, of)))
            {
                let place = Place {
                    cloud: spec.cloud.clone(),
                    region: Region::new("us-east-1").unwrap(),
                    zone: ZoneId::new(zone).unwrap(),
                    instance_type: spec.instance_type.clone(),
                };
                let price = UsdPerHour(i64::from(spec.vcpus.unwrap()) * 200_000);
                let quote = Quote { price, kind: QuoteKind::List, as_of: None, source: Arc::from("test") };
                book.insert(offer::Market { place, capacity_type }, Entry::Price(quote));
            }
        }
        book
    }

    /// Ten g6.xlarge are reserved; a pool of inference buys spot, and one of training that saves nothing.
    fn policy() -> Policy {
        let pool = |name: &str, workload: &str, spot: Value| {
            json!({
                "name": name, "workload": workload, "gpu": { "models": ["L4"] },
                "where": { "clouds": ["aws"], "regions": ["us-east-1"] },
                "capacity": { "prefer": ["spot", "on-demand"], "spot": spot }, "limits": { "maxNodes": 10 },
            })
        };
        let raw: RawPolicy = serde_json::from_value(json!({
            "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "prod",
            "pools": [pool("serving", "inference", json!({})), pool("training", "training", json!({ "checkpoint": "1h" }))],
            "commitments": [{
                "name": "ri", "kind": "reserved-instance", "cloud": "aws", "region": "us-east-1",
                "instanceType": "g6.xlarge", "nodes": 10, "usdPerHour": 0.5,
            }],
            "karpenter": { "steer": ["prices"] },
        }))
        .unwrap();
        Policy::try_from_raw(&raw).unwrap()
    }

    /// A steered `NodePool` of one type.
    fn pool(name: &str, instance_type: &str, labels: &Value, class: &str) -> Value {
        let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
        let mut pool = json!({
            "metadata": { "name": name, "labels": labels },
            "spec": { "template": { "spec": {
                "nodeClassRef": { "group": class, "kind": "Class", "name": "gpu" },
                "requirements": [one(INSTANCE_TYPE, instance_type), one("topology.kubernetes.io/region", "us-east-1")],
            } } },
        });
        pool["metadata"]["labels"]["stoker.dev/steered"] = json!("true");
        pool
    }

    const AWS: &str = "karpenter.k8s.aws";

    fn tables(pools: &[Value], overlays: &[Value]) -> Tables {
        let mut tables = Tables::default();
        tables.pools.take(Event::InitDone);
        tables.claims.take(Event::InitDone);
        tables.nodes.take(Event::InitDone);
        tables.overlays.take(Event::InitDone);
        for pool in pools {
            tables.pools.take(Event::Apply(serde_json::from_value(pool.clone()).unwrap()));
        }
        for overlay in overlays {
            tables.overlays.take(Event::Apply(serde_json::from_value(overlay.clone()).unwrap()));
        }
        tables
    }

    /// A look while so many g6.xlarge of Karpenter's run.
    fn look(state: &mut State, tables: &Tables, running: u32, now: Instant) -> Look {
        let (policy, book) = (Arc::new(policy()), book());
        let (market, _) = book.entries().find(|(m, _)| m.place.instance_type.as_str() == "g6.xlarge").unwrap();
        let spec = book.spec(&market.place.cloud, &market.place.instance_type).unwrap();
        let kind = ForeignKind {
            cloud: Some(market.place.cloud.clone()),
            region: Some(market.place.region.clone()),
            zone: Some(market.place.zone.clone()),
            capacity_type: Some(CapacityType::OnDemand),
            spec: Some(InstanceSpec::clone(spec)),
            gpus: 1,
            vcpus: 4,
            price: Some(UsdPerHour(800_000)),
        };
        let foreign = Foreign { nodes: [(kind, running)].into(), ..Foreign::default() };
        let memory = Memory { foreign: Some(Arc::new(foreign)), ..Memory::default() };
        let catalogue = Catalogue::derive(&policy, &book, &BTreeMap::default());
        let wall = Wall("2026-11-20T12:00:00Z".parse().unwrap());
        let (used, occupied) = (Used::of(&memory, &catalogue, wall), BTreeSet::<NodeName>::new());
        let facts = tables.facts().unwrap();
        let inputs = Inputs { facts, policy: &policy, book: &book, used: used.as_ref(), occupied: Some(&occupied), now };
        state.look(&inputs)
    }

    /// An overlay as Karpenter shows it.
    fn shown(name: &str, overlay: &Overlay, conditions: &Value) -> Value {
        json!({
            "metadata": { "name": name, "labels": { OWNER: "stoker-karpenter" } },
            "spec": overlay.spec, "status": { "conditions": conditions },
        })
    }

    fn ready() -> Value {
        json!([{ "type": "Ready", "status": "True", "message": "" }])
    }

    #[test]
    fn a_price_stands_while_the_commitment_has_room_for_two_more_and_those_on_their_way() {
        let pools = [pool("theirs", "g6.xlarge", &json!({}), AWS)];
        let (mut state, now) = (State::default(), Instant::now());
        let empty = tables(&pools, &[]);
        assert!(look(&mut state, &empty, 8, now).overlays.is_empty(), "to begin, one more has to fit");
        let made = look(&mut state, &empty, 7, now);
        let [(name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
        assert_eq!(
            (name.as_str(), overlay.spec.price.as_deref(), overlay.why.as_str()),
            ("stoker-od-g6.xlarge", Some("0.000001"), "covered by commitment ri")
        );
        let requirements: Vec<_> = overlay.spec.requirements.iter().map(|one| one.values.clone().unwrap().join(",")).collect();
        assert_eq!(requirements, ["theirs", "g6.xlarge", "on-demand"]);
        let mut standing = tables(&pools, &[shown(name, overlay, &ready())]);
        let stays = look(&mut state, &standing, 8, now);
        assert!(stays.overlays.is_empty() && stays.unpriced.is_empty() && stays.faults.is_empty(), "{stays:?}");
        // One that is on its way takes a place.
        let mut claim = world::claim(0, "g6.xlarge", "4", "1");
        claim["metadata"]["labels"][NODE_POOL] = json!("theirs");
        claim["status"] = json!({});
        standing.claims.take(Event::Apply(serde_json::from_value(claim).unwrap()));
        assert_eq!(look(&mut state, &standing, 8, now).unpriced, ["stoker-od-g6.xlarge"]);
        // What was taken back stays away for a while.
        assert!(look(&mut state, &empty, 0, now + DWELL / 2).overlays.is_empty());
        assert_eq!(look(&mut state, &empty, 0, now + DWELL).overlays.len(), 1);
        assert_eq!(look(&mut state, &standing, 10, now).unpriced, ["stoker-od-g6.xlarge"]);
    }

    #[test]
    fn spot_is_priced_by_the_rules_of_the_pool_that_a_label_names() {
        let rules = |of: &str| json!({ RULES_LABEL: of });
        let pools = [
            pool("serving", "g6.12xlarge", &rules("serving"), AWS),
            pool("training", "g6.12xlarge", &rules("training"), AWS),
            pool("plain", "g6.12xlarge", &json!({}), AWS),
            pool("wrong", "g6.12xlarge", &rules("trainnig"), AWS),
        ];
        let (mut state, now) = (State::default(), Instant::now());
        let made = look(&mut state, &tables(&pools, &[]), 10, now);
        let priced: Vec<_> = made
            .overlays
            .iter()
            .map(|(name, overlay)| {
                let pools = overlay.spec.requirements[0].values.clone().unwrap().join(",");
                (name.as_str(), pools, overlay.spec.price_adjustment.as_deref().unwrap(), overlay.spec.weight)
            })
            .collect();
        // No table has a rate, so 0.16 reclaims an hour are assumed: 2 min each, or half an hour of work and 5 min.
        assert_eq!(
            priced,
            [
                ("stoker-spot-serving-1", "serving".to_owned(), "+1%", 4000),
                ("stoker-spot-training-15", "training".to_owned(), "+15%", 4001),
            ]
        );
        assert!(made.faults["NodePool wrong"].contains("names trainnig"), "{:?}", made.faults);
    }

    #[test]
    fn every_overlay_has_a_weight_of_its_own_and_another_where_they_meet() {
        let pools = [pool("theirs", "g6.xlarge", &json!({}), AWS)];
        let (mut state, now) = (State::default(), Instant::now());
        let theirs = json!({ "metadata": { "name": "x" }, "spec": { "weight": 4000, "requirements": [] } });
        let made = look(&mut state, &tables(&pools, std::slice::from_ref(&theirs)), 0, now);
        let [(name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
        assert_eq!(overlay.spec.weight, 4001);
        let conflict = json!([
            { "type": "ValidationSucceeded", "status": "False", "message": "conflict with x" },
            { "type": "Ready", "status": "False", "message": "" },
        ]);
        let mut meets = shown(name, overlay, &conflict);
        meets["spec"]["weight"] = json!(4000);
        let moved = look(&mut state, &tables(&pools, &[meets, theirs]), 0, now);
        assert_eq!(moved.overlays[0].1.spec.weight, 4001);
        assert_eq!(moved.faults[&format!("NodeOverlay {name}")], "Karpenter does not take it: conflict with x");
        // One of that name that is not Stoker's is left as it is.
        let same = json!({ "metadata": { "name": name }, "spec": { "weight": 7, "requirements": [] } });
        let left = look(&mut state, &tables(&pools, &[same]), 0, now);
        assert!(left.overlays.is_empty() && left.unpriced.is_empty());
        assert!(left.faults[&format!("NodeOverlay {name}")].contains("not Stoker's"), "{:?}", left.faults);
    }

    #[test]
    fn karpenters_that_do_not_obey_are_told() {
        let pools =
            [pool("theirs", "g6.xlarge", &json!({}), AWS), pool("far", "g2-standard-4", &json!({}), "karpenter.k8s.gcp")];
        let (mut state, now) = (State::default(), Instant::now());
        let made = look(&mut state, &tables(&pools, &[]), 0, now);
        let [(overlay_name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
        let silent = tables(&pools, &[shown(overlay_name, overlay, &json!([]))]);
        let fault = format!("NodeOverlay {overlay_name}");
        assert!(!look(&mut state, &silent, 0, now).faults.contains_key(&fault));
        let told = look(&mut state, &silent, 0, now + LOOKED_AT_WITHIN).faults;
        assert!(told[&fault].contains("NodeOverlay=true"), "{told:?}");
        assert!(told["NodePool far"].contains("Google does not obey NodeOverlays"), "{told:?}");
    }

    #[test]
    fn what_is_steered_no_more_is_taken_back() {
        let (mut state, now) = (State::default(), Instant::now());
        let made = look(&mut state, &tables(&[pool("theirs", "g6.xlarge", &json!({}), AWS)], &[]), 0, now);
        let [(overlay_name, overlay)] = &made.overlays[..] else { panic!("{made:?}") };
        let gone = look(&mut state, &tables(&[], &[shown(overlay_name, overlay, &ready())]), 0, now);
        assert_eq!(gone.unpriced, std::slice::from_ref(overlay_name));
        assert_eq!(name(&serde_json::from_value::<NodeOverlay>(shown("n", overlay, &ready())).unwrap().meta), "n");
    }

    #[test]
    fn a_price_moves_by_more_than_a_twentieth_or_not_at_all() {
        assert!(is_near(100, 105) && is_near(100, 95) && !is_near(100, 106) && !is_near(100, 94));
        for micros in [1, 999_999, 1_000_000, 31_400_000] {
            let written = Price::Fixed(UsdPerHour(micros)).written().0.unwrap();
            assert_eq!(parsed(&written), Some(UsdPerHour(micros)), "{written}");
        }
        assert_eq!(parsed("31.4"), None);
    }
}
