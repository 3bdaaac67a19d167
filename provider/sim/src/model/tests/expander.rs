//! Whose word counts among the groups that could help.

use super::*;

fn rig(generation: Generation) -> Rig {
    let settings = Settings { expanders: vec![Expander::Grpc, Expander::LeastWaste], ..Settings::new(generation) };
    let mut rig = Rig::new(settings, &["a", "b", "c"]);
    // The least waste is in b.
    rig.supplier().group("b").template.capacity.milli_cpu = 2000;
    rig.want(&["w"]);
    rig.wait(secs(30));
    rig
}

#[test]
fn the_choice_of_our_expander_is_asked() {
    let mut rig = rig(Generation::V1_36);
    rig.supplier().choice = Some(vec!["c".into()]);
    let report = rig.step();
    assert_eq!(asked(&report), [("c", 1)]);
    assert_eq!(report.options.len(), 3);
}

#[test]
fn of_several_the_next_in_the_chain_chooses() {
    let mut rig = rig(Generation::V1_36);
    rig.supplier().choice = Some(vec!["c".into(), "b".into()]);
    assert_eq!(asked(&rig.step()), [("b", 1)]);
}

#[test]
fn an_error_or_unknown_groups_change_nothing() {
    for choice in [None, Some(vec!["x".into()])] {
        let mut rig = rig(Generation::V1_36);
        rig.supplier().choice = choice;
        assert_eq!(asked(&rig.step()), [("b", 1)]);
    }
}

#[test]
fn an_empty_reply_is_a_veto_on_releases_that_know_it() {
    for (generation, veto) in [(Generation::V1_36, true), (Generation::V1_34, true), (Generation::V1_30, false)] {
        let mut rig = rig(generation);
        rig.supplier().choice = Some(Vec::new());
        let report = rig.step();
        assert_eq!(report.scale_up == ScaleUp::FilteredOut, veto, "{generation:?}");
        assert_eq!(report.asked().is_empty(), veto, "{generation:?}");
    }
}

#[test]
fn ties_are_drawn_by_lot() {
    let mut drawn = std::collections::BTreeSet::new();
    for lot_seed in 0..20 {
        let mut rig = Rig::new(Settings { lot_seed, ..Settings::new(Generation::V1_36) }, &["a", "b"]);
        rig.want(&["w"]);
        let report = rig.wait(secs(30)).step();
        drawn.extend(report.asked().into_keys().map(str::to_owned));
    }
    assert_eq!(drawn.len(), 2);
}
