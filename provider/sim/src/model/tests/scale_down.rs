//! When nodes go, and what keeps them.

use super::*;

fn idle(settings: Settings, names: &[&str]) -> Rig {
    let mut rig = Rig::settled(settings, &["a"], names);
    for name in names {
        rig.ca.cluster_mut().finish_pod(&format!("default/{name}"));
    }
    rig
}

#[test]
fn an_empty_node_goes_after_its_time() {
    let mut rig = idle(Settings::new(Generation::V1_36), &["w"]);
    let _ = rig.step();
    let unneeded_since = rig.now;
    assert_eq!(rig.ca.next_interesting(rig.now + mins(9)), Some(unneeded_since + mins(10)));
    assert!(rig.run(secs(590)).is_empty());
    let report = rig.wait(secs(10)).step();
    assert!(matches!(&report.actions[..], [Action::DeletionStarted { drain: false, .. }]));
    let name = nodes(&rig)[0].name.clone();
    assert!(rig.ca.cluster().node(&name).unwrap().to_be_deleted_since().is_some());
    assert_eq!(rig.target("a"), 1, "not before the delay");
    assert_eq!(rig.ca.next_interesting(rig.now + secs(1)), Some(rig.now + secs(5)));
    let report = rig.wait(secs(5)).step();
    assert_eq!(report.deleted(), [name.as_str()]);
    assert_eq!(rig.target("a"), 0);
    rig.sweep();
    assert!(rig.run(mins(30)).is_empty());
}

#[test]
fn a_deletion_that_takes_long_is_asked_for_once() {
    let mut rig = idle(Settings::recommended(), &["w"]);
    rig.supplier().lingers = true;
    let _ = rig.run(mins(2));
    assert_eq!(rig.target("a"), 0);
    assert!(rig.run(mins(4)).is_empty());
}

#[test]
fn the_annotation_keeps_a_node() {
    let mut rig = idle(Settings::recommended(), &["w"]);
    let name = nodes(&rig)[0].name.clone();
    rig.ca.cluster_mut().annotate(&name, SCALE_DOWN_DISABLED, Some("true"));
    assert!(rig.run(mins(30)).is_empty());
    rig.ca.cluster_mut().annotate(&name, SCALE_DOWN_DISABLED, None);
    let actions = rig.run(mins(3));
    assert!(matches!(actions[..], [Action::DeletionStarted { .. }, Action::Deleted { .. }]));
}

#[test]
fn an_annotation_after_the_mark_comes_too_late() {
    let mut rig = idle(Settings::recommended(), &["w"]);
    let _ = rig.step();
    let _ = rig.wait(mins(1)).step();
    let name = nodes(&rig)[0].name.clone();
    rig.ca.cluster_mut().annotate(&name, SCALE_DOWN_DISABLED, Some("true"));
    assert_eq!(rig.wait(secs(5)).step().deleted(), [name.as_str()]);
}

#[test]
fn the_minimum_keeps_nodes() {
    let mut rig = idle(Settings::recommended(), &["1", "2", "3"]);
    rig.supplier().group("a").min = 2;
    let _ = rig.run(mins(30));
    assert_eq!(rig.target("a"), 2);
    rig.sweep();
    rig.supplier().group("a").min = 1;
    let actions = rig.run(mins(30));
    assert_eq!(actions.iter().filter(|a| matches!(a, Action::Deleted { .. })).count(), 1);
}

#[test]
fn nothing_goes_so_long_after_a_scale_up() {
    let mut rig = idle(Settings::new(Generation::V1_36), &["1", "2"]);
    assert!(rig.run(mins(8)).is_empty());
    rig.ca.cluster_mut().add_pod(pod("0gpu", 0), start());
    rig.supplier().add_group("b");
    rig.ca
        .cluster_mut()
        .add_pod(PodSpec { node_selector: [("stoker.dev/group".into(), "b".into())].into(), ..pod("b", 1) }, start());
    assert_eq!(asked(&rig.wait(secs(1)).step()), [("b", 1)]);
    rig.boot(true);
    let scaled_at = rig.now;
    let actions = rig.run(mins(9));
    assert!(actions.is_empty(), "{actions:?}");
    let actions = rig.run(mins(3));
    assert!(matches!(actions.first(), Some(Action::DeletionStarted { .. })));
    assert!(rig.now > scaled_at + mins(10));
}

