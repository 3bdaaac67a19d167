//! What would be written now, for people.

use std::collections::BTreeSet;

use kube::api::ListParams;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use stoker_core::base::ids::NodeName;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::karpenter::{Lever, RULES_LABEL};
use stoker_core::policy::{self, Policy};
use stoker_service::controllers::buffers::kinds;
use tokio::time::Instant;

use super::marks::{is_steered, value_in_words};
use super::prices::Overlay;
use super::protect::Change;
use super::tables::{self, Tables};
use super::write::with_cure;
use super::{Inputs, State, Used, floors, marks};
use crate::claim::INSTANCE_TYPE;
use crate::objects::{NODE_POOL, NodePool, label};

/// What would be written now, a line each, and what stands in the way.
///
/// # Errors
/// What cannot be read, and the cure.
pub async fn diff(
    client: &Client,
    (policy, book): (&Policy, &PriceBook),
    used: &Used,
    occupied: &BTreeSet<NodeName>,
) -> Result<Vec<String>, String> {
    let mut tables = Tables::default();
    listed(client, &ListParams::default(), &mut tables.pools).await?;
    listed(client, &ListParams::default(), &mut tables.claims).await?;
    listed(client, &ListParams::default().labels(NODE_POOL), &mut tables.nodes).await?;
    let mut untold: Vec<String> = Vec::new();
    // Prices that are steered no more are taken back; where the cluster has none at all, there is none to take.
    match listed(client, &ListParams::default(), &mut tables.overlays).await {
        Err(why) if policy.karpenter.has(Lever::Prices) => untold.push(format!("NodeOverlays: not steered, {why}")),
        Ok(()) | Err(_) => {}
    }
    let mut floors_there = BTreeSet::new();
    let [of_buffers, _] = kinds();
    match floors::all(client, &of_buffers).await {
        Ok(buffers) => floors_there.extend(buffers.iter().filter_map(|buffer| buffer.labels().get(NODE_POOL).cloned())),
        Err(why) if policy.karpenter.has(Lever::Floors) => untold.push(format!("CapacityBuffers: not steered, {why}")),
        Err(_) => {}
    }
    let facts = tables.facts().ok_or("nothing was listed")?;
    let now = Instant::now();
    let look = |used: &Used| {
        State::default().look(&Inputs { used: Some(used), occupied: Some(occupied), ..Inputs::of(facts, policy, book, now) })
    };
    // As if the decisions counted whatever is promised.
    let promised = look(used).promised.unwrap_or_default();
    let look = look(&Used { promised, ..used.clone() });
    let mut lines = Vec::new();
    for (name, mark) in &look.limits {
        let now = facts.pools.get(name).and_then(|pool| pool.spec.limits.clone()).unwrap_or_default();
        for (resource, set) in &mark.set {
            let is = value_in_words(now.get(resource));
            if is != set.to_string() {
                lines.push(format!("NodePool {name}: spec.limits.{resource} {is} -> {set}, {}", mark.why));
            }
        }
    }
    lines.extend(look.given_back.iter().map(|(name, _)| format!("NodePool {name}: spec.limits given back")));
    lines.extend(look.fields.set.iter().map(|(name, field, mark)| {
        let (was, set) = (value_in_words(mark.was.as_ref()), value_in_words(Some(&mark.set)));
        format!("NodePool {name}: {field} {was} -> {set}, {}", mark.why)
    }));
    lines.extend(look.fields.given_back.iter().map(|(name, field, _)| format!("NodePool {name}: {field} given back")));
    lines.extend(look.overlays.iter().map(|(name, Overlay { spec, why })| {
        let price = spec.price.as_deref().or(spec.price_adjustment.as_deref()).unwrap_or_default();
        let types = spec.requirements.iter().find(|one| one.key == INSTANCE_TYPE).and_then(|one| one.values.as_deref());
        format!("NodeOverlay {name}: {price} for {}, {why}", types.unwrap_or_default().join(", "))
    }));
    lines.extend(look.unpriced.iter().map(|name| format!("NodeOverlay {name}: taken back")));
    let new = look.floors.iter().filter(|(name, floor)| floor.is_known() && !floors_there.contains(*name));
    lines.extend(
        new.map(|(name, floor)| format!("NodePool {name}: CapacityBuffer {}, {}", floors::object_name(name), floor.why)),
    );
    let gone = floors_there.iter().filter(|name| !look.floors.contains_key(*name));
    lines.extend(gone.map(|name| format!("NodePool {name}: CapacityBuffer {} taken back", floors::object_name(name))));
    let steered = facts.pools.iter().filter(|(_, pool)| is_steered(pool));
    lines.extend(steered.filter_map(|(name, pool)| nameless(name, pool, policy)));
    lines.extend(untold);
    lines.extend(look.nodes.iter().map(|(name, change)| match change {
        Change::Protect => format!("Node {name}: {} true, GPU pods hold it", marks::DO_NOT_DISRUPT),
        Change::Release(_) => format!("Node {name}: {} given back", marks::DO_NOT_DISRUPT),
    }));
    lines.extend(look.repairs.iter().map(|(name, change)| format!("Node {name}: {change}")));
    lines.extend(facts.pools.iter().filter_map(|(name, pool)| shared(name, pool, policy)));
    lines.extend(look.faults.0.iter().map(|(object, why)| format!("{object}: not steered, {why}")));
    Ok(lines)
}

