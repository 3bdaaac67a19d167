//! `spec.disruption.consolidateAfter` of steered `NodePools`: how long a free node stays, by the window of a pool of the policy.

use std::collections::BTreeMap;

use stoker_core::market::offer::CapacityType;
use stoker_core::market::price::Entry;
use stoker_core::policy::rules::karpenter::{Lever, RULES_LABEL};

use super::Inputs;
use super::marks::{Rewrites, WindowMark, is_steered};
use super::reach::Makes;
use crate::objects::{NodePool, label};

/// The window that is to be set on a `NodePool`, and the mark that says what was there; `None` where all is as it should be.
///
/// # Errors
/// Why it cannot be set, and the cure.
fn wanted(pool: &NodePool, inputs: &Inputs<'_>, rewrites: &mut Rewrites) -> Result<Option<WindowMark>, String> {
    let Some(of) = label(&pool.meta, RULES_LABEL) else { return Ok(None) };
    let rules = inputs.policy.pools.iter().find(|pool| pool.name.as_str() == of);
    let Some((rules, window)) = rules.and_then(|rules| Some((rules, rules.stabilization.as_ref()?))) else {
        return Err(format!("its label {RULES_LABEL} names {of}, and the policy has no such pool with a window"));
    };
    let makes = Makes::of(pool, inputs.facts.home().as_ref(), inputs.book)?;
    // One window holds for all types: that of the most expensive.
    let prices = inputs.book.entries().filter_map(|(market, entry)| {
        let sold = market.capacity_type == CapacityType::OnDemand
            && market.place.cloud == makes.cloud
            && makes.types.iter().any(|spec| spec.instance_type == market.place.instance_type);
        match entry {
            Entry::Price(quote) if sold => Some(quote.price),
            Entry::Price(_) | Entry::NoSignal(_) => None,
        }
    });
    let length = window.window_of(prices.max().unwrap_or_default(), rules.waiting);
    let set = format!("{}s", length.as_secs());
    let stands = WindowMark::of(pool)?.filter(|mark| mark.stands(pool));
    rewrites.note(stands.is_some(), "spec.disruption.consolidateAfter")?;
    let was = stands.as_ref().map_or_else(|| pool.spec.disruption.consolidate_after.clone(), |mark| mark.was.clone());
    Ok(Some(WindowMark { set, was }).filter(|mark| stands.as_ref() != Some(mark)))
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
    rewrites: &mut BTreeMap<String, Rewrites>,
    faults: &mut BTreeMap<String, String>,
) -> Plan {
    let mut plan = Plan::default();
    for (name, pool) in inputs.facts.pools {
        let fault = |why: String| (format!("NodePool {name}"), why);
        if is_steered(pool) && inputs.policy.karpenter.has(Lever::Windows) {
            match wanted(pool, inputs, rewrites.entry(name.clone()).or_default()) {
                Ok(mark) => plan.set.extend(mark.map(|mark| (name.clone(), mark))),
                Err(why) => faults.extend([fault(why)]),
            }
            continue;
        }
        rewrites.remove(name);
        match WindowMark::of(pool) {
            Ok(mark) => plan.given_back.extend(mark.map(|mark| (name.clone(), mark))),
            Err(why) => faults.extend([fault(why)]),
        }
    }
    plan
}
