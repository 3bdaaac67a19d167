//! Measures that are found from what was spent: spot, another region, weekends, windows, idle nodes, warm floors and pods without GPU.
//!
//! What a commitment paid for is owed until it ends: only what was paid beside commitments can be saved.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde_json::json;
use stoker_advice::spend::{DAY, DayRow, End, Figures, KeptDay, NodeState, PARTS, Use, WithoutGpu, grouped};
use stoker_advice::workload::MONTH_HOURS;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, InstanceType, PoolName, Region};
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::market::offer::{CapacityType, Market};
use stoker_core::market::price::usable;
use stoker_core::policy::rules::stabilization::{Stabilization, Window};
use stoker_service::print::count;
use stoker_service::yaml::Edit;

use super::{Found, Measure, pool};
use crate::cli::advise::words::length;

/// Of weekends on which pods held less of the nodes' time than this part, in hundredths, off-hours are worth a look.
const QUIET: i128 = 5;

/// Weekend days below which nobody knows what weekends are like.
const LEAST_WEEKEND_DAYS: usize = 4;

/// Hours that must be known: a week, as for workloads.
pub(super) const LEAST_HOURS: i64 = 7 * 24;

pub(super) fn measures(found: &Found<'_>) -> Vec<Measure> {
    if found.spent.known_hours < LEAST_HOURS {
        return Vec::new();
    }
    let mut measures = bought_as_spot(found);
    measures.extend(other_region(found));
    measures.extend(weekends(found));
    measures.extend(windows(found));
    measures.extend(free_nodes(found));
    measures.extend(without_gpu(found));
    measures
}

fn rows<'a>(found: &'a Found<'_>) -> impl Iterator<Item = &'a DayRow> {
    found.spent.days.iter().flat_map(|day| &day.rows)
}

/// Sums of nodes by what `key` says of them; what it says nothing of is left out.
fn summed<'a, K: Ord>(found: &'a Found<'_>, key: impl Fn(&'a Use) -> Option<K>) -> BTreeMap<K, Figures> {
    grouped(rows(found), key).into_iter().filter_map(|(key, figures)| Some((key?, figures))).collect()
}

/// Idle nodes of each pool.
fn idle<'a>(found: &'a Found<'_>) -> BTreeMap<&'a PoolName, Figures> {
    summed(found, |of| match of {
        Use::Nodes { pool, state: NodeState::Idle, .. } => Some(pool),
        _ => None,
    })
}

/// An hour, in parts of a second.
fn hour() -> i128 {
    3_600 * i128::from(PARTS)
}

/// What so much time of nodes costs at a price.
fn cost_of(price: UsdPerHour, node_parts: i64) -> i128 {
    i128::from(price.0) * i128::from(node_parts) / hour()
}

/// What a known time cost, for a month.
fn a_month((amount, hours): (i128, i64)) -> UsdMicros {
    let month = amount.saturating_mul(MONTH_HOURS.into()) / i128::from(hours.max(1));
    UsdMicros(i64::try_from(month).unwrap_or(i64::MAX))
}

/// Pools that buy on demand what is sold as spot too.
fn bought_as_spot(found: &Found<'_>) -> Vec<Measure> {
    let paid = summed(found, |of| match of {
        Use::Nodes { pool, market: Market { place, capacity_type: CapacityType::OnDemand }, .. } => Some((pool, place)),
        _ => None,
    });
    let mut pools: BTreeMap<&PoolName, (i128, i128)> = BTreeMap::new();
    for ((pool, place), figures) in paid {
        let spot = Market { place: place.clone(), capacity_type: CapacityType::Spot };
        let Ok(quote) = usable(found.prices.entry(&spot), Wall(found.now)) else { continue };
        let (cost, as_spot) = (i128::from(figures.cash().0), cost_of(quote.price, figures.cash_parts()));
        if as_spot < cost {
            let sum = pools.entry(pool).or_default();
            *sum = (sum.0 + cost, sum.1 + as_spot);
        }
    }
    let measure = |(name, (cost, as_spot)): (&PoolName, (i128, i128))| {
        let (pool, path) = pool(found.policy, name).filter(|(pool, _)| !pool.prefer.contains(&CapacityType::Spot))?;
        let mut prefer = pool.prefer.clone();
        let before = prefer.iter().position(|known| *known == CapacityType::OnDemand).unwrap_or(0);
        prefer.insert(before, CapacityType::Spot);
        let [cost, as_spot] = [cost, as_spot].map(|amount| a_month((amount, found.spent.known_hours)));
        Some(Measure {
            saved_per_month: UsdMicros(cost.0 - as_spot.0).into(),
            is_upper_bound: true,
            what: "spot",
            of: format!("pool {name}"),
            evidence: format!("its on-demand nodes cost {cost} a month, and the same as spot {as_spot}, at today's prices"),
            risk: "the cloud takes nodes back at short notice: what runs must go on from a checkpoint, or be repeated, and spot may be sold out"
                .to_owned(),
            by_hand: None,
            edits: vec![Edit::Set(path.key("capacity").key("prefer"), json!(prefer))],
        })
    };
    pools.into_iter().filter_map(measure).collect()
}

