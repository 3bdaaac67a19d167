//! What a failing call does to a loop.

use super::*;

#[test]
fn a_failing_refresh_ends_the_loop_before_anything_is_read() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    let _ = rig.step();
    rig.supplier().failing.insert("Refresh".into());
    rig.want(&["w"]);
    let report = rig.wait(secs(30)).step();
    assert!(matches!(report.outcome, Outcome::Failed(LoopError::Refresh(_))));
    assert_eq!(report.transcript(), ["Refresh"]);
}

#[test]
fn one_target_size_that_fails_ends_the_loop() {
    let mut rig = Rig::of(Generation::V1_36, &["a", "b"]);
    rig.supplier().failing.insert("TargetSize b".into());
    let outcome = rig.step().outcome;
    assert!(matches!(outcome, Outcome::Failed(LoopError::TargetSize { group, .. }) if group == "b"));
}

#[test]
fn instances_that_cannot_be_read_end_the_loop_but_not_the_one_beside_it() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.supplier().failing.insert("Nodes a".into());
    let report = rig.step();
    assert_eq!(report.outcome, Outcome::Done, "the goroutine took it for an empty list");
    rig.supplier().failing.clear();
    rig.want(&["w"]);
    let _ = rig.wait(secs(30)).step();
    rig.supplier().failing.insert("Nodes a".into());
    assert!(matches!(rig.next().outcome, Outcome::Failed(LoopError::Nodes { .. })));
}

#[test]
fn a_node_whose_group_cannot_be_told_blocks_every_scale_up() {
    let mut rig = Rig::settled(Settings::recommended(), &["a"], &["w"]);
    let name = nodes(&rig)[0].name.clone();
    rig.supplier().failing.insert(format!("NodeGroupForNode {name}"));
    rig.want(&["more"]);
    let report = rig.wait(secs(30)).step();
    assert!(matches!(report.scale_up, ScaleUp::Uncountable(_)));
}

#[test]
fn a_foreign_node_with_our_gpu_label_and_no_gpus_blocks_every_scale_up() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    let mut supplier = rig.supplier().clone();
    supplier.grow("a", 1);
    let mut foreign = supplier.boot(start(), true).remove(0);
    foreign.provider_id = "other://1".into();
    foreign.allocatable.gpus = 0;
    rig.ca.cluster_mut().add_node(foreign);
    rig.want(&["w"]);
    assert!(matches!(rig.wait(secs(30)).step().scale_up, ScaleUp::Uncountable(_)));
}

#[test]
fn a_group_without_a_template_blocks_all_on_old_releases() {
    for (generation, how) in [
        (Generation::V1_36, "Template b"),
        (Generation::V1_36, "Unimplemented Template b"),
        (Generation::V1_34, "Template b"),
        (Generation::V1_34, "Unimplemented Template b"),
        (Generation::V1_30, "Template b"),
        (Generation::V1_30, "Unimplemented Template b"),
    ] {
        let mut rig = Rig::of(generation, &["a", "b"]);
        rig.supplier().failing.insert(how.into());
        rig.want(&["w"]);
        let report = rig.wait(secs(30)).step();
        match generation {
            Generation::V1_36 => {
                assert_eq!(asked(&report), [("a", 1)]);
                assert_eq!(report.skipped["b"], Skip::NoTemplate);
            }
            Generation::V1_30 if how == "Template b" => {
                assert!(matches!(report.outcome, Outcome::Failed(LoopError::Template { .. })));
            }
            Generation::V1_34 | Generation::V1_30 => assert!(matches!(report.scale_up, ScaleUp::Uncountable(_))),
        }
    }
}

#[test]
fn failing_options_leave_a_request_unrecorded() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.supplier().failing.insert("GetOptions".into());
    rig.want(&["w"]);
    assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 1)]);
    rig.supplier().failing.clear();
    assert_eq!(rig.next().skipped["a"], Skip::Unhealthy, "a target that nobody asked for, and no instance seen");
    assert_eq!(asked(&rig.wait(mins(2)).step()), [("a", 1)], "bought twice");
}

#[test]
fn gpus_that_are_not_there_yet_make_a_ready_node_a_starting_one() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.want(&["w"]);
    let _ = rig.wait(secs(30)).step();
    rig.wait(mins(1)).boot(true);
    let mut node = NodeView::clone(&nodes(&rig)[0]);
    let whole = node.clone();
    node.allocatable.gpus = 0;
    rig.ca.cluster_mut().add_node(node);
    let now = rig.now;
    rig.ca.cluster_mut().remove_node("none", now);
    assert!(rig.run(mins(5)).is_empty(), "still counted on");
    rig.ca.cluster_mut().add_node(whole);
    assert!(rig.run(mins(2)).is_empty());
}

/// A node with slices of a GPU and no `nvidia.com/gpu`, with or without the GPU label, and three pods that ask for three of seven: two
/// fit. What the loops of the next hour do once it is there.
fn with_slices(labelled: bool) -> (usize, Vec<Action>) {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    let template = &mut rig.supplier().group("a").template;
    (template.capacity.gpus, template.allocatable.gpus) = (0, 0);
    template.slices = [("nvidia.com/mig-1g.10gb", 7)].into_iter().collect();
    if !labelled {
        template.labels.remove("stoker.dev/gpu");
    }
    for name in ["w", "x"] {
        let slices = [("nvidia.com/mig-1g.10gb", 3)].into_iter().collect();
        let requests = Requests { slices, ..pod(name, 0).requests };
        rig.ca.cluster_mut().add_pod(PodSpec { requests, ..pod(name, 0) }, start());
    }
    assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 1)]);
    rig.wait(mins(1)).boot(true);
    let bound = rig.ca.cluster().all_pods().filter(|pod| pod.node.is_some()).count();
    (bound, rig.run(mins(60)))
}

#[test]
fn a_node_of_slices_is_used_and_kept_only_without_the_gpu_label() {
    assert_eq!(with_slices(false), (2, Vec::new()));
    // It waits for GPUs of the node that never come, gives the request up and backs the group off.
    let (bound, actions) = with_slices(true);
    assert!(matches!(&actions[..], [Action::RequestTimedOut { .. }, Action::BackedOff { .. }]), "{actions:?}");
    assert_eq!(bound, 2, "the scheduler does not mind");
}

#[test]
fn a_starting_taint_keeps_a_node_coming_and_out_of_the_template() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.want(&["w"]);
    let _ = rig.wait(secs(30)).step();
    rig.wait(mins(1)).boot(true);
    let mut node = NodeView::clone(&nodes(&rig)[0]);
    let key = format!("{}gpu", STARTUP_TAINT_PREFIXES[0]);
    node.taints.push(Taint { key, value: String::new(), effect: TaintEffect::NoSchedule });
    rig.ca.cluster_mut().add_node(node);
    assert!(rig.run(mins(5)).is_empty());
}
