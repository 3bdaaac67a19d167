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

/// The greatest weight that a `NodePool` may have.
const FIRST: u32 = 100;

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
        let (mark, key) = (FieldMark::of(field, pool), (field, name.clone()));
        let lever = if field == Field::Weight { Lever::Prices } else { Lever::Windows };
        let makes = made.get(name).filter(|_| inputs.policy.karpenter.has(lever));
        if makes.is_none() {
            rewrites.remove(&key);
        }
        let known = mark.as_ref().ok().and_then(Option::as_ref);
        let stands = known.filter(|mark| mark.stands(field, pool));
        // What there would be without Stoker.
        let was = match stands {
            Some(mark) => mark.was.clone(),
            None => field.of(pool).map(|now| without_own(field, now, known)),
        };
        let value = match (field, makes) {
            (_, None) => Ok(None),
            (Field::Weight, Some(_)) => Ok(first.get(name).map(|why| (json!(FIRST), why.clone()))),
            (Field::ConsolidateAfter, Some(makes)) => consolidate_after(pool, makes.as_ref(), market, inputs),
            (Field::Budgets, Some(_)) => budgets(pool, was.as_ref(), inputs),
        };
        let wanted = value.and_then(|value| {
            let Some((set, why)) = value else { return Ok(None) };
            rewrites.entry(key).or_default().note(stands.is_some(), field, inputs.now)?;
            Ok(Some(FieldMark { set, was: was.clone(), why }))
        });
        match (wanted, &mark) {
            (Ok(Some(wanted)), _) if stands == Some(&wanted) => {}
            (Ok(Some(wanted)), _) => plan.set.push((name.clone(), field, wanted)),
            (Ok(None), Ok(mark)) => plan.given_back.extend(mark.clone().map(|mark| (name.clone(), field, mark))),
            (Err(why), _) => faults.add(format!("NodePool {name}"), format!("its window is not steered: {why}")),
            (Ok(None), Err(why)) => faults.add(format!("NodePool {name}"), why),
        }
    }
    plan
}

/// A value as its owner has it who has changed the list that Stoker set, and left Stoker's budget in it.
fn without_own(field: Field, now: &Value, mark: Option<&FieldMark>) -> Value {
    let own = mark.filter(|_| field == Field::Budgets).and_then(|mark| mark.set.as_array()?.last());
    match (now, own) {
        (Value::Array(now), Some(own)) => Value::Array(now.iter().filter(|one| *one != own).cloned().collect()),
        _ => now.clone(),
    }
}

/// The value of a field, and why it is that; `None` where none is wanted.
type Wanted = Result<Option<(Value, String)>, String>;

/// How long a free node stays.
///
/// # Errors
/// Why that is not known, and the cure.
fn consolidate_after(
    pool: &NodePool,
    makes: Result<&std::sync::Arc<Makes>, &String>,
    market: &Market,
    inputs: &Inputs<'_>,
) -> Wanted {
    let Some((rules, window)) = window_of(pool, inputs)? else { return Ok(None) };
    // One window holds for all types: that of the most expensive.
    let length = match window.window {
        Window::Fixed => window.scale_down,
        Window::EqualCost => {
            let dearest = market.dearest(makes.map_err(String::clone)?);
            window.window_of(dearest.ok_or("no table has a price on demand of what it makes")?, rules.waiting)
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
