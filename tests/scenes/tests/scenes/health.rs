//! Unhealthy nodes: closed at once, and emptied, waited for or left as their pool says; and what stops a bad roll-out.

use stoker_scenes::{Pod, Scene, train};

use crate::common::{PLAIN, end};

/// The pool of [`PLAIN`], with probes and with rules as told for unhealthy nodes.
fn with(rules: &str) -> String {
    format!("{PLAIN}  evidence: probe\n  unhealthy: {rules}\n").replace("maxNodes: 10", "maxNodes: 12")
}

/// XID 79 on a busy node of a pool that drains: closed at once, its pod told to go after five minutes, on another node within a boot, and
/// the broken machine is ended.
#[test]
fn xid_79_is_replaced() {
    let mut scene = Scene::new(&with("{ action: drain }"));
    // Of five nodes one may be broken.
    scene.pods("web/a", 5, &Pod::of("serve"));
    scene.run("10m");
    let pod = scene.pod_on("n0");
    scene.xid("n0", 0, 79);
    scene.run("1s");
    assert!(scene.is_closed("n0"));
    scene.run("4m 50s");
    assert_eq!(scene.node_of(&pod), "n0");
    scene.run("5m");
    assert_eq!((scene.node_of(&pod).as_str(), scene.machines()), ("n5", 5));
    assert!(!scene.told(&["ends sim:///n0", "its hardware is faulty"]).is_empty());
    end(&scene, "xid_79_is_replaced");
}

/// A pool that waits: the pod runs on to its end, then the node is ended by us, and nothing is bought for it.
#[test]
fn unhealthy_and_waited_for() {
    let mut scene = Scene::new(&with("{ action: wait }"));
    scene.pod("web/a", Pod::of("serve").runs("40m"));
    scene.run("10m");
    scene.xid("n0", 0, 79);
    scene.run("30m");
    assert_eq!((scene.verdict("n0"), scene.node_of("web/a").as_str(), scene.is_held("n0")), ("unhealthy", "n0", true));
    scene.run("10m");
    assert_eq!((scene.machines(), scene.told(&["buys"]).len()), (0, 1));
    assert!(scene.told(&["tells web/a"]).is_empty());
    assert!(!scene.told(&["ends sim:///n0", "its hardware is faulty"]).is_empty());
    end(&scene, "unhealthy_and_waited_for");
}

/// A pool that only cordons: closed and left to people. What comes next gets another node; nothing is ended by us.
#[test]
fn unhealthy_and_cordoned() {
    let mut scene = Scene::new(&with("{ action: cordon }").replace("count: 1", "count: 4"));
    scene.pod("web/a", Pod::of("serve"));
    scene.run("10m");
    scene.xid("n0", 2, 79);
    scene.run("1m");
    scene.pod("web/b", Pod::of("serve"));
    scene.run("2h");
    assert!(scene.is_closed("n0"));
    assert_eq!((scene.node_of("web/a").as_str(), scene.node_of("web/b").as_str()), ("n0", "n1"));
    assert!(scene.told(&["ends sim"]).is_empty());
    end(&scene, "unhealthy_and_cordoned");
}

/// A driver roll-out breaks three of nine busy nodes within a minute: more than a fifth, so none is replaced, loudly. When one of them is
/// mended, two are left, which a pool of nine may replace.
#[test]
fn a_roll_out_breaks_a_third() {
    let mut scene = Scene::new(&with("{ action: drain }"));
    scene.pods("web/a", 9, &Pod::of("serve"));
    scene.run("10m");
    for node in ["n0", "n1", "n2"] {
        scene.wants(node, 0, 2);
        scene.run("20s");
    }
    scene.run("2h");
    assert_eq!((scene.machines(), scene.pods_waiting()), (9, 0));
    assert!(scene.told(&["tells web/a"]).is_empty());
    assert_eq!(scene.told(&["ALARM", "ReplacementsStopped"]).len(), 1);
    scene.wants("n2", 0, 0);
    scene.run("15m");
    assert!(!scene.is_closed("n2"));
    assert_eq!((scene.machines(), scene.pods_waiting(), scene.told(&["tells web/a"]).len()), (9, 0, 2));
    end(&scene, "a_roll_out_breaks_a_third");
}

