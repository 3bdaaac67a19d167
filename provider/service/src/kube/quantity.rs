//! Kubernetes quantities, read exactly and written in canonical form.

use serde_json::Value;
use stoker_core::base::units::MiB;

/// Longest part of a bad quantity that an error quotes.
const QUOTED: usize = 40;

/// Why a text is not a quantity that a resource can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not follow the grammar.
    #[error("{0:?} is not a quantity; expected a number and a suffix, such as 500m, 2, 1.5Gi or 1e3")]
    NotAQuantity(String),
    /// It is below nought.
    #[error("quantity {0} is negative")]
    Negative(String),
    /// It is more than 64 bits hold, or has more digits than can be read exactly.
    #[error("quantity {0} is too large to be counted")]
    TooLarge(String),
}

impl QuantityError {
    /// A stable word for metrics and logs.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NotAQuantity(_) => "not-a-quantity",
            Self::Negative(_) => "negative-quantity",
            Self::TooLarge(_) => "too-large-quantity",
        }
    }
}

/// The quantity in whole units; a part of a unit counts as one, as Kubernetes counts it.
///
/// # Errors
/// See [`QuantityError`].
pub fn whole(text: &str) -> Result<u64, QuantityError> {
    scaled(text, 0)
}

/// The quantity in thousandths; a part of a thousandth counts as one.
///
/// # Errors
/// See [`QuantityError`].
pub fn milli(text: &str) -> Result<u64, QuantityError> {
    scaled(text, 3)
}

/// `text × 10^decimals`, rounded up.
fn scaled(text: &str, decimals: i32) -> Result<u64, QuantityError> {
    let quoted = || text.chars().take(QUOTED).collect::<String>();
    let bad = || QuantityError::NotAQuantity(quoted());
    let large = || QuantityError::TooLarge(quoted());

    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (integer.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(bad());
    }
    let (exp2, exp10) = exponents(suffix).ok_or_else(bad)?;

    let fraction = fraction.trim_end_matches('0');
    let mut mantissa = 0_u128;
    for digit in integer.bytes().chain(fraction.bytes()) {
        mantissa = mantissa.checked_mul(10).and_then(|m| m.checked_add(u128::from(digit - b'0'))).ok_or_else(large)?;
    }
    if mantissa == 0 {
        return Ok(0);
    }
    if negative {
        return Err(QuantityError::Negative(quoted()));
    }
    let places = i32::try_from(fraction.len()).map_err(|_| large())?;
    let exp10 = exp10.checked_add(decimals).and_then(|e| e.checked_sub(places)).ok_or_else(large)?;
    let value = mantissa.checked_mul(1 << exp2).ok_or_else(large)?;
    let value = match (10_u128.checked_pow(exp10.unsigned_abs()), exp10 >= 0) {
        (Some(power), true) => value.checked_mul(power).ok_or_else(large)?,
        (Some(power), false) => value.div_ceil(power),
        (None, true) => return Err(large()),
        // Less than the smallest part that can be told, and not nothing.
        (None, false) => 1,
    };
    u64::try_from(value).map_err(|_| large())
}

/// The powers of 2 and of 10 that a suffix stands for.
fn exponents(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?;
            (0, exponent.parse().ok()?)
        }
    })
}

/// CPU as Kubernetes writes it: `3920m`, or `4` for whole cores.
pub fn cpu(milli: u64) -> String {
    if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") }
}

/// Memory as Kubernetes writes it, in the largest unit that leaves no fraction: `15Gi`, `15258Mi`.
pub fn memory(size: MiB) -> String {
    let mut amount = size.0;
    let mut units = ["Mi", "Gi", "Ti", "Pi"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    if amount == 0 {
        return "0".to_owned();
    }
    for larger in units {
        if !amount.is_multiple_of(1024) {
            break;
        }
        amount /= 1024;
        unit = larger;
    }
    format!("{amount}{unit}")
}

/// A quantity of an object, as text or as a number, in whole units; `None` where it cannot be read.
pub fn amount(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => whole(text).ok(),
        other => other.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_exactly() {
        let cases = [
            ("0", 0, 0),
            ("-0", 0, 0),
            ("1", 1, 1_000),
            ("+2", 2, 2_000),
            ("2.", 2, 2_000),
            (".5", 1, 500),
            ("100m", 1, 100),
            ("1500m", 2, 1_500),
            ("0.1", 1, 100),
            ("1n", 1, 1),
            ("1u", 1, 1),
            ("1000u", 1, 1),
            ("1001u", 1, 2),
            ("1Ki", 1_024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("0.5Ki", 512, 512_000),
            ("2e3", 2_000, 2_000_000),
            ("2E3", 2_000, 2_000_000),
            ("2e+3", 2_000, 2_000_000),
            ("1e-3", 1, 1),
            ("1e-99", 1, 1),
            ("1k", 1_000, 1_000_000),
            ("128974848", 128_974_848, 128_974_848_000),
            ("129M", 129_000_000, 129_000_000_000),
            ("123Mi", 128_974_848, 128_974_848_000),
            ("1.000000000000000000000000000000000000000000", 1, 1_000),
            ("12e6", 12_000_000, 12_000_000_000),
        ];
        for (text, units, thousandths) in cases {
            assert_eq!(whole(text), Ok(units), "{text}");
            assert_eq!(milli(text), Ok(thousandths), "{text}");
        }
        assert_eq!(whole("1E"), Ok(1_000_000_000_000_000_000));
        assert_eq!(whole("8Ei"), Ok(1 << 63));
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "", " 1", "1 ", "Gi", ".", "1.2.3", "1gi", "1Kb", "1e", "1e1.5", "0x10", "1m2", "--1", "+-1", "1i", "٣", "NaN",
            "1,5",
        ] {
            assert_eq!(whole(text), Err(QuantityError::NotAQuantity(text.to_owned())), "{text}");
        }
        assert_eq!(milli("-1m"), Err(QuantityError::Negative("-1m".to_owned())));
        for text in ["16Ei", "99999999999999999999", "1e99", "1e2147483647", "1e-2147483648", &"9".repeat(200)] {
            assert!(matches!(milli(text), Err(QuantityError::TooLarge(_)) | Ok(1)), "{text}");
        }
        assert!(whole(&"9".repeat(1_000_000)).unwrap_err().to_string().len() < 100);
    }

    #[test]
    fn what_is_written_is_canonical_and_reads_back() {
        for (value, text) in [(0, "0"), (80, "80m"), (3_920, "3920m"), (4_000, "4"), (192_000, "192")] {
            assert_eq!(cpu(value), text);
            assert_eq!(milli(text), Ok(value));
        }
        for (value, text) in [
            (0, "0"),
            (1, "1Mi"),
            (15_258, "15258Mi"),
            (1 << 10, "1Gi"),
            (15 << 10, "15Gi"),
            (1 << 20, "1Ti"),
            (3 << 30, "3Pi"),
        ] {
            assert_eq!(memory(MiB(value)), text);
            assert_eq!(whole(text), Ok(value << 20));
        }
    }
}
