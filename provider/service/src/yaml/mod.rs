//! Our YAML files: read into a type, or refused with every fault and its line.
//!
//! ```text
//! policy.yaml:14:9: pools[2].limits.maxNodes must be a whole number, is the text "four"
//! ```

mod edit;
mod faults;
mod manifest;
mod read;
mod scalar;
mod schema;
#[cfg(test)]
mod tests;
mod tree;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use stoker_core::policy::{Fault, Path};

pub use edit::{Edit, edit, flow};
pub use faults::{Faults, FileFault, Position};
pub use manifest::{HeldPolicy, held_policies};
pub use schema::schema_of;

use faults::Found;
use read::Reader;
use schema::In;
use tree::Node;

use crate::files::MAX_BYTES;

/// A value, and where each part of it stands in the file.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The value.
    pub value: T,
    root: Node,
}

impl<T> Loaded<T> {
    /// Where the field at `path` stands; where the file does not write it, where its place would be.
    pub fn position(&self, path: &Path) -> Position {
        self.root.place_of(path)
    }

    /// What else is to be said of the text that this was read from, by line. `file_name` is only shown.
    pub fn told(&self, file_name: &str, text: &str, said: Vec<Fault>) -> Faults {
        let found = said.into_iter().map(|fault| Found { at: self.position(&fault.path), fault });
        Faults::new(file_name, text, found.collect())
    }
}

/// Reads `text` as a `T`.
///
/// # Errors
/// Every fault of the text's form, by line. `file_name` is only shown.
pub fn load<T: DeserializeOwned + JsonSchema>(file_name: &str, text: &str) -> Result<Loaded<T>, Faults> {
    match draft(text) {
        Draft { value: Some(value), root: Some(root), found, .. } if found.is_empty() => Ok(Loaded { value, root }),
        Draft { found, .. } => Err(Faults::new(file_name, text, found)),
    }
}

/// Reads `text` as a `T` and applies `rules` to it.
///
/// The rules also judge what can be read of a text whose form is wrong; what they say of a part that was not read is dropped.
///
/// # Errors
/// Every fault of form and by the rules, by line. `file_name` is only shown.
pub fn load_checked<T: DeserializeOwned + JsonSchema, U>(
    file_name: &str,
    text: &str,
    rules: impl FnOnce(&T) -> Result<U, Vec<Fault>>,
) -> Result<Loaded<U>, Faults> {
    let Draft { value, root, mut found, doubtful } = draft(text);
    if let (Some(value), Some(root)) = (value, root) {
        match rules(&value) {
            Ok(value) if found.is_empty() => return Ok(Loaded { value, root }),
            Ok(_) => {}
            Err(faults) => {
                let is_sure =
                    |fault: &Fault| !doubtful.iter().any(|path| path.contains(&fault.path) || fault.path.contains(path));
                let sure = faults.into_iter().filter(is_sure);
                found.extend(sure.map(|fault| Found { at: root.place_of(&fault.path), fault }));
            }
        }
    }
    Err(Faults::new(file_name, text, found))
}

/// A text as far as it could be read.
struct Draft<T> {
    value: Option<T>,
    root: Option<Node>,
    found: Vec<Found>,
    doubtful: Vec<Path>,
}

fn draft<T: DeserializeOwned + JsonSchema>(text: &str) -> Draft<T> {
    if text.len() > MAX_BYTES {
        let message = format!("has {} bytes, more than {MAX_BYTES}: split or shorten it", text.len());
        let fault = Fault { path: Path::root(), message };
        let found = vec![Found { at: Position { line: 1, column: 1 }, fault }];
        return Draft { value: None, root: None, found, doubtful: Vec::new() };
    }
    let tree::Document { root, mut found } = tree::parse(text);
    let Some(root) = root else {
        return Draft { value: None, root: None, found, doubtful: Vec::new() };
    };
    let schema = schema_of::<T>();
    let mut reader = Reader::default();
    let json = reader.read(In::root(&schema), &root, root.at, &Path::root());
    found.append(&mut reader.found);
    let value = match json.map(serde_path_to_error::deserialize::<_, T>) {
        Some(Ok(value)) => Some(value),
        // What the schema cannot say. Of a text with other faults this may be their consequence.
        Some(Err(error)) if found.is_empty() => {
            let path = path_of(error.path());
            let at = root.place_of(&path);
            found.push(Found { at, fault: Fault { path, message: format!("cannot be read: {}", error.into_inner()) } });
            None
        }
        Some(Err(_)) | None => None,
    };
    Draft { value, root: Some(root), found, doubtful: reader.doubtful }
}

fn path_of(path: &serde_path_to_error::Path) -> Path {
    use serde_path_to_error::Segment;
    path.iter().fold(Path::root(), |path, segment| match segment {
        Segment::Seq { index } => path.index(*index),
        Segment::Map { key } => path.key(key),
        Segment::Enum { .. } | Segment::Unknown => path,
    })
}
