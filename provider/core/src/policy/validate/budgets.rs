//! Budgets: the one of all pools, and whether the budgets and the floors under them fit together.

use serde_json::Number;

use super::{Faults, default_prefer, grammar, optional};
use crate::base::units::{Milli, UsdMicros, UsdPerHour};
use crate::market::offer::CapacityType;
use crate::market::price::{Entry, PriceBook};
use crate::policy::rules::month::MonthBudget;
use crate::policy::{Path, RawCommitment, RawOverallLimits, RawPolicy, RawPool};

const KEY: &str = "maxUsdPerHour";
const MONTH: &str = "maxUsdPerMonth";
const GUARANTEED: &str = "guaranteedUsdPerHour";

/// A spot node costs at least this share of on-demand: the floor that AWS sets where there is no demand at all.
const SPOT_FLOOR: u32 = 10;

/// The spend rate that all pools together never exceed. `None` is a fault, `Some(None)` no limit.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn overall(faults: &mut Faults, root: &Path, raw: &RawPolicy) -> Option<Option<UsdPerHour>> {
    let path = root.key("limits").key(KEY);
    let limit = optional(raw.limits.max_usd_per_hour.as_ref(), |number| {
        faults.rate(&path, number, "name a rate, or close the pools with maxNodes: 0")
    })?;
    for (at, pool) in raw.pools.iter().enumerate() {
        if let (Some(limit), Some(own)) = (limit, own(pool))
            && own > limit
        {
            let path = root.key("pools").index(at).key("limits").key(KEY);
            let message = format!("{own} is above the {limit} of all pools together (limits.{KEY}): lower it, or raise that");
            faults.add(&path, message);
        }
    }
    Some(limit)
}

/// What all pools together may spend in a month. `None` is a fault, `Some(None)` no limit.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn overall_month(faults: &mut Faults, root: &Path, raw: &RawPolicy) -> Option<Option<MonthBudget>> {
    let RawOverallLimits { max_usd_per_month, monthly_pace, .. } = &raw.limits;
    let month = month(faults, &root.key("limits"), max_usd_per_month.as_ref(), monthly_pace.as_ref())?;
    for (at, pool) in raw.pools.iter().enumerate() {
        let own = readable(pool.limits.max_usd_per_month.as_ref()).map(|own| UsdMicros(own.0));
        if let (Some(MonthBudget { limit, .. }), Some(own)) = (month, own)
            && own > limit
        {
            let message = format!("{own} is above the {limit} of all pools together (limits.{MONTH}): lower it, or raise that");
            faults.add(&root.key("pools").index(at).key("limits").key(MONTH), message);
        }
    }
    Some(month)
}

/// Reports guarantees that are above the budgets over them.
pub(super) fn guarantees(faults: &mut Faults, root: &Path, raw: &RawPolicy, month: Option<MonthBudget>) {
    let all = readable(raw.limits.max_usd_per_hour.as_ref());
    // The longest month has 744 hours.
    let even = |MonthBudget { limit, pace }: MonthBudget| {
        let rate = i128::from(limit.0) * i128::from(pace.0) / (744 * 1000);
        UsdPerHour(i64::try_from(rate).unwrap_or(i64::MAX))
    };
    let mut kept = UsdPerHour::ZERO;
    for (at, pool) in raw.pools.iter().enumerate() {
        let Some(guaranteed) = readable(pool.limits.guaranteed_usd_per_hour.as_ref()) else { continue };
        kept = kept.plus(guaranteed);
        let path = root.key("pools").index(at).key("limits").key(GUARANTEED);
        match all {
            None => {
                faults.add(&path, format!("is a part of limits.{KEY} of all pools, which is not set: set it, or remove this"))
            }
            Some(all) if kept > all => {
                let message = format!(
                    "makes the guarantees {kept}/h, above the {all}/h of all pools (limits.{KEY}): lower one, or raise that"
                );
                faults.add(&path, message);
            }
            Some(_) => {}
        }
        if let Some(rate) = month.map(even).filter(|rate| kept > *rate) {
            let message = format!(
                "makes the guarantees {kept}/h, above the {rate}/h that limits.{MONTH} leaves in a month of 31 days: lower one, or raise that"
            );
            faults.add(&path, message);
        }
        if let Some(own) = own(pool).filter(|own| guaranteed > *own) {
            faults.add(&path, format!("{guaranteed}/h is above the pool's own {KEY} {own}/h: lower it, or raise that"));
        }
    }
}

