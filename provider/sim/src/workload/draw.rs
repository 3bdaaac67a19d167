//! Draws from the distributions that a day is made of.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::HOUR;

/// A number between nought and one, never nought.
fn unit(rng: &mut ChaCha8Rng) -> f64 {
    1.0 - rng.random_range(0.0..1.0)
}

/// The whole part of a small number; nought where it is negative.
pub(super) fn whole(number: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
    let whole = number.clamp(0.0, 1e9).round() as usize;
    whole
}

fn seconds(number: f64) -> i64 {
    i64::try_from(whole(number)).unwrap_or(i64::MAX)
}

/// The seconds to the next of independent events that come so many times an hour; at least one.
pub(super) fn waiting_time(rng: &mut ChaCha8Rng, per_hour: f64) -> i64 {
    let hours = -unit(rng).ln() / per_hour;
    seconds(hours * 3600.0).clamp(1, 1000 * HOUR)
}

/// A length in seconds: its median in units of so many seconds, its logarithm spread by `sigma`.
pub(super) fn log_normal(rng: &mut ChaCha8Rng, median: f64, sigma: f64, unit_seconds: i64) -> i64 {
    let normal = (-2.0 * unit(rng).ln()).sqrt() * (unit(rng) * std::f64::consts::TAU).cos();
    let scale = f64::from(i32::try_from(unit_seconds).unwrap_or(i32::MAX));
    seconds(median * (sigma * normal).exp() * scale)
}

/// A count of independent events with that mean, which has to be small.
pub(super) fn poisson(rng: &mut ChaCha8Rng, mean: f64) -> usize {
    let stop = (-mean).exp();
    let mut product = unit(rng);
    let mut count = 0;
    while product > stop && count < 1000 {
        product *= unit(rng);
        count += 1;
    }
    count
}
