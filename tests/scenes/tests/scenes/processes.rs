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

/// What happens in an hour of a working pool, once as the wall says and once while it jumps by hours: not a line of the time line differs.
#[test]
fn a_wall_that_jumps_changes_nothing() {
    let played = |jumps: &[&str]| {
        let mut scene = Scene::new(SPOT);
        let mut jumps = jumps.iter();
        let mut next = |scene: &mut Scene| jumps.next().into_iter().for_each(|by| scene.clock_jumps(by));
        scene.pods("team/job", 2, &Pod::of("train").runs("25m"));
        scene.run("2m");
        next(&mut scene);
        scene.run("11m");
        next(&mut scene);
        scene.sell_out("zone-a");
        scene.pod("team/more", Pod::of("train").runs("20m"));
        scene.run("9m");
        next(&mut scene);
        scene.notice("n0", "2m");
        scene.run("40m");
        next(&mut scene);
        scene.run("1h");
        let lines = scene.timeline();
        lines.lines().filter(|line| !line.contains("its clock goes")).map(str::to_owned).collect::<Vec<_>>()
    };
    let steady = played(&[]);
    for jumps in [["2h", "-2h", "30h", "-30h"], ["-5h", "20m", "-20h", "11h"], ["-15m", "-15m", "-15m", "-15m"]] {
        let jumping = played(&jumps);
        for (line, (one, other)) in steady.iter().zip(&jumping).enumerate() {
            assert_eq!(other, one, "{jumps:?}: line {line}");
        }
        assert_eq!(jumping.len(), steady.len());
    }
}

/// The wall runs hours ahead while a node is ordered, and is right again when the provider starts anew: the node joins, the next is bought
/// within a minute, and windows last as long as they should. Likewise where the wall runs ahead over the restart.
#[test]
fn a_forward_excursion_over_a_restart_freezes_nothing() {
    for (before, between) in [("7h", "-7h"), ("0s", "7h"), ("7h", "0s"), ("-7h", "7h")] {
        let mut scene = Scene::new(PLAIN);
        scene.run("5m");
        scene.clock_jumps(before);
        scene.run("5m");
        scene.pod("web/a", Pod::of("serve").runs("30m"));
        scene.run("90s");
        scene.provider_dies();
        scene.clock_jumps(between);
        scene.run("10s");
        scene.provider_lives();
        scene.run("10m");
        assert_eq!((scene.machines(), scene.node_of("web/a").as_str()), (1, "n0"), "{before} {between}");
        scene.pod("web/b", Pod::of("serve").runs("1h"));
        scene.run("1m");
        assert_eq!(scene.machines(), 2, "{before} {between}: bought at once");
        scene.run("28m");
        assert_eq!(scene.machines(), 2, "{before} {between}: the first one's window is not over");
        scene.run("15m");
        assert_eq!(scene.machines(), 1, "{before} {between}: and then it is");
        assert_eq!(scene.broken(), Vec::<String>::new(), "{before} {between}");
    }
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
