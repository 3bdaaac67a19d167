//! The order of calls, and what is asked for how often.

use super::*;

#[test]
fn a_loop_may_run_on_any_thread() {
    fn on_any_thread<T: Send>(_: T) {}
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    let at = rig.now;
    on_any_thread(rig.ca.run_once(at));
}

#[test]
fn the_first_loop_asks_in_the_order_of_the_original() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.want(&["w"]);
    let report = rig.wait(secs(30)).step();
    assert_eq!(
        report.transcript(),
        [
            // Beside the loop.
            "NodeGroups",
            "NodeGroupNodes a",
            // The loop.
            "Refresh",
            "NodeGroups",
            "NodeGroupTemplateNodeInfo a",
            "NodeGroupTargetSize a",
            // Scale-up.
            "NodeGroupTargetSize a",
            "NodeGroupGetOptions a",
            "NodeGroupTargetSize a",
            "NodeGroupGetOptions a",
            "NodeGroupTargetSize a",
            "GPULabel",
            "NodeGroupIncreaseSize a +1",
            "NodeGroupGetOptions a",
            "NodeGroupTargetSize a",
            // Scale-down.
            "NodeGroupTargetSize a",
        ]
    );
}

#[test]
fn a_quiet_loop_asks_once_for_each_node_and_twice_for_its_options() {
    let mut rig = Rig::settled(Settings::recommended(), &["a"], &["w"]);
    let report = rig.wait(secs(20)).step();
    let name = nodes(&rig)[0].name.clone();
    let transcript = report.transcript();
    let times = |call: &str| transcript.iter().filter(|c| *c == call).count();
    assert_eq!(times("Refresh"), 1);
    assert_eq!(times("NodeGroups"), 1);
    assert_eq!(times(&format!("NodeGroupForNode {name}")), 1, "remembered until the next refresh");
    assert_eq!(times("NodeGroupTemplateNodeInfo a"), 0, "a real node is the template");
    assert_eq!(times("GPULabel"), 0, "asked once in a process");
    assert!(times("NodeGroupGetOptions a") >= 2);
    assert!(report.mutations().is_empty());
}

#[test]
fn old_releases_do_not_ask_for_options_per_node() {
    let settings = Settings::new(Generation::V1_34);
    let mut rig = Rig::settled(settings, &["a"], &["w"]);
    rig.supplier().group("a").min = 1;
    let report = rig.wait(secs(20)).step();
    assert!(!report.transcript().contains(&"NodeGroupGetOptions a".to_owned()));
}

#[test]
fn foreign_nodes_are_asked_for_again_and_again() {
    let mut rig = Rig::settled(Settings::recommended(), &["a"], &["w"]);
    let mut foreign = NodeView::clone(&nodes(&rig)[0]);
    foreign.name = "foreign".into();
    foreign.provider_id = "other://1".into();
    rig.ca.cluster_mut().add_node(foreign);
    let report = rig.wait(secs(20)).step();
    let asked = report.transcript().iter().filter(|c| *c == "NodeGroupForNode foreign").count();
    assert!(asked >= 4, "{asked}");
}

#[test]
fn the_template_is_a_real_node_once_there_was_one_and_until_a_restart() {
    let mut rig = Rig::settled(Settings::recommended(), &["a"], &["w"]);
    rig.ca.cluster_mut().finish_pod("default/w");
    rig.run(mins(5));
    rig.sweep();
    assert_eq!(rig.target("a"), 0);
    let templated = |report: &LoopReport| report.transcript().contains(&"NodeGroupTemplateNodeInfo a".to_owned());
    assert!(!templated(&rig.next()));
    rig.ca.restart();
    assert!(templated(&rig.next()));
}

#[test]
fn instances_are_read_every_loop_only_while_the_group_grows() {
    let mut rig = Rig::of(Generation::V1_36, &["a", "b"]);
    let read = |report: &LoopReport| {
        report.transcript().into_iter().filter(|call| call.starts_with("NodeGroupNodes")).collect::<Vec<_>>()
    };
    assert_eq!(read(&rig.step()), ["NodeGroupNodes a", "NodeGroupNodes b"]);
    assert!(read(&rig.next()).is_empty());
    rig.supplier().group("b").closed = true;
    rig.want(&["w"]);
    let _ = rig.wait(secs(30)).step();
    assert_eq!(read(&rig.next()), ["NodeGroupNodes a"]);
    assert_eq!(read(&rig.wait(mins(2)).step()).len(), 3, "all of them beside the loop, and a in it");
}

#[test]
fn an_old_release_ends_its_loop_once_it_asked_for_nodes() {
    for generation in Generation::ALL {
        let mut rig = Rig::of(generation, &["a"]);
        rig.want(&["w"]);
        let transcript = rig.wait(secs(30)).step().transcript();
        let asked = transcript.iter().position(|call| call == "NodeGroupIncreaseSize a +1").unwrap();
        let after: Vec<&str> = transcript[asked + 1..].iter().map(String::as_str).collect();
        let noted = ["NodeGroupGetOptions a", "NodeGroupTargetSize a"];
        assert_eq!(after[..2], noted, "{generation:?}");
        assert_eq!(after.len() == 2, generation == Generation::V1_30, "{after:?}");
    }
}

#[test]
fn the_targets_are_read_once_more_when_nodes_are_to_go_and_no_delay_follows() {
    let mut rig = Rig::settled(Settings::recommended(), &["a"], &["1", "2"]);
    let sweeps = |report: &LoopReport| report.transcript().iter().filter(|c| *c == "NodeGroupTargetSize a").count();
    let usual = sweeps(&rig.next());
    rig.ca.cluster_mut().finish_pod("default/1");
    let going = loop {
        let report = rig.next();
        if report.actions.iter().any(|action| matches!(action, Action::DeletionStarted { .. })) {
            break report;
        }
    };
    assert_eq!(sweeps(&going), usual + 1);
    assert_eq!(sweeps(&rig.next()), usual);
}
