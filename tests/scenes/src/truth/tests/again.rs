//! What is bought again.

use stoker_core::base::ids::{NodeGroupId, RecordId};

use super::{GROUP, free, pool, sound, tells};
use crate::scene::{Pod, Scene};

/// A pool whose only node was given up so long ago.
fn given_up(length: &str) -> Scene {
    let mut scene = free(&pool("  stabilization: { scaleDown: 1m, minimumLife: 0s }\n"), 1);
    while !scene.counts().contains_key("nodes deleted by the autoscaler") {
        scene.run("1s");
    }
    scene.run(length);
    assert_eq!(scene.machines(), 0);
    sound(&scene);
    scene
}

/// The cloud sells one more of its group.
fn buys(scene: &mut Scene) {
    let sold = (scene.now, NodeGroupId::new(GROUP).unwrap(), RecordId(99));
    scene.desk_mut().cloud.sold.push(sold);
    scene.truth_watches();
}

#[test]
fn nothing_is_bought_within_a_quarter_of_an_hour_of_a_release_for_no_reason() {
    let mut scene = given_up("14m");
    buys(&mut scene);
    tells(&mut scene, "serve.g6-xlarge.zone-a is bought again 840 s after a node of it was given up, 1 nodes since then");
    let mut scene = given_up("15m");
    buys(&mut scene);
    sound(&scene);
}

#[test]
fn one_thing_that_happened_explains_one_node() {
    type Happens = fn(&mut Scene);
    let reasons: [(&str, Happens); 3] = [
        ("bought again: a pod came and took a warm node", |scene| scene.truth.asks("serve", scene.now)),
        ("bought again: a node was lost, or can be used by no pod", |scene| scene.truth.lost += 1),
        ("bought again: nodes of the pool's floor go back to spot", |scene| scene.truth.moved += 1),
    ];
    for (why, happens) in reasons {
        let mut scene = given_up("5m");
        happens(&mut scene);
        buys(&mut scene);
        sound(&scene);
        assert_eq!(scene.counts()[why], 1);
        buys(&mut scene);
        tells(&mut scene, "2 nodes since then");
    }
}

/// What a floor wants more than when the node was chosen is bought; what it wanted already is not.
#[test]
fn a_floor_that_rose_explains_what_it_rose_by() {
    let mut scene = given_up("5m");
    let floor = "  stabilization: { scaleDown: 1m, minimumLife: 0s }\n  warmFloor: { nodes: 1 }\n";
    scene.policy(&pool(floor));
    scene.run("1m");
    sound(&scene);
    assert_eq!(scene.counts()["bought again: the floor rose"], 1);
    buys(&mut scene);
    tells(&mut scene, "2 nodes since then: 0 pods came, the floor rose by 1");
}

/// Between the two a floor may have fallen: each of its rises is bought.
#[test]
fn a_floor_that_fell_and_rose_again_explains_what_it_rose_by() {
    let mut scene = given_up("5m");
    let floor = |nodes: u32| {
        pool(&format!("  stabilization: {{ scaleDown: 1m, minimumLife: 0s }}\n  warmFloor: {{ nodes: {nodes} }}\n"))
    };
    for nodes in [1, 0, 1] {
        scene.policy(&floor(nodes));
        scene.run("1s");
    }
    // The autoscaler has asked for one.
    buys(&mut scene);
    sound(&scene);
    buys(&mut scene);
    tells(&mut scene, "3 nodes since then: 0 pods came, the floor rose by 2");
}

/// That a node goes which no pod could use says nothing of what is needed; and one that no pod can use is bought anew.
#[test]
fn nodes_that_no_pod_can_use_are_no_supply() {
    let mut scene = free(&pool("  stabilization: { scaleDown: 1m, minimumLife: 0s }\n"), 1);
    scene.users_cordon("n0", true);
    scene.run("5m");
    assert_eq!((scene.machines(), scene.counts()["nodes given up that no pod could use"]), (0, 1));
    buys(&mut scene);
    sound(&scene);

    let mut scene = free(&pool("  stabilization: { scaleDown: 1m, minimumLife: 0s }\n  warmFloor: { nodes: 1 }\n"), 2);
    scene.run("4m");
    assert_eq!((scene.machines(), scene.counts()["nodes deleted by the autoscaler"]), (1, 2));
    let left = scene.nodes()[0].clone();
    scene.users_cordon(&left, true);
    buys(&mut scene);
    sound(&scene);
    buys(&mut scene);
    tells(&mut scene, "1 are being lost");
}

/// A pod that had come before the node was chosen is no new demand, and neither is one of another pool.
#[test]
fn demand_of_before_and_of_others_explains_nothing() {
    let mut scene = given_up("5m");
    scene.truth.asks("other", scene.now);
    buys(&mut scene);
    tells(&mut scene, "0 pods came");
    let mut scene = given_up("5m");
    scene.pod("web/late", Pod::of("serve"));
    scene.run("1m");
    sound(&scene);
    assert_eq!(scene.counts()["bought again: a pod came and waited"], 1);
}
