//! How names, durations, rates and labels are written. Each reader says what is wrong and what would be right.

use serde_json::Number;

use super::Id;
use crate::base::ids::MAX_ID_LEN;
use crate::base::text::quoted;
use crate::base::units::{Milli, MoneyError, Percent, UsdPerHour, scaled};
use crate::market::labels::{KUBERNETES_DOMAINS, tells_each_capacity_type};
use crate::policy::TypePattern;

/// A text of one line, as people write names of all sorts.
pub(super) fn line(text: &str) -> Result<&str, String> {
    if text.is_empty() {
        return Err("is empty: give a name".into());
    }
    if text.len() > MAX_ID_LEN {
        return Err(format!("{} has {} bytes, more than {MAX_ID_LEN}: shorten it", quoted(text), text.len()));
    }
    if text.contains(char::is_control) {
        return Err(format!("{} has a control character: remove it", quoted(text)));
    }
    if text.trim() != text {
        return Err(format!("{} begins or ends with a space: remove it", quoted(text)));
    }
    Ok(text)
}

/// An id.
pub(super) fn id<T: Id>(text: &str) -> Result<T, String> {
    T::try_from(line(text)?.to_owned()).map_err(|error| format!("is not a valid name: {error}"))
}

/// A name of our own: lower-case letters, digits and `-`, so that it is a label's value and a part of a group id.
pub(super) fn name<T: Id>(text: &str, longest: usize) -> Result<T, String> {
    let text = line(text)?;
    if let Some(other) = text.chars().find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')) {
        return Err(format!("{} has {other:?}: use only lower-case letters, digits and '-'", quoted(text)));
    }
    if text.starts_with('-') || text.ends_with('-') {
        return Err(format!("{} begins or ends with '-': begin and end with a letter or digit", quoted(text)));
    }
    if text.len() > longest {
        return Err(format!("{} has {} characters, more than {longest}: shorten it", quoted(text), text.len()));
    }
    id(text)
}

/// An instance type, or a prefix of some that ends in `*`.
pub(super) fn type_pattern(text: &str) -> Result<TypePattern, String> {
    let text = line(text)?;
    match text.strip_suffix('*') {
        Some("") => Err("\"*\" is every type: leave instanceTypes out instead".into()),
        Some(prefix) if !prefix.contains('*') => Ok(TypePattern::Prefix(prefix.to_owned())),
        None if !text.contains('*') => id(text).map(TypePattern::Exact),
        _ => Err(format!("{} has '*' before its end: write a whole name, or a prefix such as g6.*", quoted(text))),
    }
}

/// A share in whole hundredths of at most all: `25%`.
pub(super) fn percent(text: &str) -> Result<Percent, String> {
    match thousandths(text).filter(|_| !text.contains('.')) {
        None => Err(format!("{} is not a share: write it like 25%", quoted(text))),
        Some(share @ 0..=1000) => u8::try_from(share / 10).map(Percent).map_err(|error| error.to_string()),
        Some(_) => Err(format!("{} is above 100%: lower it", quoted(text))),
    }
}

/// A share above zero and below all, with at most one decimal: `37.5%`. `cure` says what to do about one that is not.
pub(super) fn discount(text: &str, cure: &str) -> Result<Milli, String> {
    match thousandths(text) {
        None => Err(format!("{} is not a share: write it like 28% or 37.5%", quoted(text))),
        Some(share @ 1..1000) => Ok(Milli(share)),
        Some(_) => Err(format!("{} is not above 0% and below 100%: {cure}", quoted(text))),
    }
}

/// A percentage with at most one decimal, in thousandths of the whole; saturates.
fn thousandths(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%')?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(tenth) || tenth.len() > 1 {
        return None;
    }
    Some(whole.parse::<u32>().unwrap_or(u32::MAX).saturating_mul(10).saturating_add(tenth.parse().ok()?))
}

