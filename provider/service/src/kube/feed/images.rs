//! Which of the images that GPU pods use each node has, gathered from the same two watches as the facts.
//!
//! A node's list is kept as hashes, 800 bytes for 50 images of two names each, and only what of it is in use is told on: a new tag makes
//! every list be looked through once, any other event one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::runtime::watcher::Event;
use stoker_core::base::ids::NodeName;
use stoker_core::facts::images::{ImageId, NodeImages};

use super::super::thin::{ListedImages, NodeRow, PodRow};

/// What is known of the images of each node.
pub type ImagesOfNodes = BTreeMap<NodeName, Arc<NodeImages>>;

/// Most images in use that are told apart: 16 each of 500 pools are 8,000. Beyond that those are forgotten that no pod uses now.
const MOST_USED: usize = 10_000;

/// Images while they are gathered.
#[derive(Debug, Default)]
pub(super) struct Images {
    lists: BTreeMap<NodeName, ListedImages>,
    pods: Pods,
    /// Images that GPU pods use, or did.
    used: BTreeSet<ImageId>,
    known: ImagesOfNodes,
    /// Lists that are being read; they replace what is known when they are whole.
    listing_nodes: BTreeMap<NodeName, ListedImages>,
    listing_pods: Pods,
}

/// The images of the GPU pods, by pod (`namespace/name`), and the pods by node.
#[derive(Debug, Default)]
struct Pods {
    images: HashMap<Arc<str>, (NodeName, Box<[ImageId]>)>,
    by_node: HashMap<NodeName, BTreeSet<Arc<str>>>,
}

impl Images {
    /// `remembered` are images that were in use before now.
    pub(super) fn new(remembered: BTreeSet<ImageId>) -> Self {
        Self { used: remembered, ..Self::default() }
    }

    /// Applies an event of the nodes; tells whether what is known changed.
    pub(super) fn node(&mut self, event: &Event<NodeRow>) -> bool {
        match event {
            Event::Init => self.listing_nodes.clear(),
            Event::InitApply(row) => self.listing_nodes.extend(list(row)),
            Event::InitDone => {
                self.lists = std::mem::take(&mut self.listing_nodes);
                return self.look_through_all();
            }
            Event::Apply(row) => {
                let Some((name, list)) = list(row) else { return false };
                self.lists.insert(name.clone(), list);
                return self.look_through(&name);
            }
            Event::Delete(row) => {
                let Some(name) = row.meta.name.as_deref().and_then(|name| NodeName::new(name).ok()) else { return false };
                self.lists.remove(&name);
                return self.known.remove(&name).is_some();
            }
        }
        false
    }

    /// Applies an event of the pods; tells whether what is known changed.
    pub(super) fn pod(&mut self, event: &Event<PodRow>) -> bool {
        match event {
            Event::Init => self.listing_pods = Pods::default(),
            Event::InitApply(row) => {
                self.listing_pods.put(row);
            }
            Event::InitDone => {
                self.pods = std::mem::take(&mut self.listing_pods);
                self.used.extend(self.pods.in_use());
                return self.look_through_all();
            }
            Event::Apply(row) => return self.bound(row),
            Event::Delete(row) => {
                let node = row.key().and_then(|key| self.pods.remove(&key));
                return node.is_some_and(|node| self.look_through(&node));
            }
        }
        false
    }

    fn bound(&mut self, row: &PodRow) -> bool {
        let before = row.key().and_then(|key| self.pods.remove(&key));
        let node = self.pods.put(row);
        let known = self.used.len();
        self.used.extend(row.images.iter().copied());
        if self.used.len() != known {
            if self.used.len() > MOST_USED {
                self.used = self.pods.in_use().collect();
            }
            return self.look_through_all();
        }
        let mut touched: Vec<_> = before.into_iter().chain(node).collect();
        touched.dedup();
        touched.iter().fold(false, |changed, node| self.look_through(node) | changed)
    }

    /// Tells anew what is known of every node.
    fn look_through_all(&mut self) -> bool {
        let nodes: Vec<_> = self.lists.keys().cloned().collect();
        let before = self.known.len();
        self.known.retain(|name, _| self.lists.contains_key(name));
        let gone = self.known.len() != before;
        nodes.iter().fold(gone, |changed, node| self.look_through(node) | changed)
    }

    /// Tells anew what is known of a node; nothing of one that is not ours.
    fn look_through(&mut self, name: &NodeName) -> bool {
        let Some(ListedImages { ids, list }) = self.lists.get(name) else { return false };
        let has = ids.iter().filter(|image| self.used.contains(image)).copied().collect();
        let found = NodeImages { has, runs: self.pods.on(name), list: *list };
        if self.known.get(name).is_some_and(|known| **known == found) {
            return false;
        }
        self.known.insert(name.clone(), Arc::new(found));
        true
    }

    pub(super) fn known(&self) -> ImagesOfNodes {
        self.known.clone()
    }
}

impl Pods {
    /// Puts a pod where it holds a node; tells which.
    fn put(&mut self, row: &PodRow) -> Option<NodeName> {
        let node = NodeName::new(row.holds.as_ref()?).ok()?;
        let key: Arc<str> = Arc::from(row.key()?);
        self.images.insert(Arc::clone(&key), (node.clone(), row.images.as_slice().into()));
        self.by_node.entry(node.clone()).or_default().insert(key);
        Some(node)
    }

    /// Takes a pod away; tells from which node.
    fn remove(&mut self, key: &str) -> Option<NodeName> {
        let (node, _) = self.images.remove(key)?;
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(node)
    }

