//! Prices that Karpenter compares, as `NodeOverlays`: on demand what a commitment leaves to pay, and spot with the work that reclaims lose.
//!
//! An overlay has no quantity: its price holds for the first node and for the thousandth. So that of a commitment stands only while there
//! is room for more nodes than are on their way, and is taken back at once when there is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stoker_core::base::ids::InstanceType;
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::foreign::ForeignKind;
use stoker_core::market::hazard::Prior;
use stoker_core::market::interruption::{notice, usable};
use stoker_core::market::labels::CAPACITY_TYPE_LABEL;
use stoker_core::market::offer::{CapacityType, InstanceSpec, Place};
use stoker_core::policy::rules::karpenter::{Lever, RULES_LABEL};
use stoker_core::policy::rules::spot::SpotRules;
use stoker_core::state::spot_history::Risk;
use stoker_service::kube::Expression;
use tokio::time::Instant;

use super::faults::Faults;
use super::fields::FIRST;
use super::market::Market;
use super::marks::{FIELD_MANAGER, Field, FieldMark, OWNER, Rewrites, is_ours};
use super::reach::{Made, Makes};
use super::tables::{Facts, OnTheirWay};
use super::{Inputs, Look, Used};
use crate::claim::INSTANCE_TYPE;
use crate::objects::{Condition, NODE_POOL, NodeOverlay, NodeOverlaySpec, NodePool};

/// The weights of Stoker's overlays, each its own: of two that meet with one weight Karpenter drops one everywhere.
const WEIGHTS: RangeInclusive<u32> = 4000..=4999;

/// Nodes for which a commitment has to have room, beside those on their way, so that its price stands: one that Karpenter may make before
/// the next look, and one to spare.
const ROOM: u32 = 2;

/// How long a price that was taken back stays away: each change has Karpenter reconsider every node.
const DWELL: Duration = Duration::from_mins(15);

/// What the names of prices begin with that commitments cover.
const COVERED: &str = "od-";

/// How long Karpenter may take to look at an overlay.
pub(super) const LOOKED_AT_WITHIN: Duration = Duration::from_mins(1);

/// A price moves an overlay where it differs by more than a twentieth.
const DEADBAND: i64 = 20;

/// What is remembered of overlays from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Prices {
    /// Since when Karpenter has not looked at one.
    unseen: BTreeMap<String, Instant>,
    /// When one was taken back.
    withdrawn: BTreeMap<String, Instant>,
    /// How each was last written, and how often somebody else has rewritten it since.
    written: BTreeMap<String, (NodeOverlaySpec, Rewrites)>,
    /// When a `NodePool` was put first no more.
    stepped_back: BTreeMap<String, Instant>,
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

impl Prices {
    /// Which overlays are to be set, and which taken away. The `NodePools` that commitments cover come first where Karpenter does not
    /// compare prices: they are returned, with why.
    pub(super) fn plan(
        &mut self,
        inputs: &Inputs<'_>,
        made: &Made,
        market: &Market,
        look: &mut Look,
    ) -> BTreeMap<String, String> {
        for taken_back in [&mut self.withdrawn, &mut self.stepped_back] {
            taken_back.retain(|_, at| inputs.now.duration_since(*at) < DWELL);
        }
        let has_prices = inputs.policy.karpenter.has(Lever::Prices);
        let (obey, ignore) = if has_prices { priced(made, &mut look.faults) } else { <(Vec<_>, Vec<_>)>::default() };
        self.overlays(inputs, (&obey, market), look);
        let mut ignored = ignore;
        match self.is_ignored(inputs) {
            Some(true) => ignored.extend(obey),
            Some(false) => {}
            // Until that is known, what stands does.
            None => ignored.extend(obey.into_iter().filter(|(name, _)| inputs.facts.pools.get(*name).is_some_and(comes_first))),
        }
        self.first(inputs, (&ignored, market), &mut look.faults)
    }

