//! A YAML document as a tree in which every value and key knows its place in the text.
//!
//! Of YAML this reads what a careful file needs: mappings with text keys, lists, words, numbers and aliases of whole values.
//! Tags, merge keys and further documents are refused by name, and so is what could blow up: depth, and aliases of aliases.

use std::collections::{BTreeMap, HashMap};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::Number;
use stoker_core::base::text::quoted;
use stoker_core::policy::{Fault, Path, Segment};

use super::faults::{Found, Position};
use super::scalar;

/// Deepest nesting: the policy's own is seven, and each level costs stack.
const MAX_DEPTH: usize = 64;
/// Most values of a document, an alias counted as often as it is used: some ten megabytes. A policy of a thousand pools has 40,000.
const MAX_VALUES: usize = 250_000;

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Where it begins.
    pub at: Position,
    /// What it is.
    pub tree: Tree,
}

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    /// Nothing is written where a value should be.
    Nothing,
    /// What is written cannot be read; its fault is known already.
    Refused,
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(BTreeMap<String, Field>),
}

/// A field of a mapping.
#[derive(Debug, Clone)]
pub(super) struct Field {
    /// Where its key begins.
    pub key_at: Position,
    /// Its value.
    pub value: Node,
}

impl Field {
    /// Where a fault of the value is shown: at the value, or at the key of one that takes lines of its own.
    pub(super) fn place(&self) -> Position {
        match self.value.tree {
            Tree::Nothing | Tree::List(_) | Tree::Map(_) => self.key_at,
            _ => self.value.at,
        }
    }
}

impl Node {
    /// Where `path` is shown; where it leads nowhere, the place of the last value that it passes.
    pub(super) fn place_of(&self, path: &Path) -> Position {
        let (mut node, mut place) = (self, self.at);
        for segment in path.segments() {
            (node, place) = match (segment, &node.tree) {
                (Segment::Key(key), Tree::Map(fields)) => match fields.get(key) {
                    Some(field) => (&field.value, field.place()),
                    None => return place,
                },
                (Segment::Index(index), Tree::List(list)) => match list.get(*index) {
                    Some(element) => (element, element.at),
                    None => return place,
                },
                _ => return place,
            };
        }
        place
    }
}

/// A document, as far as it could be read, and what is wrong with it as YAML.
pub(super) struct Document {
    /// The value; `None` where the text breaks off being YAML.
    pub root: Option<Node>,
    pub found: Vec<Found>,
}

/// Reads the only document of `text`.
pub(super) fn parse(text: &str) -> Document {
    let mut builder = Builder::new(text);
    let root = builder.document().ok();
    Document { root, found: builder.found }
}

/// Reads every document of `text`, whatever is wrong in it; `None` where it breaks off being YAML.
pub(super) fn parse_all(text: &str) -> Option<Vec<Node>> {
    Builder::new(text).documents().ok()
}

/// Where to look in a text that breaks off being YAML.
const TO_LOOK_AT: &str = "look at the indentation, brackets and quotes here and above";
/// The same where a value begins as a cron expression may, and text in YAML may not.
const TO_QUOTE: &str = "put text that begins with * or @ in quotes, as in cron: \"*/5 * * * *\"";

/// Whether a value of a line begins with a sign that YAML keeps for itself and cron expressions begin with.
fn has_bare_sign(line: &str) -> bool {
    [": *", "- *", "[*", ": @", "- @", "[@"].iter().any(|begin| line.contains(begin))
}

/// Reading cannot go on; the fault is in [`Builder::found`].
struct Stop;

/// What an alias stands for.
struct Anchored {
    node: Node,
    values: usize,
    depth: usize,
}

struct Builder<'t> {
    text: &'t str,
    events: Parser<'t, StrInput<'t>>,
    found: Vec<Found>,
    anchors: HashMap<usize, Anchored>,
    values: usize,
}

impl<'t> Builder<'t> {
    fn new(text: &'t str) -> Self {
        let options = granit_parser::options! {
            emit_comments: false,
            emit_unresolved_aliases: true,
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        let events = Parser::new_from_str_with_options(text, options);
        Self { text, events, found: Vec::new(), anchors: HashMap::new(), values: 0 }
    }

    fn fault(&mut self, at: Position, path: &Path, message: impl Into<String>) {
        self.found.push(Found { at, fault: Fault { path: path.clone(), message: message.into() } });
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Stop> {
        match self.events.next() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => {
                let message = if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
                    too_deep()
                } else {
                    let line = self.text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
                    let cure = if has_bare_sign(line) { TO_QUOTE } else { TO_LOOK_AT };
                    format!("is not YAML: {}; {cure}", error.info())
                };
                self.fault(Position::of(*error.marker()), &Path::root(), message);
                Err(Stop)
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Node, Stop> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if root.is_some() => {
                    let message = "has a second document here: keep one";
                    self.fault(Position::of(span.start), &Path::root(), message);
                    break;
                }
                event if event.is_node() => root = Some(self.node(event, span, &Path::root(), 0)?),
                _ => {}
            }
        }
        let nothing = || Node { at: Position { line: 1, column: 1 }, tree: Tree::Nothing };
        Ok(root.unwrap_or_else(nothing))
    }

