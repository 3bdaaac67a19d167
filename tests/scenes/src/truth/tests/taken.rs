//! What is taken.

use jiff::SignedDuration;
use stoker_core::state::node_verdict::Verdict;

use super::{busy, forges, free, pool, sound, takes, tells};
use crate::scene::{Pod, Scene};

/// `n0` of this pool, with a pod, which the provider takes for that.
fn judged(policy: &str, verdict: Verdict) -> Scene {
    let mut scene = busy(policy, 1);
    forges(&mut scene, "n0", false, |record| record.judged.as_mut().unwrap().verdict = verdict);
    scene
}

/// The cloud takes `n0` back in two minutes.
fn reclaims(scene: &mut Scene) {
    let now = scene.now;
    scene.desk_mut().cloud.of_node_mut("n0").unwrap().reclaim = Some((now, now + SignedDuration::from_mins(2)));
}

#[test]
fn what_is_busy_held_or_unknown_is_taken_by_nobody() {
    for verdict in [Verdict::Busy, Verdict::Held, Verdict::Unknown] {
        for (by_autoscaler, who) in [(true, "the autoscaler"), (false, "the provider")] {
            let mut scene = judged(&pool(""), verdict);
            takes(&mut scene, "n0", by_autoscaler);
            tells(&mut scene, &format!("{who} takes n0, which is {verdict}: "));
            // What the cloud takes back is let go by the provider, and by the autoscaler no more than else.
            let mut scene = judged(&pool(""), verdict);
            reclaims(&mut scene);
            takes(&mut scene, "n0", by_autoscaler);
            if by_autoscaler { tells(&mut scene, "the autoscaler takes n0") } else { sound(&scene) }
        }
    }
    let mut scene = judged(&pool(""), Verdict::Warm);
    takes(&mut scene, "n0", true);
    sound(&scene);
}

/// A notice that is withdrawn stands until the provider can have heard that.
#[test]
fn what_the_cloud_does_not_take_after_all_stays_once_that_can_be_heard() {
    for (deaf, stands) in [(false, false), (true, true)] {
        let mut scene = busy(&pool(""), 1);
        scene.inventory_works(!deaf);
        scene.withdraw("n0");
        scene.run("5s");
        scene.evicted_by_us("web/a-0", "n0");
        if stands { sound(&scene) } else { tells(&mut scene, "and nothing excuses it") }
    }
}

#[test]
fn only_what_is_held_is_given_up_in_off_hours() {
    let slot = "{ cron: \"0 9 * * *\", for: 1h, timeZone: UTC }";
    let off = format!("  evidence: probe\n  offHours: {{ schedule: [{slot}], maxNodes: 0, held: evict, grace: 5m }}\n");
    let cases = [
        ("2h", Verdict::Held, false),
        ("1h", Verdict::Held, true),
        ("1h", Verdict::Busy, false),
        ("1h", Verdict::Unknown, false),
    ];
    for (after, verdict, given_up) in cases {
        let mut scene = busy(&pool(&off), 1);
        scene.run(after);
        forges(&mut scene, "n0", false, |record| record.judged.as_mut().unwrap().verdict = verdict);
        takes(&mut scene, "n0", false);
        if given_up { sound(&scene) } else { tells(&mut scene, "the provider takes n0") }
    }
}