    /// Which overlays are to be set, and which taken away.
    fn overlays(&mut self, inputs: &Inputs<'_>, (priced, market): (&[(&str, &Makes)], &Market), look: &mut Look) {
        let Some(standing) = inputs.facts.overlays else { return };
        let (ours, theirs): (Vec<_>, Vec<_>) = standing.iter().partition(|(_, overlay)| is_ours(&overlay.meta));
        let ours: BTreeMap<&str, &NodeOverlay> = ours.into_iter().map(|(name, overlay)| (name.as_str(), overlay)).collect();
        let Some(wanted) = self.wanted(inputs, (priced, market), &ours, look) else { return };
        let of_theirs: BTreeSet<u32> = theirs.iter().map(|(_, overlay)| overlay.spec.weight).collect();
        let mut taken = of_theirs.clone();
        taken.extend(ours.values().map(|overlay| overlay.spec.weight));
        for (name, Wanted { requirements, price, why }) in wanted {
            if theirs.iter().any(|(known, _)| **known == name) {
                let why = format!(
                    "it is not Stoker's, and stands in the place of one: delete it, or label it {OWNER}={FIELD_MANAGER}"
                );
                look.faults.add(format!("NodeOverlay {name}"), why);
                continue;
            }
            let stands = ours.get(name.as_str());
            let own = stands.map(|overlay| overlay.spec.weight).filter(|weight| !of_theirs.contains(weight));
            let Some(weight) = own.or_else(|| WEIGHTS.clone().find(|weight| !taken.contains(weight))) else {
                look.faults.add(format!("NodeOverlay {name}"), "every weight from 4000 to 4999 is taken");
                continue;
            };
            taken.insert(weight);
            if let Some((spec, rewrites)) = self.written.get_mut(&name) {
                let is_as_written = stands.is_some_and(|overlay| overlay.spec == *spec);
                if let Err(why) = rewrites.note(is_as_written, "its spec", inputs.now) {
                    look.faults.add(format!("NodeOverlay {name}"), why);
                    continue;
                }
            }
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
        (priced, market): (&[(&str, &Makes)], &Market),
        ours: &BTreeMap<&str, &NodeOverlay>,
        look: &mut Look,
    ) -> Option<BTreeMap<String, Wanted>> {
        let mut wanted = BTreeMap::new();
        if !priced.is_empty() {
            on_demand(inputs.used?, inputs, priced, market, ours, &mut wanted);
            spot(inputs, priced, market, ours, &mut wanted, &mut look.faults);
        }
        self.written.retain(|name, _| wanted.contains_key(name));
        for name in ours.keys().filter(|name| !wanted.contains_key(**name)) {
            // A surcharge on spot comes back at once: without it spot looks cheaper than it is.
            if is_covered(name) {
                self.withdrawn.insert((*name).to_owned(), inputs.now);
            }
            look.unpriced.push((*name).to_owned());
        }
        wanted.retain(|name, _| ours.contains_key(name.as_str()) || !self.withdrawn.contains_key(name));
        Some(wanted)
    }

    /// Whether Karpenter looks at no overlays; `None` while it has had no time to look at one.
    fn is_ignored(&self, inputs: &Inputs<'_>) -> Option<bool> {
        let Some(overlays) = inputs.facts.overlays else { return Some(inputs.has_no_overlays) };
        let is_seen = |overlay: &NodeOverlay| is_ours(&overlay.meta) && ready(overlay).is_some();
        if overlays.values().any(is_seen) {
            return Some(false);
        }
        let is_late = |since: &Instant| inputs.now.duration_since(*since) >= LOOKED_AT_WITHIN;
        self.unseen.values().any(is_late).then_some(true)
    }

    /// The `NodePools` all of whose nodes a commitment covers, and which: they are to come first while it has room. Taken back, that stays
    /// away for a while, as a price does.
    fn first(
        &mut self,
        inputs: &Inputs<'_>,
        (ignored, market): (&[(&str, &Makes)], &Market),
        faults: &mut Faults,
    ) -> BTreeMap<String, String> {
        let mut first = BTreeMap::new();
        let stands = |name: &str| inputs.facts.pools.get(name).is_some_and(comes_first);
        let Some(used) = inputs.used else {
            // What is not known keeps what stands.
            let standing = ignored.iter().filter(|(name, _)| stands(name));
            return standing.map(|(name, _)| ((*name).to_owned(), String::new())).collect();
        };
        let coming = inputs.facts.on_their_way(&ignored.iter().map(|(name, _)| *name).collect());
        for (name, makes) in ignored {
            let is_first = stands(name);
            let covered = makes.types.iter().map(|spec| cover_of(used, inputs, &coming, market, (makes, spec), is_first));
            let by: Option<BTreeSet<String>> = covered.map(|covered| covered.map(|(_, by)| by)).collect();
            let on_demand = makes.capacity_types == [CapacityType::OnDemand];
            let Some(by) = by.filter(|by| on_demand && !by.is_empty()) else {
                if is_first {
                    self.stepped_back.insert((*name).to_owned(), inputs.now);
                }
                continue;
            };
            if is_first || !self.stepped_back.contains_key(*name) {
                let by: Vec<String> = by.into_iter().collect();
                first.insert((*name).to_owned(), format!("covered by commitment {}", by.join(" and ")));
            }
        }
        let is_rival = |(name, pool): &(&String, &NodePool)| !first.contains_key(*name) && weight(pool) >= u64::from(FIRST);
        if let Some((rival, _)) = inputs.facts.pools.iter().find(is_rival) {
            for name in first.keys() {
                let why = format!(
                    "NodePool {rival} has weight {FIRST} too, so what a commitment covers need not come first: lower it"
                );
                faults.add(format!("NodePool {name}"), why);
            }
        }
        first
    }

    /// Takes note that an overlay was written.
    pub(super) fn wrote(&mut self, name: &str, spec: &NodeOverlaySpec) {
        let (last, rewrites) = self.written.entry(name.to_owned()).or_default();
        last.clone_from(spec);
        rewrites.wrote();
    }

    /// Takes note that the weight of a `NodePool` was given back.
    pub(super) fn stepped_back(&mut self, pool: &str, now: Instant) {
        self.stepped_back.insert(pool.to_owned(), now);
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
            look.faults.add(format!("NodeOverlay {name}"), why);
        }
    }
}

