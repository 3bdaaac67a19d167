//! Tables for one pass. Ids are long texts that begin alike, so finding one in an ordered map of thousands costs a dozen comparisons that
//! each miss the cache; hashing it costs one. Such a table is only looked up and never walked, and its keys are hashed alike in every
//! process, so the same inputs still make the same plan.

use rustc_hash::{FxHashMap, FxHashSet};

/// A table that is looked up and never walked.
pub(crate) type Lookup<K, V> = FxHashMap<K, V>;

/// A set that is looked up and never walked.
pub(crate) type LookupSet<K> = FxHashSet<K>;