#[test]
fn work_moves_to_spot_and_off_capacity_that_ends_and_for_nothing_else() {
    // On demand in a pool that moves work back to spot, and yet not on its way there.
    let spot = pool("").replace("workload: inference", "workload: training").replace(
        "prefer: [on-demand]",
        "prefer: [spot, on-demand], spot: { checkpoint: 10m, restart: 2m, returnToSpot: busy }",
    );
    let mut scene = Scene::new(&spot);
    scene.sell_out("/spot");
    scene.pod("web/a", Pod::of("serve"));
    scene.run("15m");
    sound(&scene);
    assert!(!scene.is_spot(&scene.node_of("web/a")));
    let node = scene.node_of("web/a");
    takes(&mut scene, &node, false);
    tells(&mut scene, &format!("the provider takes {node}, which is busy"));
    scene.evicted_by_us("web/a", &node);
    tells(&mut scene, &format!("web/a was told to leave {node}, and nothing excuses it"));
    // On a capacity block that ends in three hours.
    let block = "
pools:
- name: serve
  workload: training
  gpu: { models: [H100] }
  where: { clouds: [aws], regions: [east], zones: [zone-a] }
  capacity: { prefer: [reserved, on-demand] }
  limits: { maxNodes: 4 }
commitments:
- { name: block, kind: capacity-block, cloud: aws, region: east, zone: zone-a, instanceType: p5.48xlarge, nodes: 1, usdPerHour: 40, from: 2026-11-01T11:30:00Z, until: 2026-11-02T11:30:00Z }
";
    let mut scene = Scene::new(block);
    scene.pod("web/a", Pod::of("serve").gpus(8));
    scene.run("30m");
    scene.evicted_by_us("web/a", "n0");
    tells(&mut scene, "web/a was told to leave n0");
    scene.now += SignedDuration::from_mins(150);
    let now = scene.now;
    scene.desk_mut().advance(now);
    scene.evicted_by_us("web/a", "n0");
    sound(&scene);
}

#[test]
fn pods_are_told_to_go_only_where_the_cloud_or_the_policy_takes_their_node() {
    let told = |scene: &mut Scene| scene.evicted_by_us("web/a-0", "n0");
    let mut scene = busy(&pool(""), 1);
    told(&mut scene);
    tells(&mut scene, "web/a-0 was told to leave n0, and nothing excuses it");
    reclaims(&mut scene);
    told(&mut scene);
    sound(&scene);
    // Broken hardware is emptied where the pool says so.
    for (action, emptied) in [("drain", true), ("wait", false), ("cordon", false)] {
        let mut scene = busy(&pool(&format!("  evidence: probe\n  unhealthy: {{ action: {action} }}\n")), 1);
        scene.truth.sick.insert("n0".to_owned());
        told(&mut scene);
        if emptied { sound(&scene) } else { tells(&mut scene, "web/a-0 was told to leave n0") }
    }
}

#[test]
fn a_node_object_goes_with_its_machine() {
    let mut scene = busy(&pool(""), 1);
    scene.node_removed("n0");
    tells(&mut scene, "the Node object of n0 is removed, and its machine runs");
    let now = scene.now;
    scene.desk_mut().cloud.of_node_mut("n0").unwrap().ends_at = Some(now);
    scene.node_removed("n0");
    sound(&scene);
}

#[test]
fn what_has_pods_is_not_deleted_ended_or_emptied() {
    let mut scene = busy(&pool(""), 1);
    scene.deleted("n0");
    tells(&mut scene, "n0 was deleted under web/a-0");
    let pods = ["web/a-0".to_owned()];
    scene.truth.machine_gone("n0", false, &pods, scene.now);
    tells(&mut scene, "the machine of n0 was ended under web/a-0");
    scene.truth.machine_gone("n0", true, &pods, scene.now);
    sound(&scene);
    scene.truth.evicted_by_autoscaler("web/a-0", "n0", scene.now);
    tells(&mut scene, "the autoscaler's scale-down evicted web/a-0 from n0");
    // It was free when it was deleted, and a pod was quick.
    let mut scene = free(&pool(""), 1);
    scene.deleted("n0");
    scene.truth.machine_gone("n0", false, &pods, scene.now);
    sound(&scene);
}

#[test]
fn no_node_is_deleted_while_its_probe_alone_is_silent() {
    let mut scene = free(&pool("  evidence: probe\n"), 2);
    scene.run("80s");
    scene.probe("n0", false);
    scene.run("19s");
    scene.deleted("n0");
    sound(&scene);
    scene.run("3s");
    scene.deleted("n0");
    tells(&mut scene, "n0 was deleted while its probe was silent");
    // Where no probe is heard pods tell.
    scene.all_probes(false);
    scene.run("1s");
    scene.deleted("n0");
    sound(&scene);
}
