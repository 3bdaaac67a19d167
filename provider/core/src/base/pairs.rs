//! Serialization of maps with structured keys as a list of pairs, because JSON keys must be text.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes the map as a list of pairs, in key order.
///
/// # Errors
/// When a key or a value cannot be written.
pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(map: &BTreeMap<K, V>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(map)
}

/// Reads a list of pairs.
///
/// # Errors
/// When it is none.
pub(crate) fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: Ord + Deserialize<'de>,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Vec::<(K, V)>::deserialize(from).map(|pairs| pairs.into_iter().collect())
}
