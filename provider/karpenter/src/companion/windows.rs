//! `spec.disruption.consolidateAfter` of steered `NodePools`: how long a free node stays, by the window of a pool of the policy.

use std::collections::BTreeMap;

use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::{CapacityType, Market};
use stoker_core::market::price::{Entry, PriceBook};
use stoker_core::policy::rules::karpenter::{Lever, RULES_LABEL};
use stoker_core::policy::rules::stabilization::Window;

use super::Inputs;
use super::marks::{Rewrites, WindowMark};
use super::reach::{Made, Makes};
use crate::objects::{NodePool, label};

/// The window that is to be set on a `NodePool`, and the mark that says what was there; `None` where all is as it should be.
///
/// # Errors
/// Why it cannot be set, and the cure.
fn wanted(pool: &NodePool, makes: &Makes, inputs: &Inputs<'_>, rewrites: &mut Rewrites) -> Result<Option<WindowMark>, String> {
    let Some(of) = label(&pool.meta, RULES_LABEL) else { return Ok(None) };
    let rules = inputs.policy.pools.iter().find(|pool| pool.name.as_str() == of);
    let Some((rules, window)) = rules.and_then(|rules| Some((rules, rules.stabilization.as_ref()?))) else {
        return Err(format!("its label {RULES_LABEL} names {of}, and the policy has no such pool with a window"));
    };
    // One window holds for all types: that of the most expensive.
    let length = match window.window {
        Window::Fixed => window.scale_down,
        Window::EqualCost => window.window_of(dearest(makes, inputs.book), rules.waiting),
    };
    let set = format!("{}s", length.as_secs());
    let stands = WindowMark::of(pool)?.filter(|mark| mark.stands(pool));
    rewrites.note(stands.is_some(), "spec.disruption.consolidateAfter")?;
    let was = stands.as_ref().map_or_else(|| pool.spec.disruption.consolidate_after.clone(), |mark| mark.was.clone());
    Ok(Some(WindowMark { set, was }).filter(|mark| stands.as_ref() != Some(mark)))
}

/// The highest price on demand of what a `NodePool` may make.
fn dearest(makes: &Makes, book: &PriceBook) -> UsdPerHour {
    let prices = book.entries().filter_map(|(market, entry)| {
        let Market { place, capacity_type } = market;
        let is_made = *capacity_type == CapacityType::OnDemand
            && place.cloud == makes.cloud
            && makes.types.iter().any(|spec| spec.instance_type == place.instance_type);
        match entry {
            Entry::Price(quote) if is_made => Some(quote.price),
            Entry::Price(_) | Entry::NoSignal(_) => None,
        }
    });
    prices.max().unwrap_or_default()
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
    made: &Made,
    rewrites: &mut BTreeMap<String, Rewrites>,
    faults: &mut BTreeMap<String, String>,
) -> Plan {
    let mut plan = Plan::default();
    for (name, pool) in inputs.facts.pools {
        let fault = |why: String| (format!("NodePool {name}"), why);
        if let Some(makes) = made.get(name).filter(|_| inputs.policy.karpenter.has(Lever::Windows)) {
            let rewrites = rewrites.entry(name.clone()).or_default();
            match makes.as_ref().map_err(String::clone).and_then(|makes| wanted(pool, makes, inputs, rewrites)) {
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
