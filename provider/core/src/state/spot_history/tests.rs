use super::*;
use crate::base::kinds::ReturnToSpot;
use crate::base::units::{Percent, Ppm, UsdPerHour};
use crate::limits::usage::{Headroom, Limit};
use crate::policy::rules::spot::{Rounding, Saving, SpotRules, effective};

/// What a notice of two minutes leaves.
const AWS: SignedDuration = SignedDuration::from_secs(110);

fn rules(saving: Saving, restart_mins: i64) -> SpotRules {
    SpotRules {
        max_share: Percent::ALL,
        max_market_share: Percent::ALL,
        max_interruption: None,
        saving,
        save: None,
        restart: mins(restart_mins),
        return_to_spot: ReturnToSpot::Idle,
    }
}

const fn mins(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

fn checkpoints(every: i64, overhead: u8) -> Saving {
    Saving::Checkpoints { every: mins(every), overhead: Percent(overhead) }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn sixty_cents_with_a_fifth_lost_is_seventy_five() {
    // 0.51 reclaims an hour, each losing 30 min ÷ 2 + 5 min = 1/3 h: 17 % of the time, and 3 % for checkpoints: 80 % is useful.
    let useful = rules(checkpoints(30, 3), 5).useful(Hazard(510_000_000), AWS);
    assert_eq!(useful, Ppm(800_000));
    let spot = effective(UsdPerHour(600_000), useful);
    assert_eq!(spot, UsdPerHour(750_000));
    assert!(spot < UsdPerHour(4_000_000), "on demand");
}

#[test]
fn what_a_reclaim_loses_follows_from_what_is_saved() {
    assert_eq!(rules(checkpoints(30, 3), 5).lost_per_reclaim(AWS), mins(20));
    // All that a running job has done.
    assert_eq!(rules(Saving::Nothing, 5).lost_per_reclaim(AWS), mins(305));
    assert_eq!(rules(Saving::Stateless, 2).lost_per_reclaim(AWS), mins(2));
    // 0.06 an hour: 0.06 × 305/60 = 30.5 % of unsaved work, 0.06 × 2/60 = 0.2 % of a replica's time, and no checkpoints to write.
    assert_eq!(rules(Saving::Nothing, 5).useful(Hazard(60_000_000), AWS), Ppm(695_000));
    assert_eq!(rules(Saving::Stateless, 2).useful(Hazard(60_000_000), AWS), Ppm(998_000));
}

#[test]
fn a_save_that_fits_the_notice_costs_itself_and_one_that_does_not_costs_the_interval() {
    let saves = |seconds| SpotRules { save: Some(SignedDuration::from_secs(seconds)), ..rules(checkpoints(30, 3), 5) };
    // 90 s fit into AWS's 110: 1.5 min and 5 min of restart. Of 30 s, Google's and Azure's, 20 are left: all of the 30 min are lost.
    assert_eq!(saves(90).lost_per_reclaim(AWS), SignedDuration::from_secs(390));
    assert_eq!(saves(110).lost_per_reclaim(AWS), SignedDuration::from_secs(410));
    assert_eq!(saves(111).lost_per_reclaim(AWS), mins(35));
    assert_eq!(saves(90).lost_per_reclaim(SignedDuration::from_secs(20)), mins(35));
    // A save of 20 min: the last whole one is 20 to 50 min old.
    assert_eq!(saves(1200).lost_per_reclaim(AWS), mins(40));
    assert_eq!(saves(1200).lost_per_move(), mins(25), "moved, it has its time");
    // 0.51 reclaims an hour: × 390 s is 5.525 %, × 35 min is 29.75 %; 3 % for checkpoints.
    assert_eq!(saves(90).useful(Hazard(510_000_000), AWS), Ppm(914_750));
    assert_eq!(saves(111).useful(Hazard(510_000_000), AWS), Ppm(672_500));
}

#[test]
fn a_market_that_takes_nodes_back_all_the_time_is_dear_and_not_free() {
    let useful = rules(Saving::Nothing, 5).useful(Hazard(u64::MAX), AWS);
    assert_eq!(effective(UsdPerHour(600_000), useful), UsdPerHour(60_000_000));
    assert_eq!(effective(UsdPerHour(i64::MAX), useful), UsdPerHour(i64::MAX), "saturates");
}

#[test]
fn a_monthly_share_becomes_the_hazard_that_a_logarithm_says() {
    // −ln(1 − p) ÷ 730, computed elsewhere in double precision.
    for (per_month, hazard) in [
        (0, 0),
        (1, 1_371),
        (25, 34_682),
        (75, 106_797),
        (125, 182_920),
        (175, 263_523),
        (250, 394_085),
        (500, 949_517),
        (900, 3_154_226),
        (999, 9_462_678),
        (1_000, 9_462_678),
        (u32::MAX, 9_462_678),
    ] {
        assert_eq!(Hazard::from_monthly(Milli(per_month)), Hazard(hazard), "{per_month}");
    }
}

#[test]
fn own_reclaims_outweigh_the_published_rate_as_node_hours_come_in() {
    let prior = Prior::of(Some(Milli(250)));
    let history = |hours: u64, nodes: u32| {
        let mut history = SpotHistory::begun(at("2026-11-01T00:00:00Z"));
        (history.exposure, history.reclaims) = (hours * 3_600, Milli(nodes * 1000));
        history
    };
    let hazard = |hours, nodes| Risk::estimate(prior, Some(&history(hours, nodes))).hazard;
    assert_eq!(Risk::estimate(prior, None).hazard, ASSUMED_HAZARD, "the worst band is as bad as the unknown");
    // (2 + 0.16 × 10) ÷ (90 + 10).
    assert_eq!(hazard(90, 2), Hazard(36_000_000));
    // Hours without a reclaim make it smaller: 1.6 ÷ 1,000.
    assert_eq!(hazard(990, 0), Hazard(1_600_000));
    // A milder band is as much milder: 0.16 × 0.106797 ÷ 0.394085.
    assert_eq!(Risk::estimate(Prior::of(Some(Milli(75))), None).hazard, Hazard(43_359_985));
    // Where nothing is published: (0 + 1.6) ÷ 20.
    assert_eq!(Risk::estimate(Prior::Assumed, Some(&history(10, 0))).hazard, Hazard(80_000_000));
}

#[test]
fn a_risk_says_by_whose_word_it_is() {
    let mut history = SpotHistory::begun(at("2026-11-01T00:00:00Z"));
    (history.exposure, history.reclaims) = (90 * 3_600, Milli(2000));
    let known = Risk::estimate(Prior::of(Some(Milli(75))), Some(&history));
    assert_eq!(known.to_string(), "0.024 reclaims/node-h: published 7.5%/month, 2 observed in 90 node-h");
    let unknown = Risk::estimate(Prior::Assumed, None);
    assert_eq!(unknown.to_string(), "0.16 reclaims/node-h: no published rate, 0.16 assumed, none observed in 0 node-h");
    assert_eq!(Hazard(394_085).to_string(), "0.00039");
    assert_eq!(Hazard(0).to_string(), "0");
    assert_eq!(Hazard(12_000_000_000).to_string(), "12");
}

#[test]
fn siblings_are_one_event_and_each_counts_in_the_hazard() {
    let start = at("2026-11-01T00:00:00Z");
    let mut history = SpotHistory::begun(start);
    assert!(history.reclaimed(start));
    assert!(!history.reclaimed(start + mins(2)));
    assert_eq!(history.left_alone_until(), Some(start + LEFT_ALONE), "from the first of them");
    assert!(history.reclaimed(start + SIBLINGS_WITHIN));
    assert_eq!(history.reclaims, Milli(3000));
}

#[test]
fn more_than_five_events_an_hour_empty_a_region() {
    let start = at("2026-11-01T00:00:00Z");
    let mut region = RegionReclaims::default();
    for n in 0..5 {
        region.event(start + mins(10 * n));
    }
    assert_eq!(region.left_alone_until, None);
    // The first was an hour ago: five again.
    region.event(start + mins(60));
    assert_eq!(region.left_alone_until, None);
    region.event(start + mins(65));
    assert_eq!(region.left_alone_until, Some(start + mins(65) + REGION_LEFT_ALONE));
    assert_eq!(region.events.len(), REGION_EVENTS, "no more is kept than decides");
    assert!(!region.forget(start + mins(65) + REGION_LEFT_ALONE));
}

#[test]
fn what_is_old_counts_half_and_is_forgotten_in_the_end() {
    let start = at("2026-11-01T00:00:00Z");
    let mut history = SpotHistory::begun(start);
    (history.exposure, history.reclaims) = (8_000, Milli(4000));
    assert!(!history.age(start + HALF_LIFE - mins(1)));
    assert!(history.age(start + HALF_LIFE * 2));
    assert_eq!((history.exposure, history.reclaims), (2_000, Milli(1000)));
    assert!(!history.is_spent(start + HALF_LIFE * 2));
    history.age(Timestamp::MAX);
    assert!(history.is_spent(Timestamp::MAX));
}

fn room(rounding: Rounding, share: Percent, part: u32, nodes: u32) -> u32 {
    Headroom::share(Limit::SpotShare, rounding, share, part, nodes).alone()
}

#[test]
fn room_under_a_share_is_what_trying_says() {
    for (rounding, slack) in [(Rounding::Down, 0), (Rounding::Up, 99)] {
        for share in 0..100_u8 {
            for nodes in 0..12_u32 {
                for part in 0..=nodes {
                    let fits = |m: u32| part + m <= ((nodes + m) * u32::from(share) + slack) / 100;
                    // More of one kind only uses up its share: what does not fit now never will.
                    let tried = (1..2_000).take_while(|m| fits(*m)).last().unwrap_or(0);
                    assert_eq!(room(rounding, Percent(share), part, nodes), tried, "{rounding:?} {share}% {part} of {nodes}");
                }
            }
        }
        assert_eq!(room(rounding, Percent::ALL, 7, 7), u32::MAX);
    }
}

#[test]
fn a_quarter_a_market_fills_four_markets_evenly_and_one_node_is_always_allowed() {
    let mut markets = [0_u32; 4];
    for node in 0..40 {
        let here = markets.iter_mut().find(|here| room(Rounding::Up, Percent(25), **here, node) > 0);
        *here.expect("⌈1 ÷ share⌉ markets always hold the whole demand") += 1;
        assert_eq!(markets.iter().filter(|here| **here > 0).count(), usize::try_from(node + 1).unwrap().min(4));
    }
    assert_eq!(markets, [10; 4]);
    // Of the pool as a whole the share is rounded down: of one node none may be spot, of two one.
    assert_eq!([0, 1, 2].map(|nodes| room(Rounding::Down, Percent(50), 0, nodes)), [0, 1, 2]);
    assert_eq!(room(Rounding::Down, Percent(0), 0, 100), 0);
}
