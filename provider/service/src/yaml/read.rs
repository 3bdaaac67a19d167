//! From a tree to the JSON value of a type, by the type's schema, past every fault.
//!
//! serde has the last word on whether a value is a `T`; it stops at the first fault, though, and knows no lines. Reading by
//! the schema finds all of them, and leaves out or stands in for what is wrong, so that the rules can judge the rest.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Number, Value};
use stoker_core::base::text::{nearest, quoted};
use stoker_core::policy::{Fault, Path};

use super::faults::{Found, Position};
use super::schema::In;
use super::tree::{Field, Node, Tree};

/// So many fields are named of a mapping that needs none of them.
const MOST_NAMED: usize = 4;

/// What was found on the way.
#[derive(Default)]
pub(super) struct Reader {
    pub found: Vec<Found>,
    /// Places whose value was left out or stood in for: what a rule says of them, or of what they are part of, may be wrong.
    pub doubtful: Vec<Path>,
}

impl Reader {
    fn fault(&mut self, at: Position, path: &Path, message: impl Into<String>) {
        self.doubtful.push(path.clone());
        self.found.push(Found { at, fault: Fault { path: path.clone(), message: message.into() } });
    }

    /// Reads `node`, which is shown at `place`; `None` where nothing of it can be used.
    pub(super) fn read(&mut self, schema: In, node: &Node, place: Position, path: &Path) -> Option<Value> {
        match &node.tree {
            Tree::Refused => {
                self.doubtful.push(path.clone());
                return None;
            }
            Tree::Nothing => {
                let message = if path.segments().is_empty() {
                    format!("is empty{}", to_write(&schema.ways()))
                } else {
                    "has no value: give it one, or remove it".to_owned()
                };
                self.fault(place, path, message);
                return None;
            }
            _ => {}
        }
        let ways = schema.ways();
        let mut fitting: Vec<In> = ways.iter().copied().filter(|way| fits(*way, &node.tree)).collect();
        if let Tree::Map(fields) = &node.tree
            && let Some((key, word, field)) = tag(&fitting, fields)
        {
            let tags: Vec<&str> = fitting.iter().flat_map(|way| way.field(key).map_or_else(Vec::new, In::words)).collect();
            if !tags.contains(&word) {
                self.fault(field.place(), &path.key(key), not_one_of(word, &tags));
                return None;
            }
            fitting.retain(|way| way.field(key).is_some_and(|tag| tag.words().contains(&word)));
        }
        match fitting.as_slice() {
            [] => {
                self.fault(place, path, misfit(&ways, &node.tree));
                None
            }
            [way] => self.read_as(*way, node, place, path),
            several => {
                // The way with the fewest faults is the one that was meant; the first of equals.
                let mut tries = several.iter().map(|way| {
                    let mut reader = Self::default();
                    let value = reader.read_as(*way, node, place, path);
                    (reader, value)
                });
                let first = tries.next()?;
                let fewer =
                    |best: (Self, _), next: (Self, _)| if next.0.found.len() < best.0.found.len() { next } else { best };
                let (reader, value) = tries.fold(first, fewer);
                self.found.extend(reader.found);
                self.doubtful.extend(reader.doubtful);
                value
            }
        }
    }

