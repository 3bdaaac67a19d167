//! Units and money as named integers. The core has no floats.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Micro-dollars in a dollar.
pub const MICROS_PER_USD: i64 = 1_000_000;

/// A rate of money: micro-dollars per hour. `$0.8048/h` is `UsdPerHour(804_800)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsdPerHour(pub i64);

impl UsdPerHour {
    /// Nothing per hour.
    pub const ZERO: Self = Self(0);

    /// Whether it is nothing.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// This rate for `n` nodes; saturates, which is far beyond any budget and so refuses rather than wraps.
    #[must_use]
    pub const fn times(self, n: u32) -> Self {
        Self(self.0.saturating_mul(n as i64))
    }

    /// The sum; saturates.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference; saturates.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This rate split over `n` parts, rounded to nearest; itself where `n` is zero.
    #[must_use]
    pub const fn per(self, n: u32) -> Self {
        if n == 0 { self } else { Self((self.0 + (n as i64) / 2) / (n as i64)) }
    }

    /// What one unit of work costs where this rate buys `work` an hour, rounded to nearest; saturates, and is itself saturated where no
    /// work is done.
    #[must_use]
    pub fn per_work(self, work: Work) -> Self {
        let work = i128::from(work.0);
        let price = (i128::from(self.0) * 1_000_000 + work / 2).checked_div(work);
        Self(price.and_then(|price| i64::try_from(price).ok()).unwrap_or(i64::MAX))
    }

    /// What this rate costs over `seconds`, in micro-dollars, rounded to nearest.
    #[must_use]
    pub fn over_seconds(self, seconds: i64) -> UsdMicros {
        let micros = (i128::from(self.0) * i128::from(seconds) + 1_800) / 3_600;
        UsdMicros(i64::try_from(micros).unwrap_or(if micros < 0 { i64::MIN } else { i64::MAX }))
    }

    /// Parses a decimal number of dollars, e.g. `0.8048`, exactly; more than six decimals round half up.
    ///
    /// # Errors
    /// Says what is wrong with the text: not a number, negative, or beyond what a rate can hold.
    pub fn parse_usd(text: &str) -> Result<Self, MoneyError> {
        parse_micros(text).map(Self)
    }
}

/// An amount of money in micro-dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsdMicros(pub i64);

impl UsdMicros {
    /// The sum; saturates.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Why a text is not an amount of dollars.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not a plain decimal number.
    #[error("{0:?} is not a decimal number of dollars")]
    NotANumber(String),
    /// Below zero.
    #[error("{0} is negative")]
    Negative(String),
    /// Beyond nine billion dollars.
    #[error("{0} is too large")]
    TooLarge(String),
}

fn parse_micros(text: &str) -> Result<i64, MoneyError> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(MoneyError::Negative(text.to_owned()));
    }
    let bad = || MoneyError::NotANumber(text.to_owned());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return Err(bad());
    }
    let large = || MoneyError::TooLarge(text.to_owned());
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| large())? };
    let mut micros = 0_i64;
    for place in 0..6 {
        micros = micros * 10 + fraction.as_bytes().get(place).map_or(0, |b| i64::from(b - b'0'));
    }
    let round = i64::from(fraction.as_bytes().get(6).is_some_and(|b| *b >= b'5'));
    if whole > 9_000_000_000 {
        return Err(large());
    }
    Ok(whole * MICROS_PER_USD + micros + round)
}

/// A decimal number as a count of 10^-`places`, rounded half up; `None` where it is none, or too large.
pub fn scaled(text: &str, places: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let digit = |at: usize| u64::from(fraction.as_bytes().get(at).map_or(0, |b| b - b'0'));
    let mut number: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    for place in 0..places {
        number = number.checked_mul(10)?.checked_add(digit(place))?;
    }
    number.checked_add(u64::from(digit(places) >= 5))
}

fn fmt_dollars(micros: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // Four decimals: the finest step that price lists print and a person compares.
    let tenths_of_milli = (i128::from(micros).abs() + 50) / 100;
    let sign = if micros < 0 { "-" } else { "" };
    let text = format!("{sign}${}.{:04}", tenths_of_milli / 10_000, tenths_of_milli % 10_000);
    f.pad(&text)
}

impl fmt::Display for UsdPerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_dollars(self.0, f)
    }
}

impl fmt::Display for UsdMicros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A unit price is compared as rates are; an amount on a bill reads to the cent.
        if f.alternate() {
            return fmt_dollars(self.0, f);
        }
        let cents = (i128::from(self.0).abs() + 5_000) / 10_000;
        let sign = if self.0 < 0 { "-" } else { "" };
        f.pad(&format!("{sign}${}.{:02}", cents / 100, cents % 100))
    }
}

