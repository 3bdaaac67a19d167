//! How long free nodes are kept, which go first, and what keeps them.

use stoker_scenes::{Pod, Scene};

use crate::common::{PLAIN, SPOT, end};

const GROUP: &str = "serve.g6-xlarge.zone-a";

/// The pool of [`PLAIN`] with windows as told.
fn with(windows: &str) -> String {
    format!("{PLAIN}  stabilization: {windows}\n")
}

/// Pods that come within the window of nodes that became free take those, and nothing is bought.
#[test]
fn a_pod_comes_back_within_the_window() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("20m"));
    scene.run("34m");
    scene.pod("web/b", Pod::of("serve").runs("20m"));
    scene.run("5m");
    assert_eq!(scene.node_of("web/b"), "n0");
    scene.run("2h");
    assert_eq!(scene.told(&["buys"]).len(), 1);
    assert_eq!(scene.machines(), 0);
    end(&scene, "a_pod_comes_back_within_the_window");
}

/// The provider restarts again and again within a window: the node goes when it would have gone, 15 min after its pod.
#[test]
fn the_provider_restarts_in_a_window() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("26m"));
    scene.run("31m");
    for _ in 0..4 {
        scene.provider_restarts();
        scene.run("3m");
    }
    // Bound at 00:04:02, done at 00:30:02: the window is over at 00:45:02.
    assert!(scene.is_held("n0"));
    scene.run("2m 10s");
    assert!(!scene.is_held("n0"));
    scene.run("5m");
    assert_eq!(scene.machines(), 0);
    assert!(scene.told(&["00:45:0", "takes its hold of n0 back"]).len() == 1);
    end(&scene, "the_provider_restarts_in_a_window");
}

/// The wall goes back two hours within a window: the window ends when it would have.
#[test]
fn the_clock_goes_back_in_a_window() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("26m"));
    scene.run("40m");
    scene.clock_jumps("-2h");
    scene.run("4m");
    assert!(scene.is_held("n0"));
    scene.run("10m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "the_clock_goes_back_in_a_window");
}

/// With windows of equal cost the dear node goes in a minute and a half, and the cheap one waits its ten minutes: at $2 a GPU-hour of
/// waiting each may stand free for $0.083, which is 5 s of $55 an hour (a minute at least) and 375 s of $0.80.
#[test]
fn the_dear_node_goes_first() {
    let policy = "
pools:
- name: train
  workload: training
  gpu: { models: [L4, H100], count: [1, 8] }
  where: { clouds: [aws], regions: [east], zones: [zone-a] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 10 }
  stabilization: { window: equalCost, minimumLife: 0s }
";
    let mut scene = Scene::new(policy);
    scene.pod("team/small", Pod::of("train").runs("30m"));
    scene.pod("team/large", Pod::of("train").gpus(8).runs("30m"));
    scene.run("33m");
    assert_eq!(scene.machines(), 2);
    scene.run("4m");
    assert!(!scene.told(&["autoscaler deletes"]).is_empty());
    assert_eq!(scene.machines(), 1);
    scene.run("10m");
    assert_eq!(scene.machines(), 0);
    let deleted = scene.told(&["autoscaler deletes"]);
    assert!(deleted[0].contains(&scene.told(&["team/large is bound to"])[0].rsplit(' ').next().unwrap().to_owned()));
    end(&scene, "the_dear_node_goes_first");
}

