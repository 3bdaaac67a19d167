//! Warm floors: how many, who asks for them, what keeps them from being met, and when they rise and fall.

use stoker_scenes::{Pod, Scene};
use stoker_sim::model::Settings;

use crate::common::{EAST, end};

const GROUP: &str = "serve.g6-xlarge.zone-a";

/// A pool with a floor as told, on demand in three zones.
fn with(floor: &str) -> String {
    format!("{EAST}  warmFloor: {floor}\n")
}

/// A floor of two comes up through the autoscaler, by `minSize` alone, and stays for a day.
#[test]
fn a_floor_of_two_comes_up_and_stays() {
    let mut scene = Scene::new(&with("{ nodes: 2 }"));
    scene.run("10m");
    assert_eq!((scene.machines(), scene.min_size(GROUP)), (2, 2));
    scene.run("24h");
    assert_eq!((scene.machines(), scene.told(&["buys"]).len()), (2, 2));
    end(&scene, "a_floor_of_two_comes_up_and_stays");
}

/// A pod takes a warm node at once, and the floor refills; when the pod goes the third node goes after its window.
#[test]
fn a_pod_takes_a_warm_node() {
    let mut scene = Scene::new(&with("{ nodes: 2 }"));
    scene.run("10m");
    scene.pod("web/a", Pod::of("serve").runs("40m"));
    scene.run("2s");
    assert!(!scene.node_of("web/a").is_empty());
    scene.run("10m");
    assert_eq!(scene.machines(), 3);
    scene.run("2h");
    assert_eq!(scene.machines(), 2);
    end(&scene, "a_pod_takes_a_warm_node");
}

/// The quota holds one node: the floor of two is unmet, and says which quota keeps it so.
#[test]
fn the_floor_is_unmet_because_of_quota() {
    let policy =
        with("{ nodes: 2 }") + "quotas: [{ name: Q, cloud: aws, region: east, capacityTypes: [on-demand], vcpus: 4 }]\n";
    let mut scene = Scene::new(&policy);
    scene.run("30m");
    assert_eq!(scene.machines(), 1);
    assert!(!scene.told(&["floor of serve", "blocked", "Q"]).is_empty());
    end(&scene, "the_floor_is_unmet_because_of_quota");
}

/// The budget holds one node: the same.
#[test]
fn the_floor_is_unmet_because_of_the_budget() {
    let mut scene = Scene::new(&with("{ nodes: 2 }").replace("maxNodes: 10", "maxNodes: 10, maxUsdPerHour: 1"));
    scene.run("30m");
    assert_eq!(scene.machines(), 1);
    assert!(!scene.told(&["floor of serve", "blocked"]).is_empty());
    end(&scene, "the_floor_is_unmet_because_of_the_budget");
}

/// The first zone has no stock: the floor moves to another group, instead of waiting in the first one's backoff.
#[test]
fn the_floor_moves_where_there_is_stock() {
    let mut scene = Scene::new(&with("{ nodes: 2 }"));
    scene.sell_out("zone-a");
    scene.run("20m");
    assert_eq!(scene.machines(), 2);
    end(&scene, "the_floor_moves_where_there_is_stock");
}

/// An autoscaler that does not enforce `minSize`: after the grace time the provider grows the group by itself and says so, and buys
/// nothing twice.
#[test]
fn the_autoscaler_ignores_min_size() {
    let settings = Settings { enforce_min_size: false, ..Settings::recommended() };
    let mut scene = Scene::with("2026-11-02T08:00:00Z", &with("{ nodes: 2 }"), settings);
    scene.run("30m");
    assert_eq!(scene.machines(), 2);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("30m");
    assert_eq!(scene.machines(), 3);
    end(&scene, "the_autoscaler_ignores_min_size");
}

/// Four nodes from eight to six on working days, one else: the floor rises before the morning and falls in the evening.
#[test]
fn a_schedule_raises_and_lowers_the_floor() {
    let mut scene = Scene::from(
        "2026-11-02T07:30:00Z",
        &with("{ nodes: 1, schedule: [{ cron: \"0 8 * * 1-5\", for: 10h, nodes: 4, timeZone: UTC }] }"),
    );
    scene.run("20m");
    assert_eq!(scene.machines(), 1);
    scene.run("30m");
    assert_eq!(scene.machines(), 4);
    scene.run("11h");
    assert_eq!(scene.machines(), 1);
    end(&scene, "a_schedule_raises_and_lowers_the_floor");
}

/// The night in which clocks go forward in Berlin: the slot of 02:30 does not exist, and begins when the clock has jumped, at 03:00; it ends
/// when the clock on the wall says so, at 04:30.
#[test]
fn the_night_the_clocks_go_forward() {
    let slot = "{ nodes: 0, schedule: [{ cron: \"30 2 * * *\", for: 2h, nodes: 1, timeZone: Europe/Berlin }] }";
    // 2027-03-28: 02:00 CET is 03:00 CEST, 01:00 UTC.
    let mut scene = Scene::from("2027-03-28T00:30:00Z", &with(slot));
    scene.run("4h");
    assert_eq!(scene.told(&["buys"]).len(), 1);
    assert!(!scene.told(&["00:30:00", "floor of serve: 1 wanted"]).is_empty());
    assert!(!scene.told(&["02:00:00", "floor of serve: 0 wanted"]).is_empty());
    end(&scene, "the_night_the_clocks_go_forward");
}

