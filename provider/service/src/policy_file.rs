//! The policy file: from text to a policy, or to every fault with its line.

use stoker_core::market::price::PriceBook;
use stoker_core::policy::{Fault, Policy, RawPolicy, check_against_prices, doubts};

use crate::yaml::{self, Faults, Loaded};

pub mod promql;
#[cfg(test)]
mod tests;

use promql::check_queries;

/// Reads a policy. With a price book, names that it does not know are faults too: a misspelt one would buy nothing, for ever.
///
/// # Errors
/// Every fault, by line. `file_name` is only shown.
pub fn parse(file_name: &str, text: &str, book: Option<&PriceBook>) -> Result<Policy, Faults> {
    load(file_name, text, book, |_| Vec::new()).map(|read| read.value)
}

/// Reads a policy with the place of each of its parts, and tells what of it may not be meant, by line too. `more` finds faults that do
/// not follow from the text alone.
///
/// # Errors
/// As of [`parse`].
pub fn parse_with_doubts(
    file_name: &str,
    text: &str,
    book: Option<&PriceBook>,
    more: impl FnOnce(&RawPolicy) -> Vec<Fault>,
) -> Result<(Loaded<Policy>, Faults), Faults> {
    let read = load(file_name, text, book, more)?;
    let doubts = read.told(file_name, text, doubts(&read.value));
    Ok((read, doubts))
}

fn load(
    file_name: &str,
    text: &str,
    book: Option<&PriceBook>,
    more: impl FnOnce(&RawPolicy) -> Vec<Fault>,
) -> Result<Loaded<Policy>, Faults> {
    yaml::load_checked(file_name, text, |raw: &RawPolicy| {
        let (policy, mut faults) = match Policy::try_from_raw(raw) {
            Ok(policy) => (Some(policy), Vec::new()),
            Err(faults) => (None, faults),
        };
        faults.extend(check_queries(raw));
        faults.extend(more(raw));
        let told = faults.len();
        for unknown in book.map(|book| check_against_prices(raw, book)).unwrap_or_default() {
            // A name that cannot be one is unknown as well; once is enough.
            if !faults.iter().take(told).any(|fault| fault.path == unknown.path) {
                faults.push(unknown);
            }
        }
        policy.filter(|_| faults.is_empty()).ok_or(faults)
    })
}

/// The JSON Schema of the policy file, for editors.
pub fn schema() -> serde_json::Value {
    yaml::schema_of::<RawPolicy>()
}

/// A policy to start from, explained field by field; Stoker runs on it when it is given none.
pub fn example() -> &'static str {
    include_str!("../../../manifests/examples/policy.yaml")
}
