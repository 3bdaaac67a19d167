//! Shared texts: one copy of each text in the process, so that two are compared and hashed by their address.
//!
//! A fleet names its groups, zones and machines tens of thousands of times, and a pass compares
//! them all. The table keeps no text alive: what nobody holds any more is swept out of it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use super::index::Lookup;

/// A text of which the process keeps one copy, however many values hold it. Its order is that of the texts.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct SharedText(Arc<str>);

/// All texts that are shared now.
static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(|| Mutex::new(Texts::new()));

/// The table is not swept before it has so many texts.
const SWEPT_FROM: usize = 4_096;

struct Texts {
    /// Texts come from outside, so nobody is to foresee what they hash to.
    hasher: RandomState,
    by_hash: Lookup<u64, Weak<str>>,
    /// Those whose hash another text has already; next to never any.
    colliding: Vec<Weak<str>>,
    /// With how many texts it is swept next.
    sweep_at: usize,
}

impl Texts {
    fn new() -> Self {
        Self { hasher: RandomState::new(), by_hash: Lookup::default(), colliding: Vec::new(), sweep_at: SWEPT_FROM }
    }

    fn share(&mut self, text: &str) -> Arc<str> {
        let hash = self.hasher.hash_one(text);
        self.share_hashed(text, hash)
    }

    fn share_hashed(&mut self, text: &str, hash: u64) -> Arc<str> {
        let known = self.by_hash.get(&hash).and_then(Weak::upgrade);
        let mut all = self.colliding.iter().filter_map(Weak::upgrade).chain(known.clone());
        if let Some(same) = all.find(|other| **other == *text) {
            return same;
        }
        let fresh: Arc<str> = Arc::from(text);
        if known.is_some() {
            self.colliding.push(Arc::downgrade(&fresh));
        } else {
            self.by_hash.insert(hash, Arc::downgrade(&fresh));
        }
        if self.by_hash.len() >= self.sweep_at {
            self.sweep();
        }
        fresh
    }

    /// Drops what nobody holds any more.
    fn sweep(&mut self) {
        let held = |text: &Weak<str>| text.strong_count() > 0;
        self.by_hash.retain(|_, text| held(text));
        self.colliding.retain(held);
        self.sweep_at = self.by_hash.len().saturating_mul(2).max(SWEPT_FROM);
    }
}

impl SharedText {
    /// That text, once.
    pub fn new(text: &str) -> Self {
        // A panic leaves the table as it was, or with one text more.
        Self(TEXTS.lock().unwrap_or_else(PoisonError::into_inner).share(text))
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedText {}

impl Hash for SharedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

impl Ord for SharedText {
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for SharedText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<SharedText> for String {
    fn from(text: SharedText) -> Self {
        (*text).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_one() {
        let (a, b, other) = (SharedText::new("node-a"), SharedText::new("node-a"), SharedText::new("node-b"));
        assert_eq!(a.0.as_ptr(), b.0.as_ptr());
        assert!(a == b && a != other && a < other);
        let texts: Vec<SharedText> = serde_json::from_str(r#"["node-a","node-b"]"#).unwrap();
        assert_eq!(texts, [a, other]);
    }

    /// Threads that share one text at once get one copy.
    #[test]
    fn threads_share_too() {
        for round in 0..200 {
            let text = format!("raced-{round}");
            let shared = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| SharedText::new(&text))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(shared.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        }
    }

    #[test]
    fn what_nobody_holds_is_swept() {
        let mut texts = Texts::new();
        let held: Vec<_> = (0..10).map(|n| texts.share(&format!("held-{n}"))).collect();
        for n in 0..100_000 {
            drop(texts.share(&format!("launch-{n}")));
        }
        assert!(texts.by_hash.len() <= SWEPT_FROM, "{}", texts.by_hash.len());
        for (n, text) in held.iter().enumerate() {
            assert!(Arc::ptr_eq(text, &texts.share(&format!("held-{n}"))));
        }
    }

    #[test]
    fn texts_with_one_hash_are_told_apart() {
        let mut texts = Texts::new();
        let (a, b) = (texts.share_hashed("a", 7), texts.share_hashed("b", 7));
        assert_eq!((&*a, &*b), ("a", "b"));
        assert!(Arc::ptr_eq(&a, &texts.share_hashed("a", 7)));
        drop(a);
        // The place of the first is free again, and the second is still known.
        assert!(Arc::ptr_eq(&b, &texts.share_hashed("b", 7)));
        assert_eq!(&*texts.share_hashed("c", 7), "c");
        assert!(Arc::ptr_eq(&b, &texts.share_hashed("b", 7)));
    }
}
