use jiff::SignedDuration;

use super::availability::GOOD;
use super::baseline::Baseline;
use super::*;
use crate::model::Settings;

const SAVING: Saving = Saving { checkpoint: SignedDuration::from_mins(30), restart: SignedDuration::from_mins(2) };

/// A day and what is left of its jobs: every job ends, nothing is oversold, and the bill is below always on demand and above the bound.
#[test]
fn a_day_ends_with_all_work_done_below_the_price_of_on_demand() {
    let month = Month::draw(3, 1, 12.0, &GOOD);
    let played = stoker::replay(&month, &policy(SAVING).unwrap(), Settings::recommended(), SAVING).unwrap();
    let on_demand = month.baseline(Baseline::OnDemand, SAVING);
    assert!(played.broken.is_empty(), "{:?}", played.broken);
    assert_eq!(played.finished, (month.jobs.len(), month.jobs.len()));
    let (spot, other) = played.bill.most_vcpus;
    assert!(spot <= QUOTA_VCPUS && other <= QUOTA_VCPUS, "{spot} and {other} vCPUs at a time");
    assert!(played.bill.spot.0 > 0, "no spot was bought");
    assert!(month.bound() <= played.bill.total(), "{} is below the bound {}", played.bill.total(), month.bound());
    assert!(
        played.bill.total() < on_demand.bill.total(),
        "{} on spot, {} without",
        played.bill.total(),
        on_demand.bill.total()
    );
}

/// The same seed gives the same month, another seed another one.
#[test]
fn a_seed_tells_all() {
    let play = |seed| {
        let month = Month::draw(seed, 1, 6.0, &GOOD);
        stoker::replay(&month, &policy(SAVING).unwrap(), Settings::recommended(), SAVING).unwrap()
    };
    assert_eq!(play(1), play(1));
    assert_ne!(play(1), play(2));
}

/// No baseline that starts every job as it comes is below the bound, and each finishes all of its jobs.
#[test]
fn baselines_finish_above_the_bound() {
    for seed in 1..4 {
        let month = Month::draw(seed, 5, 30.0, &GOOD);
        let bound = month.bound();
        let play = |baseline| month.baseline(baseline, SAVING);
        let [on_demand, spot_only, sticky] = [Baseline::OnDemand, Baseline::SpotOnly, Baseline::Sticky].map(play);
        for played in [&on_demand, &spot_only, &sticky] {
            assert_eq!(played.finished, (month.jobs.len(), month.jobs.len()));
        }
        assert!(bound < sticky.bill.total() && sticky.bill.total() < on_demand.bill.total());
        assert!(on_demand.bill.total() > bound::on_demand(&month.jobs));
        assert_eq!((spot_only.bill.on_demand.0, on_demand.bill.spot.0), (0, 0));
    }
}

/// Whatever plays it, a month comes to the same, to the micro-dollar.
#[test]
fn months_cost_what_they_always_did() {
    for (seed, days, load, spot, on_demand) in [(3, 1, 12.0, 528_511_760, 17_248_200), (1, 5, 30.0, 3_621_722_735, 669_413_250)]
    {
        let month = Month::draw(seed, days, load, &GOOD);
        let played = stoker::replay(&month, &policy(SAVING).unwrap(), Settings::recommended(), SAVING).unwrap();
        assert_eq!((played.bill.spot.0, played.bill.on_demand.0), (spot, on_demand), "seed {seed}");
    }
}