/// A monthly budget with its pace. `None` is a fault, `Some(None)` no limit.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
pub(super) fn month(
    faults: &mut Faults,
    path: &Path,
    limit: Option<&Number>,
    pace: Option<&Number>,
) -> Option<Option<MonthBudget>> {
    let even = Milli(1000);
    let pace_path = path.key("monthlyPace");
    let pace = pace.map_or(Some(even), |pace| faults.keep(&pace_path, grammar::factor(pace, 1, 24)));
    let Some(limit) = limit else {
        if pace != Some(even) {
            faults.add(&pace_path, format!("is the pace of {MONTH}, which is not set: set it, or remove this"));
        }
        return Some(None);
    };
    let limit = faults.rate(&path.key(MONTH), limit, "name an amount, or close the pool with maxNodes: 0");
    Some(Some(MonthBudget { limit: UsdMicros(limit?.0), pace: pace? }))
}

/// Reports floors that cost more than the budget over them, at the lowest price that there could be.
///
/// What commitments pay for a floor depends on the hour, so nothing is said where there are any.
pub(super) fn floors(faults: &mut Faults, root: &Path, policy: &RawPolicy, book: &PriceBook) {
    if !policy.commitments.is_empty() {
        return;
    }
    let mut all = UsdPerHour::ZERO;
    for (at, pool) in policy.pools.iter().enumerate() {
        let (Some(nodes), Some(each)) = (pool.limits.min_nodes.filter(|n| *n > 0), least(policy, pool, book)) else { continue };
        let floor = each.times(nodes);
        all = all.plus(floor);
        if let Some(limit) = own(pool).filter(|limit| floor > *limit) {
            let path = root.key("pools").index(at).key("limits");
            faults
                .add(&path, format!("minNodes {nodes} costs at least {floor}/h, above {KEY} {limit}: lower it or raise that"));
        }
    }
    let limit = readable(policy.limits.max_usd_per_hour.as_ref());
    if let Some(limit) = limit.filter(|limit| all > *limit) {
        let message =
            format!("{limit} is below the {all}/h that the minNodes of all pools cost at least: raise it or lower them");
        faults.add(&root.key("limits").key(KEY), message);
    }
}

/// A pool's own budget, where it can be read.
fn own(pool: &RawPool) -> Option<UsdPerHour> {
    readable(pool.limits.max_usd_per_hour.as_ref())
}

/// A rate, or an amount, where it can be read: what is wrong with it is reported where it is read first.
fn readable(number: Option<&Number>) -> Option<UsdPerHour> {
    grammar::rate(number?, "").ok()
}

/// The least that a node of the pool could cost; `None` where no price is known that tells.
fn least(policy: &RawPolicy, pool: &RawPool, book: &PriceBook) -> Option<UsdPerHour> {
    let names = |list: &[String], name: &str| list.iter().any(|one| one == name);
    let there = |cloud: &str, region: &str| names(&pool.place.clouds, cloud) && names(&pool.place.regions, region);
    let kept = policy.commitments.iter().any(RawCommitment::keeps_capacity);
    let prefer = pool.capacity.prefer.clone().unwrap_or_else(|| default_prefer(pool, kept));
    let patterns: Vec<_> = pool.instance_types.iter().filter_map(|text| grammar::type_pattern(text).ok()).collect();
    let listed = book.entries().filter_map(|(market, entry)| {
        let Entry::Price(quote) = entry else { return None };
        let place = &market.place;
        let model = &book.spec(&place.cloud, &place.instance_type)?.gpu_model;
        let fits = market.capacity_type == CapacityType::OnDemand
            && names(&pool.gpu.models, model.as_str())
            && there(place.cloud.as_str(), place.region.as_str())
            && (patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(&place.instance_type)));
        fits.then_some(quote.price)
    });
    let on_demand = listed.min()?;
    let floor = if prefer.contains(&CapacityType::Spot) { on_demand.per(SPOT_FLOOR) } else { on_demand };
    // The operator's own prices replace the tables'.
    let own = policy.prices.iter().filter(|row| there(&row.cloud, &row.region));
    let own = own.filter_map(|row| grammar::rate(&row.usd_per_hour, "").ok());
    Some(own.min().map_or(floor, |own| own.min(floor)))
}
