//! Text in messages: quoting what an operator wrote, guessing what they meant, lengths of time, causes.

use std::error::Error;
use std::fmt::Write as _;

use jiff::SignedDuration;

/// Longest piece of the operator's text that a message repeats, in characters: enough to find it by, short enough for a log line.
const MAX_QUOTED: usize = 60;

/// `text` as messages repeat it: in quotes, on one line, cut after `MAX_QUOTED` characters.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The candidate that `text` is most likely a slip of, if one is near: at most one edit in three characters. Case does
/// not count; of equally near ones the first wins.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text: Vec<char> = text.to_lowercase().chars().take(MAX_COMPARED + 1).collect();
    let (distance, candidate) = candidates
        .into_iter()
        .map(|candidate| (edits(&text, &candidate.to_lowercase().chars().collect::<Vec<_>>()), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (text.len() <= MAX_COMPARED && distance <= (text.len() / 3).max(1)).then_some(candidate)
}

/// Longer texts are no slip of any name we know; comparing them would only cost time.
const MAX_COMPARED: usize = 64;

/// How many characters to insert, delete, replace or swap with a neighbour to make `a` from `b`.
fn edits(a: &[char], b: &[char]) -> usize {
    // Three rows of the usual table: the one being filled, the last and the last but one (for swaps).
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &to) in b.iter().enumerate() {
            let replace = last[j] + usize::from(from != to);
            let mut cost = replace.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                cost = cost.min(before_last[j - 1] + 1);
            }
            row.push(cost);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Units of a length of time, largest first.
const UNITS: [(char, i64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A length of time as operators write and read it: `1h30m`, `90s` as `1m30s`. Days are written in hours: what is tuned by the hour reads so.
pub fn length(length: SignedDuration) -> String {
    let mut seconds = length.as_secs();
    let mut text = String::new();
    for (unit, size) in UNITS.into_iter().skip(1) {
        if seconds / size > 0 {
            let _ = write!(text, "{}{unit}", seconds / size);
            seconds %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reads a length of time of whole days of 24 hours, hours, minutes and seconds, largest first: `14d`, `1h30m`, `10m`, `90s`.
///
/// # Errors
/// Quotes the text and says how to write one.
pub fn read_length(text: &str) -> Result<SignedDuration, String> {
    let bad = || format!("{} is not a length of time: write it like 10m, 1h30m or 90s", quoted(text));
    let (mut rest, mut seconds) = (text, 0_i64);
    for (unit, size) in UNITS {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 && rest[digits..].starts_with(unit) {
            let count: i64 = rest[..digits].parse().map_err(|_| bad())?;
            seconds = count.checked_mul(size).and_then(|part| seconds.checked_add(part)).ok_or_else(bad)?;
            rest = &rest[digits + unit.len_utf8()..];
        }
    }
    if text.is_empty() || !rest.is_empty() { Err(bad()) } else { Ok(SignedDuration::from_secs(seconds)) }
}

/// A URL as messages and logs show it: without the user and password that it may hold. What is no URL is
/// treated likewise.
pub fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let Some((_, rest)) = rest.rsplit_once('@') else { return url.to_owned() };
    if scheme.is_empty() { format!("***@{rest}") } else { format!("{scheme}://***@{rest}") }
}

/// An error with its causes, on one line.
pub fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_read_back() {
        for text in ["0s", "45s", "1m30s", "10m", "1h", "1h30m", "36h"] {
            assert_eq!(length(read_length(text).unwrap()), text);
        }
        assert_eq!(read_length("1d12h").map(length), Ok("36h".to_owned()));
        for text in ["", "30", "-1d", "1m1h", "1mo", "a week", "99999999999999999999d"] {
            assert!(read_length(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("http://127.0.0.1:8088", "http://127.0.0.1:8088"),
            ("http://user:pass@host:8088/a", "http://***@host:8088/a"),
            ("https://user:p/a@ss@host", "https://***@host"),
            ("user:pass@host", "***@host"),
            ("", ""),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn slips_find_their_word() {
        let known = ["limits", "labels", "L4", "L40S", "us-east-1", "us-west-1", "inference"];
        for (text, meant) in [
            ("limts", Some("limits")),
            ("limist", Some("limits")),
            ("l4", Some("L4")),
            ("L40", Some("L4")),
            ("l40s", Some("L40S")),
            ("us-east-3", Some("us-east-1")),
            ("infrence", Some("inference")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, known), meant, "{text}");
        }
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest(&"l".repeat(1 << 20), known), None);
    }
}