/// What pools pay for nodes that no pod holds.
fn free_nodes(found: &Found<'_>) -> Vec<Measure> {
    let free = summed(found, |of| match of {
        Use::Nodes { pool, state: NodeState::Idle, .. } => Some((pool, false)),
        Use::Nodes { pool, state: NodeState::Warm, .. } => Some((pool, true)),
        _ => None,
    });
    let measure = |((pool, is_warm), figures): ((&PoolName, bool), Figures)| {
        let node_hours = i128::from(figures.node_parts) / hour();
        let (what, doing, by_hand) = if is_warm {
            (
                "warm floor",
                "its floor kept free nodes",
                "lower or schedule the pool's warmFloor; stoker simulate shows who waits then",
            )
        } else {
            (
                "idle nodes",
                "nodes, or parts of them, were held by no pod",
                "shorten the pool's stabilization, set offHours, or share and isolate its GPUs; stoker simulate shows what that does",
            )
        };
        Measure {
            saved_per_month: a_month((figures.cash().0.into(), found.spent.known_hours)).into(),
            is_upper_bound: true,
            what,
            of: format!("pool {pool}"),
            evidence: format!("{doing} for {node_hours} node-hours in {} hours", found.spent.known_hours),
            risk: "pods that come wait for a node to boot".to_owned(),
            by_hand: Some(by_hand.to_owned()),
            edits: Vec::new(),
        }
    };
    free.into_iter().map(measure).collect()
}

/// Pools in which every free node waits as long, and dear ones need not.
fn windows(found: &Found<'_>) -> Vec<Measure> {
    let measure = |(name, figures): (&PoolName, Figures)| {
        let cost = i128::from(figures.contracted.0);
        let (pool, path) = pool(found.policy, name)?;
        let fixed = pool.stabilization.as_ref().filter(|of| of.window == Window::Fixed)?;
        let per_hour = (cost * hour()).checked_div(figures.node_parts.into())?;
        let per_hour = UsdPerHour(i64::try_from(per_hour).ok()?);
        let then = Stabilization { window: Window::EqualCost, ..fixed.clone() }.window_of(per_hour, pool.waiting);
        let shorter = fixed.scale_down.checked_sub(then).filter(SignedDuration::is_positive)?;
        let is_released = |how: Option<(End, i64)>| how.is_some_and(|(end, _)| end == End::Released);
        let released = found.lives.iter().filter(|life| life.pool == *name && is_released(life.end)).count();
        let each = per_hour.over_seconds(shorter.as_secs());
        let saved = (i128::from(each.0) * i128::try_from(released).ok()?).min(figures.cash().0.into());
        Some(Measure {
            saved_per_month: a_month((saved, found.spent.known_hours)).into(),
            is_upper_bound: true,
            what: "window",
            of: format!("pool {name}"),
            evidence: format!(
                "{} released in {} hours. A free one is kept for {}; one of {per_hour} an hour would be for {} by equalCost",
                if released == 1 { "1 node was".to_owned() } else { format!("{released} nodes were") },
                found.spent.known_hours,
                length(fixed.scale_down),
                length(then)
            ),
            risk: "more of the pods that come wait for a node to boot: stoker simulate shows how many".to_owned(),
            by_hand: None,
            edits: vec![Edit::Set(path.key("stabilization").key("window"), json!("equalCost"))],
        })
    };
    idle(found).into_iter().filter_map(measure).collect()
}

