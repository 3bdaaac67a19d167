//! The JSON Schema of a type, and the few look-ups that reading by it needs.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// The JSON Schema of `T`, for editors and for [`super::load`].
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(bound_integers));
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Says the largest value of 32-bit integers, which the generator leaves to `format`.
fn bound_integers(schema: &mut Schema) {
    let bounds = match schema.get("format").and_then(Value::as_str) {
        Some("uint32") => [("minimum", 0), ("maximum", i64::from(u32::MAX))],
        Some("int32") => [("minimum", i64::from(i32::MIN)), ("maximum", i64::from(i32::MAX))],
        _ => return,
    };
    for (bound, value) in bounds {
        schema.ensure_object().entry(bound).or_insert_with(|| value.into());
    }
}

/// A schema together with the document whose definitions it refers to.
#[derive(Clone, Copy)]
pub(super) struct In<'s> {
    pub root: &'s Value,
    pub schema: &'s Value,
}

impl<'s> In<'s> {
    pub(super) fn root(root: &'s Value) -> Self {
        Self { root, schema: root }
    }

    fn at(self, schema: &'s Value) -> Self {
        Self { schema, ..self }
    }

    pub(super) fn get(self, keyword: &str) -> Option<&'s Value> {
        self.schema.get(keyword)
    }

    /// Every way in which a value may be written: references followed, `anyOf` and `oneOf` laid out.
    pub(super) fn ways(self) -> Vec<Self> {
        if let Some(target) = self.get("$ref").and_then(Value::as_str) {
            let pointer = target.strip_prefix('#').unwrap_or(target);
            return self.root.pointer(pointer).map_or_else(Vec::new, |target| self.at(target).ways());
        }
        match self.get("anyOf").or_else(|| self.get("oneOf")).and_then(Value::as_array) {
            Some(branches) => branches.iter().flat_map(|branch| self.at(branch).ways()).collect(),
            None => vec![self],
        }
    }

    /// The JSON types that this way allows; none named is any.
    pub(super) fn types(self) -> Vec<&'s str> {
        match self.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// The only words that this way allows.
    pub(super) fn words(self) -> Vec<&'s str> {
        match (self.get("const"), self.get("enum")) {
            (Some(Value::String(word)), _) => vec![word],
            (_, Some(Value::Array(words))) => words.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn items(self) -> Option<Self> {
        self.get("items").map(|items| self.at(items))
    }

    pub(super) fn field(self, key: &str) -> Option<Self> {
        self.get("properties").and_then(|fields| fields.get(key)).map(|field| self.at(field))
    }

    pub(super) fn fields(self) -> impl Iterator<Item = &'s str> {
        self.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).map(String::as_str)
    }

    pub(super) fn required(self) -> impl Iterator<Item = &'s str> {
        self.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// What further keys may hold; `None` where there may be none.
    pub(super) fn further(self) -> Option<Self> {
        static ANYTHING: Value = Value::Bool(true);
        match self.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.at(schema)),
            None => Some(self.at(&ANYTHING)),
        }
    }

    /// Whether it is a mapping, in every way.
    pub(super) fn is_mapping(self) -> bool {
        let ways = self.ways();
        !ways.is_empty() && ways.iter().all(|way| way.types() == ["object"])
    }

    /// How a text of this form may look, where it has a form of its own.
    pub(super) fn example(self) -> Option<&'s str> {
        self.get("examples")?.as_array()?.first()?.as_str()
    }

    /// Some value of this form: it stands in for one that could not be read, so that the rest can still be judged.
    pub(super) fn stand_in(self) -> Value {
        let Some(way) = self.ways().into_iter().next() else { return Value::Null };
        if let Some(word) = way.words().first() {
            return Value::from(*word);
        }
        match way.types().first() {
            Some(&"object") => {
                let field = |key| (String::from(key), way.field(key).map_or(Value::Null, Self::stand_in));
                Value::Object(way.required().map(field).collect())
            }
            Some(&"array") => Value::Array(Vec::new()),
            Some(&"string") => Value::from(""),
            Some(&("integer" | "number")) => way.get("minimum").cloned().unwrap_or_else(|| 0.into()),
            Some(&"boolean") => Value::Bool(false),
            _ => Value::Null,
        }
    }
}
