//! How a decision that was made again differs from what was written down: each difference with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// A part of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// What is done.
    Action,
    /// What happened that people may want to know.
    Note,
    /// Why an order was supplied as it was.
    Explanation,
    /// What is remembered.
    Memory,
}

impl Part {
    /// A stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Note => "note",
            Self::Explanation => "explanation",
            Self::Memory => "memory",
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// What differs.
    pub part: Part,
    /// Where in it: an action or note by what it is about, then fields, e.g. `launch record 0: price`.
    pub place: String,
    /// What was written down there; `None` where nothing was.
    pub recorded: Option<Value>,
    /// What is there now; `None` where nothing is.
    pub now: Option<Value>,
    /// The whole action, note or explanation that it is in: as recorded, and now. Of the memory there is none.
    #[serde(skip)]
    pub entry: [Option<Value>; 2],
}

impl Difference {
    /// The text differs, and nothing that can be named: so a decision that differs is never taken for the same.
    pub(super) fn of_text(part: Part, recorded: &str, now: &str) -> Self {
        let [recorded, now] = [recorded, now].map(|text| Some(Value::from(text)));
        Self { part, place: "text".to_owned(), recorded, now, entry: [None, None] }
    }

    /// An action that was left out because it was under way is not planned any more.
    pub(super) fn not_withheld(sum: u32) -> Self {
        let recorded = Some(Value::from(format!("an action with checksum {sum:08x}")));
        Self {
            part: Part::Action,
            place: "planned, and left out as it was under way".to_owned(),
            recorded,
            now: None,
            entry: [None, None],
        }
    }
}

/// `action launch record 0: price: recorded 804800, now 900000`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, place, recorded, now, entry: _ } = self;
        write!(f, "{} {place}: ", part.as_str())?;
        match (recorded, now) {
            (Some(recorded), Some(now)) => write!(f, "recorded {}, now {}", shown(recorded), shown(now)),
            (Some(recorded), None) => write!(f, "recorded {}, not now", shown(recorded)),
            (None, Some(now)) => write!(f, "not recorded, now {}", shown(now)),
            (None, None) => f.write_str("differs"),
        }
    }
}

/// Characters of a value that are shown.
const SHOWN: usize = 160;

/// A value in one line.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The same, cut where it is long.
fn shown(value: &Value) -> String {
    let text = text(value);
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or(&text)),
        None => text,
    }
}

/// What an entry of a list is about: its kind, and the first thing that it names.
fn name(value: &Value) -> String {
    let field = |name: &str| value.get(name).filter(|value| !value.is_null());
    let kind = ["do", "note"].iter().find_map(|tag| field(tag)).map_or_else(String::new, |kind| shown(kind) + " ");
    let subject = ["record", "node", "instance", "order", "group", "pool"].iter().find_map(|name| Some((name, field(name)?)));
    let subject = subject.map_or_else(String::new, |(name, value)| format!("{name} {}", shown(value)));
    format!("{kind}{subject}").trim_end().to_owned()
}

/// The differences of two lists. What both have is none, wherever it stands, unless nothing but the order differs.
pub(super) fn lists(part: Part, recorded: &[Value], now: &[Value], found: &mut Vec<Difference>) {
    let mut added: Vec<&Value> = now.iter().collect();
    let mut gone = Vec::new();
    for value in recorded {
        match added.iter().position(|other| *other == value) {
            Some(at) => drop(added.remove(at)),
            None => gone.push(value),
        }
    }
    if gone.is_empty() && added.is_empty() {
        let names = |values: &[Value]| Some(values.iter().map(|value| Value::from(name(value))).collect());
        let (recorded, now) = (names(recorded), names(now));
        found.push(Difference { part, place: "order".to_owned(), recorded, now, entry: [None, None] });
        return;
    }
    let whole = |place: String, recorded: Option<&Value>, now: Option<&Value>| {
        let entry = [recorded.cloned(), now.cloned()];
        Difference { part, place, recorded: recorded.cloned(), now: now.cloned(), entry }
    };
    for value in gone {
        let about = name(value);
        let Some(at) = added.iter().position(|other| name(other) == about) else {
            found.push(whole(about, Some(value), None));
            continue;
        };
        let (other, first) = (added.remove(at), found.len());
        trees(part, &format!("{about}:"), value, other, found);
        for found in found.iter_mut().skip(first) {
            found.entry = [Some(value.clone()), Some(other.clone())];
        }
    }
    found.extend(added.into_iter().map(|value| whole(name(value), None, Some(value))));
}