/// That a steered `NodePool` names no pool by whose rules levers would go that are on.
fn nameless(name: &str, pool: &NodePool, policy: &Policy) -> Option<String> {
    let by_rules = [Lever::Windows, Lever::Floors].into_iter().filter(|of| policy.karpenter.has(*of)).map(Lever::as_str);
    let by_rules: Vec<&str> = by_rules.collect();
    let is_nameless = label(&pool.meta, RULES_LABEL).is_none() && !by_rules.is_empty();
    is_nameless.then(|| {
        format!("NodePool {name}: without {}, as no label {RULES_LABEL} names a pool of the policy", by_rules.join(" and "))
    })
}

/// That a steered `NodePool` has the taints of a pool of the policy: its pods may be bought for twice.
fn shared(name: &str, pool: &NodePool, policy: &Policy) -> Option<String> {
    let theirs: BTreeSet<(&str, &str, &str)> = pool
        .spec
        .template
        .spec
        .taints
        .iter()
        .map(|taint| (taint.key.as_str(), taint.value.as_str(), taint.effect.as_str()))
        .collect();
    let is_same = |of: &&policy::Pool| {
        let own = of.taints.iter().map(|taint| (taint.key.as_str(), taint.value.as_str(), taint.effect.as_str()));
        own.collect::<BTreeSet<_>>() == theirs
    };
    let of = policy.pools.iter().find(is_same).filter(|_| is_steered(pool))?;
    Some(format!(
        "NodePool {name}: its taints are those of pool {}, so a pod that selects neither gets a node from both: give each a taint of \
         its own",
        of.name
    ))
}

/// Lists all objects of a kind.
async fn listed<K>(client: &Client, params: &ListParams, table: &mut tables::Table<K>) -> Result<(), String>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let all = Api::<K>::all(client.clone()).list(params).await.map_err(|error| with_cure(K::kind(&()).as_ref(), &error))?;
    table.take(Event::Init);
    all.items.into_iter().for_each(|object| table.take(Event::InitApply(object)));
    table.take(Event::InitDone);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::companion::tests::policy;

    #[test]
    fn a_node_pool_with_the_taints_of_a_pool_is_named() {
        let told = |labels: Value, value: &str| {
            let taints = json!([{ "key": "nvidia.com/gpu", "value": value, "effect": "NoSchedule" }]);
            let pool = json!({ "metadata": { "labels": labels }, "spec": { "template": { "spec": { "taints": taints } } } });
            shared("gpu", &serde_json::from_value(pool).unwrap(), &policy())
        };
        let steered = || json!({ "stoker.dev/steered": "true" });
        assert!(told(steered(), "true").is_some_and(|line| line.contains("NodePool gpu: its taints are those of pool pool")));
        assert_eq!(told(steered(), "theirs"), None);
        assert_eq!(told(json!({}), "true"), None);
    }
}