/// A rate above zero. `cure` says what to do about a rate of zero.
pub(super) fn rate(number: &Number, cure: &str) -> Result<UsdPerHour, String> {
    match UsdPerHour::parse_usd(&number.to_string()) {
        Ok(UsdPerHour::ZERO) => Err(format!("is 0: {cure}")),
        Ok(rate) => Ok(rate),
        Err(MoneyError::Negative(text)) => Err(format!("{text} is negative: {cure}")),
        Err(MoneyError::TooLarge(text)) => Err(format!("{text} is more than a rate can hold: lower it")),
        Err(MoneyError::NotANumber(text)) => Err(format!("{text} is not plain dollars: write it like 12.5")),
    }
}

/// A share of a pool's nodes, which is rounded up and therefore never zero.
pub(super) fn share_of_nodes(text: &str) -> Result<Percent, String> {
    match percent(text)? {
        Percent(0) => Err("is 0%, which no node fits: raise it, or remove it".to_owned()),
        share => Ok(share),
    }
}

/// A factor from `least` to `most`, in thousandths.
pub(super) fn factor(number: &Number, least: u32, most: u32) -> Result<Milli, String> {
    let Some(factor) = Milli::parse(&number.to_string()) else {
        return Err(format!("{number} is not a plain number: write it like 1.3"));
    };
    if factor < Milli(least * 1000) {
        return Err(format!("{number} is below {least}: raise it"));
    }
    if factor > Milli(most * 1000) {
        return Err(format!("{number} is above {most}: lower it"));
    }
    Ok(factor)
}

/// Most work that one GPU may be given: times the GPUs of a node and a million it stays far within 64 bits.
const MAX_WORK: u64 = 1_000_000;

/// How much work a GPU does, in thousandths: above zero.
pub(super) fn work(number: &Number) -> Result<Milli, String> {
    let text = number.to_string();
    match scaled(&text, 3) {
        Some(0) => Err(format!("{text} is zero: write how much one GPU does, from 0.001, or remove the model from the pool")),
        Some(milli) if milli <= MAX_WORK * 1_000 => Ok(Milli(u32::try_from(milli).map_err(|error| error.to_string())?)),
        Some(_) => Err(format!("{text} is above {MAX_WORK}: divide all of them alike, only their proportions count")),
        None if text.starts_with('-') => Err(format!("{text} is negative: write how much work one GPU does")),
        None => Err(format!("{text} is not a plain decimal number: write it like 1.5")),
    }
}

/// Longest name of a label key, and longest value.
const MAX_LABEL: usize = 63;
/// Longest prefix of a label key.
const MAX_LABEL_PREFIX: usize = 253;

/// The key of a label or taint that an operator may set.
///
/// # Errors
/// Why he may not.
pub fn label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if !is_label_word(name) || prefix.is_some_and(|prefix| !is_domain(prefix)) {
        return Err(format!(
            "{} is not a label key: write up to 63 letters, digits, '-', '_' and '.', after at most one prefix such as example.com/",
            quoted(key)
        ));
    }
    let prefix = prefix.unwrap_or_default();
    let is_of_stoker = prefix == "stoker.dev" || prefix.ends_with(".stoker.dev");
    if is_of_stoker || KUBERNETES_DOMAINS.contains(&prefix) || tells_each_capacity_type(key) {
        return Err(format!("{} is set by Stoker or by Kubernetes itself: remove it", quoted(key)));
    }
    Ok(())
}

/// The value of a label or taint; it may be empty.
///
/// # Errors
/// What is wrong with it.
pub fn label_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_label_word(value) {
        return Ok(());
    }
    Err(format!(
        "{} is not a label value: write up to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
        quoted(value)
    ))
}

fn is_label_word(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends_well = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= MAX_LABEL && text.bytes().all(inner) && ends_well(text.bytes().next()) && ends_well(text.bytes().last())
}

fn is_domain(text: &str) -> bool {
    let is_part = |part: &str| {
        part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= MAX_LABEL_PREFIX && text.split('.').all(is_part)
}