/// Pods that ask for no GPU and keep a node that nothing else needs.
fn without_gpu(found: &Found<'_>) -> Vec<Measure> {
    let idle = idle(found);
    let known_hours = found.spent.known_hours;
    let measure = |(pool, of): (&PoolName, &WithoutGpu)| {
        let namespaces: Vec<&str> = of.namespaces.iter().map(String::as_str).collect();
        // As much of it is owed to commitments anyway as of all that was idle.
        let cash = |figures: &Figures| (of.cost * i128::from(figures.cash().0)).checked_div(figures.contracted.0.into());
        let cost = idle.get(pool).and_then(cash).unwrap_or(of.cost);
        Measure {
            saved_per_month: a_month((cost / 3_600, known_hours)).into(),
            is_upper_bound: true,
            what: "pods without GPU",
            of: format!("pool {pool}"),
            evidence: format!(
                "{} that asked for no GPU ({}) ran on nodes that no other pod held, for {} node-hours in {known_hours} hours",
                count(of.pods, "pod"),
                namespaces.join(", "),
                of.node_seconds / 3_600
            ),
            risk: "they need other nodes to run on".to_owned(),
            by_hand: Some(
                "remove their toleration of GPU nodes, or have them select other nodes; the Events NoGpuOnGpuNode name them"
                    .to_owned(),
            ),
            edits: Vec::new(),
        }
    };
    found.without_gpu.iter().map(measure).collect()
}

/// Pools whose nodes cost less in another region of the same cloud, all of their types together.
fn other_region(found: &Found<'_>) -> Vec<Measure> {
    // What is reserved is paid for where it is.
    let paid = summed(found, |of| match of {
        Use::Nodes { pool, market, .. } if market.capacity_type != CapacityType::Reserved => Some((pool, market)),
        _ => None,
    });
    let mut pools: BTreeMap<&PoolName, BTreeMap<&Market, Figures>> = BTreeMap::new();
    for ((pool, market), figures) in paid {
        pools.entry(pool).or_default().insert(market, figures);
    }
    let cheapest = cheapest(found);
    let measure = |(name, markets): (&PoolName, BTreeMap<&Market, Figures>)| {
        let (pool, path) = pool(found.policy, name)?;
        let here: i128 = markets.values().map(|figures| i128::from(figures.cash().0)).sum();
        let clouds: BTreeSet<_> = markets.keys().map(|market| &market.place.cloud).collect();
        let [cloud] = clouds.into_iter().collect::<Vec<_>>()[..] else { return None };
        let there = |region: &Region| {
            markets.iter().try_fold(0_i128, |sum, (market, figures)| {
                let price = cheapest.get(&sort(market))?.get(region)?;
                Some(sum + cost_of(*price, figures.cash_parts()))
            })
        };
        let regions = markets.keys().next().and_then(|market| cheapest.get(&sort(market)))?.keys().copied();
        let elsewhere = regions.filter(|region| !pool.regions.contains(*region));
        let (cost, region) = elsewhere.filter_map(|region| Some((there(region)?, region))).min()?;
        let [here, cost] = [here, cost].map(|amount| a_month((amount, found.spent.known_hours)));
        (cost < here).then(|| Measure {
            saved_per_month: UsdMicros(here.0 - cost.0).into(),
            is_upper_bound: true,
            what: "another region",
            of: format!("pool {name}"),
            evidence: format!("its nodes cost {here} a month, and the same in {cloud}/{region} {cost}, at today's prices"),
            risk:
                "data is copied there, and users are further away: stoker estimate move tells when a copy has paid for itself"
                    .to_owned(),
            by_hand: None,
            edits: vec![Edit::Add(path.key("where").key("regions"), json!(region.as_str()))],
        })
    };
    pools.into_iter().filter_map(measure).collect()
}

/// What is bought, wherever it is.
type Sort<'a> = (&'a Cloud, &'a InstanceType, CapacityType);

fn sort(market: &Market) -> Sort<'_> {
    (&market.place.cloud, &market.place.instance_type, market.capacity_type)
}

/// The price of each sort by region, in the region's cheapest zone.
fn cheapest<'a>(found: &Found<'a>) -> BTreeMap<Sort<'a>, BTreeMap<&'a Region, UsdPerHour>> {
    let mut cheapest: BTreeMap<Sort<'a>, BTreeMap<&Region, UsdPerHour>> = BTreeMap::new();
    for (market, entry) in found.prices.entries() {
        let Ok(quote) = usable(Some(entry), Wall(found.now)) else { continue };
        let price = cheapest.entry(sort(market)).or_default().entry(&market.place.region).or_insert(quote.price);
        *price = quote.price.min(*price);
    }
    cheapest
}

