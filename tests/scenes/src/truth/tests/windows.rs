//! What is released.

use super::{free, pool, releases, sound, tells};
use crate::scene::Pod;

const WINDOW: &str = "  stabilization: { scaleDown: 10m, minimumLife: 0s }\n";
const LIFE: &str = "  stabilization: { scaleDown: 1m, minimumLife: 20m }\n";
const GROWTH: &str = "  stabilization: { scaleDown: 1m, minimumLife: 0s, afterScaleUp: 20m }\n";

#[test]
fn nothing_is_released_or_chosen_within_its_window() {
    let mut scene = free(&pool(WINDOW), 1);
    scene.run("9m");
    releases(&mut scene, "n0");
    tells(&mut scene, "n0 is released after 541 s free of 600");
    let mut scene = free(&pool(WINDOW), 1);
    scene.run("9m");
    scene.chosen("n0");
    tells(&mut scene, "n0 is chosen after 541 s free of 600");
    // Nor does a pod that is on it count as none.
    let mut scene = free(&pool(WINDOW), 1);
    scene.pod("web/b", Pod::of("serve"));
    scene.run("11m");
    releases(&mut scene, "n0");
    tells(&mut scene, "n0 is released after 0 s free of 600");
    // It was released by itself, and may be chosen.
    let mut scene = free(&pool(WINDOW), 1);
    scene.autoscaler_runs(false);
    scene.run("10m");
    scene.chosen("n0");
    sound(&scene);
    assert_eq!(scene.counts()["nodes released"], 1);
}

/// Whatever restarts in between, and however often: what is left of a window is not forgotten.
#[test]
fn a_restart_ends_no_window() {
    let mut scene = free(&pool(WINDOW), 1);
    scene.run("4m");
    scene.provider_restarts();
    scene.run("5m");
    releases(&mut scene, "n0");
    tells(&mut scene, "n0 is released after 541 s free of 600");
    // What passed while the provider was away passed all the same.
    let mut scene = free(&pool(WINDOW), 1);
    scene.autoscaler_runs(false);
    scene.provider_dies();
    scene.run("11m");
    scene.provider_lives();
    releases(&mut scene, "n0");
    sound(&scene);
    // A wall that goes ahead makes nothing pass.
    let mut scene = free(&pool(WINDOW), 1);
    scene.clock_jumps("11m");
    releases(&mut scene, "n0");
    tells(&mut scene, "free of 600");
}

#[test]
fn a_window_of_equal_pay_is_as_long_as_its_price_says() {
    // 150 s × $2 ÷ $0.80: 375 s.
    let mut scene = free(&pool("  stabilization: { window: equalCost, minimumLife: 0s }\n"), 1);
    scene.run("6m");
    releases(&mut scene, "n0");
    tells(&mut scene, "n0 is released after 361 s free of 375");
}

#[test]
fn nothing_is_released_before_its_minimum_life_or_after_growth() {
    // Launched half a minute after its pod came, and as good as ordered a quarter of a minute before that.
    let mut scene = free(&pool(LIFE), 1);
    scene.run("12m");
    releases(&mut scene, "n0");
    tells(&mut scene, "s of life of 1200");
    let mut scene = free(&pool(GROWTH), 1);
    scene.run("12m");
    releases(&mut scene, "n0");
    tells(&mut scene, "s after growth of 1200");
    // A user's closed node waits for no growth.
    let mut scene = free(&pool(GROWTH), 1);
    scene.run("12m");
    scene.truth.touched.insert("n0".to_owned());
    releases(&mut scene, "n0");
    sound(&scene);
}

/// Of four nodes half may go in one window: two, and not a third, not even when the first two are gone. A pod that comes gives a turn back.
#[test]
fn no_more_go_in_one_window_than_their_share() {
    let turns = pool("  stabilization: { scaleDown: 10m, minimumLife: 0s, maxRemovalsPerWindow: 50% }\n");
    let mut scene = free(&turns, 4);
    // By the clock they are free for long enough, and nobody has looked.
    scene.desk_mut().faults.blind = true;
    scene.autoscaler_runs(false);
    scene.run("11m");
    scene.desk_mut().faults.blind = false;
    releases(&mut scene, "n0");
    releases(&mut scene, "n1");
    sound(&scene);
    releases(&mut scene, "n2");
    tells(&mut scene, "3 nodes of serve are released within one window, 2 at most");
    scene.truth.may_go.remove("n0");
    releases(&mut scene, "n3");
    tells(&mut scene, "3 nodes of serve are released within one window, 2 at most");
    scene.truth.may_go.remove("n1");
    scene.truth.may_go.remove("n2");
    releases(&mut scene, "n3");
    sound(&scene);
}
