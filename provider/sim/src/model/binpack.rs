//! How many nodes of a template the waiting pods need: first fit, largest pods first, identical pods together.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::{NodeAffinity, PodView, Requests, Toleration};
use super::fit::{SimNode, share};
use super::templates::GroupTemplate;
use super::time::count;

/// Waiting pods that the scheduler cannot tell apart.
pub(super) type Kind = Vec<Arc<PodView>>;

/// What the scheduler goes by.
pub(super) type KindKey<'a> = (&'a Requests, &'a BTreeMap<String, String>, &'a NodeAffinity, &'a [Toleration]);

/// What tells a pod from others to the scheduler.
pub(super) fn kind_of(pod: &PodView) -> KindKey<'_> {
    (&pod.requests, &pod.node_selector, &pod.node_affinity, pod.tolerations.as_slice())
}

/// Puts identical pods together, in order of the first of each.
pub(super) fn kinds(pods: &[Arc<PodView>]) -> Vec<Kind> {
    let mut index: BTreeMap<KindKey<'_>, usize> = BTreeMap::new();
    let mut kinds: Vec<Kind> = Vec::new();
    for pod in pods {
        let at = *index.entry(kind_of(pod)).or_insert(kinds.len());
        match kinds.get_mut(at) {
            Some(kind) => kind.push(Arc::clone(pod)),
            None => kinds.push(vec![Arc::clone(pod)]),
        }
    }
    kinds
}

/// The kinds that fit an empty node of that template.
pub(super) fn fitting(kinds: &[Kind], template: &GroupTemplate) -> Vec<Kind> {
    let empty = template.node();
    kinds.iter().filter(|kind| kind.first().is_some_and(|pod| empty.takes(pod))).cloned().collect()
}

/// How many nodes of the template those pods need, at most `limit`, and the pods that they hold.
///
/// Each kind first fills what was opened for kinds before it; its first pod that fits none of those closes them to the rest of
/// its kind, which goes to the newest node and then to new ones.
pub(super) fn estimate(mut kinds: Vec<Kind>, template: &GroupTemplate, limit: i32) -> (i32, Vec<Arc<PodView>>) {
    sort_largest_first(&mut kinds, template);
    let mut nodes: Vec<SimNode> = Vec::new();
    let mut placed: Vec<Arc<PodView>> = Vec::new();
    for kind in kinds {
        let mut pods = kind.into_iter().peekable();
        while let Some(pod) = pods.peek() {
            let Some(node) = nodes.iter_mut().find(|node| node.takes(pod)) else { break };
            node.put(pod);
            placed.extend(pods.next());
        }
        for pod in pods {
            if let Some(newest) = nodes.last_mut().filter(|node| node.takes(&pod)) {
                newest.put(&pod);
                placed.push(pod);
                continue;
            }
            if count(nodes.len()) >= limit {
                break;
            }
            let mut node = template.node();
            if !node.takes(&pod) {
                break;
            }
            node.put(&pod);
            nodes.push(node);
            placed.push(pod);
        }
    }
    (count(nodes.len()), placed)
}

/// Largest first by the sum of the shares of CPU and memory; GPUs do not enter.
fn sort_largest_first(kinds: &mut [Kind], template: &GroupTemplate) {
    let whole = template.template.allocatable;
    let size = |kind: &Kind| {
        kind.first()
            .map_or(0.0, |pod| share(pod.requests.milli_cpu, whole.milli_cpu) + share(pod.requests.memory.0, whole.memory.0))
    };
    kinds.sort_by(|a, b| size(b).total_cmp(&size(a)));
}
