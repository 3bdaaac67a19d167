//! What people do to nodes by hand, and what is left alone for it.

use stoker_scenes::{Pod, Scene};

use crate::common::{PLAIN, SPOT, end};

/// A user's own scale-down-disabled is never touched: the idle node stays until the user takes it back.
#[test]
fn a_user_holds_a_node() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("20m"));
    scene.run("10m");
    scene.users_hold("n0", true);
    scene.run("3h");
    assert!(scene.is_held("n0"));
    assert!(scene.told(&["takes its hold"]).is_empty());
    scene.users_hold("n0", false);
    scene.run("40m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "a_user_holds_a_node");
}

/// A user's own cordon is left alone, and a node that is cordoned and busy is kept.
#[test]
fn a_user_cordons_a_node() {
    let mut scene = Scene::new(SPOT);
    scene.pod("team/job", Pod::of("train"));
    scene.run("10m");
    scene.users_cordon("n0", true);
    scene.run("1h");
    assert!(scene.is_closed("n0"));
    assert_eq!(scene.node_of("team/job"), "n0");
    assert!(scene.told(&["provider", "opens"]).is_empty());
    end(&scene, "a_user_cordons_a_node");
}

/// A user stops the pods while the node boots: it comes, is not needed, and goes.
#[test]
fn the_user_changes_his_mind() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("1m");
    scene.finish("web/a");
    scene.run("1h");
    assert_eq!(scene.machines(), 0);
    end(&scene, "the_user_changes_his_mind");
}

/// The operator takes the pool out of the policy: what runs goes on, nothing new is bought, and the group goes when it is empty.
#[test]
fn the_pool_is_taken_out_of_the_policy() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("40m"));
    scene.run("10m");
    scene.policy(SPOT);
    scene.pod("web/b", Pod::of("serve"));
    scene.run("15m");
    assert_eq!((scene.node_of("web/a").as_str(), scene.node_of("web/b").as_str()), ("n0", ""));
    scene.finish("web/b");
    scene.run("2h");
    assert_eq!(scene.machines(), 0);
    end(&scene, "the_pool_is_taken_out_of_the_policy");
}
