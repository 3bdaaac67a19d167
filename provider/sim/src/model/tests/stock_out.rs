//! Nothing can be had: placeholders with an error, backoff, the next group.

use super::*;

#[test]
fn a_stock_out_sends_the_pods_to_the_next_group() {
    for (generation, loops) in [(Generation::V1_36, 1), (Generation::V1_34, 1), (Generation::V1_30, 2)] {
        let settings = Settings { frequent_loops: true, ..Settings::new(generation) };
        let mut rig = Rig::new(settings, &["a", "b"]);
        rig.supplier().group("a").stock = 0;
        rig.supplier().group("b").closed = true;
        rig.want(&["1", "2"]);
        let report = rig.wait(secs(30)).step();
        assert_eq!(asked(&report), [("a", 2)]);
        rig.supplier().group("b").closed = false;

        let asked_at = rig.now;
        let report = rig.next();
        assert_eq!(rig.now, asked_at + LOOP_GAP);
        let placeholders = vec!["sim://a/1".to_owned(), "sim://a/2".to_owned()];
        assert!(matches!(&report.actions[0], Action::CreationFailed { group, instances: 2, error }
            if group == "a" && error.code == "OUT_OF_CAPACITY"));
        assert_eq!(report.actions[1], Action::BackedOff { group: "a".into(), until: rig.now + mins(5) });
        assert_eq!(report.actions[2], Action::FailedDeleted { group: "a".into(), instances: placeholders, error: None });
        let report = if loops == 1 {
            report
        } else {
            assert_eq!(report.outcome, Outcome::CleanedUp);
            rig.next()
        };
        assert_eq!(asked(&report), [("b", 2)], "{generation:?}");
        assert_eq!(rig.target("a"), 0);
        assert!(matches!(report.skipped["a"], Skip::Backoff(_)));
    }
}

#[test]
fn a_group_is_tried_again_after_five_minutes_then_after_ten() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.supplier().group("a").stock = 0;
    rig.want(&["w"]);
    let mut tries = Vec::new();
    for _ in 0..200 {
        let report = rig.next();
        if !report.asked().is_empty() {
            tries.push(rig.now);
        }
    }
    let waits: Vec<SignedDuration> = tries.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect();
    assert_eq!(waits, [mins(5) + LOOP_GAP, mins(10) + LOOP_GAP]);
}

#[test]
fn an_error_without_a_code_or_on_a_running_instance_is_not_seen() {
    for (state, code) in [(InstanceState::Creating, ""), (InstanceState::Running, "X"), (InstanceState::Unspecified, "X")] {
        let mut rig = Rig::of(Generation::V1_36, &["a", "b"]);
        rig.supplier().group("b").closed = true;
        rig.want(&["w"]);
        let _ = rig.wait(secs(30)).step();
        let instance = &mut rig.supplier().group("a").instances[0];
        instance.state = state;
        instance.error = Some(InstanceError { code: code.into(), message: "?".into(), class: 1 });
        rig.supplier().group("b").closed = false;
        assert!(rig.run(mins(10)).is_empty(), "{state:?} {code:?}");
    }
}

#[test]
fn placeholders_that_cannot_be_deleted_are_tried_every_loop_beside_the_next_group() {
    let mut rig = Rig::of(Generation::V1_36, &["a", "b"]);
    rig.supplier().group("a").stock = 0;
    rig.supplier().group("b").closed = true;
    rig.supplier().failing.insert("DeleteNodes a".into());
    rig.want(&["w"]);
    let _ = rig.wait(secs(30)).step();
    rig.supplier().group("b").closed = false;
    let report = rig.next();
    assert_eq!(asked(&report), [("b", 1)]);
    for _ in 0..3 {
        let report = rig.next();
        assert!(matches!(report.actions[..], [Action::FailedDeleted { error: Some(_), .. }]), "{:?}", report.actions);
    }
}

#[test]
fn a_partial_stock_out_makes_the_newest_buy_the_good_nodes_again() {
    for (generation, bought) in [(Generation::V1_36, 4), (Generation::V1_34, 2)] {
        let mut rig = Rig::of(generation, &["a", "b"]);
        rig.supplier().group("a").stock = 2;
        rig.supplier().group("b").closed = true;
        rig.want(&["1", "2", "3", "4"]);
        assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 4)]);
        rig.supplier().group("b").closed = false;
        let report = rig.next();
        assert_eq!(asked(&report), [("b", bought)], "{generation:?}");
    }
}

#[test]
fn dropping_the_lacking_part_and_closing_the_group_buys_just_the_rest() {
    let mut rig = Rig::of(Generation::V1_36, &["a", "b"]);
    rig.supplier().group("b").closed = true;
    rig.want(&["1", "2", "3", "4"]);
    assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 4)]);
    rig.supplier().group("a").instances.truncate(2);
    rig.supplier().group("a").closed = true;
    rig.supplier().group("b").closed = false;
    assert_eq!(asked(&rig.next()), [("b", 2)]);
}

#[test]
fn a_group_without_a_template_is_never_left_alone() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.supplier().group("a").stock = 0;
    rig.want(&["w"]);
    let _ = rig.wait(secs(30)).step();
    rig.supplier().failing.insert("Template a".into());
    let report = rig.next();
    assert!(matches!(report.actions[0], Action::CreationFailed { .. }));
    assert!(!report.actions.iter().any(|action| matches!(action, Action::BackedOff { .. })));
    assert_eq!(report.skipped["a"], Skip::NoTemplate);
}
