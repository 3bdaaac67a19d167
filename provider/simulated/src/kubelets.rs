//! The kubelet's part for simulated machines: each machine that has booted gets a Node, exactly like its group's template.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::SignedDuration;
use kube::Client;
use stoker_core::base::ids::{ClusterName, NodeGroupId};
use stoker_core::catalogue::template::NodeTemplate;
use stoker_core::facts::supply::KeyParts;
use tokio::sync::watch;

use crate::registrar::{RegisteredNode, Registrar};
use crate::supplier::Simulated;
use stoker_service::clock::Clock;
use stoker_service::engine::EngineHandle;
use stoker_service::serve::Running;

/// How often machines are compared with Nodes.
const EVERY: SignedDuration = SignedDuration::from_millis(500);

/// Keeps the cluster's Nodes like the simulated machines, until the service stops.
pub(super) fn spawn(running: &mut Running, client: &Client, cluster: ClusterName, simulated: Arc<Simulated>, clock: Clock) {
    let (sender, wanted) = watch::channel(None);
    running.inner.run("the node registrar", Box::pin(Registrar::new(client, cluster).run(wanted)));
    let handle = running.handle.clone();
    running.inner.run("the simulated kubelets", async move {
        loop {
            if let Some(nodes) = booted(&simulated, &handle, &clock) {
                sender.send_if_modified(|last| {
                    let changed = last.as_ref() != Some(&nodes);
                    *last = Some(nodes);
                    changed
                });
            }
            clock.sleep(EVERY).await;
        }
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
            let group = view.catalogue.group_or_remembered(&key.group, &view.memory)?;
            let template = templates.entry(key.group).or_insert_with(|| Arc::new(group.template.clone()));
            Some(RegisteredNode { instance, template: Arc::clone(template), ready })
        })
        .collect();
    Some(nodes)
}
