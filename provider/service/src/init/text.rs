//! A drafted policy as a file with comments.

use std::fmt::Write as _;

use serde_json::Value;
use stoker_core::policy::{RawMig, RawPolicy, RawPool};

use super::Source;
use super::cluster::listed;
use super::draft::Draft;
use super::land::Landing;
use crate::kube::pending::PendingRow;
use crate::print::count;

/// Longest line of a comment.
const WIDTH: usize = 100;
/// Most pods that are named in one comment.
const NAMED: usize = 5;

/// The file.
pub(super) fn policy(source: Source, raw: &RawPolicy, drafts: &[Draft], notes: &[String], landing: &Landing<'_>) -> String {
    let mut text = String::new();
    let head = format!(
        "Drafted by `stoker init {}` from what the cluster has; nothing in the cluster was changed. Read it, shorten it, \
         and look at it with `stoker policy check`.",
        source.option()
    );
    comment(&mut text, &head);
    for note in notes {
        comment(&mut text, note);
    }
    let _ = writeln!(text, "apiVersion: {}\nkind: {}", scalar(&raw.api_version), scalar(&raw.kind));
    let _ = writeln!(text, "clusterName: {}   # no two clusters of one account may share it\n", scalar(&raw.cluster_name));
    suppliers(&mut text, source, raw);
    text.push_str("pools:\n");
    for (at, draft) in drafts.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        for note in &draft.notes {
            comment(&mut text, note);
        }
        pool(&mut text, &draft.raw, &draft.limit);
        let here = landing.here.get(at).map(Vec::as_slice).unwrap_or_default();
        if landing.has_groups.get(at) == Some(&true) {
            comment(&mut text, &could_run(here));
        } else {
            comment(&mut text, "This pool gets no node group yet: `stoker policy check` says why.");
        }
    }
    text.push('\n');
    if !landing.nowhere.is_empty() {
        comment(&mut text, "GPU pods that could run in no pool:");
        for (why, pods) in &landing.nowhere {
            let each = if pods.len() == 1 { "" } else { "each " };
            comment(&mut text, &format!("- {}: {each}{why}.", names(pods)));
        }
        text.push('\n');
    }
    let next = "Still to say: a budget for each pool (limits.maxUsdPerHour), and a row under quotas for each quota of the \
                cloud. Large GPUs (V100, A100, H100 and their like) are not bought on demand before.";
    comment(&mut text, next);
    text
}

fn suppliers(text: &mut String, source: Source, raw: &RawPolicy) {
    if source != Source::Karpenter {
        comment(
            text,
            "Who makes nodes. Left out, they are simulated: a rehearsal. Where Karpenter runs, each pool has a nodeClass too.",
        );
        text.push_str("# suppliers: [{ name: karpenter, kind: karpenter }]\n\n");
        return;
    }
    comment(text, "Each nodeClass below needs a carrier: change manifests/karpenter/carriers and apply it.");
    text.push_str("suppliers:\n");
    for supplier in &raw.suppliers {
        let _ = writeln!(text, "- {{ name: {}, kind: karpenter }}", scalar(&supplier.name));
    }
    text.push('\n');
}

fn pool(text: &mut String, pool: &RawPool, limit: &str) {
    let RawPool { name, workload, gpu, place, instance_types, node_class, capacity, limits, template, sharing, .. } = pool;
    let _ = writeln!(text, "- name: {}", scalar(name));
    let _ = writeln!(text, "  workload: {}   # or training, batch, dev: what runs here", workload.as_str());
    let memory = gpu.min_memory_gib.map(|gib| format!(", minMemoryGiB: {gib}")).unwrap_or_default();
    let _ = writeln!(text, "  gpu: {{ models: {}{memory} }}", list(&gpu.models));
    let zones = if place.zones.is_empty() { String::new() } else { format!(", zones: {}", list(&place.zones)) };
    let _ = writeln!(text, "  where: {{ clouds: {}, regions: {}{zones} }}", list(&place.clouds), list(&place.regions));
    if !instance_types.is_empty() {
        let _ = writeln!(text, "  instanceTypes: {}", list(instance_types));
    }
    if let Some(class) = node_class {
        let _ = writeln!(text, "  nodeClass: {}", scalar(class));
    }
    if let Some(prefer) = &capacity.prefer {
        let words: Vec<&str> = prefer.iter().map(|of| of.as_str()).collect();
        let _ = writeln!(text, "  capacity: {{ prefer: {} }}", list(&words));
    }
    if pool.split_capacity_type == Some(true) {
        text.push_str("  splitCapacityType: true   # pods choose nodes by it\n");
    }
    if let Some(RawMig::Named(layout)) = sharing.as_ref().and_then(|sharing| sharing.mig.as_ref()) {
        let _ = writeln!(text, "  sharing: {{ mig: {} }}", scalar(layout));
    }
    let _ = writeln!(text, "  limits: {{ maxNodes: {} }}   # {}", limits.max_nodes, clean(limit));
    if template.labels.is_empty() && template.taints.is_none() {
        return;
    }
    text.push_str("  template:\n");
    if !template.labels.is_empty() {
        text.push_str("    labels:\n");
        for (key, value) in &template.labels {
            let _ = writeln!(text, "      {}: {}", scalar(key), scalar(value));
        }
    }
    match template.taints.as_deref() {
        None => {}
        Some([]) => text.push_str("    taints: []\n"),
        Some(taints) => {
            text.push_str("    taints:\n");
            for taint in taints {
                let (key, value) = (scalar(&taint.key), scalar(&taint.value));
                let _ = writeln!(text, "    - {{ key: {key}, value: {value}, effect: {} }}", taint.effect.as_str());
            }
        }
    }
}

fn could_run(pods: &[&PendingRow]) -> String {
    match pods.len() {
        0 => "None of the cluster's GPU pods could run here.".to_owned(),
        _ => format!("Could run here: {}.", names(pods)),
    }
}

fn names(pods: &[&PendingRow]) -> String {
    let names: Vec<String> = pods.iter().map(|pod| pod.key()).collect();
    format!("{} ({})", count(pods.len(), "GPU pod"), listed(&names, NAMED))
}

/// A text without what ends a comment.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') { ' ' } else { c }).collect()
}

/// Lines that begin with `#`.
fn comment(text: &mut String, said: &str) {
    let clean = clean(said);
    let (mut line, indent) = ("#".to_owned(), if said.starts_with("- ") { "#  " } else { "#" });
    for word in clean.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > indent.len() {
            let _ = writeln!(text, "{line}");
            indent.clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

fn list<T: AsRef<str>>(items: &[T]) -> String {
    format!("[{}]", items.iter().map(|item| scalar(item.as_ref())).collect::<Vec<_>>().join(", "))
}

/// A text as YAML: bare where it cannot be read as anything else, else in quotes as in JSON.
fn scalar(text: &str) -> String {
    const OTHERS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_./*+".contains(c);
    if begins && text.chars().all(inner) && !OTHERS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    Value::String(text.to_owned()).to_string()
}
