//! Reads the committed vectors: `[Message]`, then hex up to `#` on each line.

use std::collections::BTreeMap;

/// Message name to bytes.
pub(crate) type Vectors = BTreeMap<String, Vec<u8>>;

pub(crate) fn parse(text: &str) -> Vectors {
    let mut vectors = Vectors::new();
    let mut name = None;
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(title) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            assert!(vectors.insert(title.to_owned(), Vec::new()).is_none(), "{title} comes twice");
            name = Some(title.to_owned());
        } else if !line.is_empty() {
            let bytes = line.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap());
            vectors.get_mut(name.as_ref().unwrap()).unwrap().extend(bytes);
        }
    }
    vectors
}

pub(crate) fn requests_all() -> Vectors {
    parse(include_str!("../vectors/requests-all.hex"))
}

pub(crate) fn responses() -> Vectors {
    parse(include_str!("../vectors/responses.hex"))
}
