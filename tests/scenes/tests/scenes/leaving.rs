//! Nodes that are taken back by the cloud, or that are let go on our own decision.

use stoker_scenes::{Pod, Scene};

use crate::common::{SPOT, end};

/// Spot comes back after an order had to be bought on demand: the idle on-demand node goes, the busy one moves once that pays.
#[test]
fn spot_is_back() {
    let mut scene = Scene::new(SPOT);
    scene.sell_out("/spot");
    scene.pod("team/job", Pod::of("train"));
    scene.run("15m");
    assert!(!scene.told(&["/on-demand at"]).is_empty());
    scene.restock("/spot");
    scene.run("3h");
    assert!(!scene.told(&["NodeLeaving", "spot is available again"]).is_empty());
    assert!(!scene.node_of("team/job").is_empty());
    assert_eq!(scene.machines(), 1);
    end(&scene, "spot_is_back");
}

/// Spot is back, and the pod may not be moved: its node stays.
#[test]
fn spot_is_back_and_the_pod_may_not_move() {
    let mut scene = Scene::new(SPOT);
    scene.sell_out("/spot");
    scene.pod("team/job", Pod::of("train").bare());
    scene.run("15m");
    scene.restock("/spot");
    scene.run("90m");
    assert_eq!(scene.told(&["team/job is bound"]).len(), 1);
    assert!(!scene.told(&["NodeStays"]).is_empty());
    end(&scene, "spot_is_back_and_the_pod_may_not_move");
}

/// A machine vanishes without a word: the target falls at once, and the pod gets another node.
#[test]
fn a_machine_vanishes() {
    let mut scene = Scene::new(SPOT);
    scene.pod("team/job", Pod::of("train"));
    scene.run("10m");
    scene.vanishes("n0");
    scene.run("10m");
    assert!(!scene.told(&["NodeLost"]).is_empty());
    assert_eq!(scene.node_of("team/job"), "n1");
    end(&scene, "a_machine_vanishes");
}

/// A capacity block ends at 11:30: forty minutes before, its nodes are closed and emptied, and the work goes on elsewhere.
#[test]
fn a_capacity_block_ends() {
    let policy = "
pools:
- name: train
  workload: training
  gpu: { models: [H100] }
  where: { clouds: [aws], regions: [east], zones: [zone-a] }
  capacity: { prefer: [reserved, on-demand] }
  limits: { maxNodes: 4 }
commitments:
- { name: block, kind: capacity-block, cloud: aws, region: east, zone: zone-a, instanceType: p5.48xlarge, nodes: 1, usdPerHour: 40, from: 2026-11-01T11:30:00Z, until: 2026-11-02T11:30:00Z }
";
    let mut scene = Scene::new(policy);
    scene.pod("team/job", Pod::of("train").gpus(8).saves("20s"));
    scene.run("10m");
    assert_eq!(scene.node_of("team/job"), "n0");
    scene.run("4h");
    assert!(!scene.told(&["NodeLeaving", "commitment block ends"]).is_empty());
    assert!(!scene.node_of("team/job").is_empty());
    assert_ne!(scene.node_of("team/job"), "n0");
    end(&scene, "a_capacity_block_ends");
}
