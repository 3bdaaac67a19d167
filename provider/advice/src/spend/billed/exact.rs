//! Decimals of a bill, without floats.

use stoker_core::base::units::UsdMicros;

/// Decimals that are kept of a number. What a cell has beyond them is rounded half away from zero: millions of such cells are less than a
/// micro-dollar together.
const DECIMALS: u32 = 18;

const ONE: i128 = 10_i128.pow(DECIMALS);

/// Largest power of ten that a number may reach: sums of a hundred million of them fit.
const MOST_DIGITS: i64 = 12;

/// A number of a bill, in parts of 10^-18: an amount of dollars or hours. Sums are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exact(i128);

/// Why a cell is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadNumber {
    /// Not a decimal number.
    #[error("is no amount: write a decimal number, with a point and without separators")]
    NotANumber,
    /// From a trillion on.
    #[error("is too large for an amount")]
    TooLarge,
}

impl Exact {
    /// Reads a decimal number, with a sign and an exponent where it has them: `-0.25`, `1.2E-7`.
    ///
    /// # Errors
    /// The text is no number, or beyond a trillion.
    pub fn parse(text: &str) -> Result<Self, BadNumber> {
        let text = text.trim();
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| BadNumber::NotANumber)?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = || whole.bytes().chain(fraction.bytes());
        if digits().next().is_none() || !digits().all(|digit| digit.is_ascii_digit()) {
            return Err(BadNumber::NotANumber);
        }
        // Ten to the power of the digit that comes next.
        let first = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(i64::from(exponent));
        let (mut units, mut power) = (0_i128, first);
        for digit in digits() {
            power = power.saturating_sub(1);
            let digit = i128::from(digit - b'0');
            if digit == 0 {
                continue;
            }
            if power >= MOST_DIGITS {
                return Err(BadNumber::TooLarge);
            }
            let Ok(at) = u32::try_from(power + i64::from(DECIMALS)) else {
                // The first digit that is not kept rounds; the rest is less than it.
                units += i128::from(power == -i64::from(DECIMALS) - 1 && digit >= 5);
                break;
            };
            units += digit * 10_i128.pow(at);
        }
        Ok(Self(if is_negative { -units } else { units }))
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// So many `whole`ths of it, rounded half away from zero.
    #[must_use]
    pub fn part(self, of: i64, whole: i64) -> Self {
        Self(divided(self.0.saturating_mul(i128::from(of)), i128::from(whole)))
    }

    /// In millionths, rounded half away from zero.
    pub fn millionths(self) -> i64 {
        i64::try_from(divided(self.0, ONE / 1_000_000)).unwrap_or(if self.0 < 0 { i64::MIN } else { i64::MAX })
    }

    /// Dollars, rounded to the micro-dollar, half away from zero.
    pub fn usd(self) -> UsdMicros {
        UsdMicros(self.millionths())
    }
}

/// A quotient, rounded half away from zero; zero of nothing.
pub(super) const fn divided(of: i128, by: i128) -> i128 {
    if by == 0 {
        return 0;
    }
    let (whole, rest) = (of / by, of % by);
    if rest.unsigned_abs() >= by.unsigned_abs().div_ceil(2) { whole + of.signum() * by.signum() } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_exactly() {
        let millionths = |text: &str| Exact::parse(text).map(Exact::millionths);
        for (text, expected) in [
            ("0.8048", 804_800),
            ("-12.345678", -12_345_678),
            ("+1", 1_000_000),
            (".5", 500_000),
            ("5.", 5_000_000),
            ("000000000000000001.5", 1_500_000),
            ("1.2E-5", 12),
            ("12.5e3", 12_500_000_000),
            ("0E-19", 0),
            ("-0", 0),
            // Half a micro-dollar rounds away from zero.
            ("0.0000005", 1),
            ("-0.0000005", -1),
            ("0.00000049999999", 0),
            ("1e-999999999", 0),
        ] {
            assert_eq!(millionths(text), Ok(expected), "{text}");
        }
        for text in ["", "-", ".", "1,5", "1 000", "$1", "NaN", "inf", "1e", "1e1.5", "--1", "0x1", "1_0", "e5", "\u{662}"] {
            assert_eq!(millionths(text), Err(BadNumber::NotANumber), "{text}");
        }
        for text in ["1000000000000", "1e12", "1e999999999", "9e2147483647"] {
            assert_eq!(millionths(text), Err(BadNumber::TooLarge), "{text}");
        }
    }

    /// The 18th decimal is kept, the 19th rounds it; a third of a dollar and two thirds are a dollar but for what rounds.
    #[test]
    fn eighteen_decimals_are_kept() {
        let of = |text: &str| Exact::parse(text).unwrap();
        assert_eq!(of("0.0000000000000000015"), of("0.000000000000000002"));
        assert_eq!(of("-0.00000000000000000149"), of("-0.000000000000000001"));
        let (third, rest) = (of("1").part(1, 3), of("1").less(of("1").part(1, 3)));
        assert_eq!((third, third.plus(rest)), (of("0.333333333333333333"), of("1")));
        assert_eq!(of("-1").part(1, 2), of("-0.5"));
        let large = of("999999999999.999999");
        assert_eq!((0..1_000_000).fold(Exact::default(), |sum, _| sum.plus(large)).part(1, 1_000_000), large);
    }
}
