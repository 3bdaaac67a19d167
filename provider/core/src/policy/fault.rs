//! Faults of a policy, and where they are.

use std::fmt;

use crate::base::text::quoted;

/// The place of a field: `pools[2].capacity.spot.maxShare`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Path(Vec<Segment>);

/// One segment of a path: from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    /// To the field of that name.
    Key(String),
    /// To the element at that index, from zero.
    Index(usize),
}

impl Path {
    /// The whole document.
    pub fn root() -> Self {
        Self::default()
    }

    /// The field `key` below this place.
    #[must_use]
    pub fn key(&self, key: impl Into<String>) -> Self {
        let mut segments = self.0.clone();
        segments.push(Segment::Key(key.into()));
        Self(segments)
    }

    /// The element `index` below this place.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut segments = self.0.clone();
        segments.push(Segment::Index(index));
        Self(segments)
    }

    /// The place this one is in; `None` for the whole document.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        Some(Self(rest.to_vec()))
    }

    /// The segments from the whole document to this place.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether `other` is this place or lies within it.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

/// Whether a key reads as one word, so that it needs no brackets in a path.
fn is_word(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the file");
        }
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Segment::Key(key) if !is_word(key) => write!(f, "[{}]", quoted(key))?,
                Segment::Key(key) if at == 0 => write!(f, "{key}")?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// One thing wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field that has it.
    pub path: Path,
    /// What is wrong and what would be right, without the path.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_people_write_it() {
        let path = Path::root().key("pools").index(2).key("spot").key("maxShare");
        assert_eq!(path.to_string(), "pools[2].spot.maxShare");
        assert_eq!(path.parent().map(|p| p.to_string()), Some("pools[2].spot".into()));
        assert_eq!(Path::root().key("labels").key("a.b/c\n").to_string(), r#"labels["a.b/c\n"]"#);
    }

    #[test]
    fn a_place_contains_itself_and_what_is_below() {
        let pool = Path::root().key("pools").index(2);
        assert!(pool.contains(&pool) && pool.contains(&pool.key("name")) && Path::root().contains(&pool));
        assert!(!pool.contains(&Path::root().key("pools").index(3)) && !pool.key("name").contains(&pool));
    }

    #[test]
    fn a_fault_of_the_whole_file_says_so() {
        assert_eq!(Fault { path: Path::root(), message: "is empty".into() }.to_string(), "the file is empty");
    }

    #[test]
    fn the_operators_text_is_repeated_in_part() {
        assert_eq!(quoted(&"x".repeat(1 << 20)), format!("\"{}\"…", "x".repeat(60)));
    }
}