/// The night in which they go back: 02:30 comes twice and 03:00 once. The slot begins at the first 02:30, an hour and a half before it ends,
/// and once.
#[test]
fn the_night_the_clocks_go_back() {
    let slot = "{ nodes: 0, schedule: [{ cron: \"30 2 * * *\", for: 30m, nodes: 1, timeZone: Europe/Berlin }] }";
    let mut scene = Scene::from("2026-10-24T23:30:00Z", &with(slot));
    scene.run("4h");
    assert_eq!(scene.told(&["buys"]).len(), 1);
    assert!(!scene.told(&["01:00:00", "floor of serve: 1 wanted"]).is_empty());
    assert!(!scene.told(&["02:30:00", "floor of serve: 0 wanted"]).is_empty());
    end(&scene, "the_night_the_clocks_go_back");
}

/// Half as many warm as there are busy: six busy, three warm; when the work ends the warm ones go.
#[test]
fn a_share_of_the_busy_nodes_is_kept_warm() {
    let mut scene = Scene::new(&with("{ percentOfBusy: 50% }"));
    scene.pods("web/a", 6, &Pod::of("serve").runs("1h"));
    scene.run("20m");
    assert_eq!(scene.machines(), 9);
    scene.run("3h");
    assert_eq!(scene.machines(), 0);
    end(&scene, "a_share_of_the_busy_nodes_is_kept_warm");
}

/// Pods come by threes each half hour: after a day the quantile of arrivals keeps three warm, and those that come then need not wait.
#[test]
fn the_floor_follows_arrivals() {
    let mut scene = Scene::new(&with("{ quantile: { p: 95%, window: 1d, horizon: 10m } }"));
    scene.keep_only_the_end();
    for n in 0..53 {
        scene.pods(&format!("web/{n}"), 3, &Pod::of("serve").runs("5m"));
        scene.run("30m");
    }
    scene.keep_all();
    scene.pods("web/last", 3, &Pod::of("serve").runs("5m"));
    scene.run("2s");
    assert_eq!(scene.pods_waiting(), 0);
    scene.run("30m");
    assert!(!scene.told(&["floor of serve", "3 wanted"]).is_empty());
    end(&scene, "the_floor_follows_arrivals");
}

/// A demand signal asks for three replicas, and then cannot be read: the floor does not fall for that.
#[test]
fn a_demand_signal_becomes_unknown() {
    let policy = with("{ nodes: 1, signals: true }") + "  signals: [{ name: queue, query: sum(q), perReplica: 1 }]\n";
    let mut scene = Scene::new(&policy);
    scene.signal("serve", "queue", Some(3));
    scene.run("20m");
    assert_eq!(scene.machines(), 3);
    scene.signal("serve", "queue", None);
    scene.run("2h");
    assert_eq!(scene.machines(), 3);
    end(&scene, "a_demand_signal_becomes_unknown");
}

/// A floor of two through buffers: the autoscaler buys for them, keeps the nodes free of any annotation of ours, and refills what a pod
/// takes. When the pod goes, the third node goes after its window.
#[test]
fn a_floor_through_buffers() {
    let mut scene = Scene::new(&with("{ nodes: 2, mechanism: capacityBuffer }"));
    scene.serves_buffers();
    scene.run("10m");
    assert_eq!((scene.machines(), scene.is_held("n0"), scene.is_held("n1")), (2, true, true));
    // They were held for their windows, and are not for the floor.
    scene.run("2h");
    assert_eq!((scene.machines(), scene.min_size(GROUP), scene.is_held("n0"), scene.is_held("n1")), (2, 0, false, false));
    scene.pod("web/a", Pod::of("serve").runs("40m"));
    scene.run("2s");
    assert!(!scene.node_of("web/a").is_empty());
    scene.run("10m");
    assert_eq!(scene.machines(), 3);
    scene.run("2h");
    assert_eq!((scene.machines(), scene.told(&["buys"]).len()), (2, 3));
    end(&scene, "a_floor_through_buffers");
}

/// Nodes that lack the pool's image are not warm: they are waited for, and nothing is bought in their place. A new image makes all of them
/// wait again, until they have pulled it.
#[test]
fn a_floor_waits_for_images() {
    let mut scene = Scene::new(&with("{ nodes: 2, warmWhen: imagesPulled }"));
    scene.images_pulled_in("5m");
    // While nobody knows what pods use, any node will do.
    scene.run("5m");
    assert!(!scene.told(&["floor of serve", "2 warm, 0 coming"]).is_empty());
    scene.pod("web/a", Pod::of("serve"));
    scene.run("6m");
    // The one that the floor had, and the one that was bought for the other.
    assert_eq!(scene.machines(), 3);
    assert!(!scene.told(&["floor of serve", "1 warm, 1 coming", "1 node waits for images"]).is_empty());
    scene.run("10m");
    assert!(scene.told(&["floor of serve", "2 warm, 0 coming"]).len() > 1);
    scene.rolls_out("serve");
    scene.run("4m");
    assert!(!scene.told(&["floor of serve", "0 warm, 2 coming", "2 nodes wait for images"]).is_empty());
    scene.run("2h");
    assert!(scene.told(&["floor of serve", "2 warm, 0 coming"]).len() > 2);
    assert_eq!((scene.machines(), scene.told(&["buys"]).len()), (3, 3));
    end(&scene, "a_floor_waits_for_images");
}
