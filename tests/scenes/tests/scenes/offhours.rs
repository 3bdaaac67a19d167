//! Off-hours: what goes, what stays, and what is told beforehand.

use stoker_scenes::{Pod, Scene, serve};

use crate::common::end;

/// A pool with a floor of three that has no nodes from ten to two.
const OFF: &str = concat!(
    "pools:\n",
    serve!(),
    "  limits: { maxNodes: 10 }
  warmFloor: { nodes: 3 }
  offHours: { schedule: [{ cron: \"0 10 * * *\", for: 4h, timeZone: UTC }], maxNodes: 0 }
",
);

/// Notebooks that are given up from Friday evening to Monday morning when nobody has typed for two hours, half an hour after an Event.
const NOTEBOOKS: &str = "
pools:
- name: lab
  workload: dev
  gpu: { models: [L4], count: 1 }
  where: { clouds: [aws], regions: [east], zones: [zone-a] }
  capacity: { prefer: [on-demand] }
  limits: { maxNodes: 10 }
  evidence: probe
  offHours: { schedule: [{ cron: \"0 20 * * 5\", for: 58h, timeZone: UTC }], maxNodes: 0, held: evict, grace: 30m }
";

/// A pool that is off from ten on, with two busy nodes and three free ones of its floor: nothing is kept warm, the free ones go at once
/// without waiting for their windows, and the busy ones stay until their work is done.
#[test]
fn off_hours_leave_busy_nodes_alone() {
    let mut scene = Scene::new(OFF);
    scene.run("10m");
    scene.pods("web/a", 2, &Pod::of("serve").runs("3h"));
    scene.run("100m");
    assert_eq!(scene.machines(), 5);
    scene.run("20m");
    assert_eq!((scene.machines(), scene.pods_waiting()), (2, 0));
    // The work ends at 11:10, and the floor is back at 14:00.
    scene.run("90m");
    assert_eq!(scene.machines(), 0);
    scene.run("150m");
    assert_eq!(scene.machines(), 3);
    assert_eq!(scene.told(&["cluster", "is bound"]).len(), 2);
    end(&scene, "off_hours_leave_busy_nodes_alone");
}

/// A notebook is left at 17:00 on a Friday: held from 19:00 on, told at 20:00 that it goes, and told to go at 20:30. Its node
/// goes, too, and no other is bought for it.
#[test]
fn a_held_notebook_is_evicted_off_hours() {
    let mut scene = Scene::from("2026-11-06T16:00:00Z", NOTEBOOKS);
    scene.pod("lab/notebook", Pod::of("lab"));
    scene.run("1h");
    scene.works("lab/notebook", false);
    scene.run("2h 59m");
    assert_eq!((scene.verdict("n0"), scene.node_of("lab/notebook").as_str()), ("held", "n0"));
    scene.run("20m");
    assert!(!scene.told(&["04:00:00", "NodeWillBeEmptied"]).is_empty());
    assert_eq!(scene.node_of("lab/notebook"), "n0");
    scene.run("20m");
    assert!(!scene.told(&["04:30:07", "tells lab/notebook to leave n0"]).is_empty());
    // What would make it again waits for Monday: nothing is bought.
    assert_eq!((scene.machines(), scene.pods_waiting(), scene.told(&["buys"]).len()), (0, 1, 1));
    end(&scene, "a_held_notebook_is_evicted_off_hours");
}

/// Somebody types again within the grace time: nothing is evicted, and when the notebook is left again it has its whole time again.
#[test]
fn a_notebook_is_used_again_in_the_grace() {
    let mut scene = Scene::from("2026-11-06T16:00:00Z", NOTEBOOKS);
    scene.pod("lab/notebook", Pod::of("lab"));
    scene.run("1h");
    scene.works("lab/notebook", false);
    scene.run("3h 20m");
    scene.works("lab/notebook", true);
    scene.run("20m");
    assert_eq!((scene.verdict("n0"), scene.node_of("lab/notebook").as_str()), ("busy", "n0"));
    assert!(!scene.told(&["NodeStays", "a pod works on it again"]).is_empty());
    scene.works("lab/notebook", false);
    scene.run("2h 20m");
    assert_eq!(scene.node_of("lab/notebook"), "n0");
    scene.run("20m");
    assert_ne!(scene.node_of("lab/notebook"), "n0");
    end(&scene, "a_notebook_is_used_again_in_the_grace");
}
