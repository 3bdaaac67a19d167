//! What is concluded of nodes, and from what.

use stoker_scenes::{Pod, Scene};

use crate::common::{PLAIN, end};

/// A node that goes on and off being Ready under a pod is not touched: its pod decides.
#[test]
fn a_node_flaps_under_its_pod() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("10m");
    for _ in 0..10 {
        scene.ready("n0", false);
        scene.run("20s");
        scene.ready("n0", true);
        scene.run("40s");
    }
    assert_eq!((scene.machines(), scene.node_of("web/a").as_str(), scene.verdict("n0")), (1, "n0", "busy"));
    end(&scene, "a_node_flaps_under_its_pod");
}

/// Several pods share a node of four GPUs: the last to go frees it.
#[test]
fn the_last_pod_frees_a_node() {
    let mut scene = Scene::new(&PLAIN.replace("count: 1", "count: 4"));
    scene.pod("web/a", Pod::of("serve").runs("20m"));
    scene.pod("web/b", Pod::of("serve").gpus(2).runs("50m"));
    scene.run("30m");
    assert_eq!((scene.node_of("web/b").as_str(), scene.verdict("n0"), scene.is_held("n0")), ("n0", "busy", true));
    scene.run("90m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "the_last_pod_frees_a_node");
}
