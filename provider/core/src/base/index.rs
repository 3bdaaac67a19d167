//! Look-up tables for one pass.
//!
//! Ids are long texts with common prefixes. Finding one in an ordered map of thousands takes a
//! dozen comparisons, each a cache miss; a hash takes one. Such a table is never iterated, and its
//! keys hash alike in every process, so the same inputs still make the same plan.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

use rustc_hash::{FxHashMap, FxHashSet};

/// A table that is looked up and never walked.
pub(crate) type Lookup<K, V> = FxHashMap<K, V>;

/// A set that is looked up and never walked.
pub(crate) type LookupSet<K> = FxHashSet<K>;

/// Looks up what is asked for in the order of the keys: one walk beside the caller's, and not one search for each.
pub(crate) struct InOrder<'m, K, V>(Peekable<btree_map::Iter<'m, K, V>>);

impl<'m, K: Ord, V> InOrder<'m, K, V> {
    pub(crate) fn of(map: &'m BTreeMap<K, V>) -> Self {
        Self(map.iter().peekable())
    }

    /// What the map has of a key that comes after all that were asked for before.
    pub(crate) fn next(&mut self, key: &K) -> Option<&'m V> {
        while self.0.next_if(|(known, _)| *known < key).is_some() {}
        self.0.next_if(|(known, _)| *known == key).map(|(_, value)| value)
    }
}
