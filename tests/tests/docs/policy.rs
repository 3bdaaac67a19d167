//! The pages of fields, of the policy and of aws.yaml, from their JSON Schemas.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::cli::{cell, wrapped};
use crate::page::GENERATED;

fn schema() -> Value {
    serde_json::to_value(stoker_service::policy_file::schema()).unwrap()
}

/// The name of every field.
pub(crate) fn fields() -> BTreeSet<String> {
    let schema = schema();
    let blocks = std::iter::once(&schema).chain(schema["$defs"].as_object().unwrap().values());
    blocks.filter_map(|block| block["properties"].as_object()).flat_map(|fields| fields.keys().cloned()).collect()
}

pub(crate) fn reference() -> String {
    let schema = schema();
    let mut page = format!(
        "{GENERATED}\n# Fields of the policy\n\n{}\n",
        wrapped(
            "`stoker policy schema` prints the same as JSON Schema, for your editor. A field without a default may be left out \
             unless it is marked *required*. Unknown fields are rejected. Lengths of time are written like `10m` or `1h30m`, shares \
             like `25%`."
        )
    );
    block(&schema, &schema, "", &mut page);
    page
}

/// The page of aws.yaml.
pub(crate) fn aws_reference() -> String {
    let schema = stoker_aws::config::Config::schema();
    let mut page = format!(
        "{GENERATED}\n# Fields of aws.yaml\n\n{}\n",
        wrapped(
            "What the supplier `kind: aws` makes nodes with. The policy names the file: `suppliers: [{ name: aws, kind: aws, \
             config: /etc/stoker/aws/aws.yaml }]`. `stoker aws schema` prints the same as JSON Schema, for your editor. A field \
             without a default may be left out unless it is marked *required*. Unknown fields are rejected. Stoker reads the file \
             again every half minute: one with errors changes nothing, and no reload ends a machine."
        )
    );
    block(&schema, &schema, "", &mut page);
    let _ = write!(
        page,
        "\nSee also: [on EKS, from nothing](../tasks/eks.md),\n[names, regions and logins](../tasks/aws-names.md), [fields of the policy](policy.md),\n\
         [the example](../../../manifests/examples/aws.yaml).\n"
    );
    page
}

/// A block of the policy, and then those inside it.
fn block(schema: &Value, of: &Value, path: &str, page: &mut String) {
    let required: Vec<&str> = of["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let title = if path.is_empty() { "the file" } else { path.trim_start_matches('.') };
    let about = of["description"].as_str().unwrap_or_default();
    let _ = write!(page, "\n## {title}\n\n{}\n\n", wrapped(about));
    page.push_str("| field | type | what it means | default | example |\n|---|---|---|---|---|\n");
    let mut inside = Vec::new();
    for (name, field) in of["properties"].as_object().unwrap() {
        let (kind, inner) = kind(schema, field);
        let text = field["description"].as_str().unwrap_or_default();
        let (meaning, default) = split_default(text, &field["default"]);
        let default = if required.contains(&name.as_str()) { "*required*".to_owned() } else { default };
        let example = field["examples"][0].as_str().map(|example| format!("`{example}`")).unwrap_or_default();
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {default} | {example} |", cell(&meaning));
        if let Some((inner, marks)) = inner {
            inside.push((format!("{path}.{name}{marks}"), inner));
        }
    }
    for (path, inner) in inside {
        block(schema, inner, &path, page);
    }
}

/// The default, where the description ends with it or the schema has it.
fn split_default(text: &str, default: &Value) -> (String, String) {
    let said = [" Default: ", " Default "].into_iter().find_map(|mark| text.rsplit_once(mark));
    match said {
        Some((meaning, default)) if !default.trim_end_matches('.').contains(". ") => {
            (meaning.to_owned(), cell(default.trim_end_matches('.')))
        }
        _ => {
            let plain = match default {
                Value::Bool(_) | Value::Number(_) => format!("`{default}`"),
                _ => String::new(),
            };
            (text.to_owned(), plain)
        }
    }
}

/// What a field holds, and the block that is in it with what its path gets behind it.
fn kind<'a>(schema: &'a Value, field: &'a Value) -> (String, Option<(&'a Value, &'static str)>) {
    if let Some(name) = field["$ref"].as_str() {
        let of = &schema["$defs"][name.trim_start_matches("#/$defs/")];
        if of["properties"].is_object() {
            return ("block".to_owned(), Some((of, "")));
        }
        return kind(schema, of);
    }
    if let Some(values) = field["oneOf"].as_array() {
        let names: Vec<String> = values.iter().filter_map(|value| value["const"].as_str()).map(|v| format!("`{v}`")).collect();
        if !names.is_empty() {
            return (names.join(", "), None);
        }
    }
    if let Some(several) = field["anyOf"].as_array() {
        let kinds: Vec<_> = several.iter().filter(|of| of["type"] != "null").map(|of| kind(schema, of)).collect();
        let inner = kinds.iter().find_map(|(_, inner)| *inner);
        let names: Vec<String> = kinds.into_iter().map(|(name, _)| name).collect();
        return (names.join(" or "), inner);
    }
    let types: Vec<&str> = match &field["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect(),
        _ => Vec::new(),
    };
    match types.first().copied().unwrap_or("any") {
        "array" => {
            let (of, inner) = kind(schema, &field["items"]);
            (format!("list of {of}"), inner.map(|(inner, _)| (inner, "[]")))
        }
        "object" => {
            let (of, inner) = kind(schema, &field["additionalProperties"]);
            (format!("map to {of}"), inner.map(|(inner, _)| (inner, ".NAME")))
        }
        "string" => ("text".to_owned(), None),
        "boolean" => ("`true`, `false`".to_owned(), None),
        "integer" => ("whole number".to_owned(), None),
        other => (other.to_owned(), None),
    }
}
