//! What changed between two values, so that a pass writes down what it changed and not all that there is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stoker_core::base::ids::ZoneName;
use stoker_core::facts::outdated::Outdated;
use stoker_core::facts::snapshot::Drained;
use stoker_core::facts::supply::{EndedWhy, LaunchOutcome, MachineFact, QuotaFact, ReservationFact};
use stoker_core::market::price::Quote;
use stoker_core::state::budget::Stage;

/// A value that can tell what changed in it.
pub(super) trait Part: Sized {
    /// What changed.
    type Delta: Serialize + DeserializeOwned;

    /// All of it, as a change from nothing.
    fn whole(&self) -> Self::Delta;

    /// What changed since `before`; `None` where nothing did.
    fn since(&self, before: &Self) -> Option<Self::Delta>;

    /// `before` (or nothing) with the change made to it.
    fn apply(before: Option<Self>, delta: Self::Delta) -> Self;
}

/// What changed in a map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MapDelta<K, D> {
    /// Keys that are new or whose value changed, and how.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub(super) put: Vec<(K, D)>,
    /// Keys that are gone.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub(super) gone: Vec<K>,
}

impl<K, D> Default for MapDelta<K, D> {
    fn default() -> Self {
        Self { put: Vec::new(), gone: Vec::new() }
    }
}

impl<K, D> MapDelta<K, D> {
    /// Whether nothing changed.
    pub(super) const fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty()
    }

    fn some(self) -> Option<Self> {
        if self.is_empty() { None } else { Some(self) }
    }
}

impl<K, V> Part for BTreeMap<K, V>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    V: Part,
{
    type Delta = MapDelta<K, V::Delta>;

    fn whole(&self) -> Self::Delta {
        MapDelta { put: self.iter().map(|(key, value)| (key.clone(), value.whole())).collect(), gone: Vec::new() }
    }

    fn since(&self, before: &Self) -> Option<Self::Delta> {
        let mut delta = MapDelta::default();
        let mut old = before.iter().peekable();
        for (key, value) in self {
            while let Some((gone, _)) = old.next_if(|(k, _)| *k < key) {
                delta.gone.push(gone.clone());
            }
            let change = match old.next_if(|(k, _)| *k == key) {
                Some((_, was)) => value.since(was),
                None => Some(value.whole()),
            };
            if let Some(change) = change {
                delta.put.push((key.clone(), change));
            }
        }
        delta.gone.extend(old.map(|(key, _)| key.clone()));
        delta.some()
    }

    fn apply(before: Option<Self>, delta: Self::Delta) -> Self {
        let mut map = before.unwrap_or_default();
        for key in &delta.gone {
            map.remove(key);
        }
        for (key, change) in delta.put {
            let was = map.remove(&key);
            map.insert(key, V::apply(was, change));
        }
        map
    }
}

/// What changed in a set.
pub(super) type SetDelta<K> = MapDelta<K, ()>;

impl<K: Ord + Clone + Serialize + DeserializeOwned> Part for BTreeSet<K> {
    type Delta = SetDelta<K>;

    fn whole(&self) -> Self::Delta {
        MapDelta { put: self.iter().map(|key| (key.clone(), ())).collect(), gone: Vec::new() }
    }

    fn since(&self, before: &Self) -> Option<Self::Delta> {
        let put = self.difference(before).map(|key| (key.clone(), ())).collect();
        let gone = before.difference(self).cloned().collect();
        MapDelta { put, gone }.some()
    }

    fn apply(before: Option<Self>, delta: Self::Delta) -> Self {
        let mut set = before.unwrap_or_default();
        for key in &delta.gone {
            set.remove(key);
        }
        set.extend(delta.put.into_iter().map(|(key, ())| key));
        set
    }
}

/// Shared values change whole. One that is still the same allocation is not looked into.
impl<T: PartialEq + Serialize + DeserializeOwned> Part for Arc<T> {
    type Delta = Self;

    fn whole(&self) -> Self {
        Self::clone(self)
    }

