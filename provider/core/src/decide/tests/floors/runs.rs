//! Long runs of chance: pods come and go, markets refuse, the service is away, the autoscaler asks or does not.

use std::collections::BTreeSet;

use super::*;
use crate::state::record::State;

/// The next number of a fixed sequence (a linear congruential generator), below `below`.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// What is true of every floor after every pass, counted from the facts.
fn holds(world: &World, seed: u64, floor: u32) {
    let records = || world.memory.records.values();
    let free = |name: &str| world.nodes().get(name).copied() == Some(0);
    let warm = records().filter(|record| match &record.state {
        State::Registered { node: Some(node), .. } => free(node.as_str()),
        _ => false,
    });
    let coming = records().filter(|record| {
        record.floor && matches!(record.state, State::Wanted | State::Launching { .. } | State::Booting { .. })
    });
    let (warm, coming) = (warm.count(), coming.count());
    let rise: u32 = [GROUP_A, GROUP_B].iter().map(|id| world.limits(id).min.saturating_sub(world.target(id))).sum();
    let there = u32::try_from(warm + coming).unwrap();
    // No more is asked for than is missing, and all of it unless something is in its way that is told.
    assert!(rise <= floor.saturating_sub(there), "seed {seed}: {rise} more are asked for beside {there} of {floor}");
    if rise + there < floor {
        assert!(world.floor().blocked.is_some(), "seed {seed}: {there} of {floor}, {rise} asked for, and nothing says why");
    }
    let total: u32 = [GROUP_A, GROUP_B].iter().map(|id| world.target(id)).sum();
    assert!(total <= 10, "seed {seed}: {total} nodes");
    let keys: BTreeSet<_> = records().filter_map(|record| record.purchase().map(|purchase| &purchase.key)).collect();
    assert_eq!(keys.len(), records().filter(|record| record.purchase().is_some()).count(), "seed {seed}");
}

#[test]
fn floors_ask_for_what_is_missing_and_for_no_more() {
    for seed in 0..60 {
        let mut state = seed * 7_919 + 1;
        let floor = u32::try_from(1 + draw(&mut state, 3)).unwrap();
        let asks = draw(&mut state, 4) > 0;
        let mut world = with(nodes(floor));
        for _ in 0..80 {
            match draw(&mut state, 8) {
                0 => {
                    if let Some((name, _)) = world.nodes().into_iter().find(|(_, pods)| *pods == 0) {
                        world.pods_on(&name, &["a/job"]);
                    }
                }
                1 => {
                    if let Some((name, _)) = world.nodes().into_iter().find(|(_, pods)| *pods > 0) {
                        world.pods_on(&name, &[]);
                    }
                }
                2 => drop(world.try_increase([GROUP_A, GROUP_B][usize::try_from(draw(&mut state, 2)).unwrap()], 1)),
                3 => world.refuse_all(RefusalKind::OutOfCapacity),
                4 | 5 => world.answer(|_| true),
                6 => world.join_new(),
                _ => world.advance(minutes(i64::try_from(draw(&mut state, 30)).unwrap())),
            }
            if asks {
                world.enforce_minimums();
            }
            // The autoscaler takes back what failed.
            for group in [GROUP_A, GROUP_B] {
                let failed: Vec<String> = world
                    .records(group)
                    .filter(|record| matches!(record.state, State::Failed { .. }))
                    .map(|record| record.shown_id().to_string())
                    .collect();
                let ids: Vec<&str> = failed.iter().map(String::as_str).collect();
                let _ = world.delete(group, &ids);
            }
            world.advance(seconds(20));
            world.observe();
            world.pass();
            holds(&world, seed, floor);
        }
    }
}
