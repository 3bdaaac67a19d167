use jiff::SignedDuration;

use super::class::of;
use super::*;
use crate::reading::Permille;
use crate::spot::Hazard;
use crate::units::{Ppm, UsdMicros};

fn spread(p95: u16, peak: u16) -> Spread {
    let permille = |level| Permille::new(level).unwrap();
    Spread { p50: permille(0), p95: permille(p95), peak: permille(peak) }
}

fn used(compute: u16, memory_peak: u16, bandwidth: Option<u16>) -> Used {
    Used {
        utilization: Some(spread(compute, 1000)),
        memory: Some(spread(0, memory_peak)),
        sm: None,
        bandwidth: bandwidth.map(|p95| spread(p95, 1000)),
        by: Measure::Utilization,
    }
}

#[test]
fn a_workload_is_called_by_what_it_runs_out_of_first() {
    let called = |compute, memory, bandwidth| of(&used(compute, memory, bandwidth), &Thresholds::default());
    assert_eq!([called(399, 849, None), called(400, 849, None)], [Class::OverProvisioned, Class::Fits]);
    assert_eq!([called(949, 849, Some(849)), called(950, 849, None)], [Class::Fits, Class::ComputeBound]);
    assert_eq!([called(950, 850, None), called(100, 0, Some(850))], [Class::MemoryBound; 2], "memory before arithmetic");
    let strict = Thresholds { over_provisioned_below: Percent(70), ..Thresholds::default() };
    assert_eq!(of(&used(699, 0, None), &strict), Class::OverProvisioned);
}

/// Half an hour between checkpoints of which each takes 3 % of it: 54 s.
fn half_hours(hazard: u64) -> Interval {
    interval(SignedDuration::from_mins(30), Percent(3), Hazard(hazard), UsdMicros(1_000_000_000)).unwrap()
}

/// * 0.16 reclaims an hour, one in 6.25 h = 22,500 s: √(2 × 54 × 22,500) = √2,430,000 = 1,558.845 s. Now 3 % + 0.16 × 0.5 ÷ 2 = 7 % is
///   lost; then 54 ÷ 1,558.845 + 0.16 × 0.433 ÷ 2 = 3.4641 % twice, 6.9282 %. Of $1,000 a month 0.0718 % is $0.72.
/// * 0.01 an hour, one in 360,000 s: √38,880,000 = 6,235.383 s. Now 3.25 %, then 1.7320 %: $15.18.
#[test]
fn the_best_interval_is_where_writing_and_doing_again_cost_alike() {
    let often = half_hours(160_000_000);
    assert_eq!((often.cost, often.between), (SignedDuration::from_secs(54), SignedDuration::from_secs(22_500)));
    assert_eq!(often.best, SignedDuration::from_millis(1_558_845));
    assert_eq!((often.wasted, often.least, often.saved), (Ppm(70_000), Ppm(69_282), UsdMicros(718_000)));
    let seldom = half_hours(10_000_000);
    assert_eq!(seldom.best, SignedDuration::from_millis(6_235_382));
    assert_eq!((seldom.wasted, seldom.least, seldom.saved), (Ppm(32_500), Ppm(17_320), UsdMicros(15_180_000)));
}

/// The best of all intervals of whole seconds, tried one by one with the exact share of time that is lost under a constant hazard.
#[test]
fn no_other_interval_wastes_less() {
    for hazard in [1_000_000, 10_000_000, 160_000_000, 600_000_000] {
        let advised = half_hours(hazard);
        #[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "an oracle")]
        let wasted = |seconds: i64| {
            let (interval, rate) = (seconds as f64, hazard as f64 / 1e9 / 3_600.0);
            54.0 / interval + rate * interval / 2.0
        };
        let best = (60..200_000).min_by(|a, b| wasted(*a).total_cmp(&wasted(*b))).unwrap();
        assert!((advised.best.as_secs() - best).abs() <= 1, "{hazard}: {best} s is better than {:?}", advised.best);
    }
}

#[test]
fn without_reclaims_or_without_a_cost_there_is_no_best_interval() {
    let of = |overhead, hazard| interval(SignedDuration::from_mins(30), Percent(overhead), Hazard(hazard), UsdMicros(1));
    assert_eq!((of(0, 10_000_000), of(3, 0)), (None, None));
}