    fn on(&self, node: &NodeName) -> BTreeSet<ImageId> {
        let pods = self.by_node.get(node).into_iter().flatten();
        pods.filter_map(|pod| self.images.get(pod)).flat_map(|(_, images)| images.iter().copied()).collect()
    }

    fn in_use(&self) -> impl Iterator<Item = ImageId> {
        self.images.values().flat_map(|(_, images)| images.iter().copied())
    }
}

fn list(row: &NodeRow) -> Option<(NodeName, ListedImages)> {
    Some((NodeName::new(row.meta.name.as_ref()?).ok()?, row.images.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoker_core::facts::images::List;

    use super::*;

    fn node(name: &str, images: &[&str]) -> NodeRow {
        let images: Vec<_> = images.iter().map(|image| json!({ "names": [image, "x@sha256:00"], "sizeBytes": 1 })).collect();
        serde_json::from_value(json!({ "metadata": { "name": name }, "status": { "images": images } })).unwrap()
    }

    fn pod(name: &str, node: &str, image: &str) -> PodRow {
        let limits = json!({ "nvidia.com/gpu": "1" });
        serde_json::from_value(json!({
            "metadata": { "namespace": "ml", "name": name },
            "spec": {
                "nodeName": node,
                "initContainers": [{ "image": "fetch" }],
                "containers": [{ "image": image, "resources": { "limits": limits } }],
            },
        }))
        .unwrap()
    }

    fn ids(names: &[&str]) -> BTreeSet<ImageId> {
        names.iter().map(|name| ImageId::of(name)).collect()
    }

    fn listed(remembered: &[&str]) -> Images {
        let mut images = Images::new(ids(remembered));
        images.node(&Event::Init);
        images.node(&Event::InitApply(node("a", &["docker.io/library/train:1", "reg/other:1"])));
        images.node(&Event::InitApply(node("b", &["reg/other:1"])));
        images.node(&Event::InitDone);
        images
    }

    fn of<'a>(images: &'a Images, name: &str) -> &'a NodeImages {
        &images.known[&NodeName::new(name).unwrap()]
    }

    #[test]
    fn only_images_that_gpu_pods_use_are_told_and_every_node_that_has_them() {
        let mut images = listed(&[]);
        assert!(of(&images, "a").has.is_empty());
        assert!(images.pod(&Event::Apply(pod("p", "b", "train:1"))));
        assert_eq!(of(&images, "a").has, ids(&["train:1"]));
        assert_eq!(of(&images, "b"), &NodeImages { has: BTreeSet::new(), runs: ids(&["train:1", "fetch"]), list: List::Whole });
        assert!(!images.pod(&Event::Apply(pod("p", "b", "train:1"))), "nothing changed");
        // Pulled by now; and when the pod is gone it is still known what it used.
        assert!(images.node(&Event::Apply(node("b", &["train:1"]))));
        assert!(images.pod(&Event::Delete(pod("p", "b", "train:1"))));
        assert_eq!(of(&images, "b"), &NodeImages { has: ids(&["train:1"]), runs: BTreeSet::new(), list: List::Whole });
    }

    #[test]
    fn what_was_used_before_a_restart_is_looked_for() {
        assert_eq!(of(&listed(&["train:1"]), "a").has, ids(&["train:1"]));
    }

    #[test]
    fn new_lists_replace_the_old_ones() {
        let mut images = listed(&[]);
        images.pod(&Event::Apply(pod("p", "a", "train:1")));
        images.pod(&Event::Init);
        images.pod(&Event::InitApply(pod("q", "b", "train:2")));
        assert!(images.pod(&Event::InitDone));
        assert!(of(&images, "a").runs.is_empty());
        assert_eq!(of(&images, "b").runs, ids(&["train:2", "fetch"]));
        images.node(&Event::Init);
        images.node(&Event::InitApply(node("b", &[])));
        assert!(images.node(&Event::InitDone));
        assert_eq!(images.known.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["b"]);
        assert_eq!(of(&images, "b").list, List::Absent);
        assert!(images.node(&Event::Delete(node("b", &[]))) && images.known.is_empty());
    }

    #[test]
    fn a_pod_that_moves_no_longer_uses_its_old_node() {
        let mut images = listed(&["train:1", "fetch"]);
        images.pod(&Event::Apply(pod("p", "a", "train:1")));
        assert!(images.pod(&Event::Apply(pod("p", "b", "train:1"))));
        assert!(of(&images, "a").runs.is_empty());
        assert_eq!(of(&images, "b").runs, ids(&["train:1", "fetch"]));
    }

    #[test]
    fn a_node_as_the_api_server_sends_it_is_read_however_it_lists() {
        for (status, list, names) in [
            (json!({ "images": null }), List::Absent, 0),
            (json!({}), List::Absent, 0),
            (json!({ "images": [{ "names": null, "sizeBytes": 5 }, { "names": ["a", "a:latest", "b"] }] }), List::Whole, 2),
            (json!({ "images": vec![json!({ "names": ["a"] }); 50] }), List::Cut, 1),
        ] {
            let row: NodeRow = serde_json::from_value(json!({ "metadata": { "name": "n" }, "status": status })).unwrap();
            assert_eq!((row.images.list, row.images.ids.len()), (list, names), "{status}");
        }
        let plain: PodRow = serde_json::from_value(
            json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "a", "containers": [{ "image": "web" }] } }),
        )
        .unwrap();
        assert!(plain.images.is_empty(), "a pod without a GPU tells nothing");
        assert_eq!(serde_json::from_value::<PodRow>(json!({ "metadata": {} })).unwrap().images, []);
    }
}
