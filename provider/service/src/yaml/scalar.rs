//! What an unquoted word means: the core schema of YAML 1.2, in which `no` and `1:30` are text.

use serde_json::Number;

use super::tree::Tree;

/// Reads an unquoted word. The error says what is wrong with it and what would be right.
pub(super) fn resolve(text: &str) -> Result<Tree, String> {
    match text {
        "null" | "Null" | "NULL" | "~" => return Ok(Tree::Null),
        "true" | "True" | "TRUE" => return Ok(Tree::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Tree::Bool(false)),
        _ => {}
    }
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is not a finite number: write one, or put it in quotes"));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(rest) = text.strip_prefix(prefix)
            && !rest.is_empty()
            && rest.chars().all(|c| c.is_digit(radix))
        {
            return u64::from_str_radix(rest, radix).map(|number| Tree::Number(number.into())).map_err(|_| too_large(text));
        }
    }
    if is_digits(digits) && !digits.is_empty() {
        return whole(text, negative, digits).map(Tree::Number);
    }
    if is_decimal(digits) {
        // Shortest-round-trip floats print as they were written, up to 15 digits; money is cut to micro-dollars from that text.
        return text.parse().ok().and_then(Number::from_f64).map(Tree::Number).ok_or_else(|| too_large(text));
    }
    Ok(Tree::Text(text.to_owned()))
}

fn whole(text: &str, negative: bool, digits: &str) -> Result<Number, String> {
    if digits.len() > 1 && digits.starts_with('0') {
        let cure = "write it without them, or put it in quotes where it is a name";
        return Err(format!("{} begins with zeros, which some parsers read as octal: {cure}", cut(text)));
    }
    let number = if negative { text.parse::<i64>().map(Number::from) } else { digits.parse::<u64>().map(Number::from) };
    number.map_err(|_| too_large(text))
}

fn too_large(text: &str) -> String {
    format!("{} is too large a number: put it in quotes where it is a name", cut(text))
}

/// Digits are safe to repeat unquoted, but not in any length.
fn cut(text: &str) -> &str {
    text.get(..40).unwrap_or(text)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

/// `12.5`, `.5`, `5.`, `1e3`, without a sign in front.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_reads = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    (!whole.is_empty() || !fraction.is_empty()) && is_digits(whole) && is_digits(fraction) && exponent_reads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match resolve(text) {
            Ok(Tree::Null) => "null".into(),
            Ok(Tree::Bool(value)) => value.to_string(),
            Ok(Tree::Number(number)) => number.to_string(),
            Ok(Tree::Text(text)) => format!("{text:?}"),
            Ok(_) => "not a word".into(),
            Err(message) => message,
        }
    }

    #[test]
    fn words_mean_what_yaml_1_2_says() {
        for (text, meant) in [
            ("no", r#""no""#),
            ("Yes", r#""Yes""#),
            ("on", r#""on""#),
            ("1:30", r#""1:30""#),
            ("1_000", r#""1_000""#),
            ("2026-11-21", r#""2026-11-21""#),
            ("10m", r#""10m""#),
            ("-", r#""-""#),
            (".", r#"".""#),
            ("e3", r#""e3""#),
            ("1e", r#""1e""#),
            ("1.2.3", r#""1.2.3""#),
            ("0x", r#""0x""#),
            ("0xg", r#""0xg""#),
            ("true", "true"),
            ("FALSE", "false"),
            ("~", "null"),
            ("0", "0"),
            ("-3", "-3"),
            ("+3", "3"),
            ("0x1F", "31"),
            ("0o17", "15"),
            ("0.1", "0.1"),
            ("55.04", "55.04"),
            (".5", "0.5"),
            ("5.", "5.0"),
            ("1e2", "100.0"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "18446744073709551616 is too large a number: put it in quotes where it is a name"),
            ("1e999", "1e999 is too large a number: put it in quotes where it is a name"),
            (".inf", ".inf is not a finite number: write one, or put it in quotes"),
            ("-.Inf", "-.Inf is not a finite number: write one, or put it in quotes"),
            (".nan", ".nan is not a finite number: write one, or put it in quotes"),
            (
                "010",
                "010 begins with zeros, which some parsers read as octal: write it without them, or put it in quotes where \
                 it is a name",
            ),
        ] {
            assert_eq!(shown(text), meant, "{text}");
        }
    }
}
