//! The objects of the shipped manifests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

/// An object of a manifest.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its file, from `manifests/` on.
    pub file: String,
    /// The object.
    pub value: Value,
}

impl Object {
    /// The text at a JSON pointer; empty where there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The list at a JSON pointer; empty where there is none.
    pub fn list(&self, pointer: &str) -> &[Value] {
        self.value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

/// The folder of the manifests.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")
}

/// Every API object of the manifests, by file and in the order of each file. Examples and scheduler
/// profiles are read by programs; the chart has the templates of these files.
///
/// # Errors
/// When a file cannot be read.
pub fn objects() -> anyhow::Result<Vec<Object>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        if path.is_dir() && !["chart", "examples", "scheduler"].iter().any(|other| path.ends_with(other)) {
            for file in fs::read_dir(path)? {
                files.push(file?.path());
            }
        }
    }
    files.retain(|path| path.extension().is_some_and(|is| is == "yaml"));
    files.sort();
    let mut objects = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path)?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(|| path.display().to_string())?;
        let file = path.strip_prefix(folder())?.display().to_string();
        objects.extend(documents.into_iter().map(|value| Object { file: file.clone(), value }));
    }
    Ok(objects)
}

/// A rule of a shipped role.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its file, from `manifests/` on.
    pub file: String,
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// The role's name.
    pub role: String,
    /// API groups; the core's is empty.
    pub groups: Vec<String>,
    /// Resources.
    pub resources: Vec<String>,
    /// The names that it is narrowed to; empty where it is not.
    pub names: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
}

/// Every rule of every role among `objects`, in their order.
pub fn rules(objects: &[Object]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for object in objects.iter().filter(|object| object.text("/kind").ends_with("Role")) {
        for rule in object.list("/rules") {
            let words = |field: &str| -> Vec<String> {
                rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
            };
            rules.push(Rule {
                file: object.file.clone(),
                kind: object.text("/kind").to_owned(),
                role: object.text("/metadata/name").to_owned(),
                groups: words("apiGroups"),
                resources: words("resources"),
                names: words("resourceNames"),
                verbs: words("verbs"),
            });
        }
    }
    rules
}
