//! `spec.disruption.consolidateAfter` of steered `NodePools`: how long a free node stays, by the window of a pool of the policy.

use std::collections::BTreeMap;

use stoker_core::policy::rules::karpenter::{Lever, RULES_LABEL};
use stoker_core::policy::rules::stabilization::Window;

use super::Inputs;
use super::faults::Faults;
use super::market::Market;
use super::marks::{Rewrites, WindowMark};
use super::reach::{Made, Makes};
use crate::objects::NodePool;

/// The window that is to be set on a `NodePool`, and the mark that says what was there; `None` where none is wanted.
///
/// # Errors
/// Why it cannot be set, and the cure.
fn wanted<'a>(
    pool: &'a NodePool,
    (makes, market): (&Makes, &Market),
    inputs: &Inputs<'a>,
    rewrites: &mut Rewrites,
) -> Result<Option<WindowMark>, String> {
    let Some(rules) = inputs.rules_of(pool)? else { return Ok(None) };
    let of = &rules.name;
    let Some(window) = &rules.stabilization else {
        return Err(format!("pool {of}, which its label {RULES_LABEL} names, has no window"));
    };
    // One window holds for all types: that of the most expensive.
    let length = match window.window {
        Window::Fixed => window.scale_down,
        Window::EqualCost => {
            let price = market.dearest(makes).ok_or("no table has a price on demand of what it makes")?;
            window.window_of(price, rules.waiting)
        }
    };
    let set = format!("{}s", length.as_secs());
    let stands = WindowMark::of(pool)?.filter(|mark| mark.stands(pool));
    rewrites.note(stands.is_some(), "spec.disruption.consolidateAfter", inputs.now)?;
    let was = stands.as_ref().map_or_else(|| pool.spec.disruption.consolidate_after.clone(), |mark| mark.was.clone());
    Ok(Some(WindowMark { set, was, why: format!("the window of pool {of}") }))
}

/// Which windows are to be set, and which given back.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) set: Vec<(String, WindowMark)>,
    pub(crate) given_back: Vec<(String, WindowMark)>,
}

/// What is to be done now. `rewrites`: how often somebody else has changed each.
pub(super) fn plan(
    inputs: &Inputs<'_>,
    (made, market): (&Made, &Market),
    rewrites: &mut BTreeMap<String, Rewrites>,
    faults: &mut Faults,
) -> Plan {
    let mut plan = Plan::default();
    for (name, pool) in inputs.facts.pools {
        let mark = WindowMark::of(pool);
        let makes = made.get(name).filter(|_| inputs.policy.karpenter.has(Lever::Windows));
        if makes.is_none() {
            rewrites.remove(name);
        }
        let rewrites = makes.map(|_| rewrites.entry(name.clone()).or_default());
        let wanted = makes.zip(rewrites).map_or(Ok(None), |(makes, rewrites)| {
            let made = makes.as_ref().map_err(String::clone)?;
            wanted(pool, (made, market), inputs, rewrites).map_err(|why| format!("its window is not steered: {why}"))
        });
        match (wanted, mark) {
            (Ok(Some(wanted)), Ok(mark)) if mark.as_ref() == Some(&wanted) && wanted.stands(pool) => {}
            (Ok(Some(wanted)), _) => plan.set.push((name.clone(), wanted)),
            (Ok(None), Ok(mark)) => plan.given_back.extend(mark.map(|mark| (name.clone(), mark))),
            (Err(why), _) | (Ok(None), Err(why)) => faults.add(format!("NodePool {name}"), why),
        }
    }
    plan
}
