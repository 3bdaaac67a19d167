//! Processes that die and come back, feeds that break, clocks that jump.

use stoker_scenes::{Pod, Scene};

use crate::common::{PLAIN, SPOT, end};

/// The provider dies while a machine boots and starts from its journal: nothing is bought twice, nothing lost.
#[test]
fn the_provider_restarts_during_a_boot() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("90s");
    scene.provider_restarts();
    scene.run("10m");
    assert_eq!((scene.machines(), scene.node_of("web/a").as_str()), (1, "n0"));
    end(&scene, "the_provider_restarts_during_a_boot");
}

/// The provider is away for an hour: pods run on, their nodes stay, and what came meanwhile is served when it is back.
#[test]
fn the_provider_is_down_for_an_hour() {
    let mut scene = Scene::new(PLAIN);
    scene.pods("web/a", 2, &Pod::of("serve"));
    scene.run("10m");
    scene.provider_dies();
    scene.run("30m");
    scene.pod("web/b", Pod::of("serve"));
    scene.run("30m");
    assert_eq!(scene.machines(), 2);
    scene.provider_lives();
    scene.run("10m");
    assert_eq!(scene.machines(), 3);
    assert!(!scene.node_of("web/b").is_empty());
    end(&scene, "the_provider_is_down_for_an_hour");
}

/// The autoscaler starts anew while two machines boot, and has forgotten that it asked: the group is closed until they are Ready, or it
/// would buy both again.
#[test]
fn the_autoscaler_restarts_during_a_boot() {
    let mut scene = Scene::new(PLAIN);
    scene.pods("web/a", 2, &Pod::of("serve"));
    scene.run("2m");
    scene.autoscaler_restarts();
    scene.run("10m");
    assert_eq!(scene.machines(), 2);
    assert!(!scene.told(&["closed", "may not know that"]).is_empty());
    end(&scene, "the_autoscaler_restarts_during_a_boot");
}

/// The watch of Kubernetes is cut: what decides on deletion fails closed, and all goes on when it works again.
#[test]
fn the_kubernetes_watch_is_cut() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("20m"));
    scene.pod("web/b", Pod::of("serve"));
    scene.run("10m");
    scene.watch_works(false);
    scene.run("1h");
    assert_eq!(scene.machines(), 2);
    scene.watch_works(true);
    scene.run("40m");
    assert_eq!(scene.machines(), 1);
    end(&scene, "the_kubernetes_watch_is_cut");
}

/// The provider's clock jumps two hours ahead and back again: nothing that works is touched, nothing is bought twice.
#[test]
fn the_clock_jumps() {
    let mut scene = Scene::new(SPOT);
    scene.pods("team/job", 2, &Pod::of("train"));
    scene.run("10m");
    scene.clock_jumps("2h");
    scene.run("10m");
    scene.clock_jumps("-2h");
    scene.run("10m");
    assert_eq!(scene.machines(), 2);
    assert!(scene.told(&["is bound"]).len() == 2);
    end(&scene, "the_clock_jumps");
}

/// The autoscaler asks twice for each deletion: the second is nothing new.
#[test]
fn deletions_are_asked_for_twice() {
    let mut scene = Scene::new(PLAIN);
    scene.deletions_repeat(true);
    scene.pods("web/a", 3, &Pod::of("serve").runs("30m"));
    scene.pod("web/b", Pod::of("serve"));
    scene.run("2h");
    assert_eq!((scene.machines(), scene.target("serve.g6-xlarge.zone-a")), (1, 1));
    end(&scene, "deletions_are_asked_for_twice");
}

/// Both the provider and the autoscaler die at once, with a launch under way whose answer nobody hears.
#[test]
fn both_die_at_once() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("31s");
    scene.provider_dies();
    scene.autoscaler_restarts();
    scene.run("20s");
    scene.provider_lives();
    scene.run("15m");
    assert_eq!(scene.machines(), 1);
    assert!(!scene.node_of("web/a").is_empty());
    end(&scene, "both_die_at_once");
}
