//! Edits of a YAML text: one value is set or added, and every other line stays as it is, comments too.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};
use serde_json::Value;
use stoker_core::policy::{Path, Segment};

use super::scalar;
use super::tree::Tree;

/// What is changed of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// The field there becomes this.
    Set(Path, Value),
    /// The list there gets this as its last element.
    Add(Path, Value),
}

/// The text with an edit; `None` where its place cannot be found or has a form that is not edited, such as an alias. Whoever edits reads the
/// result, and compares it with what was meant.
pub fn edit(text: &str, edit: &Edit) -> Option<String> {
    let root = Place::of(text)?;
    match edit {
        Edit::Set(path, value) => set(text, &root, path.segments(), value),
        Edit::Add(path, value) => match root.at(path.segments()) {
            Some(Place { form: Form::List(elements), range, is_flow }) => match elements.last() {
                Some(last) if *is_flow => Some(inserted(text, last.range.end, &format!(", {}", flow(value)))),
                Some(last) => {
                    let dash = text.get(..last.range.start)?.rfind('-')?;
                    let line = format!("\n{}- {}", indent(text, dash)?, flow(value));
                    Some(inserted(text, end_of_line(text, last.range.end), &line))
                }
                None => Some(replaced(text, range.clone(), &format!("[{}]", flow(value)))),
            },
            Some(_) => None,
            None => set(text, &root, path.segments(), &Value::Array(vec![value.clone()])),
        },
    }
}

fn set(text: &str, root: &Place, path: &[Segment], value: &Value) -> Option<String> {
    // The deepest mapping on the way that is there.
    let there = (0..path.len()).rev().find_map(|depth| Some((depth, root.at(path.get(..depth)?)?)))?;
    let (depth, Place { form: Form::Map(fields), range, is_flow }) = there else { return None };
    let Segment::Key(key) = path.get(depth)? else { return None };
    if let Some(field) = fields.iter().find(|field| field.key == *key) {
        let colon = field.key_range.end + text.get(field.key_range.end..)?.find(':')? + 1;
        return (depth + 1 == path.len()).then(|| replaced(text, colon..field.value.range.end, &format!(" {}", flow(value))));
    }
    // What is below it is not there either.
    let mut below = value.clone();
    for segment in path.get(depth + 1..)?.iter().rev() {
        let Segment::Key(key) = segment else { return None };
        below = Value::Object([(key.clone(), below)].into_iter().collect());
    }
    let written = format!("{key}: {}", flow(&below));
    match (fields.first(), fields.last()) {
        (Some(_), Some(last)) if *is_flow => Some(inserted(text, last.value.range.end, &format!(", {written}"))),
        (Some(first), Some(last)) => {
            let line = format!("\n{}{written}", indent(text, first.key_range.start)?);
            Some(inserted(text, end_of_line(text, last.value.range.end), &line))
        }
        _ => Some(replaced(text, range.clone(), &format!("{{ {written} }}"))),
    }
}

/// Blanks up to the column of a place.
fn indent(text: &str, at: usize) -> Option<String> {
    let line = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    Some(" ".repeat(text.get(line..at)?.chars().count()))
}

/// Where the line of a place ends; a comment after a value stays beside it.
fn end_of_line(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |newline| at + newline)
}

fn inserted(text: &str, at: usize, what: &str) -> String {
    replaced(text, at..at, what)
}

fn replaced(text: &str, range: Range<usize>, what: &str) -> String {
    let mut edited = text.to_owned();
    edited.replace_range(range, what);
    edited
}

