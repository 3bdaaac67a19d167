//! A selector that names what no group has, and what was probably meant.

use std::collections::{BTreeMap, BTreeSet};

use stoker_core::base::text::{nearest, quoted};
use stoker_core::catalogue::template::{GPU_LABEL, GROUP_LABEL, POOL_LABEL};

use crate::kube::gpu_labels::{GPU_LABELS, model_in};
use crate::kube::pending::PendingRow;
use crate::publish::view::View;

#[cfg(test)]
mod tests;

/// What the labels of our nodes begin with.
const DOMAIN: &str = "stoker.dev/";

/// Labels that only our nodes have.
const OURS: [&str; 3] = [POOL_LABEL, GPU_LABEL, GROUP_LABEL];

/// What is wrong with a waiting pod's selector, where it means one of our groups and names none; `None` where nothing is.
pub(super) fn near_miss(pod: &PendingRow, view: &View) -> Option<String> {
    let wanted = pod.wanted();
    // A pod that names nothing of ours may be waiting for anybody's nodes.
    if !wanted.iter().any(|(key, values)| meant(view, key, values).is_some()) {
        return None;
    }
    wanted.iter().find_map(|(key, values)| alone(view, key, values)).or_else(|| together(view, &wanted))
}

/// What is wrong with one label, whatever the others are.
fn alone(view: &View, key: &str, wanted: &[&str]) -> Option<String> {
    let there = values_of(view, key);
    if wanted.iter().any(|value| there.contains(value) || value.is_empty()) {
        return None;
    }
    if there.is_empty() {
        return no_such_label(view, key, wanted);
    }
    let cure = match near_value(wanted, &there) {
        Some(near) => format!("did you mean {near}?"),
        None => those(&there),
    };
    Some(format!("it selects nodes by {key}: {}, which no node group has: {cure}", all_quoted(wanted)))
}

/// What is wrong with labels that each some group has, and that no group has together.
fn together(view: &View, wanted: &[(&str, Vec<&str>)]) -> Option<String> {
    let known: Vec<&(&str, Vec<&str>)> = wanted.iter().filter(|(key, _)| !values_of(view, key).is_empty()).collect();
    let has = |labels: &BTreeMap<String, String>, (key, values): &(&str, Vec<&str>)| {
        labels.get(*key).is_some_and(|own| values.contains(&own.as_str()))
    };
    let groups = || view.groups.values().map(|group| &group.group.template.labels);
    if groups().any(|labels| known.iter().all(|one| has(labels, one))) {
        return None;
    }
    // The one that has to give way: without it some group has all the others. That its pool is meant is the last thing to doubt.
    let mut doubted = known.clone();
    doubted.sort_by_key(|(key, _)| *key == POOL_LABEL);
    let said = |one: &(&str, Vec<&str>)| format!("{}: {}", one.0, all_quoted(&one.1));
    let told = doubted.into_iter().find_map(|one| {
        let others: Vec<_> = known.iter().filter(|other| other.0 != one.0).collect();
        let there = groups().filter(|labels| others.iter().all(|other| has(labels, other)));
        let there: BTreeSet<&str> = there.filter_map(|labels| labels.get(one.0)).map(String::as_str).collect();
        let rest: Vec<String> = others.iter().map(|other| said(other)).collect();
        (!there.is_empty()).then(|| {
            let (one, rest, cure) = (said(one), rest.join(" and "), those(&there));
            format!("it selects nodes by {one}, which no node group of {rest} has: {cure}")
        })
    });
    let all = || known.iter().map(|one| said(one)).collect::<Vec<_>>().join(" and ");
    Some(
        told.unwrap_or_else(|| format!("it selects nodes by {}, which no node group has together: run `stoker groups`", all())),
    )
}

/// The label of ours that a key is, begins with or nearly is.
fn near_ours(key: &str) -> Option<&'static str> {
    OURS.into_iter().find(|ours| key.starts_with(ours)).or_else(|| nearest(key, OURS))
}

/// The label of ours that is meant by a key with these values, and the value of it that is meant. A key in another's domain that only
/// resembles ours is meant as ours where its value is nearly one of ours too.
fn meant<'v>(view: &'v View, key: &str, wanted: &[&str]) -> Option<(&'static str, Option<&'v str>)> {
    let label = near_ours(key)?;
    let value = near_value(wanted, &values_of(view, label));
    (key.starts_with(DOMAIN) || value.is_some()).then_some((label, value))
}

/// The value among those there are that is meant by one of these.
fn near_value<'v>(wanted: &[&str], there: &BTreeSet<&'v str>) -> Option<&'v str> {
    let near = wanted.iter().find_map(|value| nearest(value, there.iter().copied()));
    near.or_else(|| wanted.iter().find_map(|value| model_in(value, there.iter().copied())))
}

/// Which values there are, where they are few.
fn those(there: &BTreeSet<&str>) -> String {
    match there.len() {
        1 => format!("there is {}", there.iter().copied().collect::<String>()),
        2..=10 => format!("there are {}", there.iter().copied().collect::<Vec<_>>().join(", ")),
        _ => "run `stoker groups`".to_owned(),
    }
}

fn all_quoted(values: &[&str]) -> String {
    values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", ")
}

/// The values of a label over all groups.
fn values_of<'v>(view: &'v View, key: &str) -> BTreeSet<&'v str> {
    view.groups.values().filter_map(|group| group.group.template.labels.get(key)).map(String::as_str).collect()
}

/// What to say of a label that no group has: only of one that is nearly ours, or that chooses GPUs elsewhere.
fn no_such_label(view: &View, key: &str, wanted: &[&str]) -> Option<String> {
    let none = format!("it selects nodes by the label {key}, which no node group has");
    match meant(view, key, wanted) {
        Some((label, Some(value))) => return Some(format!("{none}: did you mean {label}: {value}?")),
        Some((label, None)) => {
            return Some(format!("{none}: did you mean {label}, of which {}?", those(&values_of(view, label))));
        }
        None => {}
    }
    if !GPU_LABELS.contains(&key) && nearest(key, GPU_LABELS).is_none() {
        return None;
    }
    let models = values_of(view, GPU_LABEL);
    let cure = match wanted.iter().find_map(|value| model_in(value, models.iter().copied())) {
        Some(model) => format!("did you mean {GPU_LABEL}: {model}?"),
        None => format!("choose the GPU model by {GPU_LABEL}"),
    };
    Some(format!("{none}: {cure}"))
}
