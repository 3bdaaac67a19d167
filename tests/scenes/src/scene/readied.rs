//! What is made ready for pods before they come: room that the autoscaler keeps for buffers, and images that are on nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::NodeName;
use stoker_core::catalogue::template::POOL_LABEL;
use stoker_core::facts::images::{ImageId, List, NodeImages};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_sim::model::{NodeView, PodView, Requests, Toleration};

use super::Scene;

/// Images: what each pool's pods use, and which nodes have it.
#[derive(Debug)]
pub(super) struct Images {
    /// How long a node takes to pull one.
    pull: SignedDuration,
    /// How often each pool's was changed, and when it last was.
    rolled_out: BTreeMap<String, (u32, Timestamp)>,
    /// What each node has.
    on: BTreeMap<String, NodeImages>,
}

impl Scene {
    /// The cluster serves `CapacityBuffer` objects, and the autoscaler keeps room for those that floors ask for.
    pub fn serves_buffers(&mut self) {
        self.tell("cluster", "serves capacity buffers");
        self.desk_mut().buffers = true;
        self.moved();
    }

    /// Nodes list their images, and somebody pulls to each node what the pods of its pool use, which takes so long.
    pub fn images_pulled_in(&mut self, length: &str) {
        self.tell("cluster", &format!("nodes pull their pool's image in {length}"));
        self.images = Some(Images { pull: length.parse().unwrap(), rolled_out: BTreeMap::new(), on: BTreeMap::new() });
        self.moved();
    }

    /// The pods of a pool use another image from now on.
    pub fn rolls_out(&mut self, pool: &str) {
        self.tell("user", &format!("rolls out a new image of {pool}"));
        let now = self.now;
        let Some(images) = &mut self.images else { panic!("no node lists images") };
        let known = images.rolled_out.entry(pool.to_owned()).or_insert((0, now));
        *known = (known.0 + 1, now);
        self.moved();
    }

    /// The pods that the autoscaler makes up for buffers: a replica fills the smallest node of its pool. Each loop makes them anew, and
    /// nobody else sees them.
    pub(super) fn pods_of_buffers(&self) -> Vec<PodView> {
        let (desk, served) = (self.desk(), Some(self.desk().buffers));
        let mut pods = Vec::new();
        for floor in &desk.accounts.floors {
            let Some(pool) = desk.catalogue.policy.pool(&floor.pool) else { continue };
            if !pool.warm_floor.as_ref().is_some_and(|floor| floor.is_kept_by_buffers(served)) {
                continue;
            }
            let gpus = desk.catalogue.pool_groups(&pool.name).map(|group| group.units()).min().unwrap_or(1);
            // After those of the cluster, and old enough to be acted on.
            let of = |n: u32| PodView {
                id: format!("~buffer/{}-{n}", pool.name),
                node: None,
                requests: Requests { gpus, ..Requests::default() },
                node_selector: [(POOL_LABEL.to_owned(), pool.name.to_string())].into(),
                node_affinity: BTreeMap::new(),
                tolerations: vec![Toleration::of_key(GPU_RESOURCE)],
                created_at: self.now - SignedDuration::from_mins(1),
                unschedulable: true,
                daemon: false,
                movable: true,
            };
            pods.extend((0..floor.wanted).map(of));
        }
        pods
    }

    /// When the image that a node's pool uses is on it, unless a pod brings it sooner.
    fn pulled_at(&self, node: &NodeView) -> Option<(Timestamp, ImageId)> {
        let images = self.images.as_ref()?;
        let pool = node.labels.get(POOL_LABEL)?;
        let (version, since) = images.rolled_out.get(pool).copied().unwrap_or((0, Timestamp::MIN));
        let image = ImageId::of(&format!("registry.example/{pool}:{version}"));
        Some((node.ready_since?.max(since) + images.pull, image))
    }

    /// The next moment at which an image is pulled.
    pub(super) fn next_pull(&self) -> Option<Timestamp> {
        let nodes = self.autoscaler.cluster().all_nodes();
        nodes.filter_map(|node| Some(self.pulled_at(node)?.0)).filter(|at| *at > self.now).min()
    }

    /// What nodes have pulled by now, and what their pods use.
    pub(super) fn pull(&mut self) {
        let nodes: Vec<Arc<NodeView>> = self.autoscaler.cluster().all_nodes().cloned().collect();
        let now = self.now;
        let here = nodes.iter().map(|node| (node.name.clone(), !self.pods_on(&node.name).is_empty(), self.pulled_at(node)));
        let here: Vec<_> = here.collect();
        let Some(images) = &mut self.images else { return };
        images.on.retain(|name, _| nodes.iter().any(|node| node.name == *name));
        for (name, has_pods, pulled) in here {
            let Some((at, image)) = pulled else { continue };
            // Every node has something that nobody asked for.
            let on = images.on.entry(name).or_insert_with(|| NodeImages { list: List::of(1), ..NodeImages::default() });
            on.runs = if has_pods { [image].into() } else { [].into() };
            if has_pods || at <= now {
                on.has.insert(image);
            }
        }
        let seen = images.on.iter().map(|(name, on)| (NodeName::new(name).unwrap(), Arc::new(on.clone()))).collect();
        let desk = self.desk_mut();
        if desk.images != seen {
            desk.images = seen;
            self.news = true;
        }
    }
}
