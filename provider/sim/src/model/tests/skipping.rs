//! Skipping the loops that cannot differ gives the same actions as running them all.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const SCAN: SignedDuration = SignedDuration::from_secs(10);

/// Something that happens outside at that scan; `false` where nothing does.
type Script<'a> = &'a dyn Fn(&mut Rig, i64) -> bool;

fn make_ready(rig: &mut Rig) {
    let names: Vec<String> = nodes(rig).iter().filter(|n| !n.ready()).map(|n| n.name.clone()).collect();
    for name in names {
        let now = rig.now;
        rig.ca.cluster_mut().set_ready(&name, Some(now));
    }
}

/// A story with most of what can happen.
fn story(rig: &mut Rig, scan: i64) -> bool {
    match scan {
        3 => rig.want(&["1", "2", "3"]),
        20 => rig.boot(false),
        26 => make_ready(rig),
        60 => {
            rig.ca.cluster_mut().finish_pod("default/1");
        }
        200 => {
            rig.sweep();
            rig.supplier().group("a").stock = 0;
            rig.supplier().group("b").stock = 1;
            rig.want(&["4", "5", "6"]);
        }
        230 => rig.boot(true),
        300 => {
            rig.supplier().group("a").stock = 5;
            rig.supplier().grow("a", 2);
        }
        500 => {
            rig.boot(true);
            for pod in ["2", "3", "4", "5", "6"] {
                rig.ca.cluster_mut().finish_pod(&format!("default/{pod}"));
            }
        }
        520 => rig.supplier().group("a").phantom = 1,
        _ => return false,
    }
    true
}

/// Now and then anything at all.
fn anything(seed: u64, rig: &mut Rig, scan: i64) -> bool {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(u64::try_from(scan).unwrap());
    if !rng.random_bool(0.06) {
        return false;
    }
    let group = if rng.random_bool(0.5) { "a" } else { "b" };
    let number = rng.random_range(0..6);
    match rng.random_range(0..15) {
        0..4 => rig.want(&[&format!("{scan}-0"), &format!("{scan}-1")]),
        4..6 => {
            let pods: Vec<String> = rig.ca.cluster().all_pods().map(|p| p.id.clone()).collect();
            for pod in pods.iter().skip(number % 3).step_by(3) {
                rig.ca.cluster_mut().finish_pod(pod);
            }
        }
        6 | 7 => rig.boot(true),
        8 => rig.boot(false),
        9 => make_ready(rig),
        10 => rig.supplier().group(group).stock = number,
        11 => rig.supplier().group(group).min = i32::try_from(number).unwrap() / 3,
        12 => rig.supplier().group(group).phantom = i32::try_from(number).unwrap() / 4,
        13 => rig.ca.restart(),
        _ => {
            let method = ["Refresh", "TargetSize", "DeleteNodes", "IncreaseSize", "GetOptions", "NodeGroups"][number];
            if !rig.supplier().failing.remove(method) {
                rig.supplier().failing.insert(method.to_owned());
            }
        }
    }
    true
}

/// Runs some hours; with `skip`, only those scans at which something can differ. Answers what was done when, and the loops.
fn run(settings: Settings, script: Script<'_>, skip: bool) -> (Vec<(Timestamp, Action)>, usize) {
    let mut rig = Rig::new(settings, &["a", "b"]);
    let (mut done, mut loops) = (Vec::new(), 0);
    for scan in 0..900 {
        let at = start() + SCAN * scan;
        let since = rig.now;
        rig.now = at;
        let happened = script(&mut rig, i64::from(scan)) | !rig.ca.cluster_mut().schedule().is_empty();
        // Something is due in the scan interval that ends now; a second more, as waits may count from a loop that followed at once.
        let due = rig.ca.next_interesting(since.min(at - SCAN)).is_some_and(|due| due <= at + secs(1));
        if skip && !happened && !due {
            continue;
        }
        loop {
            let report = rig.step();
            loops += 1;
            done.extend(report.actions.into_iter().map(|action| (rig.now, action)));
            rig.sweep();
            if rig.ca.next_scan(rig.now) != rig.now + LOOP_GAP {
                break;
            }
            rig.now += LOOP_GAP;
        }
    }
    (done, loops)
}

