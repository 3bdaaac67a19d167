//! The bound beside a solver's optimum of the same program, and worked by hand.

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, default_solver, variable};

use super::*;
use crate::world::draw::Seed;

/// The program as its documentation states it, span by span, by the simplex method.
fn optimum(spans: &[Span], tiers: &Tiers) -> f64 {
    let number = |n: i64| f64::from(i32::try_from(n).unwrap());
    let mut vars = ProblemVariables::new();
    let prices: Vec<f64> = std::iter::once(tiers.on_demand).chain(tiers.spot.iter().copied()).map(number).collect();
    let mut cost = Expression::default();
    let mut limits = Vec::new();
    let mut before: Vec<Expression> = vec![Expression::default(); prices.len()];
    for span in spans {
        let mut supply = Expression::default();
        for (tier, price) in prices.iter().enumerate() {
            let most = match tier {
                0 => f64::from(u32::MAX),
                n if span.spot[n - 1] => f64::from(tiers.zone),
                _ => 0.0,
            };
            let (held, rise) = (vars.add(variable().min(0.0).max(most)), vars.add(variable().min(0.0)));
            limits.push(constraint!(rise >= held - before[tier].clone()));
            before[tier] = held.into();
            supply += held;
            cost += held * *price * number(span.seconds) + rise * *price * number(tiers.boot);
        }
        limits.push(constraint!(supply >= f64::from(span.gpus)));
    }
    let solved = limits.into_iter().fold(vars.minimise(&cost).using(default_solver), SolverModel::with).solve();
    solved.unwrap().eval(cost)
}

fn draw(seed: u64, zone: u32) -> (Vec<Span>, Tiers) {
    let mut stream = Seed(seed).stream("program", &[], 0);
    let spans = (0..12)
        .map(|_| Span {
            seconds: 1 + stream.up_to(300),
            gpus: u32::try_from(stream.up_to(5)).unwrap(),
            spot: vec![stream.chance(0.6), stream.chance(0.6)],
        })
        .collect();
    (spans, Tiers { on_demand: 10, spot: vec![3, 4], zone, boot: stream.up_to(200) })
}

#[test]
fn it_is_the_programs_optimum() {
    // With zones that are never full, and with zones that often are.
    for zone in [5, 2, 1] {
        for seed in 0..60 {
            let (spans, tiers) = draw(seed, zone);
            let (bound, optimum) = (f64::from(i32::try_from(least(&spans, &tiers)).unwrap()), optimum(&spans, &tiers));
            assert!((bound - optimum).abs() < 1e-6 * optimum.max(1.0), "zone {zone}, seed {seed}: {bound} against {optimum}");
        }
    }
}

#[test]
fn by_hand() {
    let tiers = Tiers { on_demand: 10, spot: vec![3], zone: 8, boot: 100 };
    let span = |seconds, gpus, spot| Span { seconds, gpus, spot: vec![spot] };
    // One GPU for 1,000 s of spot, and its boot: 3 × 1,100.
    assert_eq!(least(&[span(1000, 1, true)], &tiers), 3_300);
    // Spot ends half way: 3 × 600 and 10 × 600 beat 10 × 1,100.
    assert_eq!(least(&[span(500, 1, true), span(500, 1, false)], &tiers), 7_800);
    // A gap of 50 s is cheaper idle than booted again, one of 200 s is not.
    assert_eq!(least(&[span(500, 1, true), span(50, 0, true), span(500, 1, true)], &tiers), 3 * 1_150);
    assert_eq!(least(&[span(500, 1, true), span(200, 0, true), span(500, 1, true)], &tiers), 3 * 1_200);
    // Ten GPUs where a zone has eight: 8 × 3 × 1,100 and 2 × 10 × 1,100.
    assert_eq!(least(&[span(1000, 10, true)], &tiers), 26_400 + 22_000);
}

/// The bound's demand is the jobs' own, run as they come.
#[test]
fn demand_is_what_runs_uninterrupted() {
    let job = |arrives, work, gpus| Job { arrives, work, gpus };
    let availability = Availability::draw(1, &super::super::availability::GOOD, 3, 10_000);
    let spans = spans(&[job(0, 100, 1), job(40, 100, 4)], &availability);
    let work: i64 = spans.iter().map(|span| span.seconds * i64::from(span.gpus)).sum();
    assert_eq!(work, 500);
    assert_eq!(spans.iter().map(|span| span.gpus).max(), Some(5));
}