    /// Reads `node` in the one way whose type it has.
    fn read_as(&mut self, way: In, node: &Node, place: Position, path: &Path) -> Option<Value> {
        match &node.tree {
            Tree::Nothing | Tree::Refused => None,
            Tree::Null => Some(Value::Null),
            Tree::Bool(value) => Some(Value::Bool(*value)),
            Tree::Text(text) => Some(Value::from(text.as_str())),
            Tree::Number(number) => {
                if let Some(message) = out_of_bounds(way, number) {
                    self.fault(place, path, message);
                    return None;
                }
                Some(Value::Number(number.clone()))
            }
            Tree::List(list) => {
                let items = way.items().unwrap_or(In { schema: &Value::Bool(true), ..way });
                // So that the rules can judge its neighbours.
                let stand_in = items.is_mapping().then(|| items.stand_in());
                let mut read: Vec<_> =
                    list.iter().enumerate().map(|(at, node)| self.read(items, node, node.at, &path.index(at))).collect();
                for none in read.iter_mut().filter(|read| read.is_none()) {
                    none.clone_from(&stand_in);
                }
                let read: Option<Vec<Value>> = read.into_iter().collect();
                if read.is_none() {
                    self.doubtful.push(path.clone());
                }
                read.map(Value::Array)
            }
            Tree::Map(fields) => Some(self.map(way, fields, place, path)),
        }
    }

    fn map(&mut self, way: In, fields: &BTreeMap<String, Field>, place: Position, path: &Path) -> Value {
        let mut value = serde_json::Map::new();
        let mut meant = Vec::new();
        for (key, field) in fields {
            let path = path.key(key);
            let Some(schema) = way.field(key).or_else(|| way.further()) else {
                let near = nearest(key, way.fields());
                meant.extend(near);
                self.fault(field.key_at, &path, stranger(near, way));
                continue;
            };
            if let Some(read) = self.read(schema, &field.value, field.place(), &path) {
                value.insert(key.clone(), read);
            }
        }
        for key in way.required() {
            if value.contains_key(key) {
                continue;
            }
            let path = path.key(key);
            self.doubtful.push(path.clone());
            // A key that was misspelt or is wrong has its fault already.
            if !fields.contains_key(key) && !meant.contains(&key) {
                self.fault(place, &path, "is missing: add it");
            }
            value.insert(key.to_owned(), way.field(key).map_or(Value::Null, In::stand_in));
        }
        Value::Object(value)
    }
}

fn stranger(near: Option<&str>, way: In) -> String {
    match near {
        Some(near) => format!("is not a field here: did you mean {near}?"),
        None => format!("is not a field here: known are {}", way.fields().collect::<Vec<_>>().join(", ")),
    }
}

/// Whether a value of this kind can be written in this way at all.
fn fits(way: In, tree: &Tree) -> bool {
    let types = way.types();
    let named = |name: &str| types.is_empty() || types.contains(&name);
    match tree {
        Tree::Nothing | Tree::Refused => false,
        Tree::Null => named("null"),
        Tree::Bool(_) => named("boolean"),
        Tree::Number(number) => named("number") || named("integer") && !number.is_f64(),
        Tree::Text(text) => {
            let words = way.words();
            named("string") && (words.is_empty() || words.contains(&text.as_str()))
        }
        Tree::List(_) => named("array"),
        Tree::Map(_) => named("object"),
    }
}

/// The field by which a mapping says which of several forms it has, if it has one: its key, its word and itself.
fn tag<'f>(ways: &[In<'f>], fields: &'f BTreeMap<String, Field>) -> Option<(&'f str, &'f str, &'f Field)> {
    let [first, _, ..] = ways else { return None };
    let is_tag = |key: &&str| ways.iter().all(|way| way.field(key).is_some_and(|field| field.get("const").is_some()));
    let key = first.fields().find(is_tag)?;
    let field = fields.get(key)?;
    match &field.value.tree {
        Tree::Text(word) => Some((key, word, field)),
        _ => None,
    }
}

fn not_one_of(text: &str, words: &[&str]) -> String {
    let near = nearest(text, words.iter().copied()).map_or_else(String::new, |near| format!(": did you mean {near}?"));
    format!("{} is not one of {}{near}", quoted(text), words.join(", "))
}