#[test]
fn a_young_waiting_pod_holds_the_scale_down_too() {
    let mut rig = idle(Settings::recommended(), &["w"]);
    let _ = rig.step();
    rig.wait(secs(55)).want(&["too-many-1", "too-many-2"]);
    let report = rig.wait(secs(5)).step();
    assert!(matches!(report.scale_up, ScaleUp::Held { .. }));
    assert!(report.actions.is_empty());
}

#[test]
fn use_is_counted_by_gpus_alone_and_pods_move_where_they_may() {
    let mut settings = Settings::recommended();
    settings.scale_down_unneeded = secs(30);
    let mut rig = Rig::new(settings, &["a"]);
    let group = rig.supplier().group("a");
    group.template.allocatable.gpus = 4;
    group.template.capacity.gpus = 4;
    rig.want(&["1", "2", "3", "4", "5"]);
    let _ = rig.wait(secs(30)).step();
    rig.boot(true);
    rig.run(mins(2));
    // 4 + 1 pods; two of the first four end, so that the fifth would fit there.
    let full = rig.ca.cluster().pod("default/1").unwrap().node.clone().unwrap();
    let lone: Vec<String> =
        rig.ca.cluster().all_pods().filter(|p| p.node.as_ref() != Some(&full)).map(|p| p.id.clone()).collect();
    assert_eq!(lone.len(), 1);
    for pod in ["1", "2", "3", "4", "5"].iter().map(|n| format!("default/{n}")).filter(|p| !lone.contains(p)).take(1) {
        rig.ca.cluster_mut().finish_pod(&pod);
    }
    // Until now the lone pod had nowhere to go, and its node is not looked at for five minutes.
    let actions = rig.run(mins(7));
    assert!(
        matches!(&actions[..], [Action::DeletionStarted { drain: true, .. }, Action::Evicted { pod, .. }, Action::Deleted { .. }]
        if *pod == lone[0]),
        "{actions:?}"
    );
    assert_eq!(rig.ca.cluster().pod(&lone[0]).unwrap().node.as_ref(), Some(&full));
    assert_eq!(rig.target("a"), 1);
}

#[test]
fn a_pod_that_may_not_move_keeps_its_node_and_is_looked_at_again_after_five_minutes() {
    let mut rig = Rig::new(Settings::recommended(), &["a"]);
    let group = rig.supplier().group("a");
    group.template.allocatable.gpus = 4;
    group.template.capacity.gpus = 4;
    rig.ca.cluster_mut().add_pod(PodSpec { movable: false, ..pod("w", 1) }, start());
    let _ = rig.wait(secs(30)).step();
    rig.boot(true);
    assert!(rig.run(mins(20)).is_empty());
    rig.ca.cluster_mut().finish_pod("default/w");
    assert!(!rig.run(mins(7)).is_empty());
}

#[test]
fn daemon_pods_neither_keep_a_node_nor_move() {
    let mut rig = idle(Settings::recommended(), &["w"]);
    let node = nodes(&rig)[0].name.clone();
    rig.ca.cluster_mut().add_pod(pod("agent", 0), start());
    let agent = PodView::clone(rig.ca.cluster().pod("default/agent").unwrap());
    rig.ca.cluster_mut().insert_pod(PodView { node: Some(node), daemon: true, movable: false, ..agent });
    let actions = rig.run(mins(3));
    assert!(matches!(actions[..], [Action::DeletionStarted { drain: false, .. }, Action::Deleted { .. }]), "{actions:?}");
}

