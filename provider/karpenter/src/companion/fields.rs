//! Fields of steered `NodePools` that are replaced whole: how long free nodes stay and how many go at once, by the windows of a pool of the
//! policy, and which `NodePool` comes first where Karpenter compares no prices.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stoker_core::base::units::Percent;
use stoker_core::policy::Pool;
use stoker_core::policy::rules::karpenter::{Lever, RULES_LABEL};
use stoker_core::policy::rules::stabilization::{Stabilization, Window};

use super::Inputs;
use super::faults::Faults;
use super::market::Market;
use super::marks::{Field, FieldMark, Rewrites};
use super::reach::{Made, Makes};
use crate::objects::NodePool;

/// Most disruption budgets that a `NodePool` may have.
const MOST_BUDGETS: usize = 50;

/// The greatest weight that a `NodePool` may have.
pub(super) const FIRST: u32 = 100;

/// Which fields are to be set, and which given back.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) set: Vec<(String, Field, FieldMark)>,
    pub(crate) given_back: Vec<(String, Field, FieldMark)>,
}

/// What is to be done now. `first`: the `NodePools` that come before others, and why. `rewrites`: how often somebody else has changed each
/// field.
pub(super) fn plan(
    inputs: &Inputs<'_>,
    (made, market): (&Made, &Market),
    first: &BTreeMap<String, String>,
    rewrites: &mut BTreeMap<(Field, String), Rewrites>,
    faults: &mut Faults,
) -> Plan {
    let mut plan = Plan::default();
    for ((name, pool), field) in inputs.facts.pools.iter().flat_map(|pool| Field::ALL.map(|field| (pool, field))) {
        let object = || format!("NodePool {name}");
        let mark = match FieldMark::of(field, pool) {
            Ok(mark) => mark,
            Err(why) => {
                faults.add(object(), why);
                continue;
            }
        };
        let key = (field, name.clone());
        let lever = if field == Field::Weight { Lever::Prices } else { Lever::Windows };
        let Some(makes) = made.get(name).filter(|_| inputs.policy.karpenter.has(lever)) else {
            rewrites.remove(&key);
            plan.given_back.extend(mark.map(|mark| (name.clone(), field, mark)));
            continue;
        };
        let was = mark.as_ref().map_or_else(|| field.of(pool).cloned(), |mark| mark.original(field, pool));
        let value = makes.as_ref().map_err(String::clone).and_then(|makes| match field {
            Field::ConsolidateAfter => consolidate_after(pool, makes, market, inputs),
            Field::Budgets => budgets(pool, was.as_ref(), inputs),
            Field::Weight => Ok(first.get(name).filter(|_| was != Some(json!(FIRST))).map(|why| (json!(FIRST), why.clone()))),
        });
        let stands = mark.as_ref().filter(|mark| mark.stands(field, pool));
        let wanted = value.and_then(|value| {
            let Some((set, why)) = value else { return Ok(None) };
            rewrites.entry(key).or_default().note(stands.is_some(), field, inputs.now)?;
            Ok(Some(FieldMark { set, was, why }))
        });
        match wanted {
            // Another reason alone is worth no write.
            Ok(Some(wanted)) if stands.is_some_and(|mark| (&mark.set, &mark.was) == (&wanted.set, &wanted.was)) => {}
            Ok(Some(wanted)) => plan.set.push((name.clone(), field, wanted)),
            Ok(None) => plan.given_back.extend(mark.map(|mark| (name.clone(), field, mark))),
            Err(why) => faults.add(object(), why),
        }
    }
    plan
}

/// The value of a field, and why it is that; `None` where none is wanted.
type Wanted = Result<Option<(Value, String)>, String>;

/// How long a free node stays.
///
/// # Errors
/// Why that is not known, and the cure.
fn consolidate_after(pool: &NodePool, makes: &Makes, market: &Market, inputs: &Inputs<'_>) -> Wanted {
    let Some((rules, window)) = window_of(pool, inputs)? else { return Ok(None) };
    // One window holds for all types: that of the most expensive.
    let length = match window.window {
        Window::Fixed => window.scale_down,
        Window::EqualCost => {
            let price = market.dearest(makes).ok_or("no table has a price on demand of what it makes")?;
            window.window_of(price, rules.waiting)
        }
    };
    Ok(Some((json!(format!("{}s", length.as_secs())), format!("the window of pool {}", rules.name))))
}

/// The owner's disruption budgets, and one more: Karpenter goes by the least that any of them allows.
fn budgets(pool: &NodePool, was: Option<&Value>, inputs: &Inputs<'_>) -> Wanted {
    let Some((rules, window)) = window_of(pool, inputs)? else { return Ok(None) };
    if window.max_removals >= Percent::ALL {
        return Ok(None);
    }
    let mut budgets = was.and_then(Value::as_array).cloned().unwrap_or_default();
    if budgets.len() >= MOST_BUDGETS {
        return Err(format!(
            "it has {MOST_BUDGETS} disruption budgets, as many as there may be: take one out, or windows out of steer"
        ));
    }
    budgets.push(json!({ "nodes": window.max_removals.to_string(), "reasons": ["Empty", "Underutilized"] }));
    Ok(Some((Value::Array(budgets), format!("maxRemovalsPerWindow of pool {}", rules.name))))
}

/// The window of the pool whose rules hold for a `NodePool`; `None` where it names none.
///
/// # Errors
/// The policy has no such pool, or that has no window.
fn window_of<'a>(pool: &'a NodePool, inputs: &Inputs<'a>) -> Result<Option<(&'a Pool, &'a Stabilization)>, String> {
    let Some(rules) = inputs.rules_of(pool)? else { return Ok(None) };
    let window = rules.stabilization.as_ref();
    let missing = || format!("pool {}, which its label {RULES_LABEL} names, has no window", rules.name);
    Ok(Some((rules, window.ok_or_else(missing)?)))
}