/// The differences of two values, each at its field.
pub(super) fn trees(part: Part, place: &str, recorded: &Value, now: &Value, found: &mut Vec<Difference>) {
    if recorded == now {
        return;
    }
    let (Some(left), Some(right)) = (fields(recorded), fields(now)) else {
        let place = place.trim_end_matches(':').to_owned();
        let (recorded, now) = (Some(recorded.clone()), Some(now.clone()));
        found.push(Difference { part, place, recorded, now, entry: [None, None] });
        return;
    };
    let keys: BTreeSet<&Key> = left.keys().chain(right.keys()).collect();
    for key in keys {
        let at = match place {
            "" => key.to_string(),
            place if place.ends_with(':') => format!("{place} {key}"),
            place => format!("{place}.{key}"),
        };
        match (left.get(key), right.get(key)) {
            (Some(recorded), Some(now)) => trees(part, &at, recorded, now, found),
            (recorded, now) => {
                let [recorded, now] = [recorded, now].map(|value| value.map(|value| Value::clone(value)));
                found.push(Difference { part, place: at, recorded, now, entry: [None, None] });
            }
        }
    }
}

/// A field of an object, or a place in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(usize),
    Name(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// What a value is made of; `None` of one that is not made of others. A list of pairs is a map whose keys are no text.
fn fields(value: &Value) -> Option<BTreeMap<Key, &Value>> {
    match value {
        Value::Object(fields) => Some(fields.iter().map(|(name, value)| (Key::Name(name.clone()), value)).collect()),
        Value::Array(values) => {
            let pair = |value: &'_ Value| value.as_array().is_some_and(|pair| pair.len() == 2 && !pair[0].is_number());
            // Whole, and each once: two that look alike would be one, and what differs in it lost.
            let names: BTreeSet<String> = values.iter().filter(|value| pair(value)).map(|value| value[0].to_string()).collect();
            let keyed = !values.is_empty() && names.len() == values.len();
            let key = |at: usize, value: &'_ Value| if keyed { Key::Name(text(&value[0])) } else { Key::Number(at) };
            let entry = |(at, value)| (key(at, value), if keyed { &value[1] } else { value });
            Some(values.iter().enumerate().map(entry).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(recorded: &Value, now: &Value) -> Vec<String> {
        let mut found = Vec::new();
        match (recorded, now) {
            (Value::Array(recorded), Value::Array(now)) => lists(Part::Action, recorded, now, &mut found),
            _ => trees(Part::Memory, "", recorded, now, &mut found),
        }
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_action_is_named_with_the_field_that_differs() {
        let recorded = json!([{ "do": "launch", "record": 0, "price": 7 }, { "do": "hold", "node": "n1", "why": "pods" }]);
        let now = json!([{ "do": "launch", "record": 0, "price": 8 }, { "do": "release", "node": "n1" }]);
        let want = [
            "action launch record 0: price: recorded 7, now 8",
            r#"action hold node n1: recorded {"do":"hold","node":"n1","why":"pods"}, not now"#,
            r#"action release node n1: not recorded, now {"do":"release","node":"n1"}"#,
        ];
        assert_eq!(of(&recorded, &now), want);
    }

    #[test]
    fn another_order_alone_is_a_difference() {
        let [one, two] = [json!({ "do": "hold", "node": "a" }), json!({ "do": "hold", "node": "b" })];
        let want = [r#"action order: recorded ["hold node a","hold node b"], now ["hold node b","hold node a"]"#];
        assert_eq!(of(&json!([one, two]), &json!([two, one])), want);
    }

    #[test]
    fn memory_is_named_down_to_the_field_and_maps_of_pairs_by_their_keys() {
        let recorded = json!({ "records": { "3": { "state": "wanted" } }, "spot": [[{ "zone": "a" }, { "n": 1 }]] });
        let now = json!({ "records": { "3": { "state": "gone" }, "4": {} }, "spot": [[{ "zone": "a" }, { "n": 2 }]] });
        let want = [
            "memory records.3.state: recorded wanted, now gone",
            "memory records.4: not recorded, now {}",
            r#"memory spot.{"zone":"a"}.n: recorded 1, now 2"#,
        ];
        assert_eq!(of(&recorded, &now), want);
        assert_eq!(of(&recorded, &recorded.clone()), [""; 0]);
    }
}