/// Nodes break one after the other, each alone in a pool of ten: two are replaced within an hour, the third waits until the hour is over.
#[test]
fn no_more_than_two_are_replaced_within_an_hour() {
    let mut scene = Scene::new(&with("{ action: drain }"));
    scene.pods("web/a", 10, &Pod::of("serve"));
    scene.run("10m");
    for node in ["n0", "n1", "n2"] {
        scene.xid(node, 0, 79);
        scene.run("15m");
    }
    assert_eq!(scene.told(&["tells web/a"]).len(), 2);
    assert_eq!((scene.verdict("n2"), scene.is_closed("n2")), ("unhealthy", true));
    // The first was told to go at 00:15.
    scene.run("19m");
    assert_eq!(scene.told(&["tells web/a"]).len(), 2);
    scene.run("10m");
    assert_eq!(scene.told(&["tells web/a"]).len(), 3);
    assert_eq!((scene.machines(), scene.pods_waiting()), (10, 0));
    end(&scene, "no_more_than_two_are_replaced_within_an_hour");
}

/// A node on demand is emptied because spot is back, and its GPU breaks meanwhile: it goes once.
#[test]
fn unhealthy_while_it_goes() {
    let policy = concat!(
        "pools:\n",
        train!(", zones: [zone-a]"),
        "  limits: { maxNodes: 10 }
  evidence: probe
  unhealthy: { action: drain, after: 1s }
",
    );
    let mut scene = Scene::new(policy);
    scene.sell_out("/spot");
    scene.pod("team/job", Pod::of("train").saves("50s"));
    scene.run("15m");
    scene.restock("/spot");
    let mut passed = 0;
    while scene.told(&["tells team/job"]).is_empty() && passed < 18_000 {
        scene.run("5s");
        passed += 5;
    }
    scene.xid("n0", 0, 79);
    scene.run("15m");
    assert_eq!((scene.node_of("team/job").as_str(), scene.machines()), ("n1", 1));
    assert_eq!((scene.told(&["tells team/job"]).len(), scene.told(&["ends sim:///n0"]).len()), (1, 1));
    end(&scene, "unhealthy_while_it_goes");
}

/// A broken node carries a pod that nothing would make again: it is not told to go, and the node stays, closed, with it.
#[test]
fn a_pod_that_may_not_move_keeps_a_broken_node() {
    let mut scene = Scene::new(&with("{ action: drain }"));
    scene.pod("web/a", Pod::of("serve").bare());
    scene.run("10m");
    scene.xid("n0", 0, 79);
    scene.run("3h");
    assert_eq!((scene.node_of("web/a").as_str(), scene.is_closed("n0")), ("n0", true));
    assert!(!scene.told(&["NodeStays", "has no controller"]).is_empty());
    end(&scene, "a_pod_that_may_not_move_keeps_a_broken_node");
}

/// An autoscaler that would delete a busy node, whatever its annotation and `minSize` say, is refused; so it is for a node whose probe is
/// silent.
#[test]
fn deletion_of_a_busy_node_is_refused() {
    let mut scene = Scene::new(&with("{ action: wait }"));
    scene.pods("web/a", 2, &Pod::of("serve"));
    scene.run("10m");
    assert!(scene.deletion_of("n0").is_err());
    let pod = scene.pod_on("n1");
    scene.finish(&pod);
    scene.run("2m");
    scene.probe("n1", false);
    scene.run("1m");
    assert_eq!(scene.verdict("n1"), "unknown");
    assert!(scene.deletion_of("n1").is_err());
    scene.run("10m");
    assert_eq!(scene.machines(), 2);
    end(&scene, "deletion_of_a_busy_node_is_refused");
}
