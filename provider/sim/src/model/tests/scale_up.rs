//! When a group is asked for more, and for how much.

use super::*;

#[test]
fn a_gpu_pod_waits_half_a_minute() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.want(&["w"]);
    let until = rig.now + secs(30);
    let report = rig.step();
    assert_eq!(report.scale_up, ScaleUp::Held { until });
    assert!(report.asked().is_empty());
    assert_eq!(rig.ca.next_interesting(rig.now), Some(until));
    rig.now = until;
    assert_eq!(asked(&rig.step()), [("a", 1)]);
}

#[test]
fn a_pod_without_gpus_waits_two_seconds() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.ca.cluster_mut().add_pod(pod("w", 0), start());
    assert!(rig.wait(secs(1)).step().asked().is_empty());
    assert_eq!(asked(&rig.wait(secs(1)).step()), [("a", 1)]);
}

#[test]
fn one_old_gpu_pod_ends_the_wait_of_the_young_ones() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.want(&["old"]);
    rig.wait(secs(29)).want(&["young"]);
    assert_eq!(asked(&rig.wait(secs(1)).step()), [("a", 2)]);
}

#[test]
fn pods_are_packed_by_the_template() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    let group = rig.supplier().group("a");
    group.template.allocatable.gpus = 4;
    group.template.capacity.gpus = 4;
    rig.want(&["1", "2", "3", "4", "5"]);
    rig.ca.cluster_mut().add_pod(pod("big", 4), start());
    let report = rig.wait(secs(30)).step();
    // One node for the four-GPU pod, two for the five others.
    assert_eq!(asked(&report), [("a", 3)]);
    assert_eq!(report.options[0].pods.len(), 6);
}

#[test]
fn a_pod_that_fits_no_template_asks_for_nothing() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.ca.cluster_mut().add_pod(pod("big", 2), start());
    let report = rig.wait(secs(30)).step();
    assert_eq!(report.scale_up, ScaleUp::NoOptions);
    assert_eq!(report.skipped["a"], Skip::NoPodFits);
}

#[test]
fn no_more_is_asked_for_than_the_maximum_leaves() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.supplier().group("a").max = 2;
    rig.want(&["1", "2", "3"]);
    assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 2)]);
    let report = rig.next();
    assert_eq!(report.scale_up, ScaleUp::NoOptions);
    assert_eq!(report.skipped["a"], Skip::AtMax);
}

#[test]
fn a_closed_group_sends_its_pods_to_the_next_without_a_wait() {
    let mut rig = Rig::of(Generation::V1_36, &["a", "b"]);
    rig.supplier().group("a").closed = true;
    rig.want(&["w"]);
    let report = rig.wait(secs(30)).step();
    assert_eq!(asked(&report), [("b", 1)]);
    assert_eq!(report.skipped["a"], Skip::AtMax);
}

#[test]
fn a_refusal_backs_the_group_off_and_leaves_nothing_to_wait_for() {
    let mut rig = Rig::of(Generation::V1_36, &["a", "b"]);
    rig.supplier().group("b").closed = true;
    rig.supplier().failing.insert("IncreaseSize a".into());
    rig.want(&["w"]);
    let report = rig.wait(secs(30)).step();
    assert_eq!(report.scale_up, ScaleUp::Failed);
    assert!(report.actions.contains(&Action::BackedOff { group: "a".into(), until: rig.now + mins(5) }));
    // Not "at once": the loop did not scale anything.
    assert_eq!(rig.ca.next_scan(rig.now), rig.now + secs(10));
    rig.supplier().group("b").closed = false;
    assert_eq!(asked(&rig.next()), [("b", 1)]);
}

#[test]
fn the_minimum_is_enforced_where_the_flag_is_set() {
    let mut rig = Rig::new(Settings::recommended(), &["a"]);
    rig.supplier().group("a").min = 2;
    let report = rig.step();
    assert_eq!(asked(&report), [("a", 2)]);
    assert!(!rig.run(mins(2)).iter().any(|action| matches!(action, Action::ScaledUp { .. })));
    rig.boot(true);
    assert!(rig.run(mins(20)).iter().all(|action| !matches!(action, Action::ScaledUp { .. })), "kept while idle");
    assert_eq!(rig.target("a"), 2);

    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.supplier().group("a").min = 2;
    assert!(rig.step().asked().is_empty(), "not by default");
}

#[test]
fn a_floor_that_meets_a_stock_out_waits_and_no_other_group_is_tried() {
    let mut rig = Rig::new(Settings::recommended(), &["a", "b"]);
    rig.supplier().group("a").min = 2;
    rig.supplier().group("a").stock = 0;
    assert_eq!(asked(&rig.step()), [("a", 2)]);
    let actions = rig.run(mins(4));
    assert!(actions.iter().all(|action| !matches!(action, Action::ScaledUp { .. })));
    assert_eq!(rig.target("a"), 0);
    let again = rig.run(mins(2));
    assert!(again.iter().any(|action| matches!(action, Action::ScaledUp { group, .. } if group == "a")));
}

#[test]
fn pods_that_come_while_a_floor_boots_buy_nothing_twice() {
    let mut rig = Rig::new(Settings::recommended(), &["a"]);
    rig.supplier().group("a").min = 2;
    let _ = rig.step();
    rig.want(&["1", "2"]);
    assert!(rig.run(mins(3)).iter().all(|action| !matches!(action, Action::ScaledUp { .. })));
}