/// Pools whose nodes stood free on weekends.
fn weekends(found: &Found<'_>) -> Vec<Measure> {
    // The first of January 1970 was a Thursday.
    let is_weekend = |day: i64| matches!(day.rem_euclid(7), 2 | 3);
    let is_known = |day: &KeptDay| day.known_seconds == DAY;
    let days: Vec<_> = found.spent.days.iter().filter(|day| is_weekend(day.day) && is_known(day)).collect();
    if days.len() < LEAST_WEEKEND_DAYS {
        return Vec::new();
    }
    let mut spent: BTreeMap<&PoolName, (i128, i128, i128)> = BTreeMap::new();
    for row in days.iter().flat_map(|day| &day.rows) {
        let Use::Nodes { pool, state, .. } = &row.key.of else { continue };
        let (all, held, free) = spent.entry(pool).or_default();
        *all += i128::from(row.figures.node_parts);
        match state {
            NodeState::Held => *held += i128::from(row.figures.node_parts),
            NodeState::Idle | NodeState::Warm => *free += i128::from(row.figures.cash().0),
            _ => {}
        }
    }
    let measure = |(name, (all, held, free)): (&PoolName, (i128, i128, i128))| {
        let (pool, path) = pool(found.policy, name)?;
        let is_quiet = all > 0 && held * 100 < all * QUIET && pool.off_hours.is_none();
        is_quiet.then(|| Measure {
            saved_per_month: a_month((free, found.spent.known_hours)).into(),
            is_upper_bound: true,
            what: "off-hours",
            of: format!("pool {name}"),
            evidence: format!(
                "on {} days of weekends its nodes ran for {} node-hours, and pods held {} of them",
                days.len(),
                all / hour(),
                held / hour()
            ),
            risk: "pods that come on a weekend wait until Monday".to_owned(),
            by_hand: None,
            edits: vec![Edit::Set(
                path.key("offHours"),
                json!({ "schedule": [{ "cron": "0 0 * * 6", "for": "48h", "timeZone": "UTC" }], "maxNodes": 0 }),
            )],
        })
    };
    spent.into_iter().filter_map(measure).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use stoker_advice::spend::{Holder, Life, RowKey};
    use stoker_core::base::ids::{GpuModel, RecordId, ZoneId};
    use stoker_core::market::offer::Place;
    use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
    use stoker_core::policy::{Policy, RawPolicy};

    use super::*;
    use crate::cli::report::LastDays;

    fn at() -> Timestamp {
        "2026-11-01T00:00:00Z".parse().unwrap()
    }

    pub(in super::super) fn market(region: &str) -> Market {
        let place = Place {
            cloud: Cloud::new("aws").unwrap(),
            region: Region::new(region).unwrap(),
            zone: ZoneId::new("a").unwrap(),
            instance_type: InstanceType::new("g6.xlarge").unwrap(),
        };
        Market { place, capacity_type: CapacityType::OnDemand }
    }

    /// A node of $1.00 an hour for 24 hours a day: held on weekdays, idle on weekends.
    fn days() -> Vec<KeptDay> {
        let row = |state: NodeState| DayRow {
            key: RowKey {
                of: Use::Nodes {
                    pool: PoolName::new("pool").unwrap(),
                    market: market("r"),
                    model: GpuModel::new("L4").unwrap(),
                    state,
                    holder: Holder::Unknown,
                },
                instance: None,
                paid_by: None,
            },
            figures: Figures {
                node_parts: 24 * 3_600 * PARTS,
                gpu_parts: 24 * 3_600 * PARTS,
                list: UsdMicros(24_000_000),
                contracted: UsdMicros(24_000_000),
                effective: UsdMicros(24_000_000),
                ..Figures::default()
            },
        };
        let day = |day: i64| KeptDay {
            day,
            known_seconds: 86_400,
            pods_known_seconds: 0,
            billed_by: Vec::new(),
            commitments: Vec::new(),
            rows: vec![row(if matches!(day % 7, 2 | 3) { NodeState::Idle } else { NodeState::Held })],
        };
        // The 2nd of January 1970 was a Friday.
        (1..15).map(day).collect()
    }

    /// Two nodes were released, and one was reclaimed.
    fn lives() -> Vec<Life> {
        let life = |record, end| Life {
            record: RecordId(record),
            pool: PoolName::new("pool").unwrap(),
            capacity_type: CapacityType::OnDemand,
            ordered: 0,
            ready: Some(300),
            taken: None,
            end: Some((end, 86_400)),
        };
        vec![life(0, End::Released), life(1, End::Released), life(2, End::Reclaimed)]
    }

    /// A node for a day, at $1.00 an hour.
    fn without_gpu() -> BTreeMap<PoolName, WithoutGpu> {
        let (pods, namespaces) = (2, ["ops".to_owned()].into());
        let of = WithoutGpu { cost: 86_400_000_000, node_seconds: 86_400, pods, namespaces };
        [(PoolName::new("pool").unwrap(), of)].into()
    }

    fn told(policy: &Policy, prices: &PriceBook) -> Vec<(&'static str, String, Vec<Edit>)> {
        let found = Found {
            policy,
            prices,
            workloads: &[],
            idle: &[],
            proposals: &[],
            spent: LastDays { days: days(), known_hours: 14 * 24, since: Timestamp::UNIX_EPOCH },
            lives: &lives(),
            without_gpu: &without_gpu(),
            now: at(),
        };
        let of = |measure: Measure| (measure.what, UsdMicros(measure.saved_per_month.micro_usd).to_string(), measure.edits);
        measures(&found).into_iter().map(of).collect()
    }

    pub(in super::super) fn policy(more: &serde_json::Value) -> Policy {
        let mut pool = json!({
            "name": "pool", "workload": "training", "gpu": {"models": ["L4"]},
            "where": {"clouds": ["aws"], "regions": ["r"]}, "capacity": {"prefer": ["on-demand"]}, "limits": {"maxNodes": 2},
        });
        pool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let raw: RawPolicy = serde_json::from_value(json!({
            "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test", "pools": [pool],
        }))
        .unwrap();
        Policy::try_from_raw(&raw).unwrap()
    }

    /// 336 hours at $1.00; a month has 730. As spot they cost $0.40: $438 are saved. In region `s` a node costs $0.75: a quarter of $730 is saved. Four days of the fourteen are
    /// weekends, and 96 of 336 hours are $208.57 of a month. Two nodes waited 10 min where 5 min at $1.00 an hour are worth it: 36 cents. A day
    /// of a node on which only pods without GPU ran is $52.14 of a month.
    #[test]
    fn quiet_weekends_and_a_cheaper_region_are_found() {
        let mut prices = PriceBook::new();
        for (region, price) in [("r", 1_000_000), ("s", 750_000), ("t", 900_000)] {
            let quote = Quote { price: UsdPerHour(price), kind: QuoteKind::List, as_of: Some(at()), source: "test".into() };
            prices.insert(market(region), Entry::Price(quote));
        }
        let spot = Quote { price: UsdPerHour(400_000), kind: QuoteKind::List, as_of: Some(at()), source: "test".into() };
        prices.insert(Market { capacity_type: CapacityType::Spot, ..market("r") }, Entry::Price(spot));
        let pool = |key: &str| stoker_core::policy::Path::root().key("pools").index(0).key(key);
        let off_hours = json!({ "schedule": [{ "cron": "0 0 * * 6", "for": "48h", "timeZone": "UTC" }], "maxNodes": 0 });
        let (as_spot, region, weekends, window, idle, without_gpu) = (
            ("spot", "$438.00".to_owned(), vec![Edit::Set(pool("capacity").key("prefer"), json!(["spot", "on-demand"]))]),
            ("another region", "$182.50".to_owned(), vec![Edit::Add(pool("where").key("regions"), json!("s"))]),
            ("off-hours", "$208.57".to_owned(), vec![Edit::Set(pool("offHours"), off_hours.clone())]),
            ("window", "$0.36".to_owned(), vec![Edit::Set(pool("stabilization").key("window"), json!("equalCost"))]),
            ("idle nodes", "$208.57".to_owned(), Vec::new()),
            ("pods without GPU", "$52.14".to_owned(), Vec::new()),
        );
        let rest = [window, idle, without_gpu];
        let all = |first: &[(&'static str, String, Vec<Edit>)]| [first, &rest].concat();
        assert_eq!(told(&policy(&json!({})), &prices), all(&[as_spot.clone(), region.clone(), weekends]));
        // With off-hours it has them; and where it may buy there already, Stoker does.
        assert_eq!(told(&policy(&json!({"offHours": off_hours})), &prices), all(&[as_spot.clone(), region]));
        let both = json!({"offHours": off_hours, "where": {"clouds": ["aws"], "regions": ["r", "s", "t"]}});
        assert_eq!(told(&policy(&both), &prices), all(&[as_spot]));
        // Windows of equal cost are as short as they should be.
        let equal = json!({"offHours": off_hours, "stabilization": {"window": "equalCost"}});
        assert!(told(&policy(&equal), &prices).iter().all(|(what, ..)| *what != "window"));
    }
}