#[test]
fn a_broken_node_goes_after_the_unready_time() {
    let mut rig = Rig::settled(Settings::new(Generation::V1_36), &["a"], &["w"]);
    rig.ca.cluster_mut().finish_pod("default/w");
    let name = nodes(&rig)[0].name.clone();
    rig.ca.cluster_mut().set_ready(&name, None);
    assert!(rig.run(mins(19)).is_empty());
    assert!(!rig.run(mins(3)).is_empty());
}

#[test]
fn too_many_broken_nodes_stop_everything() {
    let mut rig = Rig::settled(Settings::new(Generation::V1_36), &["a"], &["1", "2", "3", "4"]);
    let names: Vec<String> = nodes(&rig).iter().map(|n| n.name.clone()).collect();
    for name in &names {
        rig.ca.cluster_mut().set_ready(name, None);
    }
    rig.want(&["more"]);
    assert_eq!(rig.wait(mins(1)).step().outcome, Outcome::Unhealthy);
    let now = rig.now;
    rig.ca.cluster_mut().set_ready(&names[0], Some(now));
    assert_eq!(rig.next().outcome, Outcome::Done);
}

#[test]
fn a_refused_deletion_opens_the_node_and_frequent_loops_make_the_next_try_late() {
    for (frequent_loops, retry) in [(true, mins(10)), (false, secs(0))] {
        let settings = Settings { frequent_loops, ..Settings::new(Generation::V1_36) };
        let mut rig = idle(settings, &["w"]);
        rig.supplier().failing.insert("DeleteNodes a".into());
        let _ = rig.step();
        let tries = |actions: &[Action]| actions.iter().filter(|a| matches!(a, Action::DeletionStarted { .. })).count();
        while tries(&rig.next().actions) == 0 {}
        let mut report = rig.next();
        while !matches!(report.actions.first(), Some(Action::DeletionFailed { .. })) {
            report = rig.next();
        }
        let failed_at = rig.now;
        if frequent_loops {
            assert!(!nodes(&rig)[0].unschedulable);
            assert!(nodes(&rig)[0].to_be_deleted_since().is_none());
        }
        while tries(&report.actions) == 0 {
            report = rig.next();
        }
        let waited = rig.now.duration_since(failed_at);
        assert!(waited >= retry - secs(15) && waited <= retry, "{frequent_loops} {waited}");
    }
}

#[test]
fn a_pod_bound_in_the_last_moment_saves_an_empty_node() {
    let mut rig = idle(Settings::recommended(), &["w"]);
    let _ = rig.step();
    let _ = rig.wait(mins(1)).step();
    let name = nodes(&rig)[0].name.clone();
    // Bound before the scheduler saw the mark.
    now(rig.ca.cluster_mut().untaint(&name)).unwrap();
    rig.want(&["late"]);
    rig.ca.cluster_mut().schedule();
    let report = rig.wait(secs(5)).step();
    assert!(matches!(&report.actions[..], [Action::DeletionFailed { .. }]), "{:?}", report.actions);
    assert_eq!(rig.target("a"), 1);
}

#[test]
fn a_restart_takes_its_marks_back_and_starts_to_count_anew() {
    let mut rig = idle(Settings::recommended(), &["w"]);
    let _ = rig.step();
    let _ = rig.wait(mins(1)).step();
    rig.ca.restart();
    let report = rig.wait(secs(10)).step();
    assert!(matches!(report.actions[..], [Action::Untainted { .. }]));
    assert!(rig.run(secs(50)).is_empty());
    assert!(!rig.run(secs(30)).is_empty());
}

#[test]
fn ten_nodes_go_at_once_and_one_drain() {
    let mut rig = idle(Settings::recommended(), &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    rig.ca.settings_for_test().max_scale_down_parallelism = 4;
    let _ = rig.step();
    let report = rig.wait(mins(1)).step();
    assert_eq!(report.actions.len(), 4);
}

impl<D, C> Autoscaler<D, C> {
    fn settings_for_test(&mut self) -> &mut Settings {
        &mut self.settings
    }
}
