//! Each check notices what it is there for: facts made by hand that break its promise, and beside them those that only look so.

mod again;
mod floors;
mod order;
mod taken;
mod windows;

use std::sync::Arc;

use stoker_core::state::node_verdict::{Judged, Reason, Verdict};
use stoker_core::state::record::{Record, State};

use crate::scene::{Pod, Scene};

/// A pool on demand in one zone; `more` are further fields.
fn pool(more: &str) -> String {
    concat!("pools:\n", crate::serve!(", zones: [zone-a]"), "  limits: { maxNodes: 10 }\n").to_owned() + more
}

const GROUP: &str = "serve.g6-xlarge.zone-a";

/// So many nodes, each with a pod at work: `web/a-0` and so on.
fn busy(policy: &str, nodes: u32) -> Scene {
    let mut scene = Scene::new(policy);
    scene.pods("web/a", nodes, &Pod::of("serve"));
    scene.run("6m");
    assert_eq!((scene.nodes().len(), scene.pods_waiting()), (nodes as usize, 0));
    sound(&scene);
    scene
}

/// So many nodes whose pods went this moment.
fn free(policy: &str, nodes: u32) -> Scene {
    let mut scene = busy(policy, nodes);
    for pod in scene.pods_there() {
        scene.finish(&pod);
    }
    scene.run("1s");
    sound(&scene);
    scene
}

#[track_caller]
fn sound(scene: &Scene) {
    assert_eq!(scene.broken(), Vec::<String>::new());
}

/// One promise was broken since, in these words.
#[track_caller]
fn tells(scene: &mut Scene, words: &str) {
    let broken = std::mem::take(&mut scene.truth.broken);
    assert!(matches!(&broken[..], [one] if one.contains(words)), "{words}: {broken:?}");
}

/// The provider changes what it remembers of a node, which no decision of its own would.
fn forges(scene: &mut Scene, node: &str, by_autoscaler: bool, how: impl FnOnce(&mut Record)) {
    let id = scene.desk().cloud.of_node(node).unwrap().made.provider_id.clone();
    let desk = scene.desk_mut();
    let before = desk.memory.clone();
    let mut records = desk.memory.records.values_mut();
    how(Arc::make_mut(records.find(|record| record.instance() == Some(&id)).unwrap()));
    desk.note(&before, by_autoscaler);
}

/// It lets a node go.
fn takes(scene: &mut Scene, node: &str, by_autoscaler: bool) {
    let since = scene.now;
    forges(scene, node, by_autoscaler, |record| {
        let State::Registered { purchase, instance, .. } = record.state.clone() else { panic!("{:?}", record.state) };
        record.state = State::Deleting { purchase, instance, since, late: false };
    });
    scene.truth_watches();
}

/// It takes a node's window for over.
fn releases(scene: &mut Scene, node: &str) {
    let since = scene.now;
    forges(scene, node, false, |record| {
        record.judged = Some(Judged { verdict: Verdict::Idle, why: Reason::WindowOver { free_since: since }, since });
    });
    scene.truth_watches();
}