/// A node whose pod goes at once is kept for fifteen minutes from its order all the same: it was just paid for.
#[test]
fn a_node_lives_for_its_minimum() {
    let mut scene = Scene::new(&with("{ scaleDown: 1m }"));
    scene.pod("web/a", Pod::of("serve").runs("1m"));
    scene.run("15m");
    // Ordered at 00:00:30.
    assert!(scene.is_held("n0"));
    scene.run("5m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "a_node_lives_for_its_minimum");
}

/// After the pool grew nothing of it goes for half an hour, although windows are over.
#[test]
fn nothing_goes_after_growth() {
    let mut scene = Scene::new(&with("{ scaleDown: 5m, minimumLife: 0s, afterScaleUp: 30m }"));
    scene.pod("web/a", Pod::of("serve").runs("40m"));
    scene.run("45m");
    scene.pods("web/b", 2, &Pod::of("serve"));
    scene.run("25m");
    assert_eq!(scene.machines(), 2, "the free node took one of the pods");
    scene.finish("web/b-0");
    scene.run("4m");
    assert_eq!(scene.machines(), 2);
    scene.run("15m");
    assert_eq!(scene.machines(), 1);
    end(&scene, "nothing_goes_after_growth");
}

/// Eight nodes become free at once, and a quarter of them may go in one window: two, and ten minutes later one of the six
/// that are left. That the autoscaler closes what it is about to remove gives no other node its turn.
#[test]
fn a_quarter_goes_in_one_window() {
    let mut scene = Scene::new(&with("{ scaleDown: 10m, minimumLife: 0s, maxRemovalsPerWindow: 25% }"));
    scene.pods("web/a", 8, &Pod::of("serve").runs("30m"));
    scene.run("48m");
    assert_eq!(scene.machines(), 6);
    // A quarter of the six that are left is one and a half.
    scene.run("10m");
    assert_eq!(scene.machines(), 5);
    scene.run("1h");
    assert_eq!(scene.machines(), 0);
    end(&scene, "a_quarter_goes_in_one_window");
}

/// Of two free nodes the reserved instance that is paid for in any case goes last.
#[test]
fn the_committed_node_goes_last() {
    let policy = format!(
        "{PLAIN}commitments:\n- {{ name: ri, kind: reserved-instance, cloud: aws, region: east, zone: zone-a, instanceType: g6.xlarge, nodes: 1, usdPerHour: 0.4, until: 2027-11-01T00:00:00Z }}\n"
    );
    let mut scene = Scene::new(&policy);
    scene.pods("web/a", 2, &Pod::of("serve").runs("30m"));
    scene.run("51m");
    assert_eq!(scene.machines(), 1);
    assert!(!scene.told(&["commitments pay for it"]).is_empty());
    scene.run("2h");
    end(&scene, "the_committed_node_goes_last");
}

/// The pool keeps one node whatever the demand: of three the two go that save most, and the last stays, held by annotation and `minSize`.
#[test]
fn the_pools_least_nodes_stay() {
    let mut scene = Scene::new(&PLAIN.replace("maxNodes: 10", "minNodes: 1, maxNodes: 10"));
    scene.run("5m");
    assert_eq!((scene.machines(), scene.min_size(GROUP)), (1, 1));
    scene.pods("web/a", 3, &Pod::of("serve").runs("30m"));
    scene.run("2h");
    assert_eq!((scene.machines(), scene.min_size(GROUP)), (1, 1));
    end(&scene, "the_pools_least_nodes_stay");
}

/// A user's hold outlasts the window; when it is taken back the node goes without waiting again.
#[test]
fn a_users_hold_outlasts_the_window() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("20m"));
    scene.run("30m");
    scene.users_hold("n0", true);
    scene.run("40m");
    assert_eq!(scene.machines(), 1);
    scene.users_hold("n0", false);
    scene.run("5m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "a_users_hold_outlasts_the_window");
}

/// The policy's windows are made longer while nodes are free inside them: what is free stays for the longer one, and nothing else happens.
#[test]
fn the_windows_are_made_longer() {
    let mut scene = Scene::new(PLAIN);
    scene.pod("web/a", Pod::of("serve").runs("20m"));
    scene.run("35m");
    scene.policy(&with("{ scaleDown: 1h }"));
    scene.run("45m");
    assert!(scene.is_held("n0"));
    scene.run("10m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "the_windows_are_made_longer");
}

/// A node becomes free, its window ends while the provider is away for an hour, and it goes soon after the provider is back.
#[test]
fn the_provider_is_away_when_the_window_ends() {
    let mut scene = Scene::new(SPOT);
    scene.pod("team/job", Pod::of("train").runs("20m"));
    scene.run("26m");
    scene.provider_dies();
    scene.run("1h");
    assert_eq!(scene.machines(), 1);
    scene.provider_lives();
    scene.run("5m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "the_provider_is_away_when_the_window_ends");
}