/// What to say of a value that can be written in none of these ways.
fn misfit(ways: &[In], tree: &Tree) -> String {
    let words: Vec<&str> = ways.iter().flat_map(|way| way.words()).collect();
    if let (Tree::Text(text), false) = (tree, words.is_empty()) {
        return not_one_of(text, &words);
    }
    let mut wanted: Vec<String> = Vec::new();
    if !words.is_empty() {
        wanted.push(format!("one of {}", words.join(", ")));
    }
    for name in ways.iter().filter(|way| way.words().is_empty()).flat_map(|way| way.types()) {
        let name = match name {
            "string" => "text",
            "integer" => "a whole number",
            "number" => "a number",
            "boolean" => "true or false",
            "array" => "a list",
            "object" => "a mapping",
            // Null is what an absent field is; nobody needs to be told to write it.
            _ => continue,
        };
        if !wanted.iter().any(|known| known == name) {
            wanted.push(name.to_owned());
        }
    }
    let is = |name: &str| wanted.iter().any(|wanted| wanted == name);
    let (written, cure) = match tree {
        Tree::Nothing | Tree::Refused => ("nothing".to_owned(), String::new()),
        Tree::Null => ("null".to_owned(), String::new()),
        Tree::Bool(value) => (value.to_string(), if is("text") { ": put it in quotes".into() } else { String::new() }),
        Tree::Number(number) => {
            // Text that has a form of its own, such as a length of time, is not mended by quotes.
            let example = ways.iter().find_map(|way| way.example());
            let cure = match example {
                // Without quotes YAML reads it as a number.
                Some(example) if is("text") && example.parse::<f64>().is_ok() => {
                    format!(": write it in quotes, like \"{example}\"")
                }
                Some(example) if is("text") => format!(": write it like {example}"),
                _ if is("text") => ": put it in quotes".to_owned(),
                _ => String::new(),
            };
            (number.to_string(), cure)
        }
        Tree::Text(text) => {
            let word = wanted == ["a list"]
                && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
                && text.len() < 40;
            let quotes = (is("a whole number") || is("a number")) && text.parse::<f64>().is_ok();
            let cure = match (word, quotes) {
                (true, _) => format!(": write [{text}]"),
                (_, true) => ": remove the quotes".to_owned(),
                _ => String::new(),
            };
            (format!("the text {}", quoted(text)), cure)
        }
        Tree::List(_) => ("a list".to_owned(), String::new()),
        Tree::Map(_) => ("a mapping".to_owned(), String::new()),
    };
    let cure = match wanted.as_slice() {
        [only] if cure.is_empty() && only == "a mapping" => to_write(ways),
        [only] if cure.is_empty() && only == "a list" => ": start each element with -".to_owned(),
        _ => cure,
    };
    format!("must be {}, is {written}{cure}", wanted.join(" or "))
}

/// The fields to write of a mapping that is not there: those that none of its ways goes without, else any.
fn to_write(ways: &[In]) -> String {
    let ways: Vec<&In> = ways.iter().filter(|way| way.fields().next().is_some()).collect();
    let Some((first, rest)) = ways.split_first() else { return ": write it as key: value".to_owned() };
    let needed: Vec<&str> =
        first.required().filter(|key| rest.iter().all(|way| way.required().any(|other| other == *key))).collect();
    if needed.is_empty() {
        return format!(": write fields of it, such as {}", first.fields().take(MOST_NAMED).collect::<Vec<_>>().join(", "));
    }
    let word = if needed.len() == 1 { "field" } else { "fields" };
    format!(": write its {word} {}", needed.join(", "))
}

fn out_of_bounds(way: In, number: &Number) -> Option<String> {
    let is = |bound: &Value, side| bound.as_number().and_then(|bound| order(number, bound)) == Some(side);
    let below = way.get("minimum").filter(|least| is(least, Ordering::Less));
    let above = way.get("maximum").filter(|most| is(most, Ordering::Greater));
    match (below, above) {
        (Some(least), _) => Some(format!("{number} is below {least}: raise it")),
        (_, Some(most)) => Some(format!("{number} is above {most}: lower it")),
        (None, None) => None,
    }
}

/// How two numbers compare; whole ones exactly.
fn order(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}
