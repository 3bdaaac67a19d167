//! What is not in order once a world has come to rest.

use super::{busy, forges, free, pool};
use crate::scene::Scene;

#[track_caller]
fn disorder(scene: &Scene, words: &str) {
    let faults = scene.disorder();
    assert!(matches!(&faults[..], [one] if one.contains(words)), "{words}: {faults:?}");
}

#[track_caller]
fn order(scene: &Scene) {
    assert_eq!(scene.disorder(), Vec::<String>::new());
}

#[test]
fn a_free_node_is_not_held_for_ever() {
    let long = pool("  stabilization: { scaleDown: 2h }\n");
    let mut scene = free(&long, 1);
    scene.run("29m");
    order(&scene);
    scene.run("2m");
    disorder(&scene, "n0 is free and still held by us: warm");
    // A floor of one keeps one, and not two.
    for (floor, kept) in [(1, false), (2, true)] {
        let mut scene = free(&long, 2);
        scene.policy(&format!("{long}  warmFloor: {{ nodes: {floor} }}\n"));
        scene.run("40m");
        assert_eq!(scene.disorder().is_empty(), kept, "{floor}");
    }
}

#[test]
fn every_node_has_a_machine_and_every_machine_counts() {
    let mut scene = busy(&pool(""), 1);
    order(&scene);
    let id = scene.desk().cloud.of_node("n0").unwrap().made.provider_id.clone();
    let machine = scene.desk_mut().cloud.machines.remove(&id).unwrap();
    let faults = scene.disorder();
    assert_eq!(faults, ["n0 is a Node without a machine", "1 nodes count in the groups' targets, and 0 machines run"]);
    let mut scene = Scene::new(&pool(""));
    scene.desk_mut().cloud.machines.insert(id, machine);
    disorder(&scene, "0 nodes count in the groups' targets, and 1 machines run");
}

#[test]
fn no_pod_waits_while_its_pool_may_grow() {
    let one = pool("").replace("maxNodes: 10", "maxNodes: 1");
    for (policy, waits) in [(one, false), (pool(""), true)] {
        let mut scene = busy(&policy, 1);
        scene.autoscaler_runs(false);
        scene.pod("web/b", crate::Pod::of("serve"));
        scene.run("1m");
        if waits { disorder(&scene, "web/b still wait for a node") } else { order(&scene) }
    }
}

#[test]
fn a_floor_is_full_once_stock_is_back() {
    let floor = pool("  warmFloor: { nodes: 1 }\n");
    let mut scene = Scene::new(&floor);
    scene.sell_out("zone-a");
    scene.run("20m");
    disorder(&scene, "the floor of serve has 0 of 1 nodes: aws/zone-a/g6.xlarge/on-demand: market");
    let full = floor.replace("maxNodes: 10", "maxNodes: 1");
    let mut scene = busy(&pool("").replace("maxNodes: 10", "maxNodes: 1"), 1);
    scene.policy(&full);
    scene.run("1m");
    order(&scene);
}

/// Two records of one machine: no plan is sound from then on.
#[test]
fn a_plan_that_is_not_sound_is_a_broken_promise() {
    let mut scene = busy(&pool(""), 2);
    let mut first = None;
    forges(&mut scene, "n0", false, |record| first = Some(record.state.clone()));
    forges(&mut scene, "n1", false, |record| record.state = first.clone().unwrap());
    scene.desk_mut().pass();
    let broken = scene.broken();
    assert!(broken.iter().any(|what| what.contains("unsound: ")), "{broken:?}");
}
