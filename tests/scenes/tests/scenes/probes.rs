//! What probes see of nodes: work, rest, broken hardware, and nothing at all.

use stoker_core::facts::reading::{DriverState, Gate};
use stoker_scenes::{Pod, Scene, serve};

use crate::common::end;

/// One pool of nodes with one L4, whose probes tell what they do.
const PROBED: &str = concat!(
    "pools:\n",
    serve!(", zones: [zone-a]"),
    "  limits: { maxNodes: 10 }
  evidence: probe
",
);

/// A pod works on its node and goes: busy, then free from the first quiet reading on.
#[test]
fn a_pod_is_seen_at_work() {
    let mut scene = Scene::new(PROBED);
    scene.pod("web/a", Pod::of("serve").runs("30m"));
    scene.run("20m");
    assert_eq!(scene.verdict("n0"), "busy");
    scene.run("20m");
    assert_eq!(scene.verdict("n0"), "warm");
    scene.run("1h");
    assert_eq!(scene.machines(), 0);
    end(&scene, "a_pod_is_seen_at_work");
}

/// The probe of a free node falls silent: what it does is unknown, and so it is kept, for hours, and let go once it was seen quiet again.
#[test]
fn a_probe_falls_silent_on_a_free_node() {
    let mut scene = Scene::new(PROBED);
    scene.pods("web/a", 2, &Pod::of("serve"));
    scene.run("10m");
    scene.finish("web/a-0");
    let node = if scene.node_of("web/a-1") == "n0" { "n1" } else { "n0" };
    scene.run("5m");
    scene.probe(node, false);
    scene.run("1m");
    assert_eq!(scene.verdict(node), "unknown");
    scene.run("4h");
    assert!(scene.is_held(node) && scene.machines() == 2);
    scene.probe(node, true);
    scene.run("30m");
    assert_eq!(scene.machines(), 1);
    end(&scene, "a_probe_falls_silent_on_a_free_node");
}

/// The probe of a busy node falls silent under load: the node is kept, its pod is not touched, and nothing is concluded from silence.
#[test]
fn a_probe_falls_silent_under_load() {
    let mut scene = Scene::new(PROBED);
    scene.pods("web/a", 2, &Pod::of("serve"));
    scene.run("10m");
    scene.probe("n0", false);
    scene.run("2h");
    assert!(scene.is_held("n0") && scene.machines() == 2);
    scene.probe("n0", true);
    scene.run("5m");
    assert_eq!(scene.verdict("n0"), "busy");
    end(&scene, "a_probe_falls_silent_under_load");
}

/// A broken image silences all probes: pods are the evidence then, loudly; what pods hold is kept, what they do not goes after its
/// window. When probes are heard again they are believed again.
#[test]
fn all_probes_fall_silent() {
    let mut scene = Scene::new(PROBED);
    scene.pods("web/a", 3, &Pod::of("serve"));
    scene.run("10m");
    scene.finish("web/a-0");
    scene.run("2m");
    scene.all_probes(false);
    scene.run("3m");
    assert_eq!(scene.machines(), 3);
    scene.run("1h");
    assert_eq!(scene.machines(), 2);
    assert!(!scene.told(&["provider", "ALARM"]).is_empty());
    scene.all_probes(true);
    scene.run("10m");
    assert_eq!(scene.nodes().iter().filter(|node| scene.verdict(node) == "busy").count(), 2);
    end(&scene, "all_probes_fall_silent");
}

/// XID 79 on a busy node: the GPU has fallen off the bus. The pool waits (its default), so the node is closed, its pod is left alone, and
/// what comes next gets another node.
#[test]
fn xid_79_on_a_busy_node() {
    let mut scene = Scene::new(PROBED);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("10m");
    scene.xid("n0", 0, 79);
    scene.run("20m");
    assert_eq!((scene.verdict("n0"), scene.node_of("web/a").as_str()), ("unhealthy", "n0"));
    end(&scene, "xid_79_on_a_busy_node");
}

/// XID 13 is the application's own fault: nothing of the node is wrong.
#[test]
fn xid_13_is_the_applications_fault() {
    let mut scene = Scene::new(PROBED);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("10m");
    scene.xid("n0", 0, 13);
    scene.run("10m");
    assert_eq!(scene.verdict("n0"), "busy");
    end(&scene, "xid_13_is_the_applications_fault");
}