    fn since(&self, before: &Self) -> Option<Self> {
        (!Self::ptr_eq(self, before) && self != before).then(|| Self::clone(self))
    }

    fn apply(_: Option<Self>, delta: Self) -> Self {
        delta
    }
}

macro_rules! whole {
    ($($kind:ty),+) => {$(
        impl Part for $kind {
            type Delta = Self;

            fn whole(&self) -> Self {
                self.clone()
            }

            fn since(&self, before: &Self) -> Option<Self> {
                (self != before).then(|| self.clone())
            }

            fn apply(_: Option<Self>, delta: Self) -> Self {
                delta
            }
        }
    )+};
}

// Small values that change whole.
whole!(
    Drained,
    EndedWhy,
    LaunchOutcome,
    MachineFact,
    Option<Outdated>,
    Quote,
    QuotaFact,
    ReservationFact,
    Stage,
    Timestamp,
    ZoneName
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Map = BTreeMap<u8, Arc<u8>>;

    /// Through JSON and back, as the journal does it.
    fn stored<D: Serialize + DeserializeOwned>(delta: &D) -> D {
        serde_json::from_str(&serde_json::to_string(delta).unwrap()).unwrap()
    }

    fn edited(map: &Map, edits: &[(u8, Option<u8>)]) -> Map {
        let mut map = map.clone();
        for (key, edit) in edits {
            match edit {
                Some(value) => map.insert(*key, Arc::new(*value)),
                None => map.remove(key),
            };
        }
        map
    }

    proptest! {
        #[test]
        fn a_base_and_its_deltas_make_the_current_map(
            rounds in prop::collection::vec(prop::collection::vec((0_u8..24, prop::option::of(0_u8..4)), 0..12), 1..12),
        ) {
            let mut current = Map::new();
            let mut rebuilt = Map::apply(None, stored(&current.whole()));
            for edits in rounds {
                let next = edited(&current, &edits);
                let delta = next.since(&current);
                prop_assert_eq!(delta.is_none(), next == current);
                if let Some(delta) = delta {
                    // Nothing is written that did not change.
                    for (key, value) in &delta.put {
                        prop_assert_ne!(current.get(key), Some(value));
                    }
                    prop_assert!(delta.gone.iter().all(|key| current.contains_key(key) && !next.contains_key(key)));
                    rebuilt = Map::apply(Some(rebuilt), stored(&delta));
                }
                current = next;
                prop_assert_eq!(&rebuilt, &current);
                prop_assert_eq!(&Map::apply(None, stored(&current.whole())), &current);
            }
        }

        #[test]
        fn a_set_and_its_deltas_make_the_current_set(rounds in prop::collection::vec(prop::collection::btree_set(0_u8..24, 0..12), 1..12)) {
            let mut rebuilt = BTreeSet::new();
            for next in rounds {
                if let Some(delta) = next.since(&rebuilt) {
                    rebuilt = BTreeSet::apply(Some(rebuilt), stored(&delta));
                }
                prop_assert_eq!(&rebuilt, &next);
            }
        }

        #[test]
        fn maps_in_maps_change_inside(
            rounds in prop::collection::vec(prop::collection::btree_map(0_u8..6, prop::collection::btree_map(0_u8..6, (0_u8..4).prop_map(Arc::new), 0..5), 0..5), 1..10),
        ) {
            let mut rebuilt = BTreeMap::new();
            for next in rounds {
                if let Some(delta) = next.since(&rebuilt) {
                    rebuilt = BTreeMap::apply(Some(rebuilt), stored(&delta));
                }
                prop_assert_eq!(&rebuilt, &next);
            }
        }
    }

    #[test]
    fn one_change_in_many_is_one_entry() {
        let before: Map = (0..200).map(|n| (n, Arc::new(n))).collect();
        let after = edited(&before, &[(7, Some(99)), (9, None)]);
        let delta = after.since(&before).unwrap();
        assert_eq!(delta, MapDelta { put: vec![(7, Arc::new(99))], gone: vec![9] });
        assert_eq!(before.clone().since(&before), None);
    }
}
