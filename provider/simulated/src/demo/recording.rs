//! The day's pods for the journal, as a service with a Kubernetes cluster records them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_advice::rollup::{Owner, PodLabels};
use stoker_core::catalogue::template::POOL_LABEL;
use stoker_journal::{PodChanges, PodEnd, RecordedPod};
use stoker_sim::model::{MemoryCluster, PodView};

/// Pods that have had a node.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// Those that run, by name.
    running: BTreeMap<String, RecordedPod>,
    ended: Vec<RecordedPod>,
}

impl Recording {
    /// Takes in which pods run now.
    pub(super) fn look(&mut self, now: Timestamp, cluster: &MemoryCluster) {
        let same = |one: &RecordedPod| {
            let pod = cluster.pod(&one.name).filter(|pod| pod.created_at == one.created);
            pod.is_some_and(|pod| machine_of(cluster, pod) == Some(one.node.as_str()))
        };
        let gone: Vec<String> = self.running.iter().filter(|(_, pod)| !same(pod)).map(|(name, _)| name.clone()).collect();
        for mut pod in gone.iter().filter_map(|name| self.running.remove(name)) {
            pod.end = Some(PodEnd { at: now, is_seen: true });
            self.ended.push(pod);
        }
        for pod in cluster.all_pods() {
            if let Some(node) = machine_of(cluster, pod).filter(|_| !self.running.contains_key(&pod.id)) {
                let number = self.running.len() + self.ended.len();
                self.running.insert(pod.id.clone(), recorded(pod, node, number, now));
            }
        }
    }

    /// All of them.
    pub(super) fn changes(self) -> PodChanges {
        let came = self.ended.into_iter().chain(self.running.into_values()).collect();
        PodChanges { came, ended: BTreeMap::new() }
    }
}

/// The machine that a pod runs on. The demo's service sees no Nodes, so that machines go by their own names in its journal.
fn machine_of<'a>(cluster: &'a MemoryCluster, pod: &PodView) -> Option<&'a str> {
    cluster.node(pod.node.as_deref()?).map(|node| node.provider_id.as_str())
}

fn recorded(pod: &PodView, node: &str, number: usize, now: Timestamp) -> RecordedPod {
    let fits = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
    let (namespace, name) = pod.id.split_once('/').unwrap_or(("", &pod.id));
    RecordedPod {
        uid: Arc::from(format!("demo-{number}")),
        name: Arc::from(pod.id.as_str()),
        owner_kind: None,
        owner: Owner::of(namespace, name, None, None),
        labels: PodLabels::default(),
        pool: pod.node_selector.get(POOL_LABEL).cloned(),
        models: Vec::new(),
        gpus: Some(pod.requests.gpus),
        slices: pod.requests.slices.clone(),
        milli_cpu: fits(pod.requests.milli_cpu),
        memory_mib: fits(pod.requests.memory.0),
        node: node.to_owned(),
        created: pod.created_at,
        bound: now,
        end: None,
    }
}