/// A free node's memory has errors that are not corrected: it is unhealthy and no longer counts as ready for a pod.
#[test]
fn memory_errors_on_a_free_node() {
    let mut scene = Scene::new(PROBED);
    scene.pod("web/a", Pod::of("serve").runs("5m"));
    scene.run("12m");
    assert_eq!(scene.verdict("n0"), "warm");
    scene.memory_errors("n0", 0, 2);
    scene.run("1m");
    assert_eq!(scene.verdict("n0"), "unhealthy");
    // Nothing is won by keeping it for its window.
    scene.run("10m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "memory_errors_on_a_free_node");
}

/// The driver is reset under a pod and answers again a minute later: the pod is not touched, and the node is what it was.
#[test]
fn the_driver_is_reset() {
    let mut scene = Scene::new(PROBED);
    scene.pod("web/a", Pod::of("serve"));
    scene.run("10m");
    scene.driver("n0", DriverState::Hung);
    scene.run("1m");
    scene.driver("n0", DriverState::Ready);
    scene.run("20m");
    assert_eq!((scene.node_of("web/a").as_str(), scene.machines()), ("n0", 1));
    end(&scene, "the_driver_is_reset");
}

/// A gate of the start is not passed: the pod that came is left alone, and when it is gone the node goes: it is free for nobody.
#[test]
fn a_gate_fails_at_the_start() {
    let mut scene = Scene::new(PROBED);
    scene.gate(Some((Gate::GpuCount, "0 GPUs of 1")));
    scene.pod("web/a", Pod::of("serve").runs("2m"));
    scene.run("5m");
    assert_eq!((scene.verdict("n0"), scene.node_of("web/a").as_str()), ("unhealthy", "n0"));
    scene.run("10m");
    assert_eq!(scene.machines(), 0);
    assert!(scene.told(&["n0", "warm"]).is_empty());
    end(&scene, "a_gate_fails_at_the_start");
}

/// A notebook that nobody types into from Friday evening on is told of as held, and kept over the weekend: nothing evicts it.
#[test]
fn a_notebook_is_held_over_the_weekend() {
    let mut scene = Scene::from("2026-11-06T15:00:00Z", &PROBED.replace("workload: inference", "workload: dev"));
    scene.pod("dev/notebook", Pod::of("serve").bare());
    scene.run("2h");
    assert_eq!(scene.verdict("n0"), "busy");
    scene.works("dev/notebook", false);
    scene.run("3h");
    assert_eq!((scene.verdict("n0"), scene.is_held("n0")), ("held", true));
    scene.run("60h");
    assert_eq!((scene.verdict("n0"), scene.node_of("dev/notebook").as_str()), ("held", "n0"));
    scene.works("dev/notebook", true);
    scene.run("5m");
    assert_eq!(scene.verdict("n0"), "busy");
    end(&scene, "a_notebook_is_held_over_the_weekend");
}

/// The provider restarts twice in a window, and probes come back within seconds: what was proven before stays proven, and the free node goes
/// when its window is over.
#[test]
fn the_provider_restarts_and_probes_are_awaited() {
    let mut scene = Scene::new(PROBED);
    scene.pods("web/a", 2, &Pod::of("serve"));
    scene.run("10m");
    scene.finish("web/a-0");
    scene.run("5m");
    scene.provider_restarts();
    scene.run("2m");
    scene.provider_restarts();
    scene.run("30m");
    assert_eq!(scene.machines(), 1);
    end(&scene, "the_provider_restarts_and_probes_are_awaited");
}

/// Of a node whose eight GPUs are split into seven instances each, two instances have pods. When those are done a process that belongs to no pod
/// goes on in one instance, and the other 55 are quiet: the node is busy, by the name of that instance, for as long as it works. Then the node
/// is warm, and goes after its window.
#[test]
fn one_instance_of_a_split_gpu_is_at_work() {
    let split = PROBED.replace("gpu: { models: [L4], count: 1 }", "gpu: { models: [H100] }");
    let mut scene = Scene::new(&format!("{split}  sharing: {{ mig: all-1g.10gb }}\n"));
    scene.split(7);
    scene.pods("web/a", 2, &Pod::of("serve").runs("20m"));
    scene.run("10m");
    assert_eq!((scene.machines(), scene.pods_waiting(), scene.verdict("n0")), (1, 0, "busy"));
    scene.process("n0", (3, 5), true);
    scene.run("2h");
    assert_eq!((scene.verdict("n0"), scene.is_held("n0")), ("busy", true));
    assert_eq!(scene.told(&["n0", "busy (GPU MIG-n0-3-5 is busy without a pod)"]).len(), 1);
    scene.process("n0", (3, 5), false);
    // 15 s until it is told quiet, and 60 s of that.
    scene.run("60s");
    assert_eq!(scene.verdict("n0"), "busy");
    scene.run("13m");
    assert_eq!((scene.verdict("n0"), scene.is_held("n0")), ("warm", true));
    scene.run("5m");
    assert_eq!(scene.machines(), 0);
    end(&scene, "one_instance_of_a_split_gpu_is_at_work");
}
