//! Nodes that are on their way: which of them are counted on.

use super::*;

#[test]
fn nodes_on_their_way_are_not_bought_twice() {
    for generation in Generation::ALL {
        let mut rig = Rig::of(generation, &["a", "b"]);
        rig.want(&["1", "2"]);
        let report = rig.wait(secs(30)).step();
        let bought: i32 = report.asked().values().sum();
        assert_eq!(bought, 2);
        let actions = rig.run(mins(5));
        assert!(actions.is_empty(), "{generation:?}: {actions:?}");
        rig.boot(false);
        assert!(rig.run(mins(2)).is_empty(), "{generation:?}: registered and starting counts as coming");
        let names: Vec<String> = nodes(&rig).iter().map(|n| n.name.clone()).collect();
        for name in names {
            let now = rig.now;
            rig.ca.cluster_mut().set_ready(&name, Some(now));
        }
        assert!(rig.run(mins(2)).is_empty(), "{generation:?}: the pods run");
    }
}

#[test]
fn only_what_is_lacking_beyond_the_coming_is_bought() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    rig.want(&["1", "2"]);
    let _ = rig.wait(secs(30)).step();
    rig.want(&["3"]);
    assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 1)]);
}

/// What a restart with two nodes on their way leads to.
fn after_restart(generation: Generation, closed: bool) -> i32 {
    let mut rig = Rig::of(generation, &["a"]);
    rig.want(&["1", "2"]);
    assert_eq!(asked(&rig.wait(secs(30)).step()), [("a", 2)]);
    rig.ca.restart();
    rig.supplier().group("a").closed = closed;
    rig.wait(secs(10)).step().asked().values().sum()
}

#[test]
fn the_newest_buys_double_after_its_restart_unless_the_group_is_closed() {
    assert_eq!(after_restart(Generation::V1_36, false), 2);
    assert_eq!(after_restart(Generation::V1_36, true), 0);
    assert_eq!(after_restart(Generation::V1_34, false), 0);
    assert_eq!(after_restart(Generation::V1_30, false), 0);
}

#[test]
fn growth_that_it_did_not_ask_for_is_seen_by_old_releases_only() {
    for (generation, bought) in [(Generation::V1_36, 1), (Generation::V1_34, 0)] {
        let mut rig = Rig::of(generation, &["a"]);
        rig.supplier().grow("a", 1);
        rig.want(&["w"]);
        let report = rig.wait(secs(30)).step();
        assert_eq!(report.asked().values().sum::<i32>(), bought, "{generation:?}");
    }
}

#[test]
fn failing_to_list_groups_makes_the_newest_forget_and_buy_double() {
    for (generation, bought) in [(Generation::V1_36, 2), (Generation::V1_34, 0)] {
        let mut rig = Rig::of(generation, &["a"]);
        rig.want(&["1", "2"]);
        let _ = rig.wait(secs(30)).step();
        let _ = rig.next();
        rig.supplier().failing.insert("NodeGroups".into());
        let report = rig.next();
        assert_eq!(report.outcome, Outcome::Done);
        assert!(report.asked().is_empty());
        rig.supplier().failing.clear();
        assert_eq!(rig.next().asked().values().sum::<i32>(), bought, "{generation:?}");
    }
}

#[test]
fn failing_refresh_for_a_while_buys_nothing_twice() {
    for generation in Generation::ALL {
        for method in ["Refresh", "TargetSize"] {
            let mut rig = Rig::of(generation, &["a"]);
            rig.want(&["1", "2"]);
            let _ = rig.wait(secs(30)).step();
            rig.supplier().failing.insert(method.into());
            for _ in 0..3 {
                assert!(matches!(rig.next().outcome, Outcome::Failed(_)));
            }
            rig.supplier().failing.clear();
            assert!(rig.run(mins(2)).is_empty(), "{generation:?} {method}");
        }
    }
}

#[test]
fn filled_options_make_starting_nodes_broken_on_the_newest() {
    for (generation, bought) in [(Generation::V1_36, 2), (Generation::V1_34, 0)] {
        let mut rig = Rig::of(generation, &["a"]);
        let echo = rig.ca.settings().group_options();
        rig.supplier().options = Some(echo);
        rig.want(&["1", "2"]);
        let _ = rig.wait(secs(30)).step();
        rig.wait(mins(2)).boot(false);
        assert_eq!(rig.next().asked().values().sum::<i32>(), bought, "{generation:?}");
    }
}

#[test]
fn a_lost_node_is_asked_for_again_without_a_wait() {
    let mut rig = Rig::settled(Settings::recommended(), &["a"], &["w"]);
    let node = nodes(&rig)[0].clone();
    rig.supplier().group("a").instances.clear();
    let now = rig.now;
    rig.ca.cluster_mut().remove_node(&node.name, now);
    let report = rig.wait(secs(30)).step();
    assert_eq!(asked(&report), [("a", 1)]);
}