/// A value in YAML's flow style, on one line.
pub fn flow(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => word(text),
        Value::Array(elements) => format!("[{}]", elements.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{}: {}", word(key), flow(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}

/// A text as YAML reads it back, in quotes where it would be something else without.
fn word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.-/%+".contains(letter);
    let is_safe = text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.chars().all(is_plain);
    match scalar::resolve(text) {
        Ok(Tree::Text(same)) if is_safe && same == text => same,
        // JSON's quotes are YAML's.
        _ => Value::String(text.to_owned()).to_string(),
    }
}

/// Where a value stands, in bytes.
#[derive(Debug)]
struct Place {
    range: Range<usize>,
    form: Form,
    /// Whether it is in brackets.
    is_flow: bool,
}

#[derive(Debug)]
enum Form {
    Scalar,
    List(Vec<Place>),
    Map(Vec<Field>),
}

#[derive(Debug)]
struct Field {
    key: String,
    key_range: Range<usize>,
    value: Place,
}

impl Place {
    /// The only document of a text; `None` where it is none, or has anchors: what is written once stands in several places then.
    fn of(text: &str) -> Option<Self> {
        let mut events = Parser::new_from_str_with_options(text, granit_parser::options! { emit_comments: false });
        loop {
            let (event, span) = events.next()?.ok()?;
            if event.is_node() {
                return Self::read(&mut events, &event, span.byte_range()?, 0);
            }
        }
    }

    fn read<'t>(
        events: &mut impl Iterator<Item = Result<(Event<'t>, granit_parser::Span), impl Sized>>,
        event: &Event<'t>,
        range: Range<usize>,
        depth: usize,
    ) -> Option<Self> {
        // Files of greater depth are refused before.
        if depth > 64 || event.anchor_id().is_some() {
            return None;
        }
        let is_flow =
            matches!(event, Event::SequenceStart(StructureStyle::Flow, ..) | Event::MappingStart(StructureStyle::Flow, ..));
        let mut end = range.end;
        let form = match event {
            Event::Scalar(_, ScalarStyle::Plain | ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted, ..) => Form::Scalar,
            Event::SequenceStart(..) => {
                let mut elements = Vec::new();
                loop {
                    let (event, span) = events.next()?.ok()?;
                    if matches!(event, Event::SequenceEnd) {
                        end = if is_flow {
                            span.byte_range()?.end
                        } else {
                            elements.last().map_or(end, |last: &Self| last.range.end)
                        };
                        break Form::List(elements);
                    }
                    elements.push(Self::read(events, &event, span.byte_range()?, depth + 1)?);
                }
            }
            Event::MappingStart(..) => {
                let mut fields: Vec<Field> = Vec::new();
                loop {
                    let (event, span) = events.next()?.ok()?;
                    let key = match event {
                        Event::MappingEnd => {
                            end = if is_flow {
                                span.byte_range()?.end
                            } else {
                                fields.last().map_or(end, |last| last.value.range.end)
                            };
                            break Form::Map(fields);
                        }
                        Event::Scalar(key, ..) => key.into_owned(),
                        _ => return None,
                    };
                    let key_range = span.byte_range()?;
                    let (event, span) = events.next()?.ok()?;
                    let value = Self::read(events, &event, span.byte_range()?, depth + 1)?;
                    fields.push(Field { key, key_range, value });
                }
            }
            _ => return None,
        };
        Some(Self { range: range.start..end, form, is_flow })
    }

    fn at(&self, path: &[Segment]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        let next = match (first, &self.form) {
            (Segment::Key(key), Form::Map(fields)) => &fields.iter().find(|field| field.key == *key)?.value,
            (Segment::Index(index), Form::List(elements)) => elements.get(*index)?,
            _ => return None,
        };
        next.at(rest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "\
# what we allow
pools:
- name: serving   # do not rename
  gpu: { models: [L4], count: 1 }
  where:
    clouds: [aws] # ours
    regions:
    - us-east-1
- { name: dev, gpu: { models: [L4] } }
commitments:
- { name: ri-1 }

# the end
";

    fn pool(index: usize) -> Path {
        Path::root().key("pools").index(index)
    }

    fn with(edits: &[Edit]) -> String {
        edits.iter().fold(TEXT.to_owned(), |text, one| edit(&text, one).unwrap_or_else(|| panic!("{one:?}")))
    }

    #[test]
    fn a_value_is_set_and_all_else_stays() {
        let text = with(&[
            Edit::Add(pool(0).key("gpu").key("models"), json!("A100")),
            Edit::Set(pool(0).key("gpu").key("count"), json!([1, 2])),
            Edit::Add(pool(0).key("where").key("regions"), json!("us-west-2")),
            Edit::Set(pool(0).key("capacity").key("prefer"), json!(["spot", "on-demand"])),
            Edit::Set(pool(1).key("sharing"), json!({ "timeSlicing": 4 })),
            Edit::Add(Path::root().key("commitments"), json!({ "name": "ri 2", "nodes": 1 })),
            Edit::Set(Path::root().key("budget"), json!({ "usdPerHour": "7" })),
        ]);
        assert_eq!(
            text,
            "\
# what we allow
pools:
- name: serving   # do not rename
  gpu: { models: [L4, A100], count: [1, 2] }
  where:
    clouds: [aws] # ours
    regions:
    - us-east-1
    - us-west-2
  capacity: { prefer: [spot, on-demand] }
- { name: dev, gpu: { models: [L4] }, sharing: { timeSlicing: 4 } }
commitments:
- { name: ri-1 }
- { name: \"ri 2\", nodes: 1 }
budget: { usdPerHour: \"7\" }

# the end
"
        );
    }

    /// A block becomes one line; a list that is missing is made.
    #[test]
    fn blocks_are_replaced_and_lists_made() {
        let text = with(&[
            Edit::Set(pool(0).key("where"), json!({ "clouds": ["gcp"] })),
            Edit::Add(pool(0).key("instanceTypes"), json!("g6.xlarge")),
        ]);
        assert!(
            text.contains("  gpu: { models: [L4], count: 1 }\n  where: { clouds: [gcp] }\n  instanceTypes: [g6.xlarge]\n- {"),
            "{text}"
        );
    }

    #[test]
    fn what_has_no_place_is_not_edited() {
        for (text, path) in [
            (TEXT, pool(7).key("name")),
            (TEXT, pool(0).key("name").key("x")),
            ("pools: &a [1]\nmore: *a\n", Path::root().key("x")),
            ("a: |\n  text\n", Path::root().key("a")),
            ("a: [1", Path::root().key("a")),
            ("", Path::root().key("a")),
        ] {
            assert_eq!(edit(text, &Edit::Set(path.clone(), json!(1))), None, "{path} in {text:?}");
        }
        assert_eq!(edit(TEXT, &Edit::Add(pool(0).key("gpu"), json!(1))), None);
    }

    #[test]
    fn words_that_yaml_reads_otherwise_are_in_quotes() {
        let words = ["L4", "g6.xlarge", "30m", "true", "1.5", "null", "a: b", "*", "", "2026-12-01T00:00:00Z"];
        let written = "[L4, g6.xlarge, 30m, \"true\", \"1.5\", \"null\", \"a: b\", \"*\", \"\", \"2026-12-01T00:00:00Z\"]";
        assert_eq!(flow(&json!(words)), written);
    }
}
