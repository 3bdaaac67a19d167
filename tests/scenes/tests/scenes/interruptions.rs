//! Machines that the cloud takes back: what is told within seconds, what is saved, and what is bought in their place.

use stoker_scenes::{Pod, Scene};

use crate::common::{SPOT, end};

/// Spot on GCP alone, with its notice of 30 s.
const GCP: &str = "
pools:
- name: train
  workload: training
  gpu: { models: [L4], count: 1 }
  where: { clouds: [gcp], regions: [central] }
  capacity: { prefer: [spot, on-demand], spot: { checkpoint: 10m, restart: 2m } }
  limits: { maxNodes: 10 }
";

/// Two minutes' notice of a busy node: its pod is told to go within two seconds, saves for 20 s, and has another node within a boot. The
/// Node object goes with its machine.
#[test]
fn a_spot_notice_on_a_busy_node() {
    let mut scene = Scene::new(SPOT);
    scene.pod("team/job", Pod::of("train").saves("20s"));
    scene.run("10m");
    scene.notice("n0", "2m");
    scene.run("2s");
    assert_eq!(scene.told(&["tells team/job to leave n0 within 109 s"]).len(), 1);
    assert!(scene.is_closed("n0"));
    scene.run("20s");
    assert_eq!(scene.pods_waiting(), 1);
    scene.run("5m");
    assert_eq!((scene.node_of("team/job").as_str(), scene.nodes()), ("n1", vec!["n1".to_owned()]));
    end(&scene, "a_spot_notice_on_a_busy_node");
}

/// Notice of an idle node: it is ended before its time, the target falls with it, and nothing is bought for it.
#[test]
fn a_spot_notice_on_an_idle_node() {
    let mut scene = Scene::new(SPOT);
    scene.pod("team/job", Pod::of("train").runs("8m"));
    scene.run("15m");
    assert_eq!((scene.verdict("n0"), scene.target("train.g6-xlarge.zone-a")), ("warm", 1));
    scene.notice("n0", "2m");
    scene.run("30s");
    assert_eq!(scene.target("train.g6-xlarge.zone-a"), 0);
    scene.run("10m");
    assert_eq!((scene.machines(), scene.told(&["buys"]).len()), (0, 1));
    end(&scene, "a_spot_notice_on_an_idle_node");
}

/// Thirty seconds on GCP: ten are kept free, so a pod that saves for 15 s has saved in time.
#[test]
fn a_notice_of_thirty_seconds() {
    let mut scene = Scene::new(GCP);
    scene.pod("team/job", Pod::of("train").saves("15s"));
    scene.run("10m");
    scene.notice("n0", "30s");
    scene.run("2s");
    assert_eq!(scene.told(&["tells team/job to leave n0 within 19 s"]).len(), 1);
    assert!(scene.told(&["too short"]).is_empty());
    scene.run("20s");
    assert_eq!(scene.pods_waiting(), 1);
    scene.run("10m");
    assert_eq!(scene.node_of("team/job"), "n1");
    end(&scene, "a_notice_of_thirty_seconds");
}

/// A pod that saves for a minute on GCP cannot: it is told to go all the same, with the time that there is, and what it did since its last
/// checkpoint is lost.
#[test]
fn a_checkpoint_longer_than_the_notice() {
    let mut scene = Scene::new(&GCP.replace("restart: 2m", "restart: 2m, checkpointSave: 60s"));
    scene.pod("team/job", Pod::of("train").saves("60s"));
    scene.run("10m");
    scene.notice("n0", "30s");
    scene.run("10m");
    assert_eq!(scene.told(&["tells team/job to leave n0 within 19 s, too short for what it has to save"]).len(), 1);
    assert!(!scene.node_of("team/job").is_empty());
    end(&scene, "a_checkpoint_longer_than_the_notice");
}

/// The notice is withdrawn while a disruption budget keeps the pod from going: the node stays, takes pods again, and its pod runs on.
#[test]
fn a_notice_is_withdrawn() {
    let mut scene = Scene::new(SPOT);
    scene.pod("team/job", Pod::of("train"));
    scene.run("10m");
    scene.budgets_forbid(true);
    scene.notice("n0", "2m");
    scene.run("10s");
    assert!(scene.is_closed("n0"));
    scene.withdraw("n0");
    scene.budgets_forbid(false);
    scene.run("10m");
    assert!(!scene.is_closed("n0"));
    assert_eq!((scene.node_of("team/job").as_str(), scene.machines()), ("n0", 1));
    assert!(scene.told(&["tells team/job"]).is_empty());
    end(&scene, "a_notice_is_withdrawn");
}

/// The notice is withdrawn when the pod has gone: there is no way back for it, and no second node is bought for the one that stays behind.
#[test]
fn a_notice_is_withdrawn_too_late() {
    let mut scene = Scene::new(SPOT);
    scene.pod("team/job", Pod::of("train").saves("20s"));
    scene.run("10m");
    scene.notice("n0", "2m");
    scene.run("5s");
    scene.withdraw("n0");
    scene.run("15m");
    assert_eq!((scene.machines(), scene.pods_waiting()), (1, 0));
    end(&scene, "a_notice_is_withdrawn_too_late");
}

/// The cloud takes all spot nodes of a zone at once: one event for the reckoning, the zone is left alone, and the work goes on in the next.
#[test]
fn a_spot_wave_of_a_whole_market() {
    let mut scene = Scene::new(SPOT);
    scene.pods("team/job", 6, &Pod::of("train").saves("20s"));
    scene.run("10m");
    let first = scene.node_of("team/job-0");
    assert!(!first.is_empty());
    scene.spot_wave("zone-a/g6.xlarge/spot", "2m");
    scene.run("10m");
    assert_eq!((scene.machines(), scene.pods_waiting()), (6, 0));
    assert_eq!(scene.told(&["cluster", "is bound to"]).len(), 12);
    assert!(scene.told(&["buys", "zone-a/g6.xlarge/spot"]).len() <= 6);
    end(&scene, "a_spot_wave_of_a_whole_market");
}

/// A floor of two on spot loses one: it is filled up again in another market.
#[test]
fn a_floor_loses_a_spot_node() {
    let mut scene = Scene::new(&format!("{SPOT}  warmFloor: {{ nodes: 2 }}\n"));
    scene.run("10m");
    assert_eq!((scene.machines(), scene.is_spot("n0")), (2, true));
    scene.notice("n0", "2m");
    scene.run("10m");
    assert_eq!(scene.machines(), 2);
    assert!(!scene.told(&["floor of train", "2 warm"]).is_empty());
    assert_eq!(scene.told(&["buys"]).len(), 3);
    assert_eq!(scene.told(&["buys", "zone-b/g6.xlarge/spot"]).len(), 1);
    end(&scene, "a_floor_loses_a_spot_node");
}
