//! Label and field selectors: `key`, `key=value` and `key!=value`, with commas between.

use serde_json::Value;

use crate::call::Call;

/// Whether a call selects anything at all.
pub(crate) fn is_selective(call: &Call) -> bool {
    call.param("labelSelector").or(call.param("fieldSelector")).is_some()
}

/// Whether a list or watch with that query tells of the object.
pub(crate) fn selects(call: &Call, object: &Value) -> bool {
    let label = |key: &str| object["metadata"]["labels"][key].as_str().map(ToOwned::to_owned);
    // A field that is not set is an empty one.
    let field = |path: &str| {
        let value = path.split('.').fold(object, |value, key| &value[key]);
        Some(value.as_str().unwrap_or_default().to_owned())
    };
    holds(call.param("labelSelector"), label) && holds(call.param("fieldSelector"), field)
}

fn holds(selector: Option<&str>, value: impl Fn(&str) -> Option<String>) -> bool {
    let terms = selector.into_iter().flat_map(|selector| selector.split(',')).filter(|term| !term.is_empty());
    terms.into_iter().all(|term| match (term.split_once("!="), term.split_once('=')) {
        (Some((key, unwanted)), _) => value(key).as_deref() != Some(unwanted),
        (None, Some((key, wanted))) => value(key).as_deref() == Some(wanted.trim_start_matches('=')),
        (None, None) => value(term).is_some(),
    })
}