fn releases() -> impl Iterator<Item = Settings> {
    Generation::ALL.into_iter().flat_map(|generation| [Settings::new(generation), Settings::recommended().on(generation)])
}

#[test]
fn skipped_loops_would_have_done_nothing() {
    for settings in releases() {
        let (all, every) = run(settings.clone(), &story, false);
        let (some, few) = run(settings, &story, true);
        assert_eq!(all, some);
        assert!(all.len() > 8, "{all:?}");
        assert!(few * 3 < every, "{few} of {every}");
    }
}

#[test]
fn skipped_loops_would_have_done_nothing_whatever_happens() {
    for (seed, settings) in [1, 6].into_iter().flat_map(|seed| releases().map(move |settings| (seed, settings))) {
        let script = |rig: &mut Rig, scan: i64| anything(seed, rig, scan);
        let (all, _) = run(settings.clone(), &script, false);
        let (some, _) = run(settings.clone(), &script, true);
        assert_eq!(all, some, "seed {seed}, {settings:?}");
    }
}

/// Nothing is due between the loop just run, with what it reads every two minutes, and that moment.
fn assert_next(rig: &Rig, at: Timestamp) {
    assert_eq!(rig.ca.next_interesting(at - secs(1)), Some(at));
}

#[test]
fn the_end_of_a_delay_is_due_while_a_node_is_not_needed() {
    let settings = Settings { scale_down_unneeded: mins(1), ..Settings::new(Generation::V1_36) };
    let mut rig = Rig::new(settings, &["a"]);
    rig.want(&["w"]);
    let _ = rig.wait(secs(30)).step();
    let added = rig.now;
    rig.boot(true);
    rig.ca.cluster_mut().finish_pod("default/w");
    let _ = rig.wait(secs(10)).next();
    assert_next(&rig, added + mins(10));
}

#[test]
fn a_node_that_becomes_an_example_a_broken_one_and_one_not_deleted_are_due() {
    let mut rig = Rig::new(Settings::new(Generation::V1_36), &["a"]);
    rig.want(&["w"]);
    let _ = rig.wait(secs(30)).step();
    rig.boot(true);
    let _ = rig.step();
    assert_next(&rig, rig.now + mins(1));

    let mut rig = Rig::new(Settings::new(Generation::V1_36), &["a"]);
    rig.supplier().grow("a", 1);
    rig.boot(false);
    let _ = rig.step();
    assert_next(&rig, rig.now + mins(15));

    let mut rig = Rig::settled(Settings::recommended(), &["a"], &["w"]);
    rig.ca.cluster_mut().finish_pod("default/w");
    let name = nodes(&rig)[0].name.clone();
    let _ = rig.step();
    let marked = rig.now;
    now(rig.ca.cluster_mut().taint_to_be_deleted(&name, marked)).unwrap();
    let _ = rig.wait(secs(10)).step();
    assert_next(&rig, marked + mins(5));
}

#[test]
fn a_caller_is_told_the_next_scan_or_the_first_that_matters() {
    let mut rig = Rig::of(Generation::V1_36, &["a"]);
    assert_eq!(rig.ca.next_loop(rig.now, false), Some(rig.now), "the first at once");
    rig.wait(secs(5)).want(&["w"]);
    let _ = rig.step();
    let first = rig.now;
    assert_eq!(rig.ca.next_loop(first + secs(1), true), Some(first + secs(10)));
    assert_eq!(rig.ca.next_loop(first + secs(17), true), Some(first + secs(17)), "late");
    assert_eq!(rig.ca.next_loop(first, false), Some(first + secs(30)), "the hold ends");
    rig.wait(secs(33)).want(&["v"]);
    assert!(!rig.step().asked().is_empty());
    assert_eq!(rig.ca.next_loop(rig.now, false), Some(rig.now + LOOP_GAP), "it scaled");
}