/// Thousandths, e.g. of a GPU: a sixth of an A10 is `Milli(167)`, a whole one `Milli(1000)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Milli(pub u32);

impl Milli {
    /// Parses a plain decimal number, e.g. `1.3`; `None` where it is none, negative or too large.
    pub fn parse(text: &str) -> Option<Self> {
        u32::try_from(scaled(text, 3)?).ok().map(Self)
    }
}

impl fmt::Display for Milli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) {
            f.pad(&(self.0 / 1000).to_string())
        } else {
            f.pad(&format!("{}.{:03}", self.0 / 1000, self.0 % 1000))
        }
    }
}

/// Work that something does in an hour, in millionths of a unit of work; a pool's policy says what a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Work(pub u64);

/// A share in hundredths: `50%` is `Percent(50)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub u8);

impl Percent {
    /// All of it.
    pub const ALL: Self = Self(100);
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", self.0))
    }
}

/// A share in millionths: `Ppm(800_000)` is four fifths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ppm(pub u32);

impl fmt::Display for Ppm {
    /// As a percentage with one decimal, the last one rounded down: what is not all is never shown as all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}%", self.0 / 10_000, self.0 % 10_000 / 1_000))
    }
}

/// Mebibytes: of memory, GPU memory and disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MiB(pub u64);

impl MiB {
    /// That many gibibytes.
    #[must_use]
    pub const fn from_gib(gib: u64) -> Self {
        Self(gib * 1024)
    }

    /// The same in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 * 1024 * 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_parse_exactly() {
        assert_eq!(UsdPerHour::parse_usd("0.8048"), Ok(UsdPerHour(804_800)));
        assert_eq!(UsdPerHour::parse_usd("55.04"), Ok(UsdPerHour(55_040_000)));
        assert_eq!(UsdPerHour::parse_usd(".5"), Ok(UsdPerHour(500_000)));
        assert_eq!(UsdPerHour::parse_usd("0.5839851"), Ok(UsdPerHour(583_985)));
        assert_eq!(UsdPerHour::parse_usd("0.5839855"), Ok(UsdPerHour(583_986)));
    }

    #[test]
    fn nonsense_is_not_money() {
        for text in ["", ".", "1e3", "NaN", "1,5", "0x10", "--1"] {
            assert!(UsdPerHour::parse_usd(text).is_err(), "{text}");
        }
        assert_eq!(UsdPerHour::parse_usd("-1"), Err(MoneyError::Negative("-1".into())));
        assert!(matches!(UsdPerHour::parse_usd("99999999999"), Err(MoneyError::TooLarge(_))));
    }

    #[test]
    fn decimals_round_to_nearest() {
        assert_eq!(scaled("0.166667", 3), Some(167));
        assert_eq!(scaled("0.333333", 3), Some(333));
        assert_eq!(scaled("2.5", 1), Some(25));
        assert_eq!(scaled("25", 1), Some(250));
        assert_eq!(scaled("18.7", 3), Some(18_700));
        assert_eq!(scaled("0.9996", 3), Some(1_000));
        for text in ["", ".", "1e3", "-1", "1,5", "NaN", "99999999999999999999"] {
            assert_eq!(scaled(text, 3), None, "{text}");
        }
    }

    #[test]
    fn dollars_print_for_people() {
        assert_eq!(UsdPerHour(804_800).to_string(), "$0.8048");
        assert_eq!(UsdPerHour(-1_250_000).to_string(), "-$1.2500");
        assert_eq!(
            (UsdMicros(12_345_678).to_string(), format!("{:#}", UsdMicros(64_664))),
            ("$12.35".into(), "$0.0647".into())
        );
        assert_eq!(Milli(167).to_string(), "0.167");
    }

    #[test]
    fn work_divides_a_price() {
        // $6.88 an hour for 3.1 units of work: $2.219355 each.
        assert_eq!(UsdPerHour(6_880_000).per_work(Work(3_100_000)), UsdPerHour(2_219_355));
        assert_eq!(UsdPerHour(1).per_work(Work(0)), UsdPerHour(i64::MAX));
    }

    #[test]
    fn an_hour_of_a_rate_is_the_rate() {
        assert_eq!(UsdPerHour(804_800).over_seconds(3_600), UsdMicros(804_800));
        assert_eq!(UsdPerHour(3_600).over_seconds(1), UsdMicros(1));
    }
}
