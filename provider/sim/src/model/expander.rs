//! Which of the groups that could help is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::ca_client::{CaClient, ExpanderOption, Template};
use super::client::Client;
use super::fit::share;
use super::settings::{Expander, Settings};

/// Runs the options through the chain: each filter narrows, one left ends it, more left are drawn by lot. `None` where a filter
/// left none.
pub(super) async fn choose<D: CaClient>(
    client: &mut Client<D>,
    settings: &Settings,
    templates: &BTreeMap<String, Arc<Template>>,
    lots: &mut ChaCha8Rng,
    mut options: Vec<ExpanderOption>,
) -> Option<ExpanderOption> {
    for expander in &settings.expanders {
        options = match expander {
            Expander::Grpc => ask(client, settings, templates, options).await,
            Expander::LeastWaste => least_waste(options, templates),
        };
        if options.len() <= 1 {
            break;
        }
    }
    if options.is_empty() {
        return None;
    }
    let lot = if options.len() == 1 { 0 } else { lots.random_range(0..options.len()) };
    Some(options.swap_remove(lot))
}

/// Our own expander. A failed call and a reply without any known group change nothing; an empty reply is a veto on releases that
/// know it.
async fn ask<D: CaClient>(
    client: &mut Client<D>,
    settings: &Settings,
    templates: &BTreeMap<String, Arc<Template>>,
    options: Vec<ExpanderOption>,
) -> Vec<ExpanderOption> {
    let Ok(reply) = client.best_options(&options, templates).await else { return options };
    if reply.is_empty() && settings.generation.empty_reply_is_veto() {
        return Vec::new();
    }
    let (kept, left): (Vec<_>, Vec<_>) = options.into_iter().partition(|option| reply.contains(&option.group));
    if kept.is_empty() { left } else { kept }
}

/// Those that leave the least of their CPU and memory unused; GPUs and prices do not enter.
fn least_waste(options: Vec<ExpanderOption>, templates: &BTreeMap<String, Arc<Template>>) -> Vec<ExpanderOption> {
    let waste = |option: &ExpanderOption| {
        let node = templates.get(&option.group)?.capacity;
        let nodes = u64::try_from(option.node_count).ok()?;
        let cpu: u64 = option.pods.iter().map(|pod| pod.requests.milli_cpu).sum();
        let memory: u64 = option.pods.iter().map(|pod| pod.requests.memory.0).sum();
        Some(2.0 - share(cpu, node.milli_cpu * nodes) - share(memory, node.memory.0 * nodes))
    };
    let mut scored: Vec<(f64, ExpanderOption)> = options.into_iter().filter_map(|o| waste(&o).map(|w| (w, o))).collect();
    let Some(least) = scored.iter().map(|(w, _)| *w).min_by(f64::total_cmp) else { return Vec::new() };
    scored.retain(|(w, _)| w.total_cmp(&least).is_eq());
    scored.into_iter().map(|(_, option)| option).collect()
}