    fn documents(&mut self) -> Result<Vec<Node>, Stop> {
        let mut roots = Vec::new();
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(roots),
                (event, span) if event.is_node() => roots.push(self.node(event, span, &Path::root(), 0)?),
                _ => {}
            }
        }
    }

    /// Reads the value that begins with `event`.
    fn node(&mut self, event: Event<'t>, span: Span, path: &Path, depth: usize) -> Result<Node, Stop> {
        let at = Position::of(span.start);
        let before = self.values;
        self.count(1, at, path)?;
        if depth > MAX_DEPTH {
            self.fault(at, &Path::root(), too_deep());
            return Err(Stop);
        }
        let tag = event.tag().map(|tag| format!("{}{}", tag.original_handle(), tag.suffix()));
        let anchor = event.anchor_id();
        let tree = match event {
            Event::Scalar(_, ScalarStyle::Plain, ..) if span.start.index() == span.end.index() => Tree::Nothing,
            Event::Scalar(text, ScalarStyle::Plain, ..) => scalar::resolve(&text).unwrap_or_else(|message| {
                self.fault(at, path, message);
                Tree::Refused
            }),
            Event::Scalar(text, ..) => Tree::Text(text.into_owned()),
            Event::SequenceStart(..) => self.list(path, depth)?,
            Event::MappingStart(..) => self.map(path, depth)?,
            Event::Alias(id) => return self.alias(id, at, path, depth),
            Event::UnresolvedAlias(name) => {
                let message = format!("names the anchor {}, which no line above has: {TO_QUOTE}", quoted(&name));
                self.fault(at, path, message);
                Tree::Refused
            }
            // No other event begins a value.
            _ => Tree::Refused,
        };
        let tree = match tag {
            None => tree,
            Some(tag) => {
                self.fault(at, path, format!("has the tag {}: tags are not read here, remove it", quoted(&tag)));
                Tree::Refused
            }
        };
        let node = Node { at, tree };
        if let Some(id) = anchor {
            let values = self.values - before;
            // The copy kept for aliases takes as much memory as the value itself.
            self.count(values, at, path)?;
            let depth = height(&node);
            self.anchors.insert(id, Anchored { node: node.clone(), values, depth });
        }
        Ok(node)
    }

    fn count(&mut self, values: usize, at: Position, path: &Path) -> Result<(), Stop> {
        self.values = self.values.saturating_add(values);
        if self.values <= MAX_VALUES {
            return Ok(());
        }
        self.fault(at, path, format!("brings the file above {MAX_VALUES} values, aliases counted as often as they are used"));
        Err(Stop)
    }

    fn alias(&mut self, id: usize, at: Position, path: &Path, depth: usize) -> Result<Node, Stop> {
        let Some(anchored) = self.anchors.get(&id) else {
            self.fault(at, path, "is an alias inside what it names: remove it");
            return Ok(Node { at, tree: Tree::Refused });
        };
        let (node, values, below) = (anchored.node.tree.clone(), anchored.values, anchored.depth);
        if depth + below > MAX_DEPTH {
            self.fault(at, path, format!("is an alias that nests more than {MAX_DEPTH} levels deep: flatten it"));
            return Err(Stop);
        }
        self.count(values, at, path)?;
        Ok(Node { at, tree: node })
    }

    fn list(&mut self, path: &Path, depth: usize) -> Result<Tree, Stop> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(Tree::List(list)),
                (event, span) => {
                    let path = path.index(list.len());
                    list.push(self.node(event, span, &path, depth + 1)?);
                }
            }
        }
    }

    fn map(&mut self, path: &Path, depth: usize) -> Result<Tree, Stop> {
        let mut fields: BTreeMap<String, Field> = BTreeMap::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd | Event::StreamEnd, _) => return Ok(Tree::Map(fields)),
                key => key,
            };
            let key = self.key(event, span, path, depth)?;
            let value_path = key.as_ref().map_or_else(|| path.clone(), |(key, _)| path.key(key));
            let (event, span) = self.next()?;
            let value = self.node(event, span, &value_path, depth + 1)?;
            let Some((key, key_at)) = key else { continue };
            if let Some(first) = fields.get(&key) {
                let message = format!("is given twice, first on line {}: keep one", first.key_at.line);
                self.fault(key_at, &value_path, message);
            } else {
                fields.insert(key, Field { key_at, value });
            }
        }
    }

    /// Reads a key; nothing where it is no text, which is a fault.
    fn key(&mut self, event: Event<'t>, span: Span, path: &Path, depth: usize) -> Result<Option<(String, Position)>, Stop> {
        let merges = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
        let key = self.node(event, span, path, depth + 1)?;
        let message = match key.tree {
            Tree::Text(_) if merges => "has the merge key <<, which is not read here: write its fields out".to_owned(),
            Tree::Text(text) => return Ok(Some((text, key.at))),
            Tree::Refused => return Ok(None),
            Tree::Nothing => "has a value without a key: write one before the ':'".to_owned(),
            Tree::Null => "has the key null, which is not text: put it in quotes".to_owned(),
            Tree::Bool(value) => format!("has the key {value}, which is not text: put it in quotes"),
            Tree::Number(number) => format!("has the key {number}, which is not text: put it in quotes"),
            Tree::List(_) => "has a list as a key: write text".to_owned(),
            Tree::Map(_) => "has a mapping as a key: write text".to_owned(),
        };
        self.fault(key.at, path, message);
        Ok(None)
    }
}

fn too_deep() -> String {
    format!("is nested more than {MAX_DEPTH} levels deep here: flatten it")
}

/// How many levels a value has below itself.
fn height(node: &Node) -> usize {
    match &node.tree {
        Tree::List(list) => list.iter().map(height).max().map_or(0, |below| below + 1),
        Tree::Map(fields) => fields.values().map(|field| height(&field.value)).max().map_or(0, |below| below + 1),
        _ => 0,
    }
}
