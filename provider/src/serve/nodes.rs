//! The kubelet's part for simulated machines: each machine that has booted gets a Node, exactly like its group's template.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::SignedDuration;
use kube::Client;
use stoker_core::ids::{ClusterName, NodeGroupId};
use stoker_core::supply::KeyParts;
use stoker_core::template::NodeTemplate;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::engine::EngineHandle;
use crate::kube::registrar::{RegisteredNode, Registrar};
use crate::supplier::simulated::Simulated;

/// How often machines are compared with Nodes.
const EVERY: SignedDuration = SignedDuration::from_millis(500);

/// Keeps the cluster's Nodes like the simulated machines.
pub(super) fn spawn(
    tasks: &mut JoinSet<&'static str>,
    client: &Client,
    cluster: ClusterName,
    simulated: Arc<Simulated>,
    handle: EngineHandle,
    clock: Clock,
    stop: CancellationToken,
) {
    let (sender, wanted) = watch::channel(None);
    let registering = Registrar::new(client, cluster).run(wanted);
    let stopped = stop.clone();
    tasks.spawn(async move {
        Box::pin(stopped.run_until_cancelled_owned(registering)).await;
        "the node registrar"
    });
    tasks.spawn(async move {
        while !stop.is_cancelled() {
            if let Some(nodes) = booted(&simulated, &handle, &clock) {
                sender.send_if_modified(|last| {
                    let changed = last.as_ref() != Some(&nodes);
                    *last = Some(nodes);
                    changed
                });
            }
            super::pause(&clock, EVERY, &stop).await;
        }
        "the simulated kubelets"
    });
}

/// The Nodes there should be; `None` before the first pass, when nothing is known of templates.
fn booted(simulated: &Simulated, handle: &EngineHandle, clock: &Clock) -> Option<Vec<RegisteredNode>> {
    let view = handle.view();
    view.ready.as_ref().ok()?;
    // One copy a group, shared by its nodes: a copy a node would be the largest thing in memory.
    let mut templates: HashMap<NodeGroupId, Arc<NodeTemplate>> = HashMap::new();
    let nodes = simulated
        .machines(clock.now())
        .into_iter()
        .filter(|(_, up)| *up)
        .filter_map(|(instance, ready)| {
            let key: KeyParts = instance.key.as_str().parse().ok()?;
            let group = view.menu.group_or_remembered(&key.group, &view.memory)?;
            let template = templates.entry(key.group).or_insert_with(|| Arc::new(group.template.clone()));
            Some(RegisteredNode { instance, template: Arc::clone(template), ready })
        })
        .collect();
    Some(nodes)
}