/// The weight of a `NodePool`; none is 0.
fn weight(pool: &NodePool) -> u64 {
    pool.spec.weight.as_ref().and_then(Value::as_u64).unwrap_or(0)
}

/// Whether a `NodePool` comes first by Stoker's word.
pub(super) fn comes_first(pool: &NodePool) -> bool {
    let mark = FieldMark::of(Field::Weight, pool);
    mark.is_ok_and(|mark| mark.is_some_and(|mark| mark.stands(Field::Weight, pool)))
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
    let coming = inputs.facts.on_their_way(&priced.iter().map(|(name, _)| *name).collect());
    for (pool, makes) in priced.iter().filter(|(_, makes)| makes.capacity_types.contains(&CapacityType::OnDemand)) {
        for spec in &makes.types {
            let name = overlay_name(&format!("{COVERED}{}", spec.instance_type));
            let stands = ours.contains_key(name.as_str());
            let Some((price, by)) = cover_of(used, inputs, &coming, market, (makes, spec), stands) else { continue };
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

/// What a node of a type costs that a commitment covers in every zone that Karpenter may choose, and which commitment; `None` where there is
/// not enough room. `stands`: whether that holds already.
fn cover_of(
    used: &Used,
    inputs: &Inputs<'_>,
    coming: &OnTheirWay<'_>,
    market: &Market,
    (makes, spec): (&Makes, &Arc<InstanceSpec>),
    stands: bool,
) -> Option<(UsdPerHour, String)> {
    let counted = used.claims.get(&spec.instance_type).copied().unwrap_or(0);
    let on_their_way = coming.of(spec.instance_type.as_str(), counted);
    let room = if stands { ROOM } else { ROOM + 1 };
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
    let all: Option<Vec<_>> = market.sold(makes, spec).flat_map(|sold| &sold.on_demand).map(marginal).collect();
    all.and_then(|all| all.into_iter().max())
}

/// What spot costs more than its price says, by the work that is lost.
fn spot(
    inputs: &Inputs<'_>,
    priced: &[(&str, &Makes)],
    market: &Market,
    ours: &BTreeMap<&str, &NodeOverlay>,
    wanted: &mut BTreeMap<String, Wanted>,
    faults: &mut Faults,
) {
    let mut by_percent: BTreeMap<(&str, u32), Priced> = BTreeMap::new();
    for (name, makes) in priced.iter().filter(|(_, makes)| makes.capacity_types.contains(&CapacityType::Spot)) {
        let Some(pool) = inputs.facts.pools.get(*name) else { continue };
        let rules = inputs.rules_of(pool).and_then(|pool| match pool.map(|pool| (pool, &pool.spot)) {
            None => Ok(None),
            Some((pool, Some(rules))) => Ok(Some((pool.name.as_str(), rules))),
            Some((pool, None)) => Err(format!("pool {}, which its label {RULES_LABEL} names, buys no spot", pool.name)),
        });
        let (of, rules) = match rules {
            Ok(None) => continue,
            Ok(Some(rules)) => rules,
            Err(why) => {
                faults.add(format!("NodePool {name}"), format!("its spot keeps the market's price: {why}"));
                continue;
            }
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

/// Whether an overlay of Stoker's is the price of what a commitment covers.
pub(super) fn is_covered(name: &str) -> bool {
    name.starts_with(&overlay_name(COVERED))
}

/// The overlays of Stoker's with such prices.
pub(super) fn covered(facts: Facts<'_>) -> impl Iterator<Item = &str> {
    let all = facts.overlays.into_iter().flatten();
    all.filter(|(name, overlay)| is_ours(&overlay.meta) && is_covered(name)).map(|(name, _)| name.as_str())
}

/// A name that objects may have.
fn overlay_name(of: &str) -> String {
    let lower = of.to_ascii_lowercase();
    let of: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    format!("stoker-{of}")
}

/// Whether Karpenter obeys an overlay, and what it says; `None` while it has not looked.
fn ready(overlay: &NodeOverlay) -> Option<(bool, &str)> {
    let is_ready = Condition::of(&overlay.status.conditions, "Ready")?;
    let why = overlay.status.conditions.iter().find(|condition| condition.status == "False").unwrap_or(is_ready);
    Some((is_ready.status == "True", why.message.as_str()))
}

/// `NodePools` by name, with what they may make.
type Named<'a> = Vec<(&'a str, &'a Makes)>;

/// The steered pools whose prices Karpenter compares, and those where it does not, as its provider for Google ignores `NodeOverlays`. The
/// others are named with what stands in the way.
fn priced<'a>(made: &'a Made, faults: &mut Faults) -> (Named<'a>, Named<'a>) {
    let mut known = Vec::new();
    for (name, makes) in made {
        match makes {
            Ok(makes) if is_google(makes) && makes.capacity_types != [CapacityType::OnDemand] => {
                let why = "its prices are not steered: Karpenter on Google ignores NodeOverlays, and spec.weight is steered of \
                           NodePools of on-demand nodes alone: give each capacity type a NodePool of its own";
                faults.add(format!("NodePool {name}"), why);
            }
            Ok(makes) => known.push((name.as_str(), makes.as_ref())),
            Err(why) => faults.add(format!("NodePool {name}"), why),
        }
    }
    known.into_iter().partition(|(_, makes)| !is_google(makes))
}

fn is_google(makes: &Makes) -> bool {
    makes.cloud.as_str() == "gcp"
}

#[cfg(test)]
mod tests;
