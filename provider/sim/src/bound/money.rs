//! Money as floats, for linear programs.

/// Dollars of micro-dollars.
pub(crate) fn dollars(micros: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "sums of money stay far below 2^53 micro-dollars")]
    let micros = micros as f64;
    micros / 1e6
}

/// Micro-dollars of dollars, rounded down.
pub(crate) fn micros(dollars: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "clamped to what fits")]
    let micros = (dollars * 1e6).floor().clamp(0.0, 9e18) as i64;
    micros
}
