//! Label and field selectors: `key=value` and `key!=value`, with commas between.

use std::collections::BTreeMap;

use serde_json::Value;

/// Whether a list or watch with that query tells of the object.
pub(super) fn selects(query: &BTreeMap<String, String>, object: &Value) -> bool {
    let label = |key: &str| object["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
    let field = |path: &str| {
        let value = path.split('.').fold(object, |value, key| &value[key]);
        value.as_str().unwrap_or_default().to_owned()
    };
    holds(query.get("labelSelector"), label) && holds(query.get("fieldSelector"), field)
}

fn holds(selector: Option<&String>, value: impl Fn(&str) -> String) -> bool {
    let terms = selector.into_iter().flat_map(|selector| selector.split(',')).filter(|term| !term.is_empty());
    terms.into_iter().all(|term| match term.split_once("!=") {
        Some((key, unwanted)) => value(key) != unwanted,
        None => term.split_once('=').is_some_and(|(key, wanted)| value(key) == wanted.trim_start_matches('=')),
    })
}
